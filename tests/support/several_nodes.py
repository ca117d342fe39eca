"""A cluster of several raylets on this machine, and what raydr does on it; run by test_survival.py."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}

import numpy as np
import psutil
import ray
import trials
from processes import simulation_processes
from ray.cluster_utils import Cluster
from requests_for_tests import Gate

from raydr.actors.backend import RayBackend
from raydr.errors import RunError
from raydr.journal import Event, IncidentEvent, Progress, RoundEnded
from raydr.methods.landmarks.maps import FedTSNE, FedUMAP
from raydr.methods.serving import Plan
from raydr.scenarios.running.backend import InlineBackend
from raydr.scenarios.running.site_files import from_sites
from raydr.scenarios.schema.reading import read

PLAN = Plan(
    method="fed-tsne",
    settings=FedTSNE(landmarks=10, rounds=10, early_iterations=20, iterations=20),
    scale="standard",
    seed=0,
    checkpoint_every=2,
)


def main() -> None:
    """Start three nodes, and lose one after the other."""
    # A lost node is noticed after two seconds, where Ray takes fifteen.
    looks = {"health_check_period_ms": 1000, "health_check_failure_threshold": 2}
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": looks}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = {
        name: cluster.add_node(num_cpus=1, resources={name: 1}, labels={"site": name})
        for name in ("north", "south")
    }
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        trial_of_two_nodes(cluster, nodes)
        print("trial-of-two-nodes: as expected", flush=True)
        trial_with_sites()
        print("trial-with-sites: as expected", flush=True)
        sites(nodes)
        print("sites: as expected", flush=True)
        site_lost(cluster, nodes)
        print("site-lost: as expected", flush=True)
        nodes["south"] = cluster.add_node(num_cpus=1)
        neighbours_of_all()
        print("neighbours: as expected", flush=True)
        nodes["west"] = cluster.add_node(num_cpus=1)
        neighbours_without_a_node(cluster, nodes)
        print("neighbours-node-lost: as expected", flush=True)
        node_lost(cluster, nodes)
        print("node-lost: as expected", flush=True)
    finally:
        ray.shutdown()
        cluster.shutdown()


def trial_of_two_nodes(cluster: Any, nodes: dict[str, Any]) -> None:
    """A placement group of two nodes has clients on both, its coordinator beside the trial, and may lose the other."""
    nodes = nodes | {"east": cluster.add_node(num_cpus=1, resources={"east": 1})}
    rng = np.random.default_rng(3)
    rows = [rng.normal(size=(size, 4)) for size in (20, 30, 25, 10)]
    expected = InlineBackend().serve(rows, PLAN, listener=lambda event: None).outcome.embedding.tobytes()
    with (
        tempfile.TemporaryDirectory() as name,
        trials.group_of({"CPU": 1, "north": 0.5}, {"CPU": 1, "east": 0.5}) as group,
    ):
        trial, gate = trials.trial_in(group), Gate(round=4, opened_by=f"{name}/open")
        work = trial.call.remote(trials.serve_plan, rows, replace(PLAN, faults=gate))
        while len(clients := simulation_processes("ClientProcess")) < len(rows):
            time.sleep(0.1)
        homes = Counter(client.ppid() for client in clients)
        raylets = {name: node.all_processes["raylet"][0].process.pid for name, node in nodes.items()}
        assert homes == {raylets["north"]: 2, raylets["east"]: 2}, (homes, raylets)
        (coordinator,) = simulation_processes("CoordinatorProcess")
        assert coordinator.ppid() == raylets["north"]
        cluster.remove_node(nodes["east"], allow_graceful=False)
        Path(gate.opened_by).touch()
        assert ray.get(work) == expected


def trial_with_sites() -> None:
    """Sites keep to their nodes, where a trial's placement group is not."""
    with tempfile.TemporaryDirectory() as name, trials.group_of({"CPU": 1}) as group:
        on_ray, inline = (
            described(Path(name)) | {"runtime": {"federation": federation}}
            for federation in ("ray", "inline")
        )
        trials.run_scenario(inline, Path(name) / "inline")
        ray.get(trials.trial_in(group).call.remote(trials.run_scenario, on_ray, Path(name) / "ray"))
        ours, expected = ((Path(name) / how / "embedding.parquet").read_bytes() for how in ("ray", "inline"))
        assert ours == expected


