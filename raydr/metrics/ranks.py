"""Trustworthiness and continuity (Venna & Kaski 2001), streamed in row blocks; without ties equal to scikit-learn's.

scikit-learn ranks all rows by their distances to row i with ``np.argsort``, on a (rows, rows) matrix. A rank is only
asked for k rows, so it is counted instead: how many rows are nearer. Rows at equal distances have the same rank, the
best of them, where argsort ranks them by rounding: a copy of 200 equal rows has a trustworthiness of 0.90 by argsort,
and 1 here (`raydr.metrics.ties`).
"""

from __future__ import annotations

from math import fsum

import numpy as np

from raydr.arrays import Float64Array, Int64Array
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import map_threaded, row_blocks
from raydr.metrics.evidence import Examination, UnmeasurableError
from raydr.metrics.metric import metric_by_k
from raydr.metrics.ties import Nearest, Rounded, tied_rows

NEIGHBORS = 5
"""Whose ranks are looked at, unless a scenario says otherwise: as scikit-learn; P2 and the authors of P3 take 7."""
BLOCK_VALUES = 2**23
"""Distances of a block: 64 MB in float64 for each thread."""


@metric_by_k(
    "trustworthiness",
    "Trustworthiness",
    "neighbours in the map are neighbours in the data ({k} neighbours, by rank)",
    k=NEIGHBORS,
    needs={"rows"},
)
def trustworthiness(examination: Examination, k: int) -> float:
    r"""Trustworthiness: whether neighbours in the map are neighbours in the data.

    .. math:: T = 1 - \frac{2}{nk(2n - 3k - 1)} \sum_i \sum_{j \in N_i} \max(0, r(i, j) - k)

    with N_i the k nearest neighbours of row i in the map and r(i, j) the rank of j by distance from i in the data: 1
    and as many as are nearer. Where several rows of the map are equally near and not all are among the nearest, each
    counts in part. From 0 to 1.
    """
    _require_ranks(examination, k)
    graph, mapped = examination.map_neighbors(k), examination.rounded_map
    return _one_minus_penalty(graph, mapped, examination.rounded_truth, k, examination.threads)


@metric_by_k(
    "continuity",
    "Continuity",
    "neighbours in the data are neighbours in the map ({k} neighbours, by rank)",
    k=NEIGHBORS,
    needs={"rows"},
)
def continuity(examination: Examination, k: int) -> float:
    """Continuity: whether neighbours in the data are neighbours in the map; `trustworthiness`, roles exchanged.

    Of rows that are equally near in the data those are taken that are nearest in the map.
    """
    _require_ranks(examination, k)
    graph, truth = examination.true_neighbors(k), examination.rounded_truth
    return _one_minus_penalty(graph, truth, examination.rounded_map, k, examination.threads, in_favour=True)


def _require_ranks(examination: Examination, k: int) -> None:
    if examination.count <= 2 * k:
        raise UnmeasurableError(
            f"ranks of {k} neighbours need more than {2 * k} rows; there are {examination.count}"
        )


def _one_minus_penalty(
    graph: NeighborGraph,
    near: Rounded,
    ranking: Rounded,
    k: int,
    threads: int | None,
    *,
    in_favour: bool = False,
) -> float:
    """Score of the ``k`` nearest neighbours in ``near``, whose graph is given, by their ranks in ``ranking``.

    ``in_favour`` breaks ties in ``near`` so that ranks are best; else they count as the mean of all ways.
    """
    rows, neighbors = graph.rows, graph.nearest(k).indices
    tied = tied_rows(graph, k)

    def penalty(block: tuple[int, int]) -> float:
        own = np.arange(*block)
        among = dict(zip(own[tied[own]].tolist(), _blocks(near, own[tied[own]]), strict=True))
        total = 0.0
        for row, squared in zip(own.tolist(), ranking.block(own), strict=True):
            if row not in among:
                total += _penalties(ranking, row, squared, neighbors[row], k).sum()
                continue
            nearest = Nearest.of(near, row, among[row], k)
            total += _penalties(ranking, row, squared, nearest.surely, k).sum()
            maybe = _penalties(ranking, row, squared, nearest.tied, k)
            total += np.sort(maybe)[: nearest.left].sum() if in_favour else nearest.left * maybe.mean()
        return float(total)

    blocks = row_blocks(rows, max(16, min(1024, BLOCK_VALUES // rows)))
    total = fsum(map_threaded(penalty, blocks, threads))
    return float(1.0 - total * (2.0 / (rows * k * (2.0 * rows - 3.0 * k - 1.0))))


def _blocks(near: Rounded, own: Int64Array) -> Float64Array:
    return near.block(own) if own.size else np.zeros((0, 0))


def _penalties(ranking: Rounded, row: int, squared: Float64Array, others: Int64Array, k: int) -> Float64Array:
    """max(0, rank - k), (others,), by a row's ``squared`` distances (rows,); of equal ones none is nearer."""
    thresholds = squared[others] - ranking.margins(row, others, squared[others])
    if others.size <= 2 * k:
        nearer = np.array([np.count_nonzero(squared < threshold) for threshold in thresholds], dtype=np.int64)
    else:
        nearer = np.searchsorted(np.sort(squared), thresholds)
    return np.asarray(np.maximum(1.0 + nearer - k, 0.0))
