"""New rows on finished maps: their accuracy against that of the mapped rows, for every method that can place them.

    python -m benchmarks.new_rows [--quick] [--datasets digits mnist] [--methods fed-tsne ...] [--rows N]
    [--held-out N]
                                  [--seeds 0 1] [--k 10] [--json FILE]

Ten clients by Dirichlet 0.5 run in this process, with each method's defaults. digits is used in full with a
fifth held out, and MNIST with 10,000 rows and 5,000 held out. ``own`` is the share of mapped rows with the
majority class of their k nearest other rows on the map. ``new`` is the same for the held-out rows by the
mapped rows, after ``raydr transform`` places them. ``apart`` is the difference. ``data own`` and ``data new``
are the same by neighbours in the data: they show how much harder the held-out rows are. ``s`` is the seconds
for a thousand new rows. ``--quick`` uses 900 rows of digits and four methods, and trains FedNE for 10
rounds.

``--novel 9`` asks instead whether rows of a class that no client has are found novel. Rows of that class and a
fifth of the others are held out. ``false`` is the share of the fifth that is called novel at p of at most 0.05,
``class`` that of the class. ``x 10`` is the share of ten times the fifth, and ``pooled`` that of the class if all
rows were in one place, by the distance to the nearest row.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

import raydr
from raydr.data import Table, hold_out, load
from raydr.methods.novelty import NOVEL
from raydr.scenarios.afterwards.transforming import place

FEW = ("fed-tsne", "fed-umap", "sense", "fedne")
METHODS: dict[str, dict[str, Any]] = {
    "fed-tsne": {"kind": "fed-tsne"},
    "fed-umap": {"kind": "fed-umap"},
    "fed-spectral": {"kind": "fed-spectral", "clusters": 10},
    "sense": {"kind": "sense", "anchor_source": "random"},
    "sense-umap": {"kind": "sense", "anchor_source": "random", "embedder": "umap"},
    "sense-phate": {"kind": "sense", "anchor_source": "random", "embedder": "phate"},
    "sense-cne": {"kind": "sense", "anchor_source": "random", "embedder": "cne"},
    "fedne": {"kind": "fedne"},
    "fedavg-ne": {"kind": "fedavg-ne"},
    "landmark-ne": {"kind": "landmark-ne"},
    "private-map": {"kind": "private-map", "epsilon": 8.0},
    "fed-pca": {"kind": "fed-pca"},
    "dsne": {"kind": "dsne"},
}
ABLE: dict[str, dict[str, Any]] = {
    "fed-tsne": {},
    "fed-umap": {},
    "fed-spectral": {},
    "sense": {},
    "landmark-ne": {},
    "fedne": {"rounds": 2},
    "fedavg-ne": {"rounds": 2},
    "fed-pca": {},
    "dsne": {"early_iterations": 5, "iterations": 5},
}
"""Methods that tell how novel rows are, with settings that save time and do not change the novelty."""
EXTENT: dict[str, dict[str, Any]] = {"digits": {"bounds": [0, 16]}, "mnist": {"clip": 2550.0}}
"""Bounds of the values for the private map."""


def accuracy(points: Any, labels: Any, new: Any, new_labels: Any, k: int) -> float:
    """Return the accuracy on new points, by the ``k`` nearest points."""
    return float(KNeighborsClassifier(k).fit(points, labels).score(new, new_labels))


def own_accuracy(points: Any, labels: Any, k: int) -> float:
    """Return the accuracy on points, by the ``k`` nearest others.

    Ties between classes are broken as in scikit-learn.
    """
    near = NearestNeighbors(n_neighbors=k).fit(points).kneighbors(return_distance=False)
    votes = np.apply_along_axis(np.bincount, 1, labels[near], minlength=int(labels.max()) + 1)
    return float((votes.argmax(axis=1) == labels).mean())


def measured(dataset: str, method: str, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """Measure one line."""
    total, held = (None, 0.2) if dataset == "digits" else (options.rows + options.held_out, options.held_out)
    if options.quick:
        total = 900
    settings = METHODS[method] | (EXTENT[dataset] if method == "private-map" else {})
    if options.quick and method == "fedne":
        settings |= {"rounds": 10}
    data: dict[str, Any] = {"source": dataset, "holdout": held}
    if total is not None:
        data["rows"] = total
    content = {
        "name": method,
        "seed": seed,
        "data": data,
        "clients": {"count": 10, "partition": {"kind": "dirichlet", "alpha": 0.5}},
        "method": settings,
        "metrics": [],
        "runtime": {"federation": "inline", "checkpoint_every": 0},
    }
    table = load(source=dataset, seed=seed)
    mapped, new = hold_out(table, held, total, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        run = raydr.run(content, out=Path(folder) / "run")
        columns = pq.read_table(run.folder / "embedding.parquet")
        points = run.embedding
        started = time.perf_counter()
        placed = place(run.folder, new).places
        seconds = time.perf_counter() - started
    labels, rows = _of(mapped, columns["row"].to_numpy())
    own = own_accuracy(points, labels, options.k)
    later = accuracy(points, labels, placed, new.labels, options.k)
    return {
        "own": own,
        "new": later,
        "apart": later - own,
        "data own": own_accuracy(rows, labels, options.k),
        "data new": accuracy(rows, labels, new.rows, new.labels, options.k),
        "s": 1e3 * seconds / len(new.rows),
    }


def novelty(
    dataset: str, method: str, novel: int, seed: int, options: argparse.Namespace
) -> dict[str, float]:
    """Measure how many rows of a class are called novel on a map without it."""
    table = load(source=dataset, seed=seed, rows=None if dataset == "digits" else options.rows)
    labels = np.array([int(table.label_names[code]) for code in table.labels])  # type: ignore[union-attr]
    known = np.random.default_rng(seed).permutation(np.flatnonzero(labels != novel))
    held, mapped = np.sort(known[: len(known) // 5]), np.sort(known[len(known) // 5 :])
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/mapped.npz", X=table.rows[mapped])
        content = {
            "name": method,
            "seed": seed,
            "data": {"path": f"{folder}/mapped.npz"},
            "clients": {"count": 10},
            "method": METHODS[method] | ABLE[method],
            "metrics": [],
            "compare": [],
            "runtime": {"federation": "inline", "checkpoint_every": 0},
        }
        run = raydr.run(content, out=Path(folder) / "run")

        def called(rows: Any) -> float:
            new = Table(name="new", rows=rows, ids=np.arange(len(rows)), features=table.features)
            found = place(run.folder, new).novelty
            assert found is not None
            return float((found <= NOVEL).mean())

        figures = {
            "false": called(table.rows[held]),
            "class": called(table.rows[labels == novel]),
            "x 10": called(10.0 * table.rows[held]),
        }
    near = NearestNeighbors(n_neighbors=1).fit(table.rows[mapped])
    usual, apart = (near.kneighbors(table.rows[which])[0] for which in (held, labels == novel))
    return figures | {"pooled": float((apart > np.quantile(usual, 1.0 - NOVEL)).mean())}


def _of(table: Table, ids: Any) -> tuple[Any, Any]:
    """Return the labels and rows of these identities."""
    order = np.argsort(table.ids)
    found = order[np.searchsorted(table.ids, ids, sorter=order)]
    labels = np.zeros(0) if table.labels is None else table.labels
    return labels[found], table.rows[found]


def main() -> None:
    """Measure line by line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--datasets", nargs="+", default=["digits", "mnist"], choices=["digits", "mnist"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--held-out", type=int, default=5_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--novel", type=int, nargs="+", metavar="CLASS")
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.quick:
        options.datasets, options.methods, options.seeds = ["digits"], list(FEW), [0]
    figures: dict[str, float] = {}
    if options.novel is not None:
        print(f"{'dataset.method.class.seed':<28}{'false':>10}{'class':>10}{'x 10':>10}{'pooled':>10}")
        able = [name for name in options.methods if name in ABLE]
        for dataset, method, novel, seed in product(options.datasets, able, options.novel, options.seeds):
            found = novelty(dataset, method, novel, seed, options)
            name = f"novel.{dataset}.{method}.{novel}.{seed}"
            figures |= {f"{name}.{key}": value for key, value in found.items()}
            print(f"{name[6:]:<28}" + "".join(f"{value:>10.3f}" for value in found.values()), flush=True)
        _write(options.json, figures)
        return
    heads = ("own", "new", "apart", "data own", "data new", "s")
    print(f"{'dataset.method.seed':<28}" + "".join(f"{head:>10}" for head in heads))
    for dataset in options.datasets:
        for method in options.methods:
            for seed in options.seeds:
                line = measured(dataset, method, seed, options)
                name = f"{dataset}.{method}.{seed}"
                figures |= {f"{name}.{key}": value for key, value in line.items()}
                print(f"{name:<28}" + "".join(f"{line[head]:>10.4f}" for head in heads), flush=True)
    _write(options.json, figures)


def _write(path: str | None, figures: dict[str, float]) -> None:
    if path:
        Path(path).write_text(json.dumps({"figures": figures, "ratios": {}}, indent=2))


if __name__ == "__main__":
    main()
