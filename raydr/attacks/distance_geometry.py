"""Distance geometry: records from distances to points that the server does not know.

Hidden anchors do not hide the records' geometry (:mod:`raydr.attacks.point_cloud`). If the data span few
enough dimensions to fit, the distances give the geometry up to rounding. Public rows then place it, as in
``distribution-alignment``, or known records, as in ``known-sample``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from raydr.attacks import distribution_alignment, known_sample
from raydr.attacks.contract import NotApplicableError, Reconstruction, Side, View, attack
from raydr.attacks.point_cloud import unfolded_cloud


@attack("distance-geometry", "records from distances to anchors or landmarks that the server does not know")
def distance_geometry(view: View, side: Side) -> Iterator[Reconstruction]:
    """Unfold the distances, and place the result by all public rows and by the most known records."""
    found = unfolded_cloud(view)
    if len(side.public) < distribution_alignment.LEAST_PUBLIC and not side.counts:
        raise NotApplicableError(
            "there are no public rows and no known records to place the unfolded points."
        )
    if len(side.public) >= distribution_alignment.LEAST_PUBLIC:
        yield from distribution_alignment.attempts(found, side, [len(side.public)])
    if side.counts:
        yield from known_sample.attempts(found, replace(side, counts=side.counts[-1:]))
