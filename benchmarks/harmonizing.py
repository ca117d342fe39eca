"""How far sites stand apart on a map before and after harmonization, and its effect on the classes.

Run ``python -m benchmarks.harmonizing``. It takes some minutes. ``--seeds N`` maps with N seeds, 3 by
default. It needs heart_disease and scrna_cell_lines_pc20 in the folder ``RAYDR_DATA``, and prints the table
of docs/sites.md. With ``--quick``: only heart disease, with and without ComBat, one seed. Ratios compare maps
of harmonized rows with maps of the original rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import raydr

DATA: dict[str, dict[str, Any]] = {
    "heart disease, 4 hospitals": {
        "data": {"source": "heart_disease", "missing": "median", "scale": "standard"},
        "clients": {"partition": {"kind": "by-column", "column": "client"}},
    },
    "cell lines, 3 sources": {
        "data": {"source": "scrna_cell_lines_pc20"},
        "clients": {"partition": {"kind": "by-column", "column": "client"}},
    },
}
CHOICES: dict[str, Any] = {
    "none": None,
    "center": "center",
    "scale": "scale",
    "combat": "combat",
    "combat, label kept": {"kind": "combat", "keep": ["label"]},
}
METRICS = ["site_mixing", "site_silhouette", "ca_10", "npa_10"]


def measured(data: str, choice: str, seeds: int) -> dict[str, float]:
    """Return the means of the metrics over seeds, and how well sites mix in the rows before and after."""
    content = {
        "name": "sites",
        **DATA[data],
        "method": {"kind": "fed-umap"},
        "runtime": {"federation": "inline", "checkpoint_every": 0},
        "metrics": METRICS,
    }
    content["data"] = {**content["data"], "harmonize": CHOICES[choice]}
    found: list[dict[str, float]] = []
    lying: dict[str, float] = {}
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            result = raydr.run(content | {"seed": seed}, out=Path(folder) / "run")
            found.append(result.metrics["federated"])
            harmonized = result.data["harmonized"]
            if harmonized is not None:
                lying = {f"rows.{when}": harmonized[when]["site_mixing"] for when in ("before", "after")}
    return {metric: statistics.mean(each[metric] for each in found) for metric in METRICS} | lying


def main() -> None:
    """Print the table and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.harmonizing", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="heart disease, one seed, with and without")
    parser.add_argument("--json", type=Path, help="also write figures and ratios to this file")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    print(
        "| data | `data.harmonize` | mixing of rows | mixing | silhouette of sites | 10-NN accuracy | NPA-10 |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for data in list(DATA)[: 1 if options.quick else None]:
        for choice in ("none", "combat") if options.quick else CHOICES:
            line = measured(data, choice, 1 if options.quick else options.seeds)
            lying = f"{line['rows.before']:.2f} to {line['rows.after']:.2f}" if "rows.after" in line else ""
            means = " | ".join(f"{line[metric]:.2f}" for metric in METRICS)
            print(f"| {data} | {choice} | {lying} | {means} |", flush=True)
            figures |= {f"{data}.{choice}.{name}": value for name, value in line.items()}
            if choice != "none":
                for metric in ("site_mixing", "ca_10"):
                    ratios[f"{data}.{choice}/none.{metric}"] = line[metric] / figures[f"{data}.none.{metric}"]
    if options.json is not None:
        options.json.write_text(json.dumps({"figures": figures, "ratios": ratios}, indent=2) + "\n")


if __name__ == "__main__":
    main()
