"""Warnings about the columns of a table before it is mapped. They reveal no values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.data.columns import listing

PLAIN, NUMBERING, CODES = 0, 1, 2
"""Appearance of a column of numbers: nothing special, an identity, or codes of categories."""

_LEAST_ROWS = 20  # with fewer, whole numbers can be distinct or few by chance
_FEWEST, _MOST, _LARGEST = 3, 10, 99  # distinct values of a code; two values are as good as 0/1
_MANY = 20
"""If more columns than this look like codes, and most columns do, the table holds counts, as of images or genes."""
_APART = 10.0
"""Ratio to the median column's standard deviation above which a column dominates distances."""


def looks(rows: FloatArray) -> Int64Array:
    """Return what each column of rows (rows, features) looks like: (features,). Missing values are ignored.

    Whole numbers that are all distinct identify rows. A few distinct small ones can be codes.

    >>> looks(np.column_stack([np.arange(30.0), np.arange(30.0) % 4, np.arange(30.0) / 7])).tolist()
    [1, 2, 0]
    """
    found = np.full(rows.shape[1], PLAIN, np.int64)
    if len(rows) < _LEAST_ROWS:
        return found
    with np.errstate(invalid="ignore"):
        # The first rows rule out most columns of measurements.
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
    """Return what columns look like (features,) to every site with enough rows, or plain if they differ."""
    votes = np.stack(of_sites)
    voting = votes[(votes != PLAIN).any(axis=1)]  # a site with too few rows does not vote
    if not len(voting):
        return of_sites[0]
    return np.asarray(np.where((voting == voting[0]).all(axis=0), voting[0], PLAIN), np.int64)


def of_columns(features: Sequence[str], found: Int64Array, constant: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the warnings about columns that do not look like measurements, or have one value."""
    named = [
        [name for name, look in zip(features, found.tolist(), strict=True) if look == kind]
        for kind in (NUMBERING, CODES)
    ]
    numbering, codes = named
    warnings = []
    if numbering:
        warnings.append(
            f"{listing(numbering)}: whole numbers, all distinct, as in an identity or a time. If they are one,"
            " they decide the places of rows instead of the measurements. Name the other columns in data.features, or"
            " the identity in data.id."
        )
    if codes and not (len(codes) > _MANY and 2 * len(codes) > len(features)):
        warnings.append(
            f"{listing(codes)}: a few small whole numbers. If they are codes of categories, and not grades or counts,"
            " their differences mean nothing. Write them as words and set data.categories: one-hot to make 0/1 columns,"
            " or leave them out of data.features."
        )
    if constant:
        warnings.append(f"{listing(constant)}: one value in all rows, which does not tell rows apart.")
    return tuple(warnings)


def of_spreads(features: Sequence[str], deviation: Float64Array) -> tuple[str, ...]:
    """Return a warning if some columns vary much more than others and nothing is scaled.

    Parameters
    ----------
    features : sequence of str
        Names of the columns.
    deviation : (features,) float64
        Standard deviation of each column.
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
        f"Nothing is scaled, but {features[far[0]]!r}{others} {times:,.0f} times as much as the median column."
        " Such columns alone decide which rows are neighbours, and neighbour metrics look good for that reason. Set"
        " data.scale: standard to weight all columns equally.",
    )
