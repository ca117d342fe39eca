"""A queue of published tables: its order, what it starts, how it ends, and how it continues."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from sweeps import Interrupted, inline, left_behind
from test_reproduce import MANY, SEARCH, content

import raydr
from raydr.front.cli import status
from raydr.journal import unheard
from raydr.runfolder import records
from raydr.runfolder.paper_table import read_paper_table
from raydr.tune import planning, queue
from raydr.tune.queue import QueuedTable, by_usefulness, run_queue
from raydr.tune.reading import PAPERS

TRIAL_S = 100.0


def table(name: str, **search: Any) -> dict[str, Any]:
    """Two trials a seed: as published, and by default."""
    return content(columns=SEARCH["columns"][1:2], groups=MANY, **search) | {"name": name}


def ran_by(tables: Sequence[Any], out: Path, **options: Any) -> list[QueuedTable]:
    return list(run_queue(tables, out, heard=lambda: nullcontext(unheard), **options))


def statuses(ended: Sequence[QueuedTable]) -> dict[str, str]:
    return {each.name: each.status for each in ended}


def values(folder: Path) -> list[list[float | None]]:
    cells = read_paper_table(folder / records.TABLE).cells
    return [[mean and mean.value for mean in (cell.default, cell.published)] for cell in cells]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Trials that ran, each of which takes 100 s by the clock that a queue looks at."""
    ran = inline(monkeypatch)
    clock = SimpleNamespace(monotonic=lambda: TRIAL_S * len(ran))
    monkeypatch.setattr("raydr.tune.sweeping.time", clock)
    monkeypatch.setattr("raydr.tune.queue.time", clock)
    return ran


def planned_as(monkeypatch: pytest.MonkeyPatch, seconds: float, **longest_s: float) -> None:
    """Let each trial be planned to take these seconds, and the longest of a part these."""

    def plan(sweep: Any, **options: Any) -> planning.SweepPlan:
        known = planning.plan_of_sweep(sweep, **options)
        parts = tuple(
            replace(part, longest_s=longest_s[part.name.replace(" ", "_")] if longest_s else seconds)
            for part in known.parts
        )
        return replace(known, parts=parts, seconds=seconds * known.trials)

    monkeypatch.setattr(queue, "plan_of_sweep", plan)


def test_the_order_has_every_table_once() -> None:
    assert sorted(by_usefulness()) == sorted(PAPERS.names())
    assert by_usefulness()[:2] == ["p3-table-3", "p3-table-11"]


def test_a_second_call_runs_only_what_changed(tmp_path: Path, ran: list[str]) -> None:
    tables = [table("p0"), table("p1"), table("p2", unmeasured="it lists data sets")]
    first = ran_by(tables, tmp_path)
    assert statuses(first) == {"p0": "complete", "p1": "complete"}
    assert [each.seconds for each in first] == [2 * TRIAL_S, 2 * TRIAL_S]
    assert len(ran) == 4
    again = ran_by([table("p0", says="Cells in other words."), table("p1")], tmp_path)
    assert statuses(again) == {"p0": "before", "p1": "before"}
    assert [each.detail for each in again] == [each.detail for each in first]
    assert len(ran) == 4
    kept = (tmp_path / "p1" / records.TABLE).read_bytes()
    changed = table("p1", published={"method.estimator": "nystrom", "method.rounds": 4})
    assert statuses(ran_by([table("p0"), changed], tmp_path)) == {"p0": "before", "p1": "complete"}
    assert len(ran) == 6
    assert sorted(each.name for each in tmp_path.iterdir()) == ["p0", "p1", "p1-2"]
    assert (tmp_path / "p1" / records.TABLE).read_bytes() == kept
    assert statuses(ran_by([changed, table("p1")], tmp_path)) == {"p1": "before"}
    assert len(ran) == 6


def test_tables_with_another_number_of_an_equal_start_are_not_confused(
    tmp_path: Path, ran: list[str]
) -> None:
    ran_by([table("p-table-11")], tmp_path)
    assert statuses(ran_by([table("p-table-1")], tmp_path)) == {"p-table-1": "complete"}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["p-table-1", "p-table-11"]


def test_at_the_end_of_the_time_the_running_table_keeps_its_trials(tmp_path: Path, ran: list[str]) -> None:
    tables = [table("p0") | {"repeats": 2}, table("p1")]
    first = ran_by(tables, tmp_path, budget_s=2.5 * TRIAL_S)
    assert statuses(first) == {"p0": "interrupted", "p1": "waiting"}
    assert first[0].detail == "The time for p0 is used up: 3 of 4 trials ended."
    assert first[1].detail == "the budget is used up"
    assert len(list((left_behind(tmp_path / "p0") / records.TRIAL_FOLDERS).iterdir())) == 3
    assert statuses(ran_by(tables, tmp_path, budget_s=9 * TRIAL_S)) == {"p0": "complete", "p1": "complete"}
    assert len(ran) == 6
    whole = raydr.reproduce(tables[0], out=tmp_path / "whole").folder
    assert values(tmp_path / "p0") == values(whole)


