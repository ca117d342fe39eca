"""Trustworthiness and continuity (Venna & Kaski 2001), streamed in row blocks. Without ties equal to scikit-learn's.

scikit-learn ranks all rows by their distances to row i with ``np.argsort``, on a (rows, rows) matrix. Here
only k ranks are needed, so each is a count of nearer rows. For points, the count uses products in single
precision, and differences in double precision where these leave a doubt (`raydr.geometry.sample_neighbors`).
Rows at equal distances share the best rank, but argsort ranks them by rounding. So a copy of 200 equal rows
has a trustworthiness of 0.90 with argsort, and 1 here (`raydr.metrics.ties`).
"""

from __future__ import annotations

from math import fsum

import numpy as np

from raydr.arrays import Float64Array, Int64Array
from raydr.geometry.neighbors import NeighborGraph, measured_pairs
from raydr.geometry.points import Geometry, Points, map_threaded, row_blocks
from raydr.geometry.sample_neighbors import (
    SampleNeighbors,
    count_nearer,
    squared_distances_of,
)
from raydr.geometry.sparse_points import block_values
from raydr.metrics.evidence import Examination, UnmeasurableError
from raydr.metrics.metric import metric_by_k
from raydr.metrics.sampling import MeanOverRows, Sample
from raydr.metrics.ties import Nearest, Rounded, rounding_margins, tied_neighbors, tied_rows

NEIGHBORS = 5
"""Default number of neighbours to rank, as in scikit-learn. P2 and the authors of P3 use 7."""
BLOCK_VALUES = 2**23
"""Distances per block: 64 MB in float64 for each thread."""
MOST_TIED = 256
"""Maximum ranks of a row that are counted one by one. For more, all its distances are sorted."""


@metric_by_k(
    "trustworthiness",
    "Trustworthiness",
    "neighbours in the map are neighbours in the data ({k} neighbours, by rank)",
    k=NEIGHBORS,
    needs={"rows"},
)
def trustworthiness(examination: Examination, k: int) -> MeanOverRows:
    r"""Return the trustworthiness: whether neighbours in the map are neighbours in the data.

    .. math:: T = 1 - \frac{2}{nk(2n - 3k - 1)} \sum_i \sum_{j \in N_i} \max(0, r(i, j) - k)

    Here N_i are the k nearest neighbours of row i in the map, and r(i, j) is the rank of j by distance from i
    in the data: 1 plus the number of nearer rows. If several rows of the map are equally near and not all are
    among the nearest, each counts in part. From 0 to 1.
    """
    _require_ranks(examination, k)
    if examination.sample is not None:
        neighbors = examination.sample_map_neighbors
        geometries = examination.mapped, examination.truth
        return _estimated(examination, examination.sample, neighbors, *geometries, k)
    graph, mapped = examination.map_neighbors(k), examination.rounded_map
    return _one_minus_penalty(graph, mapped, examination.rounded_truth, k, examination.threads)


@metric_by_k(
    "continuity",
    "Continuity",
    "neighbours in the data are neighbours in the map ({k} neighbours, by rank)",
    k=NEIGHBORS,
    needs={"rows"},
)
def continuity(examination: Examination, k: int) -> MeanOverRows:
    """Return the continuity: `trustworthiness` with the roles of map and data exchanged.

    It measures whether neighbours in the data are neighbours in the map. Of rows that are equally near in the
    data, those nearest in the map are used.
    """
    _require_ranks(examination, k)
    if examination.sample is not None:
        neighbors = examination.sample_row_neighbors
        geometries = examination.truth, examination.mapped
        return _estimated(examination, examination.sample, neighbors, *geometries, k, in_favour=True)
    graph, truth = examination.true_neighbors(k), examination.rounded_truth
    return _one_minus_penalty(graph, truth, examination.rounded_map, k, examination.threads, in_favour=True)


def _require_ranks(examination: Examination, k: int) -> None:
    if examination.count <= 2 * k:
        raise UnmeasurableError(
            f"ranks of {k} neighbours need more than {2 * k} rows, but there are {examination.count}"
        )


