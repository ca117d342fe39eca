"""Places that stay on other maps and places that change, and what their neighbours share in the data.

    python -m benchmarks.stability [--quick] [--data digits ...] [--methods fed-tsne ...] [--json FILE]

Each map is a whole run in this process, compared with four other seeds and with each site left out. ``npa`` is the
share of the ten nearest rows in the data that are among the ten nearest on the map. ``fresh`` is the share of places
that keep less than half of their neighbours on a map with a fifth seed. Neither decides on a verdict. ``noise`` has
1,000 rows of 20 independent normal columns. Sites are 5 random ones (iris: 3), and the hospitals of heart disease.
Other data are of scikit-learn, or NAME.npz in ``$RAYDR_DATA``. ``--quick`` uses noise and Fed-UMAP.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import raydr
from raydr.arrays import Float64Array, Int64Array
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points
from raydr.journal import Journal
from raydr.metrics.stability import HALF, STAYS, WITH_SEED, WITHOUT_SITE, kept_neighbors
from raydr.runfolder import read_run
from raydr.scenarios.afterwards.other_maps import geometry_of, other_maps
from raydr.scenarios.afterwards.repetition import data_of_run
from raydr.scenarios.afterwards.stability import SEEDS
from raydr.scenarios.schema.reading import read

DATA = ("digits", "heart_disease", "iris", "noise")
METHODS = ("fed-tsne", "fed-umap", "sense")
SLOW = ("fedne",)
"""Ten maps of digits take seven minutes, so it is measured only by name."""
VERDICTS = {"stays": STAYS, "seed": WITH_SEED, "site": WITHOUT_SITE}


def table(name: str) -> tuple[Float64Array, Int64Array]:
    """Return rows and sites."""
    from sklearn.datasets import load_digits, load_iris

    random = np.random.default_rng(0)
    if name == "noise":
        return random.normal(size=(1000, 20)), random.integers(5, size=1000)
    if name in ("digits", "iris"):
        rows, _ = (load_digits if name == "digits" else load_iris)(return_X_y=True)
        return rows, random.integers(3 if name == "iris" else 5, size=len(rows))
    with np.load(Path(os.environ["RAYDR_DATA"]) / f"{name}.npz", allow_pickle=False) as arrays:
        rows = arrays["X"].astype(np.float64)
        return (rows - rows.mean(axis=0)) / rows.std(axis=0), arrays["client"]


def mean(values: Any) -> float | None:
    """Return the mean, None of no values."""
    return round(float(np.mean(values)), 3) if len(values) else None


def measured(name: str, method: str, place: Path) -> dict[str, float | None]:
    """Return the share of each verdict of one map, and means over its rows."""
    rows, sites = table(name)
    np.savez(place / "table.npz", X=rows, client=np.array([f"{site:02d}" for site in sites]))
    folder = raydr.run(
        {
            "name": name,
            "data": {"path": str(place / "table.npz")},
            "clients": {"partition": {"kind": "by-column", "column": "client"}},
            "method": {"kind": method},
            "runtime": {"federation": "inline"},
            "metrics": [],
        },
        out=place / "run",
    ).folder
    found = raydr.stability(folder).stability
    assert found is not None
    run, scenario, journal = read_run(folder), read(folder / "scenario.yaml"), Journal()
    maps = other_maps(run, scenario, data_of_run(run, scenario, None, journal), journal)
    every, own = np.arange(len(run.federated)), geometry_of(scenario.method, run.federated)
    fresh = kept_neighbors(own, maps.with_seed(scenario.seed + SEEDS + 1).geometry, every) < HALF
    mapped = rows[np.array(run.rows)]  # SENSE sets rows apart
    shown, true = (nearest_neighbors(Points(points), 10).indices for points in (run.federated, mapped))
    kept = (shown[:, :, None] == true[:, None, :]).any(axis=2).mean(axis=1)
    line: dict[str, float | None] = {}
    for title, verdict in VERDICTS.items():
        line[title] = mean(found.verdicts == verdict)
    for title, verdict in VERDICTS.items():
        line[f"npa, {title}"] = mean(kept[found.verdicts == verdict])
    for title, verdict in VERDICTS.items():
        line[f"fresh, {title}"] = mean(fresh[found.verdicts == verdict])
    return line


def main() -> None:
    """Print a line of the table for each map."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--methods", nargs="+", choices=(*METHODS, *SLOW), default=METHODS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    data, methods = (("noise",), ("fed-umap",)) if options.quick else (options.data, options.methods)
    found: dict[str, float] = {}
    for name in data:
        for method in methods:
            with tempfile.TemporaryDirectory() as place:
                line = measured(name, method, Path(place))
            found |= {f"{name}.{method}.{key}": value for key, value in line.items() if value is not None}
            print(f"| {name} | `{method}` | " + " | ".join(map(str, line.values())) + " |", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"figures": found, "ratios": {}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
