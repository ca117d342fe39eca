"""Transport of a federation's calls to client actors, which restarts dead actors."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, repeat
from typing import Any, TypeVar, overload

import ray
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, ObjectLostError, RayActorError, RayTaskError

from raydr.actors.client import ClientActor
from raydr.actors.idle import IdleActors
from raydr.actors.resources import Room
from raydr.actors.sites import reachable
from raydr.actors.streaming import own
from raydr.data import SiteFile
from raydr.device import Found
from raydr.federation import FaultPlan
from raydr.federation.codec import encoded_bytes
from raydr.federation.failures import Failure, Kind
from raydr.federation.wire import Answer, Answered, Call, PartialSum, SumCall, asked_at, history_at, remember
from raydr.threads import one_blas_thread

Task = TypeVar("Task")
Result = TypeVar("Result")
Value = TypeVar("Value")

_BROADCAST_BYTES = 100_000
"""Larger requests go through the object store once per node; Ray copies smaller ones into each call in any case."""

_START_S = 30.0
"""Seconds that an actor may take to start, before the time-out of its first call begins; it takes 0.4 s."""


@dataclass(kw_only=True, frozen=True)
class Placement:
    """A planned client actor: its clients, their rows, and its Ray options.

    ``partitions`` refers to a list of one array for each client, or is the file of the one client. ``host_secrets``
    refers to these clients' :class:`HostSecrets`, the reserve rows and the fingerprints of the partitions. Only the
    actor fetches them, not the coordinator, which holds this object. ``options`` are the Ray options of the actor:
    resources, labels, scheduling strategy. ``options_again`` are the options of a restart, because the node may be
    lost. ``node`` is the only possible node, if there is one.
    """

    clients: tuple[int, ...]
    partitions: ray.ObjectRef[Any] | SiteFile
    host_secrets: tuple[ray.ObjectRef[Any], ...]
    options: dict[str, Any]
    options_again: dict[str, Any]
    node: str | None = None


@dataclass(kw_only=True)
class RayTransport:
    """The transport of a federation on Ray.

    Attributes
    ----------
    placements : sequence of Placement
        Placements that together contain every client once.
    seed : int
        The run's seed.
    faults : FaultPlan
        Simulated faults.
    timeout_s : float
        Seconds that an actor has for one call; a slower one is killed and counts as timed out.
    run : str
        Name of the run, to which clients bind what they seal.
    device : {"cpu", "cuda"}
        Device for large products at the server, and in actors with a part of a GPU.
    idle : IdleActors
        Actors of the last run; by default none, and this run's actors end with it.
    """

    placements: Sequence[Placement]
    seed: int
    faults: FaultPlan
    timeout_s: float
    run: str = ""
    device: Found = "cpu"
    idle: IdleActors = field(default_factory=IdleActors, repr=False)
    _actors: list[ActorHandle[Any] | None] = field(default_factory=list, repr=False)
    _options: dict[int, dict[str, Any]] = field(default_factory=dict, repr=False)
    _settled: dict[int, ray.ObjectRef[Any]] = field(default_factory=dict, repr=False)
    _starting: dict[int, ray.ObjectRef[Any]] = field(default_factory=dict, repr=False)
    _history: list[Call] = field(default_factory=list, repr=False)

    def reset(self) -> None:
        """Start every actor again from the partitions."""
        self.close()
        self._history.clear()
        self._settled.clear()
        self._actors = [None] * len(self.placements)
        for index in range(len(self.placements)):
            self._start(index)

    def ask(self, call: Call) -> list[Answer]:
        """Return one answer for each client asked."""
        answers: list[Answer] = []
        for result in self._call("ask", call):
            answers += result
        remember(self._history, call, (answer.client for answer in answers if isinstance(answer, Answered)))
        return answers

    def sum(self, call: SumCall) -> Iterator[PartialSum]:
        """Yield one partial sum of each actor that holds a client asked, as they arrive."""
        for result in self._call("sum", call):
            if isinstance(result, PartialSum):
                remember(self._history, call, result.clients)
                yield result
            else:
                yield PartialSum(number=call.number, round=call.round, failures=tuple(result))

    def compute(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Yield the results of the server's own work, with enough Ray tasks in flight to keep all cores busy.

        With one core, this process does the work itself.
        """
        under_way: deque[ray.ObjectRef[Any]] = deque()
        room = Room.here()
        if room.cores == 1:
            yield from (_with_one_thread(work, task) for task in tasks)
            return
        # The cores of a placement group already belong to its run: tasks there request none, and there are no more
        # tasks than cores.
        turns, ahead = (repeat({}), room.cores + 2) if room.group is None else (room.in_turn(), room.cores)
        waiting = iter(tasks)
        # Tasks in flight run to their end even if no more results are needed. Cancelling a task at the moment when it
        # finishes would end this process (Ray 2.55: "Tried to complete task that was not pending").
        for task in islice(waiting, ahead):
            under_way.append(_server_task.options(**next(turns)).remote(work, task))
        while under_way:
            try:
                result = ray.get(under_way.popleft())
            except RayTaskError as error:
                raise own(error) from None
            for task in islice(waiting, 1):
                under_way.append(_server_task.options(**next(turns)).remote(work, task))
            yield result

    def share(self, values: Iterable[Value]) -> Sequence[Value]:
        """Put values into the object store, one after the other."""
        return _Stored([ray.put(value) for value in values])

    def machines(self) -> int:
        """Return the number of nodes of the run that have cores."""
        return Room.here().nodes

    def peak_memory_bytes(self) -> int:
        """Return the largest resident memory that any client actor had."""
        peaks = [actor.peak_memory_bytes.remote() for actor in self._actors if actor is not None]
        return max(ray.get(peaks), default=0)

    def close(self) -> None:
        """End all actors, or let them wait for the next run."""
        for index, actor in enumerate(self._actors):
            if actor is not None:
                self.idle.give(actor, ClientActor, self._options[index])
                self._actors[index] = None
        self._starting.clear()

    def _call(self, method: str, call: Call) -> Iterator[Any]:
        """Yield the results of all actors that hold a client asked, in order; failures if there is no result.

        Each result is fetched after the previous one is consumed. Large results stay in the object store until then.
        """
        asked = asked_at(call, (placement.clients for placement in self.placements))
        alike = call.request_for(call.clients[0]) is call.request
        envelope = _envelope(replace(call, clients=())) if alike else None
        sent = {}
        for index, clients in enumerate(asked):
            if clients and self._actors[index] is None and not reachable(self.placements[index].node):
                yield self._node_gone(index, clients)
            elif clients:
                argument = envelope if alike else _envelope(call.cut(clients))
                sent[index] = getattr(self._actor(index), method).remote(argument, clients)
        for index in self._await_starts() & sent.keys():
            del sent[index]
            yield self._node_gone(index, asked[index])
        deadline = time.monotonic() + self.timeout_s
        while sent:
            index = next(iter(sent))
            try:
                yield _fetched(sent.pop(index), deadline)
                continue
            except GetTimeoutError:
                kind, reason = Kind.TIMED_OUT, f"no answer within {self.timeout_s:g} s"
            except RayActorError as error:
                kind, reason = _death(error)
            except ObjectLostError:
                kind, reason = Kind.NODE_LOST, "its answer was lost with the node that held it"
            except RayTaskError as error:
                self._require_settled(index)
                raise own(error) from None
            self._end(index)
            yield [Failure(client, kind, reason) for client in asked[index]]

    def _await_starts(self) -> set[int]:
        """Wait for actors that start; return those that cannot, because their only node is lost.

        The start time does not count against the clients' time-out. An actor that does not start for another reason is
        found by the time-out of its call.
        """
        gone: set[int] = set()
        patience = time.monotonic() + _START_S * len(self._starting)
        while self._starting and time.monotonic() < patience:
            waiting = list(self._starting.values())
            started = set(ray.wait(waiting, num_returns=len(waiting), timeout=1.0)[0])
            gone |= {index for index in self._starting if not reachable(self.placements[index].node)}
            self._starting = {
                index: settled
                for index, settled in self._starting.items()
                if settled not in started and index not in gone
            }
        self._starting.clear()
        return gone

    def _node_gone(self, index: int, clients: Sequence[int]) -> list[Failure]:
        """Return failures for the clients of an actor for which Ray would wait forever."""
        self._end(index)
        reason = f"its node {self.placements[index].node} is gone"
        return [Failure(client, Kind.NODE_LOST, reason) for client in clients]

    def _actor(self, index: int) -> ActorHandle[Any]:
        actor = self._actors[index]
        return actor if actor is not None else self._start(index)

    def _start(self, index: int) -> ActorHandle[Any]:
        """Start an actor and set up its clients; later calls wait for that, because actors keep order."""
        placement = self.placements[index]
        options = placement.options_again if index in self._settled else placement.options
        actor = self.idle.take(ClientActor, options)
        self._actors[index], self._options[index] = actor, options
        self._settled[index] = actor.settle.remote(
            placement.clients,
            placement.partitions,
            self.seed,
            self.faults,
            self.run,
            placement.host_secrets,
            history_at(self._history, placement.clients),
            self.device if "num_gpus" in options else "cpu",
        )
        self._starting[index] = self._settled[index]
        return actor

    def _require_settled(self, index: int) -> None:
        """Raise the error that kept an actor from setting up its clients, if any."""
        try:
            ray.get(self._settled[index])
        except RayTaskError as error:
            raise own(error) from None

    def _end(self, index: int) -> None:
        actor = self._actors[index]
        if actor is not None:
            ray.kill(actor)
            self._actors[index] = None
            self._starting.pop(index, None)


