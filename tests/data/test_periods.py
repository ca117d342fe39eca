"""The column of time: how each reader keeps it, and how its values become periods."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydr.data import load
from raydr.data.survey.periods import MOST_PERIODS, periods_of
from raydr.errors import DataError, RaydrError
from raydr.front.own_data import held
from raydr.scenarios.running.client_data import ClientData
from raydr.scenarios.schema.reading import read

DAYS = [
    datetime.date(2021, 11, 30),
    datetime.date(2019, 2, 1),
    datetime.date(2021, 1, 1),
    datetime.date(2020, 7, 9),
]
YEARS = ["2021", "2019", "2021", "2020"]


def periods(times: list[str]) -> dict[str, str]:
    return dict(periods_of(times, "visit", unknown="(none)"))


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (["2021-03-05", "2023-01-01", "2021-12-31"], ["2021", "2021", "2023"]),
        (["2021-03-05", "2021-03-31", "2022-03-05"], ["2021-03", "2021-03", "2022-03"]),
        (["2021-03-05", "2022-03-07"], ["2021", "2022"]),
        (["20210305", "20230101"], ["2021", "2023"]),
        (["2021-03-05T12:30:00", "2023-01-01 08:00"], ["2021", "2023"]),
        (["2019", "2013", "101"], ["101", "2013", "2019"]),
        (["2021-03", "2020-11"], ["2020-11", "2021-03"]),
        (["visit 10", "baseline", "visit 9"], ["baseline", "visit 9", "visit 10"]),
        (["2021-03-05", "later"], ["2021-03-05", "later"]),
        (["(none)", "b", "a"], ["a", "b", "(none)"]),
        (["(none)", "2021-03-05", "2023-03-05"], ["2021", "2023", "(none)"]),
    ],
    ids=str,
)
def test_values_become_periods_in_their_order(times: list[str], expected: list[str]) -> None:
    """Dates of at most a year are grouped by month, others by year; all other values are periods."""
    assert list(periods(times).values()) == expected
    assert set(periods(times)) == set(times)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (["2021"], r"'visit', which data\.time names, has one period, '2021'\. A map by period needs two"),
        (["2021-03-05", "2021-03-09"], r"has one period, '2021-03'"),
        (["2021", "(none)"], r"has one period, '2021'"),
        (["(none)"], r"has no value"),
        ([str(number) for number in range(MOST_PERIODS + 1)], r"has 51 periods.*at most 50.*grouped by year"),
    ],
)
def test_one_period_and_too_many_are_refused(times: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        periods(times)


def test_fifty_periods_are_enough() -> None:
    times = [str(number) for number in range(MOST_PERIODS)]
    assert list(periods([*times, "(none)"])) == [*times, "(none)"]


def written(folder: Path, form: str) -> Path:
    """Return a file with the column or array ``visit``, in a form."""
    values = np.arange(8.0).reshape(4, 2)
    path = folder / f"rows.{form.partition('-')[0]}"
    match form:
        case "csv":
            lines = [f"{a},{day},{b}" for (a, b), day in zip(values, DAYS, strict=True)]
            path.write_text("\n".join(["a,visit,b", *lines]))
        case "parquet-date":
            pq.write_table(pa.table({"a": values[:, 0], "visit": DAYS, "b": values[:, 1]}), path)
        case "parquet-time":
            times = pa.array(np.array(DAYS, "datetime64[ns]"))
            pq.write_table(pa.table({"a": values[:, 0], "visit": times, "b": values[:, 1]}), path)
        case "npz-array":
            np.savez(
                path, X=values, feature_names=np.array(["a", "b"]), visit=np.array(DAYS, "datetime64[D]")
            )
        case "npz-feature":
            years = np.array(YEARS, float)
            np.savez(path, X=np.column_stack([values, years]), feature_names=np.array(["a", "b", "visit"]))
        case "h5ad":
            anndata = pytest.importorskip("anndata")
            pandas = pytest.importorskip("pandas")
            index = pandas.Index(list("wxyz"), dtype=object)
            content = anndata.AnnData(
                X=values, obs=pandas.DataFrame({"visit": YEARS}, index=index, dtype=object)
            )
            content.var_names = pandas.Index(["a", "b"], dtype=object)
            content.write_h5ad(path)
    return path


FORMS = ["csv", "parquet-date", "parquet-time", "npz-array", "npz-feature", "h5ad"]


@pytest.mark.parametrize("form", FORMS)
def test_every_reader_keeps_the_time_and_does_not_map_it(form: str, tmp_path: Path) -> None:
    table = load(path=written(tmp_path, form), time="visit")
    assert table.features == ("a", "b")
    assert np.asarray(table.rows).tolist() == np.arange(8.0).reshape(4, 2).tolist()
    assert table.times is not None
    grouped = periods_of(table.time_names, "visit", unknown="(none)")
    assert [grouped[table.time_names[code]] for code in table.times] == YEARS
    assert table.read_from.left_out.get("visit") == "the time"
    first = table.take(np.array([3, 1]))
    assert first.times is not None
    assert [grouped[table.time_names[code]] for code in first.times] == ["2020", "2019"]


@pytest.mark.parametrize("form", [*FORMS, "npy"])
def test_a_time_that_is_not_there_is_refused(form: str, tmp_path: Path) -> None:
    path = written(tmp_path, form)
    if form == "npy":
        np.save(path, np.eye(3))
    with pytest.raises(DataError, match=r"data\.time"):
        load(path=path, time="visitx")
    if form != "npy":
        with pytest.raises(DataError, match=r"did you mean visit\?|are"):
            load(path=path, time="visitx")


def patients(rows: int = 40) -> list[list[Any]]:
    random = np.random.default_rng(0)
    return [
        [f"h{row % 2}", 2019 + row % 3, *random.normal(size=3).round(3).tolist(), "ab"[row % 2]]
        for row in range(rows)
    ]


def table_of(path: Path, rows: list[list[Any]]) -> Path:
    lines = [",".join(map(str, row)) for row in rows]
    path.write_text("\n".join(["site,year,a,b,c,kind", *lines]) + "\n")
    return path


def client_data(path: Path, **data: Any) -> ClientData:
    content = {
        "name": "years",
        "data": {"path": str(path), "time": "year", "label": "kind"} | data,
        "clients": {"partition": {"kind": "by-column", "column": "site"}},
        "method": {"kind": "fed-pca"},
    }
    return held(read(content))


def test_rows_without_a_time(tmp_path: Path) -> None:
    rows = patients()
    rows[3][1] = rows[8][1] = ""
    path = table_of(tmp_path / "rows.csv", rows)
    with pytest.raises(DataError, match="2 missing values in the column 'year'"):
        client_data(path)
    dropped = client_data(path, missing="drop")
    assert (dropped.rows, dropped.period_names) == (38, ("2019", "2020", "2021"))
    kept = client_data(path, missing="median")
    assert kept.period_names == ("2019", "2020", "2021", "(none)")
    assert kept.periods is not None
    assert np.flatnonzero(kept.periods == 3).tolist() == [3, 8]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"label": "year"}, "time and label both name 'year': leave label out"),
        ({"id": "year"}, "time and id both name 'year'"),
        ({"exclude": ["year"]}, "time names 'year', which is in exclude: remove it there"),
        ({"features": ["a", "year"]}, r"'year' is both data\.time and one of data\.features"),
        ({"time": "site"}, r"data\.time and clients\.partition\.column both name 'site'"),
        ({"time": "yearx"}, r"no column 'yearx', which data\.time names \(did you mean year\?\)"),
    ],
)
def test_a_time_with_another_role_is_refused(data: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(RaydrError, match=message):
        client_data(table_of(tmp_path / "rows.csv", patients()), **data)


def test_a_graph_has_no_time(tmp_path: Path) -> None:
    with pytest.raises(RaydrError, match="a graph has no columns: leave label, time"):
        read(
            {
                "name": "tree",
                "data": {"graph": "tree.csv", "time": "year"},
                "clients": {"count": 2},
                "method": {"kind": "sense"},
            }
        )


def test_files_of_sites_are_grouped_together(tmp_path: Path) -> None:
    """Each site alone has dates of one year, which alone would be months, or one month."""
    described = []
    for name, dates in {"north": ["2020-01-05", "2020-06-07"], "south": ["2022-03-01"] * 2}.items():
        lines = [f"{date},{value},{value**2}" for value, date in enumerate(dates, 1)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["visit,a,b", *lines]))
        described.append({"path": str(tmp_path / f"{name}.csv")})
    content = {
        "name": "files",
        "data": {"time": "visit"},
        "clients": {"sites": described},
        "method": {"kind": "fed-pca"},
    }
    found = held(read(content))
    assert found.feature_names == ("a", "b")
    assert found.period_names == ("2020", "2022")
    assert found.periods is not None
    assert found.periods.tolist() == [0, 0, 1, 1]
    (tmp_path / "south.csv").write_text("when,a,b\n2022-03-01,1,2\n")
    with pytest.raises(DataError, match=r"south\.csv has no column 'visit', which data\.time names"):
        held(read(content))
