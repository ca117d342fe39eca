"""What the server saw: every message that it could read, as it could read it, for whoever judges what was given away.

A federation writes one only where it is handed one, at the very place where the meter counts. What is in it is what the
server of a real deployment has:

- each client's reply to :meth:`~raydr.federation.federation.Federation.ask` and its like;
- of a sum, the aggregate, and each client's summand. Without secure aggregation every client sends its summand to the
  server, which adds them up. That a host of several clients adds up theirs beforehand is an artefact of the simulation,
  so a summand is written down only where a host has one client: whoever wants a transcript gives each its own.

A transcript of all rounds would hold gigabytes. It keeps every reply that speaks of single records, and of each other
kind the first calls and the last one; how many there were of each, it counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from raydr.federation.accounts import Accounts
from raydr.federation.messages import Reply, Request
from raydr.federation.wire import Call, SumCall
from raydr.privacy.accounting import Charge
from raydr.privacy.ledger import Granularity
from raydr.privacy.mechanism import Mechanism

R = TypeVar("R", bound=Reply)

FIRST_CALLS = 3
"""Calls of a kind whose replies are kept, beside the last one: an attack on training needs few rounds, early ones."""


@dataclass(kw_only=True, frozen=True)
class Seen:
    """A message as the server could read it.

    Attributes
    ----------
    number, round : int
        Of the call.
    request : Request
        What was asked: of a client, what it was told.
    client : int or None
        Who answered; None for the sum or mean of several.
    reply : Reply
        What came.
    protection : Mechanism or None
        What the client says that its host did to it; of a sum, what all did alike.
    """

    number: int
    round: int
    request: Request[Any]
    client: int | None
    reply: Reply
    protection: Mechanism | None = None


@dataclass(frozen=True)
class Release:
    """A charged release: enough to make it again (:mod:`raydr.federation.replay`).

    Attributes
    ----------
    call : Call
        To the clients that answered.
    charge : Charge
        Of it.
    mechanism : Mechanism
        Which covered it.
    of_sum : bool
        Whether what is charged is the sum, the only thing that the server sees.
    """

    call: Call
    charge: Charge
    mechanism: Mechanism
    of_sum: bool


@dataclass
class Transcript:
    """Messages in the order in which they came.

    Attributes
    ----------
    counts : Counter of type of Reply
        How many replies of each kind clients sent, those that are not kept included.
    steps : list of Call or Release
        What set clients' state, and what was charged, in order.
    """

    counts: Counter[type[Reply]] = field(default_factory=Counter)
    steps: list[Call | Release] = field(default_factory=list, repr=False)
    _seen: dict[int, list[Seen]] = field(default_factory=dict, repr=False)
    _calls: dict[tuple[type[Request[Any]], type[Reply]], list[int]] = field(default_factory=dict, repr=False)

    def note(self, call: Call, charge: Charge | None, accounts: Accounts) -> None:
        """Note a call to those who answered it, if it set their state or was charged."""
        if type(call.request).sets_state and call.clients:
            self.steps.append(call)
        if charge is not None:
            mechanism = call.told(call.clients[0]).covering(accounts.records)
            if mechanism is None:
                raise TypeError(f"{charge.kind} is charged, and no mechanism covers it")
            shared = isinstance(call, SumCall) and call.sharing is not None
            self.steps.append(Release(call, charge, mechanism, accounts.secure and shared))

    def add(self, seen: Seen) -> None:
        """Note a message; that of a later call takes the place of an earlier one where many of its kind are kept."""
        kind = type(seen.reply)
        self.counts[kind] += seen.client is not None
        if kind.granularity != Granularity.PER_RECORD:
            calls = self._calls.setdefault((type(seen.request), kind), [])
            if seen.number not in calls:
                calls.append(seen.number)
                if len(calls) > FIRST_CALLS + 1:
                    del self._seen[calls.pop(-2)]
        self._seen.setdefault(seen.number, []).append(seen)

    def __iter__(self) -> Iterator[Seen]:
        for number in sorted(self._seen):
            yield from self._seen[number]

    def of(self, kind: type[R]) -> list[tuple[Seen, R]]:
        """Messages of one kind that clients sent, each with its reply."""
        return [
            (seen, seen.reply) for seen in self if isinstance(seen.reply, kind) and seen.client is not None
        ]
