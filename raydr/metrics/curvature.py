r"""The curvature of the loss of t-SNE and of UMAP around the place of each row, with all other places fixed.

Both losses are sums over pairs of functions of the squared distance :math:`u = |y_i - y_j|^2` on the map. With
:math:`r = y_i - y_j`, a term :math:`\varphi(u)` adds :math:`2 \varphi' r` to the gradient at row i, and
:math:`2 \varphi' I + 4 \varphi'' r r^T` to the Hessian. A row's loss is what remains of the map's loss if all other
places stay, as in LOO-map (Liu, Ma and Zhong, Nature Communications 2025).

t-SNE, with :math:`w = 1 / (1 + u)` and affinities p of sum 1:

.. math:: L_i = 2 \sum_j p_{ij} \log(1 + u_{ij}) + \log \sum_{k \ne l} w_{kl}

UMAP, with :math:`w = 1 / (1 + a u^b)`, similarities v, m negative samples per edge, and n rows:

.. math:: L_i = - \sum_j v_{ij} \log w_{ij} - \frac{m \sum_j v_{ij}}{2 n} \sum_j \log(1 - w_{ij} + \epsilon)

The second weight is how often UMAP draws a row to push row i away, relative to its attraction. The published loss has
:math:`1 - v_{ij}` there, which the descent does not minimise (Damrich and Hamprecht 2021).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from raydr.arrays import Float64Array, Int64Array, IntArray
from raydr.geometry.points import map_threaded, row_blocks
from raydr.threads import cores

Derivatives: TypeAlias = Callable[[Float64Array], tuple[Float64Array, Float64Array, Float64Array]]
"""From squared distances to a function of them, and its first and second derivative."""
Sums: TypeAlias = Callable[[Float64Array, Float64Array, Float64Array], None]
"""A loop over all rows: see :mod:`raydr.metrics.kernels.repulsion`."""

EPSILON = 0.1
"""Bounds UMAP's repulsion. Without it, the nearest row decides the curvature, and many places are no minimum of their
loss: *measured* 23 to 46 % with the bound of UMAP's descent, 0.001 in squared distance. From 0.1 to 1, results are
alike."""
_LEAST = 1e-6
"""Least squared distance on the map of UMAP's attraction, whose derivative is infinite at 0."""


@dataclass(frozen=True, eq=False)
class Pulls:
    """Rows of a symmetric sparse matrix: the i-th has ``tails[ends[i]:ends[i + 1]]``, with their ``weights``.

    ``ends`` (some + 1,) int64, ``tails`` (entries,) int, ``weights`` (entries,) float64.
    """

    ends: Int64Array
    tails: IntArray
    weights: Float64Array

    @classmethod
    def of(cls, own: Int64Array, ends: Any, tails: Any, weights: Any) -> Pulls:
        """Return the rows ``own`` of a matrix of all rows, in the same form."""
        sizes = np.asarray(ends[own + 1] - ends[own], np.int64)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        entries = np.arange(starts[-1]) + np.repeat(ends[own] - starts[:-1], sizes)
        return cls(starts, tails[entries], weights[entries].astype(np.float64))

    def totals(self) -> Float64Array:
        """Return the sum of each row's weights (some,)."""
        some = len(self.ends) - 1
        heads = np.repeat(np.arange(some), np.diff(self.ends))
        return np.asarray(np.bincount(heads, self.weights, some), np.float64)


@dataclass(frozen=True, eq=False)
class Terms:
    """Sums of pairs for some rows.

    Attributes
    ----------
    values : (rows,) float64
        Sum of the function.
    gradients : (rows, dimensions) float64
    hessians : (rows, dimensions, dimensions) float64
    """

    values: Float64Array
    gradients: Float64Array
    hessians: Float64Array

    def plus(self, other: Terms, weights: Float64Array) -> Terms:
        """Return this plus ``weights`` (rows,) times another."""
        return Terms(
            self.values + weights * other.values,
            self.gradients + weights[:, None] * other.gradients,
            self.hessians + weights[:, None, None] * other.hessians,
        )


