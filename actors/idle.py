"""Actors that wait for the next run, in a session or a sweep: it need not start processes and load libraries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.actor import ActorClass, ActorHandle
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

_PATIENCE_S = 30.0
"""Seconds in which an idle actor must answer, or else it is replaced."""


@dataclass
class IdleActors:
    """Actors that ended their work in order, by their class and Ray options.

    An actor is started where none with equal options waits. Each class of actor has a method ``forget``, which drops
    what is left of a run and returns when that is done.

    Attributes
    ----------
    keep : bool
        Whether actors that are given back wait for the next run; if not, they are ended.
    """

    keep: bool = False
    _waiting: dict[Any, list[ActorHandle[Any]]] = field(default_factory=lambda: defaultdict(list), repr=False)

    def take(self, kind: ActorClass[Any], options: Mapping[str, Any]) -> ActorHandle[Any]:
        """Return an actor that has no work: a living one that waits, or a new one."""
        waiting = self._waiting[_key(kind, options)]
        while waiting:
            actor = waiting.pop()
            try:
                ray.get(actor.forget.remote(), timeout=_PATIENCE_S)
                return actor
            except (GetTimeoutError, RayError):
                ray.kill(actor)
        return kind.options(**options).remote()

    def give(self, actor: ActorHandle[Any], kind: ActorClass[Any], options: Mapping[str, Any]) -> None:
        """Take back an actor that :meth:`take` returned and that ended its work in order.

        One with a part of a GPU is ended: the next run can need other parts, and would wait for this one forever.
        """
        if not self.keep or options.get("num_gpus"):
            ray.kill(actor)
            return
        actor.forget.remote()
        self._waiting[_key(kind, options)].append(actor)

    @contextmanager
    def lent(
        self, kind: ActorClass[Any], options: Mapping[str, Any], taken: ActorHandle[Any] | None = None
    ) -> Iterator[ActorHandle[Any]]:
        """Yield ``taken``, by default from :meth:`take`, and give it back, or end it after an error."""
        actor = taken or self.take(kind, options)
        try:
            yield actor
        except BaseException:
            ray.kill(actor)  # it may run for a long time
            raise
        self.give(actor, kind, options)

    def close(self) -> None:
        """End all actors that wait."""
        for waiting in self._waiting.values():
            while waiting:
                ray.kill(waiting.pop())


_of_this_process = IdleActors()


def of_this_process() -> IdleActors:
    """Return the actors that wait for this process's runs: none, except after :func:`keep` and in :func:`kept`."""
    return _of_this_process


def keep() -> None:
    """Keep actors from now on, until this process or its placement group ends."""
    _of_this_process.keep = True


@contextmanager
def kept() -> Iterator[None]:
    """Keep actors inside a ``with`` block, and end them after it."""
    before, _of_this_process.keep = _of_this_process.keep, True
    try:
        yield
    finally:
        _of_this_process.keep = before
        if not before:
            _of_this_process.close()


def _key(kind: ActorClass[Any], options: Mapping[str, Any]) -> Any:
    """Return what actors that can replace each other have in common."""
    return kind, tuple(sorted((name, _plain(value)) for name, value in options.items()))


def _plain(option: Any) -> str:
    match option:
        case PlacementGroupSchedulingStrategy():
            return f"{option.placement_group.id.hex()} {option.placement_group_bundle_index}"
        case NodeAffinitySchedulingStrategy():
            return f"{option.node_id} {option.soft}"
        case _:
            return repr(option)
