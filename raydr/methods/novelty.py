"""Novelty of a new row: a p-value for the statement that it is like the mapped rows.

A row's score is its distance to the nearest reference, a mean of five mapped rows or more
(:mod:`raydr.methods.references`). For comparison, mapped rows are scored like new ones, by cross-validation: some of
them are left out, the others are grouped again in the same way, and the rows left out are scored by the means of these
groups. The p-value of a new row of score s is

    p = (1 + number of mapped rows with a score of at least s) / (1 + number of scored mapped rows).

If new and mapped rows are drawn alike, p is at most alpha with probability alpha or a little less: the rows are
exchangeable, and the means for mapped rows are of slightly fewer rows (Vovk 2015, *Cross-conformal predictors*).

A model keeps every fifth score alone, so that no number in it belongs to fewer than five rows. Between kept
scores, p is that of the next smaller one: this makes rows look less novel, never more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.geometry.blocks import in_blocks
from raydr.geometry.points import value_blocks
from raydr.geometry.prototypes import groups

SCORES, SCORED, MOMENTS = "novelty_scores", "novelty_scored_rows", "novelty_moments"
"""Names of a model's arrays: every fifth score of mapped rows, falling; the number of scored rows; and the mean and the
standard deviation (2, features) of each feature of these rows."""
AXES, UNITS = "novelty_axes", "novelty_units"
"""Names of the arrays of :mod:`raydr.methods.novelty_by_axes`: axes (features, axes), and the units of distances along
and away from them (axes + 1,)."""
NOVELTY = (SCORES, SCORED, MOMENTS, AXES, UNITS)
NOVEL = 0.05
"""p-value at or below which a row is called novel."""
EACH = 5
"""Mapped rows for each kept score."""
MOST_SCORED = 2000
_PARTS = 10
"""Parts of the mapped rows that are left out in turn, or fewer if few of many rows are scored."""
LEAST_ROWS = 20
"""Mapped rows from which on new rows are compared with them."""
_ROUNDING = 1e-6
"""Size of moments, in units of the rows' spread, below which they are rounding."""
_LEFT_OUT = 0.01
"""Largest share of the variance that the coordinates may leave out if columns are to be compared."""
LEAST_GROUP = 5
"""Least number of records per reference."""
_EQUAL = 1e-4
"""Distance, in units of the references' spread, below which points are equal up to rounding."""


def calibration(
    embedding: FloatArray,
    chart: FloatArray,
    squared_heights: Float64Array,
    rows: Callable[[Float64Array], Float64Array],
) -> dict[str, FloatArray]:
    """Return the scores of mapped rows, as arrays of a model.

    Parameters
    ----------
    embedding : (rows, dimensions)
        Positions of the mapped rows, by which references are grouped.
    chart : (rows, coordinates)
        Their coordinates, of which references are means.
    squared_heights : (rows,)
        Squared lengths of what the coordinates leave out.
    rows : callable
        From coordinates (rows, coordinates) to rows of a table (rows, features). It keeps distances.

    Returns
    -------
    arrays : dict
        :data:`SCORES` and :data:`SCORED`, and :data:`MOMENTS` if the coordinates leave next to nothing out. Empty for
        fewer than :data:`LEAST_ROWS` rows.
    """
    count = len(chart)
    if count < LEAST_ROWS:
        return {}
    random = np.random.default_rng(count)
    scored = random.permutation(count)[:MOST_SCORED]
    parts = np.array_split(scored, min(_PARTS, math.ceil(_PARTS * len(scored) / count)))
    found = np.concatenate([_nearest_of_others(embedding, chart, part) for part in parts])
    kept = kept_scores(np.sqrt(found + squared_heights[scored]))
    inside = chart[scored].astype(np.float64)
    variance = float(inside.var(axis=0).sum())
    if squared_heights[scored].mean() <= _LEFT_OUT * variance:
        moments = _moments(inside, rows)
        moments[np.abs(moments) < _ROUNDING * np.sqrt((moments[1] ** 2).sum())] = 0.0
        kept[MOMENTS] = moments
    return kept


def kept_scores(scores: Float64Array) -> dict[str, FloatArray]:
    """Return every fifth of the mapped rows' scores (rows,), as arrays of a model."""
    falling = np.sort(scores)[::-1]
    return {SCORES: falling[EACH - 1 :: EACH].copy(), SCORED: np.array([len(scores)], np.int64)}


