"""Trilateration: records from their distances to points that the server knows.

Distances to points tell a record's place in the points' hull, and how far from it the record lies. Where that is
nothing, the record is known to rounding, and the server can tell (:mod:`raydr.geometry.trilateration`): fewer points
than dimensions do not hide a record that lies in their span. P3, Theorem 3.1, asks for K < d anchors; of MNIST that
leaves nine records of ten in the open.
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
from raydr.attacks.posted import Posted, posted
from raydr.methods.sense.frames import AffineFrame

_SURE = 0.5 * EXACT
"""A record is called exact where what is left open of it is at most this part of its distance from the mean."""


@attack("trilateration", "records from their distances to anchors or landmarks that the server knows")
def trilateration(view: View, side: Side) -> Iterator[Reconstruction]:
    """Every record's nearest point in the hull of the points that it told its distances to."""
    messages = posted(view)
    if any(message.points is None for message in messages):
        raise NotApplicableError("the server does not know the points to which distances were posted.")
    found = [located(message) for message in messages]
    estimate = Estimate(tuple(piece for pieces, _ in found for piece in pieces))
    beside = np.concatenate([heights for _, heights in found])
    noisy = any(message.noise for message in messages)
    certain = None
    if not noisy:
        certain = beside <= _SURE * np.hypot(estimate.lengths(estimate.mean()), beside)
    points = np.concatenate([_rows(message) for message in messages])
    count = len(np.unique(points, axis=0))
    yield Reconstruction(
        uses=(messages[0].kind,),
        knows=f"the {count:,} points to which distances were posted"
        + ("; what noise was added to them is told" if noisy else ""),
        numbers={"points": count},
        estimate=estimate,
        guess=np.asarray(points.mean(axis=0)),
        certain=certain,
    )


def located(message: Posted) -> tuple[list[Piece], Float64Array]:
    """Estimates of the records of a message, and how far from the hull each lies, (rows,)."""
    if message.points is None:
        raise NotApplicableError("the server does not know the points to which distances were posted.")
    frame = message.space.frame(message.space.points(message.points), message.noise)
    coordinates, beside = frame.located(message.squared)
    if isinstance(frame, AffineFrame):
        return [Piece(message.rows, frame.solver.centre, coordinates, frame.solver.basis)], beside
    placed = frame.points(coordinates, np.zeros((len(coordinates), 0)))
    rows = np.asarray(message.space.rows(message.space.chart(placed)))
    return list(Estimate.of(message.rows, rows).pieces), beside


def _rows(message: Posted) -> Float64Array:
    points = message.points
    return np.zeros((0, 0)) if points is None else points
