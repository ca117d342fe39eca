"""Islands in metrics.json, on the page and in the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_pages import read_page, write_run

import raydr
from raydr.front.terminal import print_result
from raydr.report import write_report
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


def test_columns_of_few_values_may_make_gaps(tmp_path: Path) -> None:
    assert sentence(run_of(tmp_path / "run", [0, 0], left_out=2)) == (
        f"The map has 2 islands, but none is a separate group of rows {RATE}."
        " The map may have drawn the gaps, or columns of at most ten values make them."
    )


def test_page_and_terminal_show_islands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, folder = run_of(tmp_path / "run", [0, 1, 1]), tmp_path / "run"
    page = read_page(write_report(folder)).text
    assert sentence(run) in page
    assert [(line.center, line.group, line.verdict) for line in lines(run)] == [
        ("1, -2.5", "1", "yes"),
        ("1, -2.5", "2", "no"),
        ("1, -2.5", "2", "no"),
    ]
    assert "1, -2.5" in page
    print_result(folder)
    assert "Of 3 islands of the map, 1 is" in " ".join(capsys.readouterr().err.split())


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
    listed = raydr.run({**scenario, "metrics": ["npa_10"]}, out=tmp_path / "listed")
    assert "islands" not in json.loads((listed.folder / "metrics.json").read_text())
