"""Warnings about the columns of a table before it is mapped. They reveal no values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.data.survey.columns import listing
from raydr.data.survey.layout import Layout
from raydr.geometry.points import row_blocks
from raydr.sparse_rows import SparseRows

PLAIN, NUMBERING, CODES, MISSING_CODES, MOSTLY_EMPTY, ONE_VALUE = range(6)
"""Appearance of a column of numbers: nothing special, an identity, codes of categories, a code for missing values,
more gaps than values, or one value."""
LABELS = {
    *(
        "class",
        "classes",
        "death",
        "diagnosis",
        "died",
        "dx",
        "event",
        "group",
        "label",
        "outcome",
        "species",
        "status",
        "subtype",
        "survived",
        "target",
    ),
    *("treatment", "y", "cell_type", "celltype"),
}
"""Names of columns, in lower case, that usually hold classes."""

_LEAST_ROWS = 20  # with fewer, whole numbers can be distinct or few by chance
_FEWEST, _MOST, _LARGEST = 3, 10, 99  # distinct values of a code; two values are as good as 0/1
_MANY = 20
"""If more columns than this look like codes, and most columns do, the table holds counts, as of images or genes."""
_MISSING_CODES = np.array(
    [
        99,
        999,
        9_999,
        99_999,
        999_999,
        88,
        888,
        8_888,
        77,
        777,
        7_777,
        -1,
        -8,
        -9,
        -88,
        -99,
        -888,
        -999,
        -8_888,
        -9_999,
    ],
    float,
)
_FAR = 100.0
"""Times the larger of two other values beyond which a third one is a code, as 666 next to 0 and 1."""
_RARE = 0.1
"""Share of rows with unmapped words above which a column has a warning."""
_APART = 10.0
"""Ratio to the median column's standard deviation above which a column dominates distances."""


