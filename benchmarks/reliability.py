"""Reliable, misplaced and structureless places of maps, and what the rows next to them share.

    python -m benchmarks.reliability [--quick] [--sizes | --min-dist] [--data digits ...] [--methods fed-tsne ...]
        [--json FILE]

Each map is a whole run in this process. ``npa`` is the share of the ten nearest rows in the data that are among the ten
nearest on the map. ``label`` is the share of the ten nearest on the map with the row's label. Neither decides on a
verdict. ``moved`` is the share of unreliable places among 5 % of rows that were moved to the places of other rows.
``noise`` has 1,000 rows of 20 independent normal columns at 5 sites. Other data are of scikit-learn, or NAME.npz in
``$RAYDR_DATA``; MNIST has 2,000 random rows. ``--quick`` uses noise and Fed-UMAP. ``--sizes`` prints the
share of reliable places and NPA-10 by size of the neighbourhood instead, as means over three seeds. ``--min-dist``
prints, for Fed-UMAP and at most 1,000 rows, both by ``min_dist``, with the least and largest share of five seeds.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import raydr
from raydr.arrays import Float64Array, Int64Array
from raydr.metrics import Evidence, evaluate
from raydr.metrics.verdicts import RELIABLE
from raydr.runfolder.records import VERDICTS
from raydr.tune.neighborhood import FACTORS

DATA = ("digits", "mnist", "heart_disease", "scrna_cell_lines_pc20", "iris", "noise")
METHODS: dict[str, Callable[..., Any]] = {"fed-tsne": raydr.FedTSNE, "fed-umap": raydr.FedUMAP}
MIN_DIST = (0.0, 0.1, 0.25, 0.5, 0.99)
MOVED = 20
"""One row in this many is moved."""


def table(name: str) -> tuple[Float64Array, Int64Array, Int64Array]:
    """Return rows, labels and sites."""
    from sklearn.datasets import load_digits, load_iris

    random = np.random.default_rng(0)
    if name == "noise":
        return random.normal(size=(1000, 20)), np.zeros(1000, np.int64), random.integers(5, size=1000)
    if name in ("digits", "iris"):
        rows, labels = (load_digits if name == "digits" else load_iris)(return_X_y=True)
        return rows, labels, random.integers(3 if name == "iris" else 10, size=len(rows))
    with np.load(Path(os.environ["RAYDR_DATA"]) / f"{name}.npz", allow_pickle=False) as arrays:
        rows, labels = arrays["X"].astype(np.float64), arrays["y"]
        sites = arrays["client"] if "client" in arrays else random.integers(10, size=len(rows))
    if name == "mnist":
        some = random.choice(len(rows), 2000, replace=False)
        return rows[some] / 255.0, labels[some], sites[some]
    if name == "heart_disease":
        rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    return rows, labels, sites


def mean(values: Float64Array) -> float | None:
    """Return the mean, None of no values."""
    return round(float(values.mean()), 3) if values.size else None


def measured(name: str, method: str) -> dict[str, float | None]:
    """Return shares of verdicts of one map, and means over the rows of each."""
    rows, labels, sites = table(name)
    estimator = METHODS[method](
        metrics=("npa_10",), scale="none", federation="inline", landmarks=min(128, len(rows) // 2)
    )
    embedding = estimator.fit_transform(rows, sites=[f"{site:02d}" for site in sites])
    evidence = Evidence(rows=rows, embedding=embedding, sites=sites)
    scores = evaluate(["npa_10", "reliable"], evidence)
    assert scores.reliability is not None
    verdicts, kept = scores.reliability.verdicts, scores.faithfulness["npa_10"]
    squared = ((embedding[:, None] - embedding) ** 2).sum(axis=2)
    np.fill_diagonal(squared, np.inf)
    same = (labels[np.argsort(squared, axis=1)[:, :10]] == labels[:, None]).mean(axis=1)
    line: dict[str, float | None] = {
        verdict: mean((verdicts == place).astype(float)) for place, verdict in enumerate(VERDICTS)
    }
    for title, chosen in (("reliable", verdicts == RELIABLE), ("unreliable", verdicts != RELIABLE)):
        line[f"npa, {title}"] = mean(kept[chosen])
        line[f"label, {title}"] = None if name == "noise" else mean(same[chosen])
    random = np.random.default_rng(1)
    moved, there = random.choice(len(rows), (2, len(rows) // MOVED), replace=False)
    shuffled = embedding.copy()
    shuffled[moved] = embedding[there]
    after = evaluate(["reliable"], Evidence(rows=rows, embedding=shuffled, sites=sites)).reliability
    assert after is not None
    return line | {"moved": mean((after.verdicts[moved] != RELIABLE).astype(float))}


def by_size(name: str, method: str) -> dict[str, float]:
    """Return the share of reliable places and NPA-10 for each size of the neighbourhood, means over three seeds."""
    rows, _, sites = table(name)
    key, own = ("perplexity", 30) if method == "fed-tsne" else ("neighbors", 15)
    line = {}
    for size in (round(factor * own) for factor in FACTORS):
        found = [
            METHODS[method](
                metrics=("reliable", "npa_10"),
                scale="none",
                federation="inline",
                landmarks=min(128, len(rows) // 2),
                random_state=seed,
                **{key: size},
            )
            .fit(rows, sites=[f"{site:02d}" for site in sites])
            .metrics_["federated"]
            for seed in range(3)
        ]
        for metric in ("reliable", "npa_10"):
            line[f"{size}.{metric}"] = round(float(np.mean([each[metric] for each in found])), 3)
    return line


def by_min_dist(name: str, method: str) -> dict[str, float]:
    """Return the share of reliable places and NPA-10 for each ``min_dist``, over five seeds."""
    rows, _, sites = table(name)
    some = np.sort(np.random.default_rng(0).permutation(len(rows))[:1000])
    line = {}
    for distance in MIN_DIST:
        found = [
            METHODS[method](
                metrics=("reliable", "npa_10"),
                scale="none",
                landmarks=min(128, len(some) // 2),
                random_state=seed,
                min_dist=distance,
            )
            .fit(rows[some], sites=[f"{site:02d}" for site in sites[some]])
            .metrics_["federated"]
            for seed in range(5)
        ]
        shares = [each["reliable"] for each in found]
        line[f"{distance:g}.reliable"] = float(np.mean(shares))
        line[f"{distance:g}.least"], line[f"{distance:g}.largest"] = min(shares), max(shares)
        line[f"{distance:g}.npa_10"] = float(np.mean([each["npa_10"] for each in found]))
    return {key: round(value, 3) for key, value in line.items()}


def main() -> None:
    """Print a line of the table for each map."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sizes", action="store_true")
    parser.add_argument("--min-dist", action="store_true")
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    data, methods = (("noise",), ["fed-umap"]) if options.quick else (options.data, options.methods)
    figures = by_min_dist if options.min_dist else by_size if options.sizes else measured
    methods = ["fed-umap"] if options.min_dist else methods
    found: dict[str, float] = {}
    for name in data:
        for method in methods:
            line: dict[str, float | None] = {**figures(name, method)}
            found |= {f"{name}.{method}.{key}": value for key, value in line.items() if value is not None}
            print(f"| {name} | `{method}` | " + " | ".join(map(str, line.values())) + " |", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"figures": found, "ratios": {}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
