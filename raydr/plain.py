"""Display of small numbers, and of text from untrusted sources, such as labels and names in a run folder."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence

_UNSHOWN = {"Cc", "Cs", "Zl", "Zp"}
"""Control characters, surrogate halves, line and paragraph separators."""
_DIRECTIONS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}
"""Characters that change the direction of the text after them."""


def plain(text: str) -> str:
    r"""Return text on one line, with control characters spelt out.

    >>> plain("\x1b[2Jgone")
    '\\x1b[2Jgone'
    """
    if text.isprintable():
        return text
    return "".join(_spelt(letter) for letter in text)


def short(text: str, longest: int) -> str:
    """Return plain text of at most ``longest`` characters, cut at its end.

    >>> short("a long story", 7)
    'a long…'
    """
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return plain(cut)


def as_cell(text: str) -> str:
    """Return text as a cell of a CSV file, after an apostrophe if a spreadsheet would read it as a formula.

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
    """Join names for a sentence. After ``most`` names, give only the number of the rest.

    >>> listed(["one", "two", "three"], 2)
    'one, two and 1 more'
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def number_in(text: str) -> float | None:
    """Return the finite number that a text spells, or None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def natural_order(name: str) -> tuple[bool, float, list[tuple[bool, int, str]]]:
    """Return a natural sort key: numbers by value, then text.

    >>> sorted(["site 10", "11", "site 9", "9"], key=natural_order)
    ['9', '11', 'site 9', 'site 10']
    """
    number = number_in(name)
    if number is not None:
        return False, number, []
    parts = [(part.isdecimal(), part.lstrip("0")) for part in re.split(r"(\d+)", name)]
    # Compare by the number of digits first, which works for numbers of any length.
    return True, 0.0, [(digits, len(part) if digits else 0, part) for digits, part in parts]


def short_number(value: float) -> str:
    """Return a number with at most six digits and the shortest exponent.

    >>> short_number(1e-5), short_number(0.001)
    ('1e-5', '0.001')
    """
    return f"{value:g}".replace("e-0", "e-").replace("e+0", "e+")


def _spelt(letter: str) -> str:
    odd = unicodedata.category(letter) in _UNSHOWN or ord(letter) in _DIRECTIONS
    return letter.encode("unicode_escape").decode("ascii") if odd else letter
