"""Where clients live: a host answers for one or many of them, whatever process it runs in."""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

import numpy as np

from raydr.arrays import FloatArray, Int64Array
from raydr.errors import RunError
from raydr.federation.client import Client
from raydr.federation.failures import Failure, Kind
from raydr.federation.faults import Corruption, FaultPlan, Moment, SimulatedCrashError, corrupted
from raydr.federation.messages import RefusedReplyError, Reply, Request, payload_bytes
from raydr.federation.ring import encode, fraction_bits
from raydr.threads import one_blas_thread

Weighting: TypeAlias = Literal["sum", "clients", "rows"]
"""Weight of a client's summand: 1 each, 1 for each client that has rows, or its number of rows."""


@dataclass(frozen=True)
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
    """

    request: Request[Any]
    number: int
    round: int
    attempt: int
    clients: tuple[int, ...]
    in_rounds: bool


@dataclass(frozen=True)
class SumCall(Call):
    """A call whose replies are added up; ``total_weight`` fixes the ring's resolution for all parties."""

    weighting: Weighting
    total_weight: int


@dataclass(frozen=True)
class Answered:
    """A reply with the call and round that it answers, as the client's envelope says."""

    client: int
    number: int
    round: int
    reply: Reply


Answer: TypeAlias = Answered | Failure


@dataclass(frozen=True)
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
    clients : tuple of int
        Whose summands are in it.
    weight, bytes : int
        Total weight of the summands and their payload.
    failures : tuple of Failure
        Clients that did not answer.
    """

    number: int
    round: int
    reply: type[Reply] | None
    totals: dict[str, Int64Array]
    clients: tuple[int, ...]
    weight: int
    bytes: int
    failures: tuple[Failure, ...]


@dataclass(frozen=True)
class Seat:
    """What a host needs to bring a client into being: its rows, and their fingerprint to know them again."""

    index: int
    rows: FloatArray
    fingerprint: str


def fingerprint(rows: FloatArray) -> str:
    """Hash of a partition's shape, type and content."""
    digest = hashlib.blake2b(f"{rows.shape} {rows.dtype}".encode(), digest_size=16)
    digest.update(np.ascontiguousarray(rows).data)
    return digest.hexdigest()


