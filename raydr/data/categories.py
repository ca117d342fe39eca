"""Columns that are no numbers: which of them are mapped, and as what, the same at all sites.

A column of few words becomes a column of zeros and ones for each of them. Which words there are, sites agree on
without showing whose a word is: they spell them out together. Beginning with nothing, the server names beginnings of
words, and each site says for each byte, and for the end of the word, whether it has such a word: 0 or 1. The server
learns the sums, which tell all words and how many sites have each, and names the longer beginnings next. (Zhu et al.
2020 grow a tree of popular words so; here every word counts, and no noise covers it.)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import BoolArray, Float64Array, Int64Array
from raydr.data.columns import reads_as_number, refuse_repeats, require
from raydr.errors import DataError

Categories: TypeAlias = Literal["error", "leave-out", "one-hot"]
Kind: TypeAlias = Literal["number", "numbering", "text", "much text", "date", "empty"]

MOST_WORDS = 50
"""Of a column that becomes columns of zeros and ones; one with more is an identity or free text."""
_LONGEST = 100  # bytes of a word; longer ones are free text
_END = 256  # the vote beside those on 256 bytes
_DATE = re.compile(r"\d{1,4}([-./])\d{1,2}\1\d{1,4}([ T]\d{1,2}:\d{2}.*)?|\d{1,2}:\d{2}(:\d{2})?")
_NUMBERING = re.compile(r"(^|[_\W])(id|ids|uid|uuid|guid|mrn|nr|no|number|index|row|identifier)$")

WHY: Mapping[Kind, str] = {
    "numbering": "whole numbers that tell rows apart, as its name says: an identity",
    "date": "dates or times",
    "much text": f"text of more than {MOST_WORDS} different values: an identity or free text",
    "text": "text",
    "empty": "no value at all",
}
"""Why a column is left out that could have been a feature, by what it holds."""


@dataclass(frozen=True)
class Survey:
    """What one table holds: ``kinds`` of its feature columns, in their order, and the ``words`` of those of text."""

    kinds: Mapping[str, Kind]
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """Which columns are mapped, and as what.

    Attributes
    ----------
    columns : tuple of str
        Of the table, in their order.
    words : mapping of column to tuple of str
        Of those that become a column of zeros and ones for each word.
    left_out : mapping of column to str
        Columns that are no features, with the reason.
    """

    columns: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of what is mapped.

        >>> Layout(("age", "sex"), {"sex": ("f", "m")}).features
        ('age', 'sex=f', 'sex=m')
        """
        return tuple(
            name
            for column in self.columns
            for name in (
                [f"{column}={word}" for word in self.words[column]] if column in self.words else [column]
            )
        )

    @classmethod
    def of(cls, features: Sequence[str], words: Mapping[str, Sequence[str]]) -> Layout:
        """Return the layout whose features these are."""
        column_of = {f"{column}={word}": column for column, each in words.items() for word in each}
        columns = dict.fromkeys(column_of.get(feature, feature) for feature in features)
        return cls(tuple(columns), {column: tuple(each) for column, each in words.items()})

    @property
    def asked(self) -> tuple[int, int]:
        """How often sites are asked to agree on the words, and how many votes one of them casts in all."""
        spelt = [word.encode() for words in self.words.values() for word in words]
        beginnings = sum(
            len({word.encode()[:length] for word in words for length in range(len(word.encode()) + 1)})
            for words in self.words.values()
        )
        return 1 + max(map(len, spelt), default=-1), (_END + 1) * beginnings


def kind_of_texts(texts: Collection[str]) -> Kind:
    """What a column of text holds, by its different cells that are not empty.

    Where half of them read as numbers it is a column of numbers, of which some cells are to be corrected.
    """
    if not texts:
        return "empty"
    if 2 * sum(map(reads_as_number, texts)) >= len(texts):
        return "number"
    if all(_DATE.fullmatch(text) for text in texts):
        return "date"
    few = len(texts) <= MOST_WORDS and all(len(text.encode()) <= _LONGEST for text in texts)
    return "text" if few else "much text"


def named_as_numbering(column: str) -> bool:
    """Whether a column is called an identity.

    >>> [named_as_numbering(name) for name in ("patient_id", "Row", "fluid")]
    [True, True, False]
    """
    return _NUMBERING.search(column.casefold()) is not None


def numbers_rows(values: NDArray[Any]) -> bool:
    """Whether numbers tell rows apart: whole, and each there once."""
    whole = bool(np.all(np.isfinite(values)) and np.all(values == np.floor(values)))
    return len(values) > 1 and whole and len(np.unique(values)) == len(values)


