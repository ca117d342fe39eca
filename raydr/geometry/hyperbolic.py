r"""Hyperbolic space of curvature -kappa: the hyperboloid and the Poincaré ball (P3 A.3, (12)-(15)).

Points are kept on the unit hyperboloid, time coordinate first: :math:`x_0 = \sqrt{1 + x_1^2 + \dots + x_d^2}`.
The curvature does not move points, it only scales distances: (14) is :math:`\operatorname{arcosh}(x \circ y) /
\sqrt\kappa`. The Poincaré ball is the unit ball, :math:`u = (x_1, \dots, x_d) / (1 + x_0)`.

Near points far out are told apart by differences in the ball, never by the arcosh of a number just above 1:
:math:`\sinh^2(\delta / 2) = |u - v|^2 / ((1 - |u|^2)(1 - |v|^2))`, where :math:`1 - |u|^2 = 2 / (1 + x_0)` is read
from the time coordinate. What is left is the rounding of the coordinates themselves: a point at radius R is known
to about 1e-16 e^R, so `FARTHEST_RADIUS` bounds R.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt, tanh

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.errors import DataError
from raydr.geometry.points import float_table

FARTHEST_RADIUS = 20.0
"""Largest distance from the origin at curvature -1; in the ball, |u| = 1 - 4e-9. There double precision still knows
a point to 1e-7; at 30 it would be 1e-3, and neighbours would be noise."""


@dataclass(frozen=True, eq=False)
class Hyperboloid:
    """Points of hyperbolic space as a `Geometry`.

    Parameters
    ----------
    points
        (rows, d + 1) on the unit hyperboloid, time coordinate first, d at least 1.
    curvature
        kappa > 0, the space has curvature -kappa.

    Raises
    ------
    DataError
        If a row is not on the hyperboloid, or farther out than `FARTHEST_RADIUS`, or the curvature is not positive.

    Examples
    --------
    >>> line = Hyperboloid(exponential_map(np.array([[0.0], [3.0]]), curvature=2.0), curvature=2.0)
    >>> line.squared_distance_block(0, 1).round(12)
    array([[0., 9.]])
    """

    points: Float64Array
    curvature: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", checked_points(self.points, "the points"))
        checked_curvature(self.curvature)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.points.shape[0])

    @property
    def ball(self) -> Float64Array:
        """Poincaré coordinates, (rows, d)."""
        return to_ball(self.points)

    def squared_distance_block(self, start: int, stop: int) -> FloatArray:
        """Squared distances, shape (stop - start, rows), of rows ``start:stop`` to all rows; own row exactly 0."""
        return squared_arcs(self.points[start:stop], self.points) / self.curvature

    def take(self, rows: Int64Array) -> Hyperboloid:
        """Return the points of these rows, in this order."""
        return Hyperboloid(self.points[rows], self.curvature)


def exponential_map(features: FloatArray, curvature: float = 1.0) -> Float64Array:
    r"""Euclidean features to the hyperboloid, by the exponential map at the origin.

    A row x goes to the point in the direction of x whose hyperbolic distance from the origin is ``|x|``, at every
    curvature: :math:`(\cosh r, \sinh(r)\, x / |x|)` with :math:`r = \sqrt\kappa\, |x|`.

    Parameters
    ----------
    features
        (rows, d).
    curvature
        kappa > 0. The larger, the more the same features spread: distances across the origin are nearly the sum of
        the radii, distances along a sphere grow like e^r.

    Returns
    -------
    Float64Array
        (rows, d + 1).

    Raises
    ------
    DataError
        If a feature is not finite, or a row would be farther out than `FARTHEST_RADIUS` / sqrt(kappa).
    """
    features = _finite_table(features, "the features")
    checked_curvature(curvature)
    scaled = sqrt(curvature) * features
    # The largest entry comes out first, so that no square overflows before the check.
    largest = np.abs(scaled).max(axis=1)
    radii = largest * np.linalg.norm(scaled / np.where(largest > 0, largest, 1.0)[:, None], axis=1)
    _refuse_far_rows(
        radii,
        "the exponential map puts",
        f"The radius is sqrt(curvature) times the row's norm: scale the features (data.scale), or "
        f"lower method.curvature (now {curvature:g})",
    )
    return on_hyperboloid(scaled * _sinh_over(radii)[:, None])


def logarithm_map(points: Float64Array, curvature: float = 1.0) -> Float64Array:
    """Inverse of `exponential_map` with scale 1: (rows, d + 1) on the hyperboloid to (rows, d) features."""
    lengths = np.linalg.norm(points[..., 1:], axis=-1, keepdims=True)
    ratio = np.divide(np.arcsinh(lengths), lengths, out=np.ones_like(lengths), where=lengths > 0)
    return np.asarray(points[..., 1:] * ratio / sqrt(curvature))


def from_ball(ball: FloatArray) -> Float64Array:
    """Points of the Poincaré ball, (rows, d), to the unit hyperboloid, (rows, d + 1).

    Raises
    ------
    DataError
        If a row is not finite, not inside the unit ball, or farther out than `FARTHEST_RADIUS`.

    Examples
    --------
    >>> from_ball(np.array([[0.6, 0.0]]))
    array([[2.125, 1.875, 0.   ]])
    """
    ball = _finite_table(ball, "the ball's points")
    norms = np.linalg.norm(ball, axis=1)
    if np.any(norms >= 1.0):
        row = int(np.argmax(norms >= 1.0))
        raise DataError(
            f"Points of the Poincaré ball have norms below 1, but row {row} has norm {norms[row]:.10g}"
            f" ({np.count_nonzero(norms >= 1.0)} such rows): if these are Euclidean features, map them by the "
            "exponential map (method.points: features), else scale them into the ball."
        )
    radii = 2.0 * np.arctanh(norms)
    _refuse_far_rows(
        radii,
        "its place in the ball puts",
        f"In the ball that is a norm of at most 1 - {1.0 - tanh(FARTHEST_RADIUS / 2.0):.2g}: pull such rows inwards "
        "(data.scale)",
    )
    return on_hyperboloid(2.0 * ball / ((1.0 - norms) * (1.0 + norms))[:, None])


def to_ball(points: Float64Array) -> Float64Array:
    """Poincaré coordinates, (..., d), of points on the unit hyperboloid, (..., d + 1)."""
    return np.asarray(points[..., 1:] / (1.0 + points[..., :1]))


def squared_distances(a: Float64Array, b: Float64Array, curvature: float = 1.0) -> Float64Array:
    """Squared hyperbolic distances, (14), between the rows of two tables of points on the unit hyperboloid.

    Parameters
    ----------
    a, b
        (rows_a, d + 1) and (rows_b, d + 1).
    curvature
        kappa > 0.

    Returns
    -------
    Float64Array
        (rows_a, rows_b), exactly 0 between equal points.

    Raises
    ------
    DataError
        As `Hyperboloid`, or if the tables differ in dimension.
    """
    a, b = checked_points(a, "the first table"), checked_points(b, "the second table")
    checked_curvature(curvature)
    if a.shape[1] != b.shape[1]:
        raise DataError(
            f"Distances need points of one space, but the first table has dimension {a.shape[1] - 1} and the second "
            f"{b.shape[1] - 1}; give both tables the same columns."
        )
    return squared_arcs(a, b) / curvature


def squared_arcs(a: Float64Array, b: Float64Array) -> Float64Array:
    """Squared distances at curvature -1, (rows_a, rows_b), of points known to be on the hyperboloid."""
    from scipy.spatial.distance import cdist

    # By differences: a matrix product would be wrong by 1e-16 where near points far out differ by less.
    block: Float64Array = cdist(to_ball(a), to_ball(b), "sqeuclidean")
    block *= np.multiply.outer(0.5 * (1.0 + a[:, 0]), 0.5 * (1.0 + b[:, 0]))
    np.arcsinh(np.sqrt(block, out=block), out=block)
    block *= block
    block *= 4.0
    return block


def on_hyperboloid(space: Float64Array) -> Float64Array:
    """Space coordinates, (..., d), with the time coordinate that (13) gives them put first."""
    time = np.sqrt(1.0 + (space * space).sum(axis=-1, keepdims=True))
    return np.concatenate([time, space], axis=-1)


def seen_from(origins: Float64Array, points: Float64Array) -> tuple[Float64Array, Float64Array]:
    r"""Where points lie as seen from others: after the boost that brings each origin to :math:`(1, 0, \dots, 0)`.

    Computed in the ball, where the boost is the Möbius sum :math:`(-u) \oplus v`, whose terms are differences of
    near points and do not cancel as a matrix product of the boost would.

    Parameters
    ----------
    origins, points
        (..., d + 1) on the unit hyperboloid, of shapes that broadcast.

    Returns
    -------
    directions : Float64Array
        (..., d), the space coordinates after the boost: sinh of the distance times the unit vector towards the point.
    distances : Float64Array
        (...), distances at curvature -1.
    """
    u, v = to_ball(origins), to_ball(points)
    inner = 2.0 / (1.0 + origins[..., 0])
    depths = inner * (2.0 / (1.0 + points[..., 0]))
    apart = v - u
    squared = np.einsum("...i,...i->...", apart, apart)
    apart *= (2.0 * inner / depths)[..., None]
    apart -= (2.0 * squared / depths)[..., None] * u
    return apart, 2.0 * np.arcsinh(np.sqrt(squared / depths))


def moved(points: Float64Array, steps: Float64Array) -> Float64Array:
    """Exponential map at points: each walks ``steps``, in the coordinates that `seen_from` it gives.

    Parameters
    ----------
    points
        (..., d + 1) on the unit hyperboloid.
    steps
        (..., d): direction and distance at curvature -1.
    """
    lengths = np.linalg.norm(steps, axis=-1, keepdims=True)
    steps = steps * _sinh_over(lengths)
    time, space = points[..., :1], points[..., 1:]
    along = (space * steps).sum(axis=-1, keepdims=True) / (1.0 + time)
    return on_hyperboloid(space * (np.cosh(lengths) + along) + steps)


def contained(points: Float64Array, radius: float) -> Float64Array:
    """Points with those farther than ``radius`` from the origin (at curvature -1) pulled straight back to it."""
    lengths = np.linalg.norm(points[..., 1:], axis=-1, keepdims=True)
    return on_hyperboloid(points[..., 1:] * np.minimum(1.0, np.sinh(radius) / np.maximum(lengths, 1.0)))


def checked_points(points: FloatArray, name: str) -> Float64Array:
    """Return points as float64 (rows, d + 1) exactly on the unit hyperboloid; `DataError` if they are not near it."""
    table = _finite_table(points, name)
    if table.shape[1] < 2:
        raise DataError(
            f"Points on a hyperboloid have a time coordinate and at least one more, but {name} has {table.shape[1]} "
            "column."
        )
    with np.errstate(over="ignore"):
        times = np.sqrt(1.0 + (table[:, 1:] ** 2).sum(axis=1))
    wrong = ~(np.abs(table[:, 0] - times) <= 1e-6 * times)
    if np.any(wrong):
        row = int(np.argmax(wrong))
        raise DataError(
            f"Points on the unit hyperboloid have a first coordinate of sqrt(1 + the sum of the other squares), but "
            f"row {row} of {name} has {table[row, 0]:.6g} instead of {times[row]:.6g}; give Poincaré points through "
            "from_ball and Euclidean features through exponential_map."
        )
    _refuse_far_rows(np.arccosh(times), f"its place in {name} puts", "Scale the data down (data.scale)")
    table[:, 0] = times
    return table


def checked_curvature(curvature: float) -> float:
    """Return the curvature; `DataError` unless it is finite and positive."""
    if not (np.isfinite(curvature) and curvature > 0):
        raise DataError(
            f"The curvature of hyperbolic space is -kappa with kappa > 0, but method.curvature is {curvature!r}; "
            "give a positive number such as 1."
        )
    return float(curvature)


def _sinh_over(lengths: Float64Array) -> Float64Array:
    """Sinh(r) / r, 1 at 0."""
    return np.divide(np.sinh(lengths), lengths, out=np.ones_like(lengths), where=lengths > 0)


def _refuse_far_rows(radii: Float64Array, what: str, remedy: str) -> None:
    # A millionth above passes: the rounding of what an earlier check let through, on its way into and out of the ball.
    if np.any(radii > FARTHEST_RADIUS * (1.0 + 1e-6)):
        row = int(np.argmax(radii))
        raise DataError(
            f"Double precision tells points of hyperbolic space apart up to radius {FARTHEST_RADIUS:g} (curvature "
            f"-1), but {what} row {row} at radius {radii[row]:.4g}, on or next to the boundary of the ball. {remedy}."
        )


def _finite_table(values: FloatArray, name: str) -> Float64Array:
    """Copy of values, float64."""
    table = float_table(np.array(values, dtype=np.float64), name, "Hyperbolic points need")
    return np.asarray(table, dtype=np.float64)
