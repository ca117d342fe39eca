"""Metrics of each site's own rows, or of each period's: how faithfully a map shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array, Int64Array, IntArray

LEAST_ROWS = 10
"""Minimum number of measured rows of a site. The mean of fewer shares of neighbours says little: its standard error is
above 0.06."""


@dataclass(frozen=True, eq=False)
class SiteScore:
    """Means of metrics over the measured rows of one site, or of one period.

    Attributes
    ----------
    site : int
        Number of the site or the period.
    rows, measured : int
        Number of its rows, and of those that are measured: fewer if rows were sampled.
    means, deviations : mapping of str to float
        Mean and standard deviation over the measured rows, by the metric's name.
    """

    site: int
    rows: int
    measured: int
    means: Mapping[str, float]
    deviations: Mapping[str, float]


def scores_by_site(
    values: Mapping[str, Float64Array], own: Int64Array, sites: IntArray
) -> tuple[SiteScore, ...]:
    """Return the scores of each site with at least `LEAST_ROWS` measured rows, by its number. One site alone has none.

    Parameters
    ----------
    values : mapping of str to (measured,) float
        Each measured row's part of a metric, by the metric's name. The metric is their mean.
    own : (measured,) int
        The measured rows.
    sites : (rows,) int
        Number of the site that holds each row.
    """
    numbers, places, sizes = np.unique(sites, return_inverse=True, return_counts=True)
    if numbers.size < 2:
        return ()
    groups = places[own]
    measured = np.bincount(groups, minlength=numbers.size)
    enough = measured >= LEAST_ROWS
    means, deviations = {}, {}
    for name, of_row in values.items():
        mean = np.bincount(groups, of_row, numbers.size) / np.maximum(measured, 1)
        squares = np.bincount(groups, (of_row - mean[groups]) ** 2, numbers.size)
        means[name], deviations[name] = mean, np.sqrt(squares / np.maximum(measured - 1, 1))
    return tuple(
        SiteScore(
            site=int(numbers[at]),
            rows=int(sizes[at]),
            measured=int(measured[at]),
            means={name: float(mean[at]) for name, mean in means.items()},
            deviations={name: float(deviation[at]) for name, deviation in deviations.items()},
        )
        for at in np.flatnonzero(enough).tolist()
    )
