"""Work in another process whose events arrive here while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayTaskError

from raydr.actors.ray_health import LOOK_S, Vitals
from raydr.errors import RaydrError
from raydr.journal import Event, Listener, Progress

T = TypeVar("T")

_PROGRESS_S = 0.1
"""Least time between two reports of progress. Each is an object of Ray's, which takes a millisecond."""


@dataclass(frozen=True)
class Returned(Generic[T]):
    """The last item of a stream: what the work returned."""

    value: T


@dataclass(frozen=True)
class Raised:
    """The last item of a stream whose work failed."""

    error: BaseException


def streamed(work: Callable[[Listener], T]) -> Iterator[Event | Returned[T]]:
    """Run ``work`` in a thread and yield its events as they arrive, then its result."""
    events: SimpleQueue[Event | Returned[T] | Raised] = SimpleQueue()

    def body() -> None:
        try:
            events.put(Returned(work(_unhurried(events.put))))
        except BaseException as error:
            events.put(Raised(error))

    threading.Thread(target=body, name="raydr-work", daemon=True).start()
    while True:
        item = events.get()
        if isinstance(item, Raised):
            raise item.error
        yield item
        if isinstance(item, Returned):
            return


def _unhurried(listener: Listener) -> Listener:
    """Return a listener that leaves out progress that soon follows other progress, unless it is the end of a stage."""
    heard_at = -_PROGRESS_S

    def hear(event: Event) -> None:
        nonlocal heard_at
        if isinstance(event, Progress) and event.done < event.total:
            now = time.monotonic()
            if now - heard_at < _PROGRESS_S:
                return
            heard_at = now
        listener(event)

    return hear


def heard(stream: Any, listener: Listener) -> Any:
    """Pass on the events of a Ray stream, and return its result.

    Parameters
    ----------
    stream : ray.ObjectRefGenerator
        Stream that a remote :func:`streamed` returned.
    listener : callable
        Receives each event.

    Raises
    ------
    RaydrError
        The error that the work raised, unchanged; RunError if a part of Ray has ended.
    """
    vitals = Vitals()
    try:
        while True:
            vitals.look()
            if not ray.wait([stream], timeout=LOOK_S, fetch_local=False)[0]:
                continue
            item = _fetched(next(stream), vitals)
            if isinstance(item, Returned):
                return item.value
            listener(item)
    except StopIteration:
        raise RuntimeError("the stream ended without a result") from None
    except RayTaskError as error:
        raise own(error) from None


def _fetched(reference: Any, vitals: Vitals) -> Any:
    while True:
        try:
            return ray.get(reference, timeout=LOOK_S)
        except GetTimeoutError:
            vitals.look()


def own(error: RayTaskError) -> Exception:
    """Return the raydr error that a Ray task raised, or Ray's error for any other."""
    return error.cause if isinstance(error.cause, RaydrError) else error
