"""Where records live: Euclidean space, or hyperbolic space of some curvature."""

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
from raydr.methods.sense.lorentz_geometry import ExpectedHyperboloid
from raydr.methods.sense.reduced_basis import Narrow

_LARGEST_ROUNDING = 1e-4
"""Of values, in units of the spread of anchors, beyond which distances would be those of rounding."""


class Space(Protocol):
    """What SENSE asks of a geometry."""

    def around(self, anchors: FloatArray) -> Space:
        """The same space, with an origin that all can work from without loss: near anchors, which are rows."""

    def points(self, rows: FloatArray) -> Float64Array:
        """Points of this space, (rows, dimensions), that rows of a table stand for."""

    def squared_distances(self, points: Float64Array, anchors: Float64Array) -> Float64Array:
        """Squared distances (rows, anchors) between points."""

    def narrow(self, anchors: Float64Array, room: int) -> Narrow:
        """Coordinates for anchors, which are points, with room beside them."""

    def narrowed(self, anchors: Float64Array, narrow: Narrow) -> Float64Array:
        """Anchors, which are points, as points in those coordinates."""

    def frame(self, anchors: Float64Array, noise: float = 0.0) -> Frame:
        """Subspace that anchors, which are points, span; ``noise`` is the deviation of noise added to distances."""

    def geometry(self, points: Float64Array, heights: Float64Array | None = None) -> Geometry:
        """Distances between points.

        ``heights`` (rows,) are the lengths of residuals that lie in a common direction only because theirs is not
        known.
        """

    def chart(self, points: Float64Array) -> Float64Array:
        """Points as coordinates (rows, features) whose principal components may start a map."""

    def rows(self, chart: Float64Array) -> Float64Array:
        """Rows of a table that stand for the points with these coordinates; `points` after `rows` undoes `chart`."""


@dataclass(frozen=True)
class EuclideanSpace:
    """Rows are points, as seen from an origin.

    Parameters
    ----------
    origin : (features,) float64 or None
        None for 0. Distances do not depend on it, digits do: of values about 1e8 whose differences are about 1, a point
        as it is has eight digits left, in single precision none.
    """

    origin: Float64Array | None = field(default=None, compare=False)

    def around(self, anchors: FloatArray) -> EuclideanSpace:
        """Seen from near the anchors' mean, from where grids of values are still grids.

        Raises
        ------
        DataError
            If double precision has no digits left for what tells the anchors apart.
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
        """The rows in double precision, from the origin."""
        points = np.asarray(rows, dtype=np.float64)
        return points if self.origin is None else points - self.origin

    def squared_distances(self, points: Float64Array, anchors: Float64Array) -> Float64Array:
        """In double precision: in single, German credit loses its geometry (F-score 0.04 instead of 0.99)."""
        return np.asarray(squared_distances(points, anchors), dtype=np.float64)

    def narrow(self, anchors: Float64Array, room: int) -> Narrow:
        """Around the origin."""
        return Narrow.of(anchors, room)

    def narrowed(self, anchors: Float64Array, narrow: Narrow) -> Float64Array:
        """Turned about the origin."""
        return narrow.of_anchors(anchors)

    def frame(self, anchors: Float64Array, noise: float = 0.0) -> AffineFrame:
        """Affine hull of the anchors."""
        if not noise:
            return AffineFrame(anchors)
        typical = np.sqrt(2.0 * ((anchors - anchors.mean(axis=0)) ** 2).sum(axis=1).mean())
        return AffineFrame(anchors, 2.0 * float(typical) * noise)

    def geometry(self, points: Float64Array, heights: Float64Array | None = None) -> Points:
        """In the single precision that pooled rows have too.

        Heights stay in their common direction. To expect a cosine between them instead helps some data and harms
        others: F-score with cosine 1 and 0.5, German credit 0.994 and 0.955, COIL-20 0.976 and 0.986.
        """
        return Points(points.astype(np.float32))

    def chart(self, points: Float64Array) -> Float64Array:
        """The points themselves."""
        return points

    def rows(self, chart: Float64Array) -> Float64Array:
        """From 0 again."""
        return chart if self.origin is None else chart + self.origin


@dataclass(frozen=True)
class HyperbolicSpace:
    """Points on the unit hyperboloid, time coordinate first, (rows, features + 1).

    Parameters
    ----------
    curvature : float
        kappa, positive: the space has curvature -kappa.
    rows_are : {"features", "ball"}
        Rows are mapped by the exponential map at the origin, or are points of the Poincare ball already.
    """

    curvature: float = 1.0
    rows_are: Literal["features", "ball"] = "features"

    def around(self, anchors: FloatArray) -> HyperbolicSpace:
        """The same: its origin is a point like no other."""
        return self

    def points(self, rows: FloatArray) -> Float64Array:
        """Points on the hyperboloid; DataError where a row is not in the ball, or too far out for double precision."""
        table = np.asarray(rows, dtype=np.float64)
        if not len(table):  # a client without rows
            return np.zeros((0, table.shape[1] + 1))
        return from_ball(table) if self.rows_are == "ball" else exponential_map(table, self.curvature)

    def squared_distances(self, points: Float64Array, anchors: Float64Array) -> Float64Array:
        """Squared geodesic distances."""
        return hyperbolic_squared_distances(points, anchors, self.curvature)

    def narrow(self, anchors: Float64Array, room: int) -> Narrow:
        """Of the space coordinates."""
        return Narrow.of(anchors[:, 1:], room)

    def narrowed(self, anchors: Float64Array, narrow: Narrow) -> Float64Array:
        """Turned about the origin, which leaves time as it is."""
        return np.column_stack([anchors[:, 0], narrow.of_anchors(anchors[:, 1:])])

    def frame(self, anchors: Float64Array, noise: float = 0.0) -> LorentzFrame:
        """Smallest hyperbolic subspace through the anchors."""
        return lorentz_frame(anchors, self.curvature, noise)

    def geometry(
        self, points: Float64Array, heights: Float64Array | None = None
    ) -> Hyperboloid | ExpectedHyperboloid:
        """In double precision: near the boundary single precision tells no neighbours apart."""
        if heights is not None:
            return ExpectedHyperboloid(points, heights, self.curvature)
        return Hyperboloid(points, self.curvature)

    def chart(self, points: Float64Array) -> Float64Array:
        """Tangent vectors at the origin, as long as the points are far."""
        return logarithm_map(points, self.curvature)

    def rows(self, chart: Float64Array) -> Float64Array:
        """Tangent vectors as features, or as the points of the ball that they lead to."""
        return to_ball(exponential_map(chart, self.curvature)) if self.rows_are == "ball" else chart
