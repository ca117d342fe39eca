"""A sample of very many rows, what is measured on it, and by how much that may be off.

Up to `EXACT_ROWS` rows metrics look at all of them. Of more, what grows faster than their number is measured at
`SAMPLED_ROWS` of them, each of which is compared with all rows, exactly: a mean over rows is estimated without bias,
and its standard error is known. The same seed draws the same rows for every map, so that two maps are compared at the
same rows, where much of what chance does to both is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum, sqrt

import numpy as np

from raydr.arrays import Float64Array, Int64Array

EXACT_ROWS = 50_000
"""Up to so many rows all are looked at. There a sample of `SAMPLED_ROWS` looks at a tenth of the pairs. On one core all
rows' neighbours and ranks take at most 75 s at 40,000 rows of 784 features, and four times as much where rows double.
"""
SAMPLED_ROWS = 5_000
"""Rows in a sample. A mean of shares of neighbours, whose deviation is 0.2 to 0.35, is known to 0.003 to 0.005."""


@dataclass(frozen=True)
class Estimate:
    """What a sample says: the value, and its standard error, as far as that comes of which rows were drawn."""

    value: float
    standard_error: float


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows that were drawn of all, each with the same chance.

    Attributes
    ----------
    of : int
        How many rows there are.
    rows : (sampled,) int64
        Which were drawn, ascending.
    order : (sampled,) int64
        Places in ``rows``, stratum after stratum.
    """

    of: int
    rows: Int64Array
    order: Int64Array

    def mean(self, values: Float64Array, scale: float = 1.0, shift: float = 0.0) -> Estimate:
        """``shift + scale`` times the mean over all rows of what was measured at each row of the sample, (sampled,)."""
        mean = fsum(values) / values.size
        return Estimate(float(shift + scale * mean), abs(scale) * self.standard_error(values))

    def standard_error(self, values: Float64Array) -> float:
        """Of the mean of ``values`` (sampled,); 0 of a sample of all rows.

        By the differences of successive rows, stratum after stratum: as much as rows vary inside of strata, whose
        sizes in the sample are no matter of chance.
        """
        count = values.size
        if count == self.of or count < 2:
            return 0.0
        variance = fsum(np.diff(values[self.order]) ** 2) / (2.0 * (count - 1))
        return sqrt(variance / count * (1.0 - count / self.of))


def drawn(rows: int, count: int, seed: int, *strata: Int64Array) -> Sample:
    """Draw ``count`` of ``rows`` rows, or all where there are no more.

    Parameters
    ----------
    rows, count : int
        Of how many, and how many.
    seed : int
        The same seed draws the same rows.
    strata : (rows,) int64 each
        Classes, say, and inside of them sites: each group has its share of the sample, to within a row.

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
    # Evenly through the strata, from a start by chance: every row has the same chance.
    evenly = (np.arange(min(count, rows)) + random.random()) * max(1.0, rows / count)
    chosen = order[np.minimum(evenly.astype(np.int64), rows - 1)]
    ascending = np.sort(chosen)
    return Sample(rows, ascending, np.searchsorted(ascending, chosen))


@dataclass(frozen=True, eq=False)
class SampledGroups:
    """Rows of some groups, so that the mean over groups of their means is known.

    Attributes
    ----------
    rows : (sampled,) int64
        Which were drawn, group after group.
    starts : (drawn groups + 1,) int64
        Where the rows of each group begin, and where the last one's end.
    sizes : (drawn groups,) int64
        Rows that each of them has.
    groups : int
        How many there are; of so many that two rows of each would be too much, some are drawn.
    """

    rows: Int64Array
    starts: Int64Array
    sizes: Int64Array
    groups: int

    def mean(self, values: Float64Array) -> Estimate:
        """Mean over groups of the means of their rows, of what was measured at each row of the sample, (sampled,)."""
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
        return Estimate(float(means.mean()), sqrt(between + share * within / taken**2))


def drawn_by_group(groups: Int64Array, count: int, seed: int) -> SampledGroups:
    """Draw about ``count`` rows, as many of each group as of any other, as far as it has them, and two at least.

    ``groups`` (rows,) are 0, 1, ...; each has a row.
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
