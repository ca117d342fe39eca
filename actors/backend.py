"""Runs the parts of a simulation on Ray: clients and coordinator as actors, the evaluation as a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import ray

from actors.client import ClientActor
from actors.cluster import connected
from actors.coordinator import Coordinator, evaluation_task
from actors.streaming import heard
from actors.transport import RayTransport
from raydr.arrays import FloatArray
from raydr.journal import Listener
from raydr.methods.serving import Served
from raydr.scaling import Scale
from raydr.settings import Settings

Packing = Literal["auto", "per-client"] | int

_ACTORS_PER_CORE = 8
"""``auto`` gives each client its own actor up to this many a core; each costs 0.4 s to start and some 100 MB."""


@dataclass
class RayBackend:
    """A connection to Ray on which a simulation's parts run.

    Attributes
    ----------
    packing : {"auto", "per-client"} or int
        Actors to share the clients: as many as fit, one each, or so many.
    timeout_s : float
        Seconds that the clients have for one call.
    peak_memory_bytes : dict of process name to int
        Filled as parts end.
    """

    packing: Packing = "auto"
    timeout_s: float = 600.0
    actors: int = 0
    peak_memory_bytes: dict[str, int] = field(default_factory=dict)

    name = "ray"

    def serve(
        self,
        partitions: Sequence[FloatArray],
        *,
        method: str,
        settings: Settings,
        scale: Scale,
        seed: int,
        listener: Listener,
    ) -> Served:
        """Place the clients, run the server part in the coordinator, and end all of them."""
        hosted = pack(
            len(partitions), actors_for(len(partitions), self.packing, int(ray.cluster_resources()["CPU"]))
        )
        self.actors = len(hosted)
        # Actors ask for no CPU of Ray's: each computes with one thread, and the machine shares its cores among them.
        clients = [
            ClientActor.options(num_cpus=0, scheduling_strategy="SPREAD").remote(
                indices, [ray.put(partitions[index]) for index in indices], seed
            )
            for indices in hosted
        ]
        coordinator = Coordinator.options(num_cpus=0).remote()
        try:
            transport = RayTransport(clients, hosted, self.timeout_s)
            served, peak = heard(coordinator.serve.remote(transport, method, settings, scale, seed), listener)
            self.peak_memory_bytes["coordinator"] = peak
            self.peak_memory_bytes["largest client actor"] = max(
                ray.get([client.peak_memory_bytes.remote() for client in clients])
            )
        finally:
            for actor in (coordinator, *clients):
                ray.kill(actor)
        return served  # type: ignore[no-any-return]

    def evaluate(self, work: Callable[..., Any], *arguments: Any, listener: Listener) -> Any:
        """Call ``work(*arguments, listener=...)`` in a task of its own."""
        result, peak = heard(evaluation_task.options(num_cpus=0).remote(work, arguments), listener)
        self.peak_memory_bytes["evaluation"] = peak
        return result


@contextmanager
def ray_backend(address: str | None, packing: Packing, timeout_s: float) -> Iterator[RayBackend]:
    """Connect to Ray for the length of a ``with`` block."""
    with connected(address):
        yield RayBackend(packing, timeout_s)


def actors_for(clients: int, packing: Packing, cores: int) -> int:
    """Number of client actors: what is asked for, never more than clients."""
    match packing:
        case "per-client":
            return clients
        case "auto":
            return clients if clients <= _ACTORS_PER_CORE * cores else cores
        case number:
            return min(number, clients)


def pack(clients: int, actors: int) -> list[tuple[int, ...]]:
    """Clients of each actor: consecutive, and as equal in number as can be."""
    return [tuple(map(int, part)) for part in np.array_split(np.arange(clients), actors)]
