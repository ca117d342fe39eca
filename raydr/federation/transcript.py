"""Transcripts: every message that the server could read, as it could read it, for audits.

A federation writes one only if it receives one, at the same place where the meter counts. A transcript contains what
the server of a real deployment has:

- each client's reply to :meth:`~raydr.federation.federation.Federation.ask` and similar calls;
- for a sum, the aggregate and each client's summand. Without secure aggregation every client sends its summand to the
  server, which adds them up. A host with several clients adds theirs up first, but only in a simulation. So a summand
  is recorded only if its host has one client: for a transcript, give each client its own host.

A transcript of all rounds would take gigabytes. It keeps every per-record reply. Of each other kind it keeps the first
calls and the last one, and counts all of them.
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
"""Calls of a kind whose replies are kept, in addition to the last: attacks on training need few, early rounds."""


@dataclass(kw_only=True, frozen=True)
class Seen:
    """A message as the server could read it.

    Attributes
    ----------
    number, round : int
        Number and round of the call.
    request : Request
        The request; for one client, the request to that client.
    client : int or None
        Client that answered; None for the sum or mean of several.
    reply : Reply
        The reply.
    protection : Mechanism or None
        Mechanism that the client's host applied, as the client states; for a sum, the one that all applied.
    """

    number: int
    round: int
    request: Request[Any]
    client: int | None
    reply: Reply
    protection: Mechanism | None = None


@dataclass(frozen=True)
class Release:
    """A charged release, with everything needed to repeat it (:mod:`raydr.federation.replay`).

    Attributes
    ----------
    call : Call
        Call to the clients that answered.
    charge : Charge
        Charge of the release.
    mechanism : Mechanism
        Mechanism that covered it.
    of_sum : bool
        Whether the sum is charged, which is all that the server sees.
    """

    call: Call
    charge: Charge
    mechanism: Mechanism
    of_sum: bool


@dataclass
class Transcript:
    """Messages in the order of arrival.

    Attributes
    ----------
    counts : Counter of type of Reply
        Number of replies of each kind that clients sent, including those that are not kept.
    steps : list of Call or Release
        Calls that set clients' state, and charged releases, in order.
    """

    counts: Counter[type[Reply]] = field(default_factory=Counter)
    steps: list[Call | Release] = field(default_factory=list, repr=False)
    _seen: dict[int, list[Seen]] = field(default_factory=dict, repr=False)
    _calls: dict[tuple[type[Request[Any]], type[Reply]], list[int]] = field(default_factory=dict, repr=False)

    def note(self, call: Call, charge: Charge | None, accounts: Accounts) -> None:
        """Record a call to the clients that answered it, if it set their state or was charged."""
        if type(call.request).sets_state and call.clients:
            self.steps.append(call)
        if charge is not None:
            mechanism = call.request_for(call.clients[0]).covering(accounts.records)
            if mechanism is None:
                raise TypeError(f"{charge.kind} is charged, but no mechanism covers it")
            shared = isinstance(call, SumCall) and call.sharing is not None
            self.steps.append(Release(call, charge, mechanism, accounts.secure and shared))

    def add(self, seen: Seen) -> None:
        """Record a message; if many of its kind are kept, it replaces an earlier one."""
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
        """Return the messages of one kind that clients sent, each with its reply."""
        return [
            (seen, seen.reply) for seen in self if isinstance(seen.reply, kind) and seen.client is not None
        ]
