"""Where clients live: a host answers for one or many of them, whatever process it runs in."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from raydr.arrays import Int64Array
from raydr.federation.client import Client
from raydr.federation.messages import Reply, Request, payload_bytes
from raydr.federation.ring import encode, fraction_bits
from raydr.threads import one_blas_thread

Weighting: TypeAlias = Literal["sum", "clients", "rows"]
"""Weight of a client's summand: 1 each, 1 for each client that has rows, or its number of rows."""


@dataclass(frozen=True)
class Call:
    """A request on its way to every client, with the round that it belongs to."""

    request: Request[Any]
    round: int


@dataclass(frozen=True)
class SumCall:
    """A call whose replies are added up; ``total_weight`` fixes the ring's resolution for all parties."""

    request: Request[Any]
    round: int
    weighting: Weighting
    total_weight: int


@dataclass(frozen=True)
class Failure:
    """A client part that did not answer: which client, and what it raised."""

    client: int
    error: str
    message: str
    trace: str


Answer: TypeAlias = Reply | Failure


@dataclass(frozen=True)
class PartialSum:
    """Ring sum over the clients of one host.

    Attributes
    ----------
    reply : type of Reply or None
        What was summed; None when no client answered.
    totals : mapping of field name to int64 array
        Weighted sums in the ring.
    weight, messages, bytes : int
        Total weight of the summands, how many there were, and their payload.
    failures : tuple of Failure
        Clients that did not answer.
    """

    reply: type[Reply] | None
    totals: dict[str, Int64Array]
    weight: int
    messages: int
    bytes: int
    failures: tuple[Failure, ...]


@dataclass(frozen=True)
class ClientHost:
    """Some clients of a federation, in client order, and their client parts."""

    clients: Sequence[Client]

    def ask(self, call: Call) -> list[Answer]:
        """One answer of each client, in client order."""
        return [self._answer(client, call.request, call.round) for client in self.clients]

    def sum(self, call: SumCall) -> PartialSum:
        """Weighted sum of the replies of this host's clients; weightless clients are not asked."""
        total = PartialSum(None, {}, 0, 0, 0, ())
        for client in self.clients:
            weight = weight_of(client.rows.shape[0], call.weighting)
            if weight == 0:
                continue
            answer = self._answer(client, call.request, call.round)
            if isinstance(answer, Failure):
                total = replace(total, failures=(*total.failures, answer))
                continue
            try:
                summands = ring_fields(answer, call)
            except Exception as error:
                total = replace(total, failures=(*total.failures, _failure(client, error)))
                continue
            totals = dict(total.totals)
            for name, summand in summands.items():
                totals[name] = totals[name] + weight * summand if name in totals else weight * summand
            total = replace(
                total,
                reply=type(answer),
                totals=totals,
                weight=total.weight + weight,
                messages=total.messages + 1,
                bytes=total.bytes + sum(summand.nbytes for summand in summands.values()),
            )
        return total

    def _answer(self, client: Client, request: Request[Any], round: int) -> Answer:
        client.round = round
        try:
            # BLAS changes bits with its thread count, so every client part computes with one.
            with one_blas_thread():
                return type(request).client_part(client, request)
        except Exception as error:
            return _failure(client, error)


def weight_of(rows: int, weighting: Weighting) -> int:
    """Weight of a client with so many rows."""
    match weighting:
        case "sum":
            return 1
        case "clients":
            return int(rows > 0)
        case "rows":
            return rows


def ring_fields(reply: Reply, call: SumCall) -> dict[str, Int64Array]:
    """Fields of a reply as ring integers, range checked."""
    bounds = type(reply).bounds(call.request)
    names = [field.name for field in fields(reply)]  # type: ignore[arg-type]
    if set(names) != set(bounds):
        raise TypeError(f"{type(reply).__name__} declares ranges for {sorted(bounds)} but has fields {names}")
    return {
        name: np.asarray(
            encode(getattr(reply, name), bounds[name], fraction_bits(bounds[name], call.total_weight))
        )
        for name in names
    }


def host_payload_bytes(answers: Sequence[Answer]) -> int:
    """Payload of the answers that are replies."""
    return sum(payload_bytes(answer) for answer in answers if not isinstance(answer, Failure))


def _failure(client: Client, error: Exception) -> Failure:
    return Failure(client.index, type(error).__name__, str(error), traceback.format_exc())