def over_rows(
    places: Float64Array,
    own: Int64Array,
    at: Float64Array,
    sums: Sums,
    derivatives: Derivatives,
    threads: int | None = None,
) -> Terms:
    """Return the sums of a function over all rows but one.

    Parameters
    ----------
    places : (rows, dimensions) float64
        The map.
    own : (some,) int64
        The row that each sum leaves out.
    at : (some, dimensions) float64
        A place of each of them.
    sums : Sums
        The loop over all rows.
    derivatives : Derivatives
        The same function.
    threads : int, optional
        Number of threads. The result does not depend on it.
    """
    from raydr.metrics.kernels.repulsion import ROWS, SUMS

    dimensions = places.shape[1]
    every = _by_axis(places)

    def summed(block: tuple[int, int]) -> Float64Array:
        found = np.zeros((SUMS, block[1] - block[0]))
        sums(_by_axis(at[slice(*block)]), every, found)
        return found

    found = np.concatenate(list(map_threaded(summed, row_blocks(len(own), ROWS), threads)), axis=1)
    upper = np.array([[4, 5, 6], [5, 7, 8], [6, 8, 9]])[:dimensions, :dimensions]
    whole = Terms(found[0], found[1 : 1 + dimensions].T, np.moveaxis(found[upper], 2, 0))
    return whole.plus(_of_pairs(at - places[own], derivatives), np.full(len(own), -1.0))


def _by_axis(places: Float64Array) -> Float64Array:
    """Return places (3, rows), with a third coordinate of 0 on a plane."""
    found = np.zeros((3, len(places)))
    found[: places.shape[1]] = places.T
    return found


def _of_pairs(apart: Float64Array, derivatives: Derivatives) -> Terms:
    """Return the terms of pairs ``apart`` (pairs, dimensions)."""
    value, first, second = derivatives((apart**2).sum(axis=1))
    hessians = 4.0 * second[:, None, None] * apart[:, :, None] * apart[:, None, :]
    hessians += 2.0 * first[:, None, None] * np.eye(apart.shape[1])
    return Terms(value, 2.0 * first[:, None] * apart, hessians)


def over_entries(places: Float64Array, at: Float64Array, pulls: Pulls, derivatives: Derivatives) -> Terms:
    """Return the weighted sums over the entries of each row of a sparse matrix, at places ``at`` (some, dimensions)."""
    some, dimensions = at.shape
    heads = np.repeat(np.arange(some), np.diff(pulls.ends))
    pairs = _of_pairs(at[heads] - places[pulls.tails], derivatives)

    def summed(each: Float64Array) -> Float64Array:
        return np.asarray(np.bincount(heads, pulls.weights * each, some), np.float64)

    gradients, hessians = np.empty((some, dimensions)), np.empty((some, dimensions, dimensions))
    for one in range(dimensions):
        gradients[:, one] = summed(pairs.gradients[:, one])
        for other in range(dimensions):
            hessians[:, one, other] = summed(pairs.hessians[:, one, other])
    return Terms(summed(pairs.values), gradients, hessians)


def tsne_terms(places: Float64Array, own: Int64Array, affinities: Pulls, threads: int | None = None) -> Terms:
    """Return the loss of t-SNE of some rows at their places, up to a constant, with gradient and Hessian.

    For some of very many rows, the sum over all pairs is interpolated as in the embedder.

    Parameters
    ----------
    places : (rows, 2) or (rows, 3) float64
        The map.
    own : (some,) int64
        Rows: all, or a sample.
    affinities : Pulls
        Symmetric affinities of these rows.
    threads : int, optional
        Number of threads. The result does not depend on it.
    """
    from raydr.embedding.kernels.descent import repulsion

    at = places[own]
    similar = tsne_similarities(places, own, at, threads)
    if len(own) == len(places):
        total = float(similar.values.sum())
    else:
        total = repulsion(places, threads or cores(), np.empty_like(places))
    return tsne_loss(places, at, affinities, similar, np.full(len(own), total))