def agreed(
    surveys: Sequence[Survey], categories: Categories, *, listed: Sequence[str] | None, where: str
) -> Layout:
    """What is mapped of tables that are to be mapped together.

    Parameters
    ----------
    surveys : sequence of Survey
        Of each table; a column that one of them does not have is as good as empty there.
    categories : {"error", "leave-out", "one-hot"}
        What becomes of columns of text; with "error" all columns are mapped, and reading refuses what is no number.
    listed : sequence of str or None
        The columns that the user wants mapped, also those that number rows; None for all.
    where : str
        Of what the tables are, for messages.

    Raises
    ------
    DataError
        If a column is text in some tables and numbers in others, or nothing is left to map.
    """
    columns = list(dict.fromkeys(column for survey in surveys for column in survey.kinds))
    if listed is not None:
        for column in listed if set(listed) - set(columns) else ():
            require(column, columns, knob="data.features", where=where)
        columns = list(listed)
    if categories == "error":
        return Layout(tuple(columns))
    kept: list[str] = []
    words: dict[str, tuple[str, ...]] = {}
    left_out: dict[str, str] = {}
    for column in columns:
        kind = _common({survey.kinds.get(column, "empty") for survey in surveys}, column, where)
        if kind == "numbering" and listed is not None:
            kind = "number"
        if (
            kind == "text"
            and listed is None
            and _names_sites([survey.words.get(column, ()) for survey in surveys])
        ):
            left_out[column] = "one word in each site's rows: it names the site"
            continue
        if kind == "text" and categories == "one-hot":
            found = spelt_out([survey.words.get(column, ()) for survey in surveys])
            if len(found) <= MOST_WORDS:
                words[column] = found
            else:
                kind = "much text"
        if kind == "number" or column in words:
            kept.append(column)
        else:
            left_out[column] = WHY[kind]
    if not kept:
        each = ", ".join(f"{column!r} ({why})" for column, why in left_out.items())
        raise DataError(
            f"{where} has no column left to map: {each}. Add a column of numbers or of few words."
        )
    layout = Layout(tuple(kept), words, left_out)
    refuse_repeats(
        layout.features, where=where, remedy="rename the column that is called as one of another's words"
    )
    return layout


def _names_sites(words: Sequence[Sequence[str]]) -> bool:
    """Whether a column of several sites has one word at each, and at each another."""
    return (
        len(words) > 1
        and all(len(own) == 1 for own in words)
        and len({own[0] for own in words}) == len(words)
    )


def _common(kinds: set[Kind], column: str, where: str) -> Kind:
    there = kinds - {"empty"}
    if len(there) <= 1:
        return next(iter(there), "empty")
    if there <= {"number", "numbering"}:
        return "number"
    if "date" in there:
        return "date"
    if there <= {"text", "much text"}:
        return "much text"
    raise DataError(
        f"{where}: the column {column!r} is text in some files and numbers in others. Write it alike in all, or leave"
        " it out of data.features."
    )


def spelt_out(sites: Sequence[Iterable[str]]) -> tuple[str, ...]:
    """All words that any site has, in order, found by sums of votes alone: see the module.

    >>> spelt_out([["yes", "no"], ["no", "now"], []])
    ('no', 'now', 'yes')
    """
    own = [frozenset(word.encode() for word in words) for words in sites]
    found: list[bytes] = []
    beginnings = [b""]
    while beginnings:
        sums = np.sum([votes(words, beginnings) for words in own], axis=0)
        found += [beginning for beginning, told in zip(beginnings, sums, strict=True) if told[_END]]
        beginnings = [
            beginning + bytes([letter])
            for beginning, told in zip(beginnings, sums, strict=True)
            for letter in np.flatnonzero(told[:_END]).tolist()
        ]
    return tuple(sorted(word.decode() for word in found))


def votes(words: Collection[bytes], beginnings: Sequence[bytes]) -> Int64Array:
    """A site's votes (beginnings, 257), 0 or 1: which bytes follow each beginning in its words, and if one ends."""
    cast = np.zeros((len(beginnings), _END + 1), np.int64)
    for place, beginning in enumerate(beginnings):
        length = len(beginning)
        for word in words:
            if word[:length] == beginning:
                cast[place, word[length] if len(word) > length else _END] = 1
    return cast


def indicators(
    texts: NDArray[Any], missing: BoolArray, words: Sequence[str]
) -> tuple[Float64Array, tuple[str, ...]]:
    """Zeros and ones (rows, words), NaN where a cell is empty, and words of the column that are none of these."""
    columns = np.stack([texts == word for word in words], axis=1).astype(np.float64)
    columns[missing] = np.nan
    strange = sorted(set(texts[~missing].tolist()) - set(words))
    return columns, tuple(strange)
