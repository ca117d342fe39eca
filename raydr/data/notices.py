"""What whoever maps a table should know of its columns before they do, said without any of their values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.data.columns import listing

PLAIN, NUMBERING, CODES = 0, 1, 2
"""What a column of numbers looks like: nothing special; an identity; codes of kinds."""

_LEAST_ROWS = 20  # fewer whole numbers are all different by chance, or few
_FEWEST, _MOST, _LARGEST = 3, 10, 99  # different values of a code; two are as good as zeros and ones
_MANY = 20
"""Columns of codes past which, if they are most of all columns, the table is one of counts, as of images or genes."""
_APART = 10.0
"""Times the middle column's standard deviation, past which a column is said to decide over distances."""


def looks(rows: FloatArray) -> Int64Array:
    """What each column of rows (rows, features) looks like, (features,); missing values count for nothing.

    Whole numbers that are all different tell rows apart, as an identity does; a few small ones may be codes.

    >>> looks(np.column_stack([np.arange(30.0), np.arange(30.0) % 4, np.arange(30.0) / 7])).tolist()
    [1, 2, 0]
    """
    found = np.full(rows.shape[1], PLAIN, np.int64)
    if len(rows) < _LEAST_ROWS:
        return found
    with np.errstate(invalid="ignore"):
        # Most columns of measurements are ruled out by their first rows.
        first = rows[:_LEAST_ROWS]
        likely = (np.isnan(first) | (first == np.floor(first))).all(axis=0)
    for column in np.flatnonzero(likely):
        values = rows[:, column]
        values = values[~np.isnan(values)]
        if len(values) < _LEAST_ROWS or (values != np.floor(values)).any():
            continue
        different = np.unique(values)
        if len(different) == len(values):
            found[column] = NUMBERING
        elif _FEWEST <= len(different) <= _MOST and different[0] >= 0 and different[-1] <= _LARGEST:
            found[column] = CODES
    return found


def common_looks(of_sites: Sequence[Int64Array]) -> Int64Array:
    """What columns look like by the votes of sites, (features,) each: as every site with enough rows has it."""
    votes = np.stack(of_sites)
    said = votes[(votes != PLAIN).any(axis=1)]  # a site that has too few rows to say says nothing
    if not len(said):
        return of_sites[0]
    return np.asarray(np.where((said == said[0]).all(axis=0), said[0], PLAIN), np.int64)


def of_columns(features: Sequence[str], found: Int64Array, constant: Sequence[str] = ()) -> tuple[str, ...]:
    """What there is to say of columns that look like something else than measurements, or have one value."""
    named = [
        [name for name, look in zip(features, found.tolist(), strict=True) if look == kind]
        for kind in (NUMBERING, CODES)
    ]
    numbering, codes = named
    said = []
    if numbering:
        said.append(
            f"{listing(numbering)}: whole numbers, each there once, as of an identity or a time. If that is what"
            " they are, rows lie by them and not by what was measured: name the other columns in data.features, or the"
            " identity in data.id."
        )
    if codes and not (len(codes) > _MANY and 2 * len(codes) > len(features)):
        said.append(
            f"{listing(codes)}: a few small whole numbers. If they are codes of kinds, and not grades or counts, their"
            " differences mean nothing: write them as words, of which data.categories: one-hot makes zeros and ones, or"
            " leave them out of data.features."
        )
    if constant:
        said.append(f"{listing(constant)}: one value in all rows, which tells no row from another.")
    return tuple(said)


def of_spreads(features: Sequence[str], deviation: Float64Array) -> tuple[str, ...]:
    """What there is to say where some columns vary much more than others, and nothing is scaled.

    Parameters
    ----------
    features : sequence of str
        Names of the columns.
    deviation : (features,) float64
        Standard deviation of each.
    """
    varying = deviation[deviation > 0]
    if len(varying) < 2:
        return ()
    middle = float(np.median(varying))
    far = np.flatnonzero(deviation > _APART * middle)
    if not far.size:
        return ()
    far = far[np.argsort(-deviation[far], kind="stable")]
    times = float(deviation[far[0]]) / middle
    others = f" and {len(far) - 1} more vary up to" if len(far) > 1 else " varies"
    return (
        f"Nothing is scaled, and {features[far[0]]!r}{others} {times:,.0f} times as much as the middle column:"
        " who is near to whom follows from that alone, and measures of neighbours look good for it. data.scale:"
        " standard has all columns count alike.",
    )
