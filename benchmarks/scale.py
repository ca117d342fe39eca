"""Cost of long runs and many clients: memory over 500 rounds, distribution learning and FedNE with 10,000 clients.

Run ``python -m benchmarks.scale``: some minutes. With ``--quick``: fewer rounds and clients, within a minute.

Long run: 200 clients return x + 1 of 200 KB, so that requests and replies go through the object store.
Figures, at a tenth, the middle and the end of the rounds: megabytes of all processes together (a shared page
counts once), megabytes in the object store, processes.

Many clients: landmarks are learnt from synthetic rows, 20 of 16 features at each client. Figures: seconds
until the clients are placed, until the first round and in the median round, and megabytes of memory per
client: those of this federation minus those of one with a client per core.

FedNE: a whole run with ten rows of 50 features at each client, a hundredth of the clients in each of 100
rounds, with control variates. Figures: seconds before the rounds, of the median round and of the whole run,
and megabytes of all processes after a tenth, half and all of the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import ray

import raydr
from benchmarks.increment import Setting, require
from benchmarks.increment_messages import Increment
from benchmarks.placing import mixture
from benchmarks.processes import memory_mb, tree
from raydr.actors.cluster import connected
from raydr.actors.placement import place
from raydr.actors.resources import Room
from raydr.actors.transport import RayTransport
from raydr.arrays import Float32Array
from raydr.federation import Context, FaultPlan, Federation
from raydr.journal import Event, RoundEnded
from raydr.methods.landmarks.learning import learn_landmarks
from raydr.methods.landmarks.settings import DistributionLearning
from raydr.threads import cores

_LONG = Setting(200, 200_000)
_ROWS, _FEATURES, _LANDMARKS = 20, 16, 50


def object_store_mb() -> float:
    """Return the megabytes in the object store now."""
    name = "object_store_memory"
    return float(ray.cluster_resources()[name] - ray.available_resources().get(name, 0.0)) / 1e6


@contextmanager
def federation_of(partitions: list[Float32Array]) -> Iterator[Federation]:
    """Yield a federation on Ray's actors, one per core."""
    room = Room.here()
    placements = place(partitions, min(len(partitions), room.cores), room)
    transport = RayTransport(placements=placements, seed=0, faults=FaultPlan(), timeout_s=600.0)
    try:
        yield Federation(transport, len(partitions), Context(seed=0))
    finally:
        transport.close()


