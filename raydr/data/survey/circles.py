"""Columns that are circles by their name: hours, months and directions, as numbers or words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from raydr.arrays import Float64Array
from raydr.data.survey.column_names import parts_of
from raydr.data.survey.columns import letters

_DAY, _YEAR, _TURN = (24.0, 0.0, 23.0), (12.0, 1.0, 12.0), (360.0, 0.0, 360.0)
_CIRCLES = {"hour": _DAY, "hourofday": _DAY, "month": _YEAR, "mnth": _YEAR, "monthofyear": _YEAR} | {
    f"{angle}{unit}": _TURN
    for angle in ("winddirection", "winddir", "bearing", "azimuth", "heading")
    for unit in ("", "deg", "degrees")
}
"""Period, least and largest number of a column, by the letters of its name."""
_PARTS = {"hour": _DAY, "month": _YEAR}
"""The same, by the last part of a name."""
_MONTHS = [
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
]  # fmt: skip

_POINTS = (
    *("N", "NNE", "NE", "ENE", "E", "ESE", "SE", "SSE"),
    *("S", "SSW", "SW", "WSW", "W", "WNW", "NW", "NNW"),
)
_SPELT = {"N": "north", "E": "east", "S": "south", "W": "west"}
_DIRECTIONS = frozenset(("aspect", "bearing", "compass", "dir", "direction", "heading", "wind", "winddir"))
_FEWEST_POINTS = 3
_SECONDARY = 3  # letters of a point such as NNE, which no region has


def period_named(column: str) -> float | None:
    """Return the period of a column whose name is that of a circle, such as hour or wind direction.

    >>> period_named("Wind direction (deg)"), period_named("peak_hour"), period_named("hours"), period_named("per hour")
    (360.0, 24.0, None, None)
    """
    circle = _circle_of(column)
    return None if circle is None else circle[0]


def _circle_of(column: str) -> tuple[float, float, float] | None:
    """Return the period, and the least and largest number, of the circle that a column's name says."""
    last = re.split(r"[_\W]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", column))[-1].casefold()
    weak = _PARTS.get(last) if "per" not in parts_of(column) else None
    return _CIRCLES.get(letters(column)) or weak


def is_circular(column: str, values: Float64Array) -> bool:
    """Return whether all values (rows,) lie on the circle that the column's name says.

    If the name has other parts too, as in peak_hour, the values must be all of the circle: a wait can be in hours.

    >>> is_circular("hour", np.array([0.0, 23.0])), is_circular("hour", np.array([0.5, 31.0]))
    (True, False)
    >>> is_circular("peak_hour", np.array([0.0, 23.0])), is_circular("peak_hour", np.arange(24.0))
    (False, True)
    """
    circle = _circle_of(column)
    if circle is None or not len(values):
        return False
    period, low, high = circle
    whole = period == _TURN[0] or bool(np.all(values == np.floor(values)))
    if not whole or not low <= float(values.min()) <= float(values.max()) <= high:
        return False
    return letters(column) in _CIRCLES or len(np.unique(values)) == high - low + 1


def can_be_circular(column: str, low: float, high: float) -> bool:
    """Return whether whole numbers from low to high can lie on the circle that the column's name says.

    >>> can_be_circular("peak_hour", 2, 17), can_be_circular("peak_hour", 2, 30), can_be_circular("age", 2, 17)
    (True, False, False)
    """
    circle = _circle_of(column)
    return circle is not None and circle[1] <= low and high <= circle[2]


def words_of_circle(column: str, words: Sequence[str]) -> tuple[str, ...] | None:
    """Return all words of the circle, in their order, that a column has: months or points of the compass; else None.

    Months need a column of that name. Points need the name of a direction, or a point such as NNE: north and south
    alone can be regions.

    >>> words_of_circle("month", ["Feb", "Dec", "Jan"])[:3], words_of_circle("name", ["Feb", "Dec", "Jan"])
    (('Jan', 'Feb', 'Mar'), None)
    >>> words_of_circle("wind_dir", ["S", "N", "E"]), words_of_circle("region", ["S", "N", "E"])
    (('N', 'NE', 'E', 'SE', 'S', 'SW', 'W', 'NW'), None)
    """
    if period_named(column) == _YEAR[0] and len(words) > 1:
        return _months(words)
    found = _points(words)
    if found is None or len(words) < _FEWEST_POINTS:
        return None
    named = bool(parts_of(column) & _DIRECTIONS)
    return (
        found if named or any(len(point) == _SECONDARY for point in map(_point_of, words) if point) else None
    )


def _point_of(word: str) -> str | None:
    """Return the point of the compass that a word spells, such as ``NNE``; None if it spells none.

    >>> _point_of("nne"), _point_of("South-West"), _point_of("nothing")
    ('NNE', 'SW', None)
    """
    plain = letters(word)
    for letter, spelt in _SPELT.items():
        plain = plain.replace(spelt, letter.casefold())
    return plain.upper() if plain.upper() in _POINTS else None


def _points(words: Sequence[str]) -> tuple[str, ...] | None:
    """Return 8 or 16 points of the compass as the words spell them; None if one is no point, or two are the same."""
    by_point = {_point_of(word): word for word in words}
    if None in by_point or len(by_point) < len(words):
        return None
    fine = any(len(point) == _SECONDARY for point in by_point if point)
    return _in_form([point for point in _POINTS if fine or len(point) < _SECONDARY], by_point, words)


def _in_form(names: Sequence[str], spelt: Mapping[str | None, str], words: Sequence[str]) -> tuple[str, ...]:
    """Return names of a circle: as the column spells them, or else in the case of its words."""
    form = str.upper if words[0].isupper() else str.lower if words[0].islower() else str
    return tuple(spelt.get(name) or form(name) for name in names)


def _months(words: Sequence[str]) -> tuple[str, ...] | None:
    """Return the twelve months as the words spell them, each by three or more letters; None if one is no month."""
    by_month: dict[str | None, str] = {}
    for word in words:
        start = word.rstrip(".").casefold()
        month = next((name for name in _MONTHS if name.casefold().startswith(start)), None)
        if month is None or len(start) < len(_MONTHS[4]) or month in by_month:
            return None
        by_month[month] = word
    if max(map(len, words)) > len(_MONTHS[4]):
        return _in_form(_MONTHS, by_month, words)
    return _in_form(
        [name[:3] for name in _MONTHS], {month and month[:3]: word for month, word in by_month.items()}, words
    )
