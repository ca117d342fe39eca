"""Spaces of records: Euclidean space, or hyperbolic space of some curvature."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from raydr.arrays import Float64Array, FloatArray
from raydr.errors import FeatureError
from raydr.geometry.hyperbolic import (
    Hyperboloid,
    exponential_map,
    from_ball,
    logarithm_map,
    to_ball,
)
from raydr.geometry.hyperbolic import squared_distances as hyperbolic_squared_distances
from raydr.geometry.points import Geometry, Points, common_shift, squared_distances, variances
from raydr.methods.sense.frames import AffineFrame, Frame
from raydr.methods.sense.lorentz import LorentzFrame, lorentz_frame
from raydr.methods.sense.reduced_basis import Narrow
from raydr.wire_types import travels

_LARGEST_ROUNDING = 1e-4
"""Largest rounding of values, in units of the spread of anchors, at which distances are meaningful."""


class Space(Protocol):
    """Geometry that SENSE needs of a space."""

    def around(self, anchors: FloatArray) -> Space:
        """Return the same space with an origin near the anchors, which are rows, so that rounding loses nothing."""

    def points(self, rows: FloatArray) -> Float64Array:
        """Convert rows of a table into points of this space, (rows, dimensions)."""

    def squared_distances(self, points: Float64Array, anchors: Float64Array) -> Float64Array:
        """Return squared distances (rows, anchors) between points."""

    def narrow(self, anchors: Float64Array, room: int) -> Narrow:
        """Return coordinates for anchors, which are points, with room for further directions."""

    def narrowed(self, anchors: Float64Array, narrow: Narrow) -> Float64Array:
        """Convert anchors, which are points, into points in those coordinates."""

    def frame(self, anchors: Float64Array, noise: float = 0.0) -> Frame:
        """Return the subspace of anchors, which are points; ``noise`` is the deviation of noise added to distances."""

    def geometry(self, points: Float64Array) -> Geometry:
        """Return distances between points."""

    def chart(self, points: Float64Array) -> Float64Array:
        """Return points as coordinates (rows, features) whose principal components may start a map."""

    def rows(self, chart: Float64Array) -> Float64Array:
        """Convert these coordinates into rows of a table; `points` after `rows` undoes `chart`."""


@travels
@dataclass(frozen=True)
class EuclideanSpace:
    """Euclidean space: rows are points, relative to an origin.

    Parameters
    ----------
    origin : (features,) float64 or None
        None for 0. Distances do not depend on it, but digits do. With values about 1e8 whose differences are about 1,
        an unshifted point has eight digits left, in single precision none.
    """

    origin: Float64Array | None = field(default=None, compare=False)

    def around(self, anchors: FloatArray) -> EuclideanSpace:
        """Return the space with an origin near the anchors' mean that keeps grids of values as grids.

        Raises
        ------
        DataError
            If double precision cannot resolve the differences between anchors.
        """
        origin = common_shift(anchors)
        spread = float(np.sqrt(variances(anchors).mean()))
        rounding = float(np.spacing(np.abs(origin)).max())
        if rounding > _LARGEST_ROUNDING * spread > 0.0:
            column = int(np.abs(origin).argmax())
            raise FeatureError(
                f"{{feature}} holds values of about {origin[column]:.3g}. Double precision resolves"
                f" steps of {rounding:.2g} there, and the anchors' values differ by only {spread:.2g}."
                " Subtract a constant from that column, or scale the data by data.scale.",
                column,
            )
        return EuclideanSpace(origin)

    def points(self, rows: FloatArray) -> Float64Array:
        """Return the rows in float64, relative to the origin."""
        points = np.asarray(rows, dtype=np.float64)
        return points if self.origin is None else points - self.origin

    def squared_distances(self, points: Float64Array, anchors: Float64Array) -> Float64Array:
        """Return squared distances in float64; in float32 German credit has an F-score of 0.04 instead of 0.99."""
        return np.asarray(squared_distances(points, anchors), dtype=np.float64)

    def narrow(self, anchors: Float64Array, room: int) -> Narrow:
        """Return coordinates around the origin."""
        return Narrow.of(anchors, room)

    def narrowed(self, anchors: Float64Array, narrow: Narrow) -> Float64Array:
        """Rotate anchors about the origin."""
        return narrow.of_anchors(anchors)

    def frame(self, anchors: Float64Array, noise: float = 0.0) -> AffineFrame:
        """Return the affine hull of the anchors."""
        if not noise:
            return AffineFrame(anchors)
        typical = np.sqrt(2.0 * ((anchors - anchors.mean(axis=0)) ** 2).sum(axis=1).mean())
        return AffineFrame(anchors, 2.0 * float(typical) * noise)

    def geometry(self, points: Float64Array) -> Points:
        """Return the geometry in float32, like that of pooled rows."""
        return Points(points.astype(np.float32))

    def chart(self, points: Float64Array) -> Float64Array:
        """Return the points themselves."""
        return points

    def rows(self, chart: Float64Array) -> Float64Array:
        """Return the points relative to 0."""
        return chart if self.origin is None else chart + self.origin


@travels
@dataclass(frozen=True)
class HyperbolicSpace:
    """Points on the unit hyperboloid, time coordinate first, (rows, features + 1).

    Parameters
    ----------
    curvature : float
        kappa, positive: the space has curvature -kappa.
    rows_are : {"features", "ball"}
        Rows are mapped by the exponential map at the origin, or are already points of the Poincare ball.
    """

    curvature: float = 1.0
    rows_are: Literal["features", "ball"] = "features"

    def around(self, anchors: FloatArray) -> HyperbolicSpace:
        """Return the same space, because its origin is special."""
        return self

    def points(self, rows: FloatArray) -> Float64Array:
        """Return points on the hyperboloid; raise DataError for a row outside the ball, or too far out for float64."""
        table = np.asarray(rows, dtype=np.float64)
        if not len(table):  # a client without rows
            return np.zeros((0, table.shape[1] + 1))
        return from_ball(table) if self.rows_are == "ball" else exponential_map(table, self.curvature)

    def squared_distances(self, points: Float64Array, anchors: Float64Array) -> Float64Array:
        """Return squared geodesic distances."""
        return hyperbolic_squared_distances(points, anchors, self.curvature)

    def narrow(self, anchors: Float64Array, room: int) -> Narrow:
        """Return narrow coordinates of the space coordinates."""
        return Narrow.of(anchors[:, 1:], room)

    def narrowed(self, anchors: Float64Array, narrow: Narrow) -> Float64Array:
        """Rotate anchors about the origin, which leaves time unchanged."""
        return np.column_stack([anchors[:, 0], narrow.of_anchors(anchors[:, 1:])])

    def frame(self, anchors: Float64Array, noise: float = 0.0) -> LorentzFrame:
        """Return the smallest hyperbolic subspace through the anchors."""
        return lorentz_frame(anchors, self.curvature, noise)

    def geometry(self, points: Float64Array) -> Hyperboloid:
        """Return the geometry in float64: near the boundary float32 cannot separate neighbours."""
        return Hyperboloid(points, self.curvature)

    def chart(self, points: Float64Array) -> Float64Array:
        """Return tangent vectors at the origin, as long as the points are distant."""
        return logarithm_map(points, self.curvature)

    def rows(self, chart: Float64Array) -> Float64Array:
        """Convert tangent vectors into features, or into the points of the ball that they lead to."""
        return to_ball(exponential_map(chart, self.curvature)) if self.rows_are == "ball" else chart
