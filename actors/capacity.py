"""Machines for a run: this one, or the nodes of a running cluster. No Ray is started."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from raydr.threads import cores


@dataclass(frozen=True)
class Machine:
    """One machine, or node of a cluster.

    Attributes
    ----------
    name : str
        Host name or address.
    cores : int
        Cores for a run.
    memory_bytes : int
        Memory for a run: free memory on this machine; on a cluster node, the memory it was started with.
    driver : bool
        Whether the command line runs there.
    labels : frozenset of str
        Custom resources and labels, as ``clients.sites`` names nodes.
    """

    name: str
    cores: int
    memory_bytes: int
    driver: bool = True
    labels: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Capacity:
    """All machines of a run, the driver's first."""

    machines: tuple[Machine, ...]
    cluster: bool = False

    @property
    def cores(self) -> int:
        """Cores of all machines."""
        return sum(machine.cores for machine in self.machines)

    @property
    def memory_bytes(self) -> int:
        """Memory of all machines."""
        return sum(machine.memory_bytes for machine in self.machines)


def this_machine() -> Capacity:
    """Return this machine, with its free memory."""
    import psutil

    machine = Machine(socket.gethostname(), cores(), int(psutil.virtual_memory().available))
    return Capacity((machine,))


def imagined(count: int, cores: int, gibibytes: float) -> Capacity:
    """Return ``count`` equal machines; the first is the driver's.

    >>> imagined(2, 16, 64).cores
    32
    """
    memory = int(gibibytes * 2**30)
    machines = tuple(
        Machine(f"machine {number + 1}", cores, memory, driver=number == 0) for number in range(count)
    )
    return Capacity(machines, cluster=count > 1)


def capacity_at(address: str | None) -> Capacity:
    """Return the cluster at an address or in ``RAY_ADDRESS``; this machine if neither is set.

    Raises
    ------
    OutputError
        If there is no cluster.
    """
    import os

    # Same rule as `chosen_cluster`, but without importing Ray if there is no cluster.
    if (address or os.environ.get("RAY_ADDRESS") or "local") == "local":
        return this_machine()
    import ray

    from raydr.actors.cluster import connected

    with connected(address):
        here = ray.get_runtime_context().get_node_id()
        machines = [_node(node, here) for node in ray.nodes() if node["Alive"]]
    return Capacity(tuple(sorted(machines, key=lambda machine: not machine.driver)), cluster=True)


def _node(node: dict[str, object], here: str) -> Machine:
    resources = dict(node["Resources"])  # type: ignore[call-overload]
    labels = {f"{key}={value}" for key, value in dict(node.get("Labels") or {}).items()}  # type: ignore[call-overload]
    return Machine(
        name=str(node["NodeManagerHostname"]),
        cores=int(resources.get("CPU", 0)),
        memory_bytes=int(resources.get("memory", 0) + resources.get("object_store_memory", 0)),
        driver=node["NodeID"] == here,
        labels=frozenset({*resources, *labels}),
    )
