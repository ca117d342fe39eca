"""Wide tables: the few directions in which all lies that SENSE can know, in place of all features.

Distances tell of records what lies along the anchors, and how long the rest is; within a client, the shape of the rest
too. None of it depends on how many features there are: anchors span at most as many directions as there are anchors,
and what is beside them needs no more than there are columns in the clients' residual factors. So the server works in
so many coordinates, where that is fewer than features, and nothing is quadratic in these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array


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
