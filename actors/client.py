"""The Ray actor that holds clients' partitions and runs their client parts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ray

from raydr.arrays import FloatArray
from raydr.device import Found, computing_on
from raydr.federation import ClientHost, FaultPlan, HostedClient
from raydr.federation.simulated.faults import SimulatedCrashError
from raydr.federation.wire import Answer, Call, PartialSum, SumCall
from raydr.memory import forget_peak_memory, peak_memory_bytes
from raydr.methods.requests import site_policy

if TYPE_CHECKING:  # the readers of files take as long to import as all else here
    from raydr.data import SiteFile


class ClientProcess:
    """One or more clients in their own process."""

    _host: ClientHost

    def __init__(self) -> None:
        self._computing = ExitStack()

    def settle(
        self,
        indices: Sequence[int],
        partitions: Sequence[FloatArray] | SiteFile,
        seed: int,
        faults: FaultPlan,
        run: str,
        host_secrets: tuple[ray.ObjectRef[Any], ...],
        history: Sequence[Call],
        device: Found,
    ) -> None:
        """Set up the clients; after a restart, also repeat the calls that set their state.

        ``partitions`` are the clients' rows (rows, features), or the file of the one client, which is read here. Rows
        are read-only and shared with the object store until a request replaces them. ``host_secrets`` refers to the
        clients' secrets, the reserve rows, and the fingerprints of the partitions with the sites' policies. They are
        fetched only here.
        ``device`` computes large products. See :class:`ClientHost` for the other parameters.

        Raises
        ------
        RunError
            If a partition has changed.
        DataError
            If the file cannot be read.
        """
        self.forget()
        forget_peak_memory()
        # Keep a reference until the run ends, because an unreferenced context is closed.
        self._computing.enter_context(computing_on(device))
        rows = partitions if isinstance(partitions, Sequence) else [partitions.read().rows]
        own, reserve, checks = ray.get(list(host_secrets))
        if not isinstance(partitions, Sequence):  # the policy that lies next to the site's data now
            checks = [(found, site_policy(partitions.policies, policy.site)) for found, policy in checks]
        hosted = [
            HostedClient(index, own_rows, *each)
            for index, own_rows, each in zip(indices, rows, checks, strict=True)
        ]
        self._host = ClientHost(
            hosted=hosted, seed=seed, faults=faults, run=run, host_secrets=replace(own, reserve=reserve)
        )
        self._host.restore(history)

    def ask(self, call: Call, clients: tuple[int, ...]) -> list[Answer]:
        """Return one answer of each of ``clients``, all of whom live here, in client order."""
        try:
            return self._host.ask(replace(call, clients=clients))
        except SimulatedCrashError:
            os._exit(1)

    def sum(self, call: SumCall, clients: tuple[int, ...]) -> PartialSum:
        """Return the ring sum over ``clients``, all of whom live here; single summands never leave the process."""
        try:
            return self._host.sum(replace(call, clients=clients))
        except SimulatedCrashError:
            os._exit(1)

    def forget(self) -> None:
        """Drop the clients and all that they hold."""
        self.__dict__.pop("_host", None)
        self._computing.close()

    def peak_memory_bytes(self) -> int:
        """Return the largest resident memory of this process during the run."""
        return peak_memory_bytes()


# Ray would report every call to its control service, which keeps them: 12 MB more after 500 rounds of two actors.
ClientActor = ray.remote(enable_task_events=False)(ClientProcess)
