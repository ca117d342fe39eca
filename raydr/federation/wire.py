"""Data sent between the server and the clients' hosts: calls one way, answers and partial sums the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeAlias

from numpy.typing import NDArray

from raydr.arrays import IntArray, shaped
from raydr.federation.codec import encoded_bytes
from raydr.federation.failures import Failure
from raydr.federation.masks import Masks
from raydr.federation.messages import Range, Reply, Request
from raydr.federation.noise_streams import digest
from raydr.privacy.mechanism import Mechanism
from raydr.wire_types import travels

Weighting: TypeAlias = Literal["sum", "clients", "rows"]
"""Weight of a client's summand: 1 each, 1 for each client that has rows, or its number of rows."""


@travels
@dataclass(kw_only=True, frozen=True)
class Call:
    """A request on its way to clients.

    Attributes
    ----------
    request : Request
        The request.
    number : int
        Number of the call in the run, from 1; answers must repeat it.
    round : int
        Round of the call; 0 before the first.
    attempt : int
        0, plus 1 for each repetition.
    clients : tuple of int
        Clients asked, ascending.
    in_rounds : bool
        Whether the call is part of a round, where simulated faults occur.
    parts : dict of client to Request
        Request of each client, if the server has cut a request with a part for each client. ``request`` is then one of
        them, so that no part goes to another client's host. Empty if all clients get the same request.
    """

    request: Request[Any]
    number: int
    round: int
    attempt: int
    clients: tuple[int, ...]
    in_rounds: bool
    parts: dict[int, Request[Any]] = field(default_factory=dict)

    def cut(self, clients: tuple[int, ...]) -> Self:
        """Return the call for the host of these clients, all of which it asks."""
        parts = {client: self.request_for(client) for client in clients}
        if not self.parts and all(part is self.request for part in parts.values()):
            return replace(self, clients=clients)
        return replace(self, request=parts[clients[0]], clients=clients, parts=parts)

    def request_for(self, client: int) -> Request[Any]:
        """Return the request for one client."""
        return self.parts[client] if self.parts else self.request.addressed_to(client)


@travels
@dataclass(frozen=True)
class Sharing:
    """How clients share noise that covers a sum.

    Attributes
    ----------
    clients : int
        Number of shares that make the whole noise: fewer than are added, because some may be lost or known.
    sensitivity : float
        L2 distance by which one record of any client can move the sum.
    colluding : int
        Number of shares that colluding clients may reveal.
    among : str
        Name of the sum: a digest of the clients asked and, if some may be lost, of the start of the run.
    """

    clients: int
    sensitivity: float
    colluding: int
    among: str = ""


@travels
@dataclass(kw_only=True, frozen=True)
class SumCall(Call):
    """A call whose replies are added up.

    Attributes
    ----------
    weighting : Weighting
        Weights of the summands.
    total_weight : int
        Total weight of all clients, which fixes the ring's resolution for all parties.
    sharing : Sharing or None
        Sharing of noise that covers only the sum.
    masks : Masks or None
        Masks that hide the summands; None if the server may see them.
    """

    weighting: Weighting = "sum"
    total_weight: int = 0
    sharing: Sharing | None = None
    masks: Masks | None = None

    @property
    def is_blinded(self) -> bool:
        """Whether the server is to learn only which entries of the sum are 0."""
        return type(self.request).blinded and self.masks is not None

    @property
    def sum_digest(self) -> str:
        """A digest of the request and the label of a secure sum, the same if a client is asked again."""
        return digest(self.request, self.total_weight, self.masks and self.masks.label)


@travels
@dataclass(frozen=True)
class Answered:
    """A reply, the call and round that it answers according to the client, and its mechanism."""

    client: int
    number: int
    round: int
    reply: Reply
    protection: Mechanism | None = None


Answer: TypeAlias = Answered | Failure


@travels
@dataclass(frozen=True)
class Sent:
    """The replies of some clients of a host under one mechanism: their number and total size in the wire format."""

    protection: Mechanism | None
    clients: int
    bytes: int


@travels
@dataclass(kw_only=True, frozen=True)
class PartialSum:
    """Ring sum over the clients of one host that were asked.

    Attributes
    ----------
    number, round : int
        Number and round of the call.
    reply : type of Reply or None
        Type of the summed replies; None if no client answered.
    totals : mapping of field name to array
        Weighted sums in the ring, as integers of its bits.
    sealed : mapping of field name to arrays by client
        Fields that are not summed, because only the clients can read them.
    clients : tuple of int
        Clients whose summands are included.
    weight : int
        Total weight of the summands.
    sent : tuple of Sent
        The clients' messages, by mechanism.
    failures : tuple of Failure
        Clients that did not answer.
    """

    number: int
    round: int
    reply: type[Reply] | None = None
    totals: dict[str, IntArray] = field(default_factory=dict)
    sealed: dict[str, dict[int, NDArray[Any]]] = field(default_factory=dict)
    clients: tuple[int, ...] = ()
    weight: int = 0
    sent: tuple[Sent, ...] = ()
    failures: tuple[Failure, ...] = ()


def by_protection(messages: Iterable[tuple[Mechanism | None, int]]) -> tuple[Sent, ...]:
    """Count messages, given by mechanism and size, by mechanism."""
    sizes: dict[Mechanism | None, list[int]] = {}
    for protection, size in messages:
        sizes.setdefault(protection, []).append(size)
    return tuple(Sent(protection, len(each), sum(each)) for protection, each in sizes.items())


def asked_at(call: Call, homes: Iterable[Sequence[int]]) -> list[tuple[int, ...]]:
    """Return the clients of each home that a call asks."""
    asked = frozenset(call.clients)
    return [
        tuple(home) if asked.issuperset(home) else tuple(filter(asked.__contains__, home)) for home in homes
    ]


def remember(history: list[Call], call: Call, answered: Iterable[int]) -> None:
    """Add a call that set clients' state to the history, for the clients that answered."""
    clients = tuple(answered)
    if type(call.request).sets_state and clients:
        history.append(call.cut(clients))


def history_at(history: Iterable[Call], home: Sequence[int]) -> list[Call]:
    """Return the calls that set the state of one home's clients, each cut to them."""
    return [call.cut(here) for call in history if (here := asked_at(call, [home])[0])]


def weight_of(rows: int, weighting: Weighting) -> int:
    """Return the weight of a client with ``rows`` rows."""
    match weighting:
        case "sum":
            return 1
        case "clients":
            return int(rows > 0)
        case "rows":
            return rows


def summand_bytes(ranges: Mapping[str, Range]) -> int:
    """Return the bytes of a client's summand in the wire format: its fields by name, integers of the ring or sealed."""
    types = {
        name: declared.dtype if declared.sealed else f"int{declared.bits}"
        for name, declared in ranges.items()
    }
    return encoded_bytes({name: shaped(declared.shape, types[name]) for name, declared in ranges.items()})
