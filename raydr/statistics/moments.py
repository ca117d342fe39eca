"""Statistics of all rows that the server learns through sums alone.

No client's own minimum, mean or histogram is asked for: extremes come from bisection on counts of clients, moments
and histograms are sums. Every sum needs a range that holds for all clients, and user data have any range, so the
magnitude of each column comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.errors import DataError, FeatureError
from raydr.federation import Client, Federation, Granularity, Range, Reply, Request, answers
from raydr.geometry.points import squared_distances

Quantity = Literal["exponent", "maximum", "minimum"]

_SIGN = np.int64(np.iinfo(np.int64).max)
_LEAST_EXPONENT, _MOST_EXPONENT = -1075, 1024  # of frexp on doubles; the least stands for a column of zeros
_LARGEST_EXPONENT = 480  # squares of larger values, summed over many rows and features, may leave the doubles
_BINS_PER_OCTAVE, _OCTAVES = 16, 64
_REFERENCES = 64


@dataclass(frozen=True)
class Within(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="for each feature, 0 or 1: whether all of a client's values stay within the bound that was named",
):
    """Votes of one client; their sum is a number of clients."""

    votes: Int64Array

    @staticmethod
    def ranges(request: WithinRequest, rows: int) -> dict[str, Range]:
        """One vote for each feature."""
        return {"votes": Range(request.keys.shape, 1.0, "int64")}


@dataclass(frozen=True)
class WithinRequest(Request[Within], what="one bound for each feature, to be voted on"):
    """``keys``: (features,) int64 bounds on the order-preserving keys of :func:`column_keys`, seen from ``centre``."""

    keys: Int64Array
    quantity: Quantity
    centre: Float64Array


@answers(WithinRequest)
def vote(client: Client, request: WithinRequest) -> Within:
    """1 for each column whose quantity is at most the bound; a client without rows agrees to every bound."""
    if client.rows.shape[0] == 0:
        return Within(np.ones(request.keys.shape, np.int64))
    keys = column_keys(client.rows, request.quantity, request.centre)
    return Within((keys <= request.keys).astype(np.int64))


def column_keys(rows: FloatArray, quantity: Quantity, centre: Float64Array) -> Int64Array:
    """An integer for each column that orders as the quantity does.

    Parameters
    ----------
    rows : (rows, features)
        At least one row; a value that is missing, NaN, counts for nothing.
    quantity : {"exponent", "maximum", "minimum"}
        Binary exponent of the largest distance from the centre; the largest value; the negative of the smallest value.
    centre : (features,) float64
        Where distances are measured from.

    Returns
    -------
    keys : (features,) int64
        Exponents, or the bits of doubles reordered so that integers compare as the doubles do.
    """
    match quantity:
        case "exponent":
            magnitude = np.maximum(_largest(rows) - centre, centre + _largest(rows, negated=True))
            return np.where(magnitude > 0, np.frexp(magnitude)[1], _LEAST_EXPONENT).astype(np.int64)
        case "maximum":
            return ordered(_largest(rows))
        case "minimum":
            return ordered(_largest(rows, negated=True))


def _largest(rows: FloatArray, *, negated: bool = False) -> FloatArray:
    """Largest value of each feature, or of their negatives; -inf where none is there."""
    largest = -rows.min(axis=0) if negated else rows.max(axis=0)
    if np.isnan(largest).any():
        extremes = -np.fmin.reduce(rows, axis=0) if negated else np.fmax.reduce(rows, axis=0)
        largest = np.where(np.isnan(extremes), -np.inf, extremes)
    return np.asarray(largest)


def largest_key(federation: Federation, quantity: Quantity, centre: Float64Array | None = None) -> Int64Array:
    """Largest of all clients' :func:`column_keys`, by bisection on counts of clients: exact, 12 or 64 sums."""
    centre = np.zeros(federation.features) if centre is None else centre
    if quantity == "exponent":
        low, high = _LEAST_EXPONENT, _MOST_EXPONENT
    else:
        low, high = int(ordered(np.float64(-np.inf))), int(ordered(np.float64(np.inf)))
    lows = np.full(federation.features, low, np.int64)
    highs = np.full(federation.features, high, np.int64)
    while np.any(lows < highs):
        middles = midway(lows, highs)
        votes = federation.sum(WithinRequest(middles, quantity, centre)).votes
        unanimous = votes == federation.clients
        highs = np.where(unanimous, middles, highs)
        lows = np.where(unanimous, lows, np.minimum(middles + 1, highs))
    return highs


