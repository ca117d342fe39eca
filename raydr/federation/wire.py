"""What travels between the server and the hosts of clients: calls one way, answers and partial sums the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeAlias

from numpy.typing import NDArray

from raydr.arrays import Int64Array
from raydr.federation.failures import Failure
from raydr.federation.masks import Masks
from raydr.federation.messages import Reply, Request
from raydr.privacy.mechanism import Mechanism

Weighting: TypeAlias = Literal["sum", "clients", "rows"]
"""Weight of a client's summand: 1 each, 1 for each client that has rows, or its number of rows."""


@dataclass(kw_only=True, frozen=True)
class Call:
    """A request on its way to clients.

    Attributes
    ----------
    request : Request
        What is asked.
    number : int
        Of the call, from 1 on through the run: what comes back must name it.
    round : int
        The round that it belongs to; 0 before the first.
    attempt : int
        0, and 1 more each time that a client is asked again.
    clients : tuple of int
        Who is asked, ascending.
    in_rounds : bool
        Whether the call is part of a round, where simulated faults strike.
    parts : dict of client to Request
        What each of ``clients`` is told, where the server has cut a request that holds a part for each client;
        ``request`` is then one of them, so that nobody's part goes to another's host. Empty where all are told the
        same.
    """

    request: Request[Any]
    number: int
    round: int
    attempt: int
    clients: tuple[int, ...]
    in_rounds: bool
    parts: dict[int, Request[Any]] = field(default_factory=dict)

    def cut(self, clients: tuple[int, ...]) -> Self:
        """Return the call as it goes to the host of these clients, all of whom it asks."""
        parts = {client: self.told(client) for client in clients}
        if not self.parts and all(part is self.request for part in parts.values()):
            return replace(self, clients=clients)
        return replace(self, request=parts[clients[0]], clients=clients, parts=parts)

    def told(self, client: int) -> Request[Any]:
        """Return what one client is told."""
        return self.parts[client] if self.parts else self.request.addressed_to(client)


@dataclass(frozen=True)
class Sharing:
    """How clients divide noise that is to cover a sum.

    Attributes
    ----------
    clients : int
        How many shares make the whole noise: fewer than are added, by those that may be lost or known.
    sensitivity : float
        How far one record of any of them can move the sum.
    colluding : int
        How many shares may be known, since their clients tell them.
    among : str
        Names the sum: a digest of who is asked and, where some of them may be lost, of the start of the run.
    """

    clients: int
    sensitivity: float
    colluding: int
    among: str = ""


@dataclass(kw_only=True, frozen=True)
class SumCall(Call):
    """A call whose replies are added up.

    Attributes
    ----------
    weighting : Weighting
        Of the summands.
    total_weight : int
        Of all clients, which fixes the ring's resolution for all parties.
    sharing : Sharing or None
        Of noise that is to cover the sum alone.
    masks : Masks or None
        Under which clients are to hide their summands; None where the server may see them.
    """

    weighting: Weighting = "sum"
    total_weight: int = 0
    sharing: Sharing | None = None
    masks: Masks | None = None


@dataclass(frozen=True)
class Answered:
    """A reply with the call and round that it answers, as the client's envelope says, and what protects it."""

    client: int
    number: int
    round: int
    reply: Reply
    protection: Mechanism | None = None


Answer: TypeAlias = Answered | Failure


@dataclass(frozen=True)
class Sent:
    """What so many clients of a host sent under one protection, and the payload of all of it."""

    protection: Mechanism | None
    clients: int
    bytes: int


@dataclass(kw_only=True, frozen=True)
class PartialSum:
    """Ring sum over the clients of one host that were asked.

    Attributes
    ----------
    number, round : int
        The call and round that it answers.
    reply : type of Reply or None
        What was summed; None when no client answered.
    totals : mapping of field name to int64 array
        Weighted sums in the ring.
    sealed : mapping of field name to arrays by client
        What is not summed, since only the clients can read it.
    clients : tuple of int
        Whose summands are in it.
    weight : int
        Total weight of the summands.
    sent : tuple of Sent
        The clients' messages, by protection.
    failures : tuple of Failure
        Clients that did not answer.
    """

    number: int
    round: int
    reply: type[Reply] | None = None
    totals: dict[str, Int64Array] = field(default_factory=dict)
    sealed: dict[str, dict[int, NDArray[Any]]] = field(default_factory=dict)
    clients: tuple[int, ...] = ()
    weight: int = 0
    sent: tuple[Sent, ...] = ()
    failures: tuple[Failure, ...] = ()


def by_protection(messages: Iterable[tuple[Mechanism | None, int]]) -> tuple[Sent, ...]:
    """Messages, each with its protection and payload, counted by protection."""
    sizes: dict[Mechanism | None, list[int]] = {}
    for protection, size in messages:
        sizes.setdefault(protection, []).append(size)
    return tuple(Sent(protection, len(each), sum(each)) for protection, each in sizes.items())


def asked_at(call: Call, homes: Iterable[Sequence[int]]) -> list[tuple[int, ...]]:
    """Clients of each home whom a call asks."""
    asked = frozenset(call.clients)
    return [tuple(client for client in home if client in asked) for home in homes]


def remember(history: list[Call], call: Call, answered: Iterable[int]) -> None:
    """Keep what set clients' state, for those alone who did as they were told."""
    clients = tuple(answered)
    if type(call.request).sets_state and clients:
        history.append(call.cut(clients))


def history_at(history: Iterable[Call], home: Sequence[int]) -> list[Call]:
    """Calls that set the state of clients of one home, each cut to them."""
    return [call.cut(here) for call in history if (here := asked_at(call, [home])[0])]


def weight_of(rows: int, weighting: Weighting) -> int:
    """Weight of a client with so many rows."""
    match weighting:
        case "sum":
            return 1
        case "clients":
            return int(rows > 0)
        case "rows":
            return rows
