"""A run as a Python object, from a run or a folder."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import raydr
from raydr.errors import DataError, OutputError, ScenarioError

NAMES = [f"$x_{row}$" for row in range(40)]
HOSPITALS = ["north $1$", "east"]
DIAGNOSES = ["yes", "no", "maybe"]


@pytest.fixture(scope="module", name="run")
def _run(tmp_path_factory: pytest.TempPathFactory) -> raydr.Result:
    """Return a run with row names, owners, classes and the pooled-data map."""
    folder = tmp_path_factory.mktemp("finished")
    rows = np.random.default_rng(0).normal(size=(40, 4)) + 1e8
    table = pd.DataFrame(rows, columns=["age", "bmi", "glucose", "insulin"])
    table["hospital"] = [HOSPITALS[row % 2] for row in range(40)]
    table["diagnosis"] = [DIAGNOSES[row % 3] for row in range(40)]
    table["name"] = NAMES
    table.to_parquet(folder / "patients.parquet", index=False)
    scenario = {
        "name": "patients",
        "data": {
            "path": str(folder / "patients.parquet"),
            "label": "diagnosis",
            "id": "name",
            "scale": "standard",
        },
        "clients": {"partition": {"kind": "by-column", "column": "hospital"}},
        "method": {"kind": "fed-pca"},
        "runtime": {"federation": "inline"},
        "compare": ["central"],
        "metrics": ["npa_10"],
    }
    return raydr.run(scenario, out=folder / "run")


def test_results_are_in_table_order(run: raydr.Result) -> None:
    assert list(run.ids) == NAMES
    assert list(run.sites) == [HOSPITALS[row % 2] for row in range(40)]
    assert run.labels is not None
    assert list(run.labels) == [DIAGNOSES[row % 3] for row in range(40)]
    frame = run.to_frame("pandas")
    np.testing.assert_array_equal(run.embedding, frame[["x", "y"]])
    assert list(frame["row"]) == NAMES
    central = pq.read_table(run.folder / "central.parquet")
    np.testing.assert_array_equal(run.pooled, np.column_stack([central["x"], central["y"]]))
    assert run.clusters is None
    assert run.audit is None
    assert run.report.is_file()


def test_scenario_of_a_result_repeats_the_run(run: raydr.Result, tmp_path: Path) -> None:
    again = raydr.run(run.scenario, out=tmp_path / "again")
    np.testing.assert_array_equal(again.embedding, run.embedding)
    assert (again.scenario, again.metrics, again.ledger) == (run.scenario, run.metrics, run.ledger)


def test_loaded_folder_equals_the_result_of_the_run(run: raydr.Result, tmp_path: Path) -> None:
    assert raydr.load(run.folder) == run
    assert raydr.load(str(run.folder)).metrics == run.metrics
    assert pickle.loads(pickle.dumps(run)) == run
    moved = tmp_path / "moved"
    shutil.copytree(run.folder, moved)
    assert raydr.load(moved).to_frame("pandas").equals(run.to_frame("pandas"))


def test_result_repr_describes_the_run(run: raydr.Result) -> None:
    assert repr(run) == f"<Result({str(run.folder)!r}): 40 rows of 2 clients by fed-pca>"
    assert repr(raydr.Result(Path("gone"))) == "Result('gone')"
    assert "40 rows of 2 clients, coloured by label" in run._repr_html_()


def test_incomplete_runs_are_not_loaded(run: raydr.Result, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(run.folder, broken)
    (broken / "central.parquet").write_bytes(b"no table")
    with pytest.raises(OutputError, match=r"central\.parquet was changed after it was written"):
        raydr.load(broken)
    interrupted = tmp_path / "run.incomplete-1"
    shutil.copytree(run.folder, interrupted)
    with pytest.raises(OutputError, match="--resume"):
        raydr.load(interrupted)
    with pytest.raises(OutputError, match="is not a folder"):
        raydr.load(tmp_path / "nothing")
    swept = tmp_path / "swept"
    swept.mkdir()
    (swept / "sweep.yaml").write_text("name: swept\n")
    with pytest.raises(OutputError, match=r"is a sweep folder.*raydr\.SweepResult"):
        raydr.load(swept)


def test_rows_without_ids_are_numbered(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(30, 3)))
    scenario = {
        "name": "bare",
        "data": {"path": str(tmp_path / "rows.npy")},
        "clients": {"count": 3},
        "method": {"kind": "fed-pca"},
        "runtime": {"federation": "inline"},
        "metrics": [],
    }
    bare = raydr.run(scenario, out=tmp_path / "run")
    assert list(bare.ids) == list(range(30))
    assert bare.labels is None
    assert bare.pooled is None


@pytest.mark.parametrize(
    ("given", "called"),
    [
        (np.zeros((3, 2)), r"ndarray of shape \(3, 2\)"),
        (pd.DataFrame({"a": [1.0]}), r"DataFrame of shape \(1, 1\)"),
        ([np.zeros((3, 2))], "list"),
    ],
)
def test_rows_in_memory_suggest_an_estimator(given: Any, called: str) -> None:
    estimators = r"raydr\.FedUMAP\(\)\.fit.*raydr\.map"
    for ask in (raydr.run, raydr.sweep):
        with pytest.raises(ScenarioError, match=f"got {called}.*{estimators}"):
            ask(given)
    with pytest.raises(DataError, match=f"expected the path of a table, got {called}.*{estimators}"):
        raydr.map(given)


def test_tables_and_scenarios_are_distinguished() -> None:
    with pytest.raises(ScenarioError, match=r"patients\.csv is a table.*raydr map patients\.csv"):
        raydr.run("patients.csv")
