"""Nystrom estimates of distances or similarities between all rows from those to the landmarks (P1 (18)-(22)).

The estimate of the whole matrix, B W_k^+ B^T, is never formed: it is stored as factors and returned in
blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from raydr.arrays import BoolArray, Float64Array, FloatArray, Int64Array
from raydr.errors import DataError, ScenarioError


@dataclass(frozen=True)
class NystromGeometry:
    """Estimated distances between all rows, as a product of two thin factors.

    The estimate is not a metric: entries can be negative, and a row's distance to itself need not be 0.
    Negative estimates keep their sign when squared, so that the order stays.

    Attributes
    ----------
    left, right : (rows, rank) float64
        ``B V L^+`` and ``B V``, with W = V L V^T.
    squared : bool
        Whether the product estimates squared distances or distances.
    inverse : (rank, landmarks) float64
        ``L^+ V^T``: its product with a row of ``right`` estimates by a product with a row of B.
    """

    left: Float64Array
    right: Float64Array
    squared: bool
    inverse: Float64Array = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.left.shape[0])

    def squared_distance_block(self, start: int, stop: int) -> FloatArray:
        """Return estimated squared distances of rows ``start:stop`` to all rows, (stop - start, rows) float64."""
        block = self.left[start:stop] @ self.right.T
        if not self.squared:
            block *= np.abs(block)
        return np.asarray(block)

    def take(self, rows: Int64Array) -> NystromGeometry:
        """Return the geometry of these rows, in this order."""
        return NystromGeometry(self.left[rows], self.right[rows], self.squared, self.inverse)

    def factor(self, right: Float64Array) -> Float64Array:
        """Return the factor (rows, landmarks) for distances to the landmarks, from rows of ``right`` or their means."""
        return right @ self.inverse


def nystrom(
    distances_to_landmarks: Iterable[Float64Array],
    landmark_distances: Float64Array,
    *,
    squared: bool,
    ridge: float = 0.0,
    rank: int | None = None,
    rank_tolerance: float = 1e-10,
) -> NystromGeometry:
    """Return the estimate of equation (22), ``D_hat = B W_k^+ B^T``.

    Parameters
    ----------
    distances_to_landmarks : iterable of (rows, landmarks) float64
        B of (21), one block per client: distances, or squared distances.
    landmark_distances : (landmarks, landmarks) float64
        W, of the same kind.
    squared : bool
        Whether both are squared distances.
    ridge : float
        lambda of W + lambda I.
    rank : int or None
        k of W_k: largest number of eigenvalues in the pseudo-inverse, the largest in absolute value first;
        None for all.
    rank_tolerance : float
        Eigenvalues below this share of the largest, in absolute value, are always left out.

    Raises
    ------
    DataError
        If W is zero: all landmarks are the same point.
    """
    values, vectors = np.linalg.eigh(landmark_distances + ridge * np.eye(landmark_distances.shape[0]))
    kept = _largest(np.abs(values), rank, rank_tolerance)
    if not np.any(kept):
        raise DataError(
            f"All {landmark_distances.shape[0]} landmarks are the same point, so distances to them"
            " cannot be used. Scale the data, or set a larger method.initial_spread."
        )
    right = np.concatenate([block @ vectors[:, kept] for block in distances_to_landmarks])
    left = right / values[kept]
    return NystromGeometry(left, right, squared, (vectors[:, kept] / values[kept]).T)


@dataclass(frozen=True)
class SimilarityFactor:
    """Estimated similarities between all rows, ``K_hat = F F^T``.

    Attributes
    ----------
    rows : (rows, rank) float64
        F. A row of zeros is similar to no landmark.
    left_out : int
        Number of eigenvalues of W that are left out.
    negative : int
        Number of those that are negative, which the eigenvalues of a kernel are by rounding alone.
    """

    rows: Float64Array
    left_out: int
    negative: int


def similarity_factor(
    similarities_to_landmarks: Iterable[Float64Array],
    landmark_similarities: Float64Array,
    *,
    ridge: float = 0.0,
    rank: int | None = None,
    rank_tolerance: float = 1e-10,
) -> SimilarityFactor:
    """Return ``F = C V L^{-1/2}`` with W_k = V L V^T, so that ``F F^T = C W_k^+ C^T`` (P1, Algorithm 3, line 3).

    Parameters
    ----------
    similarities_to_landmarks : iterable of (rows, landmarks) float64
        C, one block per client.
    landmark_similarities : (landmarks, landmarks) float64
        W; eigenvalues that are not positive are clipped, because a kernel has none.
    ridge, rank, rank_tolerance
        As for :func:`nystrom`.
    """
    values, vectors = np.linalg.eigh(landmark_similarities + ridge * np.eye(landmark_similarities.shape[0]))
    kept = _largest(values, rank, rank_tolerance)
    scaled = vectors[:, kept] / np.sqrt(values[kept])
    factor = np.concatenate([block @ scaled for block in similarities_to_landmarks])
    return SimilarityFactor(factor, int((~kept).sum()), int((values < 0).sum()))


def require_rank(rank: int | None, landmarks: int) -> None:
    """Raise ScenarioError if W, (landmarks, landmarks), cannot have this rank."""
    if rank is not None and rank > landmarks:
        raise ScenarioError(
            f"method.rank is {rank}, but a matrix of {landmarks} landmarks has rank {landmarks} at"
            f" most. Choose at most {landmarks}, or more method.landmarks."
        )


def _largest(sizes: Float64Array, rank: int | None, tolerance: float) -> BoolArray:
    """Return which eigenvalues W_k keeps, by their sizes."""
    kept = sizes > tolerance * sizes.max()
    if rank is not None and rank < sizes.size:
        kept &= sizes >= np.sort(sizes)[-rank]
    return np.asarray(kept)
