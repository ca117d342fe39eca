"""Rows near a fracture of maps: by perplexity, and what they keep of their neighbours.

    python -m benchmarks.fractures [--quick] [--data digits ...] [--json FILE]

The first table is t-SNE of 500 rows of a mixture of five normal clusters in the plane, as in LOO-map. Centres are drawn
from a square of side 12, for five mixtures. ``share`` is the mean share of rows near a fracture, ``largest`` the mean
of the 5 % largest singularities, in units of the median. The second table has maps by t-SNE and UMAP with raydr's
defaults. ``npa`` is ``npa_10``, and ``again`` the share of ten neighbours on the map that a map from a random start
keeps. Neither decides which rows are near a fracture. MNIST has 2,000 random rows, and noise 600 rows of 10 normal
columns. ``--quick`` has one mixture, and noise alone.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import numpy as np

from raydr.arrays import Float64Array
from raydr.embedding import TSNE, UMAP, principal_components
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points
from raydr.metrics.neighborhood import shared_neighbors
from raydr.metrics.singularity import NEAR, singularities

DATA = ("digits", "mnist", "heart_disease", "scrna_cell_lines_pc20", "noise")
PERPLEXITIES = (5, 15, 30, 50, 75)


def mixture(seed: int, rows: int = 500, clusters: int = 5) -> Float64Array:
    """Return rows of normal clusters in the plane, with centres in a square of side 12."""
    random = np.random.default_rng(seed)
    centres = random.uniform(-6.0, 6.0, (clusters, 2))
    return centres[random.integers(clusters, size=rows)] + random.normal(size=(rows, 2))


def table(name: str) -> Float64Array:
    """Return the rows of a table."""
    from sklearn.datasets import load_digits

    random = np.random.default_rng(0)
    if name == "noise":
        return np.asarray(random.normal(size=(600, 10)))
    if name == "digits":
        return np.asarray(load_digits().data)
    with np.load(Path(os.environ["RAYDR_DATA"]) / f"{name}.npz", allow_pickle=False) as arrays:
        rows = arrays["X"].astype(np.float64)
    if name == "mnist":
        rows = rows[random.choice(len(rows), 2000, replace=False)] / 255.0
    if name == "heart_disease":
        rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    return np.asarray(rows, np.float64)


def drawn(rows: Float64Array, embedder: TSNE | UMAP, start: Float64Array, seed: int) -> Float64Array:
    """Return the map of rows from a start."""
    graph = nearest_neighbors(Points(rows), embedder.neighbors_needed(len(rows)))
    return np.asarray(embedder.embed(graph, start, seed=seed), np.float64)


def kept(one: Float64Array, other: Float64Array) -> Float64Array:
    """Return the share of each row's ten nearest in one table that are among its ten nearest in the other."""
    near, found = (nearest_neighbors(Points(each), 10).indices for each in (one, other))
    return shared_neighbors(near, found) / 10


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures: dict[str, float] = {}
    print("| perplexity | share | largest |\n| --- | --- | --- |")
    for perplexity in PERPLEXITIES:
        shares, largest = [], []
        for seed in range(1 if options.quick else 5):
            rows, tsne = mixture(seed), TSNE(perplexity=perplexity)
            found = singularities(Points(rows), drawn(rows, tsne, principal_components(rows), 0), tsne)
            shares.append((found >= NEAR).mean())
            largest.append(np.sort(found)[-len(found) // 20 :].mean())
        line = {"share": float(np.mean(shares)), "largest": float(np.mean(largest))}
        figures |= {f"mixture.{perplexity}.{key}": round(value, 3) for key, value in line.items()}
        print(f"| {perplexity} | {line['share']:.3f} | {line['largest']:.3f} |", flush=True)
    print("\n| data | embedder | share | npa, near | npa, others | again, near | again, others |")
    for name in ("noise",) if options.quick else options.data:
        rows = table(name)
        for embedder in (TSNE(), UMAP()):
            places = drawn(rows, embedder, principal_components(rows), 0)
            random = np.random.default_rng(1).normal(size=(len(rows), 2))
            near = singularities(Points(rows), places, embedder) >= NEAR
            line = {"share": float(near.mean())}
            for title, values in (
                ("npa", kept(rows, places)),
                ("again", kept(places, drawn(rows, embedder, random, 1))),
            ):
                line[f"{title}, near"] = float(values[near].mean()) if near.any() else float("nan")
                line[f"{title}, others"] = float(values[~near].mean())
            figures |= {f"{name}.{embedder.kind}.{key}": round(value, 3) for key, value in line.items()}
            print(
                f"| {name} | {embedder.kind} | "
                + " | ".join(f"{value:.3f}" for value in line.values())
                + " |",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps({"figures": figures, "ratios": {}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
