"""Trials as Ray Tune has them: work in a thread of an actor, inside a placement group; importable by Ray's workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from tiny import tiny

from raydr import threads
from raydr.errors import RunError
from raydr.geometry.neighbors import NeighborGraph
from raydr.journal import Event, RoundEnded, Seated, StageStarted
from raydr.methods.landmarks.maps import FedTSNE
from raydr.methods.serving import Plan

TINY_PLAN: dict[str, Any] = {"landmarks": 10, "rounds": 2, "early_iterations": 5, "iterations": 5}


class Trial:
    """An actor that calls a function in another thread than its own."""

    def call(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Return or raise what ``work(*arguments)`` does."""
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(work, *arguments).result()


@contextmanager
def group_of(*bundles: dict[str, float], strategy: str = "PACK") -> Iterator[Any]:
    """Yield a placement group; remove it at the end."""
    from ray.util.placement_group import placement_group, remove_placement_group

    group = placement_group(list(bundles), strategy=strategy)
    try:
        assert group.wait(120), "the cluster has no room for the group"
        yield group
    finally:
        remove_placement_group(group)


def trial_in(group: Any) -> Any:
    """Start a trial that takes the only CPU of the first bundle, as Tune does."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    inside = PlacementGroupSchedulingStrategy(group, 0)
    return ray.remote(Trial).options(num_cpus=1, scheduling_strategy=inside).remote()


def scenario(**sections: Any) -> dict[str, Any]:
    """Return the tiny scenario on Ray."""
    return tiny() | {"runtime": {"federation": "ray", "checkpoint_every": 0}} | sections


def run_scenario(content: dict[str, Any], out: Path) -> list[Event]:
    """Run a scenario and return its events."""
    from raydr.scenarios.runner import run
    from raydr.scenarios.schema.reading import read

    events: list[Event] = []
    run(read(content), out=out, listener=events.append)
    return events


class StoppedError(Exception):
    """A trial was asked to end."""


def run_and_stop(content: dict[str, Any], out: Path, stage: str, round: int) -> str:
    """Run a scenario until its listener stops it, when a stage begins or after a round; return how it ended."""
    from raydr.scenarios.runner import run
    from raydr.scenarios.schema.reading import read

    def listen(event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage == stage:
            raise StoppedError
        if isinstance(event, RoundEnded) and event.round == round:
            raise StoppedError

    try:
        run(read(content), out=out, listener=listen)
    except StoppedError:
        return "stopped"
    return "ended"


def seen_here() -> tuple[int, int, int, str]:
    """Return raydr's count of cores, the threads of OpenMP and numba, and the node of this process."""
    import numba
    import ray

    with ThreadPoolExecutor(1) as pool:  # numba counts by thread, and a new thread has the initial count
        compiled = pool.submit(numba.get_num_threads).result()
    node = ray.get_runtime_context().get_node_id()
    return threads.cores(), int(os.environ["OMP_NUM_THREADS"]), compiled, node


class SeesItsRoom(FedTSNE):
    """The map has the coordinator's number of threads instead of positions."""

    def embed(self, graph: NeighborGraph, initialization: Any, *, threads: int = 1, **options: Any) -> Any:
        """Return ``threads`` and the threads of OpenMP and numba, in every row."""
        cores, openmp, compiled, _ = seen_here()
        return np.tile([threads, max(cores, openmp, compiled)], (len(initialization), 1)).astype(float)


def witness(*, listener: Any) -> tuple[int, int, int, str]:
    """Return the resources that an evaluation sees."""
    return seen_here()


def rooms_of_processes(parts: list[Any]) -> dict[str, Any]:
    """Return the resources that trial, coordinator and evaluation see, and the messages about client processes."""
    from raydr.actors.backend import ray_backend
    from raydr.actors.resources import Room

    seated: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, Seated):
            seated.append(event.text)

    with ray_backend(None, "auto", 600.0) as backend:
        plan = Plan(method="fed-tsne", settings=SeesItsRoom(**TINY_PLAN), scale="none", seed=0)
        served = backend.serve(parts, plan, listener=listen)
        return {
            "room": Room.here(),
            "driver": threads.cores(),
            "coordinator": served.outcome.embedding[0].tolist(),
            "evaluation": backend.evaluate(witness, listener=listen),
            "seated": seated,
        }


def serve_plan(parts: list[Any], plan: Plan, packing: Any = "auto") -> bytes:
    """Return the bits of the map of these clients."""
    from raydr.actors.backend import ray_backend

    with ray_backend(None, packing, 600.0) as backend:
        return backend.serve(parts, plan, listener=lambda _: None).outcome.embedding.tobytes()


def evaluate_forever(place: str, *, listener: Any) -> None:
    """Write the number of this process to a file, report a stage and never end."""
    Path(place).write_text(str(os.getpid()))
    listener(StageStarted("waiting"))
    while True:
        time.sleep(1)


def evaluate_and_stop(place: str) -> str:
    """Stop waiting for an endless evaluation when it has begun."""
    from raydr.actors.backend import RayBackend

    def listen(event: Event) -> None:
        raise StoppedError

    try:
        RayBackend().evaluate(evaluate_forever, place, listener=listen)
    except StoppedError:
        return "stopped"
    raise RunError("the evaluation came to an end")
