"""Numbers in cells of text: their decimal mark, thousands separator, currency sign and unit.

One convention holds for all cells of a column: ``1.234,5 kg`` next to ``980 kg``. A column whose cells have
different units, or no common convention, is not a column of numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

_SPACES = re.compile("[\u00a0\u2007\u2009\u202f ]+")
_MINUS = re.compile("^([-+])?\u2212")
_CELL = re.compile(
    r"(?P<sign>[-+]?)(?P<currency>[$\u00a2-\u00a5\u20a0-\u20bf]?) ?(?P<minus>-?)"
    r"(?P<digits>(?:\d[\d.,' ]*)?\d|[.,]\d+)(?P<power>[eE][-+]?\d+)? ?"
    r"(?P<unit>[%\u2030\u00b0A-Za-z\u00b5\u03bc$\u20a0-\u20bf\u00a2-\u00a5][^\d,;]{0,15})?"
)
_MARKED = re.compile(
    r"\((?P<negative>[$\u00a2-\u00a5\u20a0-\u20bf]? ?\d[^()]*)\)|(?P<mark>[<>\u2264\u2265])=? ?(?P<bound>[-.,\d].*)"
)
_CODE = re.compile(r"0\d{2,}")
_PAIR = re.compile(r"\d+([.,]\d+)? ?/ ?\d+([.,]\d+)?")
MISSING_WORDS = frozenset(
    """
    -|--|---|\u2013|\u2014|?|??|.|..|...|*|n.a.|n.d.|n/k|na|nan|null|<na>|<null>|unknown|(unknown)|unk|missing|(missing)
    |not available|not known|not recorded|not reported|no data""".replace("\n", "")
    .replace("    ", "")
    .split("|")
)
"""Texts for a missing value, in lower case. "none" is not one of them: it can be the lowest grade of a scale."""


@dataclass(frozen=True)
class Writing:
    """How the cells of a column spell numbers.

    Attributes
    ----------
    decimal : str
        The decimal mark, a point or a comma.
    grouping : str
        The thousands separator, or an empty string.
    unit : str
        What follows the number in each cell, or the currency sign; an empty string if there is none.
    certain : bool
        Whether no other convention is possible: with a comma as decimal mark, ``1,234`` would be 1.234.
    """

    decimal: str = "."
    grouping: str = ""
    unit: str = ""
    certain: bool = True

    def read(self, text: str) -> float:
        """Return the number in a cell, or NaN if the cell is a word for a missing value.

        Raises
        ------
        ValueError
            If the cell is neither, or has another unit.
        """
        text = _unmarked(_plain(text))
        if text.casefold() in MISSING_WORDS:
            return math.nan
        parts = _CELL.fullmatch(text)
        if parts is None or _unit(parts) != self.unit or not self._pattern.fullmatch(parts["digits"]):
            raise ValueError(f"{text!r} is not a number of this column")
        digits = parts["digits"].replace(self.grouping, "") if self.grouping else parts["digits"]
        sign = "-" if "-" in (parts["sign"], parts["minus"]) else ""
        return float(f"{sign}{digits.replace(self.decimal, '.')}{parts['power'] or ''}")

    def reads(self, text: str) -> bool:
        """Return whether a cell is a number in this writing, or a word for a missing value."""
        try:
            self.read(text)
        except ValueError:
            return False
        return True

    @property
    def _pattern(self) -> re.Pattern[str]:
        decimal = re.escape(self.decimal)
        fraction = rf"({decimal}\d*)?|{decimal}\d+"
        if not self.grouping:
            return re.compile(rf"\d+{fraction}")
        return re.compile(rf"(\d+|[1-9]\d{{0,2}}({re.escape(self.grouping)}\d{{3}})+){fraction}")

    def __str__(self) -> str:
        """Describe the writing, for a notice.

        >>> str(Writing(",", ".", "kg"))
        'points for thousands, decimal commas, the unit kg'
        """
        names = {",": "commas", ".": "points", " ": "spaces", "'": "apostrophes"}
        parts = [f"{names[self.grouping]} for thousands"] if self.grouping else []
        parts += ["decimal commas"] if self.decimal == "," else []
        parts += [f"the unit {self.unit}"] if self.unit else []
        return ", ".join(parts) or "words for missing values"


def writing_of(texts: Iterable[str], *, decimal: str = ".", marked: bool = True) -> Writing | None:
    """Return how the distinct cells of a column spell numbers, or None if not all of them do.

    Parameters
    ----------
    texts : iterable of str
        Distinct cells of the column that are not empty.
    decimal : str
        The decimal mark of the other columns of the file. It decides if the cells allow two conventions.
    marked : bool
        Whether cells may be marked: ``(100)`` is -100, and ``<0.5`` and ``>90`` are read by their numbers.

    Examples
    --------
    >>> writing_of(["72.3 kg", "80 kg", "?"])
    Writing(decimal='.', grouping='', unit='kg', certain=True)
    >>> writing_of(["$51,234", "$980"])
    Writing(decimal='.', grouping=',', unit='$', certain=False)
    >>> writing_of(["1 dog", "2 cats"]) is None
    True
    >>> writing_of(["<0.5", "0.7", "0.9"]).read("(100)")
    -100.0
    """
    cells = [_plain(text) for text in texts]
    cells = list(map(_unmarked, cells)) if marked else cells
    parts = [_CELL.fullmatch(text) for text in cells if text.casefold() not in MISSING_WORDS]
    found = [part for part in parts if part is not None]
    units = {_unit(part) for part in found}
    if not found or len(found) < len(parts) or len(units) > 1:
        return None
    digits = [part["digits"] for part in found]
    if any(map(is_code, digits)):
        return None
    marks = set("".join(digits)) & set(".,' ")
    (unit,) = units
    possible = [
        writing
        for mark, grouping in product(".,", ["", *sorted(marks & set(",. '"))])
        if grouping != mark
        and all(map((writing := Writing(mark, grouping, unit))._pattern.fullmatch, digits))
    ]
    if not possible:
        return None
    # The shortest description of each decimal mark: no thousands separator that no cell needs.
    by_mark = {writing.decimal: writing for writing in reversed(possible)}
    if len(by_mark) == 1 or not marks & {".", ","}:
        return by_mark.get(".") or by_mark[","]
    chosen = by_mark[","] if decimal == "," else by_mark["."]
    return Writing(chosen.decimal, chosen.grouping, unit, certain=False)


def is_code(text: str) -> bool:
    """Return whether a cell is a code of digits, since it has a leading zero, as a zip code.

    >>> is_code("00501"), is_code("501"), is_code("0.5"), is_code("00")
    (True, False, False, False)
    """
    return _CODE.fullmatch(text.strip()) is not None


def has_leading_zero(text: str) -> bool:
    """Return whether a cell is a whole number with a leading zero.

    >>> has_leading_zero("07"), has_leading_zero("7"), has_leading_zero("0.7"), has_leading_zero("0")
    (True, False, False, False)
    """
    text = text.strip()
    return len(text) > 1 and text[0] == "0" and text.isdigit()


def are_padded(texts: Iterable[str]) -> bool:
    """Return whether digits are codes, since some have a leading zero: all of one length, or one of three or more.

    >>> are_padded(["01", "12"]), are_padded(["01", "9"]), are_padded(["01", ""]), are_padded(["00501", "501"])
    (True, False, True, True)
    """
    cells = [text.strip() for text in texts if text.strip()]
    if not all(map(str.isdigit, cells)):
        return False
    padded = len(set(map(len, cells))) == 1 and any(map(has_leading_zero, cells))
    return padded or any(map(is_code, cells))


def is_pair(text: str) -> bool:
    """Return whether a cell has two numbers, such as a blood pressure.

    >>> is_pair("120/80"), is_pair("3/4/2021")
    (True, False)
    """
    return _PAIR.fullmatch(text) is not None


def mark_of(text: str) -> str:
    """Return the mark of a number: ``(`` if it is negative, ``<`` or ``>`` if it is a bound, else an empty string.

    >>> mark_of("<= 0.5"), mark_of("(1,234)"), mark_of("(unknown)"), mark_of("5")
    ('<', '(', '', '')
    """
    parts = _MARKED.fullmatch(text.strip())
    return "" if parts is None else "(" if parts["negative"] else parts["mark"]


def _unmarked(text: str) -> str:
    """Return the number in a marked cell, or any other cell unchanged."""
    parts = _MARKED.fullmatch(text)
    return text if parts is None else f"-{parts['negative']}" if parts["negative"] else parts["bound"]


def has_unit(text: str) -> bool:
    """Return whether a cell is a number, with or without a unit."""
    return _CELL.fullmatch(_plain(text)) is not None


def _plain(text: str) -> str:
    """Return a cell with plain spaces, minus signs and apostrophes."""
    return _MINUS.sub(r"\1-", _SPACES.sub(" ", text).strip()).replace("\u2019", "'")


def _unit(parts: re.Match[str]) -> str:
    """Return the unit or currency sign of a cell."""
    return (parts["unit"] or "").strip() or parts["currency"]
