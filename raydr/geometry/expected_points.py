r"""Expected Euclidean distances between points whose components outside a subspace have unknown directions.

Of a point, a subspace coordinate y and the length h of the residual outside are known. The squared distance of
two points is

.. math:: d^2 = b + 2 h h' (1 - c), \qquad b = |y - y'|^2 + (h - h')^2,

where c is the cosine between their residuals. Points that agree in what is known of them also tend to agree in the
direction of their residuals, so c falls with :math:`t = b / (2 h h')`. Its expectation is modelled as

.. math:: 1 - c(t) = \sum_k a_k \frac{t}{\tau_k + t}, \qquad a_k \ge 0.

Points cannot represent this: with one common direction every cosine is 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.errors import DataError
from raydr.geometry.points import Points


@dataclass(frozen=True, eq=False)
class CosineCurve:
    """Expected cosine between residuals, by how much the rest of two points differs.

    Parameters
    ----------
    amounts : (terms,) float64
        a_k, not negative. No terms: the cosine is always 1.
    scales : (terms,) float64
        tau_k, positive, in units of t.

    Raises
    ------
    DataError
        If the arrays have different shapes, or a value is outside of its range.
    """

    amounts: Float64Array
    scales: Float64Array

    def __post_init__(self) -> None:
        if self.amounts.ndim != 1 or self.amounts.shape != self.scales.shape:
            raise DataError(
                f"Expected one amount for each scale, got shapes {self.amounts.shape} and {self.scales.shape}."
            )
        if not (np.all(self.amounts >= 0.0) and np.all(self.scales > 0.0)):
            raise DataError("Amounts must not be negative, and scales must be positive.")

    def cosine(self, t: Float64Array) -> Float64Array:
        """Return the expected cosines at ``t`` (any shape), not negative."""
        terms = t[..., None] / (self.scales + t[..., None])
        return np.asarray(1.0 - terms @ self.amounts)

    def raise_distances(self, block: Float64Array, products: Float64Array) -> None:
        """Add 2 h h' (1 - c) in place to squared distances ``block`` (any shape) at c = 1; ``products`` are 2 h h'."""
        added = np.zeros_like(block)
        for amount, scale in zip(self.amounts, self.scales, strict=True):
            whole = scale * products + block
            added += amount * np.divide(block * products, whole, out=np.zeros_like(block), where=whole > 0.0)
        block += added


@dataclass(frozen=True, eq=False)
class ExpectedPoints:
    """Points with residuals of unknown directions as a `Geometry`, by expected squared distances.

    Parameters
    ----------
    points : Points
        With all residuals in one direction, so that their squared distances are b.
    heights : (rows,) float64
        Lengths of the residuals.
    curve : CosineCurve
        Expected cosine between residuals.

    Raises
    ------
    DataError
        If there is not one height for each point, or a height is negative or not finite.

    Examples
    --------
    >>> points = Points(np.array([[0.0, 1.0], [3.0, 1.0]]))
    >>> curve = CosineCurve(np.array([1.0]), np.array([1.5]))
    >>> ExpectedPoints(points, np.ones(2), curve).squared_distance_block(0, 1)
    array([[ 0. , 10.5]])
    """

    points: Points
    heights: Float64Array
    curve: CosineCurve
    _precise: Points = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.heights.shape != (self.rows,):
            raise DataError(f"Expected one height for each of {self.rows} points, got {self.heights.shape}.")
        if not (np.isfinite(self.heights).all() and np.all(self.heights >= 0.0)):
            raise DataError("Heights are lengths of residuals, so they must be finite and not negative.")
        precise = Points(self.points.coordinates.astype(np.float64, copy=False))
        object.__setattr__(self, "_precise", precise)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.points.rows

    def squared_distance_block(self, start: int, stop: int) -> FloatArray:
        """Return expected squared distances (stop - start, rows) of rows ``start:stop`` to all; 0 to themselves."""
        block = np.maximum(self._precise.squared_distance_block(start, stop), 0.0)
        self.curve.raise_distances(block, 2.0 * np.multiply.outer(self.heights[start:stop], self.heights))
        return block

    def take(self, rows: Int64Array) -> ExpectedPoints:
        """Return the geometry of these rows, in this order."""
        return ExpectedPoints(self.points.take(rows), self.heights[rows], self.curve)
