"""Landmark lifting: records from a private map's noisy sums, lifted back to the features.

The server knows where records lie, but not which record lies where. For a single record, the landmarks say no
more than their mean, weighted by the number of records at each. So this attack should do no better than the
mean of rows of similar data. Matching landmarks with nearby records would need the records themselves.

Without secure sums, the server also has each client's own noisy mean. It reveals how that client's records
differ from the others, up to its noise (Stein's shrinkage). Differential privacy for records does not hide a
client with many similar records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array
from raydr.attacks.contract import Estimate, NotApplicableError, Piece, Reconstruction, Side, View, attack
from raydr.methods.private_map.messages import (
    CellSums,
    CellSumsRequest,
    FirstMoments,
    FirstMomentsRequest,
    Frame,
)
from raydr.methods.private_map.messages import View as Sight
from raydr.methods.private_map.settings import COUNT_WEIGHT
from raydr.privacy.shares import shares_of_whole


@dataclass(frozen=True)
class Cells:
    """Cells of the last round with sums: requested ``centres`` (cells, axes) and noisy ``counts`` (cells,)."""

    frame: Frame
    centres: Float64Array
    counts: Float64Array


def last_cells(view: View) -> Cells | None:
    """Return what the server has from the last sum over cells, or None if there was none."""
    found = None
    for seen in view.transcript:
        if (
            seen.client is None
            and isinstance(seen.reply, CellSums)
            and isinstance(seen.request, CellSumsRequest)
        ):
            counts = np.maximum(seen.reply.counts / COUNT_WEIGHT, 0.0)
            found = Cells(seen.request.frame, seen.request.centres, counts)
    return found


@attack("landmark-lifting", "records from a private map's landmarks, and from each client's own noisy mean")
def landmark_lifting(view: View, side: Side) -> Iterator[Reconstruction]:
    """Make one attempt by landmarks, and one by clients' means if uploads are seen."""
    last = last_cells(view)
    if last is None:
        raise NotApplicableError("the server has no sums over cells.")
    sight = last.frame.view
    weights = last.counts if last.counts.any() else np.ones(len(last.counts))
    centre = (weights @ last.centres) / weights.sum()
    mean = view.unfed(lifted(last.frame.mean + last.frame.axes @ centre, sight)[None])[0]
    guess = side.guess(mean[None])
    everyone = np.arange(view.rows)
    yield Reconstruction(
        uses=(CellSums,),
        knows=f"{len(last.centres):,} cells, and the approximate number of records in each",
        variant="landmarks",
        numbers={"cells": len(last.centres)},
        estimate=Estimate((Piece(everyone, mean, np.zeros((view.rows, 0)), np.zeros((0, len(mean)))),)),
        guess=guess,
    )
    pieces = list(_by_means(view, last.frame))
    if pieces:
        yield Reconstruction(
            uses=(FirstMoments,),
            knows="each client's own noisy mean, and the size of its noise",
            variant="clients' means",
            numbers={"clients": len(pieces)},
            estimate=Estimate(tuple(pieces)),
            guess=guess,
        )


def _by_means(view: View, frame: Frame) -> Iterator[Piece]:
    """Yield each client's records at its own mean, shrunk towards the mean of all."""
    messages = view.transcript.of(FirstMoments)
    for seen, reply in messages:
        request, client = seen.request, seen.client
        if not isinstance(request, FirstMomentsRequest) or client is None or not view.sizes[client]:
            continue
        count, clip = view.sizes[client], request.view.clip
        own = clip * reply.packed[:-1] / count - frame.mean
        noise = _deviation(request, len(messages), view.colluding) * clip / count
        kept = max(0.0, 1.0 - len(own) * noise**2 / max(float(own @ own), np.finfo(np.float64).tiny))
        mean = view.unfed(lifted(frame.mean + kept * own, request.view)[None])[0]
        yield Piece(view.rows_of(client), mean, np.zeros((count, 0)), np.zeros((0, len(mean))))


def _deviation(request: FirstMomentsRequest, clients: int, colluding: float) -> float:
    """Return the noise on one entry of a client's upload, in units of the clip, or 0 if nothing is claimed."""
    mechanism = request.mechanism
    claim = mechanism.claim(request.claimed_sensitivity(1)) if mechanism is not None else None
    if mechanism is None or claim is None:
        return 0.0
    return claim.deviation / (np.sqrt(shares_of_whole(clients, colluding)) if mechanism.shared else 1.0)


def lifted(seen: Float64Array, sight: Sight) -> Float64Array:
    """Return the features (features,) of a row from its view (sums,): the shortest row with that view."""
    if sight.bucket is None or sight.sign is None:
        return np.asarray(seen + sight.centre)
    sizes = np.bincount(sight.bucket, minlength=sight.sums)
    return np.asarray(sight.sign * seen[sight.bucket] / sizes[sight.bucket] + sight.centre)
