"""CO-SNE: t-SNE in the Poincaré disk or ball, for data with a hierarchy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from pydantic import Field

from raydr.arrays import Float64Array, FloatArray
from raydr.embedding.embedder import GraphSettings, embedder, fitting, perplexity_for
from raydr.embedding.initialization import random_of_descent, scaled_start
from raydr.errors import DataError
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import Progress, unheard

BALL_RADIUS = 1.0 - 1e-5
"""Largest norm of a mapped row, at distance 12.2 from the centre. Beyond it, steps are rounding errors."""
EXACT_ROWS = 5000
"""Up to this number of rows every pair repels, which then takes a minute on one core; with more rows, random pairs."""
_SAMPLES = 256
"""Random rows that repel each row per iteration. On a tree of 3,000 rows the divergence reaches 0.75 with 100, 0.69
with 256 and 0.65 with all. On one of 9,841 rows it reaches 1.10 with 256 and 1.09 with 512."""
_LONGEST_STEP = 5.0
"""Longest step of a row, in units of gamma (openTSNE has the same limit in its own units)."""

Gradient = Callable[[Float64Array, float], Float64Array]


@embedder
class COSNE(GraphSettings):
    r"""CO-SNE: t-SNE in the Poincaré disk or ball.

    The map (Guo, Guo & Yu, CVPR 2022; P3 (16)) minimises, over points of the unit ball,

    .. math::

        \lambda_1 \sum_{ij} p_{ij} \log \frac{p_{ij}}{q_{ij}} + \lambda_2 \sum_i (|x_i|^2 - |y_i|^2)^2,

    with :math:`p_{j|i} \propto \exp(-d(x_i, x_j)^2 / 2 \sigma_i^2)` over the 3 * perplexity nearest
    neighbours in the hyperbolic distances that the neighbour graph holds, :math:`\sigma_i` set by the
    perplexity, p their symmetric mean, and :math:`q_{ij} \propto \gamma^2 / (d(y_i, y_j)^2 + \gamma^2)` in
    the hyperbolic distances of the map. The second term keeps the depth of each row; it needs the norms |x_i|
    of the rows in their own ball. :mod:`raydr.embedding.kernels.hyperbolic_cauchy` has the gradient.

    Neighbours come as close as ``gamma``; a smaller gamma uses less of the ball. The default of lambda_2
    balances the two terms for any number of rows, because the similarities of a row fall as 1 / rows. The
    default learning rate is gamma^2 * rows / (4 * lambda_1 * exaggeration), at most 1 / lambda_2 if norms are
    given.

    Examples
    --------
    >>> COSNE().neighbors_needed(10_000)
    90
    """

    kind: Literal["cosne"] = "cosne"
    perplexity: float | None = Field(
        None, ge=1, description="perplexity; default: 30, or (rows - 1) / 3 if that is less"
    )
    gamma: float = Field(0.1, gt=0, description="scale of the map's Cauchy kernel, as a hyperbolic distance")
    divergence_weight: float = Field(1.0, gt=0, description="lambda_1, the weight of the neighbour term")
    depth_weight: float | None = Field(
        None, ge=0, description="lambda_2, the weight of the norm term; default: 10 * lambda_1 / rows"
    )
    early_exaggeration: float = Field(12.0, ge=1, description="factor on attraction in the early iterations")
    learning_rate: float | None = Field(
        None, gt=0, description="learning rate; default: t-SNE's, in units of gamma"
    )
    early_iterations: int = Field(250, ge=0, description="iterations with early exaggeration")
    iterations: int = Field(500, ge=0, description="iterations after the early ones")
    negative_samples: int | None = Field(
        None, ge=1, description="random repulsions per row; default: all rows up to 5,000, else 256"
    )

    def effective_perplexity(self, rows: int) -> float:
        """Return the perplexity for this many rows; see :func:`raydr.embedding.embedder.perplexity_for`."""
        return perplexity_for("CO-SNE", self.perplexity, rows)

    def neighbors_needed(self, rows: int) -> int:
        """Return 3 * perplexity; see :meth:`raydr.embedding.Embedder.neighbors_needed`."""
        return int(3 * self.effective_perplexity(rows))

    def embed(
        self,
        graph: NeighborGraph,
        initialization: FloatArray,
        *,
        seed: int,
        threads: int = 1,
        progress: Progress = unheard,
        norms: FloatArray | None = None,
    ) -> Float64Array:
        """Descend along the Riemannian gradient with momentum; see :meth:`raydr.embedding.Embedder.embed`.

        The start is ``initialization`` shrunk to a dot at the centre of the ball. A step follows the gradient in
        hyperbolic units of length and is taken in the ball's coordinates. So the Euclidean gradient gets the factor
        ``(1 - |y|^2)^2 / 4``. Rows that leave the ball are pulled back along their radius. The seed draws the jitter of
        the start, and the repelling rows if they are random.

        Parameters
        ----------
        graph, initialization, seed, threads, progress
            As for every embedder. The graph's distances are hyperbolic, of curvature -1. Threads share the
            repulsion of all pairs, in parts that do not depend on the number of threads.
        norms : array of shape (rows,), optional
            |x| of the rows in their own Poincaré ball, 0 or more and below 1. None leaves the depth term out.

        Returns
        -------
        array of the shape of ``initialization``, float64
            Points of the unit ball, of norm at most :data:`BALL_RADIUS`.

        Raises
        ------
        DataError
            As every embedder, or if ``norms`` has another shape or a value outside [0, 1).
        """
        rows = graph.rows
        nearest = fitting(graph, initialization, self.neighbors_needed(rows))
        targets = None if norms is None else _checked_norms(norms, rows)
        affinities = joint_probabilities(nearest, self.effective_perplexity(rows), threads)
        layout = np.ascontiguousarray(scaled_start(initialization, seed, 5e-5 * self.gamma).T)
        samples = self.negative_samples or (None if rows <= EXACT_ROWS else _SAMPLES)
        total = self.early_iterations + self.iterations
        with self.gradient(affinities, targets, samples, seed, threads) as gradient:
            velocity, gains = np.zeros_like(layout), np.ones_like(layout)
            for iteration in range(total):
                progress(iteration, total)
                early = iteration < self.early_iterations
                exaggeration, momentum = (self.early_exaggeration, 0.5) if early else (1.0, 0.8)
                if iteration == self.early_iterations:
                    velocity, gains = np.zeros_like(layout), np.ones_like(layout)
                half_size = (1.0 - np.square(layout).sum(axis=0)) / 2.0  # the unit of length at each row
                slope = gradient(layout, exaggeration) * half_size
                if samples is None:
                    # t-SNE's gains (Jacobs, 1988): larger while the direction stays, smaller when it turns.
                    gains = np.maximum(np.where(slope * velocity < 0.0, gains + 0.2, gains * 0.8), 0.01)
                elif not early:
                    # Gains would follow the noise of the samples; a falling rate averages it out (divergence
                    # at 256 samples of 3,000 rows: 1.05 with gains, 0.91 without, 0.69 with the falling
                    # rate).
                    gains[:] = (total - iteration) / self.iterations
                rate = self._rate(rows, exaggeration, targets is not None)
                velocity = _shortened(momentum * velocity - rate * gains * slope, _LONGEST_STEP * self.gamma)
                layout = _shortened(layout + velocity * half_size, BALL_RADIUS)
        progress(total, total)
        return np.ascontiguousarray(layout.T)

    def effective_depth_weight(self, rows: int) -> float:
        """Return lambda_2 for this many rows: the setting, or 10 * lambda_1 / rows if it is None."""
        return 10.0 * self.divergence_weight / rows if self.depth_weight is None else self.depth_weight

    def _rate(self, rows: int, exaggeration: float, with_depth: bool) -> float:
        if self.learning_rate is not None:
            return self.learning_rate
        rate = self.gamma**2 * rows / (4.0 * self.divergence_weight * exaggeration)
        weight = self.effective_depth_weight(rows) if with_depth else 0.0
        return min(rate, 1.0 / weight) if weight > 0.0 else rate

    @contextmanager
    def gradient(
        self, affinities: Any, norms: Float64Array | None, samples: int | None, seed: int, threads: int
    ) -> Iterator[Gradient]:
        """Yield the Euclidean gradient of the objective, a function of a layout and an exaggeration.

        Parameters
        ----------
        affinities
            p, from :func:`joint_probabilities`.
        norms : (rows,), optional
            |x|; None leaves the depth term out.
        samples : int, optional
            Rows that repel each row, drawn again at every call; None: all.
        seed, threads
            As in :meth:`embed`.

        Yields
        ------
        callable
            From a layout and an exaggeration to a gradient of shape (components, rows).
        """
        from raydr.embedding.kernels.contrastive import draw_negatives
        from raydr.embedding.kernels.hyperbolic_cauchy import STRIPS, attract, repel_all, repel_some

        rows = affinities.shape[0]
        weight = self.effective_depth_weight(rows)
        generator = random_of_descent(seed)

        def gradient(layout: Float64Array, exaggeration: float) -> Float64Array:
            inverse = 1.0 / (1.0 - np.square(layout).sum(axis=0))
            attraction = np.empty_like(layout)
            arguments = (affinities.indptr, affinities.indices, affinities.data, self.gamma**2)
            attract(layout, inverse, *arguments, attraction)
            if samples is None:
                strips = np.zeros((STRIPS, *layout.shape))

                def repel(first: int) -> float:
                    return repel_all(layout, inverse, first, self.gamma**2, strips[first])

                normalisation = sum(executor.map(repel, range(STRIPS)))
                repulsion = strips.sum(axis=0)
            else:
                negatives = draw_negatives(generator, np.arange(rows), rows, samples)
                repulsion = np.empty_like(layout)
                normalisation = repel_some(layout, inverse, negatives, self.gamma**2, repulsion)
            slope = 16.0 * self.divergence_weight * (exaggeration * attraction - repulsion / normalisation)
            if norms is not None:
                slope -= 4.0 * weight * (norms**2 - np.square(layout).sum(axis=0)) * layout
            return np.asarray(slope)

        with ThreadPoolExecutor(max(1, threads), thread_name_prefix="raydr-repulsion") as executor:
            yield gradient


def joint_probabilities(graph: NeighborGraph, perplexity: float, threads: int = 1) -> Any:
    """Return the similarities of the data, P3 (16): p = (p_j|i + p_i|j) / 2n, Gaussian in the distances.

    Parameters
    ----------
    graph : NeighborGraph
        All its neighbours are used.
    perplexity : float
        Effective number of neighbours; it sets the sigma of each row.
    threads : int
        Largest number of threads. Rows do not depend on each other, so neither do the bits.

    Returns
    -------
    scipy.sparse.csr_matrix of shape (rows, rows), float64
        Positive, sums to 1, empty diagonal.
    """
    from scipy.sparse import csr_matrix

    from raydr.embedding.kernels.affinities import joint_affinities

    found = joint_affinities(graph, perplexity, threads)
    joint = csr_matrix((found.weights.astype(np.float64), found.tails, found.ends), shape=(graph.rows,) * 2)
    joint.eliminate_zeros()
    joint.data /= joint.data.sum()
    return joint


def _shortened(vectors: Float64Array, longest: float) -> Float64Array:
    """Scale columns of norm above ``longest`` down to it."""
    norms = np.sqrt(np.square(vectors).sum(axis=0))
    return np.asarray(vectors * (longest / np.maximum(norms, longest)))


def _checked_norms(norms: FloatArray, rows: int) -> Float64Array:
    if norms.shape != (rows,):
        raise DataError(
            f"CO-SNE expected one norm for each of {rows} rows, got norms of shape {norms.shape}. Give"
            f" norms of shape ({rows},)."
        )
    if not ((norms >= 0) & (norms < 1)).all():
        row = int(np.flatnonzero(~((norms >= 0) & (norms < 1)))[0])
        raise DataError(
            f"Row {row} has norm {norms[row]}. Points of a Poincaré ball have norms from 0 to below 1."
            " Map the data into the ball first, or leave the norms out to embed without the depth"
            " term."
        )
    return np.asarray(norms, dtype=np.float64)
