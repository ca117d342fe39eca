"""Placing rows of files that need not fit in memory on a finished map: rows per second, and memory.

    python -m benchmarks.placing [--quick] [--rows 1000000 10000000] [--features 50] [--methods fedne
    fed-tsne]
                                 [--repeats 3] [--json FILE]

20,000 rows of a mixture of 50 Gaussian classes are mapped at ten clients. ``raydr transform`` then places
larger files on the map, from .parquet to .parquet: with FedNE's encoder, and among Fed-tSNE's references with
a hundredth of the rows, because these take longer. Each run has its own process: seconds from start to end,
rows per second without the start-up, and peak memory. The peer, in turns, is the same encoder in plain torch,
with the same batches of the same file. ``--quick`` uses 200,000 rows, once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import raydr

MAPPED, CLASSES, BATCH = 20_000, 50, 2**17
METHODS: dict[str, dict[str, Any]] = {
    "fedne": {"kind": "fedne", "rounds": 5},
    "fed-tsne": {"kind": "fed-tsne", "iterations": 100},
}
SHARE = {"fedne": 1, "fed-tsne": 100}
"""Divisor of a file's rows for each method."""

PLACE = """
import json, sys, time
import raydr
from raydr.memory import peak_memory_bytes
began = time.perf_counter()
raydr.transform(sys.argv[1], sys.argv[2], out=sys.argv[3])
print(json.dumps({"s": time.perf_counter() - began, "mb": peak_memory_bytes() / 1e6}))
"""
PLAIN = """
import json, sys, time
import numpy as np, pyarrow as pa, pyarrow.parquet as pq, torch
from safetensors.numpy import load_file
from raydr.memory import peak_memory_bytes
began = time.perf_counter()
stored = load_file(sys.argv[1] + "/model/encoder.safetensors")
layers = []
for number in range(sum(name.endswith("weight") for name in stored)):
    weight = torch.from_numpy(stored[f"layers.{number}.weight"])
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0])
    layer.weight.data, layer.bias.data = weight, torch.from_numpy(stored[f"layers.{number}.bias"])
    layers += [layer, torch.nn.ReLU()]
encoder = torch.nn.Sequential(*layers[:-1])
shift, factor = (torch.from_numpy(stored[name]).float() for name in ("shift", "factor"))
row, schema = 0, pa.schema([("row", pa.int64()), ("x", pa.float32()), ("y", pa.float32())])
with torch.inference_mode(), pq.ParquetWriter(sys.argv[3], schema) as out:
    for batch in pq.ParquetFile(sys.argv[2]).iter_batches(int(sys.argv[4])):
        rows = torch.from_numpy(np.column_stack([column.to_numpy() for column in batch.columns]))
        found = encoder((rows - shift) * factor).numpy()
        numbers = np.arange(row, row + len(found))
        out.write_table(pa.table([numbers, found[:, 0], found[:, 1]], schema=schema))
        row += len(found)
print(json.dumps({"s": time.perf_counter() - began, "mb": peak_memory_bytes() / 1e6}))
"""


def mixture(path: Path, rows: int, features: int, seed: int) -> Path:
    """Write a file of rows of the classes, a batch at a time."""
    centres = 4.0 * np.random.default_rng(0).normal(size=(CLASSES, features))
    random = np.random.default_rng([1, seed])
    schema = pa.schema([(f"f{number}", pa.float32()) for number in range(features)])
    with pq.ParquetWriter(path, schema, use_dictionary=False) as out:
        for start in range(0, rows, BATCH):
            count = min(BATCH, rows - start)
            found = centres[random.integers(0, CLASSES, count)] + random.normal(size=(count, features))
            out.write_table(pa.table(list(found.T.astype(np.float32)), schema=schema))
    return path


def timed(code: str, *arguments: object) -> dict[str, float]:
    """Run code in a process, and return its seconds and peak memory."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def mapped(folder: Path, method: str, data: Path) -> Path:
    """Make a run folder that can place rows."""
    return raydr.run(
        {
            "name": method,
            "data": {"path": str(data)},
            "clients": {"count": 10},
            "method": METHODS[method],
            "metrics": [],
            "runtime": {"federation": "inline", "checkpoint_every": 0},
        },
        out=folder / method,
    ).folder


def main() -> None:
    """Measure line by line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.repeats = [200_000], 1
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    print(
        f"{'method':<10}{'rows':>12}{'s':>10}{'rows/s':>12}{'MB':>8}{'peer s':>10}{'peer MB':>9}{'ratio':>8}"
    )
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        runs = {
            method: mapped(home, method, mixture(home / "mapped.parquet", MAPPED, options.features, 0))
            for method in options.methods
        }
        for rows in options.rows:
            for method, run in runs.items():
                count = rows // SHARE[method]
                new = mixture(home / "new.parquet", count, options.features, 1)
                found: dict[str, list[dict[str, float]]] = {"ours": [], "peer": []}
                for _ in range(options.repeats):
                    found["ours"].append(timed(PLACE, run, new, home / "places.parquet"))
                    if method == "fedne":
                        found["peer"].append(timed(PLAIN, run, new, home / "plain.parquet", BATCH))
                middle = {
                    f"{side}_{of}": statistics.median(one[of] for one in several)
                    for side, several in found.items()
                    if several
                    for of in ("s", "mb")
                }
                name = f"{method}.{count}"
                figures |= {f"{name}.{of}": value for of, value in middle.items()}
                figures[f"{name}.rows_per_s"] = count / middle["ours_s"]
                line = f"{method:<10}{count:>12,}{middle['ours_s']:>10.2f}{count / middle['ours_s']:>12,.0f}"
                line += f"{middle['ours_mb']:>8.0f}"
                if found["peer"]:
                    ratios[name] = middle["ours_s"] / middle["peer_s"]
                    line += f"{middle['peer_s']:>10.2f}{middle['peer_mb']:>9.0f}{ratios[name]:>8.2f}"
                print(line, flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps({"figures": figures, "ratios": ratios}, indent=2))


if __name__ == "__main__":
    main()
