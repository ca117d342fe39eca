"""Metrics of the geometry that the server recovered against the true one (P3, 4.1 and A.11)."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum, sqrt

import numpy as np

from raydr.arrays import Float64Array
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Geometry, Points, map_threaded, row_blocks
from raydr.metrics.evidence import Examination, UnmeasurableError
from raydr.metrics.metric import metric, metric_by_k
from raydr.metrics.neighborhood import kept_by_sample, kept_neighbors, share
from raydr.metrics.sampling import Sample, SampledValue
from raydr.metrics.ties import Rounded

COMPARED_ROWS = 20_000
"""Above this many rows, distances are compared from a sample of rows to all rows."""
SAMPLED_ROWS = 2_048
"""Rows in that sample, in blocks of `SAMPLE_BLOCK_ROWS` consecutive rows that are drawn uniformly with the seed."""
SAMPLE_BLOCK_ROWS = 64
BLOCK_ROWS = 256
F_SCORE_NEIGHBORS = 10
ROUNDING = 1e-9
"""Distances that vary by less than this share of their mean count as equal, because rounding explains it."""


@dataclass(frozen=True, eq=False)
class _Compared:
    """Sums over one block of true distances t and recovered ones r, over its ``pairs`` of different rows.

    ``errors`` sums (r - t)^2, and ``totals`` t^2. ``means`` (2,) are those of t and r. ``moments`` (2, 2) are
    the sums of squares and products of their deviations from these means.
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
    perfect="every distance between records exactly",
    higher_is_better=False,
)
def distance_error(examination: Examination) -> float | SampledValue:
    r"""Return the relative error of the recovered distances, :math:`\|\hat D - D\|_F / \|D\|_F`: 0 or more.

    D are the true distances (not squared). The diagonal counts as 0 in both. Above `COMPARED_ROWS` rows, the
    sums run over a seeded sample of `SAMPLED_ROWS` rows against all rows. If metrics use a sample of rows
    (`raydr.metrics.sampling`), they run over all pairs within it.
    """
    if examination.sample is not None:
        pairs = examination.once(_pairs_of_sample)
        return pairs.relative_error(examination.sample)
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
def f_score(examination: Examination, k: int) -> float | SampledValue:
    """Return the F-score of the recovered ``k`` nearest neighbours against the true ones: 0 to 1.

    The F-score is 2tp / (2tp + fp + fn). Both tables hold ``k`` neighbours of each row, so fp = fn, and the
    score is the share of recovered neighbours. For equally near rows, see `raydr.metrics.ties`. Of many rows,
    a sample is searched exactly in both geometries, even if there is a graph of the recovered one.
    """
    counts = _recovered_neighbors(examination, k)
    return share(counts, k) if examination.sample is None else examination.sample.mean(counts / k)


@metric_by_k(
    "f_score_published",
    "Neighbour F-score, as the authors of SENSE compute it",
    "2c / (c + k), where c of {k} nearest neighbours are recovered; P3's printed numbers",
    k=F_SCORE_NEIGHBORS,
    needs={"rows", "recovered"},
    by_default=False,
)
def f_score_published(examination: Examination, k: int) -> float | SampledValue:
    """Return the mean over rows of 2c / (c + k), where c of a row's ``k`` true neighbours are recovered: 0 to 1.

    P3 (4.1) defines 2tp / (2tp + fp + fn), which is c / k (`f_score`). The function ``check_score`` in its authors'
    public code returns 2c / (c + k): it counts the k - c missed neighbours once and not twice. The value of a row is at
    least that of `f_score`, and equal to it if c is 0 or k. P3's printed numbers are compared with this metric. For
    equally near rows, c is the expected number (`raydr.metrics.ties`).
    """
    counts = _recovered_neighbors(examination, k)
    scores = 2.0 * counts / (counts + k)
    return share(scores, 1) if examination.sample is None else examination.sample.mean(scores)


def _recovered_neighbors(examination: Examination, k: int) -> Float64Array:
    """Count the ``k`` nearest true neighbours that are recovered, for each row (rows,) or sampled row (sampled,)."""
    recovered = examination.recovered
    if examination.sample is not None:
        examination.require_neighbors(k)
        neighbors, near = examination.sample_row_neighbors, examination.sample_neighbors(recovered)
        return kept_by_sample(neighbors, examination.truth, near, recovered, k, examination.threads)
    true, found = examination.true_neighbors(k), examination.evidence.recovered_neighbors
    wanted = min(k + 1, examination.count - 1)  # one more shows whether the last is tied
    if found is None or found.k < wanted:
        found = nearest_neighbors(
            recovered, wanted, threads=examination.threads, progress=examination.progress
        )
    geometry = Rounded(lambda: recovered)
    return kept_neighbors(true, examination.rounded_truth, found, geometry, k, examination.threads)


