"""Times of day are circles of 24 hours, and dates are days if a codebook says so."""

from __future__ import annotations

import csv
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydr.data.loading import load
from raydr.data.site import SiteFile, laid_out
from raydr.data.survey.clock import days_of, hours_of, kind_of_clock
from raydr.data.survey.codebook import Codebook, ColumnSettings, read_codebook, written
from raydr.data.survey.layout import Layout
from raydr.data.table import Table
from raydr.errors import DataError

ROWS = 40
HOURS = np.arange(ROWS) * 7 % 24 + np.arange(ROWS) % 4 / 4.0


def clock(hours: float, form: str) -> str:
    """Write a time of day."""
    hour, minute = int(hours), round(hours % 1 * 60)
    match form:
        case "12 hours":
            return f"{hour % 12 or 12}:{minute:02} {'PM' if hour >= 12 else 'AM'}"
        case "dotted":
            return f"{hour % 12 or 12}:{minute:02}{'p' if hour >= 12 else 'a'}.m."
        case "seconds":
            return f"{hour:02}:{minute:02}:00"
        case "short":
            return f"{hour}:{minute:02}"
        case _:
            return f"{hour:02}:{minute:02}"


def write_table(path: Path, columns: dict[str, list[Any]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])
    return path


def circle(table: Table, column: str) -> Any:
    places = table.layout.places[column]
    return table.rows[:, places]


def on_circle(hours: Any) -> Any:
    angles = 2.0 * np.pi * np.asarray(hours) / 24.0
    return np.column_stack([np.sin(angles), np.cos(angles)])


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("00:00", 0.0), ("08:30", 8.5), ("8:30", 8.5), ("23:59:30", 24.0 - 0.5 / 60), ("24:00", 24.0),
        ("12:00 AM", 0.0), ("12:00 pm", 12.0), ("8 PM", 20.0), ("8:30 p.m.", 20.5), (" 7:15am", 7.25),
        ("24:01", None), ("36:10", None), ("13:00 PM", None), ("0:10 AM", None), ("8:60", None), ("8", None),
        ("8:3", None), ("noon", None), ("2021-03-05 08:30", None), ("", None),
    ],
)  # fmt: skip
def test_times_of_day_are_read_in_hours(text: str, hours: float | None) -> None:
    assert hours_of(text) == (None if hours is None else pytest.approx(hours))


@pytest.mark.parametrize("form", ["24 hours", "12 hours", "dotted", "seconds", "short"])
def test_times_become_a_circle_in_every_writing(tmp_path: Path, form: str) -> None:
    cells = [clock(hours, form) for hours in HOURS]
    cells[3] = "" if form == "24 hours" else "unknown"
    path = write_table(tmp_path / "t.csv", {"arrival": cells, "x": list(range(ROWS))})
    table = load(path=path, categories="one-hot", missing="mean")
    assert table.features == ("arrival (sine)", "arrival (cosine)", "x")
    expected = on_circle(HOURS)
    expected[3] = np.nan
    np.testing.assert_allclose(circle(table, "arrival"), expected, atol=1e-12)
    assert any("'arrival': read as a time of day, on a circle of 24 hours" in doubt for doubt in table.doubts)
    assert table.layout.joint.circles == ((0, 2),), "so a circle counts as one column"


def test_times_of_parquet_are_a_circle(tmp_path: Path) -> None:
    times = [time(int(hours), round(hours % 1 * 60)) for hours in HOURS]
    columns = {"arrival": pa.array(times, pa.time64("us")), "x": pa.array(np.arange(ROWS))}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    table = load(path=tmp_path / "t.parquet", categories="one-hot")
    np.testing.assert_allclose(circle(table, "arrival"), on_circle(HOURS), atol=1e-12)


@pytest.mark.parametrize(
    ("column", "cells", "reason"),
    [
        ("worked", ["08:30", "36:10", "7:05"], "durations such as 36:10"),
        ("Ride duration", ["00:30", "01:10", "00:05"], "durations such as 36:10"),
        ("when", ["08:30", "2021-03-05", "2021-03-06"], "dates or times"),
    ],
)
def test_durations_are_left_out(tmp_path: Path, column: str, cells: list[str], reason: str) -> None:
    """Also if Arrow reads the cells as times."""
    path = write_table(
        tmp_path / "t.csv", {column: [cells[row % 3] for row in range(9)], "x": list(range(9))}
    )
    table = load(path=path, categories="one-hot")
    assert table.features == ("x",)
    assert reason in table.read_from.left_out[column]


def test_sites_agree_on_times(tmp_path: Path) -> None:
    """Times at one site and durations at another are durations; without values, a site does not decide."""

    def agreed(*cells: str) -> Layout:
        files = [
            SiteFile(
                path=str(write_table(tmp_path / f"{at}.csv", {"t": [cell] * 9, "x": list(range(9))})),
                categories="one-hot",
                missing="mean",
            )
            for at, cell in enumerate(cells)
        ]
        return laid_out(files[0], [file.survey() for file in files])

    assert agreed("08:30", "9:15 PM", "").features == ("t (sine)", "t (cosine)", "x")
    assert "durations" in agreed("08:30", "36:10").left_out["t"]


