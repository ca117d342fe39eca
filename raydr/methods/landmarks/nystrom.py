"""Nystrom estimates of the distances between rows, from their distances to the landmarks (P1 (18)-(22)).

The estimate of the whole matrix is B W_k^+ B^T, never formed: it is kept as its factors and given out in blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.errors import DataError


@dataclass(frozen=True)
class NystromGeometry:
    """Estimated distances between all rows as a product of two thin factors.

    The estimate is no metric: entries can be negative, and a row's distance to itself need not be 0. Negative
    estimates keep their sign when they are squared, so that nearer stays nearer.

    Attributes
    ----------
    left, right : (rows, rank) float64
        ``B V L^+`` and ``B V``, with W = V L V^T.
    squared : bool
        Whether the product estimates squared distances or distances.
    """

    left: Float64Array
    right: Float64Array
    squared: bool

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.left.shape[0])

    def squared_distance_block(self, start: int, stop: int) -> FloatArray:
        """Estimated squared distances of rows ``start:stop`` to all rows, (stop - start, rows) float64."""
        block = self.left[start:stop] @ self.right.T
        if not self.squared:
            block *= np.abs(block)
        return np.asarray(block)

    def take(self, rows: Int64Array) -> NystromGeometry:
        """Geometry of these rows, in this order."""
        return NystromGeometry(self.left[rows], self.right[rows], self.squared)


def nystrom(
    distances_to_landmarks: Iterable[Float64Array],
    landmark_distances: Float64Array,
    *,
    squared: bool,
    ridge: float = 0.0,
    rank_tolerance: float = 1e-10,
) -> NystromGeometry:
    """Equation (22), ``D_hat = B W_k^+ B^T``.

    Parameters
    ----------
    distances_to_landmarks : iterable of (rows, landmarks) float64
        B of (21), one block for each client: distances, or squared distances.
    landmark_distances : (landmarks, landmarks) float64
        W, of the same kind.
    squared : bool
        Which kind it is.
    ridge : float
        lambda of W + lambda I.
    rank_tolerance : float
        Eigenvalues below this part of the largest, in absolute value, are left out of the pseudo-inverse.

    Raises
    ------
    DataError
        If W is zero: the landmarks are all the same point.
    """
    values, vectors = np.linalg.eigh(landmark_distances + ridge * np.eye(landmark_distances.shape[0]))
    kept = np.abs(values) > rank_tolerance * np.abs(values).max()
    if not np.any(kept):
        raise DataError(
            f"All {landmark_distances.shape[0]} landmarks are the same point, so distances to them estimate nothing:"
            " scale the data, or give a larger method.initial_spread."
        )
    right = np.concatenate([block @ vectors[:, kept] for block in distances_to_landmarks])
    left = right / values[kept]
    return NystromGeometry(left, right, squared)
