r"""Expected hyperbolic distances between rows whose residuals have unknown directions.

Anchors that span less than the space determine only the length h of each row's residual n
(`raydr.methods.sense.lorentz`). Between two rows, cosh of the distance is linear in n . n', so the unknown is
one cosine per pair, and its expectation replaces it. Points cannot represent this: a shared direction means
cosine 1, random directions a random cosine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.errors import DataError
from raydr.geometry.hyperbolic import checked_curvature, checked_points, squared_arcs, to_ball

ALIGNMENT = 0.5
"""Expected cosine in the pointwise regime. 0 would be evenly scattered rows, 1 rows on one side: the data's
centre is off the anchors' span, and rows scatter around it. From 0.3 to 0.7 the f_score stays within 0.03 of
the best."""
NEAR = 0.6
"""Threshold for a cosine of 1: the median distance of a row to its 10th neighbour at cosine 1, over the
median height, at curvature -1. Rows below it agree in everything known, the residual's length included. They are nearly
the same rows, so they also agree in the residual's direction. Airports have 0.07 to 0.56, disease 0.69 to 1.73."""
NEAR_ROWS = 1_000
"""Rows, evenly spread, that decide this."""


@dataclass(frozen=True, eq=False)
class ExpectedHyperboloid:
    """Points of `LorentzFrame.points` as a `Geometry`, with expected distances if residuals are not aligned.

    The cosh of the distance between two points is raised by ``(1 - alignment) h h'``. Without heights it
    equals `raydr.geometry.hyperbolic.Hyperboloid`.

    Parameters
    ----------
    points
        (rows, d + 1), from `LorentzFrame.points`, all residuals in one direction.
    heights
        (rows,), the residuals' lengths, from `LorentzFrame.located`.
    curvature
        kappa of -kappa.
    alignment
        Expected cosine between residuals, 0 to 1, relative to that of the points. None uses `ALIGNMENT`, or 1
        if rows are as near as `NEAR`.

    Raises
    ------
    DataError
        If points are off the hyperboloid, or the arrays do not fit each other.
    """

    points: Float64Array
    heights: Float64Array
    curvature: float = 1.0
    alignment: float | None = None

    def __post_init__(self) -> None:
        checked_curvature(self.curvature)
        object.__setattr__(self, "points", checked_points(self.points, "the points"))
        heights = np.asarray(self.heights, dtype=np.float64)
        object.__setattr__(self, "heights", heights)
        if heights.shape != (self.rows,):
            raise DataError(f"Expected one height for each of {self.rows} points, got {heights.shape}.")
        if not np.isfinite(heights).all() or np.any(heights < 0):
            raise DataError(
                "Heights are lengths of residuals, so they must be finite and not negative: give those"
                " of LorentzFrame.located."
            )
        if self.alignment is None:
            alike = _nearly_the_same(self.points, heights)
            object.__setattr__(self, "alignment", 1.0 if alike else ALIGNMENT)
        if not 0.0 <= self._alignment <= 1.0:
            raise DataError(
                f"The expected cosine between residuals must be from 0 to 1, got {self.alignment!r}."
            )

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.points.shape[0])

    @property
    def ball(self) -> Float64Array:
        """Poincaré coordinates of the points, (rows, d)."""
        return to_ball(self.points)

    def squared_distance_block(self, start: int, stop: int) -> FloatArray:
        """Return squared distances, (stop - start, rows), of rows ``start:stop`` to all rows; own row exactly 0."""
        block = squared_arcs(self.points[start:stop], self.points)
        spread = np.multiply.outer(self.heights[start:stop], self.heights)
        spread *= 0.5 * (1.0 - self._alignment)
        spread[np.arange(stop - start), np.arange(start, stop)] = 0.0
        # sinh^2(d / 2) is (cosh d - 1) / 2. If nothing is added, d stays unchanged to the last bit.
        added = spread > 0.0
        block[added] = (
            4.0 * np.arcsinh(np.sqrt(np.sinh(0.5 * np.sqrt(block[added])) ** 2 + spread[added])) ** 2
        )
        return np.asarray(block / self.curvature)

    def take(self, rows: Int64Array) -> ExpectedHyperboloid:
        """Return the geometry of these rows, in this order."""
        return ExpectedHyperboloid(self.points[rows], self.heights[rows], self.curvature, self.alignment)

    @property
    def _alignment(self) -> float:
        return ALIGNMENT if self.alignment is None else self.alignment


def _nearly_the_same(points: Float64Array, heights: Float64Array) -> bool:
    """Return whether rows have neighbours, at cosine 1, much nearer than their residuals are long; see `NEAR`."""
    if not heights.any():
        return False
    sample = np.linspace(0, len(points) - 1, min(len(points), NEAR_ROWS)).round().astype(np.int64)
    k = min(10, len(sample) - 1)
    if k < 1:
        return False
    distances = np.sqrt(squared_arcs(points[sample], points[sample]))
    neighbor = np.partition(distances, k, axis=1)[:, k]  # its own distance, 0, comes first
    return bool(np.median(neighbor) < NEAR * np.median(np.arcsinh(heights[sample])))