def neighbours_of_all() -> None:
    """Neighbours of very many rows are searched by tasks on all nodes, and no bit of the map changes."""
    plan = replace(PLAN, method="fed-umap", settings=FedUMAP(landmarks=10, rounds=2, epochs=2))
    searched: set[int] = set()
    served = RayBackend(packing="per-client").serve(
        many_rows(), plan, listener=lambda event: searched.update(searching() if is_progress(event) else ())
    )
    expected = InlineBackend().serve(many_rows(), plan, listener=lambda event: None)
    assert "compared with the records near to it" in served.outcome.notes[0].text
    assert served.outcome.embedding.tobytes() == expected.outcome.embedding.tobytes()
    assert len(searched) > 1, searched


def many_rows() -> list[Any]:
    """Rows of two clients, more than are compared pair by pair."""
    random = np.random.default_rng(0)
    centres = 4.0 * random.normal(size=(30, 8))
    return [centres[random.integers(0, 30, 26_000)] + random.normal(size=(26_000, 8)) for _ in range(2)]


def is_progress(event: Event) -> bool:
    """Whether the event is a part of a stage that has been done."""
    return isinstance(event, Progress)


def searching() -> set[int]:
    """Raylets whose processes do the server's work at this moment."""
    return {
        process.ppid()
        for process in psutil.process_iter(["cmdline"])
        if "ray::_with_one_thread" in (process.info["cmdline"] or ())
    }


def neighbours_without_a_node(cluster: Any, nodes: dict[str, Any]) -> None:
    """A node is lost while it searches for neighbours: its cells are searched elsewhere, and no neighbour changes."""
    lost: list[str] = []

    def lose_a_node(event: Event) -> None:
        if lost or not is_progress(event):
            return
        (coordinator,) = simulation_processes("CoordinatorProcess")
        for name, node in nodes.items():
            raylet = node.all_processes["raylet"][0].process.pid
            if raylet in searching() - {coordinator.ppid()}:
                cluster.remove_node(node, allow_graceful=False)
                lost.append(name)
                return

    plan = replace(PLAN, method="fed-umap", settings=FedUMAP(landmarks=10, rounds=2, epochs=2))
    served = RayBackend(packing="per-client").serve(many_rows(), plan, listener=lose_a_node)
    expected = InlineBackend().serve(many_rows(), plan, listener=lambda event: None)
    assert lost, "no node but the coordinator's searched"
    assert served.outcome.embedding.tobytes() == expected.outcome.embedding.tobytes()
    del nodes[lost[0]]


def node_lost(cluster: Any, nodes: dict[str, Any]) -> None:
    """A node that is lost with clients on it: they are started elsewhere, and no bit changes."""
    rng = np.random.default_rng(3)
    rows = [rng.normal(size=(size, 4)) for size in (20, 30, 25, 10, 15, 12)]
    heard: list[Event] = []
    lost = False

    def lose_a_node(event: Event) -> None:
        nonlocal lost
        heard.append(event)
        if isinstance(event, RoundEnded) and event.round == 4 and not lost:
            lost = True
            cluster.remove_node(hosting_clients(nodes), allow_graceful=False)

    backend = RayBackend(packing="per-client")
    served = backend.serve(rows, PLAN, listener=lose_a_node)
    expected = InlineBackend().serve(rows, PLAN, listener=heard.append)
    assert lost
    assert served.outcome.embedding.tobytes() == expected.outcome.embedding.tobytes()
    # No reply counts twice. Who was lost while asked was asked again, which the ledger says.
    for entry, usual in zip(served.ledger.as_list(), expected.ledger.as_list(), strict=True):
        resent = entry["count"] - usual["count"]
        assert entry | {"count": 0, "bytes": 0} == usual | {"count": 0, "bytes": 0}
        assert resent == 0 if entry["direction"] == "up" else 0 <= resent <= len(rows), entry
    texts = [event.text for event in heard if isinstance(event, IncidentEvent)]
    assert texts, "clients were on the lost node, and their loss was told"


