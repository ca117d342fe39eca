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
    """An actor that calls what it is told, in another thread than its own."""

    def call(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """What ``work(*arguments)`` returns or raises."""
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(work, *arguments).result()


@contextmanager
def group_of(*bundles: dict[str, float], strategy: str = "PACK") -> Iterator[Any]:
    """A placement group, removed in the end."""
    from ray.util.placement_group import placement_group, remove_placement_group

    group = placement_group(list(bundles), strategy=strategy)
    try:
        assert group.wait(120), "the cluster has no room for the group"
        yield group
    finally:
        remove_placement_group(group)


def trial_in(group: Any) -> Any:
    """A trial that takes the first bundle's only CPU, as Tune's do."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    inside = PlacementGroupSchedulingStrategy(group, 0)
    return ray.remote(Trial).options(num_cpus=1, scheduling_strategy=inside).remote()


def scenario(**sections: Any) -> dict[str, Any]:
    """The tiny scenario, on Ray."""
    return tiny() | {"runtime": {"federation": "ray", "checkpoint_every": 0}} | sections


def run_scenario(content: dict[str, Any], out: Path) -> list[Event]:
    """Run it; returns what a listener heard."""
    from raydr.scenarios.runner import run
    from raydr.scenarios.schema.reading import read

    heard: list[Event] = []
    run(read(content), out=out, listener=heard.append)
    return heard


class StoppedError(Exception):
    """A trial is to end."""


def run_and_stop(content: dict[str, Any], out: Path, stage: str, round: int) -> str:
    """Run a scenario whose listener has had enough when a stage begins, or after a round; returns how it ended."""
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
    """Cores by raydr's own count, threads of OpenMP and of numba, and the node: where this is called."""
    import numba
    import ray

    with ThreadPoolExecutor(
        1
    ) as pool:  # numba's own count is of each thread, and new ones have what it starts with
        compiled = pool.submit(numba.get_num_threads).result()
    node = ray.get_runtime_context().get_node_id()
    return threads.cores(), int(os.environ["OMP_NUM_THREADS"]), compiled, node


class SeesItsRoom(FedTSNE):
    """Draws, in place of a map, how many threads the coordinator may have."""

    def embed(self, graph: NeighborGraph, initialization: Any, *, threads: int = 1, **options: Any) -> Any:
        """``threads``, and what OpenMP and numba would take, in every row."""
        cores, openmp, compiled, _ = seen_here()
        return np.tile([threads, max(cores, openmp, compiled)], (len(initialization), 1)).astype(float)


def witness(*, listener: Any) -> tuple[int, int, int, str]:
    """Work of an evaluation that looks about."""
    return seen_here()


def what_is_seen(parts: list[Any]) -> dict[str, Any]:
    """Rooms of the trial's process, its coordinator, its evaluation, and what was said of the clients."""
    from raydr.actors.backend import ray_backend
    from raydr.actors.resources import Room

    said: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, Seated):
            said.append(event.text)

    with ray_backend(None, "auto", 600.0) as backend:
        plan = Plan(method="fed-tsne", settings=SeesItsRoom(**TINY_PLAN), scale="none", seed=0)
        served = backend.serve(parts, plan, listener=listen)
        return {
            "room": Room.here(),
            "driver": threads.cores(),
            "coordinator": served.outcome.embedding[0].tolist(),
            "evaluation": backend.evaluate(witness, listener=listen),
            "said": said,
        }


def serve_plan(parts: list[Any], plan: Plan, packing: Any = "auto") -> bytes:
    """Bits of the map that a federation of these clients draws."""
    from raydr.actors.backend import ray_backend

    with ray_backend(None, packing, 600.0) as backend:
        return backend.serve(parts, plan, listener=lambda _: None).outcome.embedding.tobytes()


def sit_there(place: str, *, listener: Any) -> None:
    """Work of an evaluation that says which process it is in, and never ends."""
    Path(place).write_text(str(os.getpid()))
    listener(StageStarted("sitting"))
    while True:
        time.sleep(1)


def evaluate_and_stop(place: str) -> str:
    """Leave that evaluation when it has begun."""
    from raydr.actors.backend import RayBackend

    def listen(event: Event) -> None:
        raise StoppedError

    try:
        RayBackend().evaluate(sit_there, place, listener=listen)
    except StoppedError:
        return "stopped"
    raise RunError("the evaluation came to an end")
