"""Carries a federation's calls to client actors, and brings dead actors back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError, RayTaskError

from actors.client import ClientActor
from raydr.errors import RaydrError
from raydr.federation import FaultPlan
from raydr.federation.failures import Failure, Kind
from raydr.federation.host import Answer, Call, PartialSum, SumCall
from raydr.federation.messages import payload_bytes

_BROADCAST_BYTES = 100_000
"""Larger requests go through the object store once per node; Ray copies smaller ones into each call anyway."""


@dataclass(frozen=True)
class Placement:
    """One client actor to be: who lives there, their rows, and where Ray is to put it.

    ``options`` are those of Ray's actors: resources, labels, scheduling strategy.
    """

    clients: tuple[int, ...]
    partitions: tuple[ray.ObjectRef[Any], ...]
    fingerprints: tuple[str, ...]
    options: dict[str, Any]


@dataclass
class RayTransport:
    """The Ray side of a federation.

    Attributes
    ----------
    placements : sequence of Placement
        Which together hold every client once.
    seed : int
        The run's seed.
    faults : FaultPlan
        What goes wrong on purpose.
    timeout_s : float
        Seconds that an actor has for one call; one that takes longer is killed and counts as timed out.
    """

    placements: Sequence[Placement]
    seed: int
    faults: FaultPlan
    timeout_s: float
    _actors: list[ActorHandle[Any] | None] = field(default_factory=list, repr=False)
    _settled: dict[int, ray.ObjectRef[Any]] = field(default_factory=dict, repr=False)
    _history: list[Call] = field(default_factory=list, repr=False)

    def reset(self) -> None:
        """Start every actor anew from the partitions."""
        self.close()
        self._history.clear()
        self._actors = [None] * len(self.placements)
        for index in range(len(self.placements)):
            self._start(index)

    def ask(self, call: Call) -> list[Answer]:
        """One answer for each client asked."""
        answers = self._call(
            call, lambda actor, argument: actor.ask.remote(argument), lambda failures: failures
        )
        if type(call.request).sets_state:
            self._history.append(call)
        return [answer for result in answers for answer in result]

    def sum(self, call: SumCall) -> list[PartialSum]:
        """One partial sum of each actor that holds a client asked."""
        return self._call(
            call,
            lambda actor, argument: actor.sum.remote(argument),
            lambda failures: PartialSum(call.number, call.round, None, {}, (), 0, 0, tuple(failures)),
        )

    def peak_memory_bytes(self) -> int:
        """Largest resident memory that any client actor ever had."""
        peaks = [actor.peak_memory_bytes.remote() for actor in self._actors if actor is not None]
        return max(ray.get(peaks), default=0)

    def close(self) -> None:
        """End all actors."""
        for index in range(len(self._actors)):
            self._end(index)

    def _call(
        self,
        call: Call,
        send: Callable[[ActorHandle[Any], Any], ray.ObjectRef[Any]],
        failed: Callable[[list[Failure]], Any],
    ) -> list[Any]:
        """Results of all actors that hold a client asked; what an actor could not do is ``failed``."""
        asked = set(call.clients)
        here = {
            index: [client for client in placement.clients if client in asked]
            for index, placement in enumerate(self.placements)
        }
        argument = ray.put(call) if payload_bytes(call.request) > _BROADCAST_BYTES else call
        sent = {index: send(self._actor(index), argument) for index, clients in here.items() if clients}
        if not sent:
            return []
        _, late = ray.wait(
            list(sent.values()), num_returns=len(sent), timeout=self.timeout_s, fetch_local=False
        )
        overdue = set(late)
        results = []
        for index, reference in sent.items():
            if reference in overdue:
                kind, reason = Kind.TIMED_OUT, f"no answer within {self.timeout_s:g} s"
            else:
                try:
                    results.append(ray.get(reference))
                    continue
                except RayActorError as error:
                    kind, reason = _death(error)
                except RayTaskError as error:
                    self._require_settled(index)
                    raise _raised(error) from None
            self._end(index)
            results.append(failed([Failure(client, kind, reason) for client in here[index]]))
        return results

    def _actor(self, index: int) -> ActorHandle[Any]:
        actor = self._actors[index]
        return actor if actor is not None else self._start(index)

    def _start(self, index: int) -> ActorHandle[Any]:
        """Start an actor and settle its clients; calls that follow wait for that, since actors keep order."""
        placement = self.placements[index]
        actor = ClientActor.options(**placement.options).remote()
        self._actors[index] = actor
        self._settled[index] = actor.settle.remote(
            placement.clients,
            placement.partitions,
            placement.fingerprints,
            self.seed,
            self.faults,
            self._history,
        )
        return actor

    def _require_settled(self, index: int) -> None:
        """Raise what kept an actor from taking its clients in, if anything did."""
        try:
            ray.get(self._settled[index])
        except RayTaskError as error:
            raise _raised(error) from None

    def _end(self, index: int) -> None:
        actor = self._actors[index]
        if actor is not None:
            ray.kill(actor)
            self._actors[index] = None


def _death(error: RayActorError) -> tuple[Kind, str]:
    text = str(error)
    if "node" in text and ("died" in text or "dead" in text):
        return Kind.NODE_LOST, "its node is gone"
    return Kind.PROCESS_DIED, "its process ended"


def _raised(error: RayTaskError) -> Exception:
    return error.cause if isinstance(error.cause, RaydrError) else error
