"""The subspace that a client's anchors span, and its complement.

Distances to anchors determine a record's coordinates inside that subspace and its distance from it, but not
the direction outside. A frame splits points into these two parts and joins them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from raydr.arrays import Float64Array
from raydr.errors import DataError
from raydr.geometry.trilateration import Trilateration, trilateration
from raydr.sparse_rows import SparseRows

_LARGEST_ROUNDING = 1e-2
"""Largest rounding of coordinates, in units of the spread of anchors or rows, whichever is larger."""


class Frame(Protocol):
    """A subspace with a basis, and a basis of its orthogonal complement."""

    @property
    def rank(self) -> int:
        """Dimensions of the subspace that distances fix."""

    @property
    def codimension(self) -> int:
        """Dimensions of the complement."""

    def located(self, squared_distances: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Return coordinates (rows, rank) inside and lengths (rows,) outside, from squared distances."""

    def inside(self, points: Float64Array) -> Float64Array:
        """Return coordinates inside, (rows, rank), of known points (rows, dimensions)."""

    def outside(self, points: Float64Array) -> Float64Array:
        """Return components outside, (rows, codimension), of known points (rows, dimensions)."""

    def residuals(self, points: Float64Array) -> Float64Array:
        """Return the same in any orthonormal basis, never with more directions than this many points need."""

    def points(self, coordinates: Float64Array, components: Float64Array) -> Float64Array:
        """Return points (rows, dimensions) with these coordinates inside and components outside."""


