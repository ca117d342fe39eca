"""Dates and times of day in cells of text."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

HOURS = 24.0
"""Period of times of day."""
SPREADSHEET = {"spreadsheet": 25_569.0, "spreadsheet 1904": 24_107.0}
"""Numbers that spreadsheets have for 1 January 1970, by the unit of a column of dates."""
_CLOCK = re.compile(
    r"(?P<hour>\d{1,2})(:(?P<minute>[0-5]\d)(:(?P<second>[0-5]\d([.,]\d+)?))?)?( ?(?P<half>[ap])\.?m\.?)?",
    re.IGNORECASE,
)
_LASTING = re.compile(
    r"\d+:[0-5]\d(:[0-5]\d([.,]\d+)?)?"
    r"|(?=\d)(\d+ ?h(ours?|rs?)?\.?)?( ?\d+ ?m(in(utes?|s)?)?\.?)?( ?\d+ ?s(ec(onds?|s)?)?\.?)?",
    re.IGNORECASE,
)
DIGITS = "hhmm"
"""Unit of times of day that are written without a colon."""
_LATEST, _FEWEST_TIMES, _FEWEST_HOURS, _FEWEST_MINUTES = 2400, 12, 4, 6
_EPOCH, _DAY = datetime(1970, 1, 1, tzinfo=UTC), 86_400.0


def hours_of(text: str, unit: str = "") -> float | None:
    """Return a time of day in hours from 0 to 24; None if a text is none. With the unit ``hhmm``, 430 is 4:30.

    >>> hours_of("08:30"), hours_of("8:30 PM"), hours_of("12:15 am"), hours_of("36:10"), hours_of("8")
    (8.5, 20.5, 0.25, None, None)
    >>> hours_of("0430", "hhmm"), hours_of("1260", "hhmm")
    (4.5, None)
    """
    if unit == DIGITS and re.fullmatch(r"\d{1,4}", text.strip()):
        hour, minute = divmod(int(text), 100)
        return hour + minute / 60.0 if minute < 60 and int(text) <= _LATEST else None
    parts = _CLOCK.fullmatch(text.strip())
    if parts is None or not (parts["minute"] or parts["half"]):
        return None
    hour, minute, second = (
        int(parts["hour"]),
        int(parts["minute"] or 0),
        float((parts["second"] or "0").replace(",", ".")),
    )
    if parts["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * (parts["half"].casefold() == "p")
    found = hour + minute / 60.0 + second / 3600.0
    return found if found <= HOURS else None


def kind_of_clock(texts: Collection[str]) -> str | None:
    """Return ``time`` if all texts are times of day, ``duration`` if some last longer than a day, or None.

    >>> kind_of_clock(["08:30", "23:59:10"]), kind_of_clock(["08:30", "36:10"]), kind_of_clock(["08:30", "noon"])
    ('time', 'duration', None)
    >>> kind_of_clock(["1h 40m", "2 hours", "45 min"]), kind_of_clock(["40", "1h 40m"])
    ('duration', None)
    """
    if all(hours_of(text) is not None for text in texts):
        return "time"
    return "duration" if all(map(_LASTING.fullmatch, texts)) else None


def are_clock_digits(texts: Collection[str]) -> bool:
    """Return whether texts are four digits such as 0430, all of which are times of day.

    >>> are_clock_digits(["0430", "1200"]), are_clock_digits(["0430", "0460"]), are_clock_digits(["430", "1200"])
    (True, False, False)
    """
    four = all(len(text) == 4 and text.isdigit() for text in texts)
    return four and all(hours_of(text, DIGITS) is not None for text in texts)


def must_be_clock_digits(texts: Collection[str]) -> bool:
    """Return whether :func:`are_clock_digits` is no chance: they are many, of several hours and minutes.

    >>> must_be_clock_digits([f"{hour:02}{minute}" for hour in range(6, 12) for minute in ("00", "30")])
    True
    >>> must_be_clock_digits([f"{hour:02}00" for hour in range(12)])
    False
    """
    several = len({text[:2] for text in texts}) > 1 < len({text[2:] for text in texts})
    return len(texts) >= _FEWEST_TIMES and several and are_clock_digits(texts)


def look_like_clock_digits(values: NDArray[Any]) -> bool:
    """Return whether whole numbers (rows,) such as 430 and 1545 can be times of day without a colon.

    Numbers of a measurement would also end in 60 to 99.

    >>> times = np.array([100 * hour + minute for hour in range(24) for minute in range(0, 60, 7)])
    >>> look_like_clock_digits(times), look_like_clock_digits(np.arange(800)), look_like_clock_digits(times[:9])
    (True, False, False)
    """
    if values.min() < 0 or not 100 * _FEWEST_HOURS <= values.max() <= _LATEST or (values % 100 >= 60).any():
        return False
    hours, minutes = np.divmod(np.unique(values), 100)
    return bool(
        (minutes >= 30).any()
        and (hours > 0).sum() >= 2 * _FEWEST_TIMES
        and len(np.unique(hours)) >= _FEWEST_HOURS
        and len(np.unique(minutes)) >= _FEWEST_MINUTES
    )


def days_of(text: str, unit: str = "") -> float | None:
    """Return a date as days since 1970; None if a text is none.

    Parameters
    ----------
    text : str
        An ISO date, with or without a time, such as 2021-03-05 or 20210305; or what the unit says.
    unit : str
        ``spreadsheet`` and ``spreadsheet 1904``: numbers count days as spreadsheets do. A format with %, such as
        ``%d.%m.%Y``, is that of :meth:`datetime.datetime.strptime`.

    Examples
    --------
    >>> days_of("1970-01-02T12:00"), days_of("45000", "spreadsheet") == days_of("2023-03-15"), days_of("noon")
    (1.5, True, None)
    """
    text = text.strip()
    try:
        if unit in SPREADSHEET and re.fullmatch(r"\d+([.,]\d+)?", text):
            return float(text.replace(",", ".")) - SPREADSHEET[unit]
        found = datetime.strptime(text, unit) if "%" in unit else datetime.fromisoformat(text)
    except ValueError:
        return None
    found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return (found - _EPOCH).total_seconds() / _DAY