def looks(rows: FloatArray) -> Int64Array:
    """Return what each column of rows (rows, features) looks like: (features,). Missing values are ignored.

    Whole numbers that are all distinct identify rows. A few distinct small ones can be codes. A number such as 999
    or -99 that lies apart from all others can be a code for missing values.

    >>> looks(np.column_stack([np.arange(30.0), np.arange(30.0) % 4, np.arange(30.0) / 7])).tolist()
    [1, 2, 0]
    """
    found = np.full(rows.shape[1], PLAIN, np.int64)
    if len(rows) < _LEAST_ROWS:
        return found
    if isinstance(rows, SparseRows):
        parts = row_blocks(rows.columns, max(1, (1 << 20) // len(rows)))
        return np.concatenate([looks(rows[:, first:last]) for first, last in parts])
    with np.errstate(invalid="ignore"):
        # The first rows rule out most columns of measurements.
        first = rows[:_LEAST_ROWS]
        likely = (np.isnan(first) | (first == np.floor(first))).all(axis=0)
    least, most = np.fmin.reduce(rows, axis=0), np.fmax.reduce(rows, axis=0)  # NaN only where all are
    ends = np.isin(np.trunc(least), _MISSING_CODES) | np.isin(np.trunc(most), _MISSING_CODES)
    with np.errstate(invalid="ignore"):
        few = (np.diff(np.sort(first, axis=0), axis=0) > 0).sum(axis=0) < _FEWEST
    for column in np.flatnonzero(ends | (few & (least >= 0) & (most >= _FAR))):
        values = np.unique(rows[:, column])
        if _has_missing_code(values[~np.isnan(values)]):
            found[column] = MISSING_CODES
    found[2 * np.isnan(rows).sum(axis=0) > len(rows)] = MOSTLY_EMPTY
    found[least == most] = ONE_VALUE
    for column in np.flatnonzero(likely & (found == PLAIN)):
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


def _has_missing_code(different: FloatArray) -> bool:
    """Return whether the largest or smallest of different values is a code such as 999 or -99, apart from all others.

    Other codes do not count as values. Next to two others, any value far beyond them is a code.
    """
    codes = np.isin(np.trunc(different), _MISSING_CODES)
    for code, others in (
        (different[-1], different[:-1][~codes[:-1]]),
        (different[0], different[1:][~codes[1:]]),
    ):
        if len(others) == _FEWEST - 1 and others[0] >= 0 and code >= _FAR * max(1.0, float(others[-1])):
            return True
        if np.trunc(code) not in _MISSING_CODES or len(others) < _FEWEST:
            continue
        low, high = float(others.min()), float(others.max())
        if code > high + (high - low) or (code < -1 and low >= 0) or code < low - 2 * (high - low):
            return True
    return False


def are_blocks(values: NDArray[Any]) -> bool:
    """Return whether equal whole numbers (rows,) always stand next to each other, with two rows or more on average.

    >>> are_blocks(np.arange(60) // 3), are_blocks(np.arange(80) // 2 % 10), are_blocks(np.arange(60))
    (True, False, False)
    """
    starts = 1 + np.count_nonzero(values[1:] != values[:-1])
    few = _LEAST_ROWS <= starts <= min(len(values) // 2, values.max() - values.min() + 1)
    return bool(few and len(np.unique(values)) == starts)


def common_looks(of_sites: Iterable[Int64Array]) -> Int64Array:
    """Return what columns look like (features,) to every site with enough rows, or plain if they differ.

    A code for missing values need not occur at every site. There can be as many sites as rows, so they come one by
    one.
    """
    found, coded = np.zeros(0, np.int64), np.zeros(0, np.bool_)
    voted = False
    for own in of_sites:
        if not found.size:
            found, coded = np.full(own.shape, PLAIN, np.int64), np.zeros(own.shape, np.bool_)
        if (own == PLAIN).all():  # a site with too few rows does not vote
            continue
        coded |= own == MISSING_CODES
        found = np.where(found == own, own, PLAIN) if voted else own
        voted = True
    return np.where(coded, MISSING_CODES, found)


def of_measurements(found: Int64Array, layout: Layout) -> Int64Array:
    """Return what columns look like (features,), without guesses that contradict a known kind.

    A code for missing values among numbers is no such guess.
    """
    kept, places = found.copy(), layout.places
    for column, coding in layout.codings.items():
        guesses = (NUMBERING, CODES) if coding.kind == "number" else (NUMBERING, CODES, MISSING_CODES)
        part = kept[places[column]]
        part[np.isin(part, guesses)] = PLAIN
    return kept


def of_columns(features: Sequence[str], found: Int64Array, constant: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the warnings about columns that do not look like measurements.

    ``constant`` are those with one value in all rows. Others that ``found`` calls so have one value at each site.
    """
    numbering, codes, missing, empty, one = (
        [name for name, look in zip(features, found.tolist(), strict=True) if look == kind]
        for kind in (NUMBERING, CODES, MISSING_CODES, MOSTLY_EMPTY, ONE_VALUE)
    )
    at_sites = [name for name in one if name not in set(constant)]
    warnings = []
    if numbering:
        warnings.append(
            f"{listing(numbering)}: whole numbers, all distinct, as in an identity or a time. If they are one,"
            " they decide the places of rows instead of the measurements. Name them in data.exclude, or the identity in"
            " data.id."
        )
    if codes and not (len(codes) > _MANY and 2 * len(codes) > len(features)):
        warnings.append(
            f"{listing(codes)}: a few small whole numbers. If they are codes of categories, and not grades or counts,"
            " their differences mean nothing. Give them the kind words in a codebook (`raydr init --codebook FILE`) to"
            " make 0/1 columns, or name them in data.exclude. If they are not, give them the kind number."
        )
    if missing:
        warnings.append(
            f"{listing(missing)}: a number such as 999 or -99, far from all others, which can be a code for missing"
            " values. If it is one, it decides distances: empty these cells, or list it in missing of a codebook"
            " (`raydr init --codebook FILE`)."
        )
    if empty:
        warnings.append(
            f"{listing(empty)}: more missing values than values. What is filled in decides such a column: name it in"
            " data.exclude if few rows have it."
        )
    if at_sites:
        warnings.append(
            f"{listing(at_sites)}: one value in all rows of each site. Such a column names the site and sets sites"
            " apart on the map, or it tells no rows apart. Name it in data.exclude."
        )
    if constant:
        warnings.append(f"{listing(constant)}: one value in all rows, which does not tell rows apart.")
    return tuple(warnings)


def of_rare_words(rows: FloatArray, layout: Layout) -> tuple[str, ...]:
    """Return a warning on columns of words of which many rows (rows, features) have a word that is not mapped.

    >>> columns = Layout(("ward",), {"ward": ("1", "2")})
    >>> len(of_rare_words(np.array([[1.0, 0.0], [0.0, 0.0]]), columns)), of_rare_words(np.eye(2), columns)
    (1, ())
    """
    many = []
    for column in layout.words:
        place = layout.places[column]
        block = rows[:, place.start : place.stop]
        if (~block.any(axis=1)).sum() > _RARE * (~np.isnan(block[:, 0])).sum():
            many.append(column)
    if not many:
        return ()
    return (
        f"{listing(many)}: more than a tenth of the rows have words that too few rows or sites have. They get zeros"
        " only, so they count as equal. Lower data.words.rows or data.words.sites to map such words, or give the column"
        " a kind in a codebook (`raydr init --codebook FILE`).",
    )


def classes_among(columns: Sequence[str]) -> list[str]:
    """Return the columns that are named like a class.

    >>> classes_among(["age", "Species"]), classes_among(["x", "y"])
    (['Species'], [])
    """
    lower = {column.casefold() for column in columns}
    names = LABELS - {"y"} if "x" in lower else LABELS  # coordinates are no classes
    return [column for column in columns if column.casefold() in names]


def of_label(columns: Sequence[str]) -> tuple[str, ...]:
    """Return a warning if a mapped column has the name of a class, for data without a label.

    >>> len(of_label(["age", "Species"]))
    1
    """
    classes = classes_among(columns)
    if not classes:
        return ()
    return (
        f"{listing(classes)}: mapped like a measurement, but named like a class. The map then shows the classes because"
        " it was given them. To colour the map by a class and not map it, name it in data.label (--label).",
    )


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
