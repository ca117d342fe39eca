"""Text of others, such as labels and names in a run folder, made fit to be shown: it says much and does nothing."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_UNSHOWN = {"Cc", "Cs", "Zl", "Zp"}
"""Control characters, halves of surrogate pairs, line and paragraph separators."""
_DIRECTIONS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}
"""Characters that turn the order of all that follows them."""


def plain(text: str) -> str:
    r"""Text on one line, in which control characters are spelt out instead of obeyed.

    >>> plain("\x1b[2Jgone")
    '\\x1b[2Jgone'
    """
    if text.isprintable():
        return text
    return "".join(_spelt(letter) for letter in text)


def short(text: str, longest: int) -> str:
    """Plain text of at most so many letters, cut at its end.

    >>> short("a long story", 7)
    'a long…'
    """
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return plain(cut)


def as_cell(text: str) -> str:
    """Return text as a cell of a CSV file: behind an apostrophe where a spreadsheet would take it for a formula.

    >>> as_cell("=1+2"), as_cell("-1.5"), as_cell("north")
    ("'=1+2", '-1.5', 'north')
    """
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def listed(names: Sequence[str], most: int) -> str:
    """Names in a sentence; past ``most`` only how many more there are.

    >>> listed(["one", "two", "three"], 2)
    'one, two and 1 more'
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def _spelt(letter: str) -> str:
    odd = unicodedata.category(letter) in _UNSHOWN or ord(letter) in _DIRECTIONS
    return letter.encode("unicode_escape").decode("ascii") if odd else letter
