"""Choice of the columns to map, identical at all sites.

Each site first surveys its own columns. It reports what each column holds, and for a column of few words, the
words that enough of its rows have. It reports no word of an identity. Such a column becomes one 0/1 column
for each word that enough sites have (:mod:`raydr.data.survey.spelling`). A row with any other word has only zeros
there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import BoolArray, Float64Array
from raydr.data.survey.circles import is_circular, period_named
from raydr.data.survey.clock import DIGITS, kind_of_clock, must_be_clock_digits
from raydr.data.survey.codebook import Codebook, ColumnSettings
from raydr.data.survey.coding import Coding
from raydr.data.survey.column_names import named_as_categories, named_as_identity, named_as_numbering
from raydr.data.survey.columns import reads_as_number, refuse_repeats, require
from raydr.data.survey.layout import Categories, Layout
from raydr.data.survey.scales import ordered
from raydr.data.survey.spelling import Agreement, Spelt, Threshold, spell_out
from raydr.data.survey.word_lists import COMMA, are_lists, counts_of_words, words_of
from raydr.data.survey.written_numbers import are_padded, has_unit, is_code, is_pair
from raydr.errors import DataError

Kind: TypeAlias = Literal[
    "number",
    "numbering",
    "circular",
    "compact date",
    "time",
    "hhmm",
    "duration",
    "code",
    "two codes",
    "many codes",
    "text",
    "one word",
    "identity",
    "much text",
    "sentences",
    "pairs",
    "lists",
    "comma lists",
    "many lists",
    "units",
    "mixture",
    "few",
    "date",
    "empty",
]

MOST_WORDS = 50
"""Maximum words of a column that becomes 0/1 columns. A column with more is an identity or free text."""
_FEW_WORDS = 12  # different values of a column of words, even if most are digits
_LONGEST = 100  # bytes of a word, beyond which it is free text
_SENTENCE = re.compile(r"(\S+\s+){3,}\S*[.!?]")
_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
_DATE = re.compile(
    r"\d{1,4}([-./])\d{1,2}\1\d{1,4}([ T]\d{1,2}:\d{2}.*)?|\d{1,2}:\d{2}(:\d{2})?|(0?[1-9]|1[0-2])/(\d{2}|\d{4})"
    rf"|{_MONTH}[- ](\d{{1,2}},?[- ])?\d{{4}}|\d{{1,2}}[- ]{_MONTH}[- ](\d{{2}}|\d{{4}})"
    r"|\d{4}[- ]?q[1-4]|q[1-4][- ]?\d{4}|\d{4}-?w\d{2}",
    re.IGNORECASE,
)
_FEW_DATES = 3  # different days that show a column of dates
_DAYS = np.array([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_FEWEST_NUMBERED = 20  # rows, below which whole numbers can be distinct by chance
WORDS = frozenset[Kind]({"text", "one word", "identity", "much text", "sentences"})
"""Kinds of a column of text, which differ from site to site."""
LISTS: Mapping[Kind, str] = {"lists": "", "comma lists": COMMA}
"""Kinds of lists of words, and their unit."""
_CODES = frozenset[Kind]({"code", "two codes", "many codes"})
_TEXTS = WORDS | {"pairs", "units", "mixture", "time", "hhmm", "duration", "many lists", *LISTS}

WHY: Mapping[Kind, str] = {
    "numbering": "an identity by its name",
    "many codes": f"codes by its name, with more than {MOST_WORDS} different values or few rows of each",
    "date": "dates or times",
    "duration": "durations such as 36:10 or 1h 40m: write them as numbers, in one unit",
    "compact date": "dates such as 20210305",
    "identity": "text with more than one value for every two rows: an identity or free text",
    "sentences": "sentences: free text",
    "much text": f"text of more than {MOST_WORDS} different values: an identity or free text",
    "units": "numbers with different units or in different writings: write all in the same way",
    "mixture": "partly numbers, partly other text: correct the cells, or make two columns of it",
    "few": "numbers with a unit in too few rows of each site to name it (data.words)",
    "one word": "one word in all rows of each site: it names the site, or does not tell rows apart",
    "lists": "lists of words",
    "many lists": f"lists of more than {MOST_WORDS} different words, or with more words than one for every two rows",
    "text": "text",
    "empty": "no value at all",
}
"""Reasons why a column that could be a feature is left out, by what it holds."""


@dataclass(frozen=True)
class Survey:
    """A site's report on its columns: their ``kinds``, in order, and the ``words`` that it may reveal.

    ``units`` are those of columns of numbers that its file spells as text, "" if they have none. ``least_sites`` is the
    least number of sites that must have a column or a word, by its policy.
    """

    kinds: Mapping[str, Kind]
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    least_sites: int = 1


def kind_of_texts(counts: Mapping[str, int]) -> Kind:
    """Return what a column of text holds, by the number of rows with each of its values.

    A column with more than one value for every two rows is an identity, at any number of rows. On average,
    fewer than two rows share a value, so no value describes a group. If half of the values read as numbers, it is a
    column of numbers with some cells to correct. With many values and less than nine of ten rows with numbers, it is a
    mixture. Few values that repeat are words, such as the cylinders 4, 6, 8 and rotary; so are up to 50 values of which
    the texts repeat, in more than one of ten rows.

    Examples
    --------
    >>> kind_of_texts({"P-000": 1, "P-001": 1, "P-002": 1}), kind_of_texts({"f": 20, "m": 19})
    ('identity', 'text')
    """
    if not counts:
        return "empty"
    rows = sum(counts.values())
    numbers = sum(count for text, count in counts.items() if reads_as_number(text))
    if any(map(is_code, counts)) or are_padded(counts):
        if must_be_clock_digits(counts):
            return "hhmm"
        return kind_of_words(counts)
    if (clock := kind_of_clock(counts)) is not None:
        return "time" if clock == "time" else "duration"
    if all(_DATE.fullmatch(text) for text in counts):
        return "date"
    if (lists := _kind_of_lists(counts)) is not None:
        return lists
    if are_few(counts):
        return kind_of_words(counts)
    if 2 * sum(map(reads_as_number, counts)) >= len(counts):
        if 10 * numbers >= 9 * rows:
            return "number"
        if len(counts) > MOST_WORDS:
            return "mixture"
        others = len(counts) - sum(map(reads_as_number, counts))
        return kind_of_words(counts) if rows - numbers >= 2 * others else "number"  # a word repeats
    if all(map(is_pair, counts)):
        return "pairs"
    kind = kind_of_words(counts)
    return "units" if kind in ("identity", "much text") and all(map(has_unit, counts)) else kind


def _kind_of_lists(counts: Mapping[str, int]) -> Kind | None:
    """Return the kind of a column of lists of words, or None if it is none.

    With many words, most rows must have several, or their words must be half as many as the different cells: a text can
    have a semicolon.
    """
    for kind, unit in LISTS.items():
        if not are_lists(counts, unit):
            continue
        words, rows = counts_of_words(counts, unit), sum(counts.values())
        if (
            len(words) <= MOST_WORDS
            and 2 * len(words) <= rows
            and all(len(word.encode()) <= _LONGEST for word in words)
        ):
            return kind
        several = sum(number for cell, number in counts.items() if words_of(cell, unit) != (cell,))
        if 2 * several > rows or (len(words) > MOST_WORDS and 2 * len(words) <= len(counts)):
            return "many lists"
    return None


def are_few(counts: Mapping[str, int]) -> bool:
    """Return whether texts are few and repeat, by the number of rows with each."""
    return len(counts) <= _FEW_WORDS and 2 * len(counts) <= sum(counts.values())


def kind_of_words(counts: Mapping[str, int]) -> Kind:
    """Return what a text column holds in one site's rows."""
    if not counts:
        return "empty"
    if len(counts) > MOST_WORDS or any(len(text.encode()) > _LONGEST for text in counts):
        return "much text"
    if len(counts) == 1:
        return "one word"
    if 2 * sum(_SENTENCE.fullmatch(text) is not None for text in counts) > len(counts):
        return "sentences"
    return "identity" if 2 * len(counts) > sum(counts.values()) else "text"


