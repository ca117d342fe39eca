"""The Ray actor that runs the server part, and the Ray task that may see pooled rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import ray

from actors.streaming import Result, streamed
from actors.transport import RayTransport
from raydr.journal import Event, Journal, Listener
from raydr.memory import peak_memory_bytes
from raydr.methods.serving import Served, serve
from raydr.scaling import Scale
from raydr.settings import Settings

T = TypeVar("T")


class CoordinatorProcess:
    """The server of a federation: all that it knows of the clients came as messages."""

    def serve(
        self, transport: RayTransport, method: str, settings: Settings, scale: Scale, seed: int
    ) -> Iterator[Event | Result[tuple[Served, int]]]:
        """Run the server part; yields events, then what was served and this process's peak memory."""

        def work(listener: Listener) -> tuple[Served, int]:
            served = serve(
                transport,
                method=method,
                settings=settings,
                scale=scale,
                seed=seed,
                journal=Journal(listener),
            )
            return served, peak_memory_bytes()

        yield from streamed(work)


def evaluate(work: Callable[..., T], arguments: tuple[Any, ...]) -> Iterator[Event | Result[tuple[T, int]]]:
    """``work(*arguments, listener=...)`` in a process of its own: simulation only, since it may see pooled rows."""
    yield from streamed(lambda listener: (work(*arguments, listener=listener), peak_memory_bytes()))


Coordinator = ray.remote(CoordinatorProcess)
evaluation_task = ray.remote(num_returns="streaming", max_retries=0)(evaluate)