def tsne_similarities(
    places: Float64Array, own: Int64Array, at: Float64Array, threads: int | None = None
) -> Terms:
    """Return the sum of t-SNE's similarities on the map between rows ``own``, if they were ``at``, and all others.

    See :func:`over_rows` for shapes.
    """
    from raydr.metrics.kernels.repulsion import student_sums

    def similarity(u: Float64Array) -> tuple[Float64Array, Float64Array, Float64Array]:
        w = 1.0 / (1.0 + u)
        return w, -(w**2), 2.0 * w**3

    return over_rows(places, own, at, student_sums, similarity, threads)


def tsne_loss(
    places: Float64Array, at: Float64Array, affinities: Pulls, similar: Terms, totals: Float64Array
) -> Terms:
    """Return the loss of t-SNE of rows ``at`` (some, dimensions), up to a constant, with gradient and Hessian.

    ``similar`` are their similarities, and ``totals`` (some,) the sums over all pairs with the rows at these places.
    """

    def attraction(u: Float64Array) -> tuple[Float64Array, Float64Array, Float64Array]:
        w = 1.0 / (1.0 + u)
        return np.log1p(u), w, -(w**2)

    pulled = over_entries(places, at, affinities, attraction)
    # A row's place is in two of the ordered pairs.
    slopes = 2.0 * similar.gradients / totals[:, None]
    bends = 2.0 * similar.hessians / totals[:, None, None] - slopes[:, :, None] * slopes[:, None]
    return Terms(
        2.0 * pulled.values + np.log(totals),
        2.0 * pulled.gradients + slopes,
        2.0 * pulled.hessians + bends,
    )


def umap_terms(
    places: Float64Array,
    own: Int64Array,
    similarities: Pulls,
    *,
    a: float,
    b: float,
    negative_samples: int,
    threads: int | None = None,
) -> Terms:
    """Return the loss of UMAP of some rows with gradient and Hessian.

    Parameters
    ----------
    places : (rows, 2) or (rows, 3) float64
        The map.
    own : (some,) int64
        Rows.
    similarities : Pulls
        The symmetric fuzzy set of these rows.
    a, b : float
        Parameters of the similarity curve on the map.
    negative_samples : int
        Rows that push a row away, per edge.
    threads : int, optional
        Number of threads. The result does not depend on it.
    """
    from raydr.metrics.kernels.repulsion import fuzzy_sums

    def attraction(u: Float64Array) -> tuple[Float64Array, Float64Array, Float64Array]:
        u = np.maximum(u, _LEAST)
        w = 1.0 / (1.0 + a * u**b)
        first = a * b * u ** (b - 1.0) * w
        return -np.log(w), first, a * b * (b - 1.0) * u ** (b - 2.0) * w - first**2

    def repulsion(u: Float64Array) -> tuple[Float64Array, Float64Array, Float64Array]:
        loss, first, second = attraction(u)
        w = np.exp(-loss)
        slope = -first * w / (1.0 - w + EPSILON)
        return (
            -np.log(1.0 - w + EPSILON),
            slope,
            (first**2 - second) * w / (1.0 - w + EPSILON) + slope**2,
        )

    def summed(at: Float64Array, every: Float64Array, into: Float64Array) -> None:
        fuzzy_sums(at, every, a, b, EPSILON, _LEAST, into)

    at = places[own]
    pushed = over_rows(places, own, at, summed, repulsion, threads)
    pulled = over_entries(places, at, similarities, attraction)
    return pulled.plus(pushed, negative_samples * similarities.totals() / (2.0 * len(places)))


def least_curvatures(terms: Terms) -> Float64Array:
    """Return the smallest eigenvalue (rows,) of each Hessian."""
    return np.asarray(np.linalg.eigvalsh(terms.hessians)[:, 0])
