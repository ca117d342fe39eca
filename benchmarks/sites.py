"""Maps of data with real sites, by site and with the same rows dealt at random, against the pooled map.

    python -m benchmarks.sites [--quick] [--data heart_disease ...] [--methods sense ...] [--rows N] [--seeds
    0 1 2]
                               [--json FILE]

The data are NAME.npz in ``$RAYDR_DATA``: heart disease by hospital (9 columns, complete rows), Beijing air by
station, mice by animal, cell lines by source. All are standardised except the last, which are principal
components. Every method uses its defaults, in whole runs in this process, with its own pooled map in the same
run. ``npa_10`` and trustworthiness are for the map. ``f_score`` is for SENSE's geometry, before any map.
Figures are medians over the seeds, and ratios compare a federated map with the pooled one. ``--quick`` uses
400 rows of heart disease, SENSE and Fed-UMAP, and one seed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import raydr

LACKING = ("fasting_blood_sugar", "st_slope", "major_vessels", "thal")
"""Columns of heart disease that some hospitals did not measure."""
SITES = {
    "heart_disease": "client",
    "beijing_air": "client",
    "mice_protein": "mouse",
    "scrna_cell_lines_pc20": "client",
}
METHODS: dict[str, dict[str, Any]] = {
    "sense": {"kind": "sense"},
    "sense-unaligned": {"kind": "sense", "alignment": "none"},
    "fed-tsne": {"kind": "fed-tsne"},
    "fed-umap": {"kind": "fed-umap"},
    "fed-spectral": {"kind": "fed-spectral", "clusters": 5},
    "fedne": {"kind": "fedne"},
    "landmark-ne": {"kind": "landmark-ne"},
    "private-map": {"kind": "private-map", "epsilon": 8.0, "clip": 6.0},
}
METRICS = ("npa_10", "trustworthiness")


def written(name: str, rows: int | None, folder: Path) -> Path:
    """Write a table of the data with a column ``site``."""
    with np.load(Path(os.environ["RAYDR_DATA"]) / f"{name}.npz", allow_pickle=False) as arrays:
        features, site = arrays["X"].astype(float), arrays[SITES[name]]
        if name == "heart_disease":
            kept = ~np.isin(arrays["feature_names"], LACKING)
            features = arrays["X_nan"][:, kept].astype(float)
    whole = np.flatnonzero(~np.isnan(features).any(axis=1))
    if rows is not None and rows < len(whole):
        whole = np.sort(np.random.default_rng(0).choice(whole, rows, replace=False))
    columns = ",".join([*(f"x{column}" for column in range(features.shape[1])), "site"])
    path = folder / f"{name}.csv"
    table = np.column_stack([features[whole], site[whole]])
    np.savetxt(path, table, delimiter=",", header=columns, comments="", fmt="%.17g")
    return path


def scored(
    path: Path, scale: str, method: dict[str, Any], by_site: bool, seed: int, folder: Path
) -> dict[str, float]:
    """Return the scores of one run, its pooled map's as ``pooled.NAME``, and seconds."""
    data: dict[str, Any] = {"path": str(path), "scale": scale}
    natural = {"partition": {"kind": "by-column", "column": "site"}}
    count = len(np.unique(np.loadtxt(path, delimiter=",", skiprows=1)[:, -1]))
    if not by_site:
        header = path.read_text().split("\n", 1)[0].split(",")
        data["features"] = header[:-1]
    names = [*METRICS, *(["f_score"] if method["kind"] == "sense" else [])]
    scenario = {
        "name": "sites",
        "seed": seed,
        "data": data,
        "clients": natural if by_site else {"count": count},
        "method": method,
        "metrics": names,
        "compare": ["central"],
        "runtime": {"federation": "inline", "checkpoint_every": 0},
    }
    started = time.perf_counter()
    result = raydr.run(scenario, out=folder / f"run-{time.monotonic_ns()}")
    federated, pooled = result.metrics["federated"], result.metrics["central"]
    figures = {name: float(federated[name]) for name in names}
    return (
        figures
        | {f"pooled.{name}": float(pooled[name]) for name in METRICS}
        | {"s": time.perf_counter() - started}
    )


def main() -> None:
    """Measure line by line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", nargs="+", default=list(SITES), choices=list(SITES))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--rows", type=int, default=3_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--json")
    options = parser.parse_args()
    if "RAYDR_DATA" not in os.environ:
        raise SystemExit(
            "RAYDR_DATA is not set, but this benchmark needs real data sets. Set it to their folder."
        )
    if options.quick:
        options.data, options.methods, options.seeds = ["heart_disease"], ["sense", "fed-umap"], [0]
        options.rows = 400
    heads = ("f_score", *METRICS, *(f"x {name}" for name in METRICS), "s")
    print(f"{'data.method.sites':<40}" + "".join(f"{head[:10]:>12}" for head in heads))
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for data in options.data:
            path = written(data, options.rows, folder)
            scale = "none" if data.startswith("scrna") else "standard"
            for method in options.methods:
                for by_site in (True, False):
                    runs = [
                        scored(path, scale, METHODS[method], by_site, seed, folder) for seed in options.seeds
                    ]
                    line = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
                    if "f_score" in line:
                        line["least.f_score"] = min(run["f_score"] for run in runs)
                    label = f"{data}.{method}.{'site' if by_site else 'iid'}"
                    figures |= {f"{label}.{name}": value for name, value in line.items()}
                    for name in METRICS:
                        line[f"x {name}"] = ratios[f"{label}.{name}"] = line[name] / line[f"pooled.{name}"]
                    cells = "".join(f"{line.get(head, math.nan):>12.4f}" for head in heads)
                    print(f"{label:<40}{cells}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"figures": figures, "ratios": ratios}, file, indent=2)


if __name__ == "__main__":
    main()