def common_words(counts: Mapping[str, int], kind: Kind, threshold: Threshold) -> tuple[str, ...]:
    """Return the words of a text column that a site may reveal: those that enough of its rows have."""
    shown: tuple[Kind, ...] = ("text", "one word", "code", "two codes", *LISTS)
    if kind not in shown and not (kind == "hhmm" and len(counts) <= MOST_WORDS):
        return ()
    return tuple(sorted(word for word, rows in counts.items() if rows >= threshold.rows))


def kind_of_numbers(column: str, values: NDArray[Any]) -> Kind:
    """Return what a column of numbers (rows,) holds, by its name and them.

    Whole numbers that the name calls an identity are one, even if they repeat. Two values, as of a yes or no, are a
    number.

    >>> kind_of_numbers("patient_id", np.array([1, 1, 2, 3])), kind_of_numbers("race", np.array([1, 2, 3, 2, 1]))
    ('numbering', 'code')
    """
    whole = bool(np.all(np.isfinite(values)) and np.all(values == np.floor(values)))
    different = len(np.unique(values))
    if whole and len(values) > 1:
        alone = different == len(values)
        if named_as_identity(column) and (alone or different > 2):
            return "numbering"
        if named_as_numbering(column) and alone and (len(values) >= _FEWEST_NUMBERED or _counts(values)):
            return "numbering"
    if is_circular(column, values):
        return "circular"
    if len(values) and are_compact_dates(values):
        return "compact date"
    return "code" if whole and len(values) and values.min() >= 0 and named_as_categories(column) else "number"


