"""A plan of a sweep matches its table afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from sweeps import SPACE, inline, table, tiny_sweep
from tiny import tiny

from raydr.actors.capacity import Capacity, Machine
from raydr.errors import ScenarioError
from raydr.front.cli import status
from raydr.scenarios.planning.plan import plan_of_scenario
from raydr.tune import planning
from raydr.tune.planning import SweepPlan, plan_of_sweep
from raydr.tune.reproducing import read_table
from raydr.tune.schema import Sweep
from raydr.tune.search import search_of
from raydr.tune.sweeping import sweep

GIBIBYTE = 2**30


def machines(*sizes: tuple[int, float]) -> Capacity:
    """Return machines with these cores and GiB."""
    return Capacity(
        tuple(Machine(f"m{place}", cores, round(gib * GIBIBYTE)) for place, (cores, gib) in enumerate(sizes))
    )


ROOMY = machines((4, 400.0))


def planned(asked: Sweep, capacity: Capacity = ROOMY) -> SweepPlan:
    """Return the plan of a sweep on these machines."""
    return plan_of_sweep(asked, capacity=capacity, data_dir=None)


def test_planned_bytes_and_failures_match_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(tiny_sweep())
    inline(monkeypatch)
    rows = table(sweep(tiny_sweep(), out=tmp_path / "swept"))
    assert (plan.points, plan.trials) == (4, len(rows)) == (4, 8)
    for key in ("bytes_up", "bytes_down"):
        assert getattr(plan, key) == sum(row[key] or 0 for row in rows) > 0
    failed = {row["point"]: row["error"] for row in rows if row["status"] == "failed"}
    refused = {each.point: each.refused for each in plan.planned if each.refused is not None}
    assert refused.keys() == failed.keys() == {1, 3}
    assert all(refused[point] in failed[point] for point in refused)


@pytest.mark.parametrize(
    ("trial", "nodes", "at_once"),
    [
        ({"cpus": 1}, [(4, 16.0)], 4),
        ({"cpus": 3}, [(4, 16.0), (8, 16.0)], 3),
        ({"cpus": 1, "memory_gib": 6.0}, [(4, 16.0)], 2),
        ({"cpus": 5}, [(4, 16.0)], 0),
    ],
)
def test_cores_and_memory_limit_simultaneous_trials(
    trial: dict[str, Any], nodes: list[tuple[int, float]], at_once: int
) -> None:
    plan = planned(tiny_sweep(trial=trial), machines(*nodes))
    assert plan.at_once == at_once
    assert plan.fits == (at_once > 0)


def test_a_trial_has_its_stated_memory_or_the_share_of_its_cores() -> None:
    one = max(
        sum(process.count * process.bytes for process in plan.memory)
        for each in planned(tiny_sweep()).planned
        if (plan := each.plan) is not None
    )
    share = planned(tiny_sweep(trial={"cpus": 1}), machines((4, 16.0)))
    stated = planned(tiny_sweep(trial={"cpus": 1, "memory_gib": 6.0}), machines((4, 16.0)))
    assert (share.room_bytes, stated.room_bytes) == (4 * GIBIBYTE, 6 * GIBIBYTE)
    assert share.memory_bytes == stated.memory_bytes == one
    assert not planned(tiny_sweep(trial={"memory_gib": 0.01}), machines((4, 16.0))).fits


def test_time_is_shared_by_simultaneous_trials() -> None:
    asked = tiny_sweep(space={"clients.count": [3]}, repeats=4)
    alone, parallel = planned(asked, machines((1, 100.0))), planned(asked, machines((4, 400.0)))
    assert alone.seconds == pytest.approx(4 * parallel.seconds)
    point = alone.planned[0].plan
    assert point is not None
    assert alone.seconds == pytest.approx(4 * point.seconds)


def test_many_points_are_planned_from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tiny_sweep(space={"method.landmarks": list(range(10, 20))})
    whole = planned(asked)
    monkeypatch.setattr(planning, "MOST_POINTS", 5)
    part = planned(asked)
    assert [each.point for each in part.planned] == [0, 2, 4, 6, 8]
    assert (part.points, part.trials) == (whole.points, whole.trials) == (10, 20)
    assert part.bytes_up == pytest.approx(whole.bytes_up, rel=0.05)


def test_max_trials_limits_a_plan() -> None:
    assert planned(tiny_sweep(max_trials=3)).trials == 3


def test_a_point_is_planned_like_its_scenario() -> None:
    capacity = machines((1, 100.0))
    asked = tiny_sweep(space={"method.landmarks": [12]})
    first = search_of(asked).point(0, {})
    assert first is not None
    alone = plan_of_scenario(first.scenario(0), capacity=capacity, data_dir=None)
    (point,) = planned(asked, capacity).planned
    assert point.plan is not None
    assert point.plan.to_json()["messages"] == alone.to_json()["messages"]


def test_the_command_plans_a_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "swept.yaml"
    file.write_text(
        yaml.safe_dump({"name": "swept", "base": tiny(), "space": SPACE, "repeats": 2}, sort_keys=False)
    )
    assert status(["plan", str(file), "--json", str(tmp_path / "plan.json")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "swept: 8 trials of 4 points" in printed
    assert ", without the points that will fail" in printed
    assert "points 1, 3 will fail: " in printed
    assert "150 rows cannot give 200 clients" in printed
    content = json.loads((tmp_path / "plan.json").read_text())
    assert content["fits"]
    assert content["planned"][0]["values"] == {"method.landmarks": 12, "clients.count": 3}
    assert content["planned"][0]["plan"]["messages"]


def test_a_sweep_that_cannot_be_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "swept.yaml"
    file.write_text(
        yaml.safe_dump({"name": "swept", "base": tiny(), "space": {"method.landmarks": ["many"]}})
    )
    assert status(["plan", str(file)]) == 2
    assert "method.landmarks" in capsys.readouterr().err
    with pytest.raises(ScenarioError, match=r"method\.landmarks"):
        planned(tiny_sweep(space={"method.landmarks": ["many"]}))


def costs() -> dict[str, Any]:
    """Return a table of six groups with runs as published that take longer."""
    base = {key: value for key, value in tiny().items() if key not in ("metrics", "name")}
    base["method"] |= {"rounds": 3}
    search = {
        "kind": "table",
        "paper": "P0",
        "where": "table 1",
        "title": "costs",
        "published": {"method.rounds": 20_000},
        "columns": [{"name": "pooled", "side": "central"}, {"name": "IID"}],
        "groups": [
            {
                "name": f"{count} clients",
                "set": {"clients.count": count},
                "rows": [{"name": "NPA", "metric": "npa_10"}],
            }
            for count in range(2, 8)
        ],
    }
    return {"name": "p0", "base": base, "search": search, "repeats": 2}


def test_a_table_has_a_plan_of_its_defaults_and_of_its_runs_as_published() -> None:
    plan = planned(read_table(costs()))
    assert [(part.name, part.trials) for part in plan.parts] == [("by default", 12), ("as published", 12)]
    default, published = (part.seconds for part in plan.parts)
    assert published > 2 * default > 0
    assert plan.seconds == pytest.approx(default + published)
    one = planned(read_table(costs(), published=False))
    assert [part.name for part in one.parts] == ["by default"]
    assert one.seconds == pytest.approx(default)


def test_the_command_plans_a_shipped_table(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["plan", "p3-table-14"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "p3-table-14: " in printed
    assert "by default: " in printed


def test_the_command_plans_a_part_of_a_table(tmp_path: Path) -> None:
    file, out = tmp_path / "p0.yaml", tmp_path / "plan.json"
    file.write_text(yaml.safe_dump(costs()))

    def parts(*options: str) -> dict[str, int]:
        assert status(["plan", str(file), *options, "--json", str(out)]) == 0
        return {part["name"]: part["trials"] for part in json.loads(out.read_text())["parts"]}

    assert parts() == {"by default": 12, "as published": 12}
    assert parts("--seeds", "1") == {"by default": 6, "as published": 6}
    assert parts("--no-published") == {"by default": 12}
    assert parts("--only", "3 clients", "--seeds", "3") == {"by default": 3, "as published": 3}


def test_the_command_plans_quick_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "p0.yaml", tmp_path / "plan.json"
    file.write_text(yaml.safe_dump(costs() | {"quick": {"repeats": 1}}))
    assert status(["plan", str(file), "--quick", "--no-published", "--json", str(out)]) == 0
    assert [part["trials"] for part in json.loads(out.read_text())["parts"]] == [6]
    assert status(["plan", "digits-four-axes", "--quick", "--json", str(out)]) == 0
    assert json.loads(out.read_text())["trials"] == 14
    assert status(["plan", "digits-fed-umap", "--quick"]) == 2
    assert (
        "--quick needs a sweep or a paper's table, and digits-fed-umap is a scenario"
        in capsys.readouterr().err
    )
    assert status(["plan", "digits-fed-umpa", "--quick"]) == 2
    assert "did you mean digits-fed-umap?" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--only", "DE"], ["--seeds", "1"], ["--no-published"]])
@pytest.mark.parametrize("document", ["digits-fed-umap", "digits-four-axes"])
def test_a_part_of_what_is_no_table_is_refused(
    document: str, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(["plan", document, *option]) == 2
    assert f"take a part of a paper's table, and {document} is none" in capsys.readouterr().err


def test_a_part_of_a_misspelt_table_names_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["plan", "p3-tabel-14", "--seeds", "1"]) == 2
    assert "did you mean p3-table-14?" in capsys.readouterr().err


def test_the_command_gives_no_needs_of_a_sweep_whose_points_all_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "swept.yaml"
    base = tiny() | {"clients": {"count": 200}}
    file.write_text(yaml.safe_dump({"name": "swept", "base": base, "space": {"seed": [0, 1]}}))
    status(["plan", str(file)])
    printed = " ".join(capsys.readouterr().out.split())
    assert "no point can run" in printed
    assert "every point will fail: " in printed
    assert "150 rows cannot give 200 clients" in printed
    assert "total:" not in printed
