"""Nystrom estimates of what stands between all rows, from what stands between them and the landmarks (P1 (18)-(22)).

The estimate of the whole matrix is B W_k^+ B^T, never formed: it is kept as its factors and given out in blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from raydr.arrays import BoolArray, Float64Array, FloatArray, Int64Array
from raydr.errors import DataError, ScenarioError


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
    inverse : (rank, landmarks) float64
        ``L^+ V^T``: what it makes of a row of ``right`` estimates by a product with a row of B.
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
        """Estimated squared distances of rows ``start:stop`` to all rows, (stop - start, rows) float64."""
        block = self.left[start:stop] @ self.right.T
        if not self.squared:
            block *= np.abs(block)
        return np.asarray(block)

    def take(self, rows: Int64Array) -> NystromGeometry:
        """Geometry of these rows, in this order."""
        return NystromGeometry(self.left[rows], self.right[rows], self.squared, self.inverse)

    def factor(self, right: Float64Array) -> Float64Array:
        """(rows, landmarks), of rows of ``right`` or their means: what to multiply distances to the landmarks by."""
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
    rank : int or None
        k of W_k: how many eigenvalues the pseudo-inverse keeps at most, the largest in absolute value; None for all.
    rank_tolerance : float
        Eigenvalues below this part of the largest, in absolute value, are left out of it in any case.

    Raises
    ------
    DataError
        If W is zero: the landmarks are all the same point.
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
        F. A row of zeros has no similarity to any landmark.
    left_out : int
        Eigenvalues of W that are not in it.
    negative : int
        How many of those are negative, which the eigenvalues of a kernel can be by rounding alone.
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
        C, one block for each client.
    landmark_similarities : (landmarks, landmarks) float64
        W; eigenvalues that are not positive are clipped, since no kernel has them.
    ridge, rank, rank_tolerance
        As for :func:`nystrom`.
    """
    values, vectors = np.linalg.eigh(landmark_similarities + ridge * np.eye(landmark_similarities.shape[0]))
    kept = _largest(values, rank, rank_tolerance)
    scaled = vectors[:, kept] / np.sqrt(values[kept])
    factor = np.concatenate([block @ scaled for block in similarities_to_landmarks])
    return SimilarityFactor(factor, int((~kept).sum()), int((values < 0).sum()))


def require_rank(rank: int | None, landmarks: int) -> None:
    """Raise ScenarioError where W, (landmarks, landmarks), has no such rank."""
    if rank is not None and rank > landmarks:
        raise ScenarioError(
            f"method.rank is {rank}, but a matrix of {landmarks} landmarks has rank {landmarks} at"
            f" most. Choose at most {landmarks}, or more method.landmarks."
        )


def _largest(sizes: Float64Array, rank: int | None, tolerance: float) -> BoolArray:
    """Which eigenvalues W_k keeps, by their sizes."""
    kept = sizes > tolerance * sizes.max()
    if rank is not None and rank < sizes.size:
        kept &= sizes >= np.sort(sizes)[-rank]
    return np.asarray(kept)
