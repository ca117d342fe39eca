"""The private map over epsilon, against the pooled map of the same rows: accuracy, trustworthiness, and seconds.

    python -m benchmarks.private_map [--quick] [--rows N] [--seeds 0 1] [--datasets mnist ...] [--epsilons 0.5
    1 8]
                                     [--partitions iid one-class] [--own 0.4 0] [--relation replace-one]
                                     [--pooled]
                                     [--sampled N] [--surveyed] [--json FILE]

Ten clients run in this process in sequence, with delta 1e-5. ``ca_10`` is the accuracy of ten neighbours on
the map (70:30 split of the rows), and trustworthiness uses five. Both are for the map of all rows, as in a
run's metrics.json. ``--sampled N`` computes trustworthiness as the mean over N rows, drawn from all and
ranked against all, with ties in favour of the map, because 60,000 rows in full take minutes. ``--own 0``
places rows by the landmarks alone. The claim is checked: the benchmark stops if the releases of a line do not
match its epsilon. ``--quick`` uses digits at epsilon 1 and 8, and one seed.

``--surveyed`` compares ways to prepare raw columns, on tables of few rows with natural or Dirichlet sites:
``survey`` by the noisy survey, ``codebook`` by the least and largest number of each column, known beforehand,
``standard`` by exact means and deviations, and ``pooled``, t-SNE of the pooled rows. All maps are scored against
rows of exact means and deviations. Figures are means over the seeds.

A seed decides the rows, their owners, and all starting points. Noise comes from the clients' secrets and is
drawn again each time, so figures of the same seed differ.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.neighbors import NearestNeighbors

from benchmarks.partitions import DEALINGS
from raydr.data import load
from raydr.data.survey.raw_cells import RawColumn
from raydr.journal import Journal
from raydr.methods.private_map.server import PrivateMap
from raydr.methods.serving import Plan
from raydr.metrics import Evidence, evaluate
from raydr.privacy.accounting import Budget, composed_multiplier, gaussian_epsilon
from raydr.privacy.shares import summed_deviation
from raydr.scenarios.running.backend import InlineBackend
from raydr.threads import cores

CLIENTS, DELTA = 10, 1e-5
NAMES = ("ca_10", "trustworthiness")
EXTENT: dict[str, dict[str, Any]] = {
    "mnist": {"clip": 2550.0},
    "fashion_mnist": {"clip": 3060.0},
    "digits": {"bounds": (0.0, 16.0)},
}
"""Norms of 10 and 12, in units of the brightest grey. Rows of MNIST have a norm of 9.2 on average, and 17 at most."""


def sampled_trustworthiness(rows: Any, embedding: Any, count: int, seed: int, k: int = 5) -> float:
    """Compute trustworthiness over ``count`` rows drawn without replacement, each ranked against all rows."""
    whole = len(rows)
    drawn = np.sort(np.random.default_rng(seed).choice(whole, min(count, whole), replace=False))
    found = (
        NearestNeighbors(n_neighbors=k + 1).fit(embedding).kneighbors(embedding[drawn], return_distance=False)
    )
    # float64: squared distances of grey values are whole numbers, so they compare exactly.
    table = np.asarray(rows, np.float64)
    lengths = np.einsum("ij,ij->i", table, table)
    penalty = 0
    for start in range(0, len(drawn), 100):
        block = drawn[start : start + 100]
        distances = lengths - 2.0 * table[block] @ table.T
        distances[np.arange(len(block)), block] = np.inf
        for row, far, near in zip(block, distances, found[start : start + 100], strict=True):
            others = near[near != row][:k]
            penalty += sum(max(0, 1 + int(np.sum(far < far[other])) - k) for other in others)
    return 1.0 - penalty * 2.0 / (len(drawn) * k * (2.0 * whole - 3.0 * k - 1.0))


def landmarks_of(model: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of landmarks of a private map, and of cells, which are the landmarks if none are drawn."""
    landmarks = len(model["counts"])
    return {"landmarks": float(landmarks), "cells": float(np.ravel(model.get("cells", landmarks))[0])}


