"""FedNE against its baselines on the same rows: faithfulness to new rows, time of a round, edges per second.

    python -m benchmarks.fedne [--quick] [--data mnist] [--json FILE] [--only NAME,...] [--rounds N] [--seed
    N]
                              [--clients N,...] [--partition P]

The data are ``--data`` as NAME.npz in ``$RAYDR_DATA``: ``X``, ``y`` and ``split`` (0 train, 1 test; without
it, a seeded split). Rows are dealt by ``--partition`` (see :mod:`benchmarks.partitions`; P2 has dirichlet-0.1
and -0.5, shards-2 and -3). The default is dirichlet-0.1. ``knn_accuracy`` is that of the test rows, placed by
the encoder, among the training rows on the map. Trustworthiness, continuity, steadiness, cohesiveness (7
neighbours, P2 5.1) and ``npa_10`` are those of the map of all test rows, and ``records_npa_10`` is that of
the training rows. All methods use the same encoder, seed, rounds and learning rates. Each client has 10
batches in a round, and global-ne has as many as all clients together, but at most an epoch. With ``.epochs``
and for ``fedne.published``, a round uses all batches at P2's learning rates. Clients run in two actors.

``--quick`` uses 1,000 training and 500 test rows, 5 rounds, and only the overhead of the field. Clients
then run in this process, except for the edges per second: processes take longer to start than the rounds take.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.partitions import DEALINGS
from raydr.actors.backend import ray_backend
from raydr.arrays import Float32Array, FloatArray, Int64Array, IntArray
from raydr.partition import Dealing
from raydr.scenarios.running.backend import Backend, InlineBackend
from raydr.threads import cores

ACTORS = 2
NEIGHBORS = 7
REPEATS = 3
METRICS = {
    "trustworthiness_7": "trustworthiness",
    "continuity_7": "continuity",
    "steadiness": "steadiness",
    "cohesiveness": "cohesiveness",
    "npa_10": "npa_10",
}
"""Metrics of the test rows' map: names in the registry, and names here."""


@dataclass(frozen=True)
class Rows:
    """Training and test rows (rows, features) float32 with their classes, and the partition of the training rows."""

    train: Float32Array
    train_labels: Int64Array
    test: Float32Array
    test_labels: Int64Array
    dealing: Dealing = DEALINGS["dirichlet-0.1"]


@dataclass(frozen=True)
class Setting:
    """One line of the comparison: a method and its clients."""

    kind: str
    options: dict[str, Any] = field(default_factory=dict)
    clients: int = 20
    participation: float = 1.0


STEPS = 10
FEW: dict[str, Any] = {
    "local_steps": STEPS,
    "local_epochs": 4,
    "learning_rate": 3e-3,
    "schedule": "cosine",
}
EPOCHS: dict[str, Any] = {
    "local_steps": None,
    "local_epochs": 1,
    "learning_rate": 1e-3,
    "schedule": "steps",
}
PUBLISHED: dict[str, Any] = EPOCHS | {"preset": "published"}
SETTINGS: dict[str, Setting] = {
    "fedne": Setting("fedne"),
    "fedavg-ne": Setting("fedavg-ne"),
    "fedprox-ne": Setting("fedprox-ne"),
    "global-ne": Setting("global-ne", {"local_steps": 20 * STEPS, "local_epochs": 1}),
    "landmark-ne": Setting("landmark-ne", {"local_steps": 20 * STEPS, "local_epochs": 1}),
    "local-ne": Setting("local-ne"),
    "fedavg-ne.epochs": Setting("fedavg-ne", EPOCHS),
    "global-ne.epochs": Setting("global-ne", EPOCHS),
    "fedne.random-start": Setting("fedne", {"start": "random"}),
    "fedne.prototypes": Setting("fedne", {"prototypes": 10, "learning_rate": 1.5e-3}),
    "fedne.published": Setting("fedne", PUBLISHED),
    "fedne.mlp": Setting("fedne", {"surrogate": "mlp"}),
    "fedne.no-control-variates": Setting("fedne", {"control_variates": False}),
    "fedne.no-mixing": Setting("fedne", {"mixing": None}),
    "fedne.no-surrogate": Setting("fedne", {"surrogate": "none"}),
    "fedne.fedavgm": Setting("fedne", {"server_optimizer": "fedavgm", "server_learning_rate": 0.3}),
    "fedne.fedadam": Setting("fedne", {"server_optimizer": "fedadam", "server_learning_rate": 0.003}),
    "fedne.100-clients": Setting("fedne", clients=100),
    "fedavg-ne.100-clients": Setting("fedavg-ne", clients=100),
    "fedne.10-percent": Setting("fedne", clients=100, participation=0.1),
    "fedavg-ne.10-percent": Setting("fedavg-ne", clients=100, participation=0.1),
}
QUICK = ("fedne", "fedavg-ne", "global-ne")