@dataclass(frozen=True)
class _Stored(Sequence[Value]):
    """Values in the object store. Each access fetches one to this node, if it is not there yet."""

    references: list[ray.ObjectRef[Any]]

    def __len__(self) -> int:
        return len(self.references)

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Value]: ...
    def __getitem__(self, index: int | slice) -> Value | Sequence[Value]:
        found: Value = ray.get(self.references[index])
        return found


def _envelope(call: Call) -> Any:
    """Return a call, or its reference in the object store."""
    content = tuple(call.parts.values()) or (call.request,)
    size = sum(map(encoded_bytes, content))
    if isinstance(call, SumCall) and call.masks is not None:
        size += encoded_bytes(call.masks.keys)
    return ray.put(call) if size > _BROADCAST_BYTES else call


def _with_one_thread(work: Callable[[Any], Any], task: Any) -> Any:
    with one_blas_thread():
        return work(task)


_server_task = ray.remote(_with_one_thread)


def _fetched(reference: ray.ObjectRef[Any], deadline: float) -> Any:
    """Return the result of a call; raise GetTimeoutError if it is not there at the deadline."""
    try:
        return ray.get(reference, timeout=max(0.0, deadline - time.monotonic()))
    except GetTimeoutError:
        # A result that exists but is still in transfer from another node is in time.
        if not ray.wait([reference], timeout=0, fetch_local=False)[0]:
            raise
        return ray.get(reference)


def _death(error: RayActorError) -> tuple[Kind, str]:
    text = str(error)
    if "node" in text and ("died" in text or "dead" in text):
        return Kind.NODE_LOST, "its node is gone"
    return Kind.PROCESS_DIED, "its process ended"
