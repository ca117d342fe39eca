"""Projection: what a record's places along known axes say of it.

The map of federated PCA is some coordinates of each record in the features' own units. With the mean and the axes,
which all are told, the point of their span that is nearest to the record is one product away; how far the record lies
beside it stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from raydr.attacks.contract import Estimate, NotApplicableError, Piece, Reconstruction, Side, View, attack
from raydr.methods.fed_pca import ComponentRequest, Components


@attack("projection", "records from where they lie along principal axes that the server knows")
def projection(view: View, side: Side) -> Iterator[Reconstruction]:
    """Every record's nearest point in the span of the axes, about the mean."""
    told = [
        (seen.client, seen.request, reply)
        for seen, reply in view.transcript.of(Components)
        if isinstance(seen.request, ComponentRequest) and seen.client is not None
    ]
    if not told:
        raise NotApplicableError("no client posted where its records lie along axes.")
    mean, axes = told[0][1].mean, told[0][1].axes
    pieces = tuple(Piece(view.rows_of(client), mean, reply.places, axes.T) for client, _, reply in told)
    yield Reconstruction(
        uses=(Components,),
        knows="the mean and the axes" + (", under a key that it lacks" if view.keyed else ""),
        numbers={"axes": int(np.any(axes, axis=0).sum())},
        estimate=Estimate(pieces),
        guess=side.guess(mean[None][:0] if view.keyed else mean[None]),
    )
