"""Islands in metrics.json, on the page and in the terminal."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from run_pages import ROWS, read_page, write_run

import raydr
from raydr.errors import OutputError
from raydr.front.terminal import print_result
from raydr.report import write_report
from raydr.report.colouring import GREY, colouring, with_grey
from raydr.report.map.atlas import map_of_run
from raydr.report.run.island_rows import lines, sentence
from raydr.runfolder.reading import RunFolder, read_run

pytestmark = pytest.mark.usefixtures("edits_accepted")


def run_of(folder: Path, groups: list[int], left_out: int = 0) -> RunFolder:
    found = [
        {"rows": 90, "center": [1.0, -2.5], "group": group, "p": 0.025, "separate": groups.count(group) == 1}
        for group in groups
    ]
    measures: dict[str, Any] = {
        "federated": {"npa_10": 0.3},
        "central": {},
        "not_computed": {},
        "islands": {"rows": 90 * len(groups), "left_out": left_out, "found": found},
    }
    return read_run(write_run(folder, metrics=measures))


RATE = "at a false-discovery rate of 5 % (more if a cluster is bent)"
GAPS = "The map may have drawn the gaps between them."


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([], "The map has no islands."),
        (
            [0, 0, 0],
            f"The map has 3 islands, but none is a separate group of rows {RATE}. The map may have drawn the gaps.",
        ),
        ([0, 1, 2], f"All 3 islands of the map are separate groups of rows {RATE}."),
        (
            [0, 1, 2, 2],
            f"Of 4 islands of the map, 2 are separate groups of rows {RATE}. The other 2 may be one group. {GAPS}",
        ),
        (
            [0, 0, 1, 1, 2],
            f"Of 5 islands of the map, 1 is a separate group of rows {RATE}. The other 4 may be 2 groups. {GAPS}",
        ),
        (
            [0, 0, 1, 1],
            f"Of 4 islands of the map, none are separate groups of rows {RATE}. The other 4 may be 2 groups. {GAPS}",
        ),
    ],
)
def test_sentence_counts_islands(tmp_path: Path, groups: list[int], expected: str) -> None:
    assert sentence(run_of(tmp_path / "run", groups)) == expected


@pytest.mark.parametrize("equal", [ROWS // 2, ROWS // 2 + 1, ROWS])
def test_sentence_says_that_most_rows_lie_at_one_point(tmp_path: Path, equal: int) -> None:
    """Such a map has no islands, and a continuity of 1."""
    run = run_of(tmp_path / "run", [])
    places = run.federated.copy()
    places[:equal] = 0.5
    expected = f"{equal} of {ROWS} rows lie at one point of the map: it does not show how they differ."
    assert sentence(replace(run, federated=places)) == (
        "The map has no islands." if equal == ROWS // 2 else expected
    )


def test_columns_of_few_values_may_make_gaps(tmp_path: Path) -> None:
    assert sentence(run_of(tmp_path / "run", [0, 0], left_out=2)) == (
        f"The map has 2 islands, but none is a separate group of rows {RATE}."
        " The map may have drawn the gaps. Columns of at most ten values may make them too: the test leaves these"
        " out."
    )


def test_page_and_terminal_show_islands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, folder = run_of(tmp_path / "run", [0, 1, 1]), tmp_path / "run"
    page = read_page(write_report(folder)).text
    assert sentence(run) in page
    assert [(line.name, line.group, line.verdict) for line in lines(run)] == [
        ("1 at 1, -2.5", "1", "yes"),
        ("2 at 1, -2.5", "2", "no"),
        ("3 at 1, -2.5", "2", "no"),
    ]
    assert "3 at 1, -2.5" in page
    assert [(line.mostly, line.columns) for line in lines(run)] == [("", "")] * 3
    print_result(folder)
    assert "Of 3 islands of the map, 1 is" in " ".join(capsys.readouterr().err.split())


def test_page_tells_what_is_in_an_island_and_colours_it(tmp_path: Path) -> None:
    island = [1] * 24 + [2] * (ROWS - 24)
    clients = ["north"] * 20 + ["south"] * (ROWS - 20)
    labels = ["sick" if row % 4 else None for row in range(ROWS)]
    folder = write_run(tmp_path / "run", clients=clients, labels=labels)
    table = pq.read_table(folder / "embedding.parquet")
    pq.write_table(table.append_column("island", pa.array(island)), folder / "embedding.parquet")
    measures = json.loads((folder / "metrics.json").read_text())
    first = {"rows": 24, "center": [0, 0], "group": 0, "p": 0.025, "separate": True, "differing": 4}
    first["largest"] = [{"column": "age", "auc": 0.875}, {"column": "weight", "auc": 0.25}]
    second = {"rows": ROWS - 24, "center": [9, 9], "group": 1, "p": 0.025, "separate": True}
    measures["islands"] = {"rows": ROWS, "left_out": 0, "found": [first, second]}
    (folder / "metrics.json").write_text(json.dumps(measures))
    run = read_run(folder)
    north, south = lines(run)
    assert north.columns == "age higher (88%), weight lower (75%), 2 more"
    assert north.mostly == "label sick (75%), client north (83%)"
    assert south.mostly == f"label sick (75%), client south ({1:.0%})"
    assert south.columns == ""
    assert north.columns in read_page(write_report(folder)).text
    found = map_of_run(run)
    (way,) = (way for way in found.header["ways"] if way["by"] == "island")
    assert way["kind"] == "categories"
    assert way["columns"][1] is None  # the pooled-data map has other islands
    later = with_grey(colouring("island", ["1", "2"]), 2)
    assert [later.names[code] for code in later.codes] == ["1", "2", "no island", "no island"]
    assert later.colours[2] == GREY


def test_broken_islands_are_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    table = pq.read_table(folder / "embedding.parquet")
    pq.write_table(table.append_column("island", pa.array([0.5] * ROWS)), folder / "embedding.parquet")
    with pytest.raises(OutputError, match="has islands that are not whole numbers"):
        read_run(folder)


def test_run_finds_islands_with_default_metrics_only(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(120, 3))
    rows[:60] += 9
    np.save(tmp_path / "rows.npy", rows)
    scenario = {
        "name": "islands",
        "data": {"path": str(tmp_path / "rows.npy")},
        "clients": {"count": 2},
        "method": {"kind": "fed-pca"},
        "runtime": {"federation": "inline"},
    }
    result = raydr.run(scenario, out=tmp_path / "default")
    measures = json.loads((result.folder / "metrics.json").read_text())["islands"]
    assert measures["rows"] == 120
    assert [(each["rows"], each["separate"]) for each in measures["found"]] == [(60, True), (60, True)]
    assert [(each["differing"], len(each["largest"])) for each in result.islands] == [(3, 3), (3, 3)]
    assert {each["auc"] for island in result.islands for each in island["largest"]} == {0.0, 1.0}
    island = pq.read_table(result.folder / "embedding.parquet")["island"].to_numpy()
    assert len(set(island[:60])) == len(set(island[60:])) == 1
    added = raydr.run({**scenario, "metrics": ["default", "reliable"]}, out=tmp_path / "added")
    assert added.islands == result.islands
    assert added.metrics["federated"].keys() == {*result.metrics["federated"], "reliable"}
    listed = raydr.run({**scenario, "metrics": ["npa_10"]}, out=tmp_path / "listed")
    assert "islands" not in json.loads((listed.folder / "metrics.json").read_text())
    assert listed.islands == []
