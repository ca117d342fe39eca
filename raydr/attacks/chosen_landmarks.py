"""Chosen landmarks: a server that departs from the protocol, and sends points of its choice.

Let points a and b = a + s e_j differ only in column j. The squared distances of a record x to them differ by

    |x - a|^2 - |x - b|^2 = 2 s (x_j - a_j) - s^2

so column j of every record follows from two numbers, for any other columns. One point and one step from it
along each column reveal all columns. The client code is that of the run, including the noise on distances.

Honest points reveal as much: k points in general position reveal k - 1 dimensions. A server that chooses the
points also chooses the dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from raydr.arrays import Float64Array
from raydr.attacks.contract import ColumnEstimates, NotApplicableError, Side, View, attack
from raydr.attacks.per_record import Block, noisy_for_good, per_record, replied
from raydr.federation import Request
from raydr.methods.landmarks.maps import DistanceRequest
from raydr.methods.landmarks.spectral import KernelRequest
from raydr.methods.sense.clients import AnchorRequest
from raydr.methods.sense.spaces import EuclideanSpace

MOST_ASKED = 200
"""Maximum number of records to ask about with chosen points."""
MOST_COLUMNS = 800
"""Maximum number of columns to ask for. If there are more, the first ones."""


@attack("chosen-landmarks", "each column of a record, by a server that chooses the landmarks or anchors")
def chosen_landmarks(view: View, side: Side) -> Iterator[ColumnEstimates]:
    """Make one attempt on the known records. Client code answers for them, and their values are not used."""
    block = _to_points(view)
    records = side.known[:MOST_ASKED]
    if not len(records):
        raise NotApplicableError("there are no known records to ask a client about.")
    honest, gamma = _points(block.request)
    centre = honest.mean(axis=0)
    step = float(np.sqrt(((honest - centre) ** 2).sum(axis=1).mean())) or 1.0
    columns = np.arange(min(len(centre), MOST_COLUMNS))
    sent = np.repeat(centre[None], len(columns) + 1, axis=0)
    sent[1 + columns, columns] += step
    squared = replied(_sending(block.request, sent), view.fed(side.values[:MOST_ASKED]), side.seed) / gamma
    found = np.tile(centre, (len(records), 1))
    found[:, columns] += (squared[:, :1] - squared[:, 1:] + step**2) / (2.0 * step)
    estimates = view.unfed(found)[:, columns]
    guess = side.guess(view.unfed(honest))[columns]
    assert block.kind is not None
    yield ColumnEstimates(
        uses=(block.kind,),
        knows=f"nothing, but it sends {len(sent):,} points: the first, and one step from it along each column",
        variant=f"asked of {len(records):,} records",
        numbers={"points": len(sent)},
        rows=records,
        columns=columns,
        inferred=lambda records: (estimates, np.tile(guess, (len(records), 1))),
        departs=True,
    )


def _to_points(view: View) -> Block:
    """Return the message with distances or kernels to points that the server sent."""
    if view.keyed:
        raise NotApplicableError(
            "clients rotate their records by a key, so their columns are not the server's columns."
        )
    if noisy_for_good(view):
        raise NotApplicableError(
            "clients add permanent noise to their records, but this attack asks about records without it."
        )
    for posts in per_record(view):
        for block in posts.blocks:
            if isinstance(block.request, DistanceRequest | KernelRequest | AnchorRequest):
                if not isinstance(getattr(block.request, "space", EuclideanSpace()), EuclideanSpace):
                    raise NotApplicableError(
                        "distances are hyperbolic, so their differences do not depend on a single column."
                    )
                return block
    raise NotApplicableError("no client posts distances from its records to points that the server sends.")


def _points(request: Request[Any] | None) -> tuple[Float64Array, float]:
    """Return the points (points, features) that were sent, and the factor of the squared distances to them."""
    match request:
        case AnchorRequest():
            return np.asarray(request.anchors, np.float64), 1.0
        case KernelRequest():
            return request.landmarks, request.gamma
        case DistanceRequest():
            return request.landmarks, 1.0
    raise TypeError(f"{type(request).__name__} sends no points")


def _sending(request: Request[Any] | None, points: Float64Array) -> Request[Any]:
    """Return the same request with other points."""
    match request:
        case AnchorRequest():
            return replace(request, anchors=points, space=request.space.around(points))
        case KernelRequest() | DistanceRequest():
            return replace(request, landmarks=points)
    raise TypeError(f"{type(request).__name__} sends no points")