def rows_of(name: str, train: int | None, test: int | None) -> Rows:
    """Return training and test rows of a data set, with a seeded sub-sample if fewer are wanted."""
    content = np.load(Path(os.environ["RAYDR_DATA"]) / f"{name}.npz", allow_pickle=False)
    random = np.random.default_rng(0)
    labels = content["y"].astype(np.int64)
    split = content["split"] if "split" in content else (random.random(len(labels)) < 0.15).astype(np.int64)
    parts = []
    for part, count in ((0, train), (1, test)):
        chosen = random.permutation(np.flatnonzero(split == part))[:count]
        parts += [content["X"][chosen].astype(np.float32), labels[chosen]]
    return Rows(*parts)


def shares(rows: Rows, clients: int) -> list[Int64Array]:
    """Return the training rows of each client."""
    from raydr.data import Table

    labels, features = rows.train_labels, tuple(str(feature) for feature in range(rows.train.shape[1]))
    names = tuple(str(label) for label in range(labels.max() + 1))
    table = Table(
        name="training rows",
        rows=rows.train,
        features=features,
        ids=np.arange(len(labels)),
        labels=labels,
        label_names=names,
    )
    partition = rows.dealing.deal(table, clients, seed=0)
    return [partition.rows_of(client) for client in range(clients)]


def settings_of(setting: Setting, **options: Any) -> Any:
    """Return the settings of a method in the comparison."""
    from raydr.methods import METHODS

    return METHODS[setting.kind].settings(**{**FEW, **setting.options, **options})


def served(
    backend: Backend, rows: Rows, setting: Setting, seed: int = 0, **options: Any
) -> tuple[Any, list[Any], list[Int64Array]]:
    """Return the outcome, rounds and partition of one federated run."""
    from raydr.journal import Journal
    from raydr.methods.serving import Plan

    settings = settings_of(setting, **options)
    own = shares(rows, setting.clients)
    plan = Plan(
        method=setting.kind, settings=settings, scale="none", seed=seed, participation=setting.participation
    )
    journal = Journal()
    outcome = backend.serve([rows.train[part] for part in own], plan, listener=journal.tell).outcome
    return outcome, journal.rounds, own


def knn_accuracy(mapped: FloatArray, labels: IntArray, placed: FloatArray, new_labels: IntArray) -> float:
    """Return the share of new rows with the majority class of their 7 nearest rows on the map (P2 5.1)."""
    from raydr.metrics import Evidence, evaluate

    evidence = Evidence(
        rows=mapped,
        embedding=mapped,
        labels=labels,
        new=Evidence(rows=placed, embedding=placed, labels=new_labels),
    )
    return evaluate(("knn_accuracy",), evidence).values["knn_accuracy"]


def judged(backend: Backend, rows: Rows, setting: Setting, rounds: int, seed: int) -> dict[str, float]:
    """Measure one method."""
    from raydr.metrics import Evidence, evaluate

    if setting.kind == "local-ne":
        return alone(rows, setting, rounds)
    started = time.perf_counter()
    outcome, round_records, own = served(backend, rows, setting, seed, rounds=rounds)
    seconds = time.perf_counter() - started
    placed = settings_of(setting).transform(outcome.model, rows.test)
    labels = rows.train_labels[np.concatenate(own)]
    figures = {
        "knn_accuracy": knn_accuracy(outcome.embedding, labels, placed, rows.test_labels),
        "round_s": statistics.median(record.seconds for record in round_records),
        "run_s": seconds,
    }
    mapped = Evidence(rows=rows.train[np.concatenate(own)], embedding=outcome.embedding)
    figures["records_npa_10"] = evaluate(("npa_10",), mapped).values["npa_10"]
    evidence = Evidence(rows=rows.test, embedding=placed, labels=rows.test_labels, grouped=len(rows.test))
    return figures | {METRICS[name]: value for name, value in evaluate(METRICS, evidence).values.items()}


