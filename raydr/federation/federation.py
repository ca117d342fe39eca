"""The federation as a method sees it: ask every client, or learn only a sum.

``ask`` brings one reply per client, in client order; ``sum`` and ``mean`` bring the aggregate alone, added up in the
ring (:mod:`raydr.federation.ring`), so the same bits come back however clients are packed into processes. What
carries the calls is a :class:`Transport`: in this process (:mod:`raydr.federation.inline`) or Ray's actors.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, cast

import numpy as np

from raydr.errors import RunError
from raydr.federation.client import Client
from raydr.federation.host import (
    Answer,
    Call,
    Failure,
    PartialSum,
    SumCall,
    Weighting,
    host_payload_bytes,
    weight_of,
)
from raydr.federation.messages import Granularity, Reply, Request, answers, payload_bytes
from raydr.federation.ring import decode, fraction_bits
from raydr.federation.streams import server_stream
from raydr.journal import Journal, RoundEnded
from raydr.privacy.ledger import Direction, Entry, Ledger

R = TypeVar("R", bound=Reply)


class ClientError(RunError):
    """A client did not answer, and the run cannot go on without it."""


class Transport(Protocol):
    """Carries calls to the hosts of all clients; knows nothing of methods, ledgers or rounds."""

    def ask(self, call: Call) -> list[Answer]:
        """One answer per client, in client order."""

    def sum(self, call: SumCall) -> list[PartialSum]:
        """Partial sums that together hold every client once."""


@dataclass(frozen=True)
class Enrolment(Reply, granularity=Granularity.PER_CLIENT, what="how many rows and features a client has"):
    """Size of a client's partition."""

    rows: int
    features: int


@dataclass(frozen=True)
class Enrol(Request[Enrolment], what="the question how many rows and features a client has"):
    """Asked once, before anything else."""


@answers(Enrol)
def enrol(client: Client, request: Enrol) -> Enrolment:
    """Client part of the first question."""
    return Enrolment(*client.rows.shape)


@dataclass
class _Traffic:
    """Messages of the present round."""

    bytes_up: int = 0
    bytes_down: int = 0
    asked: int = 0
    answered: int = 0
    failed: int = 0
    objective: float | None = None


class Federation:
    """All clients of a run.

    Parameters
    ----------
    transport : Transport
        Carries the calls.
    seed : int
        The run's seed.
    journal : Journal, optional
        Told of stages and rounds.

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

    def __init__(self, transport: Transport, *, seed: int, journal: Journal | None = None) -> None:
        self._transport = transport
        self._traffic = _Traffic()
        self.seed = seed
        self.journal = journal or Journal()
        self.ledger = Ledger()
        self.round = 0
        enrolments = self.ask(Enrol())
        self.sizes = tuple(enrolment.rows for enrolment in enrolments)
        widths = sorted({enrolment.features for enrolment in enrolments})
        if len(widths) > 1:
            raise ClientError(f"clients hold rows of different width: {widths} features")
        if not sum(self.sizes):
            raise ClientError("no client holds a row")
        self.features = widths[0]

    @property
    def clients(self) -> int:
        """Number of clients, those without rows included."""
        return len(self.sizes)

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

    def rounds(self, count: int) -> Iterator[int]:
        """Number ``count`` rounds, from 1 on through the whole run, and journal each."""
        for done in range(count):
            self.round += 1
            self._traffic = _Traffic()
            started = time.perf_counter()
            yield self.round
            seconds = time.perf_counter() - started
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
                )
            )
            self.journal.progress(done + 1, count)

    def report(self, *, objective: float) -> None:
        """Note the method's objective for the present round."""
        self._traffic.objective = objective

    def ask(self, request: Request[R]) -> list[R]:
        """One reply of each client, in client order.

        Raises
        ------
        ClientError
            If a client does not answer.
        """
        replies = self._transport.ask(Call(request, self.round))
        failures = [reply for reply in replies if isinstance(reply, Failure)]
        self._meter_down(request, len(replies))
        self._traffic.failed += len(failures)
        _give_up_on(failures)
        self._meter_up(type(replies[0]), len(replies), host_payload_bytes(replies), "server")  # type: ignore[arg-type]
        return cast(list[R], replies)

    def sum(self, request: Request[R]) -> R:
        """Sum of all clients' replies, field by field; exact in the ring, rounded once to double precision."""
        return self._aggregate(request, "sum")[0]

    def mean(self, request: Request[R], *, weights: Literal["clients", "rows"] = "clients") -> R:
        """Mean of the replies of all clients that have rows.

        Parameters
        ----------
        request : Request
            What to ask.
        weights : {"clients", "rows"}
            Every client counts the same (P1's omega_p = 1/P), or as its number of rows.
        """
        total, weight = self._aggregate(request, weights)
        return type(total)(**{name: value / weight for name, value in vars(total).items()})

    def _aggregate(self, request: Request[R], weighting: Weighting) -> tuple[R, int]:
        total_weight = sum(weight_of(rows, weighting) for rows in self.sizes)
        call = SumCall(request, self.round, weighting, total_weight)
        parts = self._transport.sum(call)
        failures = [failure for part in parts for failure in part.failures]
        answered = sum(part.messages for part in parts)
        self._meter_down(request, answered + len(failures))
        self._traffic.failed += len(failures)
        _give_up_on(sorted(failures, key=lambda failure: failure.client))
        reply = next(part.reply for part in parts if part.reply is not None)
        self._meter_up(
            reply, answered, sum(part.bytes for part in parts), "server, which adds up what each client sends"
        )
        bounds = reply.bounds(request)
        fields = {}
        for name, bound in bounds.items():
            summed = np.sum([part.totals[name] for part in parts if part.totals], axis=0, dtype=np.int64)
            value = decode(np.asarray(summed), fraction_bits(bound, total_weight))
            fields[name] = value if value.ndim else float(value)
        return cast(R, reply(**fields)), sum(part.weight for part in parts)

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


def _give_up_on(failures: Sequence[Failure]) -> None:
    if failures:
        first = failures[0]
        others = f" ({len(failures) - 1} more clients failed too)" if len(failures) > 1 else ""
        raise ClientError(f"client {first.client} failed with {first.error}: {first.message}{others}")
