"""Which columns of tables are mapped, and as what, the same at all sites.

Each site surveys its own columns first. It tells what each column holds, and of a column of few words those words that
enough of its rows have; of an identity it tells no word. Such a column becomes a column of zeros and ones for each
word that enough sites have (:mod:`raydr.data.spelling`). A row with any other word is none of them: all zeros.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import BoolArray, Float64Array
from raydr.data.columns import reads_as_number, refuse_repeats, require
from raydr.data.layout import Categories, Layout
from raydr.data.spelling import Agreement, Threshold, spell_out
from raydr.errors import DataError

Kind: TypeAlias = Literal["number", "numbering", "text", "one word", "identity", "much text", "date", "empty"]

MOST_WORDS = 50
"""Of a column that becomes columns of zeros and ones; one with more is an identity or free text."""
_LONGEST = 100  # bytes of a word; longer ones are free text
_DATE = re.compile(r"\d{1,4}([-./])\d{1,2}\1\d{1,4}([ T]\d{1,2}:\d{2}.*)?|\d{1,2}:\d{2}(:\d{2})?")
_NUMBERING = re.compile(r"(^|[_\W])(id|ids|uid|uuid|guid|mrn|nr|no|number|index|row|identifier)$")
TEXT_KINDS = frozenset[Kind]({"text", "one word", "identity", "much text"})

WHY: Mapping[Kind, str] = {
    "numbering": "whole numbers that tell rows apart, as its name says: an identity",
    "date": "dates or times",
    "identity": "text with more than one value for every two rows: an identity or free text",
    "much text": f"text of more than {MOST_WORDS} different values: an identity or free text",
    "one word": "one word in each site's rows: it names the site, or tells no row from another",
    "text": "text",
    "empty": "no value at all",
}
"""Why a column is left out that could have been a feature, by what it holds."""


@dataclass(frozen=True)
class Survey:
    """A site's view of its columns: their ``kinds``, in order, and the ``words`` that it may tell."""

    kinds: Mapping[str, Kind]
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def kind_of_texts(counts: Mapping[str, int]) -> Kind:
    """Return what a column of text holds, by how many rows have each of its values.

    A column with more than one value for every two rows is an identity at any number of rows: on average fewer than
    two rows share a value, so no value describes a group. Where half of the values read as numbers it is a column of
    numbers, of which some cells are to be corrected.

    Examples
    --------
    >>> kind_of_texts({"P-000": 1, "P-001": 1, "P-002": 1}), kind_of_texts({"f": 20, "m": 19})
    ('identity', 'text')
    """
    if not counts:
        return "empty"
    if 2 * sum(map(reads_as_number, counts)) >= len(counts):
        return "number"
    if all(_DATE.fullmatch(text) for text in counts):
        return "date"
    return kind_of_words(counts)


def kind_of_words(counts: Mapping[str, int]) -> Kind:
    """Return what one site's rows make of a column that is text."""
    if not counts:
        return "empty"
    if len(counts) > MOST_WORDS or any(len(text.encode()) > _LONGEST for text in counts):
        return "much text"
    if len(counts) == 1:
        return "one word"
    return "identity" if 2 * len(counts) > sum(counts.values()) else "text"


def words_to_tell(counts: Mapping[str, int], kind: Kind, threshold: Threshold) -> tuple[str, ...]:
    """Return the words of a column that a site may tell: of text, those that enough of its rows have."""
    if kind not in ("text", "one word"):
        return ()
    return tuple(sorted(word for word, rows in counts.items() if rows >= threshold.rows))


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


def agree(
    surveys: Sequence[Survey],
    categories: Categories,
    *,
    listed: Sequence[str] | None,
    where: str,
    threshold: Threshold,
) -> Layout:
    """Return what is mapped of sites that are to be mapped together.

    Parameters
    ----------
    surveys : sequence of Survey
        Of each site; a column that one of them does not have is as good as empty there.
    categories : {"error", "leave-out", "one-hot"}
        What becomes of columns of text; with "error" all columns are mapped, so no row decides which, and reading
        refuses what is no number.
    listed : sequence of str or None
        The columns that the user wants mapped, also those that number rows; None for all.
    where : str
        Whose the columns are, for messages.
    threshold : Threshold
        How many sites must have a word that is mapped; each site has told only words of enough rows.

    Raises
    ------
    DataError
        If a column is text at some sites and numbers at others, or nothing is left to map.
    """
    columns = list(dict.fromkeys(column for survey in surveys for column in survey.kinds))
    if listed is not None:
        for column in listed if set(listed) - set(columns) else ():
            require(column, columns, knob="data.features", where=where)
        columns = list(listed)
    if categories == "error":
        return Layout(tuple(columns))
    told = sum(len(column.encode()) + 1 for column in columns)
    kept: list[str] = []
    words: dict[str, tuple[str, ...]] = {}
    left_out: dict[str, str] = {}
    calls, votes = 0, 0
    for column in columns:
        kind = _common([survey.kinds.get(column, "empty") for survey in surveys], column, where)
        if listed is not None:
            kind = "number" if kind == "numbering" else "text" if kind == "one word" else kind
        if kind == "text" and categories == "one-hot":
            least = min(threshold.sites, len(surveys))
            spelt = spell_out([survey.words.get(column, ()) for survey in surveys], least)
            calls, votes = max(calls, spelt.calls), votes + spelt.votes
            if not spelt.words:
                left_out[column] = threshold.why(len(surveys))
                continue
            if len(spelt.words) <= MOST_WORDS:
                words[column] = spelt.words
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
    layout = Layout(tuple(kept), words, left_out, Agreement(told, calls, votes))
    refuse_repeats(
        layout.features, where=where, remedy="rename the column that is called as one of another's words"
    )
    return layout


def _common(kinds: Iterable[Kind], column: str, where: str) -> Kind:
    """Return what a column holds at all sites together; where it is text, most sites decide if it is an identity."""
    votes = [kind for kind in kinds if kind != "empty"]
    there = set(votes)
    if len(there) <= 1:
        return next(iter(there), "empty")
    if there <= {"number", "numbering"}:
        return "number"
    if "date" in there:
        return "date"
    if not there <= TEXT_KINDS:
        raise DataError(
            f"{where}: the column {column!r} is text in some files and numbers in others. Write it alike in all, or"
            " leave it out of data.features."
        )
    if "much text" in there:
        return "much text"
    return "identity" if 2 * votes.count("identity") > len(votes) else "text"


def indicators(
    texts: NDArray[Any], missing: BoolArray, words: Sequence[str]
) -> tuple[Float64Array, tuple[str, ...]]:
    """Zeros and ones (rows, words), NaN where a cell is empty, and words of the column that are none of these."""
    columns = np.stack([texts == word for word in words], axis=1).astype(np.float64)
    columns[missing] = np.nan
    strange = sorted(set(texts[~missing].tolist()) - set(words))
    return columns, tuple(strange)
