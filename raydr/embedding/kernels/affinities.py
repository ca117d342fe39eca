r"""t-SNE affinities of a neighbour graph, in single precision, without any matrix besides the result.

.. math::

    p_{j|i} = \frac{\exp(-\beta_i d_{ij}^2)}{\sum_l \exp(-\beta_i d_{il}^2)}, \qquad
    p_{ij} = \frac{p_{j|i} + p_{i|j}}{2 n}

over the neighbours j, l of row i, with :math:`\beta_i` such that the entropy of :math:`p_{\cdot|i}` is the
logarithm of the perplexity. For comparison, openTSNE holds five float64 tables of the size of the graph at
once: 6 GB for a million rows of 90 neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float32Array, Int64Array, IntArray
from raydr.compiled import compiled
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import row_blocks, run_threaded

BLOCK_ROWS = 8192
_ORDERED_BY = 5
"""Neighbours of each row used to order the rows."""
_STEPS = 200
_TOLERANCE = 1e-8
"""Tolerance of the entropy, and the largest number of bisection steps, as in openTSNE."""


@dataclass(frozen=True, eq=False)
class Affinities:
    """Symmetric sparse matrix (rows, rows): row i has columns ``tails[ends[i]:ends[i + 1]]``, sorted.

    ``ends`` (rows + 1,) int64, ``tails`` (entries,) int32, ``weights`` (entries,) float32, which sum to 1.
    """

    ends: Int64Array
    tails: IntArray
    weights: Float32Array


def joint_affinities(
    graph: NeighborGraph, perplexity: float, threads: int, order: IntArray | None = None
) -> Affinities:
    """Return the affinities of the rows of a graph, in ``order`` (rows,) if given, for a perplexity below its k.

    >>> graph = NeighborGraph(np.array([[1, 2], [0, 2], [1, 0]]), np.array([[1, 2], [1, 1], [1, 2]], np.float32))
    >>> found = joint_affinities(graph, 1.5, 1)
    >>> found.tails.tolist(), round(float(found.weights.sum()), 6)
    ([1, 2, 0, 2, 0, 1], 1.0)
    """
    rows, k = graph.indices.shape
    taken = np.arange(rows) if order is None else order
    place = np.empty(rows, np.int64)
    place[taken] = np.arange(rows)
    neighbors = np.empty((rows, k), np.int32)
    own = np.empty((rows, k), np.float32)
    entropy = float(np.log(perplexity))

    def condition(block: tuple[int, int]) -> None:
        part = slice(*block)
        rows = taken[part]
        conditional(graph.distances[rows], place[graph.indices[rows]], entropy, neighbors[part], own[part])

    blocks = row_blocks(rows, BLOCK_ROWS)
    run_threaded(condition, blocks, threads)
    starts = np.concatenate([[0], np.cumsum(np.bincount(neighbors.ravel(), minlength=rows))])
    heads = np.empty(rows * k, np.int32)
    others = np.empty(rows * k, np.float32)
    turn(neighbors, own, starts[:-1].copy(), heads, others)
    sizes = np.empty(rows, np.int64)

    def measure(block: tuple[int, int]) -> None:
        union_sizes(neighbors, heads, starts, *block, sizes)

    run_threaded(measure, blocks, threads)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    tails = np.empty(ends[-1], np.int32)
    weights = np.empty(ends[-1], np.float32)

    def merge(block: tuple[int, int]) -> None:
        merged(neighbors, own, heads, others, starts, *block, ends, 0.5 / rows, tails, weights)

    run_threaded(merge, blocks, threads)
    return Affinities(ends, tails, weights)


def local_order(graph: NeighborGraph) -> IntArray:
    """Return an order of the rows, (rows,), in which neighbours are close together (reverse Cuthill-McKee).

    Loops over the affinities then find positions in the processor's cache. An iteration of t-SNE on 300,000
    shuffled rows takes 0.12 s instead of 0.17 s.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    few = graph.indices[:, :_ORDERED_BY]
    ends = np.arange(0, few.size + 1, few.shape[1], dtype=np.int32)
    near = csr_array((np.ones(few.size, np.int8), few.ravel().astype(np.int32), ends), (graph.rows,) * 2)
    return np.asarray(reverse_cuthill_mckee(near, symmetric_mode=False))


