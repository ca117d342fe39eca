"""The Ray actor that holds clients' partitions and runs their client parts."""

from __future__ import annotations

from collections.abc import Sequence

import ray

from raydr.arrays import FloatArray
from raydr.federation import Client, ClientHost
from raydr.federation.host import Answer, Call, PartialSum, SumCall
from raydr.memory import peak_memory_bytes


class ClientProcess:
    """One or many clients in a process of their own.

    Parameters
    ----------
    indices : sequence of int
        Which clients live here.
    partitions : sequence of (rows, features) arrays
        Their rows, read-only and shared with the object store while nothing replaces them.
    seed : int
        The run's seed.
    """

    def __init__(
        self, indices: Sequence[int], partitions: Sequence[ray.ObjectRef[FloatArray]], seed: int
    ) -> None:
        rows = ray.get(list(partitions))
        clients = [Client(index, own, seed) for index, own in zip(indices, rows, strict=True)]
        self._host = ClientHost(clients)

    def ask(self, call: Call) -> list[Answer]:
        """One answer of each client here, in client order."""
        return self._host.ask(call)

    def sum(self, call: SumCall) -> PartialSum:
        """Ring sum over the clients here; what single clients send never leaves the process."""
        return self._host.sum(call)

    def peak_memory_bytes(self) -> int:
        """Largest resident memory of this process so far."""
        return peak_memory_bytes()


ClientActor = ray.remote(ClientProcess)
