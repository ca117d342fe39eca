"""Cells that are read one by one, each by a public rule, so that no record decides how others are read.

Each column has two features: the number of a cell, and the code of its word. At most one is known, the other is NaN. A
cell without either is missing. The features of a table follow from the names of its columns and from the codebook
alone. The noisy survey (:mod:`raydr.statistics.noisy_survey`) then finds which columns hold numbers, and which words
are frequent. Words of the codebook have their place as code. Other words have a hash, and never leave their client.

By a codebook, dates are numbers of days, counts are ``log(1 + x)``, pairs are two numbers, and times of day, angles and
other circles have a sine and a cosine, whose limits are known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from raydr.arrays import Float64Array
from raydr.data.survey.codebook import Codebook
from raydr.data.survey.coding import Coding
from raydr.data.survey.layout import Layout
from raydr.errors import DataError
from raydr.wire_types import travels

CODES = 256
"""Number of hash codes of words. Two words of ten frequent ones share a code in 16 of 100 columns."""
OTHER = -1.0
"""Code of a word that the codebook does not have."""
_COMMA = re.compile(r"[-+]?\d+,\d+")
_PLAIN = ("number", "words", "ordinal")
_KINDS = (*_PLAIN, "count", "date", "pair", "time", "circular")


@travels
@dataclass(frozen=True)
class RawColumn:
    """The features of a column whose cells are read one by one, and what the codebook says about it.

    Attributes
    ----------
    name : str
        Name of the column.
    number : int
        Feature with its numbers.
    word : int or None
        Feature with the codes of its words; None for columns of numbers alone.
    words : int
        Number of words in the codebook; 0 if words have hashes.
    low, high : float or None
        Limits of its numbers in the codebook.
    is_circle : bool
        Whether its numbers are sines or cosines of a circle.
    """

    name: str
    number: int
    word: int | None = None
    words: int = 0
    low: float | None = None
    high: float | None = None
    is_circle: bool = False

    @property
    def is_known(self) -> bool:
        """Whether the codebook says all that is needed, so that the column needs no survey."""
        return bool(self.words) or (self.low is not None and self.high is not None)


def raw_layout(columns: Sequence[str], codebook: Codebook | None) -> Layout:
    """Return the layout of these columns, which depends on no cell.

    Raises
    ------
    DataError
        If the codebook gives a column a kind whose cells cannot be read one by one.
    """
    known = {} if codebook is None else codebook.codings
    codings = {}
    for column in columns:
        found = known.get(column, Coding(kind="cell"))
        if codebook is not None and column in known and found.kind not in _KINDS:
            raise DataError(
                f"{codebook.where(column)} gives {column!r} the kind {found.kind}, which a noisy survey cannot read. It"
                f" reads {', '.join(_KINDS)}: change the kind, or give the column the role left out."
            )
        words = codebook.by_name[column].words if codebook is not None and column in known else ()
        ordered = found.kind == "ordinal"
        low, high = (0.0, len(words) - 1.0) if ordered else (found.low, found.high)
        if found.kind == "count":
            low, high = (None if limit is None else float(np.log1p(max(limit, 0.0))) for limit in (low, high))
        codings[column] = Coding(
            kind="cell",
            words=words,
            missing=found.missing,
            period=found.period,
            unit=found.unit,
            low=low,
            high=high,
            cells=None if found.kind == "cell" or found.kind in _PLAIN else found.kind,
        )
    return Layout(tuple(columns), codings=codings)


def raw_columns(layout: Layout) -> tuple[RawColumn, ...]:
    """Return the columns of a layout: raw cells, or features of arrays, which are numbers.

    >>> raw_columns(Layout(("age", "sex"), codings={"sex": Coding(kind="cell", words=("f", "m"))}))[1]
    RawColumn(name='sex', number=1, word=2, words=2, low=None, high=None, is_circle=False)
    """
    found = []
    for column, place in layout.places.items():
        coding = layout.codings.get(column)
        if coding is None:
            found.append(RawColumn(column, place.start))
            continue
        if not coding.has_code:
            found += [
                RawColumn(name, place.start + part, low=-1.0, high=1.0, is_circle=True)
                if coding.is_circle
                else RawColumn(name, place.start + part)
                for part, name in enumerate(coding.names(column))
            ]
            continue
        ordered = coding.low is not None and bool(coding.words)
        words = 0 if ordered else len(coding.words)
        found.append(RawColumn(column, place.start, place.start + 1, words, coding.low, coding.high))
    return tuple(found)


def read_cell(text: str, coding: Coding, *, commas: bool = False) -> tuple[float, float]:
    """Return the number of a cell and the code of its word, one of them or both NaN. Case and blanks do not matter.

    ``commas`` is whether a comma can be a decimal mark, because the file separates cells by another character.

    >>> plain = Coding(kind="cell")
    >>> read_cell(" 1.5 ", plain), read_cell("1,5", plain, commas=True), read_cell("1,5", plain)[0]
    ((1.5, nan), (1.5, nan), nan)
    >>> read_cell("M", Coding(kind="cell", words=("f", "m"))), read_cell("Inf", plain)
    ((nan, 1.0), (nan, nan))
    >>> read_cell("1970-02-01", Coding(kind="cell", cells="date"))
    (31.0, nan)
    >>> read_cell("18:00", Coding(kind="cell", cells="time"))[0]
    -1.0
    """
    if coding.cells in ("date", "time", "pair"):
        numbers = Coding(kind=coding.cells, unit=coding.unit).read(text) or (None,)
        if len(numbers) > 1:
            return (numbers[0], numbers[1]) if np.isfinite(numbers).all() else (np.nan, np.nan)
        return _features(numbers[0], coding)
    word = " ".join(text.split()).casefold()
    if coding.cells == "circular" and coding.words:
        turn = [" ".join(each.split()).casefold() for each in coding.words]
        return _features(float(turn.index(word)) if word in turn else None, coding)
    if coding.words:
        words = [" ".join(each.split()).casefold() for each in coding.words]
        code = float(words.index(word)) if word in words else OTHER
        if coding.low is None:
            return np.nan, code
        return (np.nan if code == OTHER else code), np.nan
    spelt = word.removesuffix(coding.unit.casefold()).strip() if coding.unit else word
    if commas and _COMMA.fullmatch(spelt):
        spelt = spelt.replace(",", ".")
    try:
        number = float(spelt) if "_" not in spelt else None
    except ValueError:
        number = None
    if number is None:
        return (np.nan, hash_code(word)) if coding.cells is None else (np.nan, np.nan)
    known = np.isfinite(number) and number not in coding.missing_numbers
    return _features(number if known else None, coding)


def _features(number: float | None, coding: Coding) -> tuple[float, float]:
    """Return the two features of a cell with this number; both NaN if it has none, or a count is negative."""
    if number is None or (coding.cells == "count" and number < 0.0):
        return np.nan, np.nan
    if coding.is_circle:
        sine, cosine = coding.features(np.array([number]))[0].tolist()
        return sine, cosine
    return (float(np.log1p(number)) if coding.cells == "count" else number), np.nan


def hash_code(word: str) -> float:
    """Return the code of a word, below :data:`CODES`, the same for everybody."""
    return float(
        int.from_bytes(blake2b(word.encode("utf-8", "surrogatepass"), digest_size=4).digest()) % CODES
    )


def read_cells(texts: Sequence[str], coding: Coding, *, commas: bool) -> Float64Array:
    """Return numbers and codes (cells, 2) of cells; an empty text is missing."""
    missing = {*coding.missing, ""}
    different, inverse = np.unique(np.asarray(texts, np.str_), return_inverse=True)
    found = [
        (np.nan, np.nan) if text in missing else read_cell(text, coding, commas=commas)
        for text in different.tolist()
    ]
    return np.array(found, np.float64).reshape(-1, 2)[inverse]
