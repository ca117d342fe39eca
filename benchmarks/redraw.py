"""How far rows move if a site joins or leaves, with and without the earlier map as a prior.

    python -m benchmarks.redraw [--quick] [--data digits ...] [--methods fed-tsne ...] [--json FILE]

Each run is a whole run in this process, with the default settings and seed 0. ``digits`` has 10 clients with random
rows, and the last one joins. ``digits, 9`` has 9 clients without nines, and the nines join. ``heart`` has the hospitals
of heart_disease.csv in ``$RAYDR_DATA``, and the last one joins. Distances are in units of the earlier map's radius,
after the best similarity; ``shared`` is the share of the 10 nearest rows on the map that stay. ``no prior`` is the same
run without the prior, and a map after a site left has none. FedNE has 50 rounds. ``--quick`` uses heart and
Fed-UMAP.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import raydr
from raydr.metrics.displacement import displacement
from raydr.runfolder import read_run

DATA = ("digits", "digits, 9", "heart")
METHODS: dict[str, dict[str, Any]] = {
    "fed-tsne": {},
    "fed-umap": {},
    "fed-spectral": {"clusters": 10},
    "sense": {},
    "fedne": {"rounds": 50},
    "landmark-ne": {},
    "global-ne": {},
}
METRICS = ["npa_10", "trustworthiness_10"]


def tables(name: str, folder: Path) -> tuple[Path, Path]:
    """Write the table of the first sites, and the file of the site that joins."""
    if name == "heart":
        with (Path(os.environ["RAYDR_DATA"]) / "heart_disease.csv").open(newline="") as file:
            header, *rows = csv.reader(file)
        rows = [[row[0], row[-1], *(cell or "nan" for cell in row[1:-1])] for row in rows]
        columns, last = ["site", "label", *header[1:-1]], max(row[0] for row in rows)
    else:
        from sklearn.datasets import load_digits

        values, labels = load_digits(return_X_y=True)
        sites = np.random.default_rng(0).integers(10, size=len(values)).astype(str)
        if name == "digits, 9":
            sites = np.where(labels == 9, "9", np.where(sites == "9", "8", sites))
        rows = [
            [site, str(label), *map(str, row)] for site, label, row in zip(sites, labels, values, strict=True)
        ]
        columns, last = ["site", "label", *(f"pixel{column}" for column in range(values.shape[1]))], "9"
    files = folder / "first.csv", folder / "last.csv"
    for path, joins in zip(files, (False, True), strict=True):
        with path.open("w", newline="") as opened:
            writer = csv.writer(opened)
            writer.writerow(columns)
            writer.writerows(row for row in rows if (row[0] == last) is joins)
    return files


def measured(name: str, method: str) -> dict[str, float]:
    """Return displacements and metrics of the map with the site, with and without the prior."""
    with tempfile.TemporaryDirectory() as place:
        first, last = tables(name, Path(place))
        scenario = {
            "name": "redraw",
            "data": {
                "path": str(first),
                "label": "label",
                "missing": "median" if name == "heart" else "error",
                "scale": "standard" if name == "heart" else "none",
            },
            "clients": {"partition": {"kind": "by-column", "column": "site"}},
            "method": {"kind": method} | METHODS[method],
            "runtime": {"federation": "inline"},
            "metrics": METRICS,
        }
        if name == "heart" and method == "fed-spectral":
            scenario["method"] = {"kind": method, "clusters": 2}
        before = raydr.run(scenario, out=Path(place) / "before")
        with_prior = raydr.redraw(before.folder, last, site="last")
        text = str(with_prior.folder / "scenario.yaml")
        without = raydr.run(text, prior=None, out=Path(place) / "without")
        found: dict[str, float] = {}
        earlier = read_run(before.folder)
        keys = list(zip(earlier.clients, map(str, earlier.rows), strict=True))
        for title, result in (("prior", with_prior), ("no prior", without)):
            run = read_run(result.folder)
            there = {
                key: place for place, key in enumerate(zip(run.clients, map(str, run.rows), strict=True))
            }
            moved = displacement(run.federated[[there[key] for key in keys]], earlier.federated)
            assert moved is not None
            found |= {
                f"median, {title}": moved.median,
                f"95 %, {title}": moved.upper,
                f"shared, {title}": moved.shared,
            }
            found |= {
                f"{metric}, {title}": float(run.measures.federated[metric] or 0.0) for metric in METRICS
            }
        return {key: round(value, 3) for key, value in found.items()}


def main() -> None:
    """Print a line of the table for each data set and method."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    data, methods = (("heart",), ["fed-umap"]) if options.quick else (options.data, options.methods)
    found: dict[str, float] = {}
    for name in data:
        for method in methods:
            line = measured(name, method)
            found |= {f"{name}.{method}.{key}": value for key, value in line.items()}
            print(f"| {name} | `{method}` | " + " | ".join(map(str, line.values())) + " |", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"figures": found, "ratios": {}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
