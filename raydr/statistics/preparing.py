"""What becomes of rows before a method sees them: gaps filled in, sites harmonized, features scaled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.statistics.moments import beyond_rounding
from raydr.statistics.scaling import Scale, Scaling, filled, inverse, scale_rows
from raydr.statistics.site_effects import Common, Covariates, Harmonization, Kind, SiteEffect
from raydr.threads import one_blas_thread

COMMON = tuple(
    f"site_{name}"
    for name in ("covariates", "classes", "centre", "deviation", "adjusted", "middle", "slopes")
)
"""Names of a model's arrays of what harmonized sites have in common."""


@dataclass(frozen=True)
class Preparation:
    """What clients did to their rows, for whoever is to do it to others, or has all of them in one place.

    Attributes
    ----------
    scaling : Scaling
        What rows were filled in and scaled by.
    harmonization : Harmonization or None
        What sites did in between; None where nothing.
    """

    scaling: Scaling
    harmonization: Harmonization | None = None

    def applied(
        self, rows: FloatArray, owners: Int64Array | None = None, classes: Int64Array | None = None
    ) -> FloatArray:
        """Rows (rows, features) as clients have them.

        ``owners`` (rows,) says whose they are; without it they are no site's, and are not harmonized, as the public
        rows. ``classes`` (rows,) are theirs, where those are kept.
        """
        if self.harmonization is None or owners is None:
            return scale_rows(rows, self.scaling)
        if self.scaling.fill is not None:
            rows = filled(rows, self.scaling.fill)
        with one_blas_thread():
            harmonized = self.harmonization.applied(rows, owners, classes)
        return scale_rows(harmonized, replace(self.scaling, fill=None))

    def without_harmonizing(self, rows: FloatArray, scale: Scale) -> FloatArray:
        """The same rows had no site been adjusted, scaled by what they then say themselves: for the evaluation."""
        if self.scaling.fill is not None:
            rows = filled(rows, self.scaling.fill)
        shift, width = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
        if scale == "standard":
            shift = rows.mean(axis=0, dtype=np.float64)
            width = np.sqrt(beyond_rounding(rows.var(axis=0, dtype=np.float64), shift))
        elif scale == "minmax":
            shift, width = rows.min(axis=0).astype(np.float64), np.ptp(rows, axis=0).astype(np.float64)
        return scale_rows(rows, Scaling(shift, inverse(width), scale == "unit"))

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a model keeps of it; :meth:`of` is the way back."""
        if self.harmonization is None:
            return self.scaling.arrays
        common = self.harmonization.common
        return self.scaling.arrays | {
            "site_covariates": np.array(common.covariates.columns, np.int64),
            "site_classes": np.array([common.covariates.classes], np.int64),
            "site_centre": common.centre,
            "site_deviation": common.deviation,
            "site_adjusted": common.adjusted.astype(np.float64),
            "site_middle": common.middle,
            "site_slopes": common.slopes,
        }

    @property
    def kept_at_sites(self) -> dict[str, Float64Array]:
        """What each site keeps to itself, one below the other: (sites, features) each; empty where there is nothing."""
        if self.harmonization is None:
            return {}
        effects = self.harmonization.effects
        return {
            "shift": np.stack([effect.shift for effect in effects]),
            "factor": np.stack([effect.factor for effect in effects]),
        }

    @classmethod
    def of(
        cls,
        arrays: Mapping[str, NDArray[Any]],
        own: Mapping[str, NDArray[Any]],
        scale: Scale,
        kind: Kind | None,
    ) -> Preparation:
        """Return the preparation of a model's arrays, and those of its sites, if any; KeyError if one is not there."""
        scaling = Scaling.of(arrays, scale)
        if kind is None:
            return cls(scaling)
        centre, deviation, adjusted, middle, slopes = (
            np.asarray(arrays[f"site_{name}"], np.float64)
            for name in ("centre", "deviation", "adjusted", "middle", "slopes")
        )
        covariates = Covariates(tuple(map(int, arrays["site_covariates"])), int(arrays["site_classes"][0]))
        common = Common(
            kind=kind,
            covariates=covariates,
            centre=centre,
            deviation=deviation,
            adjusted=adjusted > 0,
            middle=middle,
            slopes=slopes,
        )
        effects = tuple(
            SiteEffect(np.asarray(shift, np.float64), np.asarray(factor, np.float64))
            for shift, factor in (zip(own["shift"], own["factor"], strict=True) if own else ())
        )
        return cls(scaling, Harmonization(common, effects))
