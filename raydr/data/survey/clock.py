"""Dates and times of day in cells of text."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime

HOURS = 24.0
"""Period of times of day."""
SPREADSHEET = {"spreadsheet": 25_569.0, "spreadsheet 1904": 24_107.0}
"""Numbers that spreadsheets have for 1 January 1970, by the unit of a column of dates."""
_CLOCK = re.compile(
    r"(?P<hour>\d{1,2})(:(?P<minute>[0-5]\d)(:(?P<second>[0-5]\d([.,]\d+)?))?)?( ?(?P<half>[ap])\.?m\.?)?",
    re.IGNORECASE,
)
_LASTING = re.compile(r"\d+:[0-5]\d(:[0-5]\d([.,]\d+)?)?")
_EPOCH, _DAY = datetime(1970, 1, 1, tzinfo=UTC), 86_400.0


def hours_of(text: str) -> float | None:
    """Return a time of day in hours from 0 to 24; None if a text is none.

    >>> hours_of("08:30"), hours_of("8:30 PM"), hours_of("12:15 am"), hours_of("36:10"), hours_of("8")
    (8.5, 20.5, 0.25, None, None)
    """
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
    """
    if all(hours_of(text) is not None for text in texts):
        return "time"
    return "duration" if all(map(_LASTING.fullmatch, texts)) else None


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
