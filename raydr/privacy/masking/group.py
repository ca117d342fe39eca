"""Groups that sum together, their neighbour graph, and the labels of sums."""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple, dataclass
from functools import cached_property

from raydr.privacy.masking.degrees import Degrees
from raydr.privacy.masking.refusals import MaskingError, TooFewError
from raydr.wire_types import travels


@travels
@dataclass(frozen=True)
class Batch:
    """The unique name of some sums in a run. Clients share the secrets of all of them in one message.

    Attributes
    ----------
    start : str
        Identifies this start of the run, because a resumed run counts its batches from one again.
    number : int
        Number of the batch in this start.
    sums : int
        Number of sums in the batch.
    """

    start: str
    number: int
    sums: int


@travels
@dataclass(frozen=True)
class Label:
    """The unique name of a sum in a run. Masks follow from it.

    Attributes
    ----------
    batch : Batch
        The sum's batch.
    place : int
        Place of the sum in the batch, from 0.
    """

    batch: Batch
    place: int


@dataclass(frozen=True)
class Group:
    """Clients that sum together. All of it is public, and all parties must use the same values.

    Attributes
    ----------
    run : str
        Digest of the run's inputs.
    clients : tuple of int
        The clients, ascending.
    degrees : Degrees
        Degrees of the graph for this number of clients.
    seed : int
        Seed of the order on the circle. Colluding clients must not have been chosen by that order.

    Raises
    ------
    MaskingError
        If a client occurs twice or out of order, or the degrees are for another number of clients.
    """

    run: str
    clients: tuple[int, ...]
    degrees: Degrees
    seed: int = 0

    def __post_init__(self) -> None:
        if list(self.clients) != sorted(set(self.clients)) or len(self.clients) != self.degrees.clients:
            raise MaskingError(
                f"a group for {self.degrees.clients} clients lists {len(self.clients)}: list each client once, in"
                " ascending order."
            )

    @cached_property
    def digest(self) -> str:
        """Digest that all keys and messages of this group are bound to."""
        content = json.dumps([self.run, self.clients, astuple(self.degrees), self.seed])
        return hashlib.sha256(content.encode()).hexdigest()

    def neighbours(self, client: int) -> tuple[int, ...]:
        """Return the clients that hold shares of a client, and the client of theirs; ascending."""
        return _of(client, self._neighbours)

    def partners(self, client: int) -> tuple[int, ...]:
        """Return the neighbours that a client exchanges streams with, ascending."""
        return _of(client, self._partners)

    def require(self, present: frozenset[int], what: str) -> None:
        """Raise if a set of clients contains strangers, or lacks more clients than may drop out.

        Raises
        ------
        MaskingError
            If a client is not in the group.
        TooFewError
            If more clients are missing than may drop out.
        """
        strangers = present.difference(self.clients)
        if strangers:
            raise MaskingError(f"client {min(strangers)} has {what}, but is not in the group.")
        least = len(self.clients) - self.degrees.dropouts
        if len(present) < least:
            raise TooFewError(
                f"only {len(present)} of {len(self.clients)} clients have {what}, and secure aggregation needs"
                f" {least}. Allow more drop-outs (lower runtime.quorum), or find out why the others dropped out."
            )

    @cached_property
    def _order(self) -> tuple[int, ...]:
        """Clients around the circle."""

        def place(client: int) -> bytes:
            return hashlib.sha256(json.dumps([self.run, self.seed, "circle", client]).encode()).digest()

        return tuple(sorted(self.clients, key=place))

    @cached_property
    def _neighbours(self) -> dict[int, tuple[int, ...]]:
        return self._around(self.degrees.sharing)

    @cached_property
    def _partners(self) -> dict[int, tuple[int, ...]]:
        return self._around(self.degrees.masking)

    def _around(self, degree: int) -> dict[int, tuple[int, ...]]:
        """Return the ``degree`` nearest clients of each client."""
        if degree >= len(self.clients) - 1:
            return {
                client: tuple(other for other in self.clients if other != client) for client in self.clients
            }
        circle, steps = self._order, [step for step in range(-(degree // 2), degree // 2 + 1) if step]
        return {
            client: tuple(sorted(circle[(place + step) % len(circle)] for step in steps))
            for place, client in enumerate(circle)
        }


def _of(client: int, near: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
    if client not in near:
        raise MaskingError(f"client {client} is not in the group.")
    return near[client]
