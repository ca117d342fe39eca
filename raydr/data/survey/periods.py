"""Periods of a column of time: years or months of its dates, or its values as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raydr.data.survey.clock import days_of
from raydr.data.survey.columns import listing
from raydr.errors import DataError
from raydr.plain import natural_order

MOST_PERIODS = 50
"""Largest number of periods. More panels and rows of a table say nothing to a reader."""
ONE_YEAR = 366
"""Largest number of days between the first and the last date that are grouped by month."""


def periods_of(times: Sequence[str], column: str, *, unknown: str) -> Mapping[str, str]:
    """Return the period of each distinct value of a column of time, in the order of the periods.

    If all values are dates, such as 2023-05-17 or 2023-05-17 12:30, the periods are years, or months if the dates
    span at most :data:`ONE_YEAR` days. Other values are periods as they are: numbers by size, text in natural order.

    Parameters
    ----------
    times : sequence of str
        Distinct values.
    column : str
        Name of the column.
    unknown : str
        Value of rows without a time. It is a period of its own, the last one.

    Raises
    ------
    DataError
        If there is only one period, or more than :data:`MOST_PERIODS`, without the unknown one.

    Examples
    --------
    >>> periods_of(["2023-01-31", "2021-05-17", "2023-06-01"], "visit", unknown="(none)")
    {'2021-05-17': '2021', '2023-01-31': '2023', '2023-06-01': '2023'}
    >>> list(periods_of(["visit 10", "visit 9", "(none)"], "visit", unknown="(none)"))
    ['visit 9', 'visit 10', '(none)']
    """
    known = sorted((time for time in times if time != unknown), key=natural_order)
    days = {time: days_of(time) for time in known}
    dates = {time: day for time, day in days.items() if day is not None}
    if known and len(dates) == len(known):
        known = sorted(known, key=dates.__getitem__)
        span = dates[known[-1]] - dates[known[0]] if known else 0.0
        periods = {time: _iso(time)[: 7 if span <= ONE_YEAR else 4] for time in known}
    else:
        periods = {time: time for time in known}
    names = list(dict.fromkeys(periods.values()))
    if len(names) < 2:
        raise DataError(
            f"The column {column!r}, which data.time names, has {'one period' if names else 'no value'}"
            f"{f', {names[0]!r}' if names else ''}. A map by period needs two: name another column, or leave data.time"
            " out."
        )
    if len(names) > MOST_PERIODS:
        raise DataError(
            f"The column {column!r}, which data.time names, has {len(names):,} periods, such as"
            f" {listing(names[:2])}; at most {MOST_PERIODS} can be compared. Name a column of few values, such as the"
            " year, or of dates such as 2023-05-17, which are grouped by year."
        )
    return periods | ({unknown: unknown} if unknown in times else {})


def _iso(time: str) -> str:
    """Return an ISO date, also written as 20230517, so that its first letters are the year and the month."""
    from datetime import datetime

    return datetime.fromisoformat(time.strip()).date().isoformat()
