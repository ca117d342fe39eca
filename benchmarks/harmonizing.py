"""How far sites stand apart on a map before and after they are harmonized, and what that does to the classes.

Run ``python -m benchmarks.harmonizing``: some minutes; ``--seeds N`` maps with so many seeds, 3 without it. Needs
heart_disease and scrna_cell_lines_pc20 in the folder ``RAYDR_DATA``. Prints the table of docs/sites.md.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
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


def rows(data: str, seeds: int) -> Iterator[str]:
    """Lines of the table of one data set."""
    for name, harmonize in CHOICES.items():
        content = {
            "name": "sites",
            **DATA[data],
            "method": {"kind": "fed-umap"},
            "runtime": {"federation": "inline", "checkpoint_every": 0},
            "metrics": METRICS,
        }
        content["data"] = {**content["data"], "harmonize": harmonize}
        found: list[dict[str, float]] = []
        lying = ""
        for seed in range(seeds):
            with tempfile.TemporaryDirectory() as folder:
                result = raydr.run(content | {"seed": seed}, out=Path(folder) / "run")
                found.append(result.metrics["federated"])
                harmonized = result.data["harmonized"]
                if harmonized is not None:
                    before, after = harmonized["before"]["site_mixing"], harmonized["after"]["site_mixing"]
                    lying = f"{before:.2f} to {after:.2f}"
        means = [f"{statistics.mean(each[metric] for each in found):.2f}" for metric in METRICS]
        yield f"| {data} | {name} | {lying} | {' | '.join(means)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.harmonizing", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    print(
        "| data | `data.harmonize` | mixing of rows | mixing | silhouette of sites | 10-NN accuracy | NPA-10 |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for data in DATA:
        for line in rows(data, seeds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
