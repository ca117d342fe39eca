"""Preparation of rows before a method sees them: filled in, harmonized, scaled, transformed and given their label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.data.survey.layout import JointColumns
from raydr.statistics.dissimilarity import EUCLIDEAN, Metric, Transformation
from raydr.statistics.moments import beyond_rounding
from raydr.statistics.noisy_survey import PreparedCells
from raydr.statistics.scaling import (
    NOTHING_JOINT,
    Scale,
    Scaling,
    column_width,
    filled,
    inverse,
    scale_rows,
)
from raydr.statistics.site_effects import Common, Covariates, Harmonization, Kind, SiteEffect
from raydr.statistics.steering import Steering
from raydr.threads import one_blas_thread

COMMON = tuple(
    f"site_{name}"
    for name in ("covariates", "classes", "centre", "deviation", "adjusted", "middle", "slopes")
)
"""Names of a model's arrays for the common part of harmonized sites."""


@dataclass(frozen=True)
class Preparation:
    """The steps that clients applied to their rows, to apply them to other rows or to pooled rows.

    Attributes
    ----------
    scaling : Scaling
        Filling and scaling of the rows.
    harmonization : Harmonization or None
        Harmonization of the sites in between; None without one.
    transformation : Transformation
        Transformation of the scaled rows for the metric.
    steering : Steering or None
        The label's block that follows the features; None if labels do not steer.
    cells : PreparedCells or None
        Features made of raw cells by a noisy survey, instead of the other steps; None without a survey.
    """

    scaling: Scaling
    harmonization: Harmonization | None = None
    transformation: Transformation = EUCLIDEAN
    steering: Steering | None = None
    cells: PreparedCells | None = None

    def applied(
        self,
        rows: FloatArray,
        owners: Int64Array | None = None,
        classes: Int64Array | None = None,
        targets: Float64Array | None = None,
    ) -> FloatArray:
        """Return rows (rows, features) prepared like those of the clients.

        ``owners`` (rows,) are the clients of the rows. Without them the rows belong to no site and are not harmonized,
        like the public rows. ``classes`` (rows,) are the rows' classes, if classes are covariates, and ``targets``
        (rows,) their labels, if labels steer. Rows without targets lie at the mean of the label's block.
        """
        features = self.features(rows, owners, classes)
        return features if self.steering is None else self.steering.applied(features, targets)

    def features(
        self, rows: FloatArray, owners: Int64Array | None = None, classes: Int64Array | None = None
    ) -> FloatArray:
        """Return :meth:`applied` without the label's block."""
        if self.cells is not None:
            return self.cells.applied(rows)
        if self.harmonization is None or owners is None:
            return self.transformation.applied(scale_rows(rows, self.scaling))
        if self.scaling.fill is not None:
            rows = filled(rows, self.scaling.fill)
        with one_blas_thread():
            harmonized = self.harmonization.applied(rows, owners, classes)
        return self.transformation.applied(scale_rows(harmonized, replace(self.scaling, fill=None)))

    def without_harmonizing(
        self, rows: FloatArray, scale: Scale, joint: JointColumns = NOTHING_JOINT
    ) -> FloatArray:
        """Return the rows without site adjustment, scaled by their own statistics: for the evaluation."""
        if self.scaling.fill is not None:
            rows = filled(rows, self.scaling.fill)
        shift, width = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
        if scale == "standard":
            shift = rows.mean(axis=0, dtype=np.float64)
            width = np.sqrt(beyond_rounding(rows.var(axis=0, dtype=np.float64), shift))
        elif scale == "minmax":
            shift, width = rows.min(axis=0).astype(np.float64), np.ptp(rows, axis=0).astype(np.float64)
        elif scale == "maxabs":
            width = np.abs(rows).max(axis=0).astype(np.float64)
        scaled = scale_rows(rows, Scaling(shift, inverse(column_width(width, scale, joint))))
        least, most = scaled.min(axis=0).astype(np.float64), scaled.max(axis=0).astype(np.float64)
        return Transformation.of_columns(self.transformation.metric, least, most, joint).applied(scaled)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays that a model stores; :meth:`of` reads them back."""
        arrays = self.scaling.arrays | self.transformation.arrays
        if self.steering is not None:
            arrays |= self.steering.arrays
        if self.cells is not None:
            arrays |= self.cells.arrays
        if self.harmonization is None:
            return arrays
        common = self.harmonization.common
        return arrays | {
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
        """Values that each site keeps to itself, stacked: (sites, features) each; empty if the server has none."""
        if self.harmonization is None or not self.harmonization.effects:
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
        metric: Metric,
        kind: Kind | None,
    ) -> Preparation:
        """Return the preparation from a model's arrays and its sites' arrays; raise KeyError if one is missing."""
        scaling, transformation = Scaling.of(arrays), Transformation.of(arrays, metric)
        steering = Steering.of(arrays)
        if kind is None:
            cells = PreparedCells.of(arrays)
            return cls(scaling, transformation=transformation, steering=steering, cells=cells)
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
        return cls(scaling, Harmonization(common, effects), transformation, steering)
