"""What a site does so that its rows lie where all sites' rows do: by sums of all sites, and by itself.

ComBat (Johnson, Li and Rabinovic 2007) takes a value to be ``centre + (x - mean x) slopes + shift + deviation * noise``
with a shift and a noise of each site's own, and undoes both. ``center`` undoes the shift, ``scale`` also how far the
noise goes, and ``combat`` undoes both as far as empirical Bayes has them: what one column says of a site is drawn to
what its other columns say. The prior of a site is of its own columns alone, so it needs nothing of other sites. Numbers
are those of the R package sva and of neuroCombat, but where a site has a single row: sva then adjusts no site's scale,
and here that site's alone stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from raydr.arrays import BoolArray, Float64Array, FloatArray, Int64Array
from raydr.geometry.points import value_blocks
from raydr.statistics.moments import beyond_rounding

Kind: TypeAlias = Literal["center", "scale", "combat"]

_CHANGE, _MOST_STEPS = 1e-4, 10_000
"""Where empirical Bayes stops: sva's and neuroCombat's rule, by which digits from the fifth on are theirs."""


@dataclass(frozen=True)
class Covariates:
    """What is to stay of the differences between sites: columns of the rows, and classes.

    ``columns`` are indices of features; ``classes`` is how many classes there are, of which the first is the one that
    others differ from, 0 where classes are not kept.
    """

    columns: tuple[int, ...] = ()
    classes: int = 0

    @property
    def indicators(self) -> int:
        """How many classes have an indicator, 0 or 1 in each row: all but the first."""
        return max(0, self.classes - 1)

    @property
    def count(self) -> int:
        """How many numbers of each row they are."""
        return len(self.columns) + self.indicators

    def of(self, rows: FloatArray, classes: Int64Array | None) -> Float64Array:
        """Covariates (rows, count) of rows (rows, features) and their classes (rows,)."""
        values = rows[:, list(self.columns)].astype(np.float64)
        if not self.indicators:
            return values
        if classes is None:
            raise ValueError("classes are to be kept, and these rows have none")
        return np.hstack([values, classes[:, None] == np.arange(1, self.classes)])


@dataclass(kw_only=True, frozen=True)
class Common:
    """What all sites are told.

    Attributes
    ----------
    kind : {"center", "scale", "combat"}
        See the module.
    covariates : Covariates
    centre : (features,) float64
        Mean of all rows.
    deviation : (features,) float64
        Standard deviation of rows around what their site and their covariates say, in the units of the feature.
    adjusted : (features,) bool
        Which features are changed at all.
    middle : (covariates,) float64
        Mean of the covariates of all rows.
    slopes : (covariates, features) float64
        What of a feature goes with the covariates, inside of sites.
    """

    kind: Kind
    covariates: Covariates
    centre: Float64Array
    deviation: Float64Array
    adjusted: BoolArray
    middle: Float64Array
    slopes: Float64Array

    def expected(self, rows: FloatArray, classes: Int64Array | None) -> Float64Array:
        """What rows (rows, features) would be without their site and without noise."""
        if not self.covariates.count:
            return self.centre
        return np.asarray(
            self.centre + (self.covariates.of(rows, classes) - self.middle) @ self.slopes, np.float64
        )


@dataclass(frozen=True)
class SiteEffect:
    """What a site takes off its rows: (features,) each, in the units of the feature; 0 and 1 take nothing off.

    A value becomes ``expected + (value - expected - shift) * factor``.
    """

    shift: Float64Array
    factor: Float64Array


def site_effect(rows: FloatArray, classes: Int64Array | None, common: Common) -> SiteEffect:
    """What a site with these rows (rows, features) takes off them; nothing where it has none."""
    shift, factor = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
    count = len(rows)
    if not count:
        return SiteEffect(shift, factor)
    mean, variance = own_moments(rows, classes, common)
    chosen = common.adjusted
    shift[chosen] = mean[chosen]
    if common.kind == "center":
        return SiteEffect(shift, factor)
    unit = common.deviation[chosen]
    own = variance[chosen] * (count / max(1, count - 1))
    delta = np.divide(own, unit**2, out=np.zeros_like(unit), where=unit > 0)
    # Of a single row, and of a column that is constant here, only the place is known.
    delta[delta == 0] = 1.0
    if common.kind == "combat":
        gamma, delta = shrunken(mean[chosen] / unit, delta, count)
        shift[chosen] = unit * gamma
    factor[chosen] = 1.0 / np.sqrt(delta)
    return SiteEffect(shift, factor)


def own_moments(
    rows: FloatArray, classes: Int64Array | None, common: Common
) -> tuple[Float64Array, Float64Array]:
    """Mean and variance (divisor n) of a site's rows around what is expected of them, (features,) each."""
    mean, variance = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    for block, own in _blocks(rows, classes):
        mean += (block - common.expected(block, own)).sum(axis=0)
    mean /= len(rows)
    for block, own in _blocks(rows, classes):
        variance += ((block - common.expected(block, own) - mean) ** 2).sum(axis=0)
    variance /= len(rows)
    return mean, beyond_rounding(variance, np.abs(mean) + np.abs(common.centre))


