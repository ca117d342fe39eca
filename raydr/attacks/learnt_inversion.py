"""Learnt inversion: records from everything that was posted about them, by regression.

An attack that knows the method solves its equations. This attack only learns from examples: rows whose posts
and values the server both has. There are three sources of such rows:

- rows of similar data, for which the server computes what clients would have posted
  (:mod:`raydr.attacks.per_record`);
- if a key prevents that, the same rows by what a rotation and a shift do not change: their distances from the
  others;
- known records of the run, whose posts the server received.

``map-inversion`` is the informed adversary of the literature: an attacker who knows some or nearly all of the
records and sees the published map. Balle, Cherubin & Hayes 2022 study it for models. Here the neighbours on
the map replace the trained network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.attacks.contract import Estimate, NotApplicableError, Piece, Reconstruction, Side, View, attack
from raydr.attacks.inner_part import with_inner_part
from raydr.attacks.per_record import Posts, per_record
from raydr.attacks.point_cloud import cloud
from raydr.attacks.regression import LEAST_ROWS, MOST_GROUPS, Predictor, fitted
from raydr.federation.messages import Reply

FEW, DRAWS = 100, 3
"""Number of public rows for attempts with several draws, and of draws. The draw that recovers most is reported."""
_QUANTILES = np.linspace(0.05, 1.0, 20)
_COMPARED = 1_000  # points of the cloud that distances are measured to

Fit = tuple[Predictor, Callable[[Int64Array], Float64Array]]


@attack("learnt-inversion", "records from everything that was posted about them, by regression")
def learnt_inversion(view: View, side: Side) -> Iterator[Reconstruction]:
    """Make attempts with several draws of few public rows, all public rows, and the known records."""
    groups = per_record(view)[:MOST_GROUPS]
    reasons = []
    for attempts in (_by_public_rows, _by_known_records):
        try:
            yield from attempts(view, side, groups)
        except NotApplicableError as reason:
            reasons.append(str(reason))
    if len(reasons) == 2:
        raise NotApplicableError(" ".join(reasons))


@attack(
    "map-inversion",
    "records from their places on the published map, by an attacker who knows many of the others",
)
def map_inversion(view: View, side: Side) -> Iterator[Reconstruction]:
    """Make one attempt with half of the records known, and one with all but a few."""
    places = [
        posts.only(tuple(block for block in posts.blocks if block.is_place)) for posts in per_record(view)
    ]
    places = [posts for posts in places if posts.blocks]
    if not places:
        raise NotApplicableError("no record's place on a map is published.")
    for count in side.informed:
        yield _from_known(places[:MOST_GROUPS], side, count, f"{count:,} of {view.rows:,} records known")


def _by_public_rows(view: View, side: Side, groups: list[Posts]) -> Iterator[Reconstruction]:
    public = side.require_public(2 * LEAST_ROWS)
    imitable = [posts.only(tuple(b for b in posts.blocks if b.can_be_imitated)) for posts in groups]
    imitable = [posts for posts in imitable if posts.blocks and not view.keyed]
    draws = [np.arange(len(public))]
    if len(public) > FEW:
        draws += [
            np.random.default_rng((side.seed, 5, draw)).permutation(len(public))[:FEW]
            for draw in range(DRAWS)
        ]
    if imitable:
        imitated = [posts.imitated(public, view, side.seed) for posts in imitable]
        kinds = tuple(dict.fromkeys(kind for posts in imitable for kind in posts.kinds))
        what = "what clients would have posted about them"
    else:
        found = cloud(view)  # gives the reason if no distances were posted
        kinds, what = (found.kind,), "the distances between them, which a key does not change"
        theirs = _surroundings(found.points, side.seed)
    for rows in draws:
        drawn = public[rows]
        if imitable:
            pairs = zip(imitable, imitated, strict=True)
            pieces = [_inverted(view, posts, values[rows], drawn, side.seed) for posts, values in pairs]
        else:
            learnt = fitted(_surroundings(drawn, side.seed), drawn, side.seed)
            pieces = [(_piece(found.rows, learnt, theirs), learnt.name)]
        yield _told(
            [piece for piece, _ in pieces],
            [name for _, name in pieces],
            uses=kinds,
            knows=f"{len(drawn):,} rows of similar data, and {what}",
            variant=f"{len(drawn):,} public rows",
            numbers={"public_rows": len(drawn)},
            guess=np.asarray(drawn.mean(axis=0, dtype=np.float64)),
        )


def _by_known_records(view: View, side: Side, groups: list[Posts]) -> Iterator[Reconstruction]:
    count = max(side.counts, default=0)
    if count < LEAST_ROWS:
        raise NotApplicableError(f"It needs {LEAST_ROWS} known records.")
    yield _from_known(groups, side, count, f"{count:,} known records")


def _from_known(groups: list[Posts], side: Side, count: int, variant: str) -> Reconstruction:
    """Estimate all records from the posts and values of the known ones."""
    value_of = np.full(int(max(posts.rows.max() for posts in groups)) + 1, -1)
    some = side.known[:count][side.known[:count] < len(value_of)]
    value_of[some] = np.flatnonzero(side.known[:count] < len(value_of))
    pieces: list[Piece] = []
    names: list[str] = []
    kinds: list[type[Reply]] = []
    for posts in groups:
        known = np.flatnonzero(value_of[posts.rows] >= 0)
        if len(known) >= LEAST_ROWS:
            posted = posts.values
            learnt = fitted(posted[known], side.values[value_of[posts.rows[known]]], side.seed)
            pieces.append(_piece(posts.rows, learnt, posted))
            names.append(learnt.name)
            kinds += posts.kinds
    if not pieces:
        raise NotApplicableError("No clients with the same requests have enough known records.")
    everything = (
        np.concatenate([side.values[:count], side.public]) if len(side.public) else side.values[:count]
    )
    return _told(
        pieces,
        names,
        uses=tuple(dict.fromkeys(kinds)),
        knows=f"{count:,} of the records, and what was posted about them",
        variant=variant,
        numbers={"known_records": count, "public_rows": len(side.public)},
        guess=np.asarray(everything.mean(axis=0, dtype=np.float64)),
    )


def _told(
    pieces: list[Piece],
    names: list[str],
    *,
    uses: tuple[type[Reply], ...],
    knows: str,
    variant: str,
    numbers: dict[str, float],
    guess: Float64Array,
) -> Reconstruction:
    by = " and ".join(dict.fromkeys(names))
    return Reconstruction(
        uses=uses,
        knows=f"{knows} (estimated by {by})",
        variant=variant,
        numbers=numbers,
        estimate=Estimate(tuple(pieces)),
        guess=guess,
    )


def _inverted(
    view: View, posts: Posts, imitated: Float64Array, public: FloatArray, seed: int
) -> tuple[Piece, str]:
    """Estimate records from their posts, and name the method.

    Uses the inner part if public rows show that it helps.
    """
    learnt = fitted(imitated, public, seed)
    piece = _piece(posts.rows, learnt, posts.values)
    better = with_inner_part(view, posts, piece, imitated, public, seed)
    return (piece, learnt.name) if better is None else (better, f"{learnt.name} and the inner part")


def _piece(rows: Int64Array, learnt: Predictor, posts: Float64Array) -> Piece:
    return Piece(rows, learnt.centre, learnt.coordinates(posts), learnt.basis)


def _surroundings(points: FloatArray, seed: int) -> Float64Array:
    """Return invariants of each point (points, numbers): quantiles of its distances, and the distance to the mean.

    Each number is replaced by its rank among the points, so that clouds of different size are comparable.
    """
    from scipy.spatial.distance import cdist
    from scipy.special import ndtri
    from scipy.stats import rankdata

    some = points[np.random.default_rng((seed, 7)).permutation(len(points))[:_COMPARED]].astype(np.float64)
    centre = points.mean(axis=0, dtype=np.float64)
    found = np.empty((len(points), len(_QUANTILES) + 1))
    for start in range(0, len(points), _COMPARED):
        block = points[start : start + _COMPARED].astype(np.float64)
        apart = cdist(block, some)
        found[start : start + len(block), :-1] = np.quantile(apart, _QUANTILES, axis=1).T
        found[start : start + len(block), -1] = np.linalg.norm(block - centre, axis=1)
    return np.asarray(ndtri((rankdata(found, axis=0) - 0.5) / len(points)))
