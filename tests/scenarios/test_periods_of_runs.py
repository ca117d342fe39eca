"""Maps by period: one map, no further message, and what the run folder, the page and the terminal show."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from run_pages import SCRIPT as ODD
from run_pages import read_page

import raydr
from raydr.errors import DataError, ScenarioError
from raydr.front.cli import status
from raydr.front.terminal import print_result
from raydr.report.run.period_rows import sentence, small_maps, table
from raydr.runfolder.reading import read_run

METHOD = {"kind": "fed-tsne", "perplexity": 10, "early_iterations": 20, "iterations": 40}


def rows_of(count: int = 480) -> list[dict[str, Any]]:
    """Return rows of four years and two hospitals. The first column grows with the year; south begins in 2021."""
    random = np.random.default_rng(0)
    found = []
    for row in range(count):
        year, values = 2020 + row // (count // 4), random.normal(size=4)
        values[0] += 1.5 * (year - 2020)
        site = "south" if year > 2020 and row % 2 else "north"
        found.append(
            {"hospital": site, "visit": f"{year}-0{1 + row % 9}-1{row % 10}", "kind": "xy"[row % 2]}
            | {f"v{place}": round(float(value), 4) for place, value in enumerate(values)}
        )
    return found


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        lines = csv.DictWriter(file, list(rows[0]))
        lines.writeheader()
        lines.writerows(rows)
    return path


def content(path: Path, **data: Any) -> dict[str, Any]:
    return {
        "name": "years",
        "data": {"path": str(path), "label": "kind", "scale": "standard", "time": "visit"} | data,
        "clients": {"partition": {"kind": "by-column", "column": "hospital"}},
        "method": METHOD,
        "metrics": ["npa_10", "trustworthiness"],
        "compare": ["central"],
        "runtime": {"federation": "inline", "checkpoint_every": 0},
    }


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("years") / "patients.csv", rows_of())


@pytest.fixture(scope="module")
def run(file: Path) -> raydr.Result:
    return raydr.run(content(file), out=file.parent / "run")


def test_time_changes_neither_the_map_nor_the_messages(run: raydr.Result, file: Path, tmp_path: Path) -> None:
    without = raydr.run(content(file, time=None, exclude=["visit"]), out=tmp_path / "run")
    assert np.array_equal(run.embedding, without.embedding)
    assert run.ledger == without.ledger
    assert run.metrics == without.metrics
    assert without.period_of_row is None
    assert without.periods == []
    assert "periods" not in json.loads((without.folder / "metrics.json").read_text())


def test_each_row_has_its_period(run: raydr.Result) -> None:
    assert run.period_of_row is not None
    assert run.period_of_row.tolist() == [row["visit"][:4] for row in rows_of()]
    years = pq.read_table(run.folder / "embedding.parquet")["period"].to_pylist()
    assert years == run.period_of_row.tolist()
    assert run.to_frame("pandas")["period"].tolist() == years


def test_periods_have_means_of_their_rows(run: raydr.Result) -> None:
    assert [(each["period"], each["rows"], each["sites"]) for each in run.periods] == [
        ("2020", 120, 1),
        ("2021", 120, 2),
        ("2022", 120, 2),
        ("2023", 120, 2),
    ]
    for file, which in (("embedding", "federated"), ("central", "central")):
        kept = pq.read_table(run.folder / f"{file}.parquet")["npa_10"].to_numpy()
        for each in run.periods:
            own = np.asarray(run.period_of_row) == each["period"]
            assert each[which]["npa_10"]["mean"] == pytest.approx(kept[own].mean())
            assert set(each[which]) == {"npa_10", "trustworthiness"}


def test_the_rows_of_a_population_that_moves_are_unlike_the_first(run: raydr.Result) -> None:
    """The first column moves 1.5 standard deviations of a year with each year."""
    unlike = [each["unlike"] / each["compared"] for each in run.periods[1:]]
    assert run.periods[0]["compared"] == 0
    assert unlike[0] < unlike[1] < unlike[2]
    assert unlike[2] > 0.6


def test_page_and_terminal_show_the_periods(run: raydr.Result, capsys: pytest.CaptureFixture[str]) -> None:
    found = read_run(run.folder)
    periods = table(found)
    assert periods is not None
    assert periods.headings == (
        *(
            "Rows",
            "Sites",
            "NPA-10",
            "NPA-10, pooled data",
            "Trustworthiness",
            "Trustworthiness, pooled data",
        ),
        "Unlike the first period",
    )
    assert [line.period for line in periods.lines] == ["2020", "2021", "2022", "2023"]
    assert periods.lines[0].cells[:2] == ("120", "1")
    assert periods.lines[0].cells[-1] == "–"
    assert [small.title for small in small_maps(found)] == [f"{year}: 120 rows" for year in range(2020, 2024)]
    assert sentence(found).startswith("Rows unlike those of the first period, 2020: ")
    page = (run.folder / "report.html").read_text()
    assert sentence(found) in page
    assert all(f'alt="{year}: 120 rows"' in page for year in range(2020, 2024))
    assert '"by": "visit"' in page.replace('"by":"visit"', '"by": "visit"'), "a colour of the map"
    print_result(run.folder)
    printed = capsys.readouterr().err
    assert " ".join(sentence(found).split()) in " ".join(printed.split())
    assert "Unlike the first period" in " ".join(printed.split())


def test_names_of_periods_are_not_read_as_html(tmp_path: Path) -> None:
    rows = [row | {"visit": ODD if row["visit"] < "2022" else "after"} for row in rows_of(80)]
    folder = raydr.run(content(written(tmp_path / "odd.csv", rows)), out=tmp_path / "run").folder
    page = read_page(folder / "report.html")
    assert ODD not in page.raw
    assert ODD in page.text, "as text"
    assert "99" in sentence(read_run(folder)), "the first period is too small to compare with"


def test_run_without_metrics_has_the_rows_of_periods(file: Path, tmp_path: Path) -> None:
    """Nothing is pooled, so nothing is compared."""
    found = raydr.run(content(file) | {"metrics": [], "compare": []}, out=tmp_path / "run")
    assert [each["rows"] for each in found.periods] == [120] * 4
    assert all(each["compared"] == 0 and not each["federated"] for each in found.periods)
    assert sentence(read_run(found.folder)) == ""
    assert not any(entry["kind"] == "pooled evaluation" for entry in found.ledger)


def test_last_period_can_be_held_out(file: Path, tmp_path: Path) -> None:
    rows = [row | {"visit": row["visit"][:4]} for row in rows_of()]
    held_out = {"column": "visit", "value": 2023}
    path = written(tmp_path / "rows.csv", rows)
    found = raydr.run(content(path, holdout=held_out), out=tmp_path / "run")
    assert [each["period"] for each in found.periods] == ["2020", "2021", "2022"]
    assert pq.read_metadata(found.folder / "held_out.parquet").num_rows == 120


def test_command_line_takes_the_time(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--site", "hospital", "--label", "kind", "--time", "visit"]
    assert status(["check", str(file), *options, "--json", str(tmp_path / "survey.json")]) == 0
    survey = json.loads((tmp_path / "survey.json").read_text())
    assert {column["name"]: column["role"] for column in survey["columns"]}["visit"] == "time"
    assert "Periods: visit: 2020 120, 2021 120, 2022 120, 2023 120" in capsys.readouterr().out
    book = tmp_path / "book.csv"
    assert (
        status(["init", str(file), *options, "--codebook", str(book), "--out", str(tmp_path / "s.yaml")]) == 0
    )
    assert "visit,time," in book.read_text()
    found = raydr.run(tmp_path / "s.yaml", out=tmp_path / "run", metrics=[], compare=[], method=METHOD,
                      **{"runtime.federation": "inline"})  # fmt: skip
    assert found.scenario["data"]["time"] == "visit"
    assert len(found.periods) == 4
    capsys.readouterr()
    assert status(["check", str(file), "--site", "hospital", "--time", "visitx"]) == 2
    assert "no column 'visitx', which --time names (did you mean visit?)" in capsys.readouterr().err
    small = ["--set", "metrics=[]", "--set", "compare=[]", "--set", "method.epochs=5", "--inline", "--quiet"]
    assert status(["map", str(file), *options, *small, "--out", str(tmp_path / "map")]) == 0
    assert [each["period"] for each in raydr.load(tmp_path / "map").periods] == [
        "2020",
        "2021",
        "2022",
        "2023",
    ]
    # A codebook names the column as well.
    assert status(["check", str(file), "--codebook", str(book)]) == 0
    assert "Periods: visit: 2020 120" in capsys.readouterr().out


def test_estimator_takes_the_time() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(rows_of())
    model = raydr.FedTSNE(
        label="kind", time="visit", perplexity=10, early_iterations=5, iterations=5, metrics=["npa_10"]
    ).fit(frame, sites="hospital")
    assert [each["rows"] for each in model.result_.periods] == [120] * 4
    assert model.n_features_in_ == 4
    assert model.transform(frame.head(3)).shape == (3, 2)
    with pytest.raises(DataError, match="time is 'visitx', but X has no such column"):
        raydr.FedTSNE(time="visitx").fit(frame)
    with pytest.raises(
        ScenarioError, match=r"data\.time is 'visit', but the rows have no times: pass time='visit'"
    ):
        raydr.FedTSNE(scenario={"data.time": "visit"}).fit(frame[["v0", "v1"]])


def test_redrawn_map_has_the_periods_of_the_new_file(file: Path, tmp_path: Path) -> None:
    rows = [
        row | {"visit": row["visit"].replace("2023", "2025")} for row in rows_of() if row["visit"] > "2023"
    ]
    new = written(tmp_path / "east.csv", [{k: v for k, v in row.items() if k != "hospital"} for row in rows])
    earlier = raydr.run(content(file) | {"compare": []}, out=tmp_path / "run")
    redrawn = raydr.redraw(earlier.folder, new, out=tmp_path / "redrawn")
    assert [(each["period"], each["rows"]) for each in redrawn.periods] == [
        *((str(year), 120) for year in range(2020, 2024)),
        ("2025", len(rows)),
    ]
    joined = raydr.join(earlier.folder, new)
    assert len(joined.joined) == 1
    assert '"no period"' in (joined.folder / "report.html").read_text(), "its rows have no period"
    untimed = written(
        tmp_path / "west.csv",
        [{k: v for k, v in row.items() if k not in ("hospital", "visit")} for row in rows],
    )
    with pytest.raises(
        DataError, match=r"west\.csv has no time for some of its rows: add the column 'visit'"
    ):
        raydr.redraw(earlier.folder, untimed, out=tmp_path / "untimed")


def test_run_with_periods_can_be_repeated(file: Path, tmp_path: Path) -> None:
    """With other seeds, and without a site, which alone had the first period."""
    sections = content(file) | {"compare": [], "metrics": ["npa_10"]}
    folder = raydr.run(sections, out=tmp_path / "run").folder
    assert raydr.stability(folder, seeds=1).stability is not None
    left = raydr.leave(folder, "north", out=tmp_path / "left")
    assert [(each["period"], each["sites"]) for each in left.periods] == [
        ("2021", 1),
        ("2022", 1),
        ("2023", 1),
    ]
