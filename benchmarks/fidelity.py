"""Fidelity of maps estimated without pooling, compared with all rows: errors and standard errors.

    python -m benchmarks.fidelity [--quick] [--data digits ...] [--methods fed-tsne ...] [--rows N] [--json FILE]

Each map is a whole run in this process, with ten sites that hold different classes (Dirichlet, alpha 0.1). ``error`` is
the estimate minus the metric of all rows, and ``se`` its standard error. ``recovered`` is the error of estimates by
the distances that the server recovered, if they are exact. ``rows`` is how many rows every site saw. MNIST has 3,000
random rows, Beijing air 3,000. ``--quick`` uses digits, Fed-UMAP and federated PCA.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import raydr

DATA: dict[str, dict[str, Any]] = {
    "digits": {},
    "mnist": {"rows": 3000},
    "heart_disease": {"scale": "standard"},
    "beijing_air": {"rows": 3000, "scale": "standard"},
    "scrna_cell_lines_pc20": {},
}
METHODS: dict[str, dict[str, Any]] = {
    "fed-tsne": {"landmarks": 50},
    "fed-umap": {"landmarks": 50},
    "sense": {},
    "dsne": {},
    "fed-pca": {},
    "fedne": {"rounds": 20},
    "fedavg-ne": {"rounds": 20},
    "local-ne": {},
    "landmark-ne": {"landmarks": 50},
}
METRICS = ("npa_10", "trustworthiness", "continuity")


def measured(name: str, method: str, rows: int, folder: Path) -> dict[str, dict[str, float | None]]:
    """Return the error and standard error of each metric, and the error by recovered distances."""
    scenario = {
        "name": "fidelity",
        "data": {"source": name} | DATA[name],
        "clients": {"count": 10, "partition": {"kind": "dirichlet", "alpha": 0.1}},
        "method": {"kind": method} | METHODS[method],
        "metrics": [*METRICS, "distance_error"],
        "fidelity_rows": rows,
        "runtime": {"federation": "inline"},
    }
    result = raydr.run(scenario, out=folder)
    found = json.loads((result.folder / "metrics.json").read_text())["fidelity"]
    queried = found["query rows"]["metrics"]
    recovered = found.get("recovered distances", {"metrics": {}})["metrics"]
    return {
        metric: {
            "all rows": queried[metric]["pooled"],
            "error": queried[metric]["estimate"] - queried[metric]["pooled"],
            "se": queried[metric]["standard_error"],
            "recovered": recovered[metric]["estimate"] - recovered[metric]["pooled"]
            if metric in recovered
            else None,
        }
        for metric in METRICS
    }


def main() -> None:
    """Print a line for each map."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    data, methods = options.data, options.methods
    if options.quick:
        data, methods = ["digits"], ["fed-umap", "fed-pca"]
    figures: dict[str, float] = {}
    print(
        "| data | method | "
        + " | ".join(f"{metric}: all rows | error | se | recovered" for metric in METRICS)
    )
    for name in data:
        for method in methods:
            with tempfile.TemporaryDirectory() as folder:
                found = measured(name, method, options.rows, Path(folder) / "run")
            cells = []
            for metric, line in found.items():
                for key, value in line.items():
                    cells.append("–" if value is None else f"{value:.3f}")
                    if value is not None:
                        figures[f"{name}.{method}.{metric}.{key}"] = round(value, 3)
            print(f"| {name} | `{method}` | " + " | ".join(cells) + " |", flush=True)
        for metric in METRICS:
            errors = [figures[f"{name}.{method}.{metric}.error"] for method in methods]
            figures |= {f"{name}.{metric}.lowest": min(errors), f"{name}.{metric}.highest": max(errors)}
            print(f"{name}, {metric}: errors from {min(errors)} to {max(errors)}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"figures": figures, "ratios": {}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