def shrunken(gamma: Float64Array, delta: Float64Array, count: int) -> tuple[Float64Array, Float64Array]:
    """Posterior means of a site's shifts and variances, each drawn to what the other columns say.

    Parameters
    ----------
    gamma, delta : (columns,) float64
        Shifts and variances of at least two columns, in units of the columns' deviation and its square.
    count : int
        Rows of the site; of a single one the variances stay.

    Returns
    -------
    gamma, delta : (columns,) float64
    """
    likely, spread = gamma.mean(), gamma.var(ddof=1)
    if count == 1:
        return _shift(gamma, delta, 1, likely, spread), delta
    mean, width = delta.mean(), delta.var(ddof=1)
    # The inverse gamma prior with the moments of delta, numerator and denominator times its variance, which may be 0.
    a_width, b_width = 2.0 * width + mean**2, mean * width + mean**3
    best, scale = gamma, delta
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(_MOST_STEPS):
            new = _shift(gamma, scale, count, likely, spread)
            squares = (count - 1) * delta + count * (gamma - new) ** 2
            wider = (0.5 * squares * width + b_width) / ((count / 2.0 - 1.0) * width + a_width)
            # A shift below 0 counts for nothing here, as in sva.
            change = max(float(((abs(new - best)) / best).max()), float((abs(wider - scale) / scale).max()))
            best, scale = new, wider
            if not change > _CHANGE:
                break
    return best, scale


def _shift(
    gamma: Float64Array, delta: Float64Array, count: int, likely: float, spread: float
) -> Float64Array:
    weight = spread * count
    return np.asarray((weight * gamma + delta * likely) / (weight + delta))


def adjusted_rows(
    rows: FloatArray, classes: Int64Array | None, common: Common, effect: SiteEffect
) -> FloatArray:
    """A site's rows (rows, features) without what is its own, in their own precision; columns that stay to the bit."""
    result = np.empty(rows.shape, rows.dtype)
    start = 0
    for block, own in _blocks(rows, classes):
        if common.kind == "center":
            values = block - effect.shift
        else:
            expected = common.expected(block, own)
            values = expected + (block - expected - effect.shift) * effect.factor
        result[start : start + len(block)] = np.where(common.adjusted, values, block)
        start += len(block)
    return result


@dataclass(frozen=True)
class Harmonization:
    """What sites did to their rows: what they were told, and each site's own, in client order.

    The latter is in no federation in one place.
    """

    common: Common
    effects: tuple[SiteEffect, ...]

    def applied(self, rows: FloatArray, owners: Int64Array, classes: Int64Array | None = None) -> FloatArray:
        """Rows (rows, features) of sites (rows,), and their classes where those are kept, adjusted."""
        result = np.empty(rows.shape, rows.dtype)
        for site in np.unique(owners):
            own = np.flatnonzero(owners == site)
            known = None if classes is None else classes[own]
            result[own] = adjusted_rows(rows[own], known, self.common, self.effects[site])
        return result


def _blocks(rows: FloatArray, classes: Int64Array | None) -> list[tuple[FloatArray, Int64Array | None]]:
    """Some rows at a time, and their classes; of a table in single precision no copy in double is made whole."""
    return [
        (rows[start:stop], None if classes is None else classes[start:stop])
        for start, stop in value_blocks(*rows.shape)
    ]
