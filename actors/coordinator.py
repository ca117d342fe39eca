"""The Ray actor that runs the server part, and the one that may see pooled rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import Semaphore
from typing import Any, TypeVar

import ray

from raydr.actors.idle import IdleActors
from raydr.actors.resources import Room
from raydr.actors.streaming import Returned, streamed
from raydr.actors.transport import RayTransport
from raydr.device import Found, computing_on
from raydr.federation.checkpoint import Checkpoint
from raydr.journal import Charged, Event, Journal, Listener
from raydr.memory import forget_peak_memory, peak_memory_bytes
from raydr.methods.serving import Plan, Served, serve
from raydr.threads import at_most

T = TypeVar("T")


class CoordinatorProcess:
    """The server of a federation: everything that it knows about the clients came in messages.

    It starts the client actors, and they end with it, so a restarted coordinator finds no old ones. If it serves
    another run, client actors of the last one serve again.
    """

    def __init__(self) -> None:
        self._kept = Semaphore(0)
        self._idle = IdleActors()

    def forget(self) -> None:
        """Do nothing: a run leaves nothing here."""

    def kept(self) -> None:
        """Continue: the line of the release has been stored."""
        self._kept.release()

    def serve(
        self,
        transport: RayTransport,
        clients: int,
        plan: Plan,
        checkpoint: bytes | None,
        released: Sequence[str],
    ) -> Iterator[Event | Returned[tuple[Served, dict[str, int]]]]:
        """Run the server part; yield events, then the result and the peak memory of the processes.

        After each :class:`~raydr.journal.Charged` it waits for a call of :meth:`kept`.
        """
        room = Room.here()
        forget_peak_memory()
        self._idle.keep = transport.idle.keep
        transport.idle = self._idle

        def work(listener: Listener) -> tuple[Served, dict[str, int]]:
            def tell(event: Event) -> None:
                listener(event)
                if isinstance(event, Charged):
                    self._kept.acquire()

            resume = Checkpoint.from_bytes(checkpoint) if checkpoint is not None else None
            try:
                with at_most(room.threads), computing_on(transport.device):
                    served = serve(
                        transport, clients, plan, journal=Journal(tell), resume=resume, released=released
                    )
                peaks = {
                    "coordinator": peak_memory_bytes(),
                    "largest client actor": transport.peak_memory_bytes(),
                }
            finally:
                transport.close()
            return served, peaks

        yield from streamed(work)


class EvaluationProcess:
    """The evaluation in its own process. Simulation only: it may see pooled rows."""

    def forget(self) -> None:
        """Do nothing: an evaluation leaves nothing here."""

    def load(self, libraries: Callable[[], object]) -> None:
        """Call ``libraries`` before there is anything to evaluate."""
        libraries()

    def evaluate(
        self, work: Callable[..., T], arguments: tuple[Any, ...], device: Found
    ) -> Iterator[Event | Returned[tuple[T, int]]]:
        """Run ``work(*arguments, listener=...)``; yield events, then the result and the peak memory."""
        room = Room.here()
        forget_peak_memory()

        def measured(listener: Listener) -> tuple[T, int]:
            with at_most(room.threads), computing_on(device):
                return work(*arguments, listener=listener), peak_memory_bytes()

        yield from streamed(measured)


Coordinator = ray.remote(max_concurrency=2)(CoordinatorProcess)  # one thread serves, one receives `kept`
Evaluation = ray.remote(EvaluationProcess)
