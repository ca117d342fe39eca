"""Resources of a run: the whole cluster, or the placement group of this process, as in a trial."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, repeat
from typing import Any

import ray
from ray.util import get_current_placement_group
from ray.util.placement_group import PlacementGroup, placement_group_table
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from raydr import threads


@dataclass(frozen=True)
class Room:
    """Resources that the processes of one run share, and how they are placed.

    Attributes
    ----------
    cores : int
        Cores, at least 1.
    gpus : float
        GPUs for actors, without those that this process holds itself.
    memory_bytes : int
        Memory for processes and the object store.
    threads : int
        Cores on this node, which one process may use while the others wait; at least 1.
    nodes : int
        Nodes with cores for these processes.
    group : PlacementGroup or None
        Placement group in which all processes live and end; None if the run has the whole cluster.
    """

    cores: int
    gpus: float = 0.0
    memory_bytes: int = 0
    threads: int = 1
    nodes: int = 1
    group: PlacementGroup | None = None

    @classmethod
    def here(cls) -> Room:
        """Return the resources of this process, which has joined a cluster; call it in an actor or a task's own thread.

        In a thread that a Ray task has started, Ray reports no placement group.
        """
        cluster, group = ray.cluster_resources(), get_current_placement_group()
        if group is None:
            return cls(
                cores=max(1, int(cluster.get("CPU", 1))),
                gpus=cluster.get("GPU", 0.0),
                memory_bytes=_memory_of(cluster),
                threads=threads.cores(),
                nodes=sum(node["Alive"] and node["Resources"].get("CPU", 0) > 0 for node in ray.nodes()),
            )
        bundles = group.bundle_specs
        own = ray.get_runtime_context().get_assigned_resources()
        return cls(
            cores=_whole(bundles),
            gpus=max(0.0, sum(bundle.get("GPU", 0.0) for bundle in bundles) - own.get("GPU", 0.0)),
            memory_bytes=sum(_memory_of_bundle(bundle, cluster) for bundle in bundles),
            threads=min(threads.cores(), _whole([bundles[index] for index in _bundles_here(group)])),
            nodes=len(set(_bundles_placed(group).values())),
            group=group,
        )

    @property
    def name(self) -> str:
        """Name for messages."""
        return "cluster" if self.group is None else "trial's placement group"

    @property
    def more(self) -> str:
        """Advice on adding resources."""
        return "nodes" if self.group is None else "memory or CPUs to each trial"

    def anywhere(self) -> dict[str, Any]:
        """Return Ray options of a process that may run anywhere in these resources.

        It requests no CPU from Ray: each process computes with one thread, and all share the cores.
        """
        if self.group is None:
            return {"num_cpus": 0, "scheduling_strategy": "SPREAD"}
        return {"num_cpus": 0, "scheduling_strategy": _within(self.group, -1)}

    def in_turn(self) -> Iterator[dict[str, Any]]:
        """Yield endless Ray options for one process after the other, such that each core gets its share.

        Without a CPU request, Ray would put all processes of a placement group on one node.
        """
        if self.group is None:
            return repeat(self.anywhere())
        bundles, placed = self.group.bundle_specs, _bundles_placed(self.group)
        turns = [index for index in placed for _ in range(math.ceil(bundles[index].get("CPU", 0.0)))]
        return cycle(
            [{"num_cpus": 0, "scheduling_strategy": _within(self.group, turn)} for turn in turns or [-1]]
        )

    def on_this_node(self, gpu_share: float = 0.0) -> dict[str, Any]:
        """Return Ray options of a process on this node, so that the loss of another node does not end it.

        A process with a part of a GPU goes where the GPU is: in a placement group, GPUs have their own bundle.
        """
        gpu = {"num_gpus": gpu_share} if gpu_share else {}
        if self.group is None:
            node = ray.get_runtime_context().get_node_id()
            return {
                "num_cpus": 0,
                "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=True),
            } | gpu
        bundle = -1 if gpu else min(_bundles_here(self.group), default=-1)
        # Thread limits of libraries. One OpenMP thread, as Ray sets it in every process that requests no CPU.
        limits = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": str(self.threads)}
        return {
            "num_cpus": 0,
            "scheduling_strategy": _within(self.group, bundle),
            "runtime_env": {"env_vars": limits},
        } | gpu


@contextmanager
def within_room() -> Iterator[Room]:
    """Limit the threads inside a ``with`` block to the cores of this process's resources on this node."""
    room = Room.here()
    with threads.at_most(room.threads):
        yield room


def _within(group: PlacementGroup, bundle: int) -> PlacementGroupSchedulingStrategy:
    return PlacementGroupSchedulingStrategy(group, bundle, placement_group_capture_child_tasks=True)


def _bundles_here(group: PlacementGroup) -> list[int]:
    """Return the bundles of a group on this node."""
    node = ray.get_runtime_context().get_node_id()
    return [index for index, there in _bundles_placed(group).items() if there == node]


def _bundles_placed(group: PlacementGroup) -> dict[int, str]:
    """Return the node of each bundle of a group; a bundle of a lost node is missing until Ray has found another."""
    nodes: Mapping[int, str] = placement_group_table(group)["bundles_to_node_id"]
    return {index: node for index, node in sorted(nodes.items()) if node}


def _whole(bundles: list[dict[str, float]]) -> int:
    """Return the whole cores of bundles together, at least 1."""
    return max(1, int(sum(bundle.get("CPU", 0.0) for bundle in bundles)))


def _memory_of(resources: Mapping[str, float]) -> int:
    return int(resources.get("memory", 0) + resources.get("object_store_memory", 0))


def _memory_of_bundle(bundle: Mapping[str, float], cluster: Mapping[str, float]) -> int:
    """Return a bundle's stated memory, or the share of the cluster's memory that its CPUs are of all CPUs."""
    if "memory" in bundle:
        return int(bundle["memory"])
    share = bundle.get("CPU", 0.0) / max(cluster.get("CPU", 0.0), 1.0)
    return int(_memory_of(cluster) * min(share, 1.0))
