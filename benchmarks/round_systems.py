"""raydr and the controls of :mod:`benchmarks.rounds`, each run in a separate process.

Run ``python -m benchmarks.round_systems SYSTEM ROUNDS SETTING...``, with SYSTEM one of ``raydr``,
``bare-ray``, ``serial``. It prints one line of JSON for each setting.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import ray

from benchmarks.increment import Setting, Timing, incremented, timed_rounds
from benchmarks.increment_messages import Increment
from raydr.actors.cluster import connected
from raydr.actors.placement import place
from raydr.actors.resources import Room
from raydr.actors.transport import RayTransport
from raydr.arrays import Float64Array
from raydr.federation import Context, FaultPlan, Federation
from raydr.threads import cores


def raydr(setting: Setting, rounds: int) -> Timing:
    """Run clients in one actor per core. Each client has one row, which the round does not use."""
    began = time.perf_counter()
    placements = place([np.zeros((1, 1))] * setting.clients, min(setting.clients, cores()), Room.here())
    transport = RayTransport(placements=placements, seed=0, faults=FaultPlan(), timeout_s=600.0)
    federation = Federation(transport, setting.clients, Context(seed=0))
    startup = time.perf_counter() - began
    numbers = federation.rounds(rounds)

    def step(values: Float64Array) -> Float64Array:
        next(numbers)
        return federation.mean(Increment(values, setting.work_s)).values

    seconds = timed_rounds(setting, rounds, step)
    transport.close()
    return Timing(setting.name, startup, seconds)


class Pool:
    """Clients of one worker of the bare pool. It adds up their replies without checks."""

    def total(self, values: Float64Array, clients: int, work_s: float) -> Float64Array:
        """Return the sum of the clients' replies."""
        total = incremented(values, work_s)
        for _ in range(clients - 1):
            total += incremented(values, work_s)
        return total


def bare_ray(setting: Setting, rounds: int) -> Timing:
    """Run one plain Ray actor per core, with clients shared evenly and x in the object store."""
    began = time.perf_counter()
    shares = [len(part) for part in np.array_split(np.arange(setting.clients), cores())]
    worker = ray.remote(Pool)
    workers = [worker.remote() for _ in shares]
    ray.get([worker.total.remote(np.zeros(1), 1, 0.0) for worker in workers])
    startup = time.perf_counter() - began

    def step(values: Float64Array) -> Float64Array:
        x = ray.put(values)
        totals = [
            worker.total.remote(x, clients, setting.work_s)
            for worker, clients in zip(workers, shares, strict=True)
        ]
        return np.asarray(sum(ray.get(totals)) / setting.clients)

    seconds = timed_rounds(setting, rounds, step)
    for worker in workers:
        ray.kill(worker)
    return Timing(setting.name, startup, seconds)


def serial(setting: Setting, rounds: int) -> Timing:
    """Run one client after another in this process."""
    pool = Pool()

    def step(values: Float64Array) -> Float64Array:
        return pool.total(values, setting.clients, setting.work_s) / setting.clients

    return Timing(setting.name, 0.0, timed_rounds(setting, rounds, step))


SYSTEMS: dict[str, Callable[[Setting, int], Timing]] = {
    "raydr": raydr,
    "bare-ray": bare_ray,
    "serial": serial,
}


def main() -> None:
    """Run the settings in sequence. Ray's start counts for the first one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.round_systems", description=__doc__)
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("rounds", type=int)
    parser.add_argument("settings", nargs="+", type=Setting.named)
    arguments = parser.parse_args()
    began = time.perf_counter()
    with nullcontext() if arguments.system == "serial" else connected():
        ray_s = time.perf_counter() - began
        for setting in arguments.settings:
            timing = SYSTEMS[arguments.system](setting, arguments.rounds)
            Timing(timing.setting, ray_s + timing.startup_s, timing.rounds_s).tell()


if __name__ == "__main__":
    main()
