"""Initial layouts: principal components of the rows, scaled for each embedder."""

from __future__ import annotations

import numpy as np

from raydr.arrays import Float32Array, Float64Array, FloatArray
from raydr.errors import DataError
from raydr.geometry.neighbors import NeighborGraph
from raydr.threads import one_blas_thread

_BLOCK_ROWS, _BLOCK_VALUES = 4096, 1 << 22
"""Rows and values converted to float64 at a time. Working memory grows neither with rows nor with features."""
_START_NEIGHBORS = 10
"""Nearest rows that give a new row its start."""
DENSE_FEATURES = 2048
"""Largest number of features for which the features x features covariance is formed (32 MB). Wider data use
Lanczos iteration."""


def principal_components(coordinates: FloatArray, components: int = 2) -> Float64Array:
    """Return the scores of the rows on the leading principal axes, bit-identical for identical rows.

    The axes are the eigenvectors of the covariance matrix with the largest eigenvalues. The sign of each
    makes its entry of largest magnitude positive. Up to 2048 features the covariance is formed and
    decomposed; with more, Lanczos iteration from a fixed start applies it without forming it.

    Parameters
    ----------
    coordinates : array of shape (rows, features)
        Finite values, float32 or float64; sums are taken in float64, in blocks of rows.
    components : int
        Number of axes. If there are fewer features, the further columns are zero.

    Returns
    -------
    array of shape (rows, components), float64
        Centred scores, by decreasing variance.

    Raises
    ------
    DataError
        If ``coordinates`` is not a matrix with at least one row and one column.

    Examples
    --------
    >>> import numpy as np
    >>> principal_components(np.array([[0.0, 1.0], [3.0, 1.0], [6.0, 1.0]])).round(12).tolist()
    [[-3.0, 0.0], [0.0, 0.0], [3.0, 0.0]]
    """
    if coordinates.ndim != 2 or 0 in coordinates.shape:
        raise DataError(
            f"Cannot compute principal components of an array of shape {coordinates.shape}. Give a"
            " matrix (rows, features) with at least one row and one feature."
        )
    rows, features = coordinates.shape
    scores = np.zeros((rows, components), dtype=np.float64)
    found = min(components, features)
    with one_blas_thread():
        mean = coordinates.mean(axis=0, dtype=np.float64)
        if features <= DENSE_FEATURES or features <= components:
            axes = _axes_of_covariance(coordinates, mean, found)
        else:
            axes = _axes_by_iteration(coordinates, mean, found)
        largest = axes[np.abs(axes).argmax(axis=0), np.arange(found)]
        axes = axes * np.where(largest < 0, -1.0, 1.0)
        for block in _blocks(*coordinates.shape):
            scores[block, :found] = (coordinates[block] - mean) @ axes
    return scores


def start_from(places: Float64Array, graph: NeighborGraph, seed: int) -> Float64Array:
    """Return an initial layout (rows, dimensions) from the places of some rows on an earlier map; NaN for the others.

    A row without a place starts at the median of its nearest rows that have one, along each axis. Rows without such
    neighbours follow in further steps, and the last start at the centre. Jitter of 0.001 of the map's standard
    deviation separates rows that start at one point.
    """
    found = places.copy()
    known = ~np.isnan(places[:, 0])
    nearest = graph.nearest(min(_START_NEIGHBORS, graph.k)).indices
    while not known.all():
        missing = np.flatnonzero(~known)
        missing = missing[known[nearest[missing]].any(axis=1)]
        if not missing.size:
            break
        around = nearest[missing]
        found[missing] = np.nanmedian(np.where(known[around][:, :, None], found[around], np.nan), axis=1)
        known[missing] = True
    found[~known] = found[known].mean(axis=0)
    deviation = float(found.std(axis=0).max()) or 1.0
    return found + np.random.default_rng(seed).normal(scale=1e-3 * deviation, size=found.shape)


def tsne_start(initialization: FloatArray, seed: int) -> Float64Array:
    """Scale a layout as ``openTSNE.initialization`` does: first column of standard deviation 1e-4, with jitter.

    The jitter, normal with standard deviation 1e-6, separates rows that start at one point, which would not repel
    each other. See :func:`scaled_start`.
    """
    return scaled_start(initialization, seed, 1e-4)


def random_of_descent(seed: int) -> np.random.Generator:
    """Return the generator for the descent, a separate stream because the start uses the first draws of the seed."""
    return np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])


def scaled_start(initialization: FloatArray, seed: int, deviation: float) -> Float64Array:
    """Scale a layout to ``deviation`` in its first column, and add jitter of a hundredth of that.

    A constant first column has no scale: the layout is then normal noise of that deviation.

    Parameters
    ----------
    initialization : array of shape (rows, components)
        Layout in any units.
    seed : int
        Seed of the noise, non-negative.
    deviation : float
        Standard deviation of the first column, positive.

    Returns
    -------
    array of shape (rows, components), float64
    """
    generator = np.random.default_rng(seed)
    given = float(np.std(initialization[:, 0], dtype=np.float64))
    if given == 0.0:
        return generator.normal(scale=deviation, size=initialization.shape)
    return initialization * (deviation / given) + generator.normal(
        scale=deviation / 100, size=initialization.shape
    )


def umap_start(initialization: FloatArray, seed: int) -> Float32Array:
    """Scale a layout as UMAP does: largest coordinate 10, plus normal noise of deviation 1e-4.

    A constant layout becomes the noise alone; UMAP then stretches every axis to [0, 10]. Otherwise as
    :func:`scaled_start`, in float32.
    """
    generator = np.random.default_rng(seed)
    largest = float(np.abs(initialization).max())
    scale = 10.0 / largest if largest > 0.0 else 0.0
    noise = generator.normal(scale=1e-4, size=initialization.shape)
    return (initialization * scale + noise).astype(np.float32)


def _axes_of_covariance(coordinates: FloatArray, mean: Float64Array, components: int) -> Float64Array:
    """Return the leading eigenvectors (features, components) of the covariance, formed block by block."""
    from scipy.linalg import eigh

    features = coordinates.shape[1]
    scatter = np.zeros((features, features), dtype=np.float64)
    for block in _blocks(*coordinates.shape):
        centred = coordinates[block] - mean
        scatter += centred.T @ centred
    _, axes = eigh(scatter, subset_by_index=[features - components, features - 1])
    return np.asarray(axes[:, ::-1], dtype=np.float64)


def _axes_by_iteration(coordinates: FloatArray, mean: Float64Array, components: int) -> Float64Array:
    """Return the leading eigenvectors (features, components) of the covariance by Lanczos iteration."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    features = coordinates.shape[1]

    def scatter_times(vector: Float64Array) -> Float64Array:
        product = np.zeros(features, dtype=np.float64)
        for block in _blocks(*coordinates.shape):
            centred = coordinates[block] - mean
            product += centred.T @ (centred @ vector.ravel())
        return product

    operator = LinearOperator((features, features), matvec=scatter_times, dtype=np.float64)
    start = np.random.default_rng(0).normal(size=features)
    variances, axes = eigsh(operator, k=components, v0=start)
    return np.asarray(axes[:, np.argsort(variances)[::-1]], dtype=np.float64)


def _blocks(rows: int, features: int) -> list[slice]:
    """Cut the rows into consecutive blocks that do not depend on the machine."""
    block = max(1, min(_BLOCK_ROWS, _BLOCK_VALUES // features))
    return [slice(start, start + block) for start in range(0, rows, block)]
