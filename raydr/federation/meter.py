"""The meter counts what crosses the boundary: messages for the ledger, rounds and failures for the journal."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from raydr.federation.codec import encoded_bytes
from raydr.federation.failures import Decision, Failure, Incident
from raydr.federation.messages import Reply, Request
from raydr.federation.network import Clock
from raydr.federation.wire import Call, Sent
from raydr.journal import IncidentEvent, Journal, RoundEnded
from raydr.privacy.ledger import OTHER_CLIENTS, DeterminedRecords, Entry, Granularity, Ledger
from raydr.privacy.mechanism import Mechanism

_LOGGER = logging.getLogger(__name__)


@dataclass(kw_only=True)
class _Traffic:
    """Traffic and failures of the current round."""

    bytes_up: int = 0
    bytes_down: int = 0
    asked: int = 0
    answered: int = 0
    failed: int = 0
    objective: float | None = None
    moved: float | None = None
    incidents: list[Incident] = field(default_factory=list)


@dataclass
class Meter:
    """Counts of one run.

    Attributes
    ----------
    journal : Journal
        Receives the end of each round and each kind of incident.
    ledger : Ledger
        Messages so far.
    keyed : bool
        Whether clients describe rows under an isometry key.
    clock : Clock or None
        Time of the messages on the clients' lines, if these are known.
    """

    journal: Journal
    ledger: Ledger = field(default_factory=Ledger)
    keyed: bool = False
    clock: Clock | None = None
    _round: _Traffic = field(default_factory=_Traffic, repr=False)

    def begin_round(self) -> None:
        """Reset the counts of the round."""
        self._round = _Traffic()

    def note(self, objective: float | None, moved: float | None) -> None:
        """Store the method's objective, and its step length, for the current round's row."""
        self._round.objective, self._round.moved = objective, moved

    def end_round(self, number: int, seconds: float) -> RoundEnded:
        """Send the journal the totals of the current round, with this number and duration, and return them."""
        traffic = self._round
        ended = RoundEnded(
            round=number,
            objective=traffic.objective,
            seconds=seconds,
            bytes_up=traffic.bytes_up,
            bytes_down=traffic.bytes_down,
            asked=traffic.asked,
            answered=traffic.answered,
            failed=traffic.failed,
            incidents=tuple(asdict(incident) for incident in traffic.incidents),
            moved=traffic.moved,
        )
        self.journal.tell(ended)
        return ended

    def sent(self, request: Request[Any], asked: Sequence[int]) -> None:
        """Count a request that went to these clients."""
        kind = type(request)
        if request.addressed_to(asked[0]) is request:
            sizes, seen_by = [encoded_bytes(request)] * len(asked), "every client"
        else:
            sizes = [encoded_bytes(request.addressed_to(client)) for client in asked]
            seen_by = "each client its own part"
        size = sum(sizes)
        if self.clock is not None:
            for client, own in zip(asked, sizes, strict=True):
                self.clock.sent(client, own)
        self._round.asked += len(asked)
        self._round.bytes_down += size
        granularity = Granularity.AGGREGATE
        self.ledger.record(
            Entry(
                kind=kind.__name__,
                what=kind.what,
                direction="down",
                granularity=granularity,
                seen_by=seen_by,
                count=len(asked),
                bytes=size,
            )
        )

    def received(
        self,
        kind: type[Reply],
        sent: Sequence[Sent],
        seen_by: str,
        granularity: Granularity,
        *,
        secure: bool = False,
    ) -> None:
        """Count replies of one kind, with their readers and granularity."""
        if kind.forwarded:
            seen_by = OTHER_CLIENTS
        if kind.stays:
            seen_by = "only its client, and the evaluation, which exists only in a simulation"
        for part in sent:
            self._round.answered += part.clients
            self._round.bytes_up += 0 if kind.stays else part.bytes
            self.ledger.record(
                Entry(
                    kind=kind.__name__,
                    what=kind.what,
                    direction="simulation-only" if kind.stays else "up",
                    granularity=granularity,
                    seen_by=seen_by,
                    count=part.clients,
                    bytes=part.bytes,
                    protection=part.protection,
                    public=kind.public,
                    keyed=self.keyed,
                    secure=secure,
                    tells=kind.tells,
                )
            )

    def arrived(self, kind: type[Reply], sizes: Iterable[tuple[int, float]]) -> None:
        """Count replies of one kind, given by client and bytes, on the clients' lines."""
        if self.clock is not None and not kind.stays:
            for client, size in sizes:
                self.clock.received(client, size)

    def end_call(self) -> None:
        """Count the time of one call on the clients' lines."""
        if self.clock is not None:
            self.clock.end_call()

    def fixed(self, answers: Iterable[tuple[Reply, Request[Any], Mechanism | None]]) -> None:
        """Record how far the replies of one call, with their requests and mechanisms, determine the records."""
        found: dict[tuple[str, Mechanism | None], DeterminedRecords] = {}
        for reply, request, protection in answers:
            one = None if reply.stays else reply.fixed(request)
            if one is None:
                continue
            if (
                protection is not None and protection.on != "data"
            ):  # noise on data: the noisy records are determined
                one = replace(one, exact=0)
            key = (type(reply).__name__, protection)
            found[key] = found[key] + one if key in found else one
        for (kind, protection), all_of_them in found.items():
            self.ledger.fix(kind, protection, all_of_them)

    def decided(self, call: Call, attempt: int, decisions: Sequence[tuple[Failure, Decision]]) -> None:
        """Log every decision, add it to the round, and send the journal one line for each kind."""
        self._round.failed += len(decisions)
        sorts: Counter[tuple[str, str]] = Counter()
        name = type(call.request).__name__
        for failure, decision in decisions:
            incident = Incident(
                round=call.round,
                call=name,
                attempt=attempt,
                client=failure.client,
                kind=failure.kind,
                reason=failure.reason,
                decision=decision,
            )
            self._round.incidents.append(incident)
            _LOGGER.info("%s", json.dumps(asdict(incident)))
            if failure.trace:
                _LOGGER.info("%s", failure.trace)
            sorts[failure.kind, decision] += 1
        for sort, count in sorts.items():
            first = next(failure for failure, what in decisions if (failure.kind, what) == sort)
            whom = f"client {first.client}" + (f" and {count - 1} more" if count > 1 else "")
            self.journal.tell(
                IncidentEvent(f"round {call.round}: {whom}: {sort[0]} ({first.reason}): {sort[1]}")
            )