def measured(dataset: str, seed: int, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the pooled map's line if wanted, then a line for each partition, epsilon and weight of own rows."""
    table = load(source=dataset, rows=options.rows, seed=seed)
    rows, labels = table.rows, table.labels

    def scores(embedding: Any) -> dict[str, float]:
        names = NAMES[:1] if options.sampled else NAMES
        found = dict(
            evaluate(
                names, Evidence(rows=rows, embedding=embedding, labels=labels, seed=seed), threads=cores()
            ).values
        )
        if options.sampled:
            found["trustworthiness"] = sampled_trustworthiness(rows, embedding, options.sampled, seed)
        return found

    extent = EXTENT[dataset]
    if options.pooled:
        settings = PrivateMap(epsilon=1.0, **extent)
        pooled = settings.central({}, rows, seed, Journal())
        yield {"name": f"{dataset}.pooled.{seed}", **scores(pooled.embedding)}
    for kind in options.partitions:
        owners = DEALINGS[kind].deal(table, CLIENTS, seed).client_of_row
        parts = [rows[owners == client] for client in range(CLIENTS)]
        order = np.argsort(np.argsort(owners, kind="stable"), kind="stable")
        for epsilon in options.epsilons:
            for own in options.own:
                settings = PrivateMap(
                    epsilon=epsilon, own=own, delta=DELTA, relation=options.relation, **extent
                )
                started = time.perf_counter()
                served = InlineBackend().serve(
                    parts,
                    Plan(method="private-map", settings=settings, scale="none", seed=seed),
                    listener=lambda event: None,
                )
                seconds = time.perf_counter() - started
                # Against an adversary who sees only sums and knows the shares of all possible colluders.
                left = composed_multiplier(served.ledger.charges, "outsider")
                left /= summed_deviation(True, CLIENTS, Budget().colluding)
                spent = gaussian_epsilon(left, DELTA)
                if not math.isclose(spent, epsilon, rel_tol=1e-6):
                    raise SystemExit(f"the releases cost epsilon {spent}, but {epsilon} was claimed")
                yield {
                    "name": f"{dataset}.{kind}.{epsilon:g}.{own:g}.{seed}",
                    **scores(served.outcome.embedding[order]),
                    **landmarks_of(served.outcome.model),
                    "axes": float(served.outcome.model["axes"].shape[1]),
                    "s": seconds,
                }


SURVEYED = {"heart_disease": "client", "german_credit": None, "breast_cancer": None, "beijing_air": "client"}
"""Tables, and their column of natural sites if they have one."""
_MOST_ROWS, _SITES = 5000, 4
_CLIP = 1.5  # as surveyed rows have


def standard(rows: Any) -> Any:
    """Return rows with medians for gaps, and columns of mean 0 and variance 1 / columns."""
    filled = np.where(np.isnan(rows), np.nanmedian(rows, axis=0), rows).astype(np.float64)
    deviation = filled.std(axis=0)
    varying = deviation > 0
    scaled = (filled - filled.mean(axis=0)) / np.where(varying, deviation, 1.0)
    return scaled / math.sqrt(varying.sum())


def raw(rows: Any, *, known: bool) -> tuple[RawColumn, ...]:
    """Return the columns of rows, with their least and largest number if ``known``."""
    ends = np.nanmin(rows, axis=0).tolist(), np.nanmax(rows, axis=0).tolist()
    limits = zip(*ends, strict=True) if known else [(None, None)] * rows.shape[1]
    return tuple(RawColumn(str(place), place, low=low, high=high) for place, (low, high) in enumerate(limits))


def surveyed(dataset: str, seed: int, epsilons: list[float]) -> Iterator[dict[str, Any]]:
    """Yield a line for the pooled map, then a line for each epsilon and way to prepare the columns."""
    table = load(source=dataset, client=SURVEYED[dataset], cells=True, seed=seed)
    if len(table.rows) > _MOST_ROWS:
        table = load(source=dataset, client=SURVEYED[dataset], cells=True, rows=_MOST_ROWS, seed=seed)
    rows, exact = table.rows.astype(np.float64), standard(table.rows)
    dealt = table.client_keys
    owners = DEALINGS["dirichlet-0.5"].deal(table, _SITES, seed).client_of_row if dealt is None else dealt
    order = np.argsort(np.argsort(owners, kind="stable"), kind="stable")

    def scores(embedding: Any) -> dict[str, float]:
        evidence = Evidence(rows=exact, embedding=embedding, labels=table.labels, seed=seed)
        return dict(evaluate(NAMES, evidence, threads=cores()).values)

    pooled = PrivateMap(epsilon=1.0, clip=_CLIP).central({}, exact, seed, Journal())
    yield {"name": f"{dataset}.pooled", **scores(pooled.embedding)}
    ways = {"survey": (rows, False), "codebook": (rows, True), "standard": (exact, None)}
    for epsilon in epsilons:
        for way, (held, known) in ways.items():
            extent = {"clip": _CLIP} if known is None else {}
            plan = Plan(
                method="private-map",
                settings=PrivateMap(epsilon=epsilon, delta=DELTA, **extent),
                scale="none",
                seed=seed,
                cells=None if known is None else raw(rows, known=known),
            )
            parts = [held[owners == client] for client in range(int(owners.max()) + 1)]
            served = InlineBackend().serve(parts, plan, listener=lambda event: None)
            yield {
                "name": f"{dataset}.{way}.{epsilon:g}",
                **scores(served.outcome.embedding[order]),
                **landmarks_of(served.outcome.model),
                "axes": float(served.outcome.model["axes"].shape[1]),
            }


def surveyed_means(options: argparse.Namespace) -> dict[str, float]:
    """Print and return the means over the seeds of :func:`surveyed`, by name and measure."""
    found: dict[str, list[float]] = {}
    for dataset in options.datasets:
        for seed in options.seeds:
            for line in surveyed(dataset, seed, options.epsilons):
                name = line.pop("name")
                for key, value in line.items():
                    found.setdefault(f"{name}.{key}", []).append(float(value))
    for key, values in found.items():
        print(f"{key:<50}{np.mean(values):>9.4f}  from {min(values):.4f} to {max(values):.4f}", flush=True)
    return {key: float(np.mean(values)) for key, values in found.items()}


def main() -> None:
    """Measure line by line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument(
        "--datasets", nargs="+", default=["mnist", "fashion_mnist"], choices=[*EXTENT, *SURVEYED]
    )
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1.0, 8.0])
    parser.add_argument("--partitions", nargs="+", default=["iid", "one-class"], choices=DEALINGS)
    parser.add_argument("--own", type=float, nargs="+", default=[0.4])
    parser.add_argument("--relation", default="zero-out", choices=["zero-out", "replace-one"])
    parser.add_argument("--pooled", action="store_true")
    parser.add_argument("--sampled", type=int)
    parser.add_argument("--surveyed", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.quick:
        options.datasets, options.seeds, options.epsilons = ["digits"], [0], [1.0, 8.0]
    elif options.rows is None and "digits" not in options.datasets:
        options.rows = 60_000
    figures: dict[str, float] = surveyed_means(options) if options.surveyed else {}
    heads = (*NAMES, "landmarks", "cells", "axes", "s")
    print(f"{'dataset.partition.epsilon.own.seed':<40}" + "".join(f"{head[:9]:>11}" for head in heads))
    for dataset in () if options.surveyed else options.datasets:
        for seed in options.seeds:
            for line in measured(dataset, seed, options):
                name = line.pop("name")
                figures |= {f"{name}.{key}": value for key, value in line.items()}
                cells = "".join(f"{line.get(head, float('nan')):>11.4f}" for head in heads)
                print(f"{name:<40}{cells}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"figures": figures, "ratios": {}}, file, indent=2)


if __name__ == "__main__":
    main()