def midway(lows: Int64Array, highs: Int64Array) -> Int64Array:
    """``floor((low + high) / 2)`` without leaving 64 bits."""
    return np.asarray((lows >> 1) + (highs >> 1) + (lows & highs & 1))


def column_magnitudes(federation: Federation, centre: Float64Array | None = None) -> Float64Array:
    """For each feature a power of two above every ``|x - centre|``, 0 if all are 0; the centre is 0 unless given.

    Raises
    ------
    DataError
        If a value is so large that sums of squares may leave double precision.
    """
    exponents = largest_key(federation, "exponent", centre)
    if np.any(exponents > _LARGEST_EXPONENT):
        raise FeatureError(
            f"{{feature}} holds values of about 2**{exponents.max()}, and squares of values past"
            f" 2**{_LARGEST_EXPONENT} cannot be added up in double precision: express it in another unit, leave it out"
            " of data.features, or set data.scale to minmax.",
            int(exponents.argmax()),
        )
    return np.where(exponents == _LEAST_EXPONENT, 0.0, np.ldexp(1.0, exponents))


def column_extremes(federation: Federation) -> tuple[Float64Array, Float64Array]:
    """Exact minimum and maximum of each feature over all clients."""
    maximum = unordered(largest_key(federation, "maximum"))
    minimum = -unordered(largest_key(federation, "minimum"))
    return minimum, maximum


@dataclass(frozen=True)
class Moment(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="for each feature, a client's mean, or mean squared deviation from the common mean",
):
    """Mean of a power of the deviations of one client's rows, float64 of shape (features,)."""

    mean: Float64Array

    @staticmethod
    def ranges(request: MomentRequest, rows: int) -> dict[str, Range]:
        """The largest deviation, to the power asked for."""
        return {"mean": Range(request.reach.shape, request.reach**request.power)}


@dataclass(frozen=True)
class MomentRequest(Request[Moment], what="the common mean so far and the range of each feature"):
    """Ask for the mean of ``(x - centre) ** power``; ``reach`` bounds ``|x - centre|``. Both of shape (features,)."""

    centre: Float64Array
    reach: Float64Array
    power: int


@answers(MomentRequest)
def moment(client: Client, request: MomentRequest) -> Moment:
    """Client part of a moment, in double precision."""
    deviations = client.rows - request.centre
    return Moment((deviations**request.power).mean(axis=0))


@dataclass(frozen=True)
class Spread:
    """Where the rows lie: mean and standard deviation (divisor n) of each feature, over all rows.

    ``deviation`` is exactly 0 for a feature that is constant up to rounding; no row is farther than ``reach`` from the
    mean. All of shape (features,).
    """

    mean: Float64Array
    deviation: Float64Array
    reach: Float64Array

    @property
    def width(self) -> float:
        """Root mean square of the deviations: the unit in which levels of noise on data are told."""
        return float(np.sqrt((self.deviation**2).mean()))


def centre(federation: Federation) -> tuple[Float64Array, Float64Array]:
    """Mean of each feature over all rows, and what no row is farther from it than; (features,) each.

    The ring resolves a moment to a part of its range. So the range is that of the values only for a first mean, and
    that of the deviations from it for all else: a narrow column far from 0 (seconds since 1970) keeps its digits.
    """
    zero = np.zeros(federation.features)
    mean = federation.mean(MomentRequest(zero, column_magnitudes(federation), 1), weights="rows").mean
    reach = column_magnitudes(federation, mean)
    mean = mean + federation.mean(MomentRequest(mean, reach, 1), weights="rows").mean
    return mean, 2.0 * reach  # the mean has moved by less than the former reach


def spread(federation: Federation) -> Spread:
    """Mean and standard deviation of each feature, by sums of moments."""
    mean, reach = centre(federation)
    variance = federation.mean(MomentRequest(mean, reach, 2), weights="rows").mean
    deviation = np.sqrt(beyond_rounding(variance, mean))
    if federation.deviation is None:
        federation.deviation = deviation
    return Spread(mean, deviation, reach)


