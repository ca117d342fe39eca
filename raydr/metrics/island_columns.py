"""Columns in which a group of islands differs from the other rows, with a false-discovery rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array, Int64Array

LEAST_AUC = 0.65
"""Smallest effect. Islands come from the same columns, so columns without clusters differ a little as well. Without the
limit, 5 to 42 % of them are wrong; with it, 0 to 9 % (`benchmarks.islands`)."""
MOST_COLUMNS = 5
"""Maximum number of columns that are listed for a group."""


@dataclass(frozen=True)
class Difference:
    """A column in which a group differs, counted from 0, and the area under the ROC curve.

    ``auc`` is the probability that the value of a row of the group is larger than that of another row. Ties count half.
    """

    column: int
    auc: float


@dataclass(frozen=True)
class Differences:
    """Number of columns in which a group differs, and those that differ most."""

    columns: int
    largest: tuple[Difference, ...]


def differing_columns(rows: Float64Array, group: Int64Array, level: float) -> list[Differences]:
    """Return the columns in which each group differs from the other rows.

    Parameters
    ----------
    rows : (rows, features) float64
        Features.
    group : (rows,) int
        Group of each row, 0 to groups - 1, none empty.
    level : float
        False-discovery rate over all groups and columns, by the step of Benjamini and Hochberg.

    Notes
    -----
    A column differs if the rank-sum test of Mann and Whitney rejects, and the AUC is at least `LEAST_AUC` or at most
    1 - `LEAST_AUC`. A federation needs the histogram of each column and group.
    """
    from scipy.special import ndtr
    from scipy.stats import false_discovery_control, rankdata

    sizes = np.bincount(group).astype(np.float64)[:, None]
    if len(sizes) < 2:
        return [Differences(0, ())]
    count = len(rows)
    ranks = rankdata(rows, axis=0)
    sums = np.array([ranks[group == number].sum(axis=0) for number in range(len(sizes))])
    auc = (sums / sizes - (sizes + 1) / 2) / (count - sizes)
    spread = ((ranks - (count + 1) / 2) ** 2).sum(axis=0) / (count - 1)  # less if there are ties
    error = np.sqrt(spread / (count * sizes * (count - sizes)))  # of the AUC, if the group does not matter
    z = np.divide(np.abs(auc - 0.5), error, out=np.zeros_like(auc), where=error > 0)
    rejected = false_discovery_control(2 * ndtr(-z.ravel())).reshape(z.shape) <= level
    found = rejected & (np.abs(auc - 0.5) >= LEAST_AUC - 0.5)
    differences = []
    for differs, values in zip(found, auc, strict=True):
        order = np.argsort(-np.abs(values - 0.5), kind="stable")
        largest = [Difference(int(column), float(values[column])) for column in order if differs[column]]
        differences.append(Differences(len(largest), tuple(largest[:MOST_COLUMNS])))
    return differences
