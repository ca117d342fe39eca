"""Processes that wait for the next run: they serve it as new ones do, and none is left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import psutil
import pytest
from processes import becomes_true, runs, simulation_processes
from tiny import tiny_run, tiny_scenario

from raydr.actors.client import ClientProcess
from raydr.actors.coordinator import Coordinator
from raydr.actors.idle import IdleActors, kept, of_this_process
from raydr.actors.resources import Room
from raydr.actors.transport import RayTransport
from raydr.errors import RunError
from raydr.federation import FaultPlan
from raydr.journal import Event, IncidentEvent
from raydr.scenarios.runner import run

ON_RAY = {"runtime__federation": "ray"}


@pytest.fixture
def session(cluster: None) -> Iterator[None]:
    """Keep the processes of runs during a test."""
    with kept():
        yield
    assert becomes_true(lambda: not simulation_processes(), 60)


def pids(kind: str | None = None) -> set[int]:
    return {process.pid for process in simulation_processes(kind)}


def embedding(folder: Path) -> bytes:
    return (folder / "embedding.parquet").read_bytes()


def test_processes_serve_one_run_after_the_other_with_the_bits_of_new_ones(
    session: None, tmp_path: Path
) -> None:
    """The second run has fewer clients, other rows and another seed; the third needs one process more."""
    import ray

    with kept():
        tiny_run(tmp_path / "first", **ON_RAY)
    first = pids()
    assert len(first) == 5, "three clients, coordinator and evaluation: another session inside ended nothing"
    other = {"data__source": "wine", "clients__count": 2, "seed": 1}
    tiny_run(tmp_path / "second", **ON_RAY, **other)
    assert pids() == first
    tiny_run(tmp_path / "third", **ON_RAY, clients__count=4)
    assert pids() > first
    assert len(pids()) == 6
    assert embedding(tmp_path / "second") == embedding(tiny_run(tmp_path / "second-inline", **other))
    assert embedding(tmp_path / "third") == embedding(tiny_run(tmp_path / "third-inline", clients__count=4))

    (coordinator,) = (
        actor
        for key, actors in of_this_process()._waiting.items()
        if key[0] is Coordinator
        for actor in actors
    )
    clients = ray.get(
        coordinator.__ray_call__.remote(lambda process: [*chain(*process._idle._waiting.values())])
    )
    left = ray.get([client.__ray_call__.remote(lambda process: sorted(vars(process))) for client in clients])
    assert left == [["_computing"]] * 4, "no rows"


def test_processes_that_died_or_failed_are_replaced(session: None, tmp_path: Path) -> None:
    first = embedding(tiny_run(tmp_path / "first", **ON_RAY))
    for kind in ("ClientProcess", "EvaluationProcess", "CoordinatorProcess"):
        died = simulation_processes(kind)[0]
        died.kill()
        assert becomes_true(lambda died=died: not runs(died))
        events: list[Event] = []
        again = run(
            tiny_scenario(**ON_RAY), out=tmp_path / f"without-{kind}", report=False, listener=events.append
        )
        assert embedding(again) == first
        assert not [event for event in events if isinstance(event, IncidentEvent)], "not used at all"
    failing = pids("CoordinatorProcess") | pids("ClientProcess")
    assert len(failing) == 4
    with pytest.raises(RunError):
        tiny_run(tmp_path / "failed", **ON_RAY, faults__dropout=0.999, runtime__quorum=0.9)
    assert becomes_true(lambda: not failing & pids())


def test_a_client_process_leaves_its_device_when_it_forgets() -> None:
    process, left = ClientProcess(), list[bool]()
    process._computing.callback(left.append, True)
    process.forget()
    assert left == [True]


def test_only_actors_with_equal_options_replace_each_other(cluster: None) -> None:
    import ray

    class Process:
        def forget(self) -> None:
            """Do nothing."""

        def pid(self) -> int:
            return os.getpid()

    kind, options = ray.remote(Process), Room.here().anywhere()
    idle = IdleActors(keep=True)
    first = idle.take(kind, options)
    idle.give(first, kind, options)
    assert idle.take(kind, options | {"num_cpus": 0.01}) != first
    assert idle.take(kind, Room.here().on_this_node()) != first
    assert idle.take(ray.remote(Process), options) != first
    assert idle.take(kind, dict(options)) == first
    assert idle.take(kind, options) != first, "it is in use"
    second = idle.take(kind, options)
    number = ray.get(second.pid.remote())
    idle.give(second, kind, options | {"num_gpus": 0.25})  # the next run may need another part of the GPU
    assert becomes_true(lambda: not psutil.pid_exists(number) or not runs(psutil.Process(number)))
    number = ray.get(first.pid.remote())
    with pytest.raises(ZeroDivisionError), idle.lent(kind, options, first):
        raise ZeroDivisionError
    assert becomes_true(lambda: not psutil.pid_exists(number) or not runs(psutil.Process(number)))


def test_with_one_core_the_server_does_its_own_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Room, "here", lambda: Room(cores=1))
    transport = RayTransport(placements=(), seed=0, faults=FaultPlan(), timeout_s=1.0)
    assert list(transport.compute(lambda task: (task, os.getpid()), [1, 2])) == [
        (1, os.getpid()),
        (2, os.getpid()),
    ]