def test_new_rows_are_read_as_times_and_refused_by_cell(tmp_path: Path) -> None:
    table = load(
        path=write_table(
            tmp_path / "t.csv", {"t": [clock(each, "24 hours") for each in HOURS], "x": list(range(ROWS))}
        ),
        categories="one-hot",
    )
    layout = table.layout
    new = write_table(tmp_path / "new.csv", {"t": ["9:15 PM", "08:30"], "x": [1, 2]})
    found = load(path=new, layout=layout, for_map=False)
    np.testing.assert_allclose(circle(found, "t"), on_circle([21.25, 8.5]), atol=1e-12)
    write_table(new, {"t": ["9:15", "late"], "x": [1, 2]})
    with pytest.raises(DataError, match=r"holds 'late' on line 3, but it is read as a time of day"):
        load(path=new, layout=layout, for_map=False)


def test_codebook_decides_between_times_and_words(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {"shift": ["06:00", "14:00", "22:00"] * 9, "x": list(range(27))})
    words = Codebook((ColumnSettings(column="shift", kind="words"),))
    assert load(path=path, categories="one-hot", codebook=words).features[:3] == (
        "shift=06:00", "shift=14:00", "shift=22:00",
    )  # fmt: skip
    times = Codebook((ColumnSettings(column="shift", kind="time", missing=("22:00",)),))
    found = load(path=path, codebook=times, missing="mean")
    expected = on_circle([6.0, 14.0, np.nan] * 9)
    np.testing.assert_allclose(circle(found, "shift"), expected, atol=1e-12)


def test_dates_of_a_codebook_are_days_however_they_are_written(tmp_path: Path) -> None:
    days = [date(2020, 2, 28), date(2023, 3, 15), date(1999, 12, 31)]
    serials = [(day - date(1899, 12, 30)).days for day in days]
    assert serials[1] == 45000, "15 March 2023"
    since = [(day - date(1970, 1, 1)).days for day in days]
    writings: dict[str, tuple[list[Any], str | None]] = {
        "iso": ([day.isoformat() for day in days], None),
        "compact": ([day.strftime("%Y%m%d") for day in days], None),
        "excel": (serials, "spreadsheet"),
        "both": ([serials[0], days[1].isoformat(), f"{serials[2]}.0"], "spreadsheet"),
        "mac": ([serial - 1462 for serial in serials], "spreadsheet 1904"),
        "german": ([day.strftime("%d.%m.%Y") for day in days], "%d.%m.%Y"),
        "american": ([day.strftime("%m/%d/%y") for day in days], "%m/%d/%y"),
    }
    path = write_table(tmp_path / "t.csv", {name: ["", *cells] for name, (cells, _) in writings.items()})
    book = Codebook(
        tuple(ColumnSettings(column=name, kind="date", unit=unit) for name, (_, unit) in writings.items())
    )
    (tmp_path / "book.csv").write_text(written(book.rows))
    assert read_codebook(tmp_path / "book.csv") == book
    table = load(path=path, codebook=book, missing="mean")
    assert table.features == tuple(writings)
    np.testing.assert_array_equal(table.rows, np.array([[np.nan] * 7, *([day] * 7 for day in since)]))
    columns = {"day": pa.array(days), "hour": pa.array([datetime(2020, 1, 1, 6 * hour) for hour in range(3)])}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    stored = Codebook(tuple(ColumnSettings(column=name, kind="date") for name in columns))
    found = load(path=tmp_path / "t.parquet", codebook=stored).rows
    np.testing.assert_array_equal(found[:, 0], since)
    np.testing.assert_allclose(found[:, 1] - found[0, 1], [0.0, 0.25, 0.5], atol=1e-9)


def test_dates_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {"day": ["2021-03-05", "05.03.2021"], "x": [1, 2]})
    with pytest.raises(DataError, match=r"holds '05.03.2021' on line 3, but it is read as date"):
        load(path=path, codebook=Codebook((ColumnSettings(column="day", kind="date"),)))
    with pytest.raises(ValueError, match="the unit of a date is 'days'"):
        ColumnSettings(column="day", kind="date", unit="days")
    with pytest.raises(ValueError, match="low and high are for numbers"):
        ColumnSettings(column="day", kind="time", low=0.0)
    limits = ColumnSettings(column="day", kind="date", low="1970-02-01", high="20000")
    assert (limits.low, limits.high) == (31.0, 20_000.0)
    with pytest.raises(ValueError, match="valid number"):
        ColumnSettings(column="day", kind="number", low="1970-02-01")
    assert days_of("45000") is None
    assert days_of("2021-03-05T01:00+01:00") == days_of("2021-03-05")
    assert kind_of_clock(["36:10"]) == "duration"
