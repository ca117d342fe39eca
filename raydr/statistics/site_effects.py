"""Site effects: what each site removes from its rows, from all sites' sums and its own rows.

ComBat (Johnson, Li and Rabinovic 2007) models a value as ``centre + (x - mean x) slopes + shift + deviation * noise``.
Shift and noise depend on the site, and ComBat removes both. ``center`` removes the shift. ``scale`` also removes the
site's scale of the noise. ``combat`` removes both as estimated by empirical Bayes, which shrinks a column's estimate
towards those of the site's other columns. The prior of a site comes from its own columns alone, so it needs no other
site. The results match those of the R package sva and of neuroCombat, with one exception. If a site has a single row,
sva adjusts no site's scale; here only that site's scale stays unadjusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from raydr.arrays import BoolArray, Float64Array, FloatArray, Int64Array
from raydr.geometry.points import value_blocks
from raydr.statistics.moments import beyond_rounding
from raydr.wire_types import travels

Kind: TypeAlias = Literal["center", "scale", "combat"]

_CHANGE, _MOST_STEPS = 1e-4, 10_000
"""Stopping rule of empirical Bayes, as in sva and neuroCombat. It makes digits from the fifth on equal to theirs."""


@travels
@dataclass(frozen=True)
class Covariates:
    """Differences between sites that must be kept: columns of the rows, and classes.

    ``columns`` are indices of features. ``classes`` is the number of classes, of which the first is the reference; 0
    if classes are not kept.
    """

    columns: tuple[int, ...] = ()
    classes: int = 0

    @property
    def indicators(self) -> int:
        """Number of classes with an indicator, 0 or 1 in each row: all but the first."""
        return max(0, self.classes - 1)

    @property
    def count(self) -> int:
        """Number of covariates of each row."""
        return len(self.columns) + self.indicators

    def of(self, rows: FloatArray, classes: Int64Array | None) -> Float64Array:
        """Return the covariates (rows, count) of rows (rows, features) and their classes (rows,)."""
        values = rows[:, list(self.columns)].astype(np.float64)
        if not self.indicators:
            return values
        if classes is None:
            raise ValueError("data.harmonize keeps classes, but these rows have none")
        return np.hstack([values, classes[:, None] == np.arange(1, self.classes)])


@travels
@dataclass(kw_only=True, frozen=True)
class Common:
    """The common part of a harmonization, which all sites receive.

    Attributes
    ----------
    kind : {"center", "scale", "combat"}
        See the module.
    covariates : Covariates
    centre : (features,) float64
        Mean of all rows.
    deviation : (features,) float64
        Standard deviation of rows around the value expected from site and covariates, in units of the feature.
    adjusted : (features,) bool
        Whether each feature is adjusted.
    middle : (covariates,) float64
        Mean of the covariates of all rows.
    slopes : (covariates, features) float64
        Slopes of the features over the covariates, within sites.
    """

    kind: Kind
    covariates: Covariates
    centre: Float64Array
    deviation: Float64Array
    adjusted: BoolArray
    middle: Float64Array
    slopes: Float64Array

    def expected(self, rows: FloatArray, classes: Int64Array | None) -> Float64Array:
        """Return the values of rows (rows, features) without site effect and noise."""
        if not self.covariates.count:
            return self.centre
        return np.asarray(
            self.centre + (self.covariates.of(rows, classes) - self.middle) @ self.slopes, np.float64
        )


@dataclass(frozen=True)
class SiteEffect:
    """The effects that a site removes from its rows: (features,) each, in units of the feature; 0 and 1 change nothing.

    A value becomes ``expected + (value - expected - shift) * factor``.
    """

    shift: Float64Array
    factor: Float64Array


def site_effect(rows: FloatArray, classes: Int64Array | None, common: Common) -> SiteEffect:
    """Return the effect of a site with these rows (rows, features); none without rows."""
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
    # For a single row, or a column that is constant here, only the shift is known.
    delta[delta == 0] = 1.0
    if common.kind == "combat":
        gamma, delta = shrunken(mean[chosen] / unit, delta, count)
        shift[chosen] = unit * gamma
    factor[chosen] = 1.0 / np.sqrt(delta)
    return SiteEffect(shift, factor)


def own_moments(
    rows: FloatArray, classes: Int64Array | None, common: Common
) -> tuple[Float64Array, Float64Array]:
    """Return mean and variance (divisor n) of a site's rows around their expected values, (features,) each."""
    mean, variance = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    for block, own in _blocks(rows, classes):
        mean += (block - common.expected(block, own)).sum(axis=0)
    mean /= len(rows)
    for block, own in _blocks(rows, classes):
        variance += ((block - common.expected(block, own) - mean) ** 2).sum(axis=0)
    variance /= len(rows)
    return mean, beyond_rounding(variance, np.abs(mean) + np.abs(common.centre))


def shrunken(gamma: Float64Array, delta: Float64Array, count: int) -> tuple[Float64Array, Float64Array]:
    """Return posterior means of a site's shifts and variances, each shrunk towards the other columns.

    Parameters
    ----------
    gamma, delta : (columns,) float64
        Shifts and variances of at least two columns, in units of the columns' deviation and its square.
    count : int
        Rows of the site; for a single row the variances stay.

    Returns
    -------
    gamma, delta : (columns,) float64
    """
    likely, spread = gamma.mean(), gamma.var(ddof=1)
    if count == 1:
        return _shift(gamma, delta, 1, likely, spread), delta
    mean, width = delta.mean(), delta.var(ddof=1)
    # Inverse gamma prior with the moments of delta; numerator and denominator are multiplied by its variance, which
    # may be 0.
    a_width, b_width = 2.0 * width + mean**2, mean * width + mean**3
    best, scale = gamma, delta
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(_MOST_STEPS):
            new = _shift(gamma, scale, count, likely, spread)
            squares = (count - 1) * delta + count * (gamma - new) ** 2
            wider = (0.5 * squares * width + b_width) / ((count / 2.0 - 1.0) * width + a_width)
            # As in sva, a shift below 0 does not count here.
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
    """Return a site's rows (rows, features) without its effect, in their own precision; other columns bit-identical."""
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
    """The adjustments of the sites: the common part, and each site's own effect, in client order.

    No party of a real federation has all site effects.
    """

    common: Common
    effects: tuple[SiteEffect, ...]

    def applied(self, rows: FloatArray, owners: Int64Array, classes: Int64Array | None = None) -> FloatArray:
        """Return adjusted rows (rows, features) of sites (rows,), with their classes if those are covariates."""
        result = np.empty(rows.shape, rows.dtype)
        for site in np.unique(owners):
            own = np.flatnonzero(owners == site)
            known = None if classes is None else classes[own]
            result[own] = adjusted_rows(rows[own], known, self.common, self.effects[site])
        return result


def _blocks(rows: FloatArray, classes: Int64Array | None) -> list[tuple[FloatArray, Int64Array | None]]:
    """Return blocks of rows with their classes, so that a float32 table is never copied to float64 as a whole."""
    return [
        (rows[start:stop], None if classes is None else classes[start:stop])
        for start, stop in value_blocks(*rows.shape)
    ]
