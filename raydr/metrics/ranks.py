"""Trustworthiness and continuity (Venna & Kaski 2001), streamed in row blocks, equal to scikit-learn's.

scikit-learn ranks all rows by their distances to row i with ``np.argsort``, on a (rows, rows) matrix. A rank is only
asked for k rows, so it is counted instead: how many rows are nearer. Only where a neighbour's distance is tied with
another row's (integer data) does the order within the tie matter, and that row is sorted as scikit-learn sorts it.
A true geometry other than the rows' Euclidean one is ranked by its own blocks of distances in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.geometry.points import Geometry, map_threaded, row_blocks
from raydr.metrics.evidence import Examination, UnmeasurableError
from raydr.metrics.metric import metric

BLOCK_VALUES = 2**23
"""Distances of a block: 64 MB in float64 for each thread."""
Blocks: TypeAlias = Callable[[int, int], Iterable[FloatArray]]
"""Distances (or what ranks alike) of rows start to stop to all rows, (rows,) each, its own infinite; to be spent."""


@metric(
    "trustworthiness",
    "Trustworthiness",
    "neighbours in the map are neighbours in the data (5 neighbours, by rank)",
    needs={"rows"},
)
def trustworthiness(examination: Examination) -> float:
    r"""Trustworthiness: whether neighbours in the map are neighbours in the data.

    .. math:: T = 1 - \frac{2}{nk(2n - 3k - 1)} \sum_i \sum_{j \in N_i} \max(0, r(i, j) - k)

    with N_i the k nearest neighbours of row i in the map (`Evidence.ranked`, 5) and r(i, j) the rank of j by distance
    from i in the data. From 0 to 1.
    """
    _require_rows(examination)
    if examination.evidence.mapped is None:
        neighbors = _scikit_neighbors(examination.embedding, None, examination.evidence.ranked)
    else:
        neighbors = examination.neighbors_in_map(examination.evidence.ranked).indices
    truth = examination.evidence.truth
    distances = _scikit_blocks(examination.rows) if truth is None else _geometry_blocks(truth)
    return _one_minus_penalty(distances, neighbors, examination.threads)


@metric(
    "continuity",
    "Continuity",
    "neighbours in the data are neighbours in the map (5 neighbours, by rank)",
    needs={"rows"},
)
def continuity(examination: Examination) -> float:
    """Continuity: whether neighbours in the data are neighbours in the map; `trustworthiness`, roles exchanged."""
    _require_rows(examination)
    neighbors = _neighbors_in_data(examination)
    mapped = examination.evidence.mapped
    distances = _scikit_blocks(examination.embedding) if mapped is None else _geometry_blocks(mapped)
    return _one_minus_penalty(distances, neighbors, examination.threads)


def _require_rows(examination: Examination) -> None:
    ranked = examination.evidence.ranked
    if examination.count <= 2 * ranked:
        raise UnmeasurableError(
            f"ranks of {ranked} neighbours need more than {2 * ranked} rows; there are {examination.count}"
        )


def _neighbors_in_data(examination: Examination) -> Int64Array:
    """Return the shared graph's neighbours, except where a tie at the last one leaves scikit-learn a choice."""
    k = examination.evidence.ranked
    if examination.evidence.truth is not None:
        return examination.neighbors_in_data(k).indices
    graph = examination.neighbors_in_data(k + 1)
    neighbors = graph.indices[:, :k].copy()
    tied = np.flatnonzero(graph.distances[:, k - 1] == graph.distances[:, k])
    if tied.size:
        neighbors[tied] = _scikit_neighbors(examination.rows, tied, k)
    return neighbors


def _scikit_neighbors(space: Float64Array, own: Int64Array | None, k: int) -> Int64Array:
    """Neighbours of the rows ``own`` (None: all) as ``NearestNeighbors.kneighbors()`` picks and orders them."""
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=k).fit(space)
    if own is None:
        return np.asarray(search.kneighbors(return_distance=False), dtype=np.int64)
    found = search.kneighbors(space[own], n_neighbors=k + 1, return_distance=False)
    others = found != own[:, None]
    # With more duplicates than neighbours a row may not find itself: the first duplicate is left out instead.
    others[others.all(axis=1), 0] = False
    return np.asarray(found[others].reshape(own.size, k), dtype=np.int64)


def _one_minus_penalty(distances_of: Blocks, neighbors: Int64Array, threads: int | None) -> float:
    rows, k = neighbors.shape

    def penalty(block: tuple[int, int]) -> int:
        start, stop = block
        total = 0
        for row, distances in enumerate(distances_of(start, stop), start):
            total += int(np.maximum(_ranks(distances, neighbors[row]) - k, 0).sum())
        return total

    blocks = row_blocks(rows, max(16, min(1024, BLOCK_VALUES // rows)))
    total = sum(map_threaded(penalty, blocks, threads))  # whole numbers: exact in any order
    return float(1.0 - total * (2.0 / (rows * k * (2.0 * rows - 3.0 * k - 1.0))))


def _scikit_blocks(space: Float64Array) -> Blocks:
    squared_norms: Float64Array = np.einsum("ij,ij->i", space, space)

    def distances_of(start: int, stop: int) -> Iterable[FloatArray]:
        products = space[start:stop] @ space.T
        for row, product in enumerate(products, start):  # row by row: 15 passes over what the cache holds
            yield _scikit_distances(product, squared_norms, row)

    return distances_of


def _geometry_blocks(geometry: Geometry) -> Blocks:
    def distances_of(start: int, stop: int) -> Iterable[FloatArray]:
        squared = np.array(geometry.squared_distance_block(start, stop))  # they rank as the distances do
        squared[np.arange(stop - start), np.arange(start, stop)] = np.inf
        return squared

    return distances_of


def _scikit_distances(products: Float64Array, squared_norms: Float64Array, row: int) -> Float64Array:
    """Turn the products of a row with all rows, (rows,), into distances in place; its own becomes infinity.

    Not through `Points`: which of two distances that should be equal comes out larger is decided by rounding, so
    the steps and their order must be scikit-learn's, which does not centre.
    """
    products *= -2.0
    products += squared_norms[row]
    products += squared_norms
    np.maximum(products, 0.0, out=products)
    np.sqrt(products, out=products)
    products[row] = np.inf
    return products


def _ranks(distances: FloatArray, neighbors: Int64Array) -> Int64Array:
    """Ranks, from 1, of ``neighbors`` (k,) by a row's ``distances`` (rows,)."""
    thresholds = distances[neighbors]
    at_most = np.array([np.count_nonzero(distances <= threshold) for threshold in thresholds])
    nearer = np.array([np.count_nonzero(distances < threshold) for threshold in thresholds])
    if (nearer == at_most - 1).all():
        return at_most
    order = np.argsort(distances)
    ranks = np.empty(order.size, np.int64)
    ranks[order] = np.arange(1, order.size + 1)
    return ranks[neighbors]