@metric(
    "pearson",
    "Correlation of distances",
    "Pearson's correlation of the recovered distances with the true ones, over all pairs of rows",
    needs={"rows", "recovered"},
    perfect="every distance between records exactly",
)
def pearson(examination: Examination) -> float | SampledValue:
    r"""Return Pearson's correlation of recovered and true distances over the pairs of rows i < j: -1 to 1 (P3, A.11).

    Distances are not squared. Above `COMPARED_ROWS` rows, pairs come from the same sample as in
    `distance_error`.
    """
    if examination.sample is not None:
        return examination.once(_pairs_of_sample).correlation(examination.sample)
    blocks = examination.once(_compared_distances)
    pairs = sum(block.pairs for block in blocks)
    if pairs == 0:
        raise UnmeasurableError(
            f"a correlation of distances needs at least 2 rows, but there is {examination.count}"
        )
    means = np.sum([block.pairs * block.means for block in blocks], axis=0) / pairs
    moments = np.zeros((2, 2))
    for (
        block
        # moves deviations from a block's means to the overall means without a difference of large sums
    ) in blocks:
        moments += block.moments + block.pairs * np.outer(block.means - means, block.means - means)
    for which, square, mean in zip(("true", "recovered"), np.diag(moments), means, strict=True):
        if square <= pairs * (ROUNDING * mean) ** 2:
            raise UnmeasurableError(f"all {which} distances are equal, so there is no correlation")
    deviations = np.sqrt(np.diag(moments))
    return float(np.clip(moments[0, 1] / deviations[0] / deviations[1], -1.0, 1.0))


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Means (sampled,) over the pairs of each sampled row with the others: true distances t, recovered ones r.

    ``errors`` are means of (r - t)^2, and ``totals`` of t^2. ``moments`` (sampled, 3) are means of the squares of t and
    of r and of their product. They are relative to ``means`` (2,) of t and r over all pairs.
    """

    errors: Float64Array
    totals: Float64Array
    means: Float64Array
    moments: Float64Array

    def relative_error(self, sample: Sample) -> SampledValue:
        errors, totals = fsum(self.errors), fsum(self.totals)
        if totals == 0.0:
            raise UnmeasurableError("all rows are equal, so every true distance is 0")
        squared = errors / totals
        if squared == 0.0:
            return SampledValue(0.0, 0.0)
        # Linear in each row's effect. Each pair has two rows, so a row's effect counts twice.
        by_row = (self.errors - squared * self.totals) / (2.0 * sqrt(squared) * totals / len(self.totals))
        return SampledValue(sqrt(squared), 2.0 * sample.standard_error(by_row))

    def correlation(self, sample: Sample) -> SampledValue:
        squares = self.moments.mean(axis=0)
        for which, square, mean in zip(("true", "recovered"), squares[:2], self.means, strict=True):
            if square <= (ROUNDING * mean) ** 2:
                raise UnmeasurableError(f"all {which} distances are equal, so there is no correlation")
        found = float(np.clip(squares[2] / sqrt(squares[0]) / sqrt(squares[1]), -1.0, 1.0))
        shares = self.moments[:, :2] / squares[:2]
        by_row = self.moments[:, 2] / sqrt(squares[0] * squares[1]) - found * shares.mean(axis=1)
        return SampledValue(found, 2.0 * sample.standard_error(by_row))


def _pairs_of_sample(examination: Examination) -> _Pairs:
    """Return all pairs of the sampled rows, in one pass for their means and one for the deviations from them."""
    own = examination.sampled
    if own.size < 2:
        raise UnmeasurableError("distances need at least two rows")
    geometries = [_precise(geometry.take(own)) for geometry in (examination.truth, examination.recovered)]
    blocks = row_blocks(own.size, BLOCK_ROWS)

    def distances(block: tuple[int, int]) -> tuple[Float64Array, Float64Array]:
        start, stop = block
        true, found = (
            np.sqrt(np.maximum(geometry.squared_distance_block(start, stop), 0.0), dtype=np.float64)
            for geometry in geometries
        )
        true[np.arange(stop - start), np.arange(start, stop)] = 0.0
        found[np.arange(stop - start), np.arange(start, stop)] = 0.0
        return true, found

    def sums(block: tuple[int, int]) -> Float64Array:
        true, found = distances(block)
        errors, totals = np.sum((found - true) ** 2, axis=1), np.sum(true**2, axis=1)
        return np.stack([errors, totals, true.sum(axis=1), found.sum(axis=1)])

    others = own.size - 1
    errors, totals, *sides = (
        np.concatenate(list(map_threaded(sums, blocks, examination.threads)), axis=1) / others
    )
    means = np.array([fsum(side) / own.size for side in sides])

    def moments(block: tuple[int, int]) -> Float64Array:
        start, stop = block
        itself = (np.arange(stop - start), np.arange(start, stop))
        true, found = distances(block)
        for values, mean in zip((true, found), means, strict=True):
            values -= mean
            values[itself] = 0.0
        return np.stack(
            [np.sum(a * b, axis=1) for a, b in ((true, true), (found, found), (true, found))], axis=1
        )

    about = np.concatenate(list(map_threaded(moments, blocks, examination.threads))) / others
    return _Pairs(errors, totals, means, about)


def _precise(geometry: Geometry) -> Geometry:
    if isinstance(geometry, Points) and geometry.coordinates.dtype != np.float64:
        return Points(geometry.coordinates.astype(np.float64))
    return geometry


def _compared_distances(examination: Examination) -> list[_Compared]:
    """Compare true and recovered distances block by block, in one pass for all metrics that need them."""
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
