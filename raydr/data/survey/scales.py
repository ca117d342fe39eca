"""Scales and circles that everybody knows, such as none, mild and severe, and the hours of a day."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from raydr.arrays import Float64Array
from raydr.data.survey.coding import Coding
from raydr.data.survey.columns import letters

_LEAST = 3  # words of a column that show a scale
_RANGE = re.compile(
    r"((?P<below>[<\u2264]=?|under |up to )|(?P<above>[>\u2265]=? ?|over ))?(?P<low>\d+(\.\d+)?)"
    r"( ?(-|to|\u2013) ?(?P<high>\d+(\.\d+)?)|(?P<more>\+))?[^\d]{0,12}"
)
_SCALES = tuple(
    tuple(frozenset(map(letters, rank.split("/"))) for rank in scale.split(" < "))
    for scale in (
        "none/no/absent < very mild/minimal < mild < moderate < severe < very severe/extreme",
        "very low < low < medium/moderate/normal/average/middle < high < very high",
        "very small < small < medium < large < very large",
        "strongly disagree/completely disagree < disagree < somewhat disagree/slightly disagree"
        " < neutral/neither agree nor disagree/undecided < somewhat agree/slightly agree < agree"
        " < strongly agree/completely agree",
        "very dissatisfied < dissatisfied < neutral/neither satisfied nor dissatisfied < satisfied < very satisfied",
        "very unlikely < unlikely < neutral < likely < very likely",
        "never < almost never < rarely/seldom < sometimes/occasionally < often/frequently/usually"
        " < almost always/very often < always",
        "very poor < poor < fair < good < very good < excellent",
        "not at all < a little/a little bit/slightly < somewhat/moderately < quite a bit/very < very much/extremely",
        "very bad < bad < neutral/average/medium < good < very good",
        "none/never < some/sometimes/occas/occasional < regul/regular/marked < freq/frequent/heavy",
        "beginner < intermediate < advanced < expert",
        "stage i < stage ii < stage iii < stage iv",
        "xxs < xs < s < m < l < xl < xxl < xxxl",
        "bronze < silver < gold < platinum",
        "below college < college/some college < bachelor/bachelors < master/masters < doctor/doctorate/phd",
        "first/1st < second/2nd < third/3rd < fourth/4th < fifth/5th",
        "asstprof/assistant professor < assocprof/associate professor < prof/professor/full professor",
    )
)
"""Ranks of each scale, from low to high. Of words that mean the same, separated by /, a column may have one."""


def in_order(words: Sequence[str]) -> tuple[str, ...] | None:
    """Return the words from low to high if they are at least three ranks of one scale or ranges, else None.

    >>> in_order(["Mild", "None", "Severe"]), in_order(["blue", "mild", "severe"]), in_order(["no", "none", "mild"])
    (('None', 'Mild', 'Severe'), None, None)
    >>> in_order(["75+", "0-9 years", "10-74"]), in_order(["10-20", "15-30", "40+"])
    (('0-9 years', '10-74', '75+'), None)
    """
    if len(words) < _LEAST:
        return None
    if ranges := _ranges(words):
        return ranges
    plain = list(map(letters, words))
    for scale in _SCALES:
        ranks = [next((rank for rank, same in enumerate(scale) if word in same), None) for word in plain]
        known = [rank for rank in ranks if rank is not None]
        if len(set(known)) == len(words):
            return tuple(word for _, word in sorted(zip(known, words, strict=True)))
    return None


def is_partly_in_order(words: Sequence[str]) -> bool:
    """Return whether some words, but not all, are different ranks of one scale.

    >>> is_partly_in_order(["Fair", "Good", "Ideal"]), is_partly_in_order(["good", "red", "blue"])
    (True, False)
    """
    plain = set(map(letters, words))
    return any(1 < sum(bool(rank & plain) for rank in scale) < len(words) for scale in _SCALES)


def _ranges(words: Sequence[str]) -> tuple[str, ...] | None:
    """Return ranges of numbers from low to high if they do not overlap, else None."""
    found = []
    for word in words:
        parts = _RANGE.fullmatch(word.casefold())
        if parts is None:
            return None
        low = float(parts["low"])
        high = np.inf if parts["above"] or parts["more"] else float(parts["high"] or low)
        ends = (-np.inf, low) if parts["below"] else (low, high)
        found.append((*ends, word))
    found.sort()
    ranges = [(low, high) for low, high, _ in found]
    apart = all(high <= low for (_, high), (low, _) in pairwise(ranges)) and len(set(ranges)) == len(words)
    enough = 2 * sum(low < high for low, high in ranges) >= len(words)  # 4, 6 and 8 are no ranges
    return tuple(word for *_, word in found) if apart and enough else None


_DAY, _YEAR, _TURN = (24.0, 0.0, 23.0), (12.0, 1.0, 12.0), (360.0, 0.0, 360.0)
_CIRCLES = {"hour": _DAY, "hourofday": _DAY, "month": _YEAR, "mnth": _YEAR, "monthofyear": _YEAR} | {
    f"{angle}{unit}": _TURN
    for angle in ("winddirection", "winddir", "bearing", "azimuth", "heading")
    for unit in ("", "deg", "degrees")
}
"""Period, least and largest number of a column, by the letters of its name."""
_MONTHS = [
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
]  # fmt: skip


def period_named(column: str) -> float | None:
    """Return the period of a column whose name is that of a circle, such as hour or wind direction.

    >>> period_named("Wind direction (deg)"), period_named("hours")
    (360.0, None)
    """
    circle = _CIRCLES.get(letters(column))
    return None if circle is None else circle[0]


def is_circular(column: str, values: Float64Array) -> bool:
    """Return whether all values (rows,) lie on the circle that the column's name says.

    >>> is_circular("hour", np.array([0.0, 23.0])), is_circular("hour", np.array([0.5, 31.0]))
    (True, False)
    """
    circle = _CIRCLES.get(letters(column))
    if circle is None or not len(values):
        return False
    period, low, high = circle
    whole = period == _TURN[0] or bool(np.all(values == np.floor(values)))
    return whole and low <= float(values.min()) and float(values.max()) <= high


def ordered(column: str, words: Sequence[str]) -> Coding | None:
    """Return the coding of words with an order: a scale, or months in a column called month; else None.

    >>> ordered("month", ["Feb", "Dec", "Jan"]).kind, ordered("name", ["Feb", "Dec", "Jan"])
    ('circular', None)
    """
    order = in_order(words)
    if order is not None:
        return Coding(kind="ordinal", words=order)
    if period_named(column) != _YEAR[0] or len(words) < 2:
        return None
    months = _months(words)
    return None if months is None else Coding(kind="circular", words=months)


def _months(words: Sequence[str]) -> tuple[str, ...] | None:
    """Return the twelve months as the words spell them, each by three or more letters; None if one is no month."""
    by_place: dict[int, str] = {}
    for word in words:
        start = word.rstrip(".").casefold()
        place = next((at for at, name in enumerate(_MONTHS) if name.casefold().startswith(start)), None)
        if place is None or len(start) < len(_MONTHS[4]) or place in by_place:
            return None
        by_place[place] = word
    short = max(map(len, words)) == len(_MONTHS[4])
    form = str.upper if words[0].isupper() else str.lower if words[0].islower() else str
    others = [form(name[:3] if short else name) for name in _MONTHS]
    return tuple(by_place.get(place, name) for place, name in enumerate(others))
