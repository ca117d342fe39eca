"""Carries a federation's calls to client actors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError

from raydr.errors import RunError
from raydr.federation.host import Answer, Call, Failure, PartialSum, SumCall
from raydr.federation.messages import payload_bytes

_BROADCAST_BYTES = 100_000
"""Larger requests go through the object store once per node; Ray copies smaller ones into each call anyway."""


@dataclass(frozen=True)
class RayTransport:
    """The Ray side of a federation.

    Attributes
    ----------
    actors : sequence of ClientActor handles
        In client order: the first holds clients ``0 .. n_0 - 1``, and so on.
    hosted : sequence of tuple of int
        Clients of each actor.
    timeout_s : float
        Seconds that all actors have for one call.
    """

    actors: Sequence[ActorHandle[Any]]
    hosted: Sequence[tuple[int, ...]]
    timeout_s: float

    def ask(self, call: Call) -> list[Answer]:
        """One answer per client, in client order."""
        argument = _broadcast(call)
        results = self._collect([actor.ask.remote(argument) for actor in self.actors])
        return [
            answer
            for result, clients in zip(results, self.hosted, strict=True)
            for answer in (_failures(clients, result) if isinstance(result, RayActorError) else result)
        ]

    def sum(self, call: SumCall) -> list[PartialSum]:
        """One partial sum per actor."""
        argument = _broadcast(call)
        results = self._collect([actor.sum.remote(argument) for actor in self.actors])
        return [
            PartialSum(None, {}, 0, 0, 0, tuple(_failures(clients, result)))
            if isinstance(result, RayActorError)
            else result
            for result, clients in zip(results, self.hosted, strict=True)
        ]

    def _collect(self, references: list[ray.ObjectRef[Any]]) -> list[Any]:
        """Results in actor order; the error of an actor that died stands in its place."""
        _, late = ray.wait(references, num_returns=len(references), timeout=self.timeout_s)
        if late:
            position = {reference: index for index, reference in enumerate(references)}
            waiting = sorted(client for reference in late for client in self.hosted[position[reference]])
            named = ", ".join(map(str, waiting[:10])) + (", ..." if len(waiting) > 10 else "")
            raise RunError(
                f"{len(waiting)} of {sum(map(len, self.hosted))} clients did not answer within"
                f" {self.timeout_s:g} s (clients {named}): raise runtime.timeout_s, or look at why they hang."
            )
        return [_result(reference) for reference in references]


def _broadcast(call: Call | SumCall) -> Any:
    return ray.put(call) if payload_bytes(call.request) > _BROADCAST_BYTES else call


def _result(reference: ray.ObjectRef[Any]) -> Any:
    try:
        return ray.get(reference)
    except RayActorError as error:
        return error


def _failures(clients: tuple[int, ...], error: RayActorError) -> list[Failure]:
    return [Failure(client, "ClientDied", str(error), "") for client in clients]
