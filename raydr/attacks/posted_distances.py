"""Distances that clients posted about each record, in any message."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from raydr.arrays import Float64Array, Int64Array
from raydr.attacks.contract import NotApplicableError, View
from raydr.federation.messages import Reply
from raydr.federation.transcript import Seen
from raydr.methods.landmarks.maps import Distances
from raydr.methods.landmarks.spectral import Kernels
from raydr.methods.sense.clients import AnchorDistances
from raydr.methods.sense.spaces import EuclideanSpace, Space

NOTHING = "no client posted distances from its records."


@dataclass(kw_only=True, frozen=True)
class Posted:
    """Distances from some clients' records to the same points.

    Attributes
    ----------
    rows : (rows,) int64
        Numbers of the records.
    squared : (rows, points) float64
        Squared distances.
    points : (points, features) float64 or None
        The points as the server knows them, or None if it does not know them.
    space : Space
        The space of the distances.
    noise : float
        Standard deviation of a mechanism's noise on distances, in units of the mean distance. 0 if there is
        none or it is not known.
    covered : bool
        Whether a mechanism changed the distances, or the records first.
    kind : type of Reply
        Kind of the message.
    """

    rows: Int64Array
    squared: Float64Array
    points: Float64Array | None
    space: Space
    noise: float
    covered: bool
    kind: type[Reply]


def posted(view: View) -> list[Posted]:
    """Return all posted distances, with one entry for all clients with the same requests.

    Raises
    ------
    NotApplicableError
        If no distances were posted.
    """
    groups: dict[tuple[int, float, bool], list[Posted]] = {}
    kept = []
    for seen in view.transcript:
        one = _of(view, seen)
        if one is not None:
            kept.append(one.points)  # while it is kept, no other array gets its id
            groups.setdefault((id(one.points), one.noise, one.covered), []).append(one)
    if not groups:
        raise NotApplicableError(NOTHING)
    return [_as_run(view, _together(group)) for group in groups.values()]


def _together(group: list[Posted]) -> Posted:
    first = group[0]
    rows = np.concatenate([one.rows for one in group])
    squared = np.concatenate([one.squared for one in group])
    return replace(first, rows=rows, squared=squared)


def _as_run(view: View, one: Posted) -> Posted:
    """Convert to the run's units, if the method made clients scale their rows."""
    scaling = view.own_scaling
    if scaling is None:
        return one
    if np.ptp(scaling.factor):
        raise NotApplicableError(
            "the method scaled features by different factors, so these are not the distances between the rows."
        )
    points = one.points if one.points is None else view.unfed(one.points)
    return replace(one, squared=one.squared / float(scaling.factor[0]) ** 2, points=points)


def _of(view: View, seen: Seen) -> Posted | None:
    if seen.client is None:
        return None
    rows, request, reply = view.rows_of(seen.client), seen.request, seen.reply
    covered = seen.protection is not None
    level = 0.0 if seen.protection is None else float(np.nan_to_num(seen.protection.deviation))
    euclidean, space = EuclideanSpace(), getattr(request, "space", None)
    match reply:
        case AnchorDistances():
            points = getattr(request, "anchors", None)
            noise = reply.noise or level
            return Posted(
                rows=rows,
                squared=reply.squared,
                points=points,
                space=space or euclidean,
                noise=noise,
                covered=covered,
                kind=type(reply),
            )
        case Distances():
            points = getattr(request, "landmarks", None)
            return Posted(
                rows=rows,
                squared=reply.squared,
                points=points,
                space=euclidean,
                noise=level,
                covered=covered,
                kind=type(reply),
            )
        case Kernels():
            values = np.maximum(reply.values, np.finfo(np.float64).tiny)
            squared = np.maximum(-np.log(values) / getattr(request, "gamma", 1.0), 0.0)
            points = getattr(request, "landmarks", None)
            return Posted(
                rows=rows,
                squared=squared,
                points=points,
                space=euclidean,
                noise=level,
                covered=covered,
                kind=type(reply),
            )
    return None
