"""Filling in missing values from all clients' rows: every client fills its own, and no row leaves it.

The mean of a feature comes from sums of deviations and counts of the values that exist, as in
:func:`raydr.statistics.moments.spread`. The median is found by bisection, with 64 exact sums: how many values of all
clients lie below a bound. Both describe all clients' values together. If only one record has a value of a feature, the
result is that record's value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array, Int64Array
from raydr.data.loading import Filling
from raydr.errors import FeatureError
from raydr.federation import Cells, Client, Federation, Granularity, Range, Reply, Request, answers
from raydr.statistics.moments import column_magnitudes, midway, ordered, unordered
from raydr.statistics.scaling import Done, filled


@dataclass(frozen=True)
class Present(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="for each feature: the number of a client's values, and the sum of their deviations from a common"
    " centre",
):
    """``counts`` (features,) int64 and ``sums`` (features,) float64."""

    counts: Int64Array
    sums: Float64Array

    @staticmethod
    def ranges(request: PresentRequest, rows: int) -> dict[str, Range]:
        """Bound counts by the largest client's rows, and sums by this number times ``reach``."""
        shape, most = request.reach.shape, float(request.most_rows)
        return {"counts": Range(shape, most, "int64"), "sums": Range(shape, request.reach * most)}


@dataclass(frozen=True)
class PresentRequest(Request[Present], what="the common mean so far and the range of each feature"):
    """Request for the sum of ``x - centre`` over existing values; ``reach`` bounds it. Both (features,)."""

    centre: Float64Array
    reach: Float64Array
    most_rows: int


@answers(PresentRequest)
def present(client: Client, request: PresentRequest) -> Present:
    """Client part, in float64."""
    there = ~np.isnan(client.rows)
    deviations = np.where(there, client.rows - request.centre, 0.0)
    return Present(there.sum(axis=0, dtype=np.int64), deviations.sum(axis=0, dtype=np.float64))


@dataclass(frozen=True)
class Below(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="for each feature, how many of a client's values are at most as large as each of two bounds",
):
    """``counts`` (2, features) int64."""

    counts: Int64Array

    @staticmethod
    def ranges(request: BelowRequest, rows: int) -> dict[str, Range]:
        """Bound counts by the largest client's rows."""
        return {"counts": Range(request.keys.shape, float(request.most_rows), "int64")}

    def cells(self, request: BelowRequest, client: Client) -> tuple[Cells, ...]:
        """Return how many values of each feature lie up to the bounds."""
        there = (~np.isnan(client.rows)).sum(axis=0, dtype=np.int64)
        return (Cells(self.counts.T, there),)


@dataclass(frozen=True)
class BelowRequest(
    Request[Below], what="two bounds for each feature, up to which clients count their values"
):
    """``keys`` (2, features) int64: bounds, numbered like doubles in :func:`raydr.statistics.moments.ordered`."""

    keys: Int64Array
    most_rows: int


@answers(BelowRequest)
def below(client: Client, request: BelowRequest) -> Below:
    """Client part: comparisons with a missing value are false."""
    with np.errstate(invalid="ignore"):
        counts = [(client.rows <= bound).sum(axis=0, dtype=np.int64) for bound in unordered(request.keys)]
    return Below(np.stack(counts))


@dataclass(frozen=True)
class FillRows(
    Request[Done], what="for each feature, the value that replaces a missing one", sets_state=True
):
    """Sent to every client once; ``values`` (features,) then replace its missing values."""

    values: Float64Array


@answers(FillRows)
def fill_client(client: Client, request: FillRows) -> Done:
    """Client part: replace the partition with its filled form."""
    client.rows = filled(client.rows, request.values)
    return Done()


def fit_filling(federation: Federation, by: Filling) -> Float64Array:
    """Learn the fill value of each feature by sums, and apply it at every client and to the public rows.

    Features without missing values are included, because new rows may lack them.

    Parameters
    ----------
    federation : Federation
        All clients, with their rows as read: NaN for a missing value.
    by : {"mean", "median"}
        Statistic of the existing values of all clients.

    Returns
    -------
    values : (features,) float64

    Raises
    ------
    DataError
        If no client has a value of a feature.
    """
    values = _mean(federation) if by == "mean" else _median(federation)
    federation.ask(FillRows(values))
    federation.rescale_public(lambda rows: filled(rows, values))
    return values


def _mean(federation: Federation) -> Float64Array:
    most, centre = max(federation.sizes), np.zeros(federation.features)
    # The ring resolves a sum relative to its range, so the second sum is of deviations from the first mean.
    for _ in range(2):
        reach = column_magnitudes(federation, centre)
        found = federation.sum(PresentRequest(centre, reach, most))
        _require_some(found.counts)
        centre = centre + found.sums / found.counts
    return centre


def _median(federation: Federation) -> Float64Array:
    """Return the median; for an even number of values, the mean of the two in the middle."""
    most, shape = max(federation.sizes), (2, federation.features)
    highs = np.full(shape, ordered(np.float64(np.inf)))
    lows = np.full(shape, ordered(np.float64(-np.inf)))
    counts = federation.sum(BelowRequest(highs, most)).counts[0]
    _require_some(counts)
    ranks = np.stack([(counts + 1) // 2, counts // 2 + 1])
    while np.any(lows < highs):
        middles = midway(lows, highs)
        enough = federation.sum(BelowRequest(middles, most)).counts >= ranks
        highs = np.where(enough, middles, highs)
        lows = np.where(enough, lows, np.minimum(middles + 1, highs))
    lower, upper = unordered(highs)
    return np.asarray(lower / 2 + upper / 2 + 0.0)  # halves are exact, and their sum cannot overflow


def _require_some(counts: Int64Array) -> None:
    nowhere = np.flatnonzero(counts == 0)
    if nowhere.size:
        raise FeatureError(
            "{feature} has no value at any client, so it cannot be filled in: name it in data.exclude.",
            int(nowhere[0]),
        )