def kind_of_codes(counts: Mapping[str, int]) -> Kind:
    """Return what a column of codes holds in one site's rows."""
    if not counts:
        return "empty"
    if len(counts) <= 2:
        return "two codes"
    return "many codes" if len(counts) > MOST_WORDS or 2 * len(counts) > sum(counts.values()) else "code"


def _counts(values: NDArray[Any]) -> bool:
    """Whether distinct numbers are a count such as 1, 2, 3, in any order."""
    return bool(values.max() - values.min() == len(values) - 1)


def are_compact_dates(values: NDArray[Any]) -> bool:
    """Whether numbers (rows,) are several days of 1900 to 2100, written as 20210305.

    >>> are_compact_dates(np.array([20210305, 20211231, 20200229])), are_compact_dates(np.array([20211301] * 3))
    (True, False)
    """
    if len(np.unique(values)) < _FEW_DATES or values.min() < 19_000_101 or values.max() > 21_001_231:
        return False
    whole = bool(np.all(values == np.floor(values)))
    month, day = values // 100 % 100, values % 100
    inside = (month >= 1) & (month <= 12) & (day >= 1)
    return whole and bool(np.all(inside & (day <= _DAYS[np.where(inside, month, 1).astype(np.int64)])))


def agree(
    surveys: Sequence[Survey],
    categories: Categories,
    *,
    listed: Sequence[str] | None,
    where: str,
    threshold: Threshold,
    codebook: Codebook | None = None,
    spell: Speller | None = None,
) -> Layout:
    """Agree on the columns to map together, from the surveys of all sites.

    Parameters
    ----------
    surveys : sequence of Survey
        One survey per site. A column that a site does not have counts as empty there.
    categories : {"error", "leave-out", "one-hot"}
        What to do with columns of text. With "error" all columns are mapped, so the rows do not decide which,
        and reading refuses text.
    listed : sequence of str or None
        The columns that the user lists, including those that number rows, or None for all.
    where : str
        The owner of the columns, for messages.
    threshold : Threshold
        How many sites must have a word before it is mapped. Each site reports only words of enough rows.
    codebook : Codebook, optional
        What everybody knows about columns. Sites are not asked about these.
    spell : callable, optional
        Asks the sites for the words of columns. By default they are in the surveys.

    Raises
    ------
    DataError
        If a column is text at some sites and numbers at others, or if no column is left to map.
    """
    columns = list(dict.fromkeys(column for survey in surveys for column in survey.kinds))
    if listed is not None:
        for column in listed if set(listed) - set(columns) else ():
            require(column, columns, knob="data.features", where=where)
        columns = list(listed)
    known = {} if codebook is None else codebook.codings
    rows = {} if codebook is None else codebook.by_name
    if categories == "error" and codebook is None:
        return Layout(tuple(columns))
    surveyed = [
        column
        for column in columns
        if (rows[column].finds_words if column in known else categories != "error")
    ]
    name_bytes = sum(len(column.encode()) + 1 for column in surveyed)
    kept: list[str] = []
    words: dict[str, tuple[str, ...]] = {}
    left_out: dict[str, str] = {}
    codings: dict[str, Coding] = {}
    held = {
        column: _held(column, surveys, categories, where, rows.get(column), is_listed=listed is not None)
        for column in columns
        if column not in known or rows[column].finds_words
    }
    spelt_out = {
        column: unit if kind == "lists" else None
        for column, (kind, unit) in held.items()
        if kind in ("text", "code", "lists") and (categories == "one-hot" or column in known)
    }
    least = min(threshold.sites, len(surveys))
    spelt_columns = (spell or partial(spelt_from, surveys))(spelt_out, least) if spelt_out else {}
    calls = max((spelt.calls for spelt in spelt_columns.values()), default=0)
    votes = sum(spelt.votes for spelt in spelt_columns.values())
    for column in columns:
        if column not in held:
            kept.append(column)
            codings[column] = known[column]
            if rows[column].kind == "words":
                words[column] = rows[column].words
            continue
        kind, unit = held[column]
        if column in spelt_columns:
            spelt = spelt_columns[column]
            if not spelt.words:
                left_out[column] = threshold.why(len(surveys))
                continue
            order = None if column in known or kind == "lists" else ordered(column, spelt.words)
            if kind == "lists" and len(spelt.words) <= MOST_WORDS:
                codings[column] = replace(
                    known.get(column, Coding(kind="list", unit=unit)), words=spelt.words
                )
            elif kind == "lists":
                kind = "many lists"
            elif order is not None:
                codings[column] = order
            elif len(spelt.words) <= MOST_WORDS:
                words[column] = spelt.words
                codings |= {column: known[column]} if column in known else {}
            else:
                kind = "much text"
        if kind == "circular":
            codings[column] = Coding(kind="circular", period=period_named(column))
        elif kind == "pairs":
            codings[column] = Coding(kind="pair")
        elif kind in ("time", "hhmm"):
            codings[column] = Coding(kind="time", unit=DIGITS if kind == "hhmm" else "")
        if kind == "number" or column in words or column in codings:
            kept.append(column)
        else:
            left_out[column] = WHY[kind]
    if not kept:
        each = ", ".join(f"{column!r} ({why})" for column, why in left_out.items())
        raise DataError(
            f"{where} has no column left to map: {each}. Add a column of numbers or of few different words."
        )
    units = _common_units(surveys, kept, where)
    unit_bytes = sum(len(unit.encode()) for unit in units.values())
    asked = name_bytes + unit_bytes
    agreement = Agreement(asked, calls, votes) if asked or calls else None
    layout = Layout(tuple(kept), words, left_out, units, codings, agreement)
    refuse_repeats(
        layout.features,
        where=where,
        remedy="rename the column that has the same name as a word of another column",
    )
    return layout


