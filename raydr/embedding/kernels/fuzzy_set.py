r"""UMAP's fuzzy set of a neighbour graph: how similar each row is to its neighbours.

.. math::

    v_{j|i} = \exp\left(-\frac{\max(0, d_{ij} - \rho_i)}{\sigma_i}\right), \qquad
    v_{ij} = v_{j|i} + v_{i|j} - v_{j|i} v_{i|j}

over the neighbours j of row i, with :math:`\rho_i` the distance to the nearest of them that is not at the same
point, and :math:`\sigma_i` such that the similarities of a row add up to :math:`\log_2` of the neighbourhood's size.
The result has the same bits as umap-learn's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from raydr.arrays import Float32Array, Int64Array, IntArray
from raydr.compiled import compiled
from raydr.geometry.neighbors import NeighborGraph

_STEPS = 64
_TOLERANCE = 1e-5
_LEAST = 1e-3
"""Bisection steps, their tolerance, and the least scale of a row in mean distances of its neighbours."""


def fuzzy_set(graph: NeighborGraph) -> Any:
    """Return UMAP's similarity of rows by their neighbours: (rows, rows) float32, sparse and symmetric, from 0 to 1.

    >>> graph = NeighborGraph(np.array([[1, 2], [0, 2], [1, 0]]), np.array([[1, 2], [1, 1], [1, 2]], np.float32))
    >>> fuzzy_set(graph).toarray().astype(float).round(2).tolist()
    [[0.0, 1.0, 0.83], [1.0, 0.0, 1.0], [0.83, 1.0, 0.0]]
    """
    from scipy.sparse import csr_matrix

    rows, k = graph.indices.shape
    distances = np.ascontiguousarray(graph.distances, np.float32)
    similar = np.empty((rows, k), np.float32)
    # The row itself counts among its neighbours, at distance 0.
    mean = np.float32(distances.mean(dtype=np.float64) * k / (k + 1))
    memberships(distances, np.float64(np.log2(k + 1.0)), mean, similar)
    ends = np.zeros(rows + 1, np.int64)
    np.cumsum(np.bincount(graph.indices[similar > 0.0], minlength=rows), out=ends[1:])
    heads, values = np.empty(ends[-1], np.int32), np.empty(ends[-1], np.float32)
    turned(graph.indices, similar, ends[:-1].copy(), heads, values)
    nothing = np.empty(0, np.int32), np.empty(0, np.float32)
    starts = np.zeros(rows + 1, np.int64)
    united(graph.indices, similar, ends, heads, values, starts, *nothing)
    np.cumsum(starts, out=starts)
    index = np.int32 if starts[-1] < 2**31 else np.int64  # scipy copies if the two index arrays differ
    indices, data = np.empty(starts[-1], index), np.empty(starts[-1], np.float32)
    united(graph.indices, similar, ends, heads, values, starts, indices, data)
    return csr_matrix((data, indices, starts.astype(index)), shape=(rows, rows))


def _memberships(distances: Float32Array, target: float, mean: float, similar: Float32Array) -> None:
    """Fill ``similar`` (rows, k) with each row's similarity to its neighbours; ``mean`` is over all distances."""
    k = distances.shape[1]
    for row in range(distances.shape[0]):
        rho, total = np.float32(0.0), np.float32(0.0)
        for at in range(k):
            total += distances[row, at]
            if rho == 0.0 and distances[row, at] > 0.0:
                rho = distances[row, at]
        low, high, middle = 0.0, np.inf, 1.0
        for _ in range(_STEPS):
            found = 0.0
            for at in range(k):
                beyond = distances[row, at] - rho
                found += np.exp(-(beyond / middle)) if beyond > 0 else 1.0
            if abs(found - target) < _TOLERANCE:
                break
            if found > target:
                high = middle
                middle = (low + high) / 2.0
            else:
                low = middle
                middle = middle * 2.0 if high == np.inf else (low + high) / 2.0
        least = _LEAST * (total / (k + 1) if rho > 0.0 else mean)
        sigma = np.float32(max(middle, least))
        for at in range(k):
            beyond = distances[row, at] - rho
            similar[row, at] = np.exp(-(beyond / sigma)) if beyond > 0.0 and sigma != 0.0 else 1.0


def _turned(
    indices: Int64Array, similar: Float32Array, places: Int64Array, heads: IntArray, values: Float32Array
) -> None:
    """Turn edges around: fill ``heads`` and ``values`` with the rows that each row is a neighbour of, in their order.

    ``places`` (rows,) is where each row's entries begin; it is changed.
    """
    for row in range(indices.shape[0]):
        for at in range(indices.shape[1]):
            if similar[row, at] > 0.0:
                place = places[indices[row, at]]
                heads[place], values[place] = row, similar[row, at]
                places[indices[row, at]] = place + 1


def _united(
    indices: Int64Array,
    similar: Float32Array,
    ends: Int64Array,
    heads: IntArray,
    values: Float32Array,
    starts: Int64Array,
    columns: IntArray,
    data: Float32Array,
) -> None:
    """Unite each row's neighbours with the rows that it is a neighbour of (``heads``, from ``ends[row]`` on), in order.

    Fills ``columns`` and ``data`` from ``starts[row]`` on. If they are empty, only counts, into ``starts[row + 1]``.
    """
    k = indices.shape[1]
    counts = len(data) == 0
    tails, weights = np.empty(k, np.int64), np.empty(k, np.float32)
    for row in range(indices.shape[0]):
        own = 0
        for at in range(k):  # insertion, in the order of the index
            if similar[row, at] > 0.0:
                place = own
                while place > 0 and tails[place - 1] > indices[row, at]:
                    tails[place], weights[place] = tails[place - 1], weights[place - 1]
                    place -= 1
                tails[place], weights[place] = indices[row, at], similar[row, at]
                own += 1
        here, there, place = 0, ends[row], starts[row]
        while here < own or there < ends[row + 1]:
            mine = here < own and (there == ends[row + 1] or tails[here] <= heads[there])
            theirs = there < ends[row + 1] and (here == own or heads[there] <= tails[here])
            if not counts:
                one, other = np.float32(0.0), np.float32(0.0)
                if mine:
                    columns[place], one = tails[here], weights[here]
                if theirs:
                    columns[place], other = heads[there], values[there]
                data[place] = (one + other) - one * other
            here += mine
            there += theirs
            place += 1
        if counts:
            starts[row + 1] = place - starts[row]


memberships: Callable[..., None] = compiled(error_model="numpy")(_memberships)
turned: Callable[..., None] = compiled()(_turned)
united: Callable[..., None] = compiled()(_united)
