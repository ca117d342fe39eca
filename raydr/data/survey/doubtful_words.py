"""Sentences on columns of words that could be read in another way."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from raydr.data.survey.clock import are_clock_digits
from raydr.data.survey.column_names import named_as_categories, parts_of
from raydr.data.survey.columns import listing, reads_as_number
from raydr.data.survey.scales import is_partly_in_order
from raydr.data.survey.site_names import spelling_of
from raydr.data.survey.written_numbers import are_padded

_NUMBERED = re.compile(r"[^\W\d]{1,8}[ _-]?\d{1,2}|\d{1,2}[.):] .*|[IVX]{1,4}")
_NUMBER = re.compile(r"\d+")
_LEAST = 3  # words that can have an order
_NAMES = frozenset(
    (
        *("education", "frequency", "grade", "importance", "level", "priority", "quality", "rank", "rating"),
        *("satisfaction", "schooling", "severity", "size", "stage"),
    )
)
"""Parts of the names of columns whose words often have an order."""
_DEGREES = frozenset(
    re.findall(
        r"\w+",
        """
        advanced always bad basic best better early first full good heavy high junior large late least less light little
        long low lower major medium middle mild minor moderate more most much never none often old partial poor primary
        rarely second secondary senior severe short slight small some strong tertiary third upper very weak worse worst
        young
        """,
    )
)
"""Parts of words that compare."""
_ALIKE = (
    "{0} that differ only in case or blanks, such as Yes and yes, are different {0}. If they mean the same, write them"
    " alike."
)


def may_have_order(column: str, words: Sequence[str]) -> bool:
    """Return whether words can have an order that raydr does not know.

    They have numbers, are some of a scale, compare, are letters in a row, or the column is named like an order.

    >>> may_have_order("form", ["F0", "F1", "F2"]), may_have_order("cut", ["Fair", "Good", "Ideal"])
    (True, True)
    >>> may_have_order("colour", ["red", "blue", "green"]), may_have_order("room", ["A", "B", "C"])
    (False, True)
    """
    if len(words) < _LEAST or all(map(str.isdigit, words)) or named_as_categories(column):
        return False
    numbers = [found[0] for word in words if len(found := _NUMBER.findall(word)) == 1]
    plain = sorted(word.casefold() for word in words)
    return bool(
        all(map(_NUMBERED.fullmatch, words))
        or len(words) - 1 <= len(numbers) == len(set(numbers))
        or is_partly_in_order(words)
        or len(frozenset().union(*(parts_of(word) & _DEGREES for word in words))) > 1
        or plain == ["h", "l", "m"]
        or plain == [chr(ord(plain[0][0]) + place) for place in range(len(plain))]
        or parts_of(column) & _NAMES
    )


def of_words(words: Mapping[str, Sequence[str]], certain: Collection[str] = ()) -> list[str]:
    """Return a sentence for each doubt about columns of words, which lists the columns.

    Parameters
    ----------
    words : mapping of column to sequence of str
        Words of each column.
    certain : collection of str
        Columns whose kind the user gave.

    Examples
    --------
    >>> [doubt.partition(".")[0] for doubt in of_words({"grade": ["I", "II", "III"], "sex": ["f", "m"]})]
    ["'grade': words that can have an order, read without one"]
    >>> of_words({"smoker": ["Yes", "no", "yes"]})[0].partition(",")[0]
    "'smoker': words that differ only in case or blanks"
    """
    half = [column for column, each in words.items() if 0 < sum(map(reads_as_number, each)) < len(each)]
    asked = {column: each for column, each in words.items() if column not in certain}
    codes = [
        column
        for column, each in asked.items()
        if named_as_categories(column) and all(map(str.isdigit, each)) and not are_padded(each)
    ]
    unsure = [column for column, each in asked.items() if may_have_order(column, each)]
    times = [
        column
        for column, each in asked.items()
        if are_clock_digits(each) and len({text[:2] for text in each}) > 1
    ]
    alike = [column for column, each in asked.items() if _are_alike(each)]
    change = "in a codebook: `raydr init --codebook FILE`."
    found = (
        (half, "numbers and words, all read as words. If they are numbers, correct the other cells."),
        (
            codes,
            "whole numbers, read as words, since they are named like categories. If they are quantities, give them the"
            f" kind number {change}",
        ),
        (
            times,
            "four digits that can be times of day such as 0430, read as words. If they are, give them the kind time"
            f" with the unit hhmm {change}",
        ),
        (
            unsure,
            "words that can have an order, read without one. If they have one, give them the kind ordinal, with the"
            f" words from low to high, {change}",
        ),
        (
            alike,
            _ALIKE.format("words"),
        ),
    )
    return [f"{listing(columns)}: {doubt}" for columns, doubt in found if columns]


def of_classes(classes: Sequence[str]) -> list[str]:
    """Return a sentence if classes of the label differ only in case or blanks, otherwise none.

    >>> len(of_classes(["No", "Yes", "yes "])), len(of_classes(["No", "Yes"]))
    (1, 0)
    """
    return [f"The label: {_ALIKE.format('classes')}"] if _are_alike(classes) else []


def _are_alike(words: Sequence[str]) -> bool:
    return len(set(map(spelling_of, words))) < len(words)
