"""Known sample: known records undo the same number of dimensions of a secret frame.

Procrustes maps the known records' places in the cloud to their values. If there are public rows, the cloud's
mean is set to theirs. With d + 1 known records in general position, nothing is left open. In directions that
the known records leave open, the estimate is the mean.
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
    """Make one attempt for each number of known records."""
    found = cloud(view)
    if not side.counts:
        raise NotApplicableError("there are too few records to know some and score the others.")
    yield from attempts(found, side)


def attempts(found: Cloud, side: Side) -> Iterator[Reconstruction]:
    """Place a cloud by known records, once for each number of records."""
    place = np.full(int(max(found.rows.max(), side.known.max(initial=0))) + 1, -1)
    place[found.rows] = np.arange(len(found.rows))
    mean = side.public.mean(axis=0, dtype=np.float64) if len(side.public) else None
    for count in side.counts:
        at = place[side.known[:count]]
        there = at >= 0  # a record of a client that posted nothing has no place
        if not there.any() and mean is None:
            continue
        values = np.asarray(side.values[:count][there], np.float64)
        piece = placed(found, found.points[at[there]], values, mean)
        yield Reconstruction(
            uses=(found.kind,),
            knows=f"the distances between records that follow from the messages, and {count:,} of the records"
            + (f"; the mean of {len(side.public):,} rows of similar data" if mean is not None else ""),
            variant=f"{count:,} known record{'' if count == 1 else 's'}",
            numbers={"known_records": count, "public_rows": len(side.public)},
            estimate=Estimate((piece,)),
            guess=mean if mean is not None else values.mean(axis=0),
        )


def placed(found: Cloud, points: Float64Array, values: Float64Array, mean: Float64Array | None) -> Piece:
    """Estimate all records from the places (known, dimensions) and values (known, features) of some.

    The origin is the known records' own mean if they span the cloud. Otherwise it is the mean of all records,
    if that is known, which counts as one more record.
    """
    dimensions = found.points.shape[1]
    if mean is None or len(points) > dimensions:
        origin, target = points.mean(axis=0), values.mean(axis=0)
    else:
        origin, target = found.points.mean(axis=0), mean
    centred = points - origin
    # Only in the known records' span: known x known, never features x features, for any number of features.
    left, singular, right = np.linalg.svd(centred, full_matrices=False)
    kept = singular > _RELATIVE_RANK * max(float(singular.max(initial=0.0)), np.finfo(np.float64).tiny)
    inside = right[kept]
    turned = _orthonormal(((values - target).T @ left[:, kept]).T, singular[kept])
    return Piece(found.rows, target, (found.points - origin) @ inside.T, turned)


def _orthonormal(products: Float64Array, singular: Float64Array) -> Float64Array:
    """Return the directions (k, features) of the cloud's directions (k), by Procrustes from U^T values.

    The known part of the cloud is U S, and its features are U^T values: the factor R of the polar
    decomposition of S U^T values.
    """
    if not len(products):
        return products
    left, _, right = np.linalg.svd(singular[:, None] * products, full_matrices=False)
    return np.asarray(left @ right)
