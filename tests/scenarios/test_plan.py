"""`raydr plan` predicts the messages, bytes, epsilon and memory that the run then records."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from extensions import PLAIN, command, installed
from places import TESTS
from scipy.io import mmwrite
from scipy.sparse import csr_matrix
from tiny import tiny, tiny_file, tiny_run, tiny_scenario

from raydr.actors.capacity import Capacity, Machine, capacity_at
from raydr.errors import DataError, ScenarioError
from raydr.front.cli import status
from raydr.scenarios.planning.data_sizes import DataSizes, sampled
from raydr.scenarios.planning.plan import RunPlan, plan_of_data, plan_of_scenario
from raydr.scenarios.planning.run_memory import SPARSE_BLOCK_BYTES, Load, _of_evaluation, node_bytes
from raydr.scenarios.planning.run_time import METRICS_S, _metrics
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import dump, read
from raydr.scenarios.schema.scenario import Scenario

GIGABYTE = 10**9
ROOMY = Capacity((Machine("roomy", 2, 1000 * GIGABYTE),))
MEMORY_FACTOR = 1.5
"""The factor that docs/plan.md states."""
GUESSED_FACTOR = 3.0
"""The factor for bytes that depend on the size of FedNE's map."""

_QUICK_TSNE = {"kind": "tsne", "early_iterations": 2, "iterations": 2}
QUICK: dict[str, dict[str, Any]] = {
    "fed-tsne": {"method.early_iterations": 2, "method.iterations": 2},
    "fed-umap": {"method.epochs": 2},
    "fed-spectral": {"method.embedder": _QUICK_TSNE},
    "sense": {"method.embedder": _QUICK_TSNE},
}
"""Settings that make a map quick and change no message."""
INLINE = {"runtime.federation": "inline", "runtime.checkpoint_every": 0, "metrics": ["npa_10"], "compare": []}
QUICK_PRIVATE = {"method.early_iterations": 2, "method.iterations": 2, "method.placing_iterations": 2}
SMALL = {"data.rows": 150}
LEARNT = SMALL | {"method.rounds": 3, "method.landmarks": 20}
NE = SMALL | {"method.rounds": 2, "method.hidden": [8, 8]}


def quick(name: str, changes: Mapping[str, Any]) -> Scenario:
    """Read a shipped scenario with settings that take a second or two."""
    kind = read(name, INLINE | dict(changes)).method.kind
    return read(name, INLINE | QUICK.get(kind, {}) | dict(changes))


