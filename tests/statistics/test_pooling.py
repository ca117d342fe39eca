"""Rows are pooled only if a feature of the run needs pooled rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import tiny, tiny_run_with_report

import raydr
from raydr.scenarios.running.backend import InlineBackend
from raydr.scenarios.running.evaluation import Findings, Question
from raydr.statistics.preparing import Preparation
from raydr.statistics.scaling import Scaling

ASKED = {
    "a metric": {"metrics": ["npa_10"]},
    "a pooled map": {"metrics": [], "compare": ["central"]},
    "maps along the way": {"metrics": [], "evaluate_every": 1},
    "new rows": {"metrics": [], "data__holdout": 0.2},
    "columns": {"metrics": [], "show": ["petal length (cm)"]},
}


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[Question]:
    """Return the questions that reach the evaluation."""
    found: list[Question] = []
    evaluate = InlineBackend.evaluate

    def received(self: InlineBackend, work: Any, question: Question, **others: Any) -> Any:
        found.append(question)
        return evaluate(self, work, question, **others)

    monkeypatch.setattr(InlineBackend, "evaluate", received)
    return found


def kinds(folder: Path) -> set[str]:
    return {entry["kind"] for entry in json.loads((folder / "ledger.json").read_text())}


@pytest.mark.parametrize("scale", ["none", "standard"])
def test_run_without_metrics_pools_no_rows(tmp_path: Path, questions: list[Question], scale: str) -> None:
    folder = tiny_run_with_report(tmp_path / "run", metrics=[], data__scale=scale)
    assert questions == []
    assert "pooled evaluation" not in kinds(folder)
    assert json.loads((folder / "metrics.json").read_text()) == {
        "federated": {},
        "central": {},
        "not_computed": {},
    }
    judged = tiny_run_with_report(tmp_path / "judged", data__scale=scale)
    assert len(questions) == 1
    for file in ("embedding.png", "report.html"):
        assert (folder / file).is_file()
    assert np.array_equal(raydr.load(folder).embedding, raydr.load(judged).embedding)


@pytest.mark.parametrize("what", ASKED)
def test_features_that_need_pooled_rows_pool_them(
    tmp_path: Path, questions: list[Question], what: str
) -> None:
    folder = tiny_run_with_report(tmp_path / "run", **ASKED[what])
    assert len(questions) == 1
    assert "pooled evaluation" in kinds(folder)


def test_recovered_geometry_leaves_the_server_only_for_metrics(
    tmp_path: Path, questions: list[Question]
) -> None:
    for number, metrics in enumerate((["npa_10"], ["npa_10", "f_score"], "default")):
        tiny_run_with_report(tmp_path / str(number), metrics=metrics)
    assert [question.outcome.geometry is not None for question in questions] == [False, True, True]


def test_columns_with_large_variance_are_named_without_pooling(
    tmp_path: Path, questions: list[Question]
) -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(60, 4)) * [1.0, 1.0, 1.0, 900.0] + 5.0
    content = tiny() | {"metrics": [], "data": {"path": str(tmp_path / "rows.csv"), "scale": "none"}}
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header="a,b,c,wide", comments="")
    result = raydr.run(content, out=tmp_path / "run")
    assert questions == []
    notices = json.loads((result.folder / "data.json").read_text())["notices"]
    assert any("'wide'" in notice for notice in notices)


def test_deviation_of_parts_equals_deviation_of_all_rows() -> None:
    random = np.random.default_rng(1)
    parts = [random.normal(size=(count, 3)) + count for count in (1, 7, 40)]
    scaling = Scaling(np.arange(3.0), np.array([1.0, 2.0, 0.5]))
    found = Findings.of_parts(parts, Preparation(scaling))
    expected = Preparation(scaling).applied(np.concatenate(parts)).std(axis=0)
    np.testing.assert_allclose(found.deviation, expected, rtol=1e-5)
    assert Findings.of_parts([], Preparation(scaling)).deviation is None
