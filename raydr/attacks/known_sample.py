"""Known sample: some records that the server happens to know undo as many dimensions of a secret frame.

Procrustes from the known records' places in the cloud to their values, with the cloud's mean taken to be that of the
public rows where there are any. With d + 1 known records in general position nothing is left open. Where the known
records leave directions open, the estimate is the mean there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from raydr.arrays import Float64Array
from raydr.attacks.contract import Estimate, NotApplicableError, Piece, Reconstruction, Side, View, attack
from raydr.attacks.point_cloud import Cloud, cloud

_RELATIVE_RANK = 1e-9


@attack("known-sample", "records whose frame is secret, from some that the server knows")
def known_sample(view: View, side: Side) -> Iterator[Reconstruction]:
    """One attempt for each number of known records."""
    found = cloud(view)
    if not side.counts:
        raise NotApplicableError("too few records are left to know some and score others.")
    yield from attempts(found, side)


def attempts(found: Cloud, side: Side) -> Iterator[Reconstruction]:
    """Place a cloud by so many known records, once for each number."""
    place = np.full(int(max(found.rows.max(), side.known.max(initial=0))) + 1, -1)
    place[found.rows] = np.arange(len(found.rows))
    mean = side.public.mean(axis=0, dtype=np.float64) if len(side.public) else None
    for count in side.counts:
        at = place[side.known[:count]]
        there = at >= 0  # of a client that posted nothing a record has no place
        if not there.any() and mean is None:
            continue
        values = np.asarray(side.values[:count][there], np.float64)
        piece = placed(found, found.points[at[there]], values, mean)
        yield Reconstruction(
            uses=(found.kind,),
            knows=f"distances between records, as far as the messages tell them, and {count:,} of the records"
            + (f"; the mean of {len(side.public):,} rows of like data" if mean is not None else ""),
            variant=f"{count:,} known record{'' if count == 1 else 's'}",
            numbers={"known_records": count, "public_rows": len(side.public)},
            estimate=Estimate((piece,)),
            guess=mean if mean is not None else values.mean(axis=0),
        )


def placed(found: Cloud, points: Float64Array, values: Float64Array, mean: Float64Array | None) -> Piece:
    """Estimates of all records from the places (known, dimensions) and values (known, features) of some.

    The known records' own mean is the origin where they span the cloud; else it is the mean of all, where that is
    known, which stands for one more record.
    """
    dimensions = found.points.shape[1]
    if mean is None or len(points) > dimensions:
        origin, target = points.mean(axis=0), values.mean(axis=0)
    else:
        origin, target = found.points.mean(axis=0), mean
    centred = points - origin
    # Of the known records' span alone, however many features they have: known x known, never features x features.
    left, singular, right = np.linalg.svd(centred, full_matrices=False)
    kept = singular > _RELATIVE_RANK * max(float(singular.max(initial=0.0)), np.finfo(np.float64).tiny)
    inside = right[kept]
    turned = _orthonormal(((values - target).T @ left[:, kept]).T, singular[kept])
    return Piece(found.rows, target, (found.points - origin) @ inside.T, turned)


def _orthonormal(products: Float64Array, singular: Float64Array) -> Float64Array:
    """Directions (k, features) in which the cloud's directions (k) point: Procrustes, from U^T values.

    The cloud's known part is U S, its features U^T values: R of the polar factor of S U^T values.
    """
    if not len(products):
        return products
    left, _, right = np.linalg.svd(singular[:, None] * products, full_matrices=False)
    return np.asarray(left @ right)
