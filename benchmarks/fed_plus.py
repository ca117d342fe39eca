"""P1's tables 1 and 2 and more: Fed-tSNE(+) and Fed-UMAP(+) against the pooled map, on MNIST and Fashion-MNIST.

    python -m benchmarks.fed_plus [--quick] [--rows N] [--seeds 0 1 2] [--datasets ...] [--methods ...]
                                  [--partitions ...] [--clients 5 100 1000] [--noises ...] [--json FILE]

There is one pooled map for each data set, method and seed, and federated maps of the same rows at 10 clients,
IID or one class each, with 500 landmarks learnt in 50 rounds. They run without noise, with noise of level 1
on data and on the gradient (P1 5.1 to 5.3), and, as in P1, with the Nystrom estimate of distances at rank
100. All metrics are computed, and each result is a ratio to the pooled map. ``landmarks`` of ``principal``
need no rounds. The first figure of each line is the minimum of all metrics except NPA-1, which also falls
most in P1. ``--quick`` runs 2,000 rows of MNIST, t-SNE, and a tenth of the iterations.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.partitions import DEALINGS
from raydr.data import load
from raydr.journal import Journal
from raydr.methods.landmarks.maps import FedTSNE, FedUMAP, LandmarkMap
from raydr.methods.serving import Plan
from raydr.metrics import METRICS, Evidence, evaluate, row_graph
from raydr.privacy import Coverage
from raydr.privacy.gaussian import GaussianNoise
from raydr.scenarios.running.backend import InlineBackend
from raydr.threads import cores

CLIENTS, LANDMARKS, ROUNDS, RANK = 10, 500, 50, 100
NOISES = ("none", "data", "gradient", "nystrom", "principal")
NOT_OF_A_PART = {"distance_error", "f_score", "steadiness", "cohesiveness"}
"""Metrics that the pooled map does not have, or that use a sample."""


def settings_of(method: str, noise: str, quick: bool) -> LandmarkMap:
    """Return the settings of a federated map."""
    drawn: dict[str, Any] = {}
    if quick:
        drawn = {"early_iterations": 25, "iterations": 50} if method == "fed-tsne" else {"epochs": 20}
    if noise != "principal":
        drawn["rounds"] = 5 if quick else ROUNDS
    if noise == "nystrom":
        drawn |= {"estimator": "nystrom", "rank": RANK}
    kind = FedTSNE if method == "fed-tsne" else FedUMAP
    return kind(landmarks=LANDMARKS, **drawn)


def measured(dataset: str, method: str, seed: int, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield one line of results for each partition and noise, with the pooled map's scores."""
    table = load(source=dataset, rows=options.rows, seed=seed)
    rows, labels = table.rows, table.labels
    names = [name for name, metric in METRICS.items() if "recovered" not in metric.needs]
    names = [name for name in names if name not in NOT_OF_A_PART and "clusters" not in METRICS[name].needs]
    graph = row_graph(rows, threads=cores())

    def scores(embedding: Any) -> dict[str, float]:
        evidence = Evidence(rows=rows, embedding=embedding, labels=labels, seed=seed, row_neighbors=graph)
        return evaluate(names, evidence, threads=cores()).values

    settings = settings_of(method, "none", options.quick)
    pooled = scores(settings.central({}, rows, seed, Journal()).embedding)
    yield {
        "dataset": dataset,
        "method": method,
        "seed": seed,
        "partition": "pooled",
        "noise": "",
        "scores": pooled,
    }
    deals = [(kind, count) for kind in options.partitions for count in options.clients]
    for kind, clients in deals:
        dealt = DEALINGS[kind].deal(table, clients, seed)
        parts = [rows[dealt.client_of_row == client] for client in range(len(dealt.names))]
        order = np.argsort(np.argsort(dealt.client_of_row, kind="stable"), kind="stable")
        for noise in options.noises:
            on: Any = noise
            coverage = Coverage(GaussianNoise(on=on, level=1.0)) if noise in ("data", "gradient") else None
            started = time.perf_counter()
            served = InlineBackend().serve(
                parts,
                Plan(
                    method=method,
                    settings=settings_of(method, noise, options.quick),
                    scale="none",
                    seed=seed,
                    coverage=coverage,
                ),
                listener=lambda event: None,
            )
            found = scores(served.outcome.embedding[order])
            yield {
                "dataset": dataset,
                "method": method,
                "seed": seed,
                "partition": kind if clients == CLIENTS else f"{kind}-{clients}",
                "noise": noise,
                "s": time.perf_counter() - started,
                "scores": found,
                "ratios": {name: found[name] / pooled[name] for name in names if name in found},
            }


def main() -> None:
    """Measure line by line, and print a table of ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--datasets", nargs="+", default=["mnist", "fashion_mnist"])
    parser.add_argument("--methods", nargs="+", default=["fed-tsne", "fed-umap"])
    parser.add_argument("--partitions", nargs="+", default=["iid", "one-class"], choices=DEALINGS)
    parser.add_argument("--clients", type=int, nargs="+", default=[CLIENTS])
    parser.add_argument("--noises", nargs="+", default=list(NOISES), choices=NOISES)
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.datasets, options.methods = [0], ["mnist"], ["fed-tsne"]
    options.rows = options.rows or (2_000 if options.quick else 40_000)
    lines: list[dict[str, Any]] = []
    heads = ("least", "npa_1", "npa_10", "npa_50", "ca_1", "ca_10", "nmi", "sc", "trustworthiness")
    print(f"{'':<46}" + "".join(f"{head[:9]:>10}" for head in heads))
    for dataset in options.datasets:
        for method in options.methods:
            for seed in options.seeds:
                for line in measured(dataset, method, seed, options):
                    lines.append(line)
                    where = f"{dataset} {method} {seed} {line['partition']} {line['noise']}"
                    ratios = line.get("ratios")
                    if ratios is None:
                        shown = {name: line["scores"].get(name, float("nan")) for name in heads[1:]}
                        shown["least"] = float("nan")
                    else:
                        least = min(value for name, value in ratios.items() if name != "npa_1")
                        shown = ratios | {"least": least}
                    cells = "".join(f"{shown.get(head, float('nan')):>10.4f}" for head in heads)
                    print(f"{where:<46}{cells}", flush=True)
                    if options.json:
                        write(options.json, lines)


def write(path: str, lines: list[dict[str, Any]]) -> None:
    """Write the figures and the mean ratio of every metric over seeds."""
    figures: dict[str, float] = {}
    ratios: dict[str, list[float]] = {}
    for line in lines:
        where = f"{line['dataset']}.{line['method']}.{line['partition']}.{line['noise']}".rstrip(".")
        for name, value in line["scores"].items():
            figures[f"{where}.{line['seed']}.{name}"] = value
        for name, value in line.get("ratios", {}).items():
            ratios.setdefault(f"{where}.{name}", []).append(value)
    content = {
        "figures": figures,
        "ratios": {name: statistics.fmean(values) for name, values in ratios.items()},
    }
    with open(path, "w") as file:
        json.dump(content, file, indent=2)


if __name__ == "__main__":
    main()
