"""The inner part: what distances between a client's own records add to a regression.

With its distances to anchors, SENSE's client posts a factor of the Gram matrix of what the anchors do not span: exact,
but in directions of the client's own. A regression knows the directions, roughly. The rotation that brings the factor
nearest to what the regression says of all of the client's records is found by Procrustes, and the errors of the
regression average out.
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
    """Estimates that use the inner part too; None where there is none, or where it makes public rows no better.

    ``piece`` has estimates of the same records from their distances to anchors. Some of the public rows
    (public rows, features), of which ``imitated`` (public rows, numbers) would have been posted, play the part of a
    client, to see whether the inner part helps. There are enough of them to fit a regression to half of them.
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
    """Records (rows, features) whose part in the anchors' hull and whose inner products outside it are as posted.

    Of the rotations that this leaves open, the one nearest to what is guessed of the records, (rows, features).
    """
    left, _, right = np.linalg.svd(inside.T @ frame.beside(guessed), full_matrices=False)
    return frame.points(frame.solver.coordinates(squared), inside @ (left @ right))


def _is_readable(view: View, seen: Seen, reply: AnchorDistances) -> bool:
    """Whether the inner part is as it was, and the anchors are where the server takes them to be."""
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
    """Return whether this many public rows, as a client's, are estimated better with the inner part."""
    order = np.random.default_rng((seed, 8)).permutation(len(public))
    theirs, others = order[:count], order[count:]
    guessed = predicted(fitted(imitated[others], public[others], seed), imitated[theirs])
    true = view.fed(public[theirs])
    found = turned(frame, imitated[theirs], residual_factor(frame, true), view.fed(guessed))
    return float(np.median(np.linalg.norm(view.unfed(found) - public[theirs], axis=1))) < float(
        np.median(np.linalg.norm(guessed - public[theirs], axis=1))
    )
