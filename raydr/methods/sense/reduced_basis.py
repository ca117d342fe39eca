"""A reduced basis for wide tables: the few directions that SENSE can know, instead of all features.

Distances determine a record's part along the anchors and the length of the rest; within a client, also the
shape of the rest. None of this depends on the number of features. The anchors span at most as many directions
as there are anchors, and the rest needs no more than the columns of the clients' residual factors. So the
server uses that many coordinates if they are fewer than the features, and no cost is quadratic in the
features.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from raydr.arrays import Float64Array, FloatArray


@dataclass(frozen=True)
class Narrow:
    """Coordinates that keep all inner products of anchors, with room for further directions.

    Attributes
    ----------
    basis : (directions, features) float64 or None
        Orthonormal, spans the anchors; None if there are so few features that they are the coordinates.
    room : int
        Further coordinates.
    spanned : (anchors, directions) float64 or None
        The anchors along the basis.
    """

    basis: Float64Array | None
    room: int
    spanned: Float64Array | None = None

    @classmethod
    def of(cls, anchors: Float64Array, room: int) -> Narrow:
        """Return narrow coordinates for anchors (anchors, features), relative to the common origin."""
        from scipy.linalg import qr

        count, features = anchors.shape
        if count + room >= features:
            return cls(None, 0)
        basis, spanned = qr(anchors.T, mode="economic", check_finite=False)
        return cls(np.ascontiguousarray(basis.T), room, spanned.T)

    def of_anchors(self, anchors: Float64Array) -> Float64Array:
        """Return coordinates (anchors, directions + room) of some anchors, with zeros in the room."""
        if self.basis is None:
            return anchors
        return np.hstack([anchors @ self.basis.T, np.zeros((len(anchors), self.room))])

    def widened(self, coordinates: Float64Array, rng: np.random.Generator) -> Float64Array:
        """Return points (points, features) with the distances of the coordinates (points, directions + room).

        Their directions outside the anchors' span are unknown, so any are chosen.
        """
        from scipy.linalg import qr

        if self.basis is None:
            return coordinates
        count = len(self.basis)
        # The part of the room that these points use: its basis needs no more directions than points.
        used, lengths = qr(coordinates[:, count:].T, mode="economic")
        drawn = rng.standard_normal((used.shape[1], self.basis.shape[1]))
        for _ in range(2):
            drawn -= (drawn @ self.basis.T) @ self.basis
            drawn = qr(drawn.T, mode="economic")[0].T
        return np.asarray(coordinates[:, :count] @ self.basis + lengths.T @ drawn)


LEAST_SINGULAR = 1e-10
"""Least singular value of the anchors' coordinates, relative to the largest; smaller ones are rounding."""


@dataclass(frozen=True, eq=False)
class Lift:
    """Rows of features for the server's coordinates: along the anchors, and in chosen directions for the rest.

    The directions outside the anchors' span are unknown, so any are chosen, the same for all points. The
    object holds only the anchors, which are known anyway, and computes the rest when rows are requested.

    Attributes
    ----------
    origin : (features,) float64 or None
        Origin of the coordinates; None for 0.
    anchors : tuple of (anchors, features) float64
        Span the first coordinates; empty if coordinates are the features.
    spanned : (anchors, directions) float64
        Those coordinates of all of them, as in :class:`Narrow`.
    """

    origin: Float64Array | None
    anchors: tuple[Float64Array, ...] = ()
    spanned: Float64Array = field(default_factory=lambda: np.zeros((0, 0)))

    def __call__(self, coordinates: FloatArray) -> Float64Array:
        """Return rows (rows, features) for coordinates (rows, dimensions)."""
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
        """Return the maps from coordinates to the directions that anchors surely span, and from these to features.

        By Householder reflectors: a basis of 2,000 directions among 20,000 features takes 320 MB, and is not
        needed for those outside the anchors' span.
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
