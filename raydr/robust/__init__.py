"""Robust aggregation: averages that a few lying clients can move only within bounds."""

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