def _conditional(
    distances: Float32Array, indices: Int64Array, entropy: float, neighbors: IntArray, found: Float32Array
) -> None:
    """Fill ``neighbors`` with each row's neighbours by index, and ``found`` with their probabilities."""
    rows, k = distances.shape
    squared = np.empty(k)
    weight = np.empty(k)
    for row in range(rows):
        nearest = np.inf
        for at in range(k):
            squared[at] = np.float64(distances[row, at]) ** 2
            nearest = min(nearest, squared[at])
        beta, least, most = 1.0, -np.inf, np.inf
        for _ in range(_STEPS):
            total, moment = 0.0, 0.0
            for at in range(k):
                # Relative to the nearest: the probabilities stay the same, and the largest weight is 1.
                weight[at] = np.exp(-beta * (squared[at] - nearest))
                total += weight[at]
                moment += weight[at] * (squared[at] - nearest)
            difference = np.log(total) + beta * moment / total - entropy
            if abs(difference) <= _TOLERANCE:
                break
            if difference > 0.0:
                least = beta
                beta = beta * 2.0 if most == np.inf else (beta + most) / 2.0
            else:
                most = beta
                beta = beta / 2.0 if least == -np.inf else (beta + least) / 2.0
        by_index = np.argsort(indices[row])
        for at in range(k):
            neighbors[row, at] = indices[row, by_index[at]]
            found[row, at] = weight[by_index[at]] / total


def _turn(
    neighbors: IntArray, own: Float32Array, at: Int64Array, heads: IntArray, others: Float32Array
) -> None:
    """List for each row, in order, the rows that have it as a neighbour, with the probability.

    Overwrites ``at`` (rows,).
    """
    for row in range(neighbors.shape[0]):
        for place in range(neighbors.shape[1]):
            tail = neighbors[row, place]
            heads[at[tail]] = row
            others[at[tail]] = own[row, place]
            at[tail] += 1


def _union_sizes(
    neighbors: IntArray, heads: IntArray, starts: Int64Array, first: int, last: int, sizes: Int64Array
) -> None:
    """Count the rows that are a neighbour of, or have as a neighbour, each of the rows first:last."""
    k = neighbors.shape[1]
    for row in range(first, last):
        a, b, count = 0, starts[row], 0
        while a < k and b < starts[row + 1]:
            here, there = neighbors[row, a], heads[b]
            a += here <= there
            b += there <= here
            count += 1
        sizes[row] = count + (k - a) + (starts[row + 1] - b)


def _merged(
    neighbors: IntArray,
    own: Float32Array,
    heads: IntArray,
    others: Float32Array,
    starts: Int64Array,
    first: int,
    last: int,
    ends: Int64Array,
    factor: float,
    tails: IntArray,
    weights: Float32Array,
) -> None:
    """Add both directions, times ``factor``, for the rows first:last."""
    k = neighbors.shape[1]
    for row in range(first, last):
        a, b, at = 0, starts[row], ends[row]
        while a < k or b < starts[row + 1]:
            from_own = b == starts[row + 1] or (a < k and neighbors[row, a] <= heads[b])
            from_other = a == k or (b < starts[row + 1] and heads[b] <= neighbors[row, a])
            total = 0.0
            if from_own:
                total += own[row, a]
                tails[at] = neighbors[row, a]
            if from_other:
                total += others[b]
                tails[at] = heads[b]
            a += from_own
            b += from_other
            weights[at] = total * factor
            at += 1


_compiled = compiled()
conditional: Callable[..., None] = _compiled(_conditional)
turn: Callable[..., None] = _compiled(_turn)
union_sizes: Callable[..., None] = _compiled(_union_sizes)
merged: Callable[..., None] = _compiled(_merged)
