"""Placement of clients in actors, and the check that there is enough memory for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raydr.actors.packing import ACTOR_BYTES, pack
from raydr.actors.resources import Room
from raydr.actors.sites import pinned
from raydr.actors.transport import Placement
from raydr.arrays import FloatArray
from raydr.data import Site
from raydr.errors import ScenarioError
from raydr.federation import fingerprint
from raydr.federation.client import HostSecrets
from raydr.portable import require_portable
from raydr.privacy.policy import SitePolicy
from raydr.privacy.secrets import Secret


def place(
    parts: Sequence[FloatArray | Site],
    actors: int,
    room: Room,
    *,
    host_secrets: HostSecrets | None = None,
    policies: Sequence[SitePolicy] = (),
    gpu_share: float = 0.0,
) -> list[Placement]:
    """Distribute the clients among actors; local rows and each actor's secrets go into the object store.

    Parameters
    ----------
    parts : sequence of (rows, features) arrays or Site
        Each client's rows, or their site. Each site has its own actor on its node, even outside the run's resources,
        because its rows are only there.
    actors : int
        Number of actors for clients with local rows, at most the number of clients.
    room : Room
        Resources of the run.
    host_secrets : HostSecrets, optional
        Secrets of all clients, by default drawn. Each actor gets references to its own clients' part only.
    policies : sequence of SitePolicy, optional
        Policy of each client's site.
    gpu_share : float
        Part of a GPU for each actor of clients with local rows.
    """
    host_secrets = host_secrets or HostSecrets.derived(Secret.drawn(), range(len(parts)))
    reserve, kept = ray.put(host_secrets.reserve), replace(host_secrets, reserve=None)

    def own(clients: tuple[int, ...], fingerprints: tuple[str, ...]) -> tuple[ray.ObjectRef[Any], ...]:
        """Return references for one actor; Ray does not fetch references inside a tuple on the way."""
        return (
            ray.put(kept.at(clients)),
            reserve,
            ray.put(tuple(zip(fingerprints, of_sites(clients), strict=True))),
        )

    def of_sites(clients: tuple[int, ...]) -> list[SitePolicy]:
        return [policies[client] if policies else SitePolicy() for client in clients]

    sites = [part for part in parts if isinstance(part, Site)]
    if sites:
        return [
            Placement(
                clients=(client,),
                partitions=site.file,
                host_secrets=own((client,), (site.fingerprint,)),
                options=options,
                options_again=options,
                node=site.node,
            )
            for client, site in enumerate(sites)
            for options in [pinned(site.node, room)]
        ]
    rows = [part for part in parts if not isinstance(part, Site)]
    elsewhere, turns = room.anywhere(), room.in_turn()
    if gpu_share:
        elsewhere["num_gpus"] = gpu_share
        turns = repeat(elsewhere)  # GPUs decide the node
    return [
        Placement(
            clients=clients,
            # One object for all rows of an actor: storing 10,000 objects of one client each took 5 s.
            partitions=ray.put([rows[client] for client in clients]),
            host_secrets=own(clients, tuple(fingerprint(rows[client]) for client in clients)),
            options=options,
            options_again=elsewhere,
        )
        for clients, options in zip(pack(len(rows), actors), turns, strict=False)
    ]


def rows_bytes(parts: Sequence[FloatArray | Site]) -> int:
    """Return the bytes of the local rows."""
    return sum(part.nbytes for part in parts if not isinstance(part, Site))


def require_room(parts: Sequence[FloatArray | Site], actors: int, room: Room) -> None:
    """Raise if the processes of a simulation do not fit into the memory of the run.

    Raises
    ------
    ScenarioError
        If they do not fit, with the numbers.
    """
    needed = actors * ACTOR_BYTES + 2 * rows_bytes(parts)
    if needed > room.memory_bytes:
        raise ScenarioError(
            f"{actors} client actors need about {needed / 2**30:.1f} GiB of memory ({ACTOR_BYTES / 2**20:.0f} MiB"
            f" each, plus the rows), but the {room.name} has {room.memory_bytes / 2**30:.1f} GiB. Lower"
            f" runtime.actors, so that each actor hosts more clients, or add {room.more}."
        )


def require_portable_nodes() -> None:
    """Check that workers on every node compute with the same code as every portable process.

    Raises
    ------
    ScenarioError
        If a node's processor cannot, or if Ray was started without the variables.
    """
    for node in ray.nodes():
        if node["Alive"]:
            here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            found = ray.get(_portability.options(scheduling_strategy=here).remote())
            if found is not None:
                raise ScenarioError(
                    f"{found} This is Ray's node {node['NodeManagerHostname']}: start Ray there with the variables, or"
                    " let raydr start it or join it."
                )


def _why_not_portable() -> str | None:
    try:
        require_portable()
    except ScenarioError as error:
        return str(error)
    return None


_portability = ray.remote(num_cpus=0)(_why_not_portable)
