"""A trial of a sweep uses only its placement group: processes, cores and memory; the group ends them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import trials
from processes import becomes_true, runs, simulation_processes
from requests_for_tests import Gate

from raydr import threads
from raydr.errors import ScenarioError
from raydr.journal import Seated
from raydr.methods.landmarks.maps import FedTSNE
from raydr.methods.serving import Plan

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]

ONE_CORE = {"CPU": 1.0}
SPECTRAL: dict[str, Any] = {
    "kind": "fed-spectral", "landmarks": 8, "clusters": 3,
    "embedder": {"kind": "umap", "neighbors": 5, "epochs": 10},
}  # fmt: skip


def rows() -> list[Any]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=(size, 4)) for size in (20, 30, 25)]


def waiting(folder: Path) -> Plan:
    """Return a plan whose clients wait forever in the second round."""
    settings = FedTSNE(**trials.TINY_PLAN)
    return Plan(
        method="fed-tsne",
        settings=settings,
        scale="standard",
        seed=0,
        faults=Gate(round=2, opened_by=str(folder / "never")),
    )


def members_of(group: Any) -> int:
    """Return the number of processes in a group of one bundle: each takes 0.001 of the bundle's 1,000 units."""
    import ray

    left = ray.available_resources().get(f"bundle_group_{group.id.hex()}", 0.0)
    return round((1000.0 - left) / 0.001)


@pytest.fixture
def two_cores(cluster: None) -> None:
    import ray

    if ray.cluster_resources()["CPU"] < 2:
        pytest.skip("two groups of one CPU each do not fit on this machine")


@pytest.fixture
def group(cluster: None) -> Iterator[Any]:
    """Make a placement group of one CPU."""
    with trials.group_of(ONE_CORE) as made:
        yield made


# --- resources ----------------------------------------------------------------------------------------------------


def test_without_a_group_the_room_is_the_cluster(cluster: None) -> None:
    import ray

    from raydr.actors.resources import Room

    room, there = Room.here(), ray.cluster_resources()
    assert room.group is None
    assert (room.cores, room.threads) == (there["CPU"], threads.cores())
    assert room.memory_bytes == int(there["memory"] + there["object_store_memory"])


@pytest.mark.slow  # the tests of memory and of the end: the room is that of the group, and all processes are in it
def test_all_processes_of_a_trial_see_only_its_group(group: Any) -> None:
    import ray

    seen = ray.get(trials.trial_in(group).call.remote(trials.rooms_of_processes, rows()[:1]))
    there = ray.cluster_resources()
    room = seen["room"]
    assert room.group == group
    assert (room.cores, room.threads, seen["driver"]) == (1, 1, 1)
    share = (there["memory"] + there["object_store_memory"]) / there["CPU"]
    assert room.memory_bytes == pytest.approx(share, rel=1e-6)
    assert seen["coordinator"] == [1, 1]
    assert seen["evaluation"][:3] == (1, 1, 1)
    assert seen["seated"] == ["1 client in 1 actor and a coordinator"]


def test_a_room_is_the_sum_of_its_bundles(two_cores: None) -> None:
    import ray

    from raydr.actors.resources import Room

    with trials.group_of({"CPU": 1, "memory": 3e8}, {"CPU": 1, "memory": 2e8}) as group:
        room = ray.get(trials.trial_in(group).call.remote(Room.here))
        assert (room.cores, room.memory_bytes) == (2, 5e8)


def test_a_trial_has_the_stated_memory_and_is_refused_if_it_needs_more(cluster: None, tmp_path: Path) -> None:
    import ray

    from raydr.actors.resources import Room

    content = trials.scenario(runtime={"federation": "ray", "actors": "per-client", "checkpoint_every": 0})
    with trials.group_of({"CPU": 1.0, "memory": 2.0**28}) as group:
        trial = trials.trial_in(group)
        room = ray.get(trial.call.remote(Room.here))
        assert (room.group, room.cores, room.threads, room.memory_bytes) == (group, 1, 1, 2.0**28)
        with pytest.raises(
            ScenarioError, match=r"3 client actors need about 0\.3 GiB .*the trial's .* has 0\.2 GiB"
        ):
            ray.get(trial.call.remote(trials.run_scenario, content, tmp_path / "out"))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_trial_packs_by_its_own_memory(cluster: None, tmp_path: Path) -> None:
    import ray

    with trials.group_of({"CPU": 1.0, "memory": 2.0**30}) as group:
        work = trials.trial_in(group).call.remote(trials.run_scenario, trials.scenario(), tmp_path / "out")
        events = ray.get(work)
    assert [event.text for event in events if isinstance(event, Seated)] == [
        "3 clients in 1 actor and a coordinator, packed: one each would need 0.3 GiB, and a quarter of the memory is"
        " 0.2 GiB"
    ]


