"""How near the geometry that the server recovered is to the true one (P3, 4.1 and A.11)."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum, sqrt

import numpy as np

from raydr.arrays import Float64Array
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import map_threaded, row_blocks
from raydr.metrics.evidence import Examination, UnmeasurableError
from raydr.metrics.metric import metric, metric_by_k
from raydr.metrics.neighborhood import kept_neighbors, share
from raydr.metrics.ties import Rounded

COMPARED_ROWS = 20_000
"""Past this many rows, distances are compared from a sample of rows to all rows."""
SAMPLED_ROWS = 2_048
"""Rows in that sample, in blocks of `SAMPLE_BLOCK_ROWS` neighbouring rows, the blocks drawn uniformly by the seed."""
SAMPLE_BLOCK_ROWS = 64
BLOCK_ROWS = 256
F_SCORE_NEIGHBORS = 10
ROUNDING = 1e-9
"""Distances that vary by less than this share of their mean are equal: what rounding leaves of equal distances."""


@dataclass(frozen=True, eq=False)
class _Compared:
    """One block of true distances t and recovered ones r, summed over its ``pairs`` of different rows.

    ``errors`` are of (r - t)^2, ``totals`` of t^2; ``means`` (2,) of t and r, and ``moments`` (2, 2) the sums of
    squares and products of their deviations from these means.
    """

    pairs: int
    errors: float
    totals: float
    means: Float64Array
    moments: Float64Array


@metric(
    "distance_error",
    "Relative distance error",
    "error of the recovered distances over the true ones, in Frobenius norm",
    needs={"rows", "recovered"},
    perfect="every distance between records",
    higher_is_better=False,
)
def distance_error(examination: Examination) -> float:
    r"""Relative error of the recovered distances, :math:`\|\hat D - D\|_F / \|D\|_F`; 0 and up.

    D are the true distances (not squared); the diagonal counts as 0 in both. Past `COMPARED_ROWS` rows the sums
    run over a seeded sample of `SAMPLED_ROWS` rows against all rows.
    """
    blocks = examination.once(_compared_distances)
    total = fsum(block.totals for block in blocks)
    if total == 0.0:
        raise UnmeasurableError("all rows are equal, so every true distance is 0")
    return sqrt(fsum(block.errors for block in blocks) / total)


@metric_by_k(
    "f_score",
    "Neighbour F-score",
    "F-score of the {k} nearest neighbours in the recovered geometry",
    k=F_SCORE_NEIGHBORS,
    needs={"rows", "recovered"},
)
def f_score(examination: Examination, k: int) -> float:
    """F-score 2tp / (2tp + fp + fn) of the recovered ``k`` nearest neighbours against the true ones; 0 to 1.

    Both tables hold ``k`` neighbours of each row, so fp = fn, and the score is the share of neighbours recovered. Where
    several rows are equally near, as `raydr.metrics.ties` has it.
    """
    recovered = examination.recovered
    true, found = examination.true_neighbors(k), examination.evidence.recovered_neighbors
    wanted = min(k + 1, examination.count - 1)  # one more shows whether the last is tied
    if found is None or found.k < wanted:
        found = nearest_neighbors(
            recovered, wanted, threads=examination.threads, progress=examination.progress
        )
    geometry = Rounded(lambda: recovered)
    return share(kept_neighbors(true, examination.rounded_truth, found, geometry, k, examination.threads), k)


@metric(
    "pearson",
    "Correlation of distances",
    "Pearson's correlation of the recovered distances with the true ones, over all pairs of rows",
    needs={"rows", "recovered"},
    perfect="every distance between records",
)
def pearson(examination: Examination) -> float:
    r"""Pearson's correlation of recovered and true distances over the pairs of rows i < j (P3, A.11); -1 to 1.

    Distances, not squared ones. Past `COMPARED_ROWS` rows over a seeded sample of `SAMPLED_ROWS` rows against all
    others, the same as `distance_error`'s.
    """
    blocks = examination.once(_compared_distances)
    pairs = sum(block.pairs for block in blocks)
    if pairs == 0:
        raise UnmeasurableError(
            f"a correlation of distances needs at least 2 rows; there is {examination.count}"
        )
    means = np.sum([block.pairs * block.means for block in blocks], axis=0) / pairs
    moments = np.zeros((2, 2))
    for (
        block
    ) in blocks:  # from deviations about a block's means to those about all: no difference of large sums
        moments += block.moments + block.pairs * np.outer(block.means - means, block.means - means)
    for which, square, mean in zip(("true", "recovered"), np.diag(moments), means, strict=True):
        if square <= pairs * (ROUNDING * mean) ** 2:
            raise UnmeasurableError(f"all {which} distances are equal, so they correlate with nothing")
    deviations = np.sqrt(np.diag(moments))
    return float(np.clip(moments[0, 1] / deviations[0] / deviations[1], -1.0, 1.0))


def _compared_distances(examination: Examination) -> list[_Compared]:
    """True and recovered distances in one pass for all metrics that compare them, block by block."""
    blocks = row_blocks(examination.count, BLOCK_ROWS)
    if examination.count > COMPARED_ROWS:
        random = np.random.default_rng(examination.evidence.seed)
        pieces = row_blocks(examination.count, SAMPLE_BLOCK_ROWS)
        chosen = np.sort(random.choice(len(pieces), SAMPLED_ROWS // SAMPLE_BLOCK_ROWS, replace=False))
        blocks = [pieces[at] for at in chosen]
    truth, recovered = examination.truth, examination.recovered

    def compare(block: tuple[int, int]) -> _Compared:
        start, stop = block
        own = (np.arange(stop - start), np.arange(start, stop))
        distances, estimates = (
            np.sqrt(np.maximum(geometry.squared_distance_block(start, stop), 0.0), dtype=np.float64)
            for geometry in (truth, recovered)
        )
        distances[own] = estimates[own] = 0.0
        errors, totals = float(np.sum((estimates - distances) ** 2)), float(np.sum(distances**2))
        pairs = distances.size - (stop - start)
        means = np.array([distances.sum(), estimates.sum()]) / max(pairs, 1)
        for values, mean in zip((distances, estimates), means, strict=True):
            values -= mean
            values[own] = 0.0
        mixed = np.sum(distances * estimates)
        moments = np.array([[np.sum(distances**2), mixed], [mixed, np.sum(estimates**2)]])
        return _Compared(pairs, errors, totals, means, moments)

    return list(map_threaded(compare, blocks, examination.threads))
