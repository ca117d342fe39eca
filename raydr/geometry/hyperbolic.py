r"""Hyperbolic space of curvature -kappa: the hyperboloid and the Poincaré ball (P3 A.3, (12)-(15)).

Points are stored on the unit hyperboloid, time coordinate first: :math:`x_0 = \sqrt{1 + x_1^2 + \dots +
x_d^2}`. The curvature does not move points, it only scales distances: (14) is :math:`\operatorname{arcosh}(x
\circ y) / \sqrt\kappa`. The Poincaré ball is the unit ball, :math:`u = (x_1, \dots, x_d) / (1 + x_0)`.

Distances between near points far from the origin use differences in the ball, never the arcosh of a number
just above 1: :math:`\sinh^2(\delta / 2) = |u - v|^2 / ((1 - |u|^2)(1 - |v|^2))`. Here :math:`1 - |u|^2 = 2 /
(1 + x_0)` comes from the time coordinate. Only the rounding of the coordinates is left: a point at radius R
is known to about 1e-16 e^R, so `FARTHEST_RADIUS` bounds R.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt, tanh

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.errors import DataError
from raydr.geometry.points import float_table

FARTHEST_RADIUS = 20.0
"""Largest distance from the origin at curvature -1. In the ball, |u| = 1 - 4e-9. At this radius, double precision
resolves a point to 1e-7. At 30 it would be 1e-3, and neighbours would be noise."""


@dataclass(frozen=True, eq=False)
class Hyperboloid:
    """Points of hyperbolic space as a `Geometry`.

    Parameters
    ----------
    points
        (rows, d + 1) on the unit hyperboloid, time coordinate first, with d at least 1.
    curvature
        kappa > 0. The space has curvature -kappa.

    Raises
    ------
    DataError
        If a row is not on the hyperboloid or is beyond `FARTHEST_RADIUS`, or the curvature is not positive.

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
        """Return squared distances (stop - start, rows) of rows ``start:stop`` to all, exactly 0 to themselves."""
        return squared_arcs(self.points[start:stop], self.points) / self.curvature

    def take(self, rows: Int64Array) -> Hyperboloid:
        """Return the points of these rows, in this order."""
        return Hyperboloid(self.points[rows], self.curvature)


def exponential_map(features: FloatArray, curvature: float = 1.0) -> Float64Array:
    r"""Map Euclidean features to the hyperboloid, by the exponential map at the origin.

    A row x goes to the point in the direction of x whose hyperbolic distance from the origin is ``|x|``, at
    every curvature: :math:`(\cosh r, \sinh(r)\, x / |x|)` with :math:`r = \sqrt\kappa\, |x|`.

    Parameters
    ----------
    features
        (rows, d).
    curvature
        kappa > 0. A larger value spreads the same features more: distances across the origin are nearly the
        sum of the radii, and distances along a sphere grow like e^r.

    Returns
    -------
    Float64Array
        (rows, d + 1).

    Raises
    ------
    DataError
        If a feature is not finite, or a row would be beyond `FARTHEST_RADIUS` / sqrt(kappa).
    """
    features = _finite_table(features, "the features")
    checked_curvature(curvature)
    scaled = sqrt(curvature) * features
    # The largest entry is factored out first, so that no square overflows before the check.
    largest = np.abs(scaled).max(axis=1)
    radii = largest * np.linalg.norm(scaled / np.where(largest > 0, largest, 1.0)[:, None], axis=1)
    _refuse_far_rows(
        radii,
        "the exponential map puts",
        f"The radius is sqrt(curvature) times the row's norm. Scale the features (data.scale), or "
        f"lower method.curvature (now {curvature:g})",
    )
    return on_hyperboloid(scaled * _sinh_over(radii)[:, None])


def logarithm_map(points: Float64Array, curvature: float = 1.0) -> Float64Array:
    """Map points (rows, d + 1) of the hyperboloid to features (rows, d): the inverse of `exponential_map`."""
    lengths = np.linalg.norm(points[..., 1:], axis=-1, keepdims=True)
    ratio = np.divide(np.arcsinh(lengths), lengths, out=np.ones_like(lengths), where=lengths > 0)
    return np.asarray(points[..., 1:] * ratio / sqrt(curvature))


