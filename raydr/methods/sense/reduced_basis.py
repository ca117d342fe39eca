"""Wide tables: the few directions in which all lies that SENSE can know, in place of all features.

Distances tell of records what lies along the anchors, and how long the rest is; within a client, the shape of the rest
too. None of it depends on how many features there are: anchors span at most as many directions as there are anchors,
and what is beside them needs no more than there are columns in the clients' residual factors. So the server works in
so many coordinates, where that is fewer than features, and nothing is quadratic in these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from raydr.arrays import Float64Array, FloatArray


@dataclass(frozen=True)
class Narrow:
    """Coordinates that keep all inner products of anchors, and have room beside them.

    Attributes
    ----------
    basis : (directions, features) float64 or None
        Orthonormal, spans the anchors; None where there are so few features that coordinates are these.
    room : int
        Coordinates beside them.
    spanned : (anchors, directions) float64 or None
        The anchors along the basis.
    """

    basis: Float64Array | None
    room: int
    spanned: Float64Array | None = None

    @classmethod
    def of(cls, anchors: Float64Array, room: int) -> Narrow:
        """Narrow coordinates for anchors (anchors, features), as seen from the origin that all share."""
        from scipy.linalg import qr

        count, features = anchors.shape
        if count + room >= features:
            return cls(None, 0)
        basis, spanned = qr(anchors.T, mode="economic", check_finite=False)
        return cls(np.ascontiguousarray(basis.T), room, spanned.T)

    def of_anchors(self, anchors: Float64Array) -> Float64Array:
        """Coordinates (anchors, directions + room) of some of the anchors, which have nothing beside."""
        if self.basis is None:
            return anchors
        return np.hstack([anchors @ self.basis.T, np.zeros((len(anchors), self.room))])

    def widened(self, coordinates: Float64Array, rng: np.random.Generator) -> Float64Array:
        """Points (points, features) with the coordinates (points, directions + room), and the distances that they have.

        In which directions of the features they lie beside the anchors nobody knows: any will do.
        """
        from scipy.linalg import qr

        if self.basis is None:
            return coordinates
        count = len(self.basis)
        # Of the room, as much as these points use: its basis needs no more directions than there are points.
        used, lengths = qr(coordinates[:, count:].T, mode="economic")
        drawn = rng.standard_normal((used.shape[1], self.basis.shape[1]))
        for _ in range(2):
            drawn -= (drawn @ self.basis.T) @ self.basis
            drawn = qr(drawn.T, mode="economic")[0].T
        return np.asarray(coordinates[:, :count] @ self.basis + lengths.T @ drawn)


LEAST_SINGULAR = 1e-10
"""Of the anchors' coordinates, relative to the largest, below which a direction is one of rounding."""


@dataclass(frozen=True, eq=False)
class Lift:
    """Rows of features that stand for the server's coordinates: along the anchors where those lie, and beside them.

    In which directions of the features points lie beside the anchors nobody knows: any will do, the same for all. It
    holds what is known anyway, the anchors; of the rest it makes what it needs where rows are asked for.

    Attributes
    ----------
    origin : (features,) float64 or None
        From where coordinates count; None for 0.
    anchors : tuple of (anchors, features) float64
        That span the first coordinates; none where coordinates are the features.
    spanned : (anchors, directions) float64
        Those coordinates of all of them, as of :class:`Narrow`.
    """

    origin: Float64Array | None
    anchors: tuple[Float64Array, ...] = ()
    spanned: Float64Array = field(default_factory=lambda: np.zeros((0, 0)))

    def __call__(self, coordinates: FloatArray) -> Float64Array:
        """Rows (rows, features) of some points' coordinates (rows, dimensions)."""
        points = coordinates.astype(np.float64)
        if self.anchors:
            from scipy.linalg.lapack import dormqr

            turn, known, reflectors, factors = self._turn
            count, width = len(turn), points.shape[1]
            across = np.zeros((len(reflectors), len(points)), order="F")
            across[:count] = turn @ points[:, :count].T
            across[: len(known)] = known @ across[: len(known)]
            across[count:width] = points[:, count:].T
            room = 64 * max(1, len(points))
            points = dormqr("L", "N", reflectors, factors, across, room, overwrite_c=True)[0].T
        return points if self.origin is None else points + self.origin

    @cached_property
    def _turn(self) -> tuple[Float64Array, Float64Array, Float64Array, Float64Array]:
        """How coordinates come to those along the directions that anchors surely span, and these to features.

        By Householder's reflectors: 2,000 directions among 20,000 features have 320 MB as a basis, and need none here
        where they lie beside the anchors.
        """
        from scipy.linalg import qr

        left, singular, turn = np.linalg.svd(self.spanned)
        kept = singular > LEAST_SINGULAR * singular[0]
        seen = np.concatenate(self.anchors)
        if self.origin is not None:
            seen -= self.origin
        directions = (left[:, kept] / singular[kept]).T @ seen
        (reflectors, factors), known = qr(directions.T, mode="raw", overwrite_a=True, check_finite=False)
        return turn, known[: len(directions)], reflectors, factors
