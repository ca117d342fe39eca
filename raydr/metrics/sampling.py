"""Samples for tables with very many rows, estimates from them, and their standard errors.

Up to `EXACT_ROWS` rows, metrics use all of them. Above that, metrics whose work grows faster than the number
of rows use `SAMPLED_ROWS` rows, and compare each with all rows exactly. So a mean over rows is estimated
without bias, with a known standard error. The same seed draws the same rows for every map. So two maps are
compared on the same rows, and much of the sampling error cancels.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum, sqrt

import numpy as np

from raydr.arrays import Float64Array, Int64Array

EXACT_ROWS = 50_000
"""Up to this many rows, all are used. At this size, a sample of `SAMPLED_ROWS` covers a tenth of the pairs. On one
core, neighbours and ranks of all rows take at most 75 s for 40,000 rows of 784 features. Twice the rows take
four
times as long.
"""
SAMPLED_ROWS = 5_000
"""Rows in a sample. A mean of neighbour shares, with a deviation of 0.2 to 0.35, has an error of 0.003 to 0.005."""


@dataclass(frozen=True)
class SampledValue:
    """A value from a sample, and its standard error from the draw of the rows."""

    value: float
    standard_error: float


@dataclass(frozen=True, eq=False)
class MeanOverRows:
    """A metric that is a mean over rows, and each row's part of it.

    Attributes
    ----------
    value : float or SampledValue
        The metric.
    by_row : (rows,) or (sampled,) float64
        The values whose mean it is.
    """

    value: float | SampledValue
    by_row: Float64Array


@dataclass(frozen=True, eq=False)
class ScoredRows(MeanOverRows):
    """A share of rows whose score is high, and the scores.

    Attributes
    ----------
    column : str
        Name of the scores in the map's files.
    scores : (rows,) or (sampled,) float64
        The scores.
    """

    column: str
    scores: Float64Array


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows drawn from all rows, each with the same probability.

    Attributes
    ----------
    of : int
        Number of all rows.
    rows : (sampled,) int64
        The drawn rows, ascending.
    order : (sampled,) int64
        Places in ``rows``, stratum by stratum.
    """

    of: int
    rows: Int64Array
    order: Int64Array

    def mean(self, values: Float64Array, scale: float = 1.0, shift: float = 0.0) -> SampledValue:
        """Return ``shift + scale`` times the mean over all rows, estimated from sampled values (sampled,)."""
        mean = fsum(values) / values.size
        return SampledValue(float(shift + scale * mean), abs(scale) * self.standard_error(values))

    def standard_error(self, values: Float64Array) -> float:
        """Return the standard error of the mean of ``values`` (sampled,), or 0 for a sample of all rows.

        It comes from differences of successive rows, stratum by stratum. So it measures the variation within
        strata, because their sizes in the sample are fixed.
        """
        count = values.size
        if count == self.of or count < 2:
            return 0.0
        variance = fsum(np.diff(values[self.order]) ** 2) / (2.0 * (count - 1))
        return sqrt(variance / count * (1.0 - count / self.of))


def drawn(rows: int, count: int, seed: int, *strata: Int64Array) -> Sample:
    """Draw ``count`` of ``rows`` rows, or all if there are no more.

    Parameters
    ----------
    rows, count : int
        Number of rows to draw from, and to draw.
    seed : int
        The same seed draws the same rows.
    strata : (rows,) int64 each
        For example classes, and within them sites. Each group has its share of the sample, to within one row.

    Examples
    --------
    >>> sample = drawn(1000, 100, 0, np.arange(1000) // 900)
    >>> np.bincount(sample.rows // 900).tolist()
    [90, 10]
    """
    random = np.random.default_rng((seed, rows, count))
    order = random.permutation(rows)
    if strata:
        order = order[np.lexsort([stratum[order] for stratum in reversed(strata)])]
    # Evenly through the strata from a random start, so that every row has the same probability.
    evenly = (np.arange(min(count, rows)) + random.random()) * max(1.0, rows / count)
    chosen = order[np.minimum(evenly.astype(np.int64), rows - 1)]
    ascending = np.sort(chosen)
    return Sample(rows, ascending, np.searchsorted(ascending, chosen))


@dataclass(frozen=True, eq=False)
class SampledGroups:
    """Rows of some groups, to estimate the mean over groups of their means.

    Attributes
    ----------
    rows : (sampled,) int64
        The drawn rows, group by group.
    starts : (drawn groups + 1,) int64
        Starts of the groups' rows, and the end of the last group.
    sizes : (drawn groups,) int64
        Number of rows in each drawn group.
    groups : int
        Number of groups. If two rows of each would be too many, only some groups are drawn.
    """

    rows: Int64Array
    starts: Int64Array
    sizes: Int64Array
    groups: int

    def mean(self, values: Float64Array) -> SampledValue:
        """Return the mean over groups of the means of their rows, from the values (sampled,) of the sample."""
        parts = np.split(values, self.starts[1:-1])
        means = np.array([part.mean() for part in parts])
        taken = len(parts)
        within = fsum(
            part.var(ddof=1) / part.size * (1.0 - part.size / size)
            for part, size in zip(parts, self.sizes.tolist(), strict=True)
            if 1 < part.size < size
        )
        share = taken / self.groups
        between = (1.0 - share) * float(means.var(ddof=1)) / taken if taken < self.groups else 0.0
        return SampledValue(float(means.mean()), sqrt(between + share * within / taken**2))


def drawn_by_group(groups: Int64Array, count: int, seed: int) -> SampledGroups:
    """Draw about ``count`` rows, with equal numbers from each group if possible, and at least two.

    ``groups`` (rows,) are 0, 1, ..., and each has a row.
    """
    random = np.random.default_rng((seed, groups.size, count))
    sizes = np.bincount(groups)
    by_group = np.argsort(groups, kind="stable")
    ends = np.cumsum(sizes)
    taken = np.arange(sizes.size)
    if sizes.size > max(2, count // 2):
        taken = np.sort(random.choice(sizes.size, max(2, count // 2), replace=False))
    each = max(2, count // taken.size)
    chosen = [
        by_group[ends[group] - sizes[group] : ends[group]]
        if sizes[group] <= each
        else by_group[ends[group] - sizes[group] + random.choice(sizes[group], each, replace=False)]
        for group in taken.tolist()
    ]
    starts = np.concatenate([[0], np.cumsum([part.size for part in chosen])])
    return SampledGroups(np.concatenate(chosen), starts, sizes[taken], int(sizes.size))
