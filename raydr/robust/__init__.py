"""Robust aggregation: what a few clients that lie can do to an average, bounded."""

from raydr.robust.estimators import coordinate_median, multi_krum, norm_bounded_mean, trimmed_mean
from raydr.robust.rules import (
    Aggregation,
    CoordinateMedian,
    Krum,
    Mean,
    MultiKrum,
    NormBound,
    RobustRule,
    TrimmedMean,
)

__all__ = [
    "Aggregation",
    "CoordinateMedian",
    "Krum",
    "Mean",
    "MultiKrum",
    "NormBound",
    "RobustRule",
    "TrimmedMean",
    "coordinate_median",
    "multi_krum",
    "norm_bounded_mean",
    "trimmed_mean",
]