def booked(entries: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the fields of ledger entries that a plan predicts, without those of the simulation alone."""
    return [
        (
            entry["kind"],
            entry["direction"],
            entry["granularity"],
            entry["count"],
            entry["bytes"],
            # The charged rounding of a gradient depends on the landmarks, which a plan does not know.
            entry["epsilon"] and f"{entry['epsilon']:.5g}",
        )
        for entry in entries
        if entry["direction"] != "simulation-only"
    ]


def planned(plan: RunPlan) -> list[tuple[Any, ...]]:
    """Return the same fields of a plan."""
    return booked(plan.to_json()["messages"])


def ledger(folder: Path) -> list[dict[str, Any]]:
    """Return the ledger of a run folder."""
    entries: list[dict[str, Any]] = json.loads((folder / "ledger.json").read_text())
    return entries


def slow(name: str, changes: dict[str, Any]) -> Any:
    """Mark a case whose messages other cases cover."""
    return pytest.param(name, changes, marks=pytest.mark.slow)


SHIPPED: list[Any] = [
    ("digits-fed-tsne", LEARNT),
    ("digits-fed-umap", SMALL),
    slow("digits-fed-spectral", SMALL | {"method.rounds": 3}),
    slow("digits-fed-tsne-attacked", SMALL | {"method.rounds": 3}),
    ("digits-fed-tsne-private-landmarks", SMALL),
    ("digits-sense", SMALL),
    ("digits-sense-anchors", SMALL),
    ("iris-sense-noisy-distances", {}),
]
AWKWARD: list[Any] = [
    ("digits-fed-tsne", LEARNT | {"clients.partition": {"kind": "dirichlet", "alpha": 0.1}, "seed": 3}),
    ("digits-fed-tsne", LEARNT | {"clients.participation": 0.5, "data.scale": "minmax"}),
    ("digits-fed-tsne", LEARNT | {"data.scale": "standard", "evaluate_every": 2}),
    ("digits-fed-tsne", LEARNT | {"data.scale": "unit", "method.aggregation": {"kind": "coordinate-median"}}),
    ("digits-fed-tsne", LEARNT | {"method.share": "embedding"}),
    (
        "digits-fed-tsne",
        SMALL | {"method.landmarks_from": "random", "method.landmarks": 9, "method.rounds": None},
    ),
    ("digits-fed-umap", SMALL | {"method.landmarks": 3}),
    (
        "digits-fed-umap",
        SMALL | {"method.landmarks_from": "k-means", "method.landmarks": 9, "method.rounds": 4},
    ),
    ("digits-fed-spectral", SMALL | {"method.landmarks_from": "k-means", "method.landmarks": 12}),
    ("digits-fed-umap", SMALL | {"method.bounds": [0, 16]}),
    (
        "digits-fed-tsne",
        LEARNT | {"privacy": {"noise": {"on": "gradient", "epsilon": 3.0}}, "method.local_steps": 2},
    ),
    ("digits-fed-tsne", LEARNT | {"privacy": {"noise": {"on": "gradient", "sigma": 0.1, "per": "sum"}}}),
    ("digits-fed-tsne", LEARNT | {"privacy": {"noise": {"on": "data", "level": 0.3, "stage": "all"}}}),
    (
        "digits-fed-tsne",
        LEARNT
        | {
            "faults": {
                "dropout": 0.2,
                "corrupt": 0.2,
                "crashes": [{"client": 1, "round": 2}, {"client": 2, "round": 3, "moment": "after"}],
            },
            "runtime.quorum": 0.2,
        },
    ),
    ("digits-sense", SMALL | {"method.visibility": "partial", "method.anchor_source": "random"}),
    (
        "digits-sense",
        SMALL | {"method.anchor_source": "learnt", "method.learning.rounds": 2, "method.anchors": 9},
    ),
    ("digits-sense", SMALL | {"privacy": {"noise": {"on": "data", "level": 0.3}}, "method.anchors": 10}),
    slow("digits-fedne", NE | {"method.surrogate": "none"}),
    slow("digits-fedne", NE | {"method.surrogate": "mlp", "clients.participation": 0.5}),
    slow("digits-fedne", NE | {"method.preset": "published"}),
    ("digits-fedne", NE | {"method.surrogate": "none", "method.prototypes": 10, "method.warm_steps": 2}),
    ("digits-fed-tsne", LEARNT | {"privacy": {"isometry_key": True}, "data.scale": "standard"}),
    ("digits-sense", SMALL | {"privacy": {"isometry_key": True}}),
    slow("digits-fed-tsne", LEARNT | {"privacy": {"secure_aggregation": True}}),
    (
        "digits-fed-tsne",
        LEARNT
        | {
            "privacy": {
                "noise": {"on": "gradient", "epsilon": 3.0, "per": "sum"},
                "secure_aggregation": True,
            },
            "clients.participation": 0.5,
        },
    ),
    ("digits-fedne", {"data.rows": 150, "method": {"kind": "local-ne", "rounds": 2, "hidden": [8]}}),
    ("digits-fedne", {"data.rows": 150, "method": {"kind": "global-ne", "rounds": 2, "hidden": [8]}}),
    ("digits-fedne", {"data.rows": 150, "method": {"kind": "landmark-ne", "rounds": 2, "hidden": [8]}}),
    ("digits-fedne", {"data.rows": 150, "method": {"kind": "fedprox-ne", "rounds": 2, "hidden": [8]}}),
    ("digits-fed-tsne", {"data": {"source": "iris"}, "method": {"kind": "fed-pca", "dimensions": 3}}),
    ("digits-sense", SMALL | {"method": {"kind": "dsne", "early_iterations": 2, "iterations": 2}}),
    (
        "digits-sense",
        SMALL | {"method": {"kind": "dsne", "shots": "single", "early_iterations": 2, "iterations": 2}},
    ),
    (
        "digits-fed-tsne",
        {
            "data": {"source": "iris"},
            "method": {"kind": "fed-pca", "bounds": [0, 8], "publish": "local"},
            "privacy": {"noise": {"on": "moments", "epsilon": 1.0, "clip": 3.0}},
        },
    ),
]


@pytest.mark.parametrize(("name", "changes"), SHIPPED + AWKWARD)
def test_plan_predicts_messages_bytes_and_epsilon_of_the_ledger(
    name: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    scenario = quick(name, changes)
    plan = plan_of_scenario(scenario, capacity=ROOMY)

    folder = run(scenario, out=tmp_path / "run", report=False)

    assert planned(plan) == booked(ledger(folder))
    assert plan.bytes_up == sum(entry["bytes"] for entry in ledger(folder) if entry["direction"] == "up")
    recorded = json.loads((folder / "privacy.json").read_text())
    assert plan.privacy is not None
    assert (plan.privacy.epsilon is None) == (recorded["epsilon"] is None)
    assert (plan.privacy.epsilon or 0.0) == pytest.approx(recorded["epsilon"] or 0.0, rel=1e-6)
    assert (plan.privacy.accounted or 0.0) == pytest.approx(recorded["epsilon_accounted"], rel=1e-6)


def test_private_map_plan_knows_epsilon_and_assumes_cells(tmp_path: Path) -> None:
    """The number of cells depends on the noise of the run; epsilon does not."""
    scenario = quick("digits-private-map", {"data.rows": 200, **QUICK_PRIVATE})
    plan = plan_of_scenario(scenario, capacity=ROOMY)
    recorded = json.loads((run(scenario, out=tmp_path / "run", report=False) / "privacy.json").read_text())
    assert plan.privacy is not None
    assert plan.privacy.epsilon == pytest.approx(recorded["epsilon"], rel=1e-9)
    sent = booked(ledger(tmp_path / "run"))
    assumed = {entry.kind for entry in plan.messages if entry.assumed}
    assert assumed == {"CellSums", "CellSumsRequest", "PlaceRequest"}
    assert [row for row in planned(plan) if row[0] not in assumed] == [
        row for row in sent if row[0] not in assumed
    ]


def test_plan_counts_hyperbolic_records_and_uneven_clients(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "ball.npz", X=rng.normal(0, 0.3, (120, 5)).astype(np.float32), y=rng.integers(0, 3, 120)
    )
    scenario = read(
        {
            "name": "ball",
            "data": {"path": str(tmp_path / "ball.npz")},
            "clients": {"count": 4, "partition": {"kind": "dirichlet", "alpha": 0.5}},
            "method": {
                "kind": "sense",
                "geometry": "hyperbolic",
                "anchors": 4,
                "embedder": {"kind": "cosne", "early_iterations": 2, "iterations": 2},
            },
            "runtime": {"federation": "inline"},
            "metrics": ["npa_10"],
        }
    )
    plan = plan_of_scenario(scenario, capacity=ROOMY)
    assert planned(plan) == booked(ledger(run(scenario, out=tmp_path / "run", report=False)))


def test_messages_that_depend_on_map_size_are_marked_assumed(tmp_path: Path) -> None:
    scenario = quick("digits-fedne", {"data.rows": 200, "method.rounds": 6})
    plan = plan_of_scenario(scenario, capacity=ROOMY)
    entries = {
        (entry["kind"], entry["direction"]): entry
        for entry in ledger(run(scenario, out=tmp_path / "run", report=False))
    }
    assumed = {entry.kind for entry in plan.messages if entry.assumed}
    assert assumed == {"DensityRequest", "Density", "TrainRequest"}
    for entry in plan.messages:
        found = entries[entry.kind, entry.direction]
        if entry.assumed:
            assert entry.bytes / GUESSED_FACTOR < found["bytes"] < entry.bytes * GUESSED_FACTOR
        else:
            assert (entry.count, entry.bytes) == (found["count"], found["bytes"])


def test_plan_counts_rows_of_readable_site_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    sites = []
    for site, rows in enumerate((30, 41)):
        path = tmp_path / f"site{site}.csv"
        np.savetxt(path, rng.normal(size=(rows, 3)), delimiter=",", header="a,b,c", comments="")
        sites.append({"path": str(path)})
    content = {key: value for key, value in tiny().items() if key not in ("data", "clients")}
    scenario = read(content | {"data": {"scale": "standard"}, "clients": {"sites": sites}})

    plan = plan_of_scenario(scenario, capacity=ROOMY)

    assert (plan.rows, plan.smallest, plan.largest) == (71, 30, 41)
    assert planned(plan) == booked(ledger(run(scenario, out=tmp_path / "run", report=False)))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            "a,$x_$,b",
            r"the same features in a different order: name them in data\.features, such as \[a, b, \$x_\$\]",
        ),
        ("a,b,$y_$", r"different features \(\$x_\$, \$y_\$\): name the common ones in data\.features"),
    ],
)
def test_a_plan_and_a_run_refuse_other_features_of_a_site_alike(
    tmp_path: Path, columns: str, message: str
) -> None:
    sites = [{"path": str(tmp_path / "north.csv")}, {"path": str(tmp_path / "south.csv")}]
    for site, header in zip(sites, ("a,b,$x_$", columns), strict=True):
        numbers = np.random.default_rng(2).normal(1e8, 1.0, size=(20, 3))
        np.savetxt(site["path"], numbers, delimiter=",", header=header, comments="")
    content = {key: value for key, value in tiny().items() if key not in ("data", "clients")}
    scenario = read(content | {"data": {"scale": "standard"}, "clients": {"sites": sites}})
    with pytest.raises(DataError, match=message):
        plan_of_scenario(scenario, capacity=ROOMY)
    with pytest.raises(DataError, match=message):
        run(scenario, out=tmp_path / "run", report=False)


def test_plan_counts_pairs_of_algorithm_2_and_refuses_too_many_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def planned_for(solver: str, rows: int = 1_000) -> RunPlan:
        changes = {"method.solver": solver, "data.rows": rows}
        return plan_of_scenario(read("digits-sense-anchors", changes), capacity=ROOMY)

    blocks, dense = (
        {process.process: process.bytes for process in planned_for(solver).memory}["coordinator"]
        for solver in ("smacof", "smacof-dense")
    )
    assert dense - blocks == 6 * 8 * 1_040**2
    monkeypatch.setattr("raydr.methods.sense.algorithm_2.MOST_POINTS", 140)
    with pytest.raises(ScenarioError, match=r"here 150; the limit is 140"):
        planned_for("smacof-dense", rows=110)


def test_plan_of_unreachable_sites_notes_unknown_messages(tmp_path: Path) -> None:
    content = {key: value for key, value in tiny().items() if key not in ("data", "clients", "runtime")}
    sites = [{"path": "/nowhere/a.csv", "node": "north"}, {"path": "/nowhere/b.csv", "node": "east"}]
    plan = plan_of_scenario(read(content | {"data": {}, "clients": {"sites": sites}}), capacity=ROOMY)
    assert (plan.clients, plan.actors, plan.rows, plan.messages) == (2, 2, 0, ())
    assert "/nowhere/a.csv and 1 more" in plan.notes[0]


@pytest.mark.slow
@pytest.mark.parametrize("crash", ["before", "during", "after"])
def test_plan_counts_repeated_messages_after_a_process_crash(
    cluster: None, crash: str, tmp_path: Path
) -> None:
    changes: dict[str, Any] = {
        "clients.count": 6,
        "runtime.federation": "ray",
        "runtime.actors": 2,
        "faults": {"crashes": [{"client": 1, "round": 2, "moment": crash}]},
    }
    scenario = quick("digits-fed-tsne", LEARNT | changes)
    plan = plan_of_scenario(scenario, capacity=ROOMY)
    assert planned(plan) == booked(ledger(run(scenario, out=tmp_path / "run", report=False)))


KINDS: list[dict[str, Any]] = [
    {"compare": ["central"], "metrics": "default"},
    {"metrics": ["npa_10"]},
    {"method": {"kind": "fedne", "rounds": 2, "hidden": [32, 32]}},
]


@pytest.mark.slow
@pytest.mark.parametrize("changes", KINDS[:2])
def test_planned_memory_is_at_most_the_stated_factor_too_high(
    cluster: None, changes: dict[str, Any], tmp_path: Path
) -> None:
    scenario = quick("digits-fed-tsne", {"runtime.federation": "ray", "clients.count": 3} | changes)
    plan = plan_of_scenario(scenario, capacity=ROOMY)
    folder = run(scenario, out=tmp_path / "run")
    peaks = json.loads((folder / "environment.json").read_text())["peak_memory_bytes"]
    assert [process.process for process in plan.memory] == list(peaks)
    # No lower bound: processes of the shared cluster may have worked for other tests, and the driver has.
    for process in plan.memory:
        assert process.bytes < MEMORY_FACTOR * peaks[process.process], process


@pytest.mark.slow
@pytest.mark.parametrize("changes", KINDS)
def test_planned_memory_of_each_process_is_within_the_stated_factor(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    scenario = quick("digits-fed-tsne", {"runtime.federation": "ray", "clients.count": 3} | changes)
    (tmp_path / "scenario.yaml").write_text(dump(scenario))
    command = [sys.executable, "-m", "raydr", "run", str(tmp_path / "scenario.yaml"), "--address", "local"]
    subprocess.run([*command, "--out", str(tmp_path / "run"), "--quiet"], check=True, capture_output=True)
    peaks = json.loads((tmp_path / "run" / "environment.json").read_text())["peak_memory_bytes"]
    for process in plan_of_scenario(scenario, capacity=ROOMY).memory:
        factor = peaks[process.process] / process.bytes
        assert 1 / MEMORY_FACTOR < factor < MEMORY_FACTOR, (process.process, factor)


@dataclass(frozen=True)
class FreshProcess:
    """Results of a plan and of a plan for a missing cluster, in this order, in one new process."""

    heavy_modules: list[str]
    missing_cluster: int
    errors: str


@pytest.fixture(scope="module")
def fresh_process(tmp_path_factory: pytest.TempPathFactory) -> FreshProcess:
    folder = tmp_path_factory.mktemp("process")
    scenario = str(tiny_file(folder))
    program = f"""
import json, sys
from raydr.front.cli import status
assert status(["plan", {scenario!r}]) == 0
heavy = [name for name in ("ray", "torch", "numba", "matplotlib") if name in sys.modules]
print(json.dumps([heavy, status(["plan", {scenario!r}, "--address", "localhost:1"])]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    heavy_modules, missing_cluster = json.loads(done.stdout.splitlines()[-1])
    return FreshProcess(heavy_modules, missing_cluster, done.stderr)


@pytest.mark.slow
def test_planned_memory_of_an_inline_run_is_within_the_stated_factor(tmp_path: Path) -> None:
    small = {"data.rows": 600, "method.iterations": 2, "method.early_iterations": 2, "method.rounds": 2}
    scenario = read("digits-fed-tsne", {"runtime.federation": "inline", **small})
    (tmp_path / "scenario.yaml").write_text(dump(scenario))
    command = [sys.executable, "-m", "raydr", "run", str(tmp_path / "scenario.yaml"), "--quiet"]
    subprocess.run([*command, "--out", str(tmp_path / "run")], check=True, capture_output=True)
    (driver,) = plan_of_scenario(scenario, capacity=ROOMY).memory
    peaks = json.loads((tmp_path / "run" / "environment.json").read_text())["peak_memory_bytes"]
    assert 1 / MEMORY_FACTOR < peaks["driver"] / driver.bytes < MEMORY_FACTOR


def data_sizes(rows: int, features: int, clients: int) -> DataSizes:
    """Return synthetic data of any size, which need no memory."""
    sample = np.random.default_rng(0).normal(size=(100, features)).astype(np.float32)
    sizes = tuple(rows // clients + (client < rows % clients) for client in range(clients))
    return DataSizes(sizes=sizes, features=features, itemsize=4, sample=sample, whole=False, labelled=True)


def test_too_many_processes_do_not_fit_and_fewer_actors_fix_it() -> None:
    capacity = Capacity((Machine("laptop", 8, 16 * GIGABYTE),))
    scenario = tiny_scenario(runtime__federation="ray", runtime__actors="per-client", clients__count=1_000)
    plan = plan_of_data(scenario, data_sizes(5_000, 4, 1_000), capacity)
    assert plan.actors == 1_000
    assert not plan.fits
    (actors,) = [remedy for remedy in plan.remedies if remedy.keys[0][0] == "runtime.actors"]
    fewer = tiny_scenario(
        runtime__federation="ray", runtime__actors=int(actors.keys[0][1]), clients__count=1_000
    )
    assert plan_of_data(fewer, data_sizes(5_000, 4, 1_000), capacity).fits
    more = tiny_scenario(
        runtime__federation="ray", runtime__actors=int(actors.keys[0][1]) + 1, clients__count=1_000
    )
    assert not plan_of_data(more, data_sizes(5_000, 4, 1_000), capacity).fits


def test_five_million_rows_do_not_fit_and_fewer_rows_fix_it() -> None:
    capacity = Capacity((Machine("laptop", 8, 16 * GIGABYTE),))
    scenario = tiny_scenario(runtime__federation="ray", clients__count=10)
    plan = plan_of_data(scenario, data_sizes(5_000_000, 200, 10), capacity)
    assert not plan.fits
    keys = dict(key for remedy in plan.remedies for key in remedy.keys)
    assert 10_000 < int(keys["data.rows"]) < 5_000_000
    assert plan_of_data(scenario, data_sizes(int(keys["data.rows"]), 200, 10), capacity).fits


@pytest.mark.parametrize("memory", [2.3, 1.6, 1.3, 1.0])
def test_every_suggested_remedy_makes_the_run_fit(memory: float) -> None:
    capacity = Capacity((Machine("small", 2, int(memory * GIGABYTE)),))
    changes: dict[str, Any] = {"runtime.federation": "ray", "compare": ["central"], "metrics": "default"}
    plan = plan_of_scenario(quick("digits-fed-tsne", changes), capacity=capacity)
    assert plan.fits == (not plan.remedies) or memory < 1.2
    for remedy in plan.remedies:
        changed = read("digits-fed-tsne", changes | {key: json_or_text(value) for key, value in remedy.keys})
        assert plan_of_scenario(changed, capacity=capacity).fits, remedy


def json_or_text(value: str) -> Any:
    """Return a value as ``--set`` reads it."""
    import yaml

    return yaml.safe_load(value)


def test_memory_never_falls_as_rows_clients_or_actors_grow() -> None:
    def needed(rows: int, actors: int) -> int:
        scenario = tiny_scenario(runtime__federation="ray", clients__count=20, runtime__actors=actors)
        return plan_of_data(scenario, data_sizes(rows, 16, 20), ROOMY).nodes[0].needed

    by_rows = [needed(rows, 4) for rows in (200, 2_000, 20_000, 200_000)]
    by_actors = [needed(20_000, actors) for actors in (1, 2, 8, 20)]
    assert by_rows == sorted(by_rows)
    assert by_actors == sorted(by_actors)


def test_a_cluster_is_planned_node_by_node() -> None:
    machines = (
        Machine("head", 2, 64 * GIGABYTE),
        Machine("worker", 2, GIGABYTE, driver=False),
    )
    scenario = tiny_scenario(runtime__federation="ray", runtime__actors=20, clients__count=20)
    plan = plan_of_data(scenario, data_sizes(2_000, 8, 20), Capacity(machines, cluster=True))
    assert [(node.name, node.actors) for node in plan.nodes] == [("head", 10), ("worker", 10)]
    assert [node.fits for node in plan.nodes] == [True, False]


def test_clients_are_planned_on_their_nodes_and_the_others_spread() -> None:
    machines = (
        Machine("head", 4, 64 * GIGABYTE),
        Machine("worker", 4, 64 * GIGABYTE, driver=False, labels=frozenset({"b"})),
        Machine("other", 4, 64 * GIGABYTE, driver=False),
    )
    scenario = tiny_scenario(runtime__federation="ray", runtime__actors=22, clients__count=22)
    data = replace(data_sizes(2_200, 8, 22), nodes=("b",) * 3 + (None,) * 19)
    plan = plan_of_data(scenario, data, Capacity(machines, cluster=True))
    assert [node.actors for node in plan.nodes] == [7, 9, 6]


def test_capacity_of_a_running_cluster_comes_from_its_nodes(cluster: None) -> None:
    capacity = capacity_at("auto")
    assert capacity.cluster
    assert capacity.cores >= 1
    assert capacity.machines[0].driver
    assert capacity.memory_bytes > 0


def test_plan_notes_a_budget_that_ends_the_run(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "method.rounds": 4,
        "method.bounds": [0, 16],
        "method.gamma": 0.001,
        "privacy": {
            "noise": {"on": "gradient", "multiplier": 3.0},
            "strict": "sums",
            "epsilon_max": 2.5,
        },
    }
    plan = plan_of_scenario(quick("digits-fed-tsne", LEARNT | changes), capacity=ROOMY)
    (note,) = [note for note in plan.notes if "The run would fail" in note]
    assert "epsilon_max" in note
    (steps,) = [entry.count for entry in plan.messages if entry.kind == "Step"]
    assert 0 < steps == 10 * (plan.rounds - 1)


def test_plan_refuses_noise_that_a_strict_run_refuses() -> None:
    changes = {"privacy": {"noise": {"on": "gradient", "multiplier": 3.0}, "strict": "sums"}}
    with pytest.raises(ScenarioError, match="strict"):
        plan_of_scenario(quick("digits-fed-tsne", LEARNT | changes), capacity=ROOMY)


def test_plan_notes_a_quorum_that_dropout_will_miss() -> None:
    changes = {"faults.dropout": 0.6, "runtime.quorum": 0.9}
    plan = plan_of_scenario(quick("digits-fed-tsne", LEARNT | changes), capacity=ROOMY)
    assert any("quorum" in note for note in plan.notes)


def test_plan_refuses_unusable_data_like_a_run() -> None:
    with pytest.raises(DataError):
        plan_of_scenario(tiny_scenario(data__rows=10**6), capacity=ROOMY)


def test_a_sample_keeps_the_extremes() -> None:
    rows = np.random.default_rng(0).normal(size=(50_000, 90))
    few = sampled(rows, 0)
    assert len(few) < len(rows)
    np.testing.assert_array_equal(few.max(axis=0), rows.max(axis=0))
    np.testing.assert_array_equal(few.min(axis=0), rows.min(axis=0))


def test_plan_from_a_sample_equals_plan_from_all_rows() -> None:
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(60_000, 70)) * np.exp(rng.normal(size=70))).astype(np.float32)
    whole = DataSizes(
        sizes=(30_000, 30_000), features=70, itemsize=4, sample=rows, whole=True, labelled=False
    )
    part = replace(whole, sample=sampled(rows, 0), whole=False)
    scenario = tiny_scenario(clients__count=2, method__landmarks=20, data__scale="standard")
    of_all, of_some = (plan_of_data(scenario, each, ROOMY) for each in (whole, part))
    assert planned(of_all) == planned(of_some)
    assert any("sample" in note for note in of_some.notes)
    assert not any("sample" in note for note in of_all.notes)


def test_plan_command_prints_and_writes_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny_file(tmp_path)
    assert status(["plan", str(path), "--json", str(tmp_path / "plan.json")]) == 0
    printed = capsys.readouterr().out
    content = json.loads((tmp_path / "plan.json").read_text())
    folder = tiny_run(tmp_path / "run")
    assert booked(content["messages"]) == booked(ledger(folder))
    assert content["fits"]
    assert "epsilon: no message has a guarantee" in printed
    assert "fits" in printed
    assert all(entry["kind"] in printed for entry in content["messages"])


def test_plan_that_does_not_fit_has_status_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "raydr.actors.capacity.this_machine", lambda: Capacity((Machine("small", 1, GIGABYTE // 8),))
    )
    assert status(["plan", str(tiny_file(tmp_path))]) == 0
    assert "small needs" in (printed := capsys.readouterr().out)
    assert "does not fit" in printed


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["--set", "method.landmark=3"], "landmarks"), (["--set", "data.rows=100000"], "100000")],
)
def test_plan_command_refuses_a_bad_scenario_with_status_2(
    arguments: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(["plan", str(tiny_file(tmp_path)), *arguments]) == 2
    assert named in capsys.readouterr().err


def test_plan_for_a_missing_cluster_has_status_2(fresh_process: FreshProcess) -> None:
    assert fresh_process.missing_cluster == 2
    assert "no Ray cluster" in fresh_process.errors


def test_plan_imports_no_heavy_module(fresh_process: FreshProcess) -> None:
    assert fresh_process.heavy_modules == []


def test_plan_of_an_extension_without_declared_messages_covers_the_rest(tmp_path: Path) -> None:
    source = (TESTS / "example_extension.py").read_text()
    packages = installed(tmp_path / "installed", "raydr_example", source)
    scenario = tmp_path / "extended.yaml"
    scenario.write_text(json.dumps(PLAIN))

    done = command(packages, "plan", scenario, "--json", tmp_path / "plan.json")

    assert done.returncode == 0, done.stderr
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert "'power-pca' does not declare its messages in advance" in done.stdout
    assert not plan["privacy"]["known"]
    assert {"Enrolment", "Beyond", "ScaleRows"} <= {entry["kind"] for entry in plan["messages"]}
    assert plan["memory"]
    assert plan["fits"]


def load_of(rows: int) -> Load:
    return Load(
        rows=rows,
        features=4,
        itemsize=8,
        clients=1,
        largest=rows,
        actors=0,
        posted=0,
        message=0,
        embedder=None,
        neighbours=0,
        torch=False,
        central=False,
        metrics=("steadiness",),
        held_out=rows,
    )


@pytest.mark.parametrize("name", ["cohesiveness_all", "new_cohesiveness_all"])
def test_cohesiveness_memory_grows_with_pairs_of_rows(name: str) -> None:
    """Beyond 20,000 rows the metric is not computed and needs no memory."""

    def more(rows: int) -> int:
        load = load_of(rows)
        return _of_evaluation(replace(load, metrics=("steadiness", name))) - _of_evaluation(load)

    assert more(10_000) > 4 * more(5_000) > 0
    assert more(30_000) == 0


def test_clients_are_shared_among_actors_in_whole_numbers() -> None:
    load = replace(load_of(70), clients=7, largest=10)
    assert [replace(load, actors=actors).rows_of_actor for actors in (7, 2, 1)] == [10, 40, 70]


def test_server_and_evaluation_need_memory_one_after_the_other() -> None:
    load = replace(load_of(10_000), actors=1)
    assert node_bytes(load, 0, driver=True) == node_bytes(replace(load, message=1_000), 0, driver=True)
    grown = replace(load, held_out=2 * load.held_out)
    assert node_bytes(grown, 0, driver=True) > node_bytes(load, 0, driver=True)


def test_metrics_of_a_pooled_map_take_as_long_again() -> None:
    load = load_of(1_000)
    once, twice = (_metrics(replace(load, central=central), 1) - METRICS_S for central in (False, True))
    assert twice == pytest.approx(2.0 * once)


def test_plan_of_surrogate_networks_counts_their_training_and_use() -> None:
    def seconds(**method: Any) -> float:
        content = {"kind": "fedne", "rounds": 10, "surrogate": "mlp", **method}
        stages = plan_of_scenario(tiny_scenario(method=content), capacity=ROOMY).stages
        return next(stage.seconds for stage in stages if stage.stage == "rounds")

    unused, used_once = seconds(surrogate_from=1.0), seconds(surrogate_from=0.9)
    used = seconds(surrogate_from=0.0, surrogate_every=10)  # learnt once too
    finer = seconds(surrogate_from=0.9, grid_step=0.03)  # a hundred times as many points, in no message
    assert unused == pytest.approx(seconds(surrogate="none"))
    assert unused < used_once < used - 0.03
    assert finer - used_once > 10.0


def test_plan_counts_the_encoder_that_a_field_of_several_rounds_was_made_with() -> None:
    """Of four rounds, the second and third name an encoder, whose parameters have two bytes each."""

    def requested(every: int) -> int:
        method = {"kind": "fedne", "rounds": 4, "hidden": [100, 50], "surrogate_every": every}
        scenario = tiny_scenario(method=method | {"surrogate_from": 0.0})
        plan = plan_of_scenario(scenario, capacity=ROOMY)
        assert (plan.features, plan.clients) == (4, 3)
        return sum(message.bytes for message in plan.messages if message.kind == "TrainRequest")

    parameters = 4 * 100 + 100 + 100 * 50 + 50 + 50 * 2 + 2
    assert requested(3) - requested(1) == pytest.approx(2 * 3 * 2 * parameters, rel=0.02)


def test_plan_for_more_rows_equals_plan_of_a_longer_table(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    long = random.normal(size=(4_900, 5))
    content = {
        "name": "long",
        "clients": {"count": 7, "partition": {"kind": "iid"}},
        "method": {"kind": "fed-umap", "landmarks": 20},
        "metrics": ["npa_10"],
    }
    plans = {}
    for name, rows in (("long", long), ("short", long[:490])):
        file = tmp_path / f"{name}.npy"
        np.save(file, rows)
        scenario = read(content | {"data": {"path": str(file)}})
        asked = None if name == "long" else 4_900
        plans[name] = plan_of_scenario(scenario, capacity=ROOMY, rows=asked)
    truth, like = plans["long"], plans["short"]
    assert (like.rows, like.clients, like.largest) == (truth.rows, truth.clients, truth.largest)
    assert planned(like) == planned(truth)
    assert like.memory == truth.memory
    assert like.seconds == pytest.approx(truth.seconds)
    assert any("the plan used a sample of the rows" in note for note in like.notes)


@pytest.mark.parametrize("own_files", [False, True])
def test_memory_of_a_sparse_table_is_that_of_what_is_stored(tmp_path: Path, own_files: bool) -> None:
    """16 kB are stored of 8 MB a file; under a scaling that moves zeros, the plan is that of dense rows."""
    table = csr_matrix(np.diag(np.arange(1.0, 1001.0)))
    mmwrite(tmp_path / "cells.mtx", table)
    np.save(tmp_path / "cells.npy", table.toarray())

    def peaks(file: str, scale: str) -> dict[str, int]:
        path = str(tmp_path / file)
        data = {"scale": scale} | ({} if own_files else {"path": path})
        clients = {"sites": [{"name": name, "path": path} for name in "ab"]} if own_files else {"count": 2}
        method = {"kind": "fed-umap", "landmarks": 5}
        scenario = read(
            {"name": "s", "data": data, "clients": clients, "method": method, "metrics": ["npa_10"]}
        )
        return {each.process: each.arrays for each in plan_of_scenario(scenario, capacity=ROOMY).memory}

    sparse, dense = peaks("cells.mtx", "none"), peaks("cells.npy", "none")
    assert sparse["largest client actor"] < dense["largest client actor"] - 7_000_000
    assert sparse["driver"] < dense["driver"] / 4  # references for new rows are dense
    assert sparse["evaluation"] > SPARSE_BLOCK_BYTES > dense["evaluation"]
    assert peaks("cells.mtx", "minmax") == peaks("cells.npy", "minmax")


def test_evaluation_holds_sparse_rows_in_double_precision_only_as_stored() -> None:
    dense = replace(load_of(20_000), features=5_000, itemsize=0.2, metrics=("npa_10",), held_out=0)
    assert _of_evaluation(replace(dense, sparse=True)) < _of_evaluation(dense) / 3


def test_landmarks_bound_the_coordinates_at_the_server() -> None:
    scenario = tiny_scenario(runtime__federation="ray", method__landmarks=10)
    plan = plan_of_data(scenario, data_sizes(5_000, 400, 2), ROOMY)
    (server,) = [each for each in plan.memory if each.process == "coordinator"]
    assert server.arrays < 8 * 5_000 * 400


def test_rows_option_refuses_empty_clients_and_remote_data() -> None:
    scenario = read("digits-fed-tsne")
    with pytest.raises(ScenarioError, match="--rows 3 leaves some of the 10 clients without rows"):
        plan_of_scenario(scenario, capacity=ROOMY, rows=3)
    sites = [{"path": "/nowhere/a.csv"}, {"path": "/nowhere/b.csv"}]
    elsewhere = read(
        {"name": "away", "data": {}, "clients": {"sites": sites}, "method": {"kind": "fed-umap"}}
    )
    with pytest.raises(ScenarioError, match="--rows needs data on this machine"):
        plan_of_scenario(elsewhere, capacity=ROOMY, rows=100)


@pytest.mark.parametrize(
    ("machines", "wrong"),
    [
        ("4x16x64", None),
        ("4x16", "three numbers"),
        ("0x1x1", "above 0"),
        ("1x1xnan", "above 0"),
        ("1x1xinf", "above 0"),
    ],
)
def test_machines_option_plans_for_other_machines(
    machines: str, wrong: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    code = status(["plan", "digits-fed-tsne", "--rows", "100000000", "--machines", machines])
    printed = capsys.readouterr()
    if wrong is None:
        assert code == 0
        assert "100,000,000 rows" in printed.out
        assert "machine 4 needs" in printed.out
        assert "does not fit" in printed.out
    else:
        assert code == 2
        assert wrong in printed.err


def test_held_out_rows_grow_with_the_rows_option() -> None:
    content = {
        "name": "held",
        "data": {"source": "iris", "holdout": {"part": 0.2}},
        "clients": {"count": 3},
        "method": {"kind": "fed-umap"},
    }
    short, long = (plan_of_scenario(read(content), capacity=ROOMY, rows=rows) for rows in (None, 1_200))
    assert (short.rows, short.held_out) == (120, 30)
    assert (long.rows, long.held_out) == (1_200, 300)
