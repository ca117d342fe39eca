"""Time and memory of each method against the number of features, with fitted exponents.

    python -m benchmarks.wide [--quick] [--rows 100] [--features 100 1000 ...] [--methods sense ...] [--json
    FILE]
    python -m benchmarks.wide --rows 4 --features 100000 786432 --methods fed-pca fed-tsne fed-umap landmark-ne

Rows are Gaussian around five centres in 40 directions, with noise in all features, at five clients, like a
table of genes. Every run has its own process, from reading the table to the run folder, with the pooled map:
its seconds, and its peak memory beyond the memory before the run. A small run first does imports and
compiling. The exponent is that of features in a line fitted to logarithms. Fewer than 12 rows are at two
clients, without the pooled map and without scores. ``--quick`` uses 100 and 1,000 features, SENSE and Fed-UMAP.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

METHODS: dict[str, dict[str, Any]] = {
    "sense": {"kind": "sense"},
    "fed-tsne": {"kind": "fed-tsne"},
    "fed-umap": {"kind": "fed-umap"},
    "fed-spectral": {"kind": "fed-spectral", "clusters": 5},
    "fed-pca": {"kind": "fed-pca"},
    "fedne": {"kind": "fedne", "rounds": 20},
    "landmark-ne": {"kind": "landmark-ne"},
    "private-map": {"kind": "private-map", "epsilon": 8.0, "bounds": [-30.0, 30.0]},
}
REPEATS = 3
_LEAST_SCORED = 12  # rows for which the ten nearest neighbours are not all rows


def written(path: Path, rows: int, features: int) -> Path:
    """Write a table of rows and features to a file."""
    random = np.random.default_rng(0)
    latent = 1.5 * random.normal(size=(5, 40))[random.integers(0, 5, rows)] + random.normal(size=(rows, 40))
    table = latent @ random.normal(size=(40, features)) / np.sqrt(40)
    table += 0.5 * random.normal(size=(rows, features))
    np.save(path, table)
    return path


def held() -> float:
    """Return the peak memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def once(method: str, small: str, wide: str) -> dict[str, float]:
    """Measure seconds, MB and scores of one run in this process, after a small one."""
    import raydr

    scored = len(np.load(wide, mmap_mode="r")) >= _LEAST_SCORED

    def ran(path: str, out: Path) -> raydr.Result:
        scenario = {
            "name": "wide",
            "data": {"path": path},
            "clients": {"count": 5 if scored else 2},
            "method": METHODS[method],
            "metrics": ["npa_10"] if scored else [],
            "compare": ["central"] if scored else [],
            "runtime": {"federation": "inline", "checkpoint_every": 0},
        }
        return raydr.run(scenario, out=out)

    with tempfile.TemporaryDirectory() as made:
        ran(small, Path(made) / "small")
        before, started = held(), time.perf_counter()
        result = ran(wide, Path(made) / "wide")
        seconds = time.perf_counter() - started
        kept = np.nan
        if scored:
            kept = result.metrics["federated"]["npa_10"] / result.metrics["central"]["npa_10"]
        return {"s": seconds, "mb": held() - before, "npa_10.ratio": float(kept)}


def apart(method: str, small: Path, wide: Path) -> dict[str, float]:
    """Measure the same in a separate process."""
    command = [sys.executable, "-m", "benchmarks.wide", "--once", method, str(small), str(wide)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(json.loads(output.splitlines()[-1]))


def measured(options: argparse.Namespace, made: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Print each line when it is measured. Return figures, and ratios to the pooled map."""
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    small = written(made / "small.npy", options.rows, 20)
    tables = {
        features: written(made / f"{features}.npy", options.rows, features) for features in options.features
    }
    print(f"{'method':<14}{'features':>10}{'s':>10}{'MB':>10}{'x npa_10':>10}")
    for method in options.methods:
        lines = []
        for features, table in tables.items():
            runs = [apart(method, small, table) for _ in range(options.repeats)]
            line = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
            lines.append(line)
            figures |= {f"{method}.{features}.{name}": line[name] for name in ("s", "mb")}
            if np.isfinite(line["npa_10.ratio"]):
                ratios[f"{method}.{features}.npa_10"] = line["npa_10.ratio"]
            print(
                f"{method:<14}{features:>10,}{line['s']:>10.2f}{line['mb']:>10.0f}{line['npa_10.ratio']:>10.3f}",
                flush=True,
            )
        for name in ("s", "mb"):
            values = np.log([max(line[name], 1e-3) for line in lines])
            figures[f"{method}.exponent.{name}"] = float(np.polyfit(np.log(options.features), values, 1)[0])
        exponents = (figures[f"{method}.exponent.{name}"] for name in ("s", "mb"))
        print(f"{method:<14}{'exponent':>10}" + "".join(f"{each:>10.2f}" for each in exponents), flush=True)
    return figures, ratios


def main() -> None:
    """Measure line by line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--features", type=int, nargs="+", default=[100, 1_000, 5_000, 20_000])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--json")
    parser.add_argument("--once", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        print(json.dumps(once(*options.once)))
        return
    if options.quick:
        options.features, options.methods, options.repeats = [100, 1_000], ["sense", "fed-umap"], 1
    with tempfile.TemporaryDirectory() as made:
        figures, ratios = measured(options, Path(made))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"figures": figures, "ratios": ratios}, file, indent=2)


if __name__ == "__main__":
    main()
