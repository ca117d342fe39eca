"""Which client lives in which actor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import ray

from raydr.actors.sites import pinned
from raydr.actors.transport import Placement
from raydr.arrays import FloatArray
from raydr.data import Site
from raydr.errors import ScenarioError
from raydr.federation import fingerprint

Packing = Literal["auto", "per-client"] | int

_ACTOR_BYTES = 100 * 2**20
"""Resident memory of a client actor without rows, measured: the interpreter, numpy, scipy and Ray."""


def place(
    parts: Sequence[FloatArray | Site], packing: Packing, cores: int, gpus: float = 0.0
) -> list[Placement]:
    """Share the clients among actors; rows that are here go into the object store.

    Parameters
    ----------
    parts : sequence of (rows, features) arrays or Site
        Each client's rows, or where they are. Each site has an actor of its own, on its node.
    packing : {"auto", "per-client"} or int
        Actors to share clients whose rows are here: one for each core, one each, or so many.
    cores : int
        Of the whole cluster.
    gpus : float
        Of the whole cluster, where clients may use them; actors for clients whose rows are here share them.
    """
    sites = [part for part in parts if isinstance(part, Site)]
    if sites:
        return [
            Placement((client,), site.file, (site.fingerprint,), pinned(site.node), site.node)
            for client, site in enumerate(sites)
        ]
    rows = [part for part in parts if not isinstance(part, Site)]
    packed = pack(len(rows), actors_for(len(rows), packing, cores))
    # They ask for no CPU of Ray's: each computes with one thread, and the machine shares its cores.
    options = pinned(None) | ({"num_gpus": gpu_share(gpus, len(packed))} if gpus else {})
    return [
        Placement(
            clients,
            # One object for all rows of an actor: 10,000 objects of one client each took 5 s to store.
            ray.put([rows[client] for client in clients]),
            tuple(fingerprint(rows[client]) for client in clients),
            options,
        )
        for clients in packed
    ]


def gpu_share(gpus: float, actors: int) -> float:
    """Part of a GPU for each of so many actors, such that all find room: a whole one, or one over a whole number.

    >>> [gpu_share(gpus, actors) for gpus, actors in ((1, 2), (4, 2), (2, 3), (0, 5))]
    [0.5, 1.0, 0.5, 0.0]
    """
    return 1.0 / -(-actors // int(gpus)) if gpus >= 1 else 0.0


def require_room(parts: Sequence[FloatArray | Site], actors: int) -> None:
    """Refuse at once a simulation whose processes do not fit into the cluster's memory.

    Raises
    ------
    ScenarioError
        With the numbers.
    """
    needed = actors * _ACTOR_BYTES + 2 * sum(part.nbytes for part in parts if not isinstance(part, Site))
    there = int(
        ray.cluster_resources().get("memory", 0) + ray.cluster_resources().get("object_store_memory", 0)
    )
    if needed > there:
        raise ScenarioError(
            f"{actors} client actors need about {needed / 2**30:.1f} GiB of memory"
            f" ({_ACTOR_BYTES / 2**20:.0f} MiB each, and the rows), and the cluster has {there / 2**30:.1f} GiB:"
            " set runtime.actors to fewer, so that each hosts more clients, or add nodes."
        )


def actors_for(clients: int, packing: Packing, cores: int) -> int:
    """Number of client actors: what is asked for, never more than clients."""
    match packing:
        case "per-client":
            return clients
        case "auto":
            return min(clients, cores)
        case number:
            return min(number, clients)


def pack(clients: int, actors: int) -> list[tuple[int, ...]]:
    """Clients of each actor: consecutive, and as equal in number as can be."""
    return [tuple(map(int, part)) for part in np.array_split(np.arange(clients), actors)]
