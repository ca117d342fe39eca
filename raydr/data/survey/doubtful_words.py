"""Sentences on columns of words that could be read in another way."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from raydr.data.survey.column_names import named_as_categories
from raydr.data.survey.columns import listing, reads_as_number
from raydr.data.survey.scales import is_partly_in_order
from raydr.data.survey.written_numbers import are_padded

_NUMBERED = re.compile(r"[^\W\d]{1,8}[ _-]?\d{1,2}|\d{1,2}[.):] .*|[IVX]{1,4}")
_LEAST = 3  # words that can have an order


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
    ["'grade': words with numbers, read without an order"]
    """
    half = [column for column, each in words.items() if 0 < sum(map(reads_as_number, each)) < len(each)]
    asked = {column: each for column, each in words.items() if column not in certain}
    codes = [
        column
        for column, each in asked.items()
        if named_as_categories(column) and all(map(str.isdigit, each)) and not are_padded(each)
    ]
    several = {column: each for column, each in asked.items() if len(each) >= _LEAST}
    numbered = [column for column, each in several.items() if all(map(_NUMBERED.fullmatch, each))]
    partly = [column for column, each in several.items() if is_partly_in_order(each)]
    change = "in a codebook: `raydr init --codebook FILE`."
    found = (
        (half, "numbers and words, all read as words. If they are numbers, correct the other cells."),
        (
            codes,
            "whole numbers, read as words, since they are named like categories. If they are quantities, give them the"
            f" kind number {change}",
        ),
        (
            numbered,
            f"words with numbers, read without an order. If the numbers are one, give them the kind ordinal {change}",
        ),
        (
            partly,
            "some of the words are a scale, but not all, so they are read without an order. If they have one, give them"
            f" the kind ordinal {change}",
        ),
    )
    return [f"{listing(columns)}: {doubt}" for columns, doubt in found if columns]