@dataclass(frozen=True)
class AffineFrame:
    """The affine hull of some anchors in Euclidean space.

    Parameters
    ----------
    anchors : (anchors, features) float64
        At least two that differ. Directions in which they spread by no more than rounding count as outside
        (:func:`raydr.geometry.trilateration.trilateration`). Affinely dependent anchors span less, without
        other effects.
    noise : float
        Standard deviation of noise that was added to squared distances on purpose.

    Raises
    ------
    DataError
        If there are fewer than two anchors, they are not finite, or all the same point.
    """

    anchors: Float64Array
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.anchors.ndim != 2 or self.anchors.shape[0] < 2:
            raise DataError(
                f"Anchors have shape {self.anchors.shape}. Placing rows by distances needs at least 2"
                " anchors, one per row: raise method.anchors."
            )
        if not np.isfinite(self.anchors).all():
            row = int(np.flatnonzero(~np.isfinite(self.anchors).all(axis=1))[0])
            raise DataError(
                f"Anchor {row} is not finite: {self.anchors[row].tolist()[:8]}. Correct the anchors."
            )
        if not np.ptp(self.anchors, axis=0).any():
            raise DataError(
                f"All {len(self.anchors)} anchors are the same point, so distances to them cannot place"
                " rows. Choose other anchors with method.anchor_source, or correct the file of"
                " method.anchor_path."
            )

    @cached_property
    def solver(self) -> Trilateration:
        """Solver from distances to coordinates."""
        # From the anchors alone, so that client and server agree on the rank without a message.
        centre = self.anchors.mean(axis=0)
        farthest = 4.0 * max(float(((anchor - centre) ** 2).sum()) for anchor in self.anchors)
        return trilateration(self.anchors, farthest, self.noise)

    @cached_property
    def complement(self) -> Float64Array:
        """Orthonormal directions outside the hull, (codimension, features)."""
        basis = self.solver.basis
        return np.asarray(np.linalg.svd(basis, full_matrices=True)[2][basis.shape[0] :])

    @property
    def rank(self) -> int:
        """Dimensions of the hull."""
        return self.solver.rank

    @property
    def codimension(self) -> int:
        """Dimensions outside the hull."""
        return int(self.anchors.shape[1]) - self.rank

    def projected(self, points: Float64Array) -> Float64Array:
        """Return coordinates (points, rank) in the hull of points (points, features)."""
        return np.asarray((points - self.solver.centre) @ self.solver.basis.T)

    def squared_heights(self, points: Float64Array) -> Float64Array:
        """Return squared distances (points,) from the hull."""
        outside = points - self.solver.points(self.projected(points))
        return np.asarray((outside**2).sum(axis=1))

    def located(self, squared_distances: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Return coordinates (rows, rank) in the hull and distances (rows,) from it, from squared distances to anchors.

        Raises
        ------
        DataError
            If a squared distance is negative or not finite. Also if the rows are so far from the anchors that
            rounding moves them by more than `_LARGEST_ROUNDING` of the spread that separates them.
        """
        wrong = ~((squared_distances >= 0.0) & (squared_distances < np.inf))
        if wrong.any():
            row, anchor = (int(at[0]) for at in np.nonzero(wrong))
            raise DataError(
                f"The squared distance of row {row} to anchor {anchor} is"
                f" {squared_distances[row, anchor]}. Squared distances must be finite and not negative:"
                " check how that client computes them."
            )
        coordinates = self.solver.coordinates(squared_distances)
        if not self.noise and len(coordinates):
            self._check_digits(squared_distances, coordinates)
        return coordinates, np.sqrt(self.solver.squared_residuals(squared_distances, coordinates))

    def _check_digits(self, squared: Float64Array, coordinates: Float64Array) -> None:
        """Raise DataError for rows, (rows, anchors) and (rows, rank), that are mostly rounding.

        A squared distance D^2 is rounded by eps D^2, and coordinates are half the product of K of them and U
        S^-1 (`raydr.geometry.trilateration`). So along a direction of singular value s they move by up to eps
        D^2 sqrt(K) / (2 s), with K the number of anchors. The median row decides, so that a few distant rows,
        which move by little of their distance, are still placed.
        """
        weakest = float(np.linalg.norm(self.solver.solution, axis=0).max())  # 1 / s of the least direction
        count = len(self.anchors)
        largest = float(np.median(squared.max(axis=1)))
        moved = 0.5 * float(np.finfo(np.float64).eps) * largest * np.sqrt(count) * weakest
        spread = float(np.sqrt(self.solver.squared_norms.mean()))
        apart = float(np.median(np.linalg.norm(coordinates - np.median(coordinates, axis=0), axis=1)))
        if moved > _LARGEST_ROUNDING * max(spread, apart):
            raise DataError(
                f"The median row of a client lies {np.sqrt(largest):.3g} from the anchors, which have a"
                f" spread of {spread:.3g}. Rounding of squared distances of {largest:.3g} can move a"
                f" row by {moved:.2g}, so rows would be separated by rounding alone. Choose anchors"
                " among the data (method.anchor_source: sample or random), or correct the file of"
                " method.anchor_path."
            )

    def inside(self, points: Float64Array) -> Float64Array:
        """Return coordinates in the hull, (rows, rank), of points (rows, features)."""
        return np.asarray((points - self.solver.centre) @ self.solver.basis.T)

    def outside(self, points: Float64Array) -> Float64Array:
        """Return components outside the hull, (rows, codimension), of points (rows, features)."""
        return np.asarray((points - self.solver.centre) @ self.complement.T)

    def residuals(self, points: Float64Array) -> Float64Array:
        """Return components outside the hull, in as many directions as features if these are many."""
        if not wide(points, self.rank):
            return self.outside(points)
        return without(points - self.solver.centre, self.solver.basis)

    def points(self, coordinates: Float64Array, components: Float64Array) -> Float64Array:
        """Return points (rows, features) from both parts.

        Components may be fewer than the dimensions outside the hull.
        """
        placed = self.solver.centre + coordinates @ self.solver.basis
        if components.shape[1]:
            placed += components @ self.complement[: components.shape[1]]
        return np.asarray(placed)


def wide(points: Float64Array | SparseRows, rank: int) -> bool:
    """Return whether a basis of all directions would have more of them than points and anchors need."""
    return int(points.shape[1]) > rank + len(points)


def without(vectors: Float64Array, basis: Float64Array) -> Float64Array:
    """Return vectors (rows, features) without their part along an orthonormal basis (rank, features)."""
    for _ in range(2):  # once leaves rounding of the removed part
        vectors = vectors - (vectors @ basis.T) @ basis
    return vectors


def residual_factor(frame: Frame, rows: Float64Array) -> Float64Array:
    """Return what the distances between a client's own rows add to their distances to the anchors.

    With the anchors, the distances between the rows (block G of P3 (8)) determine the inner products of the components
    outside the frame. They add nothing else. A factor R of that Gram matrix, R R^T, is equivalent, with rows x width
    numbers instead of rows x rows. Its directions are the client's own principal directions. The factor does not reveal
    their orientation in the space of the features.

    Parameters
    ----------
    frame : Frame
        Frame of the anchors that the client sees.
    rows : (rows, dimensions) float64
        The client's points.

    Returns
    -------
    factor : (rows, min(rows, codimension)) float64
        By falling singular value; the largest entry of each column is positive.
    """
    return _factor_of(frame.residuals(rows), frame)


def _factor_of(residuals: Float64Array, frame: Frame) -> Float64Array:
    left, singular, _ = np.linalg.svd(residuals, full_matrices=False)
    width = min(len(residuals), frame.codimension)
    return _signed((left * singular)[:, :width])


def _signed(factor: Float64Array) -> Float64Array:
    """Turn columns so that their largest entries are positive."""
    if factor.size:
        largest = factor[np.abs(factor).argmax(axis=0), np.arange(factor.shape[1])]
        factor *= np.where(largest < 0, -1.0, 1.0)
    return np.asarray(factor)


def sparse_residual_factor(frame: AffineFrame, rows: SparseRows, origin: Float64Array | None) -> Float64Array:
    """Return :func:`residual_factor` of sparse rows, as features; points of the frame are relative to ``origin``.

    With more features than rows, it comes from the Gram matrix of the residuals, by sparse products. Squared distances
    then have an error of about 1e-16 of the squared norms, taken after columns without zeros are centred, and singular
    values that this explains are 0. With fewer features, the factor is as large as the dense rows, and takes blocks.
    """
    rank = frame.rank
    if not wide(rows, rank):
        shift = 0.0 if origin is None else origin
        return _factor_of(np.concatenate([frame.outside(block - shift) for block in rows.blocks()]), frame)
    shifted, shift = rows.shifted()
    centre = frame.solver.centre - shift if origin is None else frame.solver.centre + origin - shift
    table = shifted.csr
    along = table @ centre
    coordinates = table @ frame.solver.basis.T - frame.solver.basis @ centre
    gram = (table @ table.T).toarray()
    gram += centre @ centre - along[:, None] - along
    farthest = float(gram.diagonal().max())
    gram -= coordinates @ coordinates.T
    squares, turn = np.linalg.eigh(gram)
    rounding = len(rows) * float(np.finfo(np.float64).eps) * farthest
    lengths = np.sqrt(np.where(squares > rounding, squares, 0.0))
    return _signed((turn * lengths)[:, ::-1][:, : min(len(rows), frame.codimension)])