Speller: TypeAlias = Callable[[Mapping[str, str | None], int], Mapping[str, Spelt]]
"""From columns, with the separator of lists or None, and the least number of sites, to the words of each column."""


def spelt_from(surveys: Sequence[Survey], columns: Mapping[str, str | None], least: int) -> dict[str, Spelt]:
    """Return the words of columns that at least ``least`` of the surveys have; see :data:`Speller`."""
    return {
        column: spell_out([words_to_tell(survey, column, unit) for survey in surveys], least)
        for column, unit in columns.items()
    }


def words_to_tell(survey: Survey, column: str, unit: str | None) -> tuple[str, ...]:
    """Return the words of a column that a site may reveal; ``unit`` separates the words of a list, or is None.

    A site with a single word in each cell of a column of lists reports texts.
    """
    own = survey.words.get(column, ())
    return own if unit is None else tuple(word for word in own if words_of(word, unit) == (word,))


def _held(
    column: str,
    surveys: Sequence[Survey],
    categories: Categories,
    where: str,
    row: ColumnSettings | None,
    *,
    is_listed: bool,
) -> tuple[Kind, str]:
    """Return what a column holds at all sites together, and the separator of lists."""
    kinds = [survey.kinds.get(column, "empty") for survey in surveys]
    kind: Kind = "number" if categories == "error" else _common(kinds, column, where)
    if kind == "code" and categories != "one-hot":
        kind = "number"
    if row is not None and row.coding is not None:
        kind = ("comma lists" if row.unit == COMMA else "lists") if row.kind == "list" else "text"
    elif is_listed:
        plain = ("numbering", "compact date", "code", "many codes")
        kind = "number" if kind in plain else "text" if kind == "one word" else kind
    unit = COMMA if kind == "comma lists" else ""
    return ("lists" if kind == "comma lists" else kind), unit


