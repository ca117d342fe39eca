"""Which client lives in which actor, and whether there is room for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

import ray

from raydr.actors.packing import ACTOR_BYTES, pack
from raydr.actors.resources import Room
from raydr.actors.sites import pinned
from raydr.actors.transport import Placement
from raydr.arrays import FloatArray
from raydr.data import Site
from raydr.errors import ScenarioError
from raydr.federation import fingerprint
from raydr.federation.client import Withheld
from raydr.privacy.secrets import Secret


def place(
    parts: Sequence[FloatArray | Site],
    actors: int,
    room: Room,
    *,
    withheld: Withheld | None = None,
    gpu_share: float = 0.0,
) -> list[Placement]:
    """Share the clients among actors; rows that are here go into the object store, and each actor's secrets.

    Parameters
    ----------
    parts : sequence of (rows, features) arrays or Site
        Each client's rows, or where they are. Each site has an actor of its own, on its node, be that in the room or
        not, since its rows are nowhere else.
    actors : int
        To share clients whose rows are here, at most as many as clients.
    room : Room
        Where they live.
    withheld : Withheld, optional
        Of all clients, by default drawn; each actor is told where its own clients' is.
    gpu_share : float
        Part of a GPU for each actor of clients whose rows are here.
    """
    withheld = withheld or Withheld.derived(Secret.drawn(), range(len(parts)))
    reserve, kept = ray.put(withheld.reserve), replace(withheld, reserve=None)

    def own(clients: tuple[int, ...], fingerprints: tuple[str, ...]) -> tuple[ray.ObjectRef[Any], ...]:
        """Return references to what the actor alone is given; Ray fetches nothing inside a tuple on the way."""
        return ray.put(kept.at(clients)), reserve, ray.put(fingerprints)

    sites = [part for part in parts if isinstance(part, Site)]
    if sites:
        return [
            Placement(
                clients=(client,),
                partitions=site.file,
                withheld=own((client,), (site.fingerprint,)),
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
        turns = repeat(elsewhere)  # where a GPU is
    return [
        Placement(
            clients=clients,
            # One object for all rows of an actor: 10,000 objects of one client each took 5 s to store.
            partitions=ray.put([rows[client] for client in clients]),
            withheld=own(clients, tuple(fingerprint(rows[client]) for client in clients)),
            options=options,
            options_again=elsewhere,
        )
        for clients, options in zip(pack(len(rows), actors), turns, strict=False)
    ]


def rows_bytes(parts: Sequence[FloatArray | Site]) -> int:
    """Bytes of the rows that are here."""
    return sum(part.nbytes for part in parts if not isinstance(part, Site))


def require_room(parts: Sequence[FloatArray | Site], actors: int, room: Room) -> None:
    """Refuse at once a simulation whose processes do not fit into the memory of its room.

    Raises
    ------
    ScenarioError
        With the numbers.
    """
    needed = actors * ACTOR_BYTES + 2 * rows_bytes(parts)
    if needed > room.memory_bytes:
        raise ScenarioError(
            f"{actors} client actors need about {needed / 2**30:.1f} GiB of memory ({ACTOR_BYTES / 2**20:.0f} MiB each,"
            f" and the rows), and the {room.name} has {room.memory_bytes / 2**30:.1f} GiB: set runtime.actors to fewer,"
            f" so that each hosts more clients, or add {room.more}."
        )
