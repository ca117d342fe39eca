"""Confidence intervals of the ratio of two means over seeds (Fieller 1954; Welch 1947)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
ASSUMED_SEEDS = 3
"""Seeds of a mean that is printed with a deviation and without its number of seeds. More give a narrower interval."""


@dataclass(frozen=True)
class RatioInterval:
    """An interval of a ratio of means, from 0 to infinity at most."""

    low: float
    high: float

    @property
    def inverse(self) -> RatioInterval:
        """The interval of the inverse ratio."""
        return RatioInterval(
            1.0 / self.high if self.high > 0 else math.inf, 1.0 / self.low if self.low > 0 else math.inf
        )


@dataclass(frozen=True)
class PrintedMean:
    """A mean over seeds.

    Attributes
    ----------
    value : float
    deviation : float or None
        Standard deviation over seeds; None if unknown.
    seeds : int
        Number of seeds.
    rounding : float
        The mean is known to plus or minus this.
    """

    value: float
    deviation: float | None
    seeds: int
    rounding: float = 0.0


def paired_ratio(above: Sequence[float], below: Sequence[float]) -> RatioInterval | None:
    """Return the interval of mean(above) / mean(below), whose values share seeds; None with one seed.

    Parameters
    ----------
    above, below : sequence of float
        Values of one seed at the same place in both.

    Notes
    -----
    It has the ratios r by which a t test of ``above - r * below`` does not differ from 0. So it has 1 if and only if
    the paired t test finds no difference.

    Examples
    --------
    >>> found = paired_ratio([0.61, 0.66, 0.63], [0.60, 0.64, 0.62])
    >>> f"{found.low:.3f} to {found.high:.3f}"
    '0.998 to 1.042'
    """
    seeds = len(above)
    if seeds < 2:
        return None
    return _fieller(
        statistics.fmean(above),
        statistics.fmean(below),
        statistics.variance(above) / seeds,
        statistics.variance(below) / seeds,
        _covariance(above, below) / seeds,
        _quantile(seeds - 1),
    )


def independent_ratio(above: PrintedMean, below: PrintedMean) -> RatioInterval | None:
    """Return the interval of above / below, which share no seeds; None if no deviation is known.

    Notes
    -----
    With both deviations, it has 1 if and only if Welch's t test finds no difference. With one, it is assumed to be the
    deviation of both: of a single run compared with the mean of others, this is their prediction interval. The
    interval is that of all values of ``below`` within its rounding.

    Examples
    --------
    >>> found = independent_ratio(PrintedMean(0.62, 0.01, 3), PrintedMean(0.60, None, 1, rounding=0.005))
    >>> f"{found.low:.3f} to {found.high:.3f}"
    '0.946 to 1.134'
    """
    one, other = above.deviation, below.deviation
    if one is not None and other is not None:
        of_above, of_below = one**2 / above.seeds, other**2 / below.seeds
        degrees = _welch(of_above, above.seeds, of_below, below.seeds)
    elif one is not None:
        of_above, of_below, degrees = one**2 / above.seeds, one**2 / below.seeds, float(above.seeds - 1)
    elif other is not None:
        of_above, of_below, degrees = other**2 / above.seeds, other**2 / below.seeds, float(below.seeds - 1)
    else:
        return None
    t = _quantile(degrees)
    least, most = (
        _fieller(above.value, value, of_above, of_below, 0.0, t)
        for value in (max(below.value - below.rounding, 0.0), below.value + below.rounding)
    )
    return RatioInterval(min(least.low, most.low), max(least.high, most.high))


def _covariance(one: Sequence[float], other: Sequence[float]) -> float:
    centre, centre_of_other = statistics.fmean(one), statistics.fmean(other)
    products = ((a - centre) * (b - centre_of_other) for a, b in zip(one, other, strict=True))
    return math.fsum(products) / (len(one) - 1)


def _welch(of_one: float, seeds: int, of_other: float, others: int) -> float:
    """Return Welch and Satterthwaite's degrees of freedom for two variances of means."""
    spread = of_one**2 / (seeds - 1) + of_other**2 / (others - 1)
    return (of_one + of_other) ** 2 / spread if spread else float(seeds + others - 2)


def _quantile(degrees: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + CONFIDENCE / 2))


def _fieller(
    above: float, below: float, of_above: float, of_below: float, covariance: float, t: float
) -> RatioInterval:
    """Return the least interval from 0 that has all r with (above - r below)^2 <= t^2 Var(above - r below)."""
    square = below**2 - t**2 * of_below
    mixed = above * below - t**2 * covariance
    constant = above**2 - t**2 * of_above
    root = math.sqrt(max(mixed**2 - square * constant, 0.0))
    if square > 0:
        return RatioInterval(max((mixed - root) / square, 0.0), max((mixed + root) / square, 0.0))
    if square == 0:
        return RatioInterval(max(constant / (2 * mixed), 0.0) if mixed > 0 else 0.0, math.inf)
    # The denominator may be 0. All r outside of the two roots belong to it, or all if there are none.
    first, second = sorted(((mixed - root) / square, (mixed + root) / square))
    return RatioInterval(second if first < 0 < second else 0.0, math.inf)