def _moments(chart: Float64Array, rows: Callable[[Float64Array], Float64Array]) -> Float64Array:
    """Return mean and standard deviation (2, features) of the rows with these coordinates, lifted in blocks."""
    about = rows(chart.mean(axis=0, keepdims=True))[0]
    sums = np.zeros((2, about.size))
    for start, stop in value_blocks(len(chart), about.size):
        apart = rows(chart[start:stop]) - about
        sums += [apart.sum(axis=0), (apart**2).sum(axis=0)]
    offset, square = sums / len(chart)
    return np.stack([about + offset, np.sqrt(np.maximum(square - offset**2, 0.0))])


def _nearest_of_others(embedding: FloatArray, chart: FloatArray, part: Int64Array) -> Float64Array:
    """Return the squared distance of each row of a part to the nearest mean of groups of all others, (part,)."""
    others = np.setdiff1d(np.arange(len(chart)), part)
    means = np.stack(
        [chart[others[group]].mean(axis=0, dtype=np.float64) for group in groups_of(embedding[others])]
    )
    middle = means.mean(axis=0)
    means -= middle
    norms = (means**2).sum(axis=1)

    def nearest(block: FloatArray) -> Float64Array:
        own = block.astype(np.float64) - middle
        squared = (own**2).sum(axis=1)[:, None] + norms - 2.0 * (own @ means.T)
        return np.asarray(np.maximum(squared, 0.0).min(axis=1))

    return in_blocks(nearest, chart[part])


@dataclass(frozen=True)
class Compared:
    """Scores and moments that new rows are compared with. The moments are None if columns cannot be compared."""

    scores: Float64Array
    scored: int
    moments: Float64Array | None


def compared(model: Mapping[str, FloatArray]) -> Compared | None:
    """Return what a model has of :func:`calibration`; None if it has nothing.

    Raises
    ------
    KeyError, ValueError
        If one of the arrays is missing, or they do not fit together.
    """
    if not {SCORES, SCORED, MOMENTS} & set(model):
        return None
    scores, count = np.asarray(model[SCORES], np.float64), np.asarray(model[SCORED])
    if count.shape != (1,) or scores.shape != (int(count[0]) // EACH,) or (scores[1:] > scores[:-1]).any():
        raise ValueError(f"{SCORES} must have one falling score for every {EACH} of {SCORED}")
    moments = np.asarray(model[MOMENTS], np.float64) if MOMENTS in model else None
    if moments is not None and moments.shape != (2, _features(model)):
        raise ValueError(f"{MOMENTS} must have two numbers for each feature")
    return Compared(scores, int(count[0]), moments)


def _features(model: Mapping[str, FloatArray]) -> int:
    """Return the number of features of the rows that a model takes."""
    return int(np.shape(model["references"])[1] if "references" in model else np.shape(model[AXES])[0])


def groups_of(embedding: FloatArray) -> list[Int64Array]:
    """Return the records (members,) of each reference on a map (rows, dimensions)."""
    return groups(embedding, min(LEAST_GROUP, len(embedding)), most=True)


def p_values(
    model: Mapping[str, FloatArray],
    squared_distances: Callable[[Float64Array], FloatArray],
    rows: Float64Array,
) -> Float64Array | None:
    """Return the p-value (rows,) of each new row (rows, columns), or None if the model has no scores.

    Parameters
    ----------
    model : mapping of name to array
        With the arrays of :func:`calibration`.
    squared_distances : callable
        From a block of rows to their squared distances to all references.
    rows : (rows, columns) float64
        New rows.

    Raises
    ------
    KeyError, ValueError
        As :func:`compared`.
    """
    known = compared(model)
    if known is None:
        return None
    references = np.asarray(model["references"], np.float64)
    spread = float(np.sqrt(((references - references.mean(axis=0)) ** 2).sum(axis=1).mean()))

    def scores(block: Float64Array) -> Float64Array:
        return np.asarray(np.sqrt(np.maximum(squared_distances(block), 0.0).min(axis=1)))

    found = in_blocks(scores, rows)
    found[found <= _EQUAL * spread] = 0.0
    return ranked(known, found)


def ranked(known: Compared, scores: Float64Array) -> Float64Array:
    """Return the p-values (rows,) of new rows with these scores (rows,)."""
    kept, scored = known.scores[::-1], known.scored
    smaller = np.searchsorted(kept, scores, side="left")
    # The largest kept score below a row's is the last of a number of scores that EACH divides. It is not at least as
    # large as the row's.
    farther = np.where(smaller > 0, EACH * (len(kept) - smaller + 1) - 1, scored)
    return np.asarray((1.0 + farther) / (1.0 + scored))