def _one_minus_penalty(
    graph: NeighborGraph,
    near: Rounded,
    ranking: Rounded,
    k: int,
    threads: int | None,
    *,
    in_favour: bool = False,
) -> MeanOverRows:
    """Return the score of the ``k`` nearest neighbours in ``near``, from ``graph``, by their ranks in ``ranking``.

    ``in_favour`` breaks ties in ``near`` so that ranks are best. Otherwise they count as the mean of all
    ways.
    """
    rows, neighbors = graph.rows, graph.nearest(k).indices
    looked_through = tied_rows(graph, k)
    if isinstance(points := ranking.geometry, Points):
        clear = np.flatnonzero(~looked_through)
        counted = np.zeros(rows)
        pairs = neighbors[clear]
        counted[clear] = (
            _pair_penalties(points, np.repeat(clear, k), pairs.ravel(), k, threads).reshape(-1, k).sum(axis=1)
        )
        tied = looked_through
    else:
        tied, looked_through = looked_through, np.ones(rows, np.bool_)

    by_row = np.zeros(rows)

    def penalty(block: tuple[int, int]) -> float:
        own = np.arange(*block)
        among = dict(zip(own[tied[own]].tolist(), _blocks(near, own[tied[own]]), strict=True))
        through = own[looked_through[own]]
        distances = dict(zip(through.tolist(), _blocks(ranking, through), strict=True))
        total = 0.0
        for row in own.tolist():
            if row not in distances:
                by_row[row] = counted[row]
            elif row not in among:
                by_row[row] = _penalties(ranking, row, distances[row], neighbors[row], k).sum()
            else:
                nearest = Nearest.of(near, row, among[row], k)
                surely, maybe = (
                    _penalties(ranking, row, distances[row], some, k)
                    for some in (nearest.surely, nearest.tied)
                )
                by_row[row] = _of_nearest(nearest, surely, maybe, in_favour)
            total += by_row[row]
        return float(total)

    blocks = row_blocks(rows, max(16, min(1024, block_values(ranking.geometry, BLOCK_VALUES) // rows)))
    total = fsum(map_threaded(penalty, blocks, threads))
    value = float(1.0 - total * (2.0 / (rows * k * (2.0 * rows - 3.0 * k - 1.0))))
    return MeanOverRows(value, 1.0 + _scale(rows, k) * by_row)


def _scale(rows: int, k: int) -> float:
    """Return the factor from a row's penalty to what it takes from the score of 1."""
    return -2.0 / (k * (2.0 * rows - 3.0 * k - 1.0))


def _of_nearest(nearest: Nearest, surely: Float64Array, maybe: Float64Array, in_favour: bool) -> float:
    """Return the penalty of a row from its nearest and tied rows, with ties broken for the best or averaged."""
    tied = np.sort(maybe)[: nearest.left].sum() if in_favour else nearest.left * maybe.mean()
    return float(surely.sum() + tied)


def _pair_penalties(
    points: Points, own: Int64Array, others: Int64Array, k: int, threads: int | None
) -> Float64Array:
    """Return max(0, rank - k), (pairs,), of each of the rows ``others`` from a row of ``own``, ascending."""
    if not own.size:
        return np.zeros(0)
    rows, starts = np.unique(own, return_index=True)
    squared = measured_pairs(points.coordinates, own, others[:, None])[:, 0]
    thresholds = squared - rounding_margins(points, own, others, squared)
    nearer = count_nearer(points, rows, np.append(starts, own.size), thresholds, threads=threads)
    return np.asarray(np.maximum(1.0 + nearer - k, 0.0))


def _estimated(
    examination: Examination,
    sample: Sample,
    neighbors: SampleNeighbors,
    near: Geometry,
    ranking: Geometry,
    k: int,
    *,
    in_favour: bool = False,
) -> MeanOverRows:
    """Return the same as `_one_minus_penalty` from the sampled rows, each ranked among all."""
    threads = examination.threads
    own, tied = neighbors.own, tied_neighbors(neighbors, k)
    nothing = np.zeros(0, np.int64)
    nearest = [
        Nearest.among(near, neighbors, place, k)
        if tied[place]
        else Nearest(neighbors.indices[place, :k], nothing, k)
        for place in range(own.size)
    ]
    others = [np.concatenate([one.surely, one.tied]) for one in nearest]
    sizes = np.array([each.size for each in others])
    counted = (sizes <= MOST_TIED) & isinstance(ranking, Points)
    found: list[Float64Array] = [np.zeros(0)] * own.size
    if isinstance(ranking, Points) and counted.any():
        which = np.flatnonzero(counted)
        pairs = np.concatenate([others[place] for place in which])
        penalties = _pair_penalties(ranking, np.repeat(own[which], sizes[which]), pairs, k, threads)
        for place, part in zip(
            which.tolist(), np.split(penalties, np.cumsum(sizes[which])[:-1]), strict=True
        ):
            found[place] = part

    def ranked(place: int) -> Float64Array:
        row = own[place : place + 1]
        squared = squared_distances_of(ranking, row)[0]
        thresholds = squared[others[place]]
        thresholds = thresholds - rounding_margins(ranking, row, others[place], thresholds)
        return np.asarray(np.maximum(1.0 + np.searchsorted(np.sort(squared), thresholds) - k, 0.0))

    left = np.flatnonzero(~counted).tolist()
    for place, part in zip(left, map_threaded(ranked, left, threads), strict=True):
        found[place] = part
    values = np.array(
        [
            _of_nearest(one, part[: one.surely.size], part[one.surely.size :], in_favour)
            if one.tied.size
            else part.sum()
            for one, part in zip(nearest, found, strict=True)
        ]
    )
    scale = _scale(examination.count, k)
    return MeanOverRows(sample.mean(values, scale=scale, shift=1.0), 1.0 + scale * values)


def _blocks(near: Rounded, own: Int64Array) -> Float64Array:
    return near.block(own) if own.size else np.zeros((0, 0))


def _penalties(ranking: Rounded, row: int, squared: Float64Array, others: Int64Array, k: int) -> Float64Array:
    """Return max(0, rank - k), (others,), from a row's ``squared`` distances (rows,).

    Equal distances count as not nearer.
    """
    thresholds = squared[others] - ranking.margins(row, others, squared[others])
    if others.size <= 2 * k:
        nearer = np.array([np.count_nonzero(squared < threshold) for threshold in thresholds], dtype=np.int64)
    else:
        nearer = np.searchsorted(np.sort(squared), thresholds)
    return np.asarray(np.maximum(1.0 + nearer - k, 0.0))