def alone(rows: Rows, setting: Setting, rounds: int) -> dict[str, float]:
    """Measure LocalNE: means over clients of at least 7 rows. Each places the test rows with its own encoder."""
    from raydr.federation.streams import client_stream
    from raydr.methods.fedne.baselines import LocalNE
    from raydr.methods.fedne.encoder import Architecture, place
    from raydr.methods.fedne.pooled import epochs_on

    settings, accuracies = LocalNE(rounds=rounds, **FEW), []
    scale = np.float32(np.sqrt(rows.train.var(axis=0).mean()))
    architecture = Architecture(rows.train.shape[1], settings.widths(rows.train.shape[1]))
    for client, part in enumerate(shares(rows, setting.clients)):
        if len(part) < 7:
            continue
        inputs = rows.train[part] / scale

        def random(round: int, purpose: str, client: int = client) -> np.random.Generator:
            return client_stream(0, client, round, purpose)

        weights = [weights for weights, _ in epochs_on(inputs, settings, random)][-1]
        mapped, placed = (place(architecture, weights, table) for table in (inputs, rows.test / scale))
        accuracies.append(knn_accuracy(mapped, rows.train_labels[part], placed, rows.test_labels))
    return {"knn_accuracy": float(np.mean(accuracies))}


def overheads(
    backend: Backend, rows: Rows, clients: int, rounds: int, names: Sequence[str]
) -> dict[str, float]:
    """Measure the median seconds of a round, and the ratio to FedAvg with the same number of batches.

    ``field`` and ``mlp`` are fedne with these surrogates, with mixing and without control variates. ``fedne``
    is fedne with its defaults. Methods take turns, and each is compared with FedAvg's rounds of the same
    turn, because the speed of a machine varies.
    """
    settings = {
        "field": Setting("fedne", {"control_variates": False}, clients),
        "fedne": Setting("fedne", {}, clients),
        "mlp": Setting(
            "fedne", {"surrogate": "mlp", "surrogate_from": 0.0, "control_variates": False}, clients
        ),
    }
    variants = {"fedavg-ne": Setting("fedavg-ne", {}, clients)} | {name: settings[name] for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(REPEATS):
        for name, setting in variants.items():
            _, round_records, _ = served(backend, rows, setting, rounds=rounds)
            seconds[name].append(statistics.median(record.seconds for record in round_records[1:]))
    found = {f"round_s.{name}.{clients}": statistics.median(turns) for name, turns in seconds.items()}
    for name in [*variants][1:]:
        pairs = zip(seconds[name], seconds["fedavg-ne"], strict=True)
        found[f"overhead.{name}.{clients}"] = statistics.median(one / other for one, other in pairs) - 1.0
    return found


def plain_edges_per_second(rows: FloatArray, epochs: int) -> float:
    """Return the edges per second of a plain torch loop on pooled rows (rows, features), on all cores."""
    import torch
    from torch import nn

    from raydr.geometry.neighbors import nearest_neighbors
    from raydr.geometry.points import Points

    torch.set_num_threads(cores())
    nearest = torch.from_numpy(nearest_neighbors(Points(rows), NEIGHBORS, threads=cores()).indices)
    table = torch.from_numpy((rows - rows.mean(axis=0)) / np.float32(np.sqrt(rows.var(axis=0).mean())))
    layers: list[nn.Module] = []
    for inputs, outputs in zip((rows.shape[1], 128, 128, 128), (128, 128, 128, 2), strict=True):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    network = nn.Sequential(*layers[:-1])
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    edges = torch.stack([torch.arange(len(rows)).repeat_interleave(7), nearest.reshape(-1)], dim=1)
    started = time.perf_counter()
    for _ in range(epochs):
        for batch in edges[torch.randperm(len(edges))].split(512):  # type: ignore[no-untyped-call]
            head, tail = network(table[batch[:, 0]]), network(table[batch[:, 1]])
            others = tail[torch.randint(len(batch), (len(batch), 5))]
            near = ((head - tail) ** 2).sum(dim=1)
            far = ((head[:, None] - others) ** 2).sum(dim=2)
            loss = torch.log1p(near).mean() + 5 * torch.log1p(1 / (far + 1e-3)).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return epochs * len(edges) / (time.perf_counter() - started)


def speeds(backend: Backend, rows: Rows, rounds: int) -> dict[str, float]:
    """Measure edges per second of federated rounds and of the plain loop, in turns."""
    ours, plain = [], []
    for _ in range(REPEATS):
        _, round_records, own = served(backend, rows, Setting("fedavg-ne", EPOCHS), rounds=rounds)
        edges = sum(len(part) * min(NEIGHBORS, len(part) - 1) for part in own)
        ours.append(edges / statistics.median(record.seconds for record in round_records[1:]))
        plain.append(plain_edges_per_second(rows.train, 1))
    found = {"fedavg-ne": statistics.median(ours), "plain": statistics.median(plain)}
    return {f"edges_per_s.{name}": value for name, value in found.items()} | {
        "edges_per_s.ratio": found["fedavg-ne"] / found["plain"]
    }


def ratios(figures: dict[str, float]) -> dict[str, float]:
    """Return each method's figures over those of the pooled rows' encoder, and ratios to peers."""
    found = {
        name: value / figures[central]
        for name, value in figures.items()
        for central in [f"{name.split('.')[0]}.global-ne"]
        if name.split(".")[0] in ("knn_accuracy", "records_npa_10", *METRICS.values()) and central in figures
    }
    if "edges_per_s.ratio" in figures:
        found["edges_per_s"] = figures["edges_per_s.ratio"]
    return found | {
        name.replace("overhead", "round_s"): 1.0 + value
        for name, value in figures.items()
        if name.startswith("overhead")
    }


def main() -> None:
    """Measure, and print each figure when it is known."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--clients", default="20,100,500", help="numbers of clients for the overheads, separated by commas"
    )
    parser.add_argument("--partition", choices=DEALINGS, default="dirichlet-0.1")
    parser.add_argument("--only", help=f"any of {', '.join(SETTINGS)}, speed, overhead, separated by commas")
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = rows_of(options.data, *((1_000, 500) if options.quick else (None, None)))
    rows = replace(rows, dealing=DEALINGS[options.partition])
    rounds = options.rounds or (5 if options.quick else 200)
    chosen = (
        options.only.split(",")
        if options.only
        else [*(QUICK if options.quick else SETTINGS), "speed", "overhead"]
    )
    print(
        f"{options.data} by {options.partition}, {len(rows.train):,} + {len(rows.test):,} rows, {rounds} rounds,"
        f" {cores()} cores",
        flush=True,
    )
    figures: dict[str, float] = {}

    def tell(measured: dict[str, float]) -> None:
        figures.update(measured)
        for name, value in measured.items():
            print(f"{name:<44}{value:12.4g}", flush=True)

    counts = (20,) if options.quick else tuple(map(int, options.clients.split(",")))
    with ray_backend(None, ACTORS, 3600.0) as on_ray:
        backend = InlineBackend() if options.quick else on_ray
        for name in chosen:
            if name in SETTINGS:
                found = judged(backend, rows, SETTINGS[name], rounds, options.seed)
                tell({f"{metric}.{name}": value for metric, value in found.items()})
        if "speed" in chosen:
            tell(speeds(on_ray, rows, 4))
        for count in counts if "overhead" in chosen else ():
            # With mlp, each client evaluates every other's network at every head of every batch, so it is for
            # few clients.
            variants = ["field"] if options.quick else ["field", "fedne", *(["mlp"] if count <= 20 else [])]
            tell(overheads(backend, rows, count, 4 if options.quick else 6, variants))
    if options.json:
        content = {
            "figures": figures,
            "ratios": ratios(figures),
            "rounds": rounds,
            "rows": len(rows.train),
            "data": options.data,
            "partition": options.partition,
        }
        Path(options.json).write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
