"""The time of each row, and the periods of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import Int64Array
from raydr.data import Table
from raydr.data.loading import NO_LABEL
from raydr.data.survey.periods import periods_of
from raydr.errors import DataError, ScenarioError


@dataclass(kw_only=True, frozen=True, eq=False)
class Times:
    """The time of each row as read, and its period.

    Attributes
    ----------
    column : str
        Name of the column.
    of_row : (rows,) int64
        Time of each row, an index of ``names``.
    names : tuple of str
        Distinct times. Some may have no row.
    period_of_row : (rows,) int64
        Period of each row, an index of ``period_names``.
    period_names : tuple of str
        Periods in their order. Each has at least one row.
    """

    column: str
    of_row: Int64Array
    names: tuple[str, ...]

    period_of_row: Int64Array
    period_names: tuple[str, ...]


def times_of(column: str | None, codes: Int64Array | None, names: tuple[str, ...]) -> Times | None:
    """Return the times of rows, or None without a column of time.

    Raises
    ------
    DataError
        If there is one period, or too many.
    ScenarioError
        If rows in memory have no times.
    """
    if column is None:
        return None
    if codes is None:  # rows in memory
        raise ScenarioError(
            f"data.time is {column!r}, but the rows have no times: pass time={column!r} to the estimator."
        )
    there = np.unique(codes)
    by_time = periods_of([names[code] for code in there], column, unknown=NO_LABEL)
    period_names = tuple(dict.fromkeys(by_time.values()))
    place = {period: number for number, period in enumerate(period_names)}
    of_time = np.full(len(names), -1, np.int64)
    of_time[there] = [place[by_time[names[code]]] for code in there]
    return Times(
        column=column,
        of_row=codes,
        names=names,
        period_of_row=of_time[codes],
        period_names=period_names,
    )


def times_of_sites(column: str | None, times: Sequence[NDArray[Any] | None]) -> Times | None:
    """Return the times of all rows, from those of each site (rows,); raises as :func:`times_of`."""
    if column is None:
        return None
    names, codes = np.unique(np.concatenate([np.asarray(own) for own in times]), return_inverse=True)
    return times_of(column, codes.astype(np.int64), tuple(map(str, names)))


def times_with(times: Times | None, tables: Sequence[Table]) -> Times | None:
    """Return the times of rows, and of the rows of further tables.

    Raises
    ------
    DataError
        If a table has no times, or there are too many periods.
    """
    if times is None:
        return None
    names, codes = times.names, [times.of_row]
    for table in tables:
        if table.times is None:
            raise DataError(
                f"{table.name} has no time for some of its rows: add the column {times.column!r}, which data.time"
                " names."
            )
        names += tuple(name for name in table.time_names if name not in set(names))
        place = {name: number for number, name in enumerate(names)}
        codes.append(np.array([place[name] for name in table.time_names], np.int64)[table.times])
    return times_of(times.column, np.concatenate(codes), names)
