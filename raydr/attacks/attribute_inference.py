"""Attribute inference: one column of a record, by an attacker who knows all its other columns.

Columns of similar data predict each other, so much of a column is known without any message. The question is
what the messages add. So two ridge regressions of each column are compared. The guess is from the other columns of the
record. The attack adds everything that was posted about the record.

All columns are regressed at once. Let Z hold the columns next to what was posted, and let P be the inverse of
``Z^T Z + penalty I``. Then the residual of column j is ``(Z P)_j / P_jj``. Block inversion shows that this
equals ridge regression on the other columns.

The columns of a label that steers the map say the same, so none of them is known where another is inferred.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.attacks.contract import ColumnEstimates, NotApplicableError, Side, View, attack
from raydr.attacks.per_record import Posts, noisy_for_good, per_record
from raydr.attacks.regression import LEAST_ROWS, MOST_GROUPS

MOST_COLUMNS = 800
"""Maximum number of columns that are inferred and used as input.

If there are more, those with the largest variance.
"""
MOST_TRAINING = 4_000
"""Maximum number of training rows. If there are more, the first ones."""
PENALTIES = np.logspace(-13.0, 0.0, 14)
"""Ridge penalties, in units of the largest eigenvalue of the second moments."""
_JUDGED = 500  # training rows for the leave-one-out error


@attack("attribute-inference", "each column of a record, by an attacker who knows its other columns")
def attribute_inference(view: View, side: Side) -> Iterator[ColumnEstimates]:
    """Make one attempt that learns from public rows, and one that learns from known records."""
    groups = per_record(view)[:MOST_GROUPS]
    found = [*_by_public_rows(view, side, groups), *_by_known_records(view, side, groups)]
    if not found:
        raise NotApplicableError(
            f"it needs {2 * LEAST_ROWS} public rows whose posts the server can compute, or {LEAST_ROWS} known records"
            " of clients that received the same requests."
        )
    yield from found


def _by_public_rows(view: View, side: Side, groups: list[Posts]) -> Iterator[ColumnEstimates]:
    public = side.public[:MOST_TRAINING]
    imitable = [posts.only(tuple(b for b in posts.blocks if b.can_be_imitated)) for posts in groups]
    imitable = [posts for posts in imitable if posts.blocks]
    if len(public) < 2 * LEAST_ROWS or view.keyed or not imitable or noisy_for_good(view):
        return
    learnt = [Learnt(posts, public, posts.imitated(public, view, side.seed)) for posts in imitable]
    yield _finding(
        view,
        learnt,
        knows=f"{len(public):,} rows of similar data, and what clients would have posted about them",
        variant=f"{len(public):,} public rows",
        numbers={"public_rows": len(public)},
    )


def _by_known_records(view: View, side: Side, groups: list[Posts]) -> Iterator[ColumnEstimates]:
    count = max(side.counts, default=0)
    place = np.full(view.rows, -1)
    place[side.known[:count]] = np.arange(count)
    learnt = []
    for posts in groups:
        known = np.flatnonzero(place[posts.rows] >= 0)
        if len(known) >= LEAST_ROWS:
            learnt.append(Learnt(posts, side.values[place[posts.rows[known]]], posts.values[known]))
    if learnt:
        yield _finding(
            view,
            learnt,
            knows=f"{count:,} of the records, and what was posted about them",
            variant=f"{count:,} known records",
            numbers={"known_records": count},
        )


@dataclass(frozen=True)
class Learnt:
    """Posts about some records, and training data: rows (rows, features) and the posts about them (rows, numbers)."""

    posts: Posts
    values: FloatArray
    posted: Float64Array


def _finding(
    view: View, learnt: list[Learnt], *, knows: str, variant: str, numbers: dict[str, float]
) -> ColumnEstimates:
    """Return estimates as a function of the other columns, with posts and without."""
    spread = learnt[0].values.std(axis=0, dtype=np.float64)
    columns = np.sort(np.argsort(-spread, kind="stable")[:MOST_COLUMNS])
    together = np.flatnonzero(np.isin(columns, view.label_columns))
    fits = [
        (
            one.posts.rows,
            fitted_to_the_rest(one.values[:, columns], None, together),
            fitted_to_the_rest(one.values[:, columns], one.posted, together),
            one.posts.values,
        )
        for one in learnt
    ]
    rows = np.concatenate([rows for rows, *_ in fits])

    def inferred(records: FloatArray) -> tuple[Float64Array, Float64Array]:
        """Return estimates and guesses (records, columns) for records (records, features), from all other columns."""
        with_posts, without, start = [], [], 0
        for numbers_, guess, attacked, posted in fits:
            some = records[start : start + len(numbers_), columns]
            start += len(numbers_)
            without.append(guess.inferred(some, None))
            # If posts did not help on held-out rows, an attacker uses only the other columns.
            better = attacked.held_out < guess.held_out
            with_posts.append(np.where(better, attacked.inferred(some, posted), without[-1]))
        return np.concatenate(with_posts), np.concatenate(without)

    return ColumnEstimates(
        uses=tuple(dict.fromkeys(kind for one in learnt for kind in one.posts.kinds)),
        knows=f"all other columns of the record; {knows}",
        variant=variant,
        numbers=numbers,
        rows=rows,
        columns=columns,
        inferred=inferred,
    )


@dataclass(frozen=True)
class FromTheRest:
    """Ridge regressions of each column from all others, and from posts if given.

    Attributes
    ----------
    shift, factor : (columns + numbers,) float64
        Shift and factor that give both mean 0 and variance 1.
    weights : (columns + numbers, columns) float64
        Standardised values times these are the standardised estimates. The weight of a column on itself is 0.
    held_out : (columns,) float64
        Root mean square leave-one-out error, in units of the column's standard deviation.
    """

    shift: Float64Array
    factor: Float64Array
    weights: Float64Array
    held_out: Float64Array

    def inferred(self, values: FloatArray, posted: Float64Array | None) -> Float64Array:
        """Estimate each value (rows, columns) from the others of its row."""
        columns = values.shape[1]
        found = _standard(values, posted, self.shift, self.factor) @ self.weights
        deviation = np.divide(
            1.0,
            self.factor[:columns],
            out=np.zeros(columns),
            where=self.factor[:columns] > 0.0,
        )
        return np.asarray(self.shift[:columns] + found * deviation)


_NONE: Int64Array = np.zeros(0, np.int64)


def fitted_to_the_rest(
    values: FloatArray, posted: Float64Array | None, together: Int64Array = _NONE
) -> FromTheRest:
    """Fit each column of rows (rows, columns) to all others and to posts (rows, numbers).

    Columns that are inferred ``together`` are not fitted to each other. Each column uses the penalty with the smallest
    leave-one-out error.
    """
    rows, columns = values.shape
    joint = np.asarray(values, np.float64) if posted is None else np.hstack([values, posted])
    shift, deviation = joint.mean(axis=0), joint.std(axis=0)
    varies = deviation > 1e-12 * np.maximum(np.abs(shift), np.finfo(np.float64).tiny)
    factor = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=varies)
    standard = (joint - shift) * factor
    squares, axes = np.linalg.eigh(standard.T @ standard)
    squares = np.maximum(squares, 0.0)
    own, judged = axes[:columns], standard[:_JUDGED]
    along = judged @ axes
    free, share = _leverages(along, squares, rows)
    least = np.full(columns, np.inf)
    weights = np.zeros((joint.shape[1], columns))
    for penalty in PENALTIES * max(float(squares[-1]), 1.0):  # it is less than 1 if all columns are constant
        scaled = axes / (squares + penalty)
        precision = scaled @ own.T  # (columns + numbers, columns)
        diagonal = precision[np.arange(columns), np.arange(columns)]
        moved = judged @ precision
        left = (free + share @ (penalty / (squares + penalty)))[:, None] + moved**2 / diagonal
        misses = (moved / diagonal) / left
        error = np.sqrt((misses**2).mean(axis=0))
        better = error < least
        least[better] = error[better]
        weights[:, better] = -(precision / diagonal)[:, better]
    weights[np.arange(columns), np.arange(columns)] = 0.0
    if len(together):
        rest = np.setdiff1d(np.arange(joint.shape[1]), together)
        weights[:, together] = 0.0
        weights[np.ix_(rest, together)], least[together] = _fitted(standard[:, rest], standard[:, together])
    return FromTheRest(shift, factor, weights, least)


def _leverages(along: Float64Array, squares: Float64Array, rows: int) -> tuple[Float64Array, Float64Array]:
    """Return what a row's leverage leaves without a penalty, (rows,), and its share along each axis.

    A row's leverage can be 1 except for the effect of the penalty, so only that effect is added up.
    """
    share = np.divide(along**2, squares, out=np.zeros_like(along), where=squares > 1e-14 * squares[-1])
    free = 1.0 - 1.0 / rows - share.sum(axis=1)
    free[free < 1e-10] = 0.0
    return free, share


def _fitted(known: Float64Array, wanted: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return ridge weights (known, wanted) of standardised columns, and their leave-one-out errors (wanted,)."""
    squares, axes = np.linalg.eigh(known.T @ known)
    squares = np.maximum(squares, 0.0)
    along, targets = known @ axes, axes.T @ (known.T @ wanted)
    free, share = _leverages(along[:_JUDGED], squares, len(known))
    least, weights = np.full(wanted.shape[1], np.inf), np.zeros((known.shape[1], wanted.shape[1]))
    for penalty in PENALTIES * max(float(squares[-1]), 1.0):
        found = axes @ (targets / (squares + penalty)[:, None])
        left = free + share @ (penalty / (squares + penalty))
        misses = (wanted[:_JUDGED] - known[:_JUDGED] @ found) / left[:, None]
        error = np.sqrt((misses**2).mean(axis=0))
        better = error < least
        least[better], weights[:, better] = error[better], found[:, better]
    return weights, least


def _standard(
    values: FloatArray, posted: Float64Array | None, shift: Float64Array, factor: Float64Array
) -> Float64Array:
    joint = np.asarray(values, np.float64) if posted is None else np.hstack([values, posted])
    return np.asarray((joint - shift) * factor)
