"""How many actors share the clients of a run: the rule alone, without Ray, so that a plan can be made without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Packing = Literal["auto", "per-client"] | int

ACTOR_BYTES = 100 * 2**20
"""Memory of a client actor without rows: the interpreter, numpy and Ray's library, 80 MiB when it has settled (151 MiB
resident, of which it shares half with the others), and some to work with."""

ACTORS_PER_CORE = 16
"""Actors for each core up to which each client has one of its own."""

MEMORY_PARTS = 4
"""One part in so many of the memory may go to actors and their rows while each client has an actor of its own."""


@dataclass(frozen=True)
class Seating:
    """So many clients in so many actors, and why they share actors if nobody asked for it."""

    clients: int
    actors: int
    packed: str = ""

    @property
    def line(self) -> str:
        """One line for a person.

        >>> print(seating(10, "auto", 2, 24 * 2**30).line)
        10 clients in 10 actors and a coordinator
        >>> print(seating(30, "auto", 1, 24 * 2**30).line)
        30 clients in 1 actor and a coordinator, packed: one each would be more than 16 on a core
        """
        clients, actors = _counted(self.clients, "client"), _counted(self.actors, "actor")
        reason = f", packed: {self.packed}" if self.packed else ""
        return f"{clients} in {actors} and a coordinator{reason}"


def seating(
    clients: int,
    packing: Packing,
    cores: int,
    memory_bytes: int,
    rows_bytes: int = 0,
    *,
    batched: bool = False,
) -> Seating:
    """Share clients among actors.

    ``per-client`` and a number are taken at their word; ``auto`` gives each client an actor of its own up to
    :data:`ACTORS_PER_CORE` on a core, as long as they and their rows need no more than a quarter of the memory, and
    beyond that one actor to each core.

    Parameters
    ----------
    clients : int
        At least 1.
    packing : {"auto", "per-client"} or int
        What is asked for.
    cores : int
        Of the room that the run has, at least 1.
    memory_bytes : int
        Of that room.
    rows_bytes : int
        Of all clients' rows together.
    batched : bool
        Whether clients of one actor train as one, so that sharing is what is wanted.

    Returns
    -------
    seating : Seating
        Never more actors than clients.
    """
    match packing:
        case "per-client":
            return Seating(clients, clients)
        case "auto":
            together = "runtime.batch_clients trains those of one actor as one" if batched else ""
            reason = together or _why_not_each(clients, cores, memory_bytes, rows_bytes)
            actors = min(clients, cores) if reason else clients
            return Seating(clients, actors, reason if actors < clients else "")
        case number:
            return Seating(clients, min(number, clients))


def actors_for(clients: int, packing: Packing, cores: int, memory_bytes: int, rows_bytes: int = 0) -> int:
    """Return the number of client actors, without ``batched``; parameters are those of :func:`seating`.

    >>> [actors_for(clients, "auto", 2, 24 * 2**30) for clients in (1, 10, 32, 33)]
    [1, 10, 32, 2]
    """
    return seating(clients, packing, cores, memory_bytes, rows_bytes).actors


def pack(clients: int, actors: int) -> list[tuple[int, ...]]:
    """Clients of each actor: consecutive, and as equal in number as can be."""
    return [tuple(map(int, part)) for part in np.array_split(np.arange(clients), actors)]


def gpu_share(gpus: float, actors: int) -> float:
    """Part of a GPU for each of so many actors, such that all find room: a whole one, or one over a whole number.

    >>> [gpu_share(gpus, actors) for gpus, actors in ((1, 2), (4, 2), (2, 3), (0, 5))]
    [0.5, 1.0, 0.5, 0.0]
    """
    return 1.0 / -(-actors // int(gpus)) if gpus >= 1 else 0.0


def _why_not_each(clients: int, cores: int, memory_bytes: int, rows_bytes: int) -> str:
    """Why clients cannot have an actor each; empty where they can."""
    needed, allowed = clients * ACTOR_BYTES + rows_bytes, memory_bytes // MEMORY_PARTS
    if needed > allowed:
        return f"one each would need {needed / 2**30:.1f} GiB, and a quarter of the memory is {allowed / 2**30:.1f} GiB"
    if clients > ACTORS_PER_CORE * cores:
        return f"one each would be more than {ACTORS_PER_CORE} on a core"
    return ""


def _counted(number: int, name: str) -> str:
    return f"{number:,} {name}" if number == 1 else f"{number:,} {name}s"
