"""Leading eigenvectors of the normalised Gaussian kernel of pooled rows, the reference for Fed-SpeClust.

The kernel of n rows has n^2 entries, 6.4 GB at 40,000 rows in single precision. It is computed again, tile by
tile, for each product with a block of vectors. Block Lanczos keeps the number of products low. It starts from
the eigenvectors of a Nystrom estimate on a sample of the rows, which are already accurate to a few digits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from raydr.arrays import Float64Array, FloatArray
from raydr.geometry.points import Points, Progress, map_threaded, row_blocks, unheard
from raydr.methods.landmarks.clustering import Spectrum, factor_spectrum
from raydr.methods.landmarks.kernel import gaussian_kernel
from raydr.methods.landmarks.nystrom import similarity_factor
from raydr.threads import cores

SAMPLE = 500
"""Rows in the sample of the initial estimate."""
MORE = 10
"""Vectors of a block beyond those requested, for faster convergence."""
MADE_UP = 5
"""Random vectors among these, for what the sample has missed: rows that are near nothing but each other."""
LEAST_PRODUCTS, MOST_PRODUCTS = 3, 16
"""Products with the kernel. Random vectors need a few before they show what the start has missed."""
TOLERANCE = 1e-3
"""Largest residual |S u - s u| of an eigenvector, in units of how far the last eigenvalue s is from 0 and from 1."""
_OWN, _OTHERS = 512, 2048
"""Rows and columns of a tile: 4 MB of float32 stay in the cache between exponential and products."""
_SINGLE = 1e3
"""Largest squared norms in units of 1 / gamma at which a single-precision kernel keeps three digits or more."""


class GaussianKernel:
    """Products with the kernel matrix ``exp(-gamma |x_i - x_j|^2)`` of rows (rows, features).

    In single precision, unless the rows extend so far in units of the bandwidth that rounding would matter.
    """

    def __init__(self, rows: FloatArray, gamma: float) -> None:
        points = Points(np.asarray(rows, np.float64))
        norms = gamma * points.squared_norms[:, None]
        precision = np.float32 if float(norms.max()) <= _SINGLE else np.float64
        # One product of these and of the result of `_facing` is 2 gamma x.y - gamma |x|^2 - gamma |y|^2.
        self._columns: FloatArray = np.empty((points.rows, points.coordinates.shape[1] + 2), precision)
        for block in points.blocks():
            self._columns[block, :-2] = np.sqrt(2.0 * gamma) * points.centred(block)
        self._columns[:, -2:] = np.hstack([np.ones_like(norms), norms])

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self._columns)

    def times(self, vectors: Float64Array, progress: Progress = unheard) -> Float64Array:
        """Return the product with vectors (rows, count) as float64; ``progress`` counts rows.

        Each tile serves both triangles. The bits do not depend on the number of threads.
        """
        given = vectors.astype(self._columns.dtype)
        product = np.zeros(vectors.shape)

        def part(block: tuple[int, int]) -> tuple[int, Float64Array, Float64Array]:
            start, stop = block
            facing = self._facing(start, stop)
            own = np.zeros((stop - start, vectors.shape[1]))
            own += self._tile(facing, start, stop) @ given[start:stop]
            others = np.empty((self.rows - stop, vectors.shape[1]))
            for low, high in row_blocks(self.rows - stop, _OTHERS):
                tile = self._tile(facing, stop + low, stop + high)
                own += tile @ given[stop + low : stop + high]
                others[low:high] = tile.T @ given[start:stop]
            return start, own, others

        done = 0
        for start, own, others in map_threaded(part, row_blocks(self.rows, _OWN), cores()):
            stop = start + len(own)
            product[start:stop] += own
            product[stop:] += others
            done += len(own)
            progress(done, self.rows)
        return product

    def _facing(self, start: int, stop: int) -> FloatArray:
        """Return the left factor of a tile: the last columns, 1 and gamma |x|^2, become -gamma |x|^2 and -1."""
        facing = self._columns[start:stop].copy()
        facing[:, -2:] = -facing[:, :-3:-1]
        return facing

    def _tile(self, facing: FloatArray, low: int, high: int) -> FloatArray:
        tile: FloatArray = facing @ self._columns[low:high].T
        np.minimum(tile, 0.0, out=tile)
        np.exp(tile, out=tile)
        return tile


def pooled_spectrum(
    rows: FloatArray, gamma: float, count: int, *, seed: int, progress: Progress = unheard
) -> tuple[Spectrum, bool]:
    """Return the leading eigenvectors of D^-1/2 K D^-1/2, with K the Gaussian kernel of all rows.

    Parameters
    ----------
    rows : (rows, features)
        Pooled rows.
    gamma : float
        Bandwidth.
    count : int
        Number of eigenvectors, at most the number of rows.
    seed : int
        Seed of the sample of rows for the start.
    progress : callable
        Called in steps of at most this many products, cut into rows.

    Returns
    -------
    spectrum : Spectrum
        ``count`` eigenvectors.
    converged : bool
        Whether all residuals are within `TOLERANCE`.
    """
    kernel = GaussianKernel(rows, gamma)
    n, steps = kernel.rows, 0

    def times(vectors: Float64Array) -> Float64Array:
        nonlocal steps
        before, steps = steps, steps + 1
        return kernel.times(vectors, lambda done, of: progress(before * of + done, MOST_PRODUCTS * of))

    start = _start(rows, gamma, min(count + MORE, n), seed)
    # The first product also gives the degrees, and their root is the first eigenvector.
    product = times(np.hstack([np.ones((n, 1)), start]))
    root = np.sqrt(product[:, :1])
    space, triangle = np.linalg.qr(np.hstack([root, start * root]))
    images = np.linalg.solve(triangle.T, (product / root).T).T

    def image(vectors: Float64Array) -> Float64Array:
        return times(vectors / root) / root

    values, vectors, converged = _lanczos(image, space, images, count)
    progress(MOST_PRODUCTS * n, MOST_PRODUCTS * n)
    return Spectrum(vectors, values, root[:, 0] ** 2, 0), converged


def _start(rows: FloatArray, gamma: float, width: int, seed: int) -> Float64Array:
    """Return vectors (rows, width - 1) near the eigenvectors of D^-1 K except the constant one, the last random."""
    random = np.random.default_rng(seed)
    sample = np.sort(random.choice(len(rows), min(SAMPLE, len(rows)), replace=False))
    chosen = rows[sample].astype(np.float64)

    def with_sample(start: int, stop: int) -> Float64Array:
        return np.asarray(gaussian_kernel(rows[start:stop].astype(np.float64), chosen, gamma), np.float64)

    # As many values as 2,000 rows of 2,000 features have: a copy of all rows of a wide table would be large.
    most = max(1, min(_OTHERS, _OTHERS**2 // rows.shape[1]))
    blocks = (with_sample(start, stop) for start, stop in row_blocks(len(rows), most))
    among = np.asarray(gaussian_kernel(chosen, chosen, gamma), np.float64)
    estimate = factor_spectrum(similarity_factor(blocks, among).rows, max(1, width - MADE_UP))
    vectors = estimate.vectors[:, 1:] / np.sqrt(estimate.degrees)[:, None]
    made_up = random.standard_normal((len(rows), width - 1 - vectors.shape[1])) / len(rows)
    return np.hstack([vectors, made_up])


def _lanczos(
    image: Callable[[Float64Array], Float64Array], space: Float64Array, images: Float64Array, count: int
) -> tuple[Float64Array, Float64Array, bool]:
    """Return leading eigenpairs of a symmetric matrix, by block Lanczos with full orthogonalisation.

    ``space`` (rows, block) is orthonormal and ``images`` is its product with the matrix.
    """
    width = space.shape[1]
    for products in range(1, MOST_PRODUCTS + 1):
        values, inner = np.linalg.eigh(0.5 * (space.T @ images + images.T @ space))
        values, inner = values[::-1][:width], inner[:, ::-1][:, :width]
        vectors = space @ inner
        residuals = images @ inner - vectors * values
        lengths = np.linalg.norm(residuals, axis=0)
        # Eigenvalues crowd near 1 if rows are similar only to themselves; they must be separated there too.
        last = float(values[count - 1])
        converged = bool((lengths[:count] <= TOLERANCE * max(min(last, 1.0 - last), TOLERANCE)).all())
        if (converged and products >= LEAST_PRODUCTS) or products == MOST_PRODUCTS:
            break
        fresh = _orthonormal(residuals, space)
        if not fresh.shape[1]:
            break
        space, images = np.hstack([space, fresh]), np.hstack([images, image(fresh)])
    return values[:count], vectors[:, :count], converged


def _orthonormal(block: Float64Array, space: Float64Array) -> Float64Array:
    """Return an orthonormal basis of what a block adds to an orthonormal space, without directions of rounding."""
    block = block / np.maximum(np.linalg.norm(block, axis=0), np.finfo(np.float64).tiny)
    for _ in range(2):
        block = block - space @ (space.T @ block)
        left, singular, _ = np.linalg.svd(block, full_matrices=False)
        block = left[:, singular > 1e-6]
        block = block[:, : max(0, space.shape[0] - space.shape[1])]
    return block