def _common(kinds: Iterable[Kind], column: str, where: str) -> Kind:
    """Return what a column holds at all sites together. For text, most sites decide whether it is an identity."""
    kinds = list(kinds)
    votes = [kind for kind in kinds if kind not in ("empty", "few")]
    there = set(votes)
    if there == {"two codes"}:
        return "number"
    if len(there) <= 1:
        return next(iter(there), "few" if "few" in kinds else "empty")
    if there <= _CODES:
        return "many codes" if "many codes" in there else "code"
    if there <= {"number", "numbering", "circular", "compact date"} | _CODES:
        return "number"
    if "date" in there:
        return "date"
    if there == {"time", "hhmm"}:
        return "hhmm"
    if there == {"time", "duration"}:
        return "duration"
    if "numbering" in there and there <= _TEXTS | {"numbering"}:
        return "numbering"
    if not there <= _TEXTS:
        raise DataError(
            f"{where}: the column {column!r} is text in some files and numbers in others. Write it the same way in all"
            " files, or name it in data.exclude."
        )
    if there >= LISTS.keys():
        raise DataError(
            f"{where}: the column {column!r} has lists with commas in some files and with semicolons in others. Write"
            " them in the same way, or name the column in data.exclude."
        )
    if there & LISTS.keys() and there <= WORDS | LISTS.keys() | {"many lists"}:
        return "many lists" if "many lists" in there else next(iter(there & LISTS.keys()))
    for free in ("much text", "sentences", "many lists"):
        if free in there:
            return free
    return "identity" if 2 * votes.count("identity") > len(votes) else "text"


def _common_units(surveys: Sequence[Survey], columns: Sequence[str], where: str) -> dict[str, str]:
    """Return the unit of each column that some site spells as text; a site without a value has no say."""
    units: dict[str, str] = {}
    for column in columns:
        if not any(column in survey.units for survey in surveys):
            continue
        there = [survey for survey in surveys if survey.kinds.get(column, "empty") not in ("empty", "few")]
        found = sorted({survey.units.get(column, "") for survey in there})
        if len(found) > 1:
            raise DataError(
                f"{where}: the column {column!r} has the unit {found[-1]!r} in some files and"
                f" {repr(found[0]) if found[0] else 'no unit'} in others. Write it with the same unit in all files."
            )
        units[column] = found[0]
    return units


def indicators(
    texts: NDArray[Any], missing: BoolArray, words: Sequence[str]
) -> tuple[Float64Array, tuple[str, ...]]:
    """Return zeros and ones (rows, words), NaN where a cell is empty, and the column's other words."""
    floats = {f"{word}.0": word for word in words if word.isdigit()}  # codes of a file that writes 1 as 1.0
    if floats:
        texts = np.array([floats.get(text, text) for text in texts.tolist()], np.str_)
    columns = np.stack([texts == word for word in words], axis=1).astype(np.float64)
    columns[missing] = np.nan
    strange = sorted(set(texts[~missing].tolist()) - set(words))
    return columns, tuple(strange)
