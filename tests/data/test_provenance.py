"""A run records its input: columns, dropped rows, scaling and the hash of the data."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import tiny_file, tiny_run_with_report

import raydr
from raydr.data import Provenance, load
from raydr.front.cli import status
from raydr.report.run import mapped
from raydr.runfolder import read_run
from raydr.scenarios.runner import run as run_scenario
from raydr.scenarios.schema.reading import read

HEADER = "hospital,age,bmi,insulin,ward,diagnosis"
FEATURES = ["age", "bmi", "insulin"]


def patients(path: Path, rows: int = 60, gaps: dict[int, int] | None = None) -> Path:
    """Write a table of three hospitals with empty cells at row: column."""
    rng = np.random.default_rng(0)
    lines = []
    for row in range(rows):
        hospital, diagnosis = ("north", "east", "west")[row % 3], ("yes", "no")[row % 2]
        cells = [hospital, *map(str, rng.integers(0, 99, 3)), str(row), diagnosis]
        if gaps and row in gaps:
            cells[gaps[row]] = ""
        lines.append(",".join(cells))
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    return path


GAPS = {0: 1, 3: 2, 4: 3, 7: 5, 8: 0, 9: 4}
"""Empty cells: two of north, two of east, one without a hospital; row 9 has one in an unread column."""


def scenario(table: Path, **data: Any) -> dict[str, Any]:
    return {
        "data": {"path": str(table), "label": "diagnosis", "features": FEATURES, "missing": "drop", **data},
        "clients": {"partition": {"kind": "by-column", "column": "hospital"}},
    }


def facts(folder: Path) -> Provenance:
    return read_run(folder).data


def test_dropped_rows_are_counted_client_by_client(tmp_path: Path) -> None:
    table = patients(tmp_path / "patients.csv", gaps=GAPS)
    found = facts(tiny_run_with_report(tmp_path / "run", **scenario(table, scale="standard")))
    (source,) = found.sources
    assert (found.read, found.dropped, found.not_drawn, found.set_apart, found.mapped) == (60, 5, 0, 0, 55)
    assert found.dropped_by_client == {"east": 2, "north": 2}
    assert found.columns == tuple(FEATURES)
    assert found.scaling == "standard"
    assert source.left_out == {
        "diagnosis": "the label",
        "hospital": "the client",
        "ward": "not in data.features",
    }
    assert source.sha256 == hashlib.sha256(table.read_bytes()).hexdigest()
    assert (source.name, source.hashed, source.named, source.client) == ("patients.csv", "file", True, None)


@pytest.mark.parametrize("rows", [None, 30])
@pytest.mark.parametrize("anchors", [None, 6])
def test_every_row_is_accounted_for(tmp_path: Path, rows: int | None, anchors: int | None) -> None:
    table = patients(tmp_path / "patients.csv", gaps=GAPS)
    overrides = scenario(table, rows=rows)
    if anchors is not None:
        embedder = {"kind": "tsne", "early_iterations": 2, "iterations": 2}
        overrides["method"] = {"kind": "sense", "anchors": anchors, "embedder": embedder}
    found = facts(tiny_run_with_report(tmp_path / "run", **overrides))
    assert found.dropped == 5
    assert found.set_apart == (anchors or 0)
    assert found.mapped == (rows or 55 - (anchors or 0))
    assert found.read == 60 == found.mapped + found.dropped + found.set_apart + found.not_drawn


def test_anchor_file_is_a_separate_source(tmp_path: Path) -> None:
    table = patients(tmp_path / "patients.csv")
    anchors = patients(tmp_path / "anchors.csv", rows=6)
    embedder = {"kind": "tsne", "early_iterations": 2, "iterations": 2}
    method = {"kind": "sense", "anchor_source": "file", "anchor_path": str(anchors), "embedder": embedder}
    folder = tiny_run_with_report(tmp_path / "run", **scenario(table), method=method)
    found = facts(folder)
    assert (found.mapped, found.set_apart) == (60, 0)
    assert found.anchors is not None
    assert found.anchors.sha256 == hashlib.sha256(anchors.read_bytes()).hexdigest()


def test_sites_report_dropped_rows(tmp_path: Path) -> None:
    files = [patients(tmp_path / "north.csv", 20, {0: 1, 1: 2}), patients(tmp_path / "east.csv", 30)]
    content = {
        "name": "sites",
        "data": {"label": "diagnosis", "features": FEATURES, "missing": "drop"},
        "clients": {"sites": [{"path": str(file)} for file in files]},
        "method": {"kind": "fed-tsne", "landmarks": 12, "rounds": 1, "early_iterations": 2, "iterations": 2},
        "runtime": {"federation": "inline"},
        "metrics": [],
    }
    folder = run_scenario(read(content), out=tmp_path / "run")
    found = facts(folder)
    counted = [(source.client, source.rows, source.dropped) for source in found.sources]
    assert counted == [("north", 20, 2), ("east", 30, 0)]
    hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    assert [source.sha256 for source in found.sources] == hashes
    assert found.dropped_by_client == {"north": 2}
    page = (folder / "report.html").read_text()
    for message in (
        "2 client files",
        "2 (north 2)",
    ):
        assert message in page
    for file in ("report.html", "data.json"):
        message = (folder / file).read_text()
        assert not any(digest in message for digest in hashes), "they follow from every row"


def test_built_in_data_set_has_a_hash(tmp_path: Path) -> None:
    once, again = (load(source="iris").read_from for _ in range(2))
    assert once == again
    assert once.hashed == "numbers"
    assert once.left_out == {"y": "the label"}
    assert load(source="wine").read_from.sha256 != once.sha256
    assert facts(tiny_run_with_report(tmp_path / "run")).sources == (once,)


def test_every_number_changes_the_hash(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.eye(4))
    np.savez(tmp_path / "b.npz", X=np.eye(4) * (1 + 1e-16), y=np.arange(4))
    hashes = {load(path=tmp_path / name).read_from.sha256 for name in ("a.npz", "b.npz")}
    assert len(hashes) == 2
    assert not load(path=tmp_path / "a.npz").read_from.named


def test_page_and_terminal_show_provenance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = patients(tmp_path / "patients.csv", gaps=GAPS)
    file = tiny_file(tmp_path, **scenario(table, scale="minmax"))
    assert status(["run", str(file), "--out", str(tmp_path / "run")]) == 0
    line = "55 of 60 rows of patients.csv, 3 columns, minmax scaling; 5 dropped for missing values"
    line += " (east 2, north 2)."
    assert f"{line}\n" in capsys.readouterr().err
    page = (tmp_path / "run" / "report.html").read_text()
    for message in (
        "What was mapped",
        line,
        "5 (east 2, north 2)",
        "3: age, bmi, insulin",
        "diagnosis (the label), hospital (the client), ward (not in data.features)",
        "minmax: each column ranges from 0 to 1",
    ):
        assert message in page, message


def test_many_columns_are_stored_and_shortened_on_the_page(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(30, 200))
    names = np.array([f"gene-{number}" for number in range(200)])
    np.savez(tmp_path / "genes.npz", X=X, feature_names=names)
    folder = tiny_run_with_report(tmp_path / "run", data={"path": str(tmp_path / "genes.npz")})
    assert json.loads((folder / "data.json").read_text())["columns"] == names.tolist()
    page = (folder / "report.html").read_text()
    assert "200: gene-0, " in page
    assert "gene-11 and 188 more, all in data.json" in page


def test_unnamed_columns_stay_unnamed(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(30, 4)))
    data = facts(tiny_run_with_report(tmp_path / "run", data={"path": str(tmp_path / "rows.npy")}))
    assert mapped.Fact("Columns mapped", "4: unnamed") in mapped.facts(data)


def test_run_folder_repeats_its_provenance(tmp_path: Path) -> None:
    table = patients(tmp_path / "patients.csv", gaps=GAPS)
    first = tiny_run_with_report(tmp_path / "first", **scenario(table))
    again = raydr.run(first / "scenario.yaml", out=tmp_path / "again").folder
    assert facts(again) == facts(first)
