"""Wide tables: the few directions in which all lies that SENSE can know, in place of all features.

Distances tell of records what lies along the anchors, and how long the rest is; within a client, the shape of the rest
too. None of it depends on how many features there are: anchors span at most as many directions as there are anchors,
and what is beside them needs no more than there are columns in the clients' residual factors. So the server works in
so many coordinates, where that is fewer than features, and nothing is quadratic in these.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    """

    basis: Float64Array | None
    room: int

    @classmethod
    def of(cls, anchors: Float64Array, room: int) -> Narrow:
        """Narrow coordinates for anchors (anchors, features), as seen from the origin that all share."""
        from scipy.linalg import qr

        count, features = anchors.shape
        if count + room >= features:
            return cls(None, 0)
        return cls(np.ascontiguousarray(qr(anchors.T, mode="economic", check_finite=False)[0].T), room)

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


@dataclass(frozen=True, eq=False)
class Lift:
    """Rows of features that stand for the server's coordinates: along the anchors where those lie, and beside them.

    In which directions of the features points lie beside the anchors nobody knows: any will do, the same for all. It
    holds nothing but the anchors, from which the basis of :class:`Narrow` follows again where it is needed.

    Attributes
    ----------
    origin : (features,) float64 or None
        From where coordinates count; None for 0.
    anchors : tuple of (anchors, features) float64
        That span the first coordinates; none where coordinates are the features.
    """

    origin: Float64Array | None
    anchors: tuple[Float64Array, ...] = ()

    def __call__(self, coordinates: FloatArray) -> Float64Array:
        """Rows (rows, features) of some points' coordinates (rows, dimensions)."""
        points = coordinates.astype(np.float64)
        if self.anchors:
            from scipy.linalg.lapack import dormqr

            reflectors, factors = self._turn
            across = np.zeros((len(reflectors), len(points)), order="F")
            across[: points.shape[1]] = points.T
            room = 64 * max(1, len(points))
            points = dormqr("L", "N", reflectors, factors, across, room, overwrite_c=True)[0].T
        return points if self.origin is None else points + self.origin

    @cached_property
    def _turn(self) -> tuple[Float64Array, Float64Array]:
        """Householder's reflectors (features, anchors), and their factors, of the anchors as seen from the origin.

        Their product turns the first axes onto the basis of :class:`Narrow`, and the others beside it: what has 320 MB
        as a basis of 2,000 directions among 20,000 features takes no memory so.
        """
        from scipy.linalg import qr

        seen = np.concatenate(self.anchors)
        if self.origin is not None:
            seen -= self.origin
        (reflectors, factors), _ = qr(seen.T, mode="raw", overwrite_a=True, check_finite=False)
        return reflectors, factors
