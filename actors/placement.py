"""Which client lives in which actor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import ray

from actors.transport import Placement
from raydr.arrays import FloatArray
from raydr.federation import fingerprint

Packing = Literal["auto", "per-client"] | int

_ACTORS_PER_CORE = 8
"""``auto`` gives each client its own actor up to this many a core; each costs 0.4 s to start and some 100 MB."""


def place(partitions: Sequence[FloatArray], packing: Packing, cores: int) -> list[Placement]:
    """Put the clients' rows into the object store and share the clients among actors.

    Parameters
    ----------
    partitions : sequence of (rows, features)
        Each client's rows.
    packing : {"auto", "per-client"} or int
        Actors to share the clients: as many as fit, one each, or so many.
    cores : int
        Of the whole cluster.
    """
    hosted = pack(len(partitions), actors_for(len(partitions), packing, cores))
    return [
        Placement(
            clients,
            # One object for all rows of an actor: 10,000 objects of one client each took 5 s to store.
            ray.put([partitions[client] for client in clients]),
            tuple(fingerprint(partitions[client]) for client in clients),
            # They ask for no CPU of Ray's: each computes with one thread, and the machine shares its cores.
            {"num_cpus": 0, "scheduling_strategy": "SPREAD"},
        )
        for clients in hosted
    ]


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
