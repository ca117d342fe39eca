"""The Ray actor that holds clients' partitions and runs their client parts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import ray

from raydr.arrays import FloatArray
from raydr.data import SiteFile
from raydr.device import Found, computing_on
from raydr.federation import ClientHost, FaultPlan, Seat
from raydr.federation.simulated.faults import SimulatedCrashError
from raydr.federation.wire import Answer, Call, PartialSum, SumCall
from raydr.memory import peak_memory_bytes


class ClientProcess:
    """One or many clients in a process of their own."""

    def settle(
        self,
        indices: Sequence[int],
        partitions: Sequence[FloatArray] | SiteFile,
        seed: int,
        faults: FaultPlan,
        run: str,
        withheld: tuple[ray.ObjectRef[Any], ...],
        history: Sequence[Call],
        device: Found,
    ) -> None:
        """Take clients in, after a restart with what set their state before.

        ``partitions`` are their rows (rows, features), read-only and shared with the object store while nothing
        replaces them, or the one client's own file, which is read here. ``withheld`` says where these clients'
        secrets are, the rows in reserve, and the fingerprints of the partitions: all are fetched here, and nowhere on
        the way. ``device`` computes large products from now on. The rest is as for :class:`ClientHost`.

        Raises
        ------
        RunError
            If a partition is not what it was.
        DataError
            If the file cannot be read.
        """
        # Until this process ends: what nobody holds is closed.
        self._computing = ExitStack()
        self._computing.enter_context(computing_on(device))
        rows = [partitions.read().rows] if isinstance(partitions, SiteFile) else partitions
        own, reserve, fingerprints = ray.get(list(withheld))
        seats = [Seat(*seat) for seat in zip(indices, rows, fingerprints, strict=True)]
        self._host = ClientHost(
            seats=seats, seed=seed, faults=faults, run=run, withheld=replace(own, reserve=reserve)
        )
        self._host.restore(history)

    def ask(self, call: Call, clients: tuple[int, ...]) -> list[Answer]:
        """Ask ``clients``, all of whom live here: one answer of each, in client order."""
        try:
            return self._host.ask(replace(call, clients=clients))
        except SimulatedCrashError:
            os._exit(1)

    def sum(self, call: SumCall, clients: tuple[int, ...]) -> PartialSum:
        """Ask ``clients``, all of whom live here, for a ring sum; what each sends never leaves the process."""
        try:
            return self._host.sum(replace(call, clients=clients))
        except SimulatedCrashError:
            os._exit(1)

    def peak_memory_bytes(self) -> int:
        """Largest resident memory of this process so far."""
        return peak_memory_bytes()


# Ray would report every call to its control service, which keeps them: 12 MB more after 500 rounds of two actors.
ClientActor = ray.remote(enable_task_events=False)(ClientProcess)