# --- results -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_simultaneous_trials_match_each_alone(two_cores: None, tmp_path: Path) -> None:
    import ray

    contents = {"tsne": trials.scenario(), "spectral": trials.scenario(method=SPECTRAL, clients={"count": 4})}
    with trials.group_of(ONE_CORE) as one, trials.group_of(ONE_CORE) as other:
        work = [
            trials.trial_in(group).call.remote(trials.run_scenario, content, tmp_path / f"{name}-together")
            for group, (name, content) in zip((one, other), contents.items(), strict=True)
        ]
        ray.get(work)
    for name, content in contents.items():
        trials.run_scenario(content, tmp_path / f"{name}-alone")
        together, alone = (
            (tmp_path / f"{name}-{how}" / "embedding.parquet").read_bytes() for how in ("together", "alone")
        )
        assert together == alone, name


# --- end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ended", ["trial", pytest.param("group", marks=pytest.mark.slow)])
def test_no_process_outlives_its_trial(group: Any, tmp_path: Path, ended: str) -> None:
    import ray
    from ray.util.placement_group import remove_placement_group

    trial = trials.trial_in(group)
    work = trial.call.remote(trials.serve_plan, rows(), waiting(tmp_path), 1)
    assert becomes_true(lambda: len(simulation_processes()) == 2), "a coordinator and a client process"
    there = simulation_processes()
    assert becomes_true(lambda: members_of(group) == 3), "these two and the trial are in its group"
    if ended == "group":
        remove_placement_group(group)
    else:
        ray.kill(trial)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(work)
    assert becomes_true(lambda: not any(map(runs, there)), 60)


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "round"), [("", 1), ("metrics", -1)], ids=["round", "evaluation"])
def test_a_stopped_trial_leaves_no_process_and_no_folder(
    group: Any, tmp_path: Path, stage: str, round: int
) -> None:
    import ray

    trial = trials.trial_in(group)
    ended = trial.call.remote(trials.run_and_stop, trials.scenario(), tmp_path / "out", stage, round)
    assert ray.get(ended) == "stopped"
    assert not list(tmp_path.iterdir())
    assert becomes_true(lambda: not simulation_processes(), 60), (
        "while the trial's own process is still there"
    )
    assert ray.get(trial.call.remote(len, "and well")) == 8


def test_an_evaluation_ends_if_its_caller_stops(cluster: None, tmp_path: Path) -> None:
    place = tmp_path / "pid"
    assert trials.evaluate_and_stop(str(place)) == "stopped"
    number = int(place.read_text())
    assert becomes_true(lambda: not psutil.pid_exists(number) or not runs(psutil.Process(number)), 60)


def test_a_process_with_a_gpu_share_uses_the_bundle_with_gpus(cluster: None) -> None:
    """A trial's placement group has a bundle for GPUs. Ray would wait forever for a GPU of the first bundle."""
    from ray.util.placement_group import PlacementGroup

    from raydr.actors.resources import Room

    options = Room(cores=1, gpus=1.0, group=PlacementGroup.empty()).on_this_node(0.25)
    assert options["scheduling_strategy"].placement_group_bundle_index == -1
    assert options["num_gpus"] == 0.25
    anywhere = Room(cores=1, gpus=1.0).on_this_node(0.25)
    assert anywhere["num_gpus"] == 0.25
    assert anywhere["scheduling_strategy"].soft, "this node may have none"
    assert "num_gpus" not in Room(cores=1, gpus=1.0).on_this_node()