@dataclass
class ClientHost:
    """Some clients of a federation and their client parts.

    Parameters
    ----------
    seats : sequence of Seat
        The clients, in client order.
    seed : int
        The run's seed.
    faults : FaultPlan
        What goes wrong on purpose.

    Raises
    ------
    RunError
        If a partition is not the one that its fingerprint is of.
    """

    seats: Sequence[Seat]
    seed: int
    faults: FaultPlan = field(default_factory=FaultPlan)
    _clients: dict[int, Client] = field(default_factory=dict, repr=False)
    _dying: bool = False

    def __post_init__(self) -> None:
        for seat in self.seats:
            if fingerprint(seat.rows) != seat.fingerprint:
                raise RunError(
                    f"client {seat.index} was restarted with other rows than it had: its file or partition has"
                    " changed since the run started."
                )
        self.restore(())

    def restore(self, history: Sequence[Call]) -> None:
        """Begin again from the partitions, and repeat what set the clients' state, in order."""
        self._dying = False
        self._clients = {seat.index: Client(seat.index, seat.rows, self.seed) for seat in self.seats}
        for call in history:
            for client in self._clients.values():
                self._compute(client, call)

    def ask(self, call: Call) -> list[Answer]:
        """One answer of each client here that is asked, in client order."""
        with one_blas_thread():
            self._dawdle(call)
            answers = [self._answer(self._clients[client], call) for client in self._here(call)]
        self._die_later(call)
        return answers

    def sum(self, call: SumCall) -> PartialSum:
        """Weighted sum of the replies of the clients here that are asked."""
        totals: dict[str, Int64Array] = {}
        reply: type[Reply] | None = None
        summed: list[int] = []
        failures: list[Failure] = []
        total_weight = size = 0
        bits: dict[str, Any] = {}
        # BLAS changes bits with its thread count, so every client part computes with one.
        with one_blas_thread():
            self._dawdle(call)
            for index in self._here(call):
                client = self._clients[index]
                weight = weight_of(client.rows.shape[0], call.weighting)
                answer = self._answer(client, call)
                if isinstance(answer, Failure):
                    failures.append(answer)
                    continue
                if reply is None:
                    reply = type(answer.reply)
                    ranges = reply.ranges(call.request, client.rows.shape[0])
                    bits = {
                        name: fraction_bits(declared.largest, call.total_weight)
                        for name, declared in ranges.items()
                    }
                for name, fraction in bits.items():
                    summand = encode(getattr(answer.reply, name), fraction)
                    size += summand.nbytes
                    if weight != 1:
                        summand *= weight
                    if name in totals:
                        totals[name] += summand
                    else:
                        totals[name] = np.asarray(summand)
                summed.append(index)
                total_weight += weight
        self._die_later(call)
        return PartialSum(
            call.number, call.round, reply, totals, tuple(summed), total_weight, size, tuple(failures)
        )

    def _here(self, call: Call) -> list[int]:
        asked = set(call.clients)
        return [client for client in self._clients if client in asked]

    def _answer(self, client: Client, call: Call) -> Answer:
        """A client's answer, checked at the boundary: by its envelope, then field by field."""
        struck = self.faults.strikes and call.in_rounds and call.attempt == 0
        if struck:
            if self.faults.crash(client.index, call.round) is Moment.BEFORE:
                raise SimulatedCrashError
            if self.faults.drops_out(self.seed, client.index, call.round):
                return Failure(client.index, Kind.DROPPED_OUT, "simulated drop-out")
        try:
            reply, round = self._compute(client, call), call.round
            if struck:
                if self.faults.crash(client.index, call.round) is Moment.DURING:
                    raise SimulatedCrashError
                corruption = self.faults.corruption(self.seed, client.index, call.round)
                if corruption is not None:
                    reply = corrupted(reply, corruption)
                    round -= corruption is Corruption.ROUND
            check(reply, round, call, client.rows.shape[0])
        except RefusedReplyError as error:
            return Failure(client.index, Kind.REFUSED, str(error))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            return Failure(client.index, Kind.CLIENT_RAISED, reason, traceback.format_exc())
        return Answered(client.index, call.number, round, reply)

    @staticmethod
    def _compute(client: Client, call: Call) -> Reply:
        client.round = call.round
        return type(call.request).client_part(client, call.request)

    def _dawdle(self, call: Call) -> None:
        """Clients dawdle side by side, so a host waits for its slowest. A host that was to die does so first."""
        if self._dying:
            raise SimulatedCrashError
        if self.faults.stragglers and call.in_rounds and call.attempt == 0:
            time.sleep(max(self.faults.delay(self.seed, client, call.round) for client in self._here(call)))

    def _die_later(self, call: Call) -> None:
        """After a crash that follows the answer, the next call finds nobody."""
        if self.faults.crashes and call.in_rounds and call.attempt == 0:
            self._dying = any(
                self.faults.crash(client, call.round) is Moment.AFTER for client in self._here(call)
            )


def check(reply: Reply, round: int, call: Call, rows: int) -> None:
    """Raise RefusedReplyError unless a reply is of this round and every field is as its type declares."""
    if round != call.round:
        raise RefusedReplyError(f"the reply is of round {round}, and this is round {call.round}")
    ranges = type(reply).ranges(call.request, rows)
    names = {field.name for field in fields(reply)}  # type: ignore[arg-type]
    if names != set(ranges):
        raise TypeError(f"{type(reply).__name__} declares ranges of {sorted(ranges)} but has {sorted(names)}")
    for name, declared in ranges.items():
        declared.check(name, getattr(reply, name))


def weight_of(rows: int, weighting: Weighting) -> int:
    """Weight of a client with so many rows."""
    match weighting:
        case "sum":
            return 1
        case "clients":
            return int(rows > 0)
        case "rows":
            return rows


def answer_bytes(answers: Sequence[Answer]) -> int:
    """Payload of the answers that are replies."""
    return sum(payload_bytes(answer.reply) for answer in answers if isinstance(answer, Answered))