def from_ball(ball: FloatArray) -> Float64Array:
    """Map points (rows, d) of the Poincaré ball to the unit hyperboloid, (rows, d + 1).

    Raises
    ------
    DataError
        If a row is not finite, not inside the unit ball, or beyond `FARTHEST_RADIUS`.

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
            f" ({np.count_nonzero(norms >= 1.0)} such rows). If these are Euclidean features, map them with the "
            "exponential map (method.points: features). Otherwise, scale them into the ball."
        )
    radii = 2.0 * np.arctanh(norms)
    _refuse_far_rows(
        radii,
        "its place in the ball puts",
        f"In the ball that is a norm of at most 1 - {1.0 - tanh(FARTHEST_RADIUS / 2.0):.2g}. Scale the data down "
        "(data.scale)",
    )
    return on_hyperboloid(2.0 * ball / ((1.0 - norms) * (1.0 + norms))[:, None])


def to_ball(points: Float64Array) -> Float64Array:
    """Return Poincaré coordinates (..., d) of points on the unit hyperboloid, (..., d + 1)."""
    return np.asarray(points[..., 1:] / (1.0 + points[..., :1]))


def squared_distances(a: Float64Array, b: Float64Array, curvature: float = 1.0) -> Float64Array:
    """Return squared hyperbolic distances (14) between the rows of two tables of points on the unit hyperboloid.

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
        As in `Hyperboloid`, or if the tables have different dimensions.
    """
    a, b = checked_points(a, "the first table"), checked_points(b, "the second table")
    checked_curvature(curvature)
    if a.shape[1] != b.shape[1]:
        raise DataError(
            f"Distances need points of one space, but the first table has dimension {a.shape[1] - 1} and the second "
            f"{b.shape[1] - 1}. Give both tables the same columns."
        )
    return squared_arcs(a, b) / curvature


def squared_arcs(a: Float64Array, b: Float64Array) -> Float64Array:
    """Return squared distances (rows_a, rows_b) at curvature -1 of points that are known to be on the hyperboloid."""
    from scipy.spatial.distance import cdist

    # By differences. A matrix product errs by 1e-16, and near points far from the origin differ by less.
    block: Float64Array = cdist(to_ball(a), to_ball(b), "sqeuclidean")
    block *= np.multiply.outer(0.5 * (1.0 + a[:, 0]), 0.5 * (1.0 + b[:, 0]))
    np.arcsinh(np.sqrt(block, out=block), out=block)
    block *= block
    block *= 4.0
    return block


def on_hyperboloid(space: Float64Array) -> Float64Array:
    """Put the time coordinate of (13) before space coordinates (..., d)."""
    time = np.sqrt(1.0 + (space * space).sum(axis=-1, keepdims=True))
    return np.concatenate([time, space], axis=-1)


def seen_from(origins: Float64Array, points: Float64Array) -> tuple[Float64Array, Float64Array]:
    r"""Return where points lie after the boost that brings each origin to :math:`(1, 0, \dots, 0)`.

    It is computed in the ball. There the boost is the Möbius sum :math:`(-u) \oplus v`, whose terms are
    differences of near points. They do not cancel as in a matrix product of the boost.

    Parameters
    ----------
    origins, points
        (..., d + 1) on the unit hyperboloid, with shapes that broadcast.

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
    """Apply the exponential map at points: each moves by ``steps``, in the coordinates of `seen_from` it.

    Parameters
    ----------
    points
        (..., d + 1) on the unit hyperboloid.
    steps
        (..., d), the direction and distance at curvature -1.
    """
    lengths = np.linalg.norm(steps, axis=-1, keepdims=True)
    steps = steps * _sinh_over(lengths)
    time, space = points[..., :1], points[..., 1:]
    along = (space * steps).sum(axis=-1, keepdims=True) / (1.0 + time)
    return on_hyperboloid(space * (np.cosh(lengths) + along) + steps)


def contained(points: Float64Array, radius: float) -> Float64Array:
    """Pull points beyond ``radius`` from the origin (at curvature -1) straight back to it."""
    lengths = np.linalg.norm(points[..., 1:], axis=-1, keepdims=True)
    return on_hyperboloid(points[..., 1:] * np.minimum(1.0, np.sinh(radius) / np.maximum(lengths, 1.0)))


def checked_points(points: FloatArray, name: str) -> Float64Array:
    """Return points as float64 (rows, d + 1), projected to the unit hyperboloid.

    Raise `DataError` if they are far from it.
    """
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
            f"row {row} of {name} has {table[row, 0]:.6g} instead of {times[row]:.6g}. Convert Poincaré points with "
            "from_ball and Euclidean features with exponential_map."
        )
    _refuse_far_rows(np.arccosh(times), f"its place in {name} puts", "Scale the data down (data.scale)")
    table[:, 0] = times
    return table


def checked_curvature(curvature: float) -> float:
    """Return the curvature. Raise `DataError` unless it is finite and positive."""
    if not (np.isfinite(curvature) and curvature > 0):
        raise DataError(
            f"The curvature of hyperbolic space is -kappa with kappa > 0, but method.curvature is {curvature!r}. "
            "Give a positive number such as 1."
        )
    return float(curvature)


def _sinh_over(lengths: Float64Array) -> Float64Array:
    """Return sinh(r) / r, which is 1 at 0."""
    return np.divide(np.sinh(lengths), lengths, out=np.ones_like(lengths), where=lengths > 0)


def _refuse_far_rows(radii: Float64Array, what: str, remedy: str) -> None:
    # A millionth above passes, to allow for rounding of rows that passed a check before conversion to the
    # ball and back.
    if np.any(radii > FARTHEST_RADIUS * (1.0 + 1e-6)):
        row = int(np.argmax(radii))
        raise DataError(
            f"Double precision resolves points of hyperbolic space up to radius {FARTHEST_RADIUS:g} (curvature "
            f"-1), but {what} row {row} at radius {radii[row]:.4g}, on or next to the boundary of the ball. {remedy}."
        )


def _finite_table(values: FloatArray, name: str) -> Float64Array:
    """Return a finite float64 copy of the values."""
    table = float_table(np.array(values, dtype=np.float64), name, "Hyperbolic points need")
    return np.asarray(table, dtype=np.float64)
