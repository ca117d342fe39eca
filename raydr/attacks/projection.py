"""Projection: records from their coordinates along known axes.

The map of federated PCA holds some coordinates of each record in the features' own units. All parties receive
the mean and the axes. So one product gives the point in their span that is nearest to the record. The
record's distance from that point stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from raydr.attacks.contract import Estimate, NotApplicableError, Piece, Reconstruction, Side, View, attack
from raydr.methods.fed_pca import ComponentRequest, Components


@attack("projection", "records from their coordinates along principal axes that the server knows")
def projection(view: View, side: Side) -> Iterator[Reconstruction]:
    """Estimate every record by its nearest point in the span of the axes, through the mean."""
    posted = [
        (seen.client, seen.request, reply)
        for seen, reply in view.transcript.of(Components)
        if isinstance(seen.request, ComponentRequest) and seen.client is not None
    ]
    if not posted:
        raise NotApplicableError("no client posted the coordinates of its records along axes.")
    mean, axes = posted[0][1].mean, posted[0][1].axes
    pieces = tuple(Piece(view.rows_of(client), mean, reply.places, axes.T) for client, _, reply in posted)
    yield Reconstruction(
        uses=(Components,),
        knows="the mean and the axes" + (", under a key that it does not have" if view.keyed else ""),
        numbers={"axes": int(np.any(axes, axis=0).sum())},
        estimate=Estimate(pieces),
        guess=side.guess(mean[None][:0] if view.keyed else mean[None]),
    )
