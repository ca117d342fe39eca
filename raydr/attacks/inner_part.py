"""The inner part: what distances between a client's own records add to a regression.

Next to its distances to anchors, a SENSE client posts a factor of the Gram matrix of the part outside the
anchors' span. The factor is exact, but in the client's own directions. A regression gives the directions
roughly. Procrustes finds the rotation that brings the factor nearest to the regression's estimates of all the
client's records, and the errors of the regression average out.
"""

from __future__ import annotations

import numpy as np

from raydr.arrays import Float64Array, FloatArray
from raydr.attacks.contract import Piece, View
from raydr.attacks.per_record import Posts
from raydr.attacks.regression import fitted, predicted
from raydr.federation.transcript import Seen
from raydr.methods.sense.clients import AnchorDistances, AnchorRequest
from raydr.methods.sense.frames import AffineFrame, residual_factor


def with_inner_part(
    view: View,
    posts: Posts,
    piece: Piece,
    imitated: Float64Array,
    public: FloatArray,
    seed: int,
) -> Piece | None:
    """Return estimates that use the inner part too. None if there is none, or if it does not improve public rows.

    ``piece`` has estimates of the same records from their distances to anchors. Some of the public rows
    (public rows, features) play a client, to test whether the inner part helps. ``imitated`` (public rows,
    numbers) is what would have been posted about them. There are enough of them to fit a regression to half
    of them.
    """
    sent = [
        (view.rows_of(seen.client), seen.request, reply)
        for seen, reply in view.transcript.of(AnchorDistances)
        if seen.client is not None and _is_readable(view, seen, reply)
    ]
    sent = [one for one in sent if np.isin(one[0], posts.rows).all()]
    if sum(len(numbers) for numbers, _, _ in sent) < len(posts.rows):
        return None
    frame = sent[0][1].frame  # type: ignore[attr-defined]
    count = min(int(np.median([len(numbers) for numbers, _, _ in sent])), len(public) // 2)
    if count < 2 or not _helps(view, frame, imitated, public, count, seed):
        return None
    at = {int(row): place for place, row in enumerate(piece.rows)}
    values = []
    for numbers, _, reply in sent:
        guessed = piece.spelt(piece.coordinates[[at[int(row)] for row in numbers]])
        values.append(view.unfed(turned(frame, reply.squared, reply.inside, view.fed(guessed))))
    rows = np.concatenate([numbers for numbers, _, _ in sent])
    return Piece(rows, np.zeros(public.shape[1]), np.concatenate(values))


def turned(
    frame: AffineFrame, squared: Float64Array, inside: Float64Array, guessed: Float64Array
) -> Float64Array:
    """Return records (rows, features) whose part in the anchors' hull and inner products outside it are as posted.

    These leave a rotation open. Use the one that is nearest to the guessed records (rows, features).
    """
    left, _, right = np.linalg.svd(inside.T @ frame.outside(guessed), full_matrices=False)
    return frame.points(frame.solver.coordinates(squared), inside @ (left @ right))


def _is_readable(view: View, seen: Seen, reply: AnchorDistances) -> bool:
    """Whether the inner part was not changed, and the server knows the anchors."""
    request = seen.request
    return (
        isinstance(request, AnchorRequest)
        and isinstance(request.frame, AffineFrame)
        and bool(reply.inside.size)
        and reply.noise == 0.0
        and seen.protection is None
        and not view.keyed
    )


def _helps(
    view: View, frame: AffineFrame, imitated: Float64Array, public: FloatArray, count: int, seed: int
) -> bool:
    """Return whether this many public rows, as a client's rows, are estimated better with the inner part."""
    order = np.random.default_rng((seed, 8)).permutation(len(public))
    theirs, others = order[:count], order[count:]
    guessed = predicted(fitted(imitated[others], public[others], seed), imitated[theirs])
    true = view.fed(public[theirs])
    found = turned(frame, imitated[theirs], residual_factor(frame, true), view.fed(guessed))
    return float(np.median(np.linalg.norm(view.unfed(found) - public[theirs], axis=1))) < float(
        np.median(np.linalg.norm(guessed - public[theirs], axis=1))
    )
