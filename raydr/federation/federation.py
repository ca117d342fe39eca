"""The federation as a method sees it: ask every client, or learn only a sum.

``ask`` brings one reply per client, in client order; ``sum`` and ``mean`` bring the aggregate alone, added up in the
ring (:mod:`raydr.federation.ring`), so the same bits come back however clients are packed into processes. What
carries the calls is a :class:`Transport`: in this process (:mod:`raydr.federation.inline`) or Ray's actors.

``ask`` and ``sum`` need every client. ``mean`` inside rounds can do without some, down to the policy's quorum; the
weights of those that answered are renormalised. Where clients are lost at random and weigh the same, that is unbiased;
weighted by rows it is a ratio of two unbiased sums, whose bias vanishes with the number of clients.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from raydr.errors import RunError
from raydr.federation.checkpoint import Checkpoint, LoopState
from raydr.federation.client import Client
from raydr.federation.failures import ClientError, Decision, Failure, FailurePolicy, Incident, Kind
from raydr.federation.host import (
    Answer,
    Answered,
    Call,
    PartialSum,
    SumCall,
    Weighting,
    answer_bytes,
    weight_of,
)
from raydr.federation.messages import Granularity, Range, Reply, Request, answers, payload_bytes
from raydr.federation.ring import decode, fraction_bits
from raydr.federation.streams import server_stream
from raydr.journal import CheckpointTaken, Journal, RoundEnded
from raydr.journal import Incident as Told
from raydr.privacy.ledger import Direction, Entry, Ledger

R = TypeVar("R", bound=Reply)
C = TypeVar("C", bound=Call)
State = dict[str, NDArray[Any]]

_LOGGER = logging.getLogger(__name__)


class Transport(Protocol):
    """Carries calls to the hosts of clients; knows nothing of methods, ledgers or rounds."""

    def reset(self) -> None:
        """Return every client to its partition as it was read."""

    def ask(self, call: Call) -> list[Answer]:
        """One answer for each client asked; a client that could not be reached is a failure."""

    def sum(self, call: SumCall) -> list[PartialSum]:
        """Partial sums that together hold every client asked once, as summand or as failure."""


@dataclass(frozen=True)
class Enrolment(Reply, granularity=Granularity.PER_CLIENT, what="how many rows and features a client has"):
    """Size of a client's partition."""

    rows: int
    features: int

    @staticmethod
    def ranges(request: Enrol, rows: int) -> dict[str, Range]:
        """Two numbers."""
        return {"rows": Range(()), "features": Range(())}


@dataclass(frozen=True)
class Enrol(Request[Enrolment], what="the question how many rows and features a client has"):
    """Asked once, before anything else."""


@answers(Enrol)
def enrol(client: Client, request: Enrol) -> Enrolment:
    """Client part of the first question."""
    return Enrolment(*client.rows.shape)


@dataclass
class _Traffic:
    """What happened in the present round."""

    bytes_up: int = 0
    bytes_down: int = 0
    asked: int = 0
    answered: int = 0
    failed: int = 0
    objective: float | None = None
    incidents: list[Incident] = field(default_factory=list)


