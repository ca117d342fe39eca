"""Trilateration: records from their distances to points that the server knows.

Distances to points reveal a record's place in the points' hull, and its distance from the hull. If that
distance is 0, the record is known up to rounding, and the server knows that it is
(:mod:`raydr.geometry.trilateration`). So using fewer points than dimensions does not hide a record in their
span. P3, Theorem 3.1, requires K < d anchors. On MNIST, that reveals nine of ten records.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from raydr.arrays import Float64Array
from raydr.attacks.contract import (
    EXACT,
    Estimate,
    NotApplicableError,
    Piece,
    Reconstruction,
    Side,
    View,
    attack,
)
from raydr.attacks.posted_distances import Posted, posted
from raydr.methods.sense.frames import AffineFrame
from raydr.methods.sense.spaces import EuclideanSpace

_SURE = 0.5 * EXACT
"""A record is called exact if its unknown part is at most this fraction of its distance from the mean."""


@attack("trilateration", "records from their distances to anchors or landmarks that the server knows")
def trilateration(view: View, side: Side) -> Iterator[Reconstruction]:
    """Estimate every record by its nearest point in the hull of the points of its distances."""
    messages = posted(view)
    if any(message.points is None for message in messages):
        raise NotApplicableError("the server does not know the points to which distances were posted.")
    found = [located(message) for message in messages]
    estimate = Estimate(tuple(piece for pieces, _ in found for piece in pieces))
    outside = np.concatenate([heights for _, heights in found])
    noisy = any(message.covered for message in messages)
    certain = None
    if not noisy and not view.keyed:  # for keyed records, the server assumes a frame that is wrong
        certain = outside <= _SURE * np.hypot(estimate.lengths(estimate.mean()), outside)
    points = np.concatenate([message.points for message in messages if message.points is not None])
    count = len(np.unique(points, axis=0))
    knows = f"the {count:,} points to which distances were posted"
    if view.keyed:
        knows += ", under a key that it does not have"
    if noisy:
        knows += "; the noise on them is known"
    yield Reconstruction(
        uses=(messages[0].kind,),
        knows=knows,
        numbers={"points": count},
        estimate=estimate,
        guess=side.guess(points[:0] if view.keyed else points),
        certain=certain,
    )


def located(message: Posted) -> tuple[list[Piece], Float64Array]:
    """Return the estimates of the records of a message, and their distances (rows,) from the hull."""
    if message.points is None:
        raise NotApplicableError("the server does not know the points to which distances were posted.")
    noise = message.noise * float(np.sqrt(message.squared).mean()) if message.squared.size else 0.0
    if isinstance(message.space, EuclideanSpace):
        # Relative to one of the points, because a mean with an offset of 1e8 has no digits below 1e-8.
        origin = message.points[0].astype(np.float64)
        hull = message.space.frame(message.points - origin, noise)
        coordinates = hull.solver.coordinates(message.squared)
        piece = Piece(message.rows, hull.solver.centre + origin, coordinates, hull.solver.basis)
        return [piece], _distances_from(hull, message.squared, coordinates)
    frame = message.space.frame(message.space.points(message.points), noise)
    coordinates, outside = frame.located(message.squared)
    placed = frame.points(coordinates, np.zeros((len(coordinates), 0)))
    rows = np.asarray(message.space.rows(message.space.chart(placed)))
    return list(Estimate.of(message.rows, rows).pieces), outside


def _distances_from(frame: AffineFrame, squared: Float64Array, coordinates: Float64Array) -> Float64Array:
    """Return the distances (rows,) from the hull. If a square is negative, its absolute value is used."""
    heights = squared.mean(axis=1) - frame.solver.squared_norms.mean() - (coordinates**2).sum(axis=1)
    return np.asarray(np.sqrt(np.abs(heights)))
