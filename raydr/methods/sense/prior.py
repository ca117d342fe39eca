"""What is likely where a record's own distances say nothing: a Gaussian that all anchors together suggest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array
from raydr.methods.sense.frames import Frame

_RIDGE = 1e-6
"""Part of the mean variance that is added to each feature's, so that constant features can be divided by."""


@dataclass(frozen=True)
class Prior:
    """Mean (features,) and covariance (features, features) of Euclidean points."""

    mean: Float64Array
    covariance: Float64Array

    @classmethod
    def of(cls, points: Float64Array) -> Prior:
        """Moments of some points (points, features)."""
        mean = points.mean(axis=0)
        covariance = (points - mean).T @ (points - mean) / len(points)
        features = len(mean)
        return cls(mean, covariance + _RIDGE * np.trace(covariance) / features * np.eye(features))

    def expected(self, frame: Frame, coordinates: Float64Array) -> Float64Array:
        r"""Expected points (rows, features), given their coordinates (rows, rank) in a frame.

        With x ~ N(mean, C) and V the frame's basis, E[x | V x] = mean + C V^T (V C V^T)^-1 (V x - V mean). Where
        clients see anchors of their own, each frame spans what others leave open.
        """
        from scipy.linalg import solve

        origin = frame.points(np.zeros((1, frame.rank)), np.zeros((1, 0)))
        basis = frame.points(np.eye(frame.rank), np.zeros((frame.rank, 0))) - origin
        across = self.covariance @ basis.T
        off = coordinates - frame.inside(self.mean[None])
        return np.asarray(self.mean + off @ solve(basis @ across, across.T, assume_a="pos"))
