"""The header of a text table: lines above it, a second line of names, and a table without names.

Everything is decided by the first records of the file, and said in a notice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from raydr.data.survey.columns import reads_as_number
from raydr.data.survey.written_numbers import MISSING_WORDS, has_unit

Record: TypeAlias = tuple[int, list[str]]
"""The number of a record's first line, from 1, and its cells."""
_MOST_ABOVE = 20  # records above a header
_LEAST_ROWS = 5  # rows that show what a column holds
_YEARS = range(1900, 2101)
TOTALS = frozenset({"total", "totals", "grand total", "sum", "mean", "average", "summe", "gesamt", "totaal"})
"""Words in lower case that mark a last row of totals."""


@dataclass(frozen=True)
class Header:
    """Place of the names in a text table.

    Attributes
    ----------
    line : int
        Line of the column names, from 1.
    above : bool
        Whether lines above it hold text.
    second : int or None
        Line of further names or units, which is no row; None if there is none.
    """

    line: int = 1
    above: bool = False
    second: int | None = None

    def __str__(self) -> str:
        """Return a sentence on the lines that are not read; an empty string if all are."""
        above = f"{_lines(1, self.line - 1)} above the names of the columns" if self.above else ""
        second = f"line {self.second}, which has further names or units" if self.second else ""
        skipped = " and ".join(part for part in (above, second) if part)
        return f"Not read as rows: {skipped}." if skipped else ""


def find_header(records: Sequence[Record]) -> Header | None:
    """Return the place of the names, or None if the records do not have the shape of a table.

    Lines above the names are comments with ``#``, or titles with few cells. Names of columns come as wide as most
    records, and below a title they do not read as numbers.

    Examples
    --------
    >>> find_header([(1, ["Patients", "", ""]), (2, ["age", "sex", "bmi"]), (3, ["61", "f", "22"])])
    Header(line=2, above=True, second=None)
    """
    width = Counter(len(cells) for _, cells in records).most_common(1)[0][0]
    if width < 2:
        return None
    for place, (line, cells) in enumerate(records[: _MOST_ABOVE + 1]):
        filled = sum(bool(cell.strip()) for cell in cells)
        comment = _is_comment(cells) and not _names_in_comment(records[place:], width)
        if not comment and len(cells) == width and 2 * filled > width:
            if place and any(map(reads_as_number, cells)):
                return None
            return Header(line, place > 0, _second(records[place + 1 :], width))
        if not comment and filled > max(1, width // 3):
            return None
    return None


def _is_comment(cells: Sequence[str]) -> bool:
    return bool(cells) and cells[0].lstrip().startswith("#")


def _names_in_comment(records: Sequence[Record], width: int) -> bool:
    """Return whether the first record, a comment, names the columns, as in many files of biology."""
    (_, cells), *below = records
    if len(cells) != width or not below or _is_comment(below[0][1]):
        return False
    return any(map(reads_as_number, below[0][1]))


def _second(rows: Sequence[Record], width: int) -> int | None:
    """Return the line of the first of the rows if it is a second line of names."""
    if len(rows) <= _LEAST_ROWS or len(rows[0][1]) != width:
        return None
    (line, first), *others = rows
    values = [
        [cells[column].strip() for _, cells in others if column < len(cells)] for column in range(width)
    ]
    numbers = [column for column in range(width) if _holds_numbers(values[column])]
    texts = [first[column].strip() for column in numbers]
    if not numbers or any(text.casefold() in MISSING_WORDS or has_unit(text) for text in texts if text):
        return None
    new = [
        cell.strip()
        for column, cell in enumerate(first)
        if cell.strip() and cell.strip() not in values[column]
    ]
    filled = sum(bool(cell.strip()) for cell in first)
    if any(texts):
        return line if len(new) == filled else None
    # As survey tools write it: nothing above the numbers, and the same word above several answers.
    repeated = any(count > 1 for count in Counter(new).values())
    return line if repeated and len(new) == filled else None


def _holds_numbers(values: Sequence[str]) -> bool:
    """Return whether nearly all cells are filled, and all filled cells are numbers."""
    known = [value for value in values if value and value.casefold() not in MISSING_WORDS]
    return 10 * len(known) >= 9 * len(values) and all(map(reads_as_number, known))


def looks_like_row(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the names are a row: numbers, wherever the rows below have numbers.

    Years and a count such as 0, 1, 2, ... (the default of pandas) are names. So are numbers that increase next to names
    of text, such as the wavelengths of a spectrum. They are not if a column below has the text of its name.
    """
    numbers = {
        column: name
        for column, name in enumerate(names)
        if _holds_numbers([row[column] for row in rows if column < len(row)])
    }
    if not numbers or not rows or not all(map(reads_as_number, numbers.values())):
        return False
    values = [float(name) for name in numbers.values()]
    count = {value - column for value, column in zip(values, numbers, strict=True)} <= {0, 1}
    years = len(set(values)) == len(values) and all(value in _YEARS for value in values)
    if count or years:
        return False
    if len(numbers) == len(names):
        return True
    if any(
        column not in numbers and name in {row[column] for row in rows if column < len(row)}
        for column, name in enumerate(names)
    ):
        return True
    return len(values) > 2 and any(one >= other for one, other in pairwise(values))


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return the names with a number after each that repeats.

    >>> distinct_names(["age", "pain", "pain", "pain.2", "pain"])
    ['age', 'pain', 'pain.3', 'pain.2', 'pain.4']
    """
    taken, found = set(names), []
    seen: Counter[str] = Counter()
    for name in names:
        seen[name] += 1
        fresh = name
        if seen[name] > 1:
            number = seen[name]
            while (fresh := f"{name}.{number}") in taken:
                number += 1
            taken.add(fresh)
        found.append(fresh)
    return found


def _lines(first: int, last: int) -> str:
    return f"line {first}" if first == last else f"lines {first} to {last}"
