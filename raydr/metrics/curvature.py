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

Derivatives: TypeAlias = Callable[[Float64Array], tuple[Float64Array, Float64Array, Float64Array]]
"""From squared distances to a function of them, and its first and second derivative."""

EPSILON = 0.1
"""Bounds UMAP's repulsion. Without it, the nearest row decides the curvature, and many places are no minimum of their
loss: *measured* 23 to 46 % with the bound of UMAP's descent, 0.001 in squared distance. From 0.1 to 1, results are
alike."""
_LEAST = 1e-6
"""Least squared distance on the map of UMAP's attraction, whose derivative is infinite at 0."""
_VALUES = 2**21
"""Pairs per block: 16 MB for each array of a thread."""


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


def over_pairs(places: Float64Array, derivatives: Derivatives, threads: int | None = None) -> Terms:
    """Return the sums over all pairs of different rows, of places (rows, dimensions)."""
    rows = len(places)

    def summed(block: tuple[int, int]) -> Terms:
        own = np.arange(*block)
        apart = places[own, None] - places
        of_pairs = derivatives((apart**2).sum(axis=2))
        for values in of_pairs:
            values[np.arange(len(own)), own] = 0.0
        value, first, second = of_pairs
        return _terms(value.sum(axis=1), apart, first, second)

    parts = list(map_threaded(summed, row_blocks(rows, max(1, _VALUES // rows)), threads))
    return Terms(
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.gradients for part in parts]),
        np.concatenate([part.hessians for part in parts]),
    )


def _terms(values: Float64Array, apart: Float64Array, first: Float64Array, second: Float64Array) -> Terms:
    """Return sums over the second axis of pairs ``apart`` (rows, others, dimensions) by their derivatives."""
    gradients = 2.0 * np.einsum("ij,ija->ia", first, apart)
    hessians = 4.0 * np.einsum("ija,ijb->iab", second[:, :, None] * apart, apart)
    hessians += 2.0 * first.sum(axis=1)[:, None, None] * np.eye(apart.shape[2])
    return Terms(values, gradients, hessians)


def over_entries(
    places: Float64Array, ends: Int64Array, tails: IntArray, weights: Any, derivatives: Derivatives
) -> Terms:
    """Return the weighted sums over the entries of a sparse matrix: row i has ``tails[ends[i]:ends[i + 1]]``."""
    rows, dimensions = places.shape
    heads = np.repeat(np.arange(rows), np.diff(ends))
    apart = places[heads] - places[tails]
    value, first, second = (
        np.asarray(weights, np.float64) * part for part in derivatives((apart**2).sum(axis=1))
    )

    def summed(each: Float64Array) -> Float64Array:
        return np.asarray(np.bincount(heads, each, rows), np.float64)

    gradients, hessians = np.empty((rows, dimensions)), np.empty((rows, dimensions, dimensions))
    for one in range(dimensions):
        gradients[:, one] = summed(2.0 * first * apart[:, one])
        for other in range(dimensions):
            hessians[:, one, other] = summed(
                4.0 * second * apart[:, one] * apart[:, other] + (2.0 * first if one == other else 0.0)
            )
    return Terms(summed(value), gradients, hessians)


def tsne_terms(
    places: Float64Array, ends: Int64Array, tails: IntArray, affinities: Any, threads: int | None = None
) -> Terms:
    """Return each row's loss of t-SNE, up to a constant, with gradient and Hessian.

    Parameters
    ----------
    places : (rows, 2) or (rows, 3) float64
        The map.
    ends, tails, affinities
        The symmetric affinities: see :class:`raydr.embedding.kernels.affinities.Affinities`.
    threads : int, optional
        Number of threads. The result does not depend on it.
    """

    def attraction(u: Float64Array) -> tuple[Float64Array, Float64Array, Float64Array]:
        w = 1.0 / (1.0 + u)
        return np.log1p(u), w, -(w**2)

    def similarity(u: Float64Array) -> tuple[Float64Array, Float64Array, Float64Array]:
        w = 1.0 / (1.0 + u)
        return w, -(w**2), 2.0 * w**3

    pulled = over_entries(places, ends, tails, 2.0 * np.asarray(affinities, np.float64), attraction)
    similar = over_pairs(places, similarity, threads)
    total = float(similar.values.sum())
    # A row's place is in two of the ordered pairs.
    slopes = 2.0 * similar.gradients / total
    bends = 2.0 * similar.hessians / total - slopes[:, :, None] * slopes[:, None]
    return Terms(
        pulled.values + np.log(total),
        pulled.gradients + slopes,
        pulled.hessians + bends,
    )


def umap_terms(
    places: Float64Array,
    ends: Int64Array,
    tails: IntArray,
    similarities: Any,
    *,
    a: float,
    b: float,
    negative_samples: int,
    threads: int | None = None,
) -> Terms:
    """Return each row's loss of UMAP with gradient and Hessian.

    Parameters
    ----------
    places : (rows, 2) or (rows, 3) float64
        The map.
    ends, tails, similarities
        The symmetric fuzzy set, as `ends`, `tails` and weights of :func:`over_entries`.
    a, b : float
        Parameters of the similarity curve on the map.
    negative_samples : int
        Rows that push a row away, per edge.
    threads : int, optional
        Number of threads. The result does not depend on it.
    """

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

    rows = len(places)
    pulled = over_entries(places, ends, tails, similarities, attraction)
    heads = np.repeat(np.arange(rows), np.diff(ends))
    degrees = np.bincount(heads, np.asarray(similarities, np.float64), rows)
    return pulled.plus(over_pairs(places, repulsion, threads), negative_samples * degrees / (2.0 * rows))


def least_curvatures(terms: Terms) -> Float64Array:
    """Return the smallest eigenvalue (rows,) of each Hessian."""
    return np.asarray(np.linalg.eigvalsh(terms.hessians)[:, 0])
