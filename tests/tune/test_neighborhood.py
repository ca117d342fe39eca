"""The neighbourhood size that --tune chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from sweeps import inline

import raydr
from raydr.errors import DataError, OutputError, RunError, ScenarioError
from raydr.runfolder import read_sweep
from raydr.runfolder.records import TrialRow
from raydr.scenarios.schema.reading import read
from raydr.tune import neighborhood
from raydr.tune.neighborhood import SEEDS, NeighborhoodSweep, choice_of, neighborhood_sweep


def tuning(rows: int = 900, **method: Any) -> NeighborhoodSweep:
    content = {
        "name": "own",
        "data": {"source": "digits"},
        "clients": {"count": 3},
        "method": method or {"kind": "fed-umap"},
    }
    return neighborhood_sweep(read(content), content, rows)


def sizes(found: NeighborhoodSweep) -> list[float]:
    ((key, axes),) = found.sweep.space.items()
    assert key == found.key
    return list(axes[0].grid or ())


@pytest.mark.parametrize(
    ("method", "key", "size", "expected"),
    [
        ({"kind": "fed-umap"}, "method.neighbors", 15, [5, 10, 15, 30, 60]),
        ({"kind": "fed-umap", "neighbors": 6}, "method.neighbors", 6, [2, 4, 6, 12, 24]),
        ({"kind": "fed-tsne"}, "method.perplexity", 30, [10, 20, 30, 60, 120]),
        ({"kind": "sense"}, "method.embedder.perplexity", 30, [10, 20, 30, 60, 120]),
        ({"kind": "fedne"}, "method.neighbors", 7, [2, 5, 7, 14, 28]),
    ],
)
def test_sizes_are_parts_of_the_methods_own(
    method: dict[str, Any], key: str, size: float, expected: list[float]
) -> None:
    found = tuning(**method)
    assert (found.key, found.size, sizes(found)) == (key, size, expected)
    assert found.sweep.repeats == SEEDS
    assert found.sweep.scenario["compare"] == []


def test_few_rows_limit_sizes() -> None:
    assert sizes(tuning(rows=20)) == [5, 10, 15, 19]
    small = tuning(rows=61, kind="fed-tsne")
    assert (small.size, sizes(small)) == (20, [6.67, 13.3, 20])


def test_methods_without_neighbours_and_noise_are_refused() -> None:
    with pytest.raises(ScenarioError, match="sizes of the neighbourhood, and method 'fed-pca' has none"):
        tuning(kind="fed-pca")
    private = {"kind": "private-map", "epsilon": 1.0, "clip": 1.0}
    with pytest.raises(
        ScenarioError, match="repeats the run 25 times, and each time noisy data are released"
    ):
        tuning(**private)


def choose(monkeypatch: pytest.MonkeyPatch, shares: dict[int, Sequence[float]]) -> tuple[float, str]:
    trials = [
        TrialRow(
            point=point,
            repeat=seed,
            seed=seed,
            status="done",
            folder="runs/1",
            digest="",
            values={"method.neighbors": size},
            measures={"federated.reliable": share},
        )
        for point, (size, found) in enumerate(shares.items())
        for seed, share in enumerate(found)
    ]
    monkeypatch.setattr(neighborhood, "read_sweep", lambda folder: SimpleNamespace(trials=trials))
    found = choice_of(tuning(), Path("swept"))
    return found.size, found.reason


def test_a_size_whose_runs_are_all_better_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    size, reason = choose(
        monkeypatch,
        {5: [0.3] * 5, 10: [0.4, 0.41, 0.4, 0.4, 0.4], 15: [0.2, 0.2, 0.29, 0.2, 0.2], 30: [0.9, 0.1] * 2},
    )
    assert size == 10
    assert "In each of its 5 runs, more places are reliable than in any run with 15: 40.2" in reason


def test_without_such_a_size_the_scenarios_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    size, reason = choose(monkeypatch, {5: [0.3, 0.3, 0.3, 0.3, 0.2], 15: [0.1, 0.1, 0.1, 0.1, 0.2]})
    assert size == 15
    assert reason.startswith("method.neighbors stays 15, with 12.0")
    assert "The best of them, 5, has 28.0" in reason


def test_no_difference_chooses_another_size_in_few_cases() -> None:
    random = np.random.default_rng(0)
    shares = random.normal(size=(20_000, 5, SEEDS))
    changed = (shares[:, 1:].min(axis=2) > shares[:, :1].max(axis=2)).any(axis=1)
    assert changed.mean() < 0.016


def test_failed_runs_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = TrialRow(
        point=0,
        repeat=0,
        seed=0,
        status="failed",
        error="no memory",
        digest="",
        values={"method.neighbors": 5},
    )
    monkeypatch.setattr(neighborhood, "read_sweep", lambda folder: SimpleNamespace(trials=[failed]))
    with pytest.raises(RunError, match="A run of --tune failed, see swept: no memory"):
        choice_of(tuning(), Path("swept"))


@pytest.fixture
def two_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    inline(monkeypatch)
    monkeypatch.setattr(neighborhood, "FACTORS", (1, 1 / 6))
    monkeypatch.setattr(neighborhood, "SEEDS", 1)


def table(folder: Path, rows: int) -> Path:
    """Write rows along a winding line: few neighbours show it better than many."""
    along = np.linspace(0, 30, rows)
    values = np.column_stack([np.sin(along), np.cos(along), np.sin(0.7 * along), along])
    lines = [f"{'ab'[row % 2]},{','.join(f'{value:.6f}' for value in values[row])}" for row in range(rows)]
    (folder / "own.csv").write_text("\n".join(["site,p,q,r,s", *lines]) + "\n")
    return folder / "own.csv"


@pytest.mark.usefixtures("two_runs", "no_report")
def test_map_with_tune_runs_the_chosen_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shares are given, because which size keeps more places of 240 rows reliable differs between processors."""
    given = {90: 0.6, 15: 0.7}

    def with_given_shares(folder: Path) -> SimpleNamespace:
        trials = []
        for trial in read_sweep(folder).trials:
            assert 0 <= trial.measures["federated.reliable"] <= 1
            share = given[cast(int, trial.values["method.neighbors"])]
            trials.append(replace(trial, measures={"federated.reliable": share}))
        assert len(trials) == len(given)
        return SimpleNamespace(trials=trials)

    monkeypatch.setattr(neighborhood, "read_sweep", with_given_shares)
    run = raydr.map(
        table(tmp_path, 240),
        tune=True,
        out=tmp_path / "run",
        runtime__federation="inline",
        method__neighbors=90,
        compare=[],
        metrics=[],
    )
    assert run.scenario["method"]["neighbors"] == 15
    assert run.metrics["federated"] == {}


@pytest.mark.usefixtures("two_runs")
def test_a_taken_folder_is_refused_before_any_run(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "other").touch()
    with pytest.raises(OutputError, match="run exists and is not empty"):
        raydr.map(table(tmp_path, 240), tune=True, out=tmp_path / "run", runtime__federation="inline")
    assert not (tmp_path / "run-tune").exists()


@pytest.mark.usefixtures("two_runs", "no_report")
def test_tables_without_the_metric_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"--tune needs the metric reliable, which has no value: .*100"):
        raydr.map(table(tmp_path, 60), tune=True, out=tmp_path / "run", runtime__federation="inline")
