"""A sweep: what is kept of each trial, what is made of them, and how one goes on after whatever happened."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Mapping, Sequence
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
from raydr.tune.folder import SweepWork, packed
from raydr.tune.ledger import TrialLedger
from raydr.tune.results import best, pareto
from raydr.tune.sweeping import resume, sweep


class TestTable:
    def test_every_trial_is_a_row_and_failures_say_why(
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

    def test_a_row_says_what_its_run_folder_does(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inline(monkeypatch)
        result = raydr.SweepResult(sweep(tiny_sweep(), out=tmp_path / "swept"))
        for row in result.trials:
            if row["status"] != "done":
                continue
            run = result.run(row)
            metrics = run.metrics["federated"]
            assert {name: row[f"federated.{name}"] for name in metrics} == metrics
            up = sum(entry["bytes"] for entry in run.ledger if entry["direction"] == "up")
            assert (row["bytes_up"], row["epsilon"]) == (up, run.privacy["epsilon"])
            assert row["rounds"] == len((run.folder / records.ROUNDS).read_text().splitlines())
            scenario = yaml.safe_load((run.folder / records.SCENARIO).read_text())
            assert scenario["method"]["landmarks"] == row["set.method.landmarks"]
            assert scenario["seed"] == row["seed"]

    def test_points_are_means_over_repeats(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        inline(monkeypatch)
        result = raydr.SweepResult(sweep(tiny_sweep(repeats=3), out=tmp_path / "swept"))
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
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inline(monkeypatch)
        result = raydr.SweepResult(sweep(tiny_sweep(), out=tmp_path / "swept"))
        able = [point for point in result.points if point["repeats"]]
        top = max(able, key=lambda point: point["federated.npa_10"])
        trial = next(row for row in result.trials if row["point"] == top["point"])
        again = raydr.run(result.best, out=tmp_path / "again")
        assert files_of(again.folder, "embedding.parquet") == files_of(
            result.run(trial).folder, "embedding.parquet"
        )

    def test_a_trials_folder_is_a_run_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        inline(monkeypatch)
        result = raydr.SweepResult(sweep(tiny_sweep(), out=tmp_path / "swept"))
        trial = result.run(next(row for row in result.trials if row["status"] == "done"))
        from raydr.report import write_report
        from raydr.runfolder import read_run

        assert read_run(trial.folder).name == "tiny"
        assert write_report(trial.folder).is_file()
        again = raydr.run(trial.folder / records.SCENARIO, out=tmp_path / "again")
        assert files_of(again.folder, "embedding.parquet") == files_of(trial.folder, "embedding.parquet")


def is_incomplete(folder: Path) -> bool:
    return records.is_incomplete(folder) or bool(list(folder.parent.glob("*.incomplete-*")))


class TestResults:
    OBJECTIVES: Mapping[str, Any] = {"good": "max", "cost": "min"}

    @staticmethod
    def results(values: Sequence[Mapping[str, float]]) -> list[Point]:
        return [Point(number, {}, 1, means, {}) for number, means in enumerate(values)]

    def test_the_front_is_what_brute_force_finds(self) -> None:
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

    def test_a_measure_that_is_not_there_is_the_worst(self) -> None:
        results = self.results([{"good": 1.0}, {"good": 1.0, "cost": 5.0}, {"cost": 1.0}])
        assert [result.point for result in pareto(results, self.OBJECTIVES)] == [1, 2]

    def test_objectives_that_nobody_has_do_not_count(self) -> None:
        results = self.results([{"good": 1.0}, {"good": 2.0}])
        assert [result.point for result in pareto(results, self.OBJECTIVES)] == [1]
        assert pareto(results, {"cost": "min"}) == []

    def test_of_equals_the_next_objective_decides(self) -> None:
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

    def test_what_is_read_is_what_was_written(self, tmp_path: Path) -> None:
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


class TestGoingOn:
    @pytest.mark.parametrize(
        "after", [pytest.param(1, marks=pytest.mark.slow), 4, pytest.param(8, marks=pytest.mark.slow)]
    )
    def test_what_came_whole_is_kept_and_nothing_runs_twice(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
    ) -> None:
        with monkeypatch.context() as patch:
            inline(patch)
            whole = sweep(tiny_sweep(), out=tmp_path / "whole")
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
        # The last one had no row yet: where it failed it left no folder either, and so it is run again.
        failed_last = after in (4, 8)
        assert second == [row_name(row) for row in table(whole)][after - failed_last :]
        assert first == [row_name(row) for row in table(whole)][:after]
        for row in table(whole):
            if row["folder"]:
                assert files_of(resumed / row["folder"], "embedding.parquet") == files_of(
                    whole / row["folder"], "embedding.parquet"
                )
        assert not list(resumed.rglob("trial-*"))

    def test_failed_trials_stay_unless_they_are_to_run_again(
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

    def test_a_half_written_trial_is_none(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = cut(tmp_path, monkeypatch, 3)
        half = SweepWork(folder).place / "trial-0002-1"
        half.mkdir(parents=True)
        (half / records.METRICS).write_text("{}")
        ran = inline_resume(monkeypatch, folder)
        assert "0002-1" in ran
        assert not half.exists()

    def test_changed_settings_are_refused_by_trial(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = cut(tmp_path, monkeypatch, 3)
        file = folder / records.SWEEP
        file.write_text(file.read_text().replace("rounds: 2", "rounds: 3"))
        with pytest.raises(OutputError, match=r"Trial 0000-0 .* other settings than sweep\.yaml has now"):
            resume(folder)
        assert folder.is_dir()

    def test_a_run_folder_without_its_row_is_believed_for_its_settings_and_not_for_its_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = cut(tmp_path, monkeypatch, 3)
        (folder / records.TRIALS).unlink()
        file = folder / records.SWEEP
        text = file.read_text()
        file.write_text(text.replace("rounds: 2", "rounds: 3"))
        with pytest.raises(OutputError, match=r"0000-0 has other settings than sweep"):
            resume(folder)
        file.write_text(text)
        assert "0000-0" not in inline_resume(monkeypatch, folder)

    def test_a_sweep_on_which_another_works_is_left_to_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = cut(tmp_path, monkeypatch, 3)
        before = table(folder)
        with (
            SweepWork(folder).locked(),
            pytest.raises(OutputError, match="Another process is working on the sweep"),
        ):
            resume(folder)
        assert table(folder) == before
        assert "0000-1" not in inline_resume(monkeypatch, folder)

    def test_a_done_trial_without_its_folder_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = cut(tmp_path, monkeypatch, 3)
        shutil.rmtree(folder / records.TRIAL_FOLDERS / "0000-1")
        with pytest.raises(OutputError, match=r"Trial 0000-1 .* is missing. Restore it"):
            resume(folder)
        (folder / records.TRIALS).unlink()
        assert "0000-1" in inline_resume(monkeypatch, folder)

    def test_other_data_end_the_sweep(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        shutil.rmtree(folder / records.TRIAL_FOLDERS / "0002-0")  # which was made from the changed ones
        assert [row["status"] for row in table(resume(folder))] == ["done"] * 3

    def test_a_whole_sweep_and_a_run_are_not_gone_on_with(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inline(monkeypatch)
        folder = sweep(tiny_sweep(max_trials=1), out=tmp_path / "whole")
        with pytest.raises(OutputError, match="is not an interrupted sweep"):
            resume(folder)

    def test_an_optuna_sweep_goes_on_to_the_same_table(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = tiny_sweep(
            space={"method.landmarks": {"integers": [5, 40]}, "clients.count": {"choice": [3, 5, 200]}},
            search={"kind": "optuna", "samples": 9, "at_once": 3},
            objectives={"federated.npa_10": "max", "bytes_up": "min"},
            repeats=1,
        )
        with monkeypatch.context() as patch:
            inline(patch)
            whole = sweep(asked, out=tmp_path / "whole")
        with monkeypatch.context() as patch:
            inline(patch, dies_after=5)
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

    def test_after_the_time_budget_no_trial_begins(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inline(monkeypatch)
        told: list[journal.Event] = []
        folder = sweep(tiny_sweep(time_budget_s=1e-3), out=tmp_path / "swept", listener=told.append)
        assert [row["point"] for row in table(folder)] == [0]  # the first begins in any case
        assert [event.text for event in told if isinstance(event, journal.IncidentEvent)] == [
            "time_budget_s is used up: 7 trials do not start"
        ]

    def test_trials_that_ended_before_are_none_that_do_not_begin(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            inline(patch, dies_after=4)
            with pytest.raises(Interrupted):
                sweep(tiny_sweep(), out=tmp_path / "cut")
        folder = left_behind(tmp_path / "cut")
        (folder / records.TRIALS).unlink()
        shutil.rmtree(folder / records.TRIAL_FOLDERS / "0000-1")
        ended = len(list((folder / records.TRIAL_FOLDERS).iterdir()))
        stored = yaml.safe_load((folder / records.SWEEP).read_text()) | {"time_budget_s": 1e-9}
        (folder / records.SWEEP).write_text(yaml.safe_dump(stored, sort_keys=False))
        inline(monkeypatch)
        told: list[journal.Event] = []
        resume(folder, listener=told.append)
        assert [event.text for event in told if isinstance(event, journal.IncidentEvent)] == [
            f"time_budget_s is used up: {8 - ended} trials do not start"
        ]

    def test_a_point_that_cannot_be_run_is_refused_before_a_folder_is_made(self, tmp_path: Path) -> None:
        with pytest.raises(ScenarioError, match=r"The point clients\.count 0"):
            sweep(tiny_sweep(space={"clients.count": [0]}), out=tmp_path / "swept")
        assert not list(tmp_path.iterdir())


def test_a_folder_comes_as_it_was_packed(tmp_path: Path) -> None:
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
    def test_tensorboard_gets_measures_and_rounds(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from raydr.tune.trackers import trackers

        inline(monkeypatch)
        told = trackers("swept", None, tmp_path / "board")
        sweep(tiny_sweep(), out=tmp_path / "swept", trackers=told)
        written = {path.parent.name for path in (tmp_path / "board" / "swept").rglob("*tfevents*")}
        assert {"0000-0", "0000-1", "0001-0", "0003-1"} <= written

    def test_one_that_fails_costs_the_sweep_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Broken:
            def track(self, row: TrialRow, run: Path) -> None:
                raise OSError("no server")

        inline(monkeypatch)
        told: list[journal.Event] = []
        folder = sweep(tiny_sweep(), out=tmp_path / "swept", trackers=[Broken()], listener=told.append)
        assert len(table(folder)) == 8
        assert [event.text for event in told if isinstance(event, journal.IncidentEvent)] == [
            "Broken failed and is switched off (no server); the sweep continues"
        ]

    def test_mlflow_that_is_not_installed_is_refused_with_its_remedy(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import raydr.tune.trackers as module

        monkeypatch.setattr("raydr.extras.find_spec", lambda name: None)
        with pytest.raises(ScenarioError, match=r"pip install 'raydr\[mlflow\]'"):
            module.trackers("swept", "sqlite:///x", None)
