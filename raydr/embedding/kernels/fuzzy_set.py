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

from raydr.arrays import Float32Array
from raydr.compiled import compiled
from raydr.geometry.neighbors import NeighborGraph

_STEPS = 64
_TOLERANCE = 1e-5
_LEAST = 1e-3
"""Bisection steps, their tolerance, and the least scale of a row in mean distances of its neighbours."""


def fuzzy_set(graph: NeighborGraph) -> Any:
    """Return UMAP's similarity of rows by their neighbours: (rows, rows) float32, sparse and symmetric, from 0 to 1.

    >>> graph = NeighborGraph(np.array([[1, 2], [0, 2], [1, 0]]), np.array([[1, 2], [1, 1], [1, 2]], np.float32))
    >>> fuzzy_set(graph).toarray().round(2).tolist()
    [[0.0, 1.0, 0.82], [1.0, 0.0, 1.0], [0.82, 1.0, 0.0]]
    """
    from scipy.sparse import coo_matrix

    rows, k = graph.indices.shape
    distances = np.ascontiguousarray(graph.distances, np.float32)
    similar = np.empty((rows, k), np.float32)
    # The row itself counts among its neighbours, at distance 0.
    mean = np.float32(distances.mean(dtype=np.float64) * k / (k + 1))
    memberships(distances, np.float64(np.log2(k + 1.0)), mean, similar)
    own = np.repeat(np.arange(rows, dtype=np.int32), k)
    one_way = coo_matrix((similar.ravel(), (own, graph.indices.ravel().astype(np.int32))), shape=(rows, rows))
    one_way.eliminate_zeros()
    other_way = one_way.transpose()
    both = one_way + other_way - one_way.multiply(other_way)
    both.eliminate_zeros()
    return both


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


memberships: Callable[..., None] = compiled(error_model="numpy")(_memberships)