def beyond_rounding(variance: Float64Array, size: Float64Array) -> Float64Array:
    """Variances; 0 where rounding alone makes one as large in a constant column of values of that ``size``.

    scikit-learn allows that times the number of rows, since its sums are not exact; a million timestamps within a third
    of a second are constant there.
    """
    return np.where(variance <= (4.0 * np.finfo(np.float64).eps * size) ** 2, 0.0, variance)


def wide_spread(federation: Federation) -> Spread:
    """As :func:`spread`, of rows that differ; DataError if all rows of all clients are equal."""
    found = spread(federation)
    if not found.width:
        raise DataError(
            "All rows of all clients are equal, so there is no geometry to map: check data.features and data.scale."
        )
    return found


@dataclass(frozen=True)
class Histogram(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="how many of a client's rows lie how far from some made-up points",
):
    """Counts of the pairs of one client's rows and the reference points, shape (bins,)."""

    counts: Int64Array

    @staticmethod
    def ranges(request: HistogramRequest, rows: int) -> dict[str, Range]:
        """No bin holds more pairs than the largest client has."""
        pairs = float(request.most_rows * request.references.shape[0])
        return {"counts": Range((_OCTAVES * _BINS_PER_OCTAVE + 2,), pairs, "int64")}


@dataclass(frozen=True)
class HistogramRequest(Request[Histogram], what="some made-up points and the bins of a histogram"):
    """Ask for a histogram of squared distances to ``references``, in logarithmic bins ending at ``farthest``."""

    references: Float64Array
    farthest: float
    most_rows: int


@answers(HistogramRequest)
def histogram(client: Client, request: HistogramRequest) -> Histogram:
    """Client part of the histogram, in double precision."""
    if client.rows.shape[0] == 0:
        return Histogram(np.zeros(_OCTAVES * _BINS_PER_OCTAVE + 2, np.int64))
    bins = np.concatenate([[-np.inf], _edges(request.farthest), [np.inf]])
    squared = squared_distances(client.rows.astype(np.float64), request.references)
    return Histogram(np.histogram(squared, bins=bins)[0].astype(np.int64))


def median_squared_distance(federation: Federation, spread: Spread) -> float:
    """Median squared distance between two rows of any clients, estimated from one summed histogram.

    No party sees pairs of rows of different clients, so made-up rows stand for the second of each pair: Gaussian
    with the mean and the deviations of the data. Within a few percent where features are many (MNIST 0.99 of the
    median, digits 1.03), up to about three times it where they are few, dependent and heavy-tailed (unscaled wine 1.2,
    breast cancer 2.5, at worst of 20 seeds 1.5 and 3.0); a kernel's bandwidth needs no more.

    Returns
    -------
    median : float
        Squared distance, to the width of a bin (4.4%); 0 when all rows are equal.
    """
    reach = np.where(spread.deviation > 0, spread.reach, 0.0)
    farthest = 4.0 * float(reach @ reach)
    if farthest == 0.0:
        return 0.0
    noise = federation.stream("median heuristic").standard_normal((_REFERENCES, federation.features))
    references = np.asarray(spread.mean + spread.deviation * noise)
    request = HistogramRequest(references, farthest, max(federation.sizes))
    cumulative = np.cumsum(federation.sum(request).counts)
    middle = int(np.searchsorted(cumulative, cumulative[-1] / 2))
    edges = _edges(farthest)
    return float(edges[min(middle, len(edges) - 1)])


def _edges(farthest: float) -> Float64Array:
    """Logarithmic bin edges, 16 an octave, 64 octaves down from the farthest."""
    steps = np.arange(-_OCTAVES * _BINS_PER_OCTAVE, 1) / _BINS_PER_OCTAVE
    return np.asarray(farthest * np.exp2(steps))


def ordered(values: FloatArray | np.float64) -> Int64Array:
    """Bits of doubles as integers in the doubles' order; its own inverse up to the view.

    >>> ordered(np.array([-1.0, 0.0, 0.5])).argsort().tolist()
    [0, 1, 2]
    """
    bits = np.asarray(values, np.float64).view(np.int64)
    return np.asarray(bits ^ ((bits >> 63) & _SIGN))


def unordered(keys: Int64Array) -> Float64Array:
    """Doubles that :func:`ordered` made integers of."""
    return np.asarray(keys ^ ((keys >> 63) & _SIGN)).view(np.float64)
