"""How the cells of a column become features, for columns that are more than numbers or words."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from raydr.arrays import Float64Array
from raydr.data.survey.clock import HOURS, days_of, hours_of
from raydr.wire_types import travels

Kind: TypeAlias = Literal["number", "words", "ordinal", "circular", "time", "date", "count", "pair", "list"]
"""Kinds of mapped columns."""
Raw: TypeAlias = Literal["cell"]
"""Kind of a column whose cells are read one by one (:mod:`raydr.data.survey.raw_cells`)."""
SECOND = {"circular": ("sine", "cosine"), "time": ("sine", "cosine"), "pair": ("first", "second")}
"""Kinds of columns with two features, and how these are called."""


@travels
@dataclass(frozen=True, kw_only=True)
class Coding:
    """How one column is read.

    Attributes
    ----------
    kind : str
        ``number`` keeps its numbers. ``words`` becomes zeros and ones. ``ordinal`` becomes the place of its word, from
        0. ``circular`` becomes the sine and cosine of ``2 pi x / period``. ``time``, a time of day such as 08:30, is a
        circle of 24 hours. ``date`` becomes days since 1970. ``count`` becomes ``log(1 + x)``. ``pair``, as in
        120/80, becomes two numbers. ``list`` becomes zeros and ones, one for each word that a cell can have. ``cell``
        keeps a number, or the code of a word, by cell (:mod:`raydr.data.survey.raw_cells`).
    words : tuple of str
        Words of an ordinal column from low to high, of a circular column in their order, or of lists.
    missing : tuple of str
        Cells that are missing values.
    period : float or None
        Length of a circle, in the unit of the column.
    unit : str
        Unit of the numbers; of dates and times, how their cells are written (:func:`raydr.data.survey.clock.days_of`,
        :func:`raydr.data.survey.clock.hours_of`); of lists, a comma if it separates the words.
    low, high : float or None
        Limits of the numbers. Numbers outside are kept, with a notice.
    cells : str or None
        Kind in the codebook of a column of kind ``cell``, if its cells are not read as numbers or words.
    """

    kind: Kind | Raw
    words: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    period: float | None = None
    unit: str = ""
    low: float | None = None
    high: float | None = None
    cells: Kind | None = None

    def names(self, column: str) -> tuple[str, ...]:
        """Return the names of the column's features.

        >>> Coding(kind="circular", period=24).names("hour"), Coding(kind="count").names("visits")
        (('hour (sine)', 'hour (cosine)'), ('visits',))
        """
        if self.kind == "list":
            return tuple(f"{column}={word}" for word in self.words)
        if self.has_code:
            return (column, f"{column} (word)")
        kind = self.kind if self.kind != "cell" else self.cells or "number"
        return tuple(f"{column} ({part})" for part in SECOND.get(kind, ())) or (column,)

    @property
    def missing_numbers(self) -> list[float]:
        """The missing codes that are numbers."""
        numbers = []
        for code in self.missing:
            with suppress(ValueError):
                numbers.append(float(code))
        return numbers

    @property
    def has_code(self) -> bool:
        """Whether the second of two features is the code of a word."""
        return self.kind == "cell" and self.cells not in SECOND

    @property
    def is_circle(self) -> bool:
        """Whether the features are sine and cosine."""
        return "circular" in (self.kind, self.cells) or "time" in (self.kind, self.cells)

    @property
    def by_words(self) -> bool:
        """Whether the cells are words of a fixed list, in an order."""
        return self.kind == "ordinal" or (self.kind == "circular" and bool(self.words))

    @property
    def as_text(self) -> bool:
        """Whether cells are read as text, even if all are digits."""
        return self.by_words or self.kind in ("words", "pair", "time", "date", "list", "cell")

    def read(self, text: str, decimal: str = ".") -> tuple[float, ...] | None:
        """Return the place of a word, hours, days, or the two numbers of a pair; None if the cell is none of these.

        >>> Coding(kind="ordinal", words=("none", "mild")).read("mild"), Coding(kind="pair").read("120/80")
        ((1.0,), (120.0, 80.0))
        """
        if self.kind in ("time", "date"):
            found = hours_of(text, self.unit) if self.kind == "time" else days_of(text, self.unit)
            return None if found is None else (found,)
        if self.kind != "pair":
            return (float(self.words.index(text)),) if text in self.words else None
        first, _, second = text.replace(decimal, ".").partition("/")
        try:
            return float(first), float(second)
        except ValueError:
            return None

    def __str__(self) -> str:
        """Describe the coding in words.

        >>> str(Coding(kind="ordinal", words=("low", "high"))), str(Coding(kind="circular", period=24))
        ('ordinal: low < high', 'circular, period 24')
        """
        if self.kind == "time":
            return "a time of day, on a circle of 24 hours"
        if self.kind == "list":
            return "lists of words, separated by commas" if self.unit else "lists of words"
        if self.words:
            return f"{self.kind}: {' < '.join(self.words)}"
        return self.kind if self.period is None else f"{self.kind}, period {self.period:g}"

    def features(self, values: Float64Array) -> Float64Array:
        """Return the features (rows, 1 or 2) of values (rows,) or (rows, 1), or of pairs (rows, 2). NaN stays.

        >>> Coding(kind="circular", period=24).features(np.array([6.0, 12.0])).round(9).tolist()
        [[1.0, 0.0], [0.0, -1.0]]
        """
        if self.is_circle:
            period = HOURS if "time" in (self.kind, self.cells) else self.period or len(self.words)
            angles = 2 * np.pi * values.ravel() / period
            return np.stack([np.sin(angles), np.cos(angles)], axis=1)
        if self.kind == "count":
            return np.log1p(values).reshape(-1, 1)
        return values.reshape(len(values), -1)


def recognised(codings: Mapping[str, Coding]) -> list[str]:
    """Return a sentence for each column whose kind the survey recognised.

    >>> recognised({"pain": Coding(kind="ordinal", words=("low", "medium", "high"))})[0].partition(".")[0]
    "'pain': read as ordinal: low < medium < high"
    """
    return [
        f"{column!r}: read as {coding}.{' Other words are missing values.' if coding.by_words else ''} If that is"
        " wrong, change its kind in a codebook: `raydr init --codebook FILE`."
        for column, coding in codings.items()
    ]