def test_an_interruption_by_the_user_loses_no_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [table("p0"), table("p1")]
    with monkeypatch.context() as first:
        inline(first, dies_after=3)
        with pytest.raises(Interrupted):
            ran_by(tables, tmp_path)
    ran = inline(monkeypatch)
    assert statuses(ran_by(tables, tmp_path)) == {"p0": "before", "p1": "complete"}
    assert len(ran) == 1


def test_a_table_waits_whose_longest_run_does_not_fit(
    tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned_as(monkeypatch, 200.0)
    (waiting,) = ran_by([table("p0")], tmp_path, budget_s=199.0)
    assert (waiting.status, ran) == ("waiting", [])
    assert "its longest run takes about 3 min 20 s, and 3 min 19 s are left" in waiting.detail.replace(
        "\N{NARROW NO-BREAK SPACE}", " "
    )
    assert not list(tmp_path.iterdir())
    assert statuses(ran_by([table("p0")], tmp_path, budget_s=201.0)) == {"p0": "complete"}


@pytest.mark.parametrize(("trial_s", "seeds"), [(599.0, 3), (601.0, 1)])
def test_a_table_of_an_hour_runs_with_one_seed(
    tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch, trial_s: float, seeds: int
) -> None:
    planned_as(monkeypatch, trial_s)
    ran_by([table("p0") | {"repeats": 3}], tmp_path)
    assert len(ran) == 2 * seeds
    found = read_paper_table(tmp_path / "p0" / records.TABLE)
    assert (found.heading["repeats"], found.changed) == (seeds, "" if seeds == 3 else "repeats 1")
    # A result with more seeds than are asked for is complete too.
    planned_as(monkeypatch, 601.0)
    assert statuses(ran_by([table("p0") | {"repeats": 3}], tmp_path)) == {"p0": "before"}
    ran.clear()
    ran_by([table("p0") | {"repeats": 3}], tmp_path, seeds=2)
    assert len(ran) == 4


def test_runs_as_published_that_are_longer_than_the_budget_are_left_out(
    tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned_as(monkeypatch, 1.0, by_default=10.0, as_published=301.0)
    assert statuses(ran_by([table("p0")], tmp_path, budget_s=300.0)) == {"p0": "complete"}
    assert len(ran) == 1
    assert read_paper_table(tmp_path / "p0" / records.TABLE).changed == "as published not run"
    # A larger budget has time for them.
    assert statuses(ran_by([table("p0")], tmp_path, budget_s=900.0)) == {"p0": "complete"}
    assert values(tmp_path / "p0-2")[0][1] is not None


def test_a_table_without_data_waits_and_one_that_fails_does_not_end_the_queue(
    tmp_path: Path, ran: list[str]
) -> None:
    absent, invalid = table("absent"), table("invalid")
    absent["base"] = absent["base"] | {"clients": {"count": 200}}
    invalid["search"]["groups"] = [{"rows": [{"name": "N", "metric": "npa_0"}]}]
    ended = ran_by([absent, invalid, table("p0")], tmp_path)
    (lacking,) = ran_by([table("p1")], tmp_path, quick=True)
    assert (lacking.status, lacking.name) == ("failed", "p1")
    assert "does not say what --quick changes" in lacking.detail
    assert statuses(ended) == {"absent": "waiting", "invalid": "failed", "p0": "complete"}
    assert "150 rows cannot give 200 clients" in ended[0].detail


def test_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"{name}.yaml" for name in ("p0", "p1")]
    for file in files:
        file.write_text(yaml.safe_dump(table(file.stem)))
    lowered: list[int] = []
    monkeypatch.setattr(os, "nice", lowered.append)
    monkeypatch.setattr(queue, "by_usefulness", lambda: files)
    command = ["reproduce", "--all", "--budget", "1h30m", "--out", str(tmp_path / "out")]
    with monkeypatch.context() as first:
        inline(first, dies_after=3)
        assert status(command) == 130
    said = " ".join(capsys.readouterr().err.split())
    assert "Repeat the command to continue with the others." in said
    assert "1 complete" in said
    inline(monkeypatch)
    assert status(command) == 0
    out, err = capsys.readouterr()
    assert out.strip() == str(tmp_path / "out")
    assert "1 before, 1 complete" in err
    assert lowered == [19, 19]
    for wrong, message in {
        ("--all", "p0.yaml"): "leave out a TABLE",
        ("--all", "--only", "a"): "leave out --only",
        ("--all", "--budget", "8"): "expected a time such as 8h, 1h30m or 45s, got '8'",
        ("--all", "--budget", "0m"): "expected a time such as",
        ("p0.yaml", "--budget", "8h"): "pass --all",
        (): "Missing argument 'TABLE'",
    }.items():
        assert status(["reproduce", *wrong]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