def long_run(rounds: int) -> dict[str, float]:
    """Measure memory, object store and processes over many rounds."""
    looks = {max(1, rounds // 10): "start", rounds // 2: "middle", rounds: "end"}
    figures: dict[str, float] = {}
    values = _LONG.start()
    with federation_of([np.zeros((1, 1), np.float32)] * _LONG.clients) as federation:
        began = time.perf_counter()
        for number in federation.rounds(rounds):
            values = federation.mean(Increment(values, 0.0)).values
            if number in looks:
                require(values, number)
                processes = tree(psutil.Process())
                figures[f"long.{looks[number]}.memory_mb"] = memory_mb(processes)
                figures[f"long.{looks[number]}.object_store_mb"] = object_store_mb()
                figures[f"long.{looks[number]}.processes"] = len(processes)
        figures["long.round_s"] = (time.perf_counter() - began) / rounds
    return figures


def many_clients(clients: int, rounds: int) -> dict[str, float]:
    """Measure seconds and memory of distribution learning.

    Raises
    ------
    ValueError
        If the objective does not fall.
    """
    rng = np.random.default_rng(0)
    centres = 4.0 * rng.standard_normal((8, _FEATURES))
    partitions = [
        (centres[client % 8] + rng.standard_normal((_ROWS, _FEATURES))).astype(np.float32)
        for client in range(clients)
    ]
    with federation_of(partitions[: cores()]):
        least_mb = memory_mb(tree(psutil.Process()))
    began = time.perf_counter()
    with federation_of(partitions) as federation:
        placed = time.perf_counter()
        learn_landmarks(federation, DistributionLearning(landmarks=_LANDMARKS, rounds=rounds))
        seconds = time.perf_counter() - placed
        memory = memory_mb(tree(psutil.Process()))
        journal = federation.journal.rounds
    objectives = [record.objective for record in journal if record.objective is not None]
    if not objectives[-1] < objectives[0]:
        raise ValueError(f"the objective did not fall: it went from {objectives[0]} to {objectives[-1]}")
    return {
        "many.clients": clients,
        "many.startup_s": placed - began,
        "many.before_rounds_s": seconds - sum(record.seconds for record in journal),
        "many.round_s": statistics.median(record.seconds for record in journal),
        "many.mb_per_client": (memory - least_mb) / clients,
        "many.memory_mb": memory,
    }


def participating(clients: int, rounds: int, folder: Path) -> dict[str, float]:
    """Measure seconds and memory of FedNE with a hundredth of the clients in a round."""
    looks = {max(1, rounds // 10): "start", rounds // 2: "middle", rounds: "end"}
    figures: dict[str, float] = {"fedne.clients": clients}
    seconds: list[float] = []
    began = time.perf_counter()

    def hear(event: Event) -> None:
        if isinstance(event, RoundEnded):
            seconds.append(event.seconds)
            if len(seconds) == 1:
                figures["fedne.before_rounds_s"] = time.perf_counter() - began - event.seconds
            if len(seconds) in looks:
                figures[f"fedne.{looks[len(seconds)]}.memory_mb"] = memory_mb(tree(psutil.Process()))

    raydr.run(
        {
            "name": "many-clients",
            "data": {"path": str(mixture(folder / "rows.parquet", 10 * clients, 50, 0))},
            "clients": {"count": clients, "participation": 0.01},
            "method": {"kind": "fedne", "rounds": rounds},
            "metrics": [],
        },
        out=folder / "run",
        listener=hear,
    )
    figures["fedne.round_s"] = statistics.median(seconds)
    figures["fedne.whole_s"] = time.perf_counter() - began
    return figures


def main() -> None:
    """Print the figures and write them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="60 rounds, 1,000 clients: within a minute")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    with connected():
        long = long_run(60 if arguments.quick else 500)
        print(f"200 clients x 200 KB, {long['long.round_s'] * 1e3:.1f} ms a round")
        for when in ("start", "middle", "end"):
            print(
                f"  {when:<8}{long[f'long.{when}.memory_mb']:>8.0f} MB"
                f"{long[f'long.{when}.object_store_mb']:>8.2f} MB in the object store"
                f"{long[f'long.{when}.processes']:>5.0f} processes"
            )
        many = many_clients(*((1_000, 5) if arguments.quick else (10_000, 20)))
        with tempfile.TemporaryDirectory() as scratch:
            fedne = participating(*((1_000, 10) if arguments.quick else (10_000, 100)), Path(scratch))
    print(
        f"{many['many.clients']:.0f} clients learn {_LANDMARKS} landmarks: in their places after"
        f" {many['many.startup_s']:.1f} s, first round after {many['many.before_rounds_s']:.1f} s more,"
        f" {many['many.round_s']:.3f} s a round, {many['many.mb_per_client']:.4f} MB per client,"
        f" {many['many.memory_mb']:.0f} MB in all"
    )
    print(
        f"{fedne['fedne.clients']:.0f} clients by FedNE, a hundredth in a round: {fedne['fedne.before_rounds_s']:.1f} s"
        f" before the rounds, {fedne['fedne.round_s']:.2f} s a round, {fedne['fedne.whole_s']:.0f} s in all;"
        f" {fedne['fedne.start.memory_mb']:.0f}, {fedne['fedne.middle.memory_mb']:.0f},"
        f" {fedne['fedne.end.memory_mb']:.0f} MB"
    )
    if arguments.json is not None:
        figures = {name: round(value, 5) for name, value in (long | many | fedne).items()}
        arguments.json.write_text(json.dumps({"figures": figures, "ratios": {}}, indent=2) + "\n")


if __name__ == "__main__":
    main()
