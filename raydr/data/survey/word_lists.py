"""Lists of words in a cell, such as ``fever; cough``, ``fever, cough`` and ``["fever", "cough"]``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from raydr.arrays import Float64Array
from raydr.data.survey.written_numbers import writing_of

_BRACKETS = re.compile(r"\[(?P<inside>.*)\]", re.DOTALL)
_PART = re.compile(r"""\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^,"']*))\s*(?:,|$)""")
_SEPARATORS = ";|"
COMMA = ","
"""Unit of lists that are separated by commas."""
_FEWEST = 20
"""At least one of this many rows must have several words, unless the cells have brackets."""


def words_of(cell: str, unit: str = "") -> tuple[str, ...]:
    """Return the words of a cell: in brackets, between semicolons or bars, or the cell itself.

    With a comma as the ``unit``, words are between commas.

    >>> words_of("fever; cough"), words_of('["a b", "c"]'), words_of("fever"), words_of("[]")
    (('fever', 'cough'), ('a b', 'c'), ('fever',), ())
    >>> words_of("fever, cough"), words_of("fever, cough", ",")
    (('fever, cough',), ('fever', 'cough'))
    """
    inside = _BRACKETS.fullmatch(cell.strip())
    if inside is not None:
        parts = [next(filter(None, part), "") for part in _PART.findall(inside["inside"])]
    else:
        separator = next((mark for mark in unit or _SEPARATORS if mark in cell), None)
        parts = [cell] if separator is None else cell.split(separator)
    return tuple(dict.fromkeys(word for part in parts if (word := part.strip())))


def counts_of_words(counts: Mapping[str, int], unit: str = "") -> Counter[str]:
    """Return the number of rows with each word, from the number of rows with each cell."""
    found: Counter[str] = Counter()
    for cell, rows in counts.items():
        for word in words_of(cell, unit):
            found[word] += rows
    return found


def are_lists(counts: Mapping[str, int], unit: str = "") -> bool:
    """Return whether cells are lists of words, by the number of rows with each cell.

    All are in brackets; or one of 20 rows has several words, there are no more words than different cells, and each
    cell of several words shares a word with another cell. Between commas, half of the words that follow another one
    are also first, unlike in ``Boston, MA``. Lists of numbers are none.

    >>> are_lists({"a": 9, "a; b": 5, "b; c": 3}), are_lists({"yes; 3": 9, "no": 9}), are_lists({'["a"]': 1, "[]": 2})
    (True, False, True)
    >>> are_lists({"a": 9, "a, b": 5, "b, c": 3}, ","), are_lists({"x, CA": 9, "y, CA": 5, "x, MA": 4, "y, MA": 3}, ",")
    (True, False)
    """
    words = counts_of_words(counts, unit)
    if not words or writing_of(words) is not None:
        return False
    if all(_BRACKETS.fullmatch(cell.strip()) for cell in counts):
        return True
    lists = {cell: words_of(cell, unit) for cell in counts}
    several = {cell: each for cell, each in lists.items() if len(each) > 1}
    if _FEWEST * sum(counts[cell] for cell in several) < sum(counts.values()) or len(words) > len(counts):
        return False
    later = {word for each in several.values() for word in each[1:]}
    if unit == COMMA and 2 * len(later & {each[0] for each in lists.values() if each}) < len(later):
        return False
    cells = Counter(word for each in lists.values() for word in each)
    return all(any(cells[word] > 1 for word in each) for each in several.values())


def indicators_of(cells: Iterable[str], words: Sequence[str], unit: str = "") -> Float64Array:
    """Return 1 where a cell has a word, and 0 elsewhere: (cells, words)."""
    held = [set(words_of(cell, unit)) for cell in cells]
    return np.array([[float(word in each) for word in words] for each in held]).reshape(len(held), len(words))
