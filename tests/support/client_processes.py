"""Client processes that one federation hands on to the next: starting one takes seconds, settling one does not."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError

from raydr.actors.client import ClientProcess
from raydr.actors.transport import RayTransport


class ReusedProcess(ClientProcess):
    """A client process under another name, since it is meant to be left when a federation ends."""


class ClientProcesses:
    """Give transports actors, where they look for the class ``ClientActor``, and take them back."""

    def __init__(self) -> None:
        self._idle: list[ActorHandle[Any]] = []
        self._actor = ray.remote(enable_task_events=False)(ReusedProcess)

    def options(self, **_: Any) -> ClientProcesses:
        """Place no actor: this machine is the only node."""
        return self

    def remote(self) -> ActorHandle[Any]:
        """Return an idle actor, or a new one."""
        return self._idle.pop() if self._idle else self._actor.remote()  # type: ignore[no-any-return]

    def take_back(self, transport: RayTransport) -> None:
        """Take the actors of a transport that still live."""
        for index, actor in enumerate(transport._actors):
            if actor is not None:
                with suppress(RayActorError):
                    ray.get(actor.peak_memory_bytes.remote())
                    self._idle.append(actor)
                transport._actors[index] = None

    def close(self) -> None:
        """End all actors."""
        for actor in self._idle:
            ray.kill(actor)
