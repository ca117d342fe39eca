"""How many actors share the clients of a run: only the rule, without Ray, so that plans can use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Packing = Literal["auto", "per-client"] | int

ACTOR_BYTES = 100 * 2**20
"""Memory of a client actor without rows. The interpreter, numpy and Ray's library take 80 MiB after the start: 151 MiB
are resident, half of it shared with other actors. The rest is working memory.
"""

ACTORS_PER_CORE = 16
"""Largest number of actors per core at which each client still has its own."""

MEMORY_PARTS = 4
"""Actors and their rows may use one part in ``MEMORY_PARTS`` of the memory while each client has its own actor."""


@dataclass(frozen=True)
class Seating:
    """The numbers of clients and actors, and why clients share actors if that was not requested."""

    clients: int
    actors: int
    packed: str = ""

    @property
    def line(self) -> str:
        """One line for a person.

        >>> print(seating(10, "auto", 2, 24 * 2**30).line)
        10 clients in 10 actors and a coordinator
        >>> print(seating(30, "auto", 1, 24 * 2**30).line)
        30 clients in 1 actor and a coordinator, packed: one each would be more than 16 per core
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
    """Distribute clients among actors.

    ``per-client`` and a number are used as given. ``auto`` gives each client its own actor, up to
    :data:`ACTORS_PER_CORE` per core, if actors and rows need at most a quarter of the memory. Beyond that, it uses one
    actor per core.

    Parameters
    ----------
    clients : int
        At least 1.
    packing : {"auto", "per-client"} or int
        The requested packing.
    cores : int
        Cores of the run, at least 1.
    memory_bytes : int
        Memory of the run.
    rows_bytes : int
        Size of all clients' rows together.
    batched : bool
        Whether the clients of one actor train together, so that they should share actors.

    Returns
    -------
    seating : Seating
        Never more actors than clients.
    """
    match packing:
        case "per-client":
            return Seating(clients, clients)
        case "auto":
            together = "runtime.batch_clients trains the clients of one actor together" if batched else ""
            reason = together or _why_not_each(clients, cores, memory_bytes, rows_bytes)
            actors = min(clients, cores) if reason else clients
            return Seating(clients, actors, reason if actors < clients else "")
        case number:
            return Seating(clients, min(number, clients))


def actors_for(clients: int, packing: Packing, cores: int, memory_bytes: int, rows_bytes: int = 0) -> int:
    """Return the number of client actors, without ``batched``; see :func:`seating` for the parameters.

    >>> [actors_for(clients, "auto", 2, 24 * 2**30) for clients in (1, 10, 32, 33)]
    [1, 10, 32, 2]
    """
    return seating(clients, packing, cores, memory_bytes, rows_bytes).actors


def pack(clients: int, actors: int) -> list[tuple[int, ...]]:
    """Return the clients of each actor: consecutive, in nearly equal numbers."""
    return [tuple(map(int, part)) for part in np.array_split(np.arange(clients), actors)]


def evaluates_early(values: int, memory_bytes: int) -> bool:
    """Return whether the evaluation's process starts, and imports its libraries, while clients and server compute.

    This saves about a second of each run. For large tables it matters less than the process's 0.4 GB, and small
    machines may lack them. Client actors take a quarter of the memory by default.

    Parameters
    ----------
    values : int
        Rows times features.
    memory_bytes : int
        Memory of the run.

    Examples
    --------
    >>> evaluates_early(2**23, 2**33), evaluates_early(2**23 + 1, 2**33), evaluates_early(1, 2**33 - 1)
    (True, False, False)
    """
    return values <= 2**23 and memory_bytes >= 8 * 2**30


def gpu_share(gpus: float, actors: int) -> float:
    """Return the part of a GPU for each actor, such that all fit: 1, or 1 divided by a whole number.

    >>> [gpu_share(gpus, actors) for gpus, actors in ((1, 2), (4, 2), (2, 3), (0, 5))]
    [0.5, 1.0, 0.5, 0.0]
    """
    return 1.0 / -(-actors // int(gpus)) if gpus >= 1 else 0.0


def _why_not_each(clients: int, cores: int, memory_bytes: int, rows_bytes: int) -> str:
    """Return why clients cannot have an actor each; empty if they can."""
    needed, allowed = clients * ACTOR_BYTES + rows_bytes, memory_bytes // MEMORY_PARTS
    if needed > allowed:
        return f"one each would need {needed / 2**30:.1f} GiB, and a quarter of the memory is {allowed / 2**30:.1f} GiB"
    if clients > ACTORS_PER_CORE * cores:
        return f"one each would be more than {ACTORS_PER_CORE} per core"
    return ""


def _counted(number: int, name: str) -> str:
    return f"{number:,} {name}" if number == 1 else f"{number:,} {name}s"
