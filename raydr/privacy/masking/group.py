"""Who sums together, who is whose neighbour, and how a sum is called."""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple, dataclass
from functools import cached_property

from raydr.privacy.masking.degrees import Degrees
from raydr.privacy.masking.refusals import MaskingError, TooFewError


@dataclass(frozen=True)
class Label:
    """Name of one sum, that no other sum of the run has: masks follow from it.

    Attributes
    ----------
    start : str
        Tells the starts of a run apart, since a resumed one counts its calls anew from a checkpoint.
    call, round : int
        The call and round that it belongs to.
    """

    start: str
    call: int
    round: int


@dataclass(frozen=True)
class Group:
    """Clients that sum together. All of it is public, and all parties must be told the same.

    Attributes
    ----------
    run : str
        Digest of what the run is made from.
    clients : tuple of int
        Ascending.
    degrees : Degrees
        Of the graph, for so many clients.
    seed : int
        From which the order on the circle follows. Who colludes must not have been chosen by it.

    Raises
    ------
    MaskingError
        If a client is there twice, out of order, or the degrees are for another number of clients.
    """

    run: str
    clients: tuple[int, ...]
    degrees: Degrees
    seed: int = 0

    def __post_init__(self) -> None:
        if list(self.clients) != sorted(set(self.clients)) or len(self.clients) != self.degrees.clients:
            raise MaskingError(
                f"a group for {self.degrees.clients} clients lists {len(self.clients)}: each must be there once,"
                " ascending."
            )

    @cached_property
    def digest(self) -> str:
        """What all that belongs to this group is bound to."""
        content = json.dumps([self.run, self.clients, astuple(self.degrees), self.seed])
        return hashlib.sha256(content.encode()).hexdigest()

    def neighbours(self, client: int) -> tuple[int, ...]:
        """Who holds shares of a client, and it of theirs; ascending."""
        return _of(client, self._neighbours)

    def partners(self, client: int) -> tuple[int, ...]:
        """Neighbours that a client exchanges streams with; ascending."""
        return _of(client, self._partners)

    def require(self, present: frozenset[int], what: str) -> None:
        """Refuse a set of clients that has strangers in it, or lacks more than may drop out.

        Raises
        ------
        MaskingError
            If somebody is not in the group.
        TooFewError
            If more are missing than may be.
        """
        strangers = present.difference(self.clients)
        if strangers:
            raise MaskingError(f"client {min(strangers)} has {what}, and is not in the group.")
        least = len(self.clients) - self.degrees.dropouts
        if len(present) < least:
            raise TooFewError(
                f"only {len(present)} of {len(self.clients)} clients have {what}, and secure aggregation is set up for"
                f" {least}: allow more to drop out, or look at why they did."
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
        """Of each client, so many others that stand nearest."""
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
