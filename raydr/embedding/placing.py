"""New rows on a finished map: t-SNE of each row against fixed points of the map.

A row i is pulled by the points near it in the data, by its affinities p_{l|i} to them (Gaussians of one
perplexity). It is repelled by all points, each weighted by the number of rows that it represents:

    F_i = sum_l p_{l|i} w_il (y_i - y_l) - sum_l c_l w_il^2 (y_i - y_l) / Z,

    w_il = 1 / (1 + |y_i - y_l|^2),    Z = sum_{k != l} c_k c_l w_kl / L,    counts c scaled to sum to L, the points.

A row starts at the point at which the energy of its pull is least. Between two distant groups, the mean would
be a trap among rows that are not similar.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from raydr.arrays import Float64Array, FloatArray, IntArray
from raydr.geometry.blocks import ROWS

PERPLEXITY = 6.0
_LONGEST_STEP, _MOMENTUM = 5.0, 0.8


def affinities(
    squared_distances: Callable[[slice], FloatArray], rows: int, points: int, perplexity: float = PERPLEXITY
) -> Any:
    """Return the affinities p_{l|i} of rows to their nearest points, (rows, points) scipy.sparse.csr_array.

    Parameters
    ----------
    squared_distances : callable
        From a slice of the rows to their squared distances to all points, (rows of the slice, points).
    rows, points : int
        Numbers of rows and points.
    perplexity : float
        At most a third of the other points; three times as many points pull each row.
    """
    from scipy.sparse import csr_array

    perplexity = min(perplexity, max(1.0, (points - 1) / 3))
    few = min(points, max(1, int(3 * perplexity)))
    nearest, distances = np.empty((rows, few), np.int64), np.empty((rows, few))
    for start in range(0, rows, ROWS):
        block = slice(start, min(start + ROWS, rows))
        squared = squared_distances(block)
        # Sorted by point, so that the order of the sums does not depend on the partition.
        chosen = np.sort(np.argpartition(squared, few - 1, axis=1)[:, :few], axis=1)
        nearest[block] = chosen
        distances[block] = np.sqrt(np.take_along_axis(squared, chosen, axis=1))
    weights = conditional(distances, perplexity)
    return csr_array((weights.ravel(), nearest.ravel(), np.arange(rows + 1) * few), shape=(rows, points))


def conditional(distances: Float64Array, perplexity: float) -> Float64Array:
    """Return the affinities p_{j|i} (rows, neighbours) of Gaussians whose entropy is log perplexity, by bisection."""
    if distances.shape[1] <= perplexity:
        return np.full(distances.shape, 1.0 / distances.shape[1])
    squared = distances**2 - (distances**2).min(axis=1, keepdims=True)
    scale = squared.mean(axis=1, keepdims=True)
    squared /= np.where(scale > 0, scale, 1.0)
    low, high = np.full((len(squared), 1), 1e-6), np.full((len(squared), 1), 1e6)
    for _ in range(50):
        precision = np.sqrt(low * high)
        weights = np.exp(-precision * squared)
        total = weights.sum(axis=1, keepdims=True)
        entropy = np.log(total) + precision * (weights * squared).sum(axis=1, keepdims=True) / total
        wide = entropy > np.log(perplexity)
        low, high = np.where(wide, precision, low), np.where(wide, high, precision)
    return np.asarray(weights / total)


def place(
    pulls: Any,
    places: Float64Array,
    counts: Float64Array,
    *,
    iterations: int,
    own: Any = None,
    weight: float = 0.0,
) -> Float64Array:
    """Return the positions (rows, dimensions) of rows among fixed points.

    Parameters
    ----------
    pulls : (rows, points) csr_array
        Affinities p_{l|i}.
    places : (points, 2 or 3)
        Positions of the points.
    counts : (points,)
        Number of rows that each point represents, positive.
    iterations : int
        Number of steps.
    own : (rows, rows) csr_array, optional
        Affinities among the rows, by which they pull each other. Without them, the position of a row does not
        depend on the other rows.
    weight : float
        Weight of the pull of rows; the points have the rest.
    """
    from raydr.embedding.kernels.student import least_pulled, nearness, pull, repel

    if not pulls.shape[0]:
        return np.zeros((0, places.shape[1]))
    still = _spatial(places)
    share = len(counts) / float(counts.sum())
    unit = share / max(nearness(counts, still) * share**2 / len(counts), 1e-12)
    start = np.zeros(pulls.shape[0], np.int64)
    least_pulled(*_sparse(pulls), still, start)
    present = np.ascontiguousarray(still[:, start])
    change, gains = np.zeros_like(present), np.ones_like(present)
    for _ in range(iterations):
        force = np.zeros_like(present)
        pull(*_sparse(pulls), 1.0 - weight, present, still, force)
        if own is not None:
            pull(*_sparse(own), weight, present, present, force)
        repel(counts, unit, present, still, force)
        # Delta-bar-delta and momentum, as in t-SNE.
        turned = np.sign(change) != np.sign(force)
        gains = np.where(turned, gains + 0.2, gains * 0.8 + 0.01)
        change = _MOMENTUM * change - gains * force
        length = np.linalg.norm(change, axis=0)
        change *= np.minimum(1.0, _LONGEST_STEP / np.maximum(length, _LONGEST_STEP))
        present = present + change
    return np.ascontiguousarray(present[: places.shape[1]].T)


def _spatial(places: Float64Array) -> Float64Array:
    """Return positions (points, 2 or 3) as (3, points)."""
    spatial = np.zeros((3, len(places)))
    spatial[: places.shape[1]] = places.T
    return spatial


def _sparse(affinities: Any) -> tuple[IntArray, IntArray, Float64Array]:
    """Return row starts, columns and values of a csr_array."""
    return affinities.indptr, affinities.indices, affinities.data
