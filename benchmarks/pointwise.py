"""Pointwise SENSE with few anchors: expected distances, one common direction, and P3's iteration.

    python -m benchmarks.pointwise [--quick] [--data digits ...] [--sources sample random] [--anchors N ...]
                                   [--seeds N] [--json FILE]

Up to 1,000 rows, one to a client, with full visibility. German credit, mice protein and heart disease are standardised.
``expected`` is raydr's closed form, with the cosine between residuals expected from left-out anchors. ``common`` has
the same points, with all residuals in one direction. ``smacof`` is P3's iteration (11) from random points, up to 300
steps. Each prints the F-score of the ten nearest neighbours, and the relative error of distances, as means over seeds,
which draw the rows, the anchors and the start. Source ``spanning`` chooses anchors among four times as many rows.
``--anchors`` is 5, 10, 20, 50 and one less than the features by default. ``--quick`` has the digits alone, with sampled
anchors and one seed.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sense import completed_geometry
from raydr.arrays import Float64Array
from raydr.methods.sense.anchors import CANDIDATES

ROWS = 1_000
SOURCES = ("sample", "random", "spanning")
DATA = ("digits", "mnist", "breastmnist", "german_credit", "mice_protein", "heart_disease")
STANDARDISED = ("german_credit", "mice_protein", "heart_disease")


def table(name: str) -> Float64Array:
    """Return the rows of a table, without constant columns."""
    if name == "digits":
        from sklearn.datasets import load_digits

        rows = load_digits().data
    else:
        with np.load(Path(os.environ["RAYDR_DATA"]) / f"{name}.npz", allow_pickle=False) as arrays:
            found = arrays["X"]
        rows = found.reshape(len(found), -1).astype(np.float64)
    rows = rows[:, np.ptp(rows, axis=0) > 0]
    if name in STANDARDISED:
        rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    return np.asarray(rows)


def measured(rows: Float64Array, geometry: Any) -> tuple[float, float]:
    """Return the F-score and the distance error of a recovered geometry."""
    from raydr.metrics import Evidence, evaluate

    evidence = Evidence(rows=rows, embedding=rows[:, :2], labels=None, recovered=geometry, seed=0)
    values = evaluate(["f_score", "distance_error"], evidence).values
    return values["f_score"], values["distance_error"]


def solved(rows: Float64Array, public: Float64Array, anchors: int, source: str) -> dict[str, Any]:
    """Return the geometries of the three ways."""
    from raydr.geometry.points import Points
    from raydr.methods.sense.server import SENSE

    alone = np.arange(len(rows))
    settings = {"regime": "pointwise", "anchors": anchors, "anchor_source": source}
    known, _ = completed_geometry(rows, alone, public, SENSE(**settings))
    iterated, _ = completed_geometry(rows, alone, public, SENSE(**settings, solver="smacof"))
    return {"expected": known.geometry, "common": Points(known.points), "smacof": iterated.geometry}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--sources", nargs="+", choices=SOURCES, default=SOURCES[:2])
    parser.add_argument("--anchors", nargs="+", type=int)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.data, options.sources, options.seeds = ("digits",), ("sample",), 1
    figures: dict[str, float] = {}
    print("| data | anchors | from | expected | common direction | smacof |\n|" + " --- |" * 6)
    for name in options.data:
        everything = table(name)
        features = everything.shape[1]
        for anchors in sorted(options.anchors or {5, 10, 20, 50, features - 1}):
            if anchors >= features or anchors > len(everything) // 3:
                continue
            for source in options.sources:
                found: dict[str, list[tuple[float, float]]] = {}
                for seed in range(options.seeds):
                    chosen = everything[np.random.default_rng(seed).permutation(len(everything))]
                    apart = anchors * (CANDIDATES if source == "spanning" else 1)
                    rows, public = chosen[apart : apart + ROWS], chosen[:apart]
                    for way, geometry in solved(rows, public, anchors, source).items():
                        found.setdefault(way, []).append(measured(rows, geometry))
                cells = []
                for way, values in found.items():
                    score, error = np.mean(values, axis=0)
                    figures[f"{name}.{anchors}.{source}.{way}.f_score"] = float(score)
                    figures[f"{name}.{anchors}.{source}.{way}.distance_error"] = float(error)
                    cells.append(f"{score:.3f}, {error:.3f}")
                print(f"| {name} | {anchors} | {source} | " + " | ".join(cells) + " |", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"figures": figures, "ratios": {}}, indent=2) + "\n")


if __name__ == "__main__":
    main()