def hosting_clients(nodes: dict[str, Any]) -> Any:
    """A node on which clients live: Ray spreads actors, but over which nodes is its own affair."""
    hosts = {process.ppid() for process in simulation_processes("ClientProcess")}
    for node in nodes.values():
        if node.all_processes["raylet"][0].process.pid in hosts:
            return node
    raise AssertionError("no client lives on a node other than the head")


def described(folder: Path) -> dict[str, Any]:
    """A scenario of two sites, one pinned by resource and one by label; neither file is where the driver looks."""
    rng = np.random.default_rng(5)
    for name in ("north", "south"):
        table = np.column_stack([rng.normal(size=(30, 4)), rng.integers(0, 2, 30)])
        np.savetxt(folder / f"{name}.csv", table, delimiter=",", header="a,b,c,d,kind", comments="")
    return {
        "name": "two-sites",
        "data": {"label": "kind", "scale": "standard"},
        "clients": {
            "sites": [
                {"path": str(folder / "north.csv"), "node": "north"},
                {"path": str(folder / "south.csv"), "node": "site=south"},
            ]
        },
        "method": {
            "kind": "fed-tsne",
            "landmarks": 10,
            "rounds": 10,
            "early_iterations": 20,
            "iterations": 20,
        },
        "compare": ["central"],
        "metrics": ["npa_10", "f_score"],
    }


def sites(nodes: dict[str, Any]) -> None:
    """Rows are read on their nodes and nowhere else; the run equals one of a table."""
    import raydr.data.site

    with tempfile.TemporaryDirectory() as name:
        scenario = read(described(Path(name)))
        inline = from_sites(scenario, InlineBackend())
        expected = InlineBackend().serve(inline.parts, PLAN, listener=lambda event: None)

        def refuse(*args: Any, **kwargs: Any) -> None:
            raise AssertionError("the driver read a site's file")

        load, raydr.data.site.load = (
            raydr.data.site.load,
            refuse,
        )  # of this process alone: workers have their own
        backend = RayBackend()
        client_data = from_sites(scenario, backend)
        served = backend.serve(client_data.parts, PLAN, listener=lambda event: None)
        raydr.data.site.load = load
        assert served.outcome.embedding.tobytes() == expected.outcome.embedding.tobytes()

        from raydr.errors import ScenarioError

        elsewhere = described(Path(name))
        elsewhere["clients"]["sites"][0]["node"] = "west"
        try:
            from_sites(read(elsewhere), backend)
        except ScenarioError as error:
            assert "west" in str(error)
            assert "north" in str(error)
        else:
            raise AssertionError("a node that is not there must be refused")


def site_lost(cluster: Any, nodes: dict[str, Any]) -> None:
    """A site whose only node is lost cannot be done without, and the error says which client it was."""
    with tempfile.TemporaryDirectory() as name:
        backend = RayBackend()
        client_data = from_sites(read(described(Path(name))), backend)
        lost = False

        def lose_the_site(event: Event) -> None:
            nonlocal lost
            if isinstance(event, RoundEnded) and event.round == 4 and not lost:
                lost = True
                cluster.remove_node(nodes["south"], allow_graceful=False)

        try:
            backend.serve(client_data.parts, PLAN, listener=lose_the_site)
        except RunError as error:
            assert lost
            assert "Client 1" in str(error), error
            assert "node" in str(error), error
        else:
            raise AssertionError("the run must fail")


if __name__ == "__main__":
    main()
