"""SENSE's maps with as many rows as in P3's table 13, against the pooled rows' maps by the same embedder.

    python -m benchmarks.large_sense [--quick] [--rows 90000] [--embedders tsne umap cne] [--json FILE]

Table 13 uses 90,000 rows of Tiny ImageNet and 80,000 of SVHN, 512 features of a network, at ten unequal
clients. Neither the data nor the network are available. This benchmark uses MNIST and Fashion-MNIST instead,
the same number of rows of each, along the first 512 principal axes of both together, at ten clients dealt by
Dirichlet(0.5). Metrics are those of the table, with 7 neighbours, on a sample if there are more than 50,000
rows. Figures are ``EMBEDDER.METRIC`` of the federated map, ``EMBEDDER.central.METRIC`` of the pooled one,
seconds in total and by stage, and the peak memory of all processes. Ratios are SENSE's metrics over the
pooled map's. ``--quick`` uses 2,000 rows x 64 and UMAP.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.processes import printed_lines
from raydr.threads import cores

EMBEDDERS: dict[str, dict[str, Any]] = {
    "tsne": {"kind": "tsne"},
    "umap": {"kind": "umap"},
    "phate": {"kind": "phate"},
    "cne": {"kind": "cne", "s": 0.5},
}
METRICS = ["trustworthiness_7", "continuity_7", "steadiness", "cohesiveness"]
TIMEOUT_S = 3 * 3600.0


def of_both(path: Path, rows: int, features: int) -> Path:
    """Write a file with rows of both data sets and their classes, along principal axes."""
    from raydr.data import load

    tables = [load(source=source, rows=rows // 2) for source in ("mnist", "fashion_mnist")]
    found = np.concatenate([table.rows for table in tables])
    classes = np.concatenate([np.asarray(table.labels) + 10 * number for number, table in enumerate(tables)])
    found -= found.mean(axis=0)
    axes = np.linalg.eigh((found.T @ found).astype(np.float64))[1][:, ::-1][:, :features]
    columns = (found @ axes.astype(np.float32)).T
    names = [f"f{number}" for number in range(features)]
    pq.write_table(pa.table([*columns, classes], names=[*names, "class"]), path)
    return path


def one(embedder: str, data: Path, folder: Path) -> dict[str, float]:
    """Run both maps once in this process."""
    import raydr

    began = time.perf_counter()
    result = raydr.run(
        {
            "name": f"large-{embedder}",
            "data": {"path": str(data), "label": "class"},
            "clients": {"count": 10, "partition": {"kind": "dirichlet", "alpha": 0.5}},
            "method": {"kind": "sense", "embedder": EMBEDDERS[embedder]},
            "compare": ["central"],
            "metrics": METRICS,
        },
        out=folder,
    )
    found = {"s": time.perf_counter() - began} | result.metrics["federated"]
    found |= {f"central.{metric}": value for metric, value in result.metrics["central"].items()}
    environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    return found | {f"stage.{stage}_s": seconds for stage, seconds in environment["seconds"].items()}


def main() -> None:
    """Measure, print a table, and write the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.large_sense",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="2,000 rows x 64, UMAP")
    parser.add_argument("--rows", type=int, default=90_000)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--embedders", nargs="+", choices=EMBEDDERS, default=["tsne", "umap", "cne"])
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--side", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side is not None:
        embedder, data, folder = options.side
        print(json.dumps(one(embedder, Path(data), Path(folder))))
        return
    if options.quick:
        options.rows, options.features, options.embedders = 2_000, 64, ["umap"]
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        data = of_both(Path(scratch) / "rows.parquet", options.rows, options.features)
        print(f"{options.rows:,} rows x {options.features}, 10 clients, {cores()} cores", flush=True)
        for embedder in options.embedders:
            arguments = ["--side", embedder, str(data), str(Path(scratch) / embedder)]
            lines = list(
                printed_lines("benchmarks.large_sense", *arguments, timeout_s=TIMEOUT_S, interval_s=1.0)
            )
            found = json.loads(lines[-1][0]) | {"memory_mb": max(memory for _, memory in lines)}
            print(embedder)
            for name, value in found.items():
                figures[f"{embedder}.{name}"] = round(value, 4)
                print(f"  {name:<44}{value:>12.3f}", flush=True)
            for metric in METRICS:
                ratios[f"sense/central.{embedder}.{metric}"] = round(
                    found[metric] / found[f"central.{metric}"], 3
                )
    if options.json is not None:
        options.json.write_text(json.dumps({"figures": figures, "ratios": ratios}, indent=2) + "\n")


if __name__ == "__main__":
    main()
