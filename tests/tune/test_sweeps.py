"""A sweep: its table, its results, and how it resumes after an interruption."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from sweeps import Interrupted, files_of, inline, left_behind, table, tiny_sweep
from tiny import tiny

import raydr
from raydr import journal
from raydr.errors import DataError, OutputError, ScenarioError
from raydr.runfolder import Point, records
from raydr.runfolder.records import TrialRow
from raydr.tune import running
from raydr.tune.folder import SweepWork, packed
from raydr.tune.ledger import TrialLedger
from raydr.tune.results import best, pareto
from raydr.tune.sweeping import resume, sweep


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the tiny sweep."""
    with pytest.MonkeyPatch.context() as patch:
        inline(patch)
        return sweep(tiny_sweep(), out=tmp_path_factory.mktemp("whole") / "swept")


@pytest.fixture(scope="module")
def result(whole: Path) -> raydr.SweepResult:
    return raydr.SweepResult(whole)


@pytest.fixture(scope="module")
def first_three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the incomplete folder of a sweep that died after three trials."""
    with pytest.MonkeyPatch.context() as patch:
        return cut(tmp_path_factory.mktemp("cut"), patch, 3)


@pytest.fixture
def incomplete(first_three: Path, tmp_path: Path) -> Path:
    """Return a copy of that folder, for a test to change."""
    return Path(shutil.copytree(first_three, tmp_path / first_three.name))


class TestTable:
    def test_each_trial_is_a_row_and_failed_ones_have_an_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ran = inline(monkeypatch)
        folder = sweep(tiny_sweep(), out=tmp_path / "swept")
        rows = table(folder)
        assert [(row["point"], row["repeat"], row["seed"]) for row in rows] == [
            (point, repeat, repeat) for point in range(4) for repeat in range(2)
        ]
        assert ran == [f"{row['point']:04d}-{row['repeat']}" for row in rows]
        for row in rows:
            if row["set.clients.count"] == 200:
                assert (row["status"], row["folder"], row["federated.npa_10"]) == ("failed", None, None)
                assert "150 rows cannot give 200 clients" in row["error"]
            else:
                assert (row["status"], row["error"]) == ("done", None)
        assert not is_incomplete(folder)

    def test_a_row_matches_its_run_folder(self, result: raydr.SweepResult) -> None:
        for row in result.trials:
            if row["status"] != "done":
                continue
            run = result.run(row)
            metrics = run.metrics["federated"]
            assert row["worst_site.npa_10"] == run.site_metrics[0]["federated"]["npa_10"]["mean"]
            assert {name: row[f"federated.{name}"] for name in metrics} == metrics
            up = sum(entry["bytes"] for entry in run.ledger if entry["direction"] == "up")
            assert (row["bytes_up"], row["epsilon"]) == (up, run.privacy["epsilon"])
            assert row["rounds"] == len((run.folder / records.ROUNDS).read_text().splitlines())
            scenario = yaml.safe_load((run.folder / records.SCENARIO).read_text())
            assert scenario["method"]["landmarks"] == row["set.method.landmarks"]
            assert scenario["seed"] == row["seed"]

    def test_points_are_means_over_repeats(self, result: raydr.SweepResult) -> None:
        assert {point["repeats"] for point in result.points} == {0, 2}
        for point in result.points:
            found = [
                row["federated.npa_10"]
                for row in result.trials
                if row["point"] == point["point"] and row["status"] == "done"
            ]
            assert point["repeats"] == len(found)
            if found:
                assert point["federated.npa_10"] == pytest.approx(np.mean(found))
                assert point["federated.npa_10.sd"] == pytest.approx(np.std(found, ddof=1))
            else:
                assert point["federated.npa_10"] is None

    def test_the_best_point_can_be_run_and_repeats_its_trial(
        self, result: raydr.SweepResult, tmp_path: Path
    ) -> None:
        able = [point for point in result.points if point["repeats"]]
        top = max(able, key=lambda point: point["federated.npa_10"])
        trial = next(row for row in result.trials if row["point"] == top["point"])
        again = raydr.run(result.best, out=tmp_path / "again")
        assert files_of(again.folder, "embedding.parquet") == files_of(
            result.run(trial).folder, "embedding.parquet"
        )

    def test_a_trials_folder_is_a_run_folder(self, result: raydr.SweepResult) -> None:
        from raydr.report import write_report
        from raydr.runfolder import read_run

        trial = result.run(next(row for row in result.trials if row["status"] == "done"))
        assert read_run(trial.folder).name == "tiny"
        assert write_report(trial.folder).is_file()


def is_incomplete(folder: Path) -> bool:
    return records.is_incomplete(folder) or bool(list(folder.parent.glob("*.incomplete-*")))


class TestResults:
    OBJECTIVES: Mapping[str, Any] = {"good": "max", "cost": "min"}

    @staticmethod
    def results(values: Sequence[Mapping[str, float]]) -> list[Point]:
        return [Point(number, {}, 1, means, {}) for number, means in enumerate(values)]

    def test_the_front_matches_brute_force(self) -> None:
        random = np.random.default_rng(0)
        values = [{"good": float(a), "cost": float(b)} for a, b in random.integers(0, 12, (60, 2))]
        results = self.results(values)
        beaten = {
            one
            for one, other in itertools.permutations(range(60), 2)
            if values[other]["good"] >= values[one]["good"]
            and values[other]["cost"] <= values[one]["cost"]
            and values[other] != values[one]
        }
        assert {result.point for result in pareto(results, self.OBJECTIVES)} == set(range(60)) - beaten

    def test_a_missing_measure_is_the_worst(self) -> None:
        results = self.results([{"good": 1.0}, {"good": 1.0, "cost": 5.0}, {"cost": 1.0}])
        assert [result.point for result in pareto(results, self.OBJECTIVES)] == [1, 2]

    def test_objectives_without_values_are_ignored(self) -> None:
        results = self.results([{"good": 1.0}, {"good": 2.0}])
        assert [result.point for result in pareto(results, self.OBJECTIVES)] == [1]
        assert pareto(results, {"cost": "min"}) == []

    def test_the_next_objective_decides_between_equals(self) -> None:
        results = self.results([{"good": 2.0, "cost": 3.0}, {"good": 2.0, "cost": 1.0}, {"good": 1.0}])
        chosen = best(results, self.OBJECTIVES)
        assert chosen is not None
        assert chosen.point == 1
        assert best(results, {"other": "min"}) is None


class TestLedger:
    VALUES: Sequence[Mapping[str, Any]] = (
        {"a": 1, "b": "x", "c": {"kind": "iid"}, "d": True, "e": 1, "f": 1, "g": None},
        {"a": 2, "b": "null", "c": {"kind": "dirichlet", "alpha": 0.5}, "d": False, "e": 0.5, "f": "1"},
        {"b": "", "g": [1, 2]},
    )

    def test_a_table_is_read_as_it_was_written(self, tmp_path: Path) -> None:
        ledger = TrialLedger(tmp_path, list("abcdefg"))
        rows = [
            TrialRow(
                point=number,
                repeat=0,
                seed=number,
                status="done",
                folder=f"trials/000{number}-0",
                digest="digest",
                data="data",
                values=values,
                measures={"x": number / 3},
            )
            for number, values in enumerate(self.VALUES)
        ]
        failed = {"status": "failed", "error": "why\nnot", "digest": "other"}
        rows.append(TrialRow(point=9, repeat=1, seed=2**31, values={}, **failed))
        for row in reversed(rows):
            ledger.add(row)
        assert TrialLedger.read(tmp_path, list("abcdefg")).ordered == rows

    def test_values_of_one_type_are_columns_of_that_type(self, tmp_path: Path) -> None:
        import pyarrow.parquet as pq

        ledger = TrialLedger(tmp_path, list("abcdefg"))
        for number, values in enumerate(self.VALUES):
            ledger.add(TrialRow(point=number, repeat=0, seed=0, status="done", digest="", values=values))
        found = pq.read_table(tmp_path / records.TRIALS).schema
        kinds = [str(found.field(f"set.{key}").type) for key in "abcdefg"]
        assert kinds == ["int64", "string", "string", "bool", "double", "string", "string"]

    def test_a_damaged_file_is_refused_by_name(self, tmp_path: Path) -> None:
        row = TrialRow(point=0, repeat=0, seed=0, status="done", digest="", values={"a": 1})
        TrialLedger(tmp_path, ["a"]).add(row)
        file = tmp_path / records.TRIALS
        whole = file.read_bytes()
        for broken in (b"", whole[:-20], b"PAR1" + whole):
            file.write_bytes(broken)
            with pytest.raises(OutputError, match=r"trials\.parquet cannot be read"):
                TrialLedger.read(tmp_path, ["a"])
        file.write_bytes(whole)
        with pytest.raises(OutputError, match=r"lacks the column 'set\.b'"):
            TrialLedger.read(tmp_path, ["b"])


class TestResume:
    @pytest.mark.parametrize(
        "after", [pytest.param(1, marks=pytest.mark.slow), 4, pytest.param(8, marks=pytest.mark.slow)]
    )
    def test_complete_trials_are_kept_and_do_not_run_again(
        self, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
    ) -> None:
        with monkeypatch.context() as patch:
            first = inline(patch, dies_after=after)
            with pytest.raises(Interrupted) as caught:
                sweep(tiny_sweep(), out=tmp_path / "cut")
        folder = left_behind(tmp_path / "cut")
        if after > 1 or (folder / records.TRIAL_FOLDERS).exists():
            assert caught.value.__notes__ == [
                f"Continue after the trials that ended with `raydr sweep {folder} --resume`."
            ]
        moved = tmp_path / "elsewhere" / folder.name
        moved.parent.mkdir()
        shutil.move(folder, moved)
        second = inline(monkeypatch)
        resumed = resume(moved)
        assert resumed == moved.parent / "cut"
        assert table(resumed) == table(whole)
        assert table(resumed, records.POINTS) == table(whole, records.POINTS)
        # The last trial had no row yet. If it failed, it has no folder either, and runs again.
        failed_last = after in (4, 8)
        assert second == [row_name(row) for row in table(whole)][after - failed_last :]
        assert first == [row_name(row) for row in table(whole)][:after]
        for row in table(whole):
            if row["folder"]:
                assert files_of(resumed / row["folder"], "embedding.parquet") == files_of(
                    whole / row["folder"], "embedding.parquet"
                )
        assert not list(resumed.rglob("trial-*"))

    def test_failed_trials_run_again_only_with_retry_failed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            inline(patch, dies_after=8)
            with pytest.raises(Interrupted):
                sweep(tiny_sweep(), out=tmp_path / "cut")
        folder = left_behind(tmp_path / "cut")
        copy = folder.with_name("again.incomplete-1")
        shutil.copytree(folder, copy)
        assert inline_resume(monkeypatch, folder) == ["0003-1"]
        assert inline_resume(monkeypatch, copy, retry_failed=True) == ["0001-0", "0001-1", "0003-0", "0003-1"]

    def test_an_incomplete_trial_runs_again(self, incomplete: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        half = SweepWork(incomplete).place / "trial-0002-1"
        half.mkdir(parents=True)
        (half / records.METRICS).write_text("{}")
        ran = inline_resume(monkeypatch, incomplete)
        assert "0002-1" in ran
        assert not half.exists()

    def test_changed_settings_are_refused_by_trial(self, incomplete: Path) -> None:
        file = incomplete / records.SWEEP
        file.write_text(file.read_text().replace("rounds: 2", "rounds: 3"))
        with pytest.raises(OutputError, match=r"Trial 0000-0 .* other settings than sweep\.yaml has now"):
            resume(incomplete)
        assert incomplete.is_dir()

    def test_a_run_folder_without_a_row_is_used_only_with_its_settings(
        self, incomplete: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (incomplete / records.TRIALS).unlink()
        file = incomplete / records.SWEEP
        text = file.read_text()
        file.write_text(text.replace("rounds: 2", "rounds: 3"))
        with pytest.raises(OutputError, match=r"0000-0 has other settings than sweep"):
            resume(incomplete)
        file.write_text(text)
        assert "0000-0" not in inline_resume(monkeypatch, incomplete)

    def test_a_sweep_of_another_process_is_not_resumed(
        self, incomplete: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = table(incomplete)
        with (
            SweepWork(incomplete).locked(),
            pytest.raises(OutputError, match="Another process is working on the sweep"),
        ):
            resume(incomplete)
        assert table(incomplete) == before
        assert "0000-1" not in inline_resume(monkeypatch, incomplete)

    def test_a_done_trial_without_its_folder_is_refused(
        self, incomplete: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shutil.rmtree(incomplete / records.TRIAL_FOLDERS / "0000-1")
        with pytest.raises(OutputError, match=r"Trial 0000-1 .* is missing. Restore it"):
            resume(incomplete)
        (incomplete / records.TRIALS).unlink()
        assert "0000-1" in inline_resume(monkeypatch, incomplete)

    def test_changed_data_are_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = tmp_path / "rows.csv"
        rows = np.random.default_rng(0).normal(size=(40, 3))
        base = tiny() | {"data": {"path": str(file)}}

        def write(factor: float) -> None:
            np.savetxt(file, factor * rows, delimiter=",", header="a,b,c", comments="")

        write(1.0)
        asked = tiny_sweep(base=base, space={"clients.participation": [1.0, 0.5, 0.7]}, repeats=1)
        with monkeypatch.context() as patch:
            inline(patch, dies_after=2)
            with pytest.raises(Interrupted):
                sweep(asked, out=tmp_path / "cut")
        write(2.0)
        folder = left_behind(tmp_path / "cut")
        inline(monkeypatch)
        with pytest.raises(DataError, match="The data changed during the sweep"):
            resume(folder)
        write(1.0)
        shutil.rmtree(folder / records.TRIAL_FOLDERS / "0002-0")  # made from the changed data
        assert [row["status"] for row in table(resume(folder))] == ["done"] * 3

    def test_a_complete_sweep_is_not_resumed(self, whole: Path) -> None:
        with pytest.raises(OutputError, match="is not an interrupted sweep"):
            resume(whole)

    def test_an_optuna_sweep_resumes_to_the_same_table(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = tiny_sweep(
            space={"method.landmarks": {"integers": [5, 40]}, "clients.count": {"choice": [3, 5, 200]}},
            search={"kind": "optuna", "samples": 6, "at_once": 2},
            objectives={"federated.npa_10": "max", "bytes_up": "min"},
            repeats=1,
        )
        with monkeypatch.context() as patch:
            inline(patch)
            whole = sweep(asked, out=tmp_path / "whole")
        with monkeypatch.context() as patch:
            inline(patch, dies_after=3)
            with pytest.raises(Interrupted):
                sweep(asked, out=tmp_path / "cut")
        inline(monkeypatch)
        assert table(resume(left_behind(tmp_path / "cut"))) == table(whole)


def row_name(row: Mapping[str, Any]) -> str:
    return f"{row['point']:04d}-{row['repeat']}"


def cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> Path:
    with monkeypatch.context() as patch:
        inline(patch, dies_after=after)
        with pytest.raises(Interrupted):
            sweep(tiny_sweep(), out=tmp_path / "cut")
    return left_behind(tmp_path / "cut")


def inline_resume(monkeypatch: pytest.MonkeyPatch, folder: Path, **more: Any) -> list[str]:
    with monkeypatch.context() as patch:
        ran = inline(patch)
        resume(folder, **more)
        return ran


class TestLimits:
    def test_no_more_trials_than_max_trials(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        ran = inline(monkeypatch)
        assert len(table(sweep(tiny_sweep(max_trials=3), out=tmp_path / "swept"))) == 3
        assert ran == ["0000-0", "0000-1", "0001-0"]

    def test_no_trial_starts_after_the_time_budget(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inline(monkeypatch)
        events: list[journal.Event] = []
        folder = sweep(tiny_sweep(time_budget_s=1e-3), out=tmp_path / "swept", listener=events.append)
        assert [row["point"] for row in table(folder)] == [0]  # the first begins in any case
        assert [event.text for event in events if isinstance(event, journal.IncidentEvent)] == [
            "time_budget_s is used up: 7 trials do not start"
        ]

    def test_ended_trials_are_not_counted_as_trials_that_do_not_start(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = cut(tmp_path, monkeypatch, 4)
        (folder / records.TRIALS).unlink()
        shutil.rmtree(folder / records.TRIAL_FOLDERS / "0000-1")
        ended = len(list((folder / records.TRIAL_FOLDERS).iterdir()))
        stored = yaml.safe_load((folder / records.SWEEP).read_text()) | {"time_budget_s": 1e-9}
        (folder / records.SWEEP).write_text(yaml.safe_dump(stored, sort_keys=False))
        inline(monkeypatch)
        events: list[journal.Event] = []
        resume(folder, listener=events.append)
        assert [event.text for event in events if isinstance(event, journal.IncidentEvent)] == [
            f"time_budget_s is used up: {8 - ended} trials do not start"
        ]

    def test_an_invalid_point_is_refused_before_a_folder_is_made(self, tmp_path: Path) -> None:
        with pytest.raises(ScenarioError, match=r"The point clients\.count 0"):
            sweep(tiny_sweep(space={"clients.count": [0]}), out=tmp_path / "swept")
        assert not list(tmp_path.iterdir())


def test_a_packed_folder_is_unpacked_unchanged(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "model").mkdir(parents=True)
    (run / "model" / "arrays.npz").write_bytes(b"\0" * 1000)
    (run / "metrics.json").write_text("{}")
    work = SweepWork(tmp_path / "sweep")
    work.place.mkdir(parents=True)
    for _ in range(2):  # a second time changes nothing
        work.take("0000-0", packed(run))
    found = work.run("0000-0")
    assert sorted(str(path.relative_to(found)) for path in found.rglob("*")) == [
        "metrics.json",
        "model",
        "model/arrays.npz",
    ]


class TestTrackers:
    def test_tensorboard_has_each_trial(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from raydr.tune.trackers import trackers

        inline(monkeypatch)
        board = trackers("swept", None, tmp_path / "board")
        sweep(tiny_sweep(), out=tmp_path / "swept", trackers=board)
        written = {path.parent.name for path in (tmp_path / "board" / "swept").rglob("*tfevents*")}
        assert {"0000-0", "0000-1", "0001-0", "0003-1"} <= written

    def test_a_failed_tracker_does_not_end_the_sweep(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Broken:
            def track(self, row: TrialRow, run: Path) -> None:
                raise OSError("no server")

        inline(monkeypatch)
        events: list[journal.Event] = []
        folder = sweep(tiny_sweep(), out=tmp_path / "swept", trackers=[Broken()], listener=events.append)
        assert len(table(folder)) == 8
        assert [event.text for event in events if isinstance(event, journal.IncidentEvent)] == [
            "Broken failed and is switched off (no server); the sweep continues"
        ]

    def test_a_missing_mlflow_is_refused_with_its_remedy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import raydr.tune.trackers as module

        monkeypatch.setattr("raydr.extras.find_spec", lambda name: None)
        with pytest.raises(ScenarioError, match=r"pip install 'raydr\[mlflow\]'"):
            module.trackers("swept", "sqlite:///x", None)


def test_trials_of_a_process_run_in_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tune calls each in a new thread, and what the trials freed would remain in the memory of each thread."""
    from raydr.tune import execution

    ran_in: list[int] = []
    reports: list[Any] = []
    monkeypatch.setattr(
        execution, "run_trial", lambda *_, **__: ran_in.append(threading.get_ident()) or {"ended": "done"}
    )
    monkeypatch.setattr(execution, "keep", lambda: None)
    monkeypatch.setattr(execution, "within_room", nullcontext)
    monkeypatch.setattr(execution.tune, "report", reports.append)
    trainable = execution._trainable(None, None, False, False, tmp_path)
    callers = [
        threading.Thread(target=trainable, args=({"scenario": "{}", "trial": str(number)},))
        for number in range(3)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(10)
    assert len(ran_in) == 3
    assert len(set(ran_in)) == 1
    assert reports == [{"ended": "done"}] * 3


@pytest.mark.parametrize(("metrics", "first"), [(["ca_10"], ["libraries", "run"]), ([], ["run"])])
def test_libraries_are_loaded_before_the_seconds_of_a_trial(
    monkeypatch: pytest.MonkeyPatch, metrics: list[str], first: list[str]
) -> None:
    """Otherwise the first trial of each process takes seconds longer, and seconds are an objective."""
    steps: list[str] = []

    def run(*_: Any, **__: Any) -> Path:
        steps.append("run")
        raise DataError("the end of this test")

    monkeypatch.setattr(running, "load_libraries", lambda: steps.append("libraries"))
    monkeypatch.setattr(running.runner, "run", run)
    scenario = json.dumps(tiny() | {"metrics": metrics, "compare": []})
    running.run_trial(scenario, data_dir=None, report=False, by_round=None, deliver=lambda _: None)
    assert steps == first