class Federation:
    """All clients of a run.

    Parameters
    ----------
    transport : Transport
        Carries the calls.
    clients : int
        Number of clients, those without rows included.
    seed : int
        The run's seed.
    journal : Journal, optional
        Told of stages, rounds, incidents and checkpoints.
    policy : FailurePolicy, optional
        Decides what follows when a client does not answer.
    participation : float
        Part of the clients, from above 0 to 1, drawn anew in each round, that a ``mean`` in rounds asks.
    checkpoint_every : int
        Rounds between checkpoints; 0 for none.
    resume : Checkpoint, optional
        Where to go on: loops of rounds take up their saved state and skip what was done.

    Attributes
    ----------
    sizes : tuple of int
        Rows of each client, in client order.
    features : int
        Features of every row.
    round : int
        Rounds begun so far.
    ledger : Ledger
        Every message that crossed the boundary.
    """

    def __init__(
        self,
        transport: Transport,
        clients: int,
        *,
        seed: int,
        journal: Journal | None = None,
        policy: FailurePolicy | None = None,
        participation: float = 1.0,
        checkpoint_every: int = 0,
        resume: Checkpoint | None = None,
    ) -> None:
        if resume is not None and resume.seed != seed:
            raise RunError(f"the checkpoint is of seed {resume.seed}, and this run's seed is {seed}.")
        self._transport = transport
        self._traffic = _Traffic()
        self._policy = policy or FailurePolicy()
        self._participation = participation
        self._checkpoint_every = checkpoint_every
        self._resume = resume
        self._loops: list[LoopState] = []
        self._calls = 0
        self._in_rounds = False
        self.clients = clients
        self.seed = seed
        self.journal = journal or Journal()
        self.ledger = Ledger()
        self.round = 0
        transport.reset()
        enrolments = self.ask(Enrol())
        self.sizes = tuple(enrolment.rows for enrolment in enrolments)
        widths = sorted({enrolment.features for enrolment in enrolments})
        if len(widths) > 1:
            raise ClientError(f"clients hold rows of different width: {widths} features")
        if not sum(self.sizes):
            raise ClientError("no client holds a row")
        self.features = widths[0]

    @property
    def rows(self) -> int:
        """Rows of all clients together."""
        return sum(self.sizes)

    def stream(self, purpose: str) -> np.random.Generator:
        """Random numbers of the server for this round and purpose."""
        return server_stream(self.seed, self.round, purpose)

    def stage(self, name: str) -> AbstractContextManager[None]:
        """Time a stage of the method."""
        return self.journal.stage(name)

    def rounds(self, count: int, state: State) -> Iterator[int]:
        """Number ``count`` rounds, from 1 on through the whole run, and journal each.

        Parameters
        ----------
        count : int
            Rounds of this loop.
        state : dict of name to array
            What one round hands to the next. The loop body replaces its values; checkpoints save it; a resumed run
            fills it, before the first round, with what was saved, and yields only the rounds that remain.
        """
        index, done = len(self._loops), 0
        if self._resume is not None and index < len(self._resume.loops):
            saved = self._resume.loops[index]
            state.clear()
            state.update(saved.state)
            done = saved.done
            if index == len(self._resume.loops) - 1:
                self.round = self._resume.round
                self.ledger = self._resume.restored_ledger()
                self.journal.rounds[:] = self._resume.rounds
        self._loops.append(LoopState(done, dict(state)))
        while done < count:
            self.round += 1
            self._traffic = _Traffic()
            self._in_rounds = True
            started = time.perf_counter()
            yield self.round
            self._in_rounds = False
            done += 1
            self._end_round(time.perf_counter() - started)
            self._loops[index] = LoopState(done, dict(state))
            self.journal.progress(done, count)
            if self._checkpoint_every and (done % self._checkpoint_every == 0 or done == count):
                self.journal.tell(CheckpointTaken(self.round, self._checkpoint().to_bytes()))

    def report(self, *, objective: float) -> None:
        """Note the method's objective for the present round."""
        self._traffic.objective = objective

    def ask(self, request: Request[R]) -> list[R]:
        """One reply of each client, in client order.

        Raises
        ------
        ClientError
            If a client does not answer, whatever is tried.
        """
        everyone = tuple(range(self.clients))
        call = Call(request, self._number(), self.round, 0, everyone, self._in_rounds)
        replies: dict[int, Reply] = {}

        def send(attempt: Call) -> list[Failure]:
            got = self._transport.ask(attempt)
            failures = [answer for answer in got if isinstance(answer, Failure)]
            fresh = [
                answer
                for answer in got
                if isinstance(answer, Answered)
                and (answer.number, answer.round) == (call.number, call.round)
                and answer.client not in replies
            ]
            replies.update((answer.client, answer.reply) for answer in fresh)
            if fresh:
                self._meter_up(type(fresh[0].reply), len(fresh), answer_bytes(fresh), "server")
            return failures + _missing(attempt, replies, failures)

        self._deliver(call, send, droppable=False)
        return cast(list[R], [replies[client] for client in everyone])

    def sum(self, request: Request[R]) -> R:
        """Sum of all clients' replies, field by field; exact in the ring, rounded once to double precision."""
        return self._aggregate(request, "sum")[0]

    def mean(self, request: Request[R], *, weights: Literal["clients", "rows"] = "clients") -> R:
        """Mean of the replies of clients that have rows; in rounds, of those that take part and answer.

        Parameters
        ----------
        request : Request
            What to ask.
        weights : {"clients", "rows"}
            Every client counts the same (P1's omega_p = 1/P), or as its number of rows.

        Raises
        ------
        ClientError, QuorumError
            If a client is lost that cannot be done without, or too many are.
        """
        total, weight = self._aggregate(request, weights)
        return type(total)(**{name: value / weight for name, value in vars(total).items()})

    def _aggregate(self, request: Request[R], weighting: Weighting) -> tuple[R, int]:
        weighty = tuple(client for client, rows in enumerate(self.sizes) if weight_of(rows, weighting))
        total_weight = sum(weight_of(self.sizes[client], weighting) for client in weighty)
        droppable = self._in_rounds and weighting != "sum"
        cohort = self._cohort(weighty) if droppable else weighty
        call = SumCall(
            request, self._number(), self.round, 0, cohort, self._in_rounds, weighting, total_weight
        )
        parts: list[PartialSum] = []
        summed: set[int] = set()

        def send(attempt: SumCall) -> list[Failure]:
            failures: list[Failure] = []
            for part in self._transport.sum(attempt):
                failures += part.failures
                late = (part.number, part.round) != (call.number, call.round)
                if part.reply is None or late or not summed.isdisjoint(part.clients):
                    continue
                parts.append(part)
                summed.update(part.clients)
                self._meter_up(
                    part.reply, len(part.clients), part.bytes, "server, which adds up what each client sends"
                )
            return failures + _missing(attempt, summed, failures)

        self._deliver(call, send, droppable=droppable)
        self._policy.require_quorum(len(summed), len(cohort))
        reply = next(part.reply for part in parts if part.reply is not None)
        fields = {}
        for name, declared in reply.ranges(request, 0).items():
            total = parts[0].totals[name]
            for part in parts[1:]:
                total = total + part.totals[name]
            value = decode(total, fraction_bits(declared.largest, total_weight))
            fields[name] = value if value.ndim else float(value)
        return cast(R, reply(**fields)), sum(part.weight for part in parts)

    def _cohort(self, clients: tuple[int, ...]) -> tuple[int, ...]:
        """Clients that take part in this round."""
        if self._participation == 1.0:
            return clients
        count = max(1, round(self._participation * len(clients)))
        drawn = self.stream("participation").choice(len(clients), count, replace=False)
        return tuple(clients[index] for index in np.sort(drawn))

    def _deliver(self, call: C, send: Callable[[C], list[Failure]], *, droppable: bool) -> None:
        """Send a call, and send it again to those of whom the policy says so."""
        attempt = 0
        pending = call.clients
        while pending:
            self._meter_down(call.request, len(pending))
            failures = send(replace(call, clients=pending, attempt=attempt))
            decided = [
                (failure, self._policy.decide(failure, attempt, droppable=droppable)) for failure in failures
            ]
            self._journal_decisions(call, attempt, decided)
            lost = [failure for failure, decision in decided if decision is Decision.GIVE_UP]
            if lost:
                raise ClientError(_lament(call, lost))
            pending = tuple(
                sorted(failure.client for failure, decision in decided if decision is Decision.RETRY)
            )
            attempt += 1

    def _journal_decisions(
        self, call: Call, attempt: int, decided: Sequence[tuple[Failure, Decision]]
    ) -> None:
        """One log line and one entry of the round for each decision; one line for a person for each sort of it."""
        self._traffic.failed += len(decided)
        sorts: Counter[tuple[str, str]] = Counter()
        for failure, decision in decided:
            incident = Incident(
                self.round,
                type(call.request).__name__,
                attempt,
                failure.client,
                failure.kind,
                failure.reason,
                decision,
            )
            self._traffic.incidents.append(incident)
            _LOGGER.info("%s", json.dumps(asdict(incident)))
            if failure.trace:
                _LOGGER.info("%s", failure.trace)
            sorts[failure.kind, decision] += 1
        for sort, count in sorts.items():
            first = next(failure for failure, what in decided if (failure.kind, what) == sort)
            whom = f"client {first.client}" + (f" and {count - 1} more" if count > 1 else "")
            self.journal.tell(Told(f"round {self.round}: {whom}: {sort[0]} ({first.reason}): {sort[1]}"))

    def _end_round(self, seconds: float) -> None:
        traffic = self._traffic
        self.journal.tell(
            RoundEnded(
                self.round,
                traffic.objective,
                seconds,
                traffic.bytes_up,
                traffic.bytes_down,
                traffic.asked,
                traffic.answered,
                traffic.failed,
                tuple(asdict(incident) for incident in traffic.incidents),
            )
        )

    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(
            self.seed,
            tuple(self._loops),
            self.round,
            tuple(self.ledger.entries.values()),
            tuple(self.journal.rounds),
        )

    def _number(self) -> int:
        self._calls += 1
        return self._calls

    def _meter_down(self, request: Request[Any], asked: int) -> None:
        kind = type(request)
        size = payload_bytes(request) * asked
        self._traffic.asked += asked
        self._traffic.bytes_down += size
        self._record(kind.__name__, kind.what, "down", Granularity.AGGREGATE, "every client", asked, size)

    def _meter_up(self, kind: type[Reply], answered: int, size: int, seen_by: str) -> None:
        self._traffic.answered += answered
        self._traffic.bytes_up += size
        self._record(kind.__name__, kind.what, "up", kind.granularity, seen_by, answered, size)

    def _record(
        self,
        kind: str,
        what: str,
        direction: Direction,
        granularity: Granularity,
        seen_by: str,
        count: int,
        size: int,
    ) -> None:
        self.ledger.record(Entry(kind, what, direction, granularity.value, seen_by, count, size))


def _missing(call: Call, answered: Any, failures: Sequence[Failure]) -> list[Failure]:
    """Failures of clients of whom the transport said nothing that belongs to this call."""
    failed = {failure.client for failure in failures}
    return [
        Failure(client, Kind.TIMED_OUT, "no answer to this call")
        for client in call.clients
        if client not in answered and client not in failed
    ]


def _lament(call: Call, lost: Sequence[Failure]) -> str:
    first = lost[0]
    others = f" {len(lost) - 1} more clients failed too." if len(lost) > 1 else ""
    return (
        f"Client {first.client} did not answer {type(call.request).__name__} in round {call.round}: {first.kind},"
        f" {first.reason}.{others} Mend the cause, or set runtime.quorum below 1 where rounds can do without some"
        " clients."
    )
