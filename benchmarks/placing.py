"""Placing rows of files that need not fit in memory on a finished map: rows per second, and memory.

    python -m benchmarks.placing [--quick] [--rows 1000000 10000000] [--features 50] [--methods fedne
    fed-tsne]
                                 [--repeats 3] [--json FILE]

20,000 rows of a mixture of 50 Gaussian classes are mapped at ten clients. ``raydr transform`` then places
larger files on the map, from .parquet to .parquet: with FedNE's encoder, and among Fed-tSNE's references with
a hundredth of the rows, because these take longer. Each run has its own process: seconds from start to end,
rows per second without the start-up, and peak memory. The peer, in turns, is the same encoder in plain torch,
with the same batches of the same file. ``--quick`` uses 200,000 rows, once.

``--layout`` asks instead what placing costs in quality: Fed-UMAP maps all rows of a mixture of
:mod:`benchmarks.million`, or a tenth or a hundredth of them, and ``raydr transform`` places the rest. All maps
are compared with all rows of the data.
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


LAYOUT = """
import json, sys, time
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
import raydr
from raydr.memory import peak_memory_bytes
from raydr.metrics import Evidence, evaluate
path, folder, mapped = sys.argv[1], sys.argv[2], int(sys.argv[3])
table = pq.read_table(path)
pq.write_table(table[:mapped], folder + "/mapped.parquet")
pq.write_table(table[mapped:].drop_columns("class"), folder + "/rest.parquet")
began = time.perf_counter()
run = raydr.run({
    "name": "layout", "data": {"path": folder + "/mapped.parquet", "label": "class"}, "clients": {"count": 10},
    "method": {"kind": "fed-umap"}, "metrics": [], "compare": [],
    "runtime": {"federation": "inline", "checkpoint_every": 0},
}, out=folder + "/run")
laid_out = time.perf_counter() - began
places = run.embedding
if mapped < len(table):
    raydr.transform(folder + "/run", folder + "/rest.parquet", out=folder + "/places.parquet")
    placed = pq.read_table(folder + "/places.parquet")
    places = np.concatenate([places, np.column_stack([placed["x"], placed["y"]]).astype(places.dtype)])
seconds, memory = time.perf_counter() - began, peak_memory_bytes() / 1e6
rows = np.column_stack([column.to_numpy() for column in table.drop_columns("class").columns])
found = evaluate(
    ["npa_10", "ca_10", "trustworthiness"],
    Evidence(rows=rows, embedding=places, labels=table["class"].to_numpy()),
)
print(json.dumps({"layout_s": laid_out, "s": seconds, "mb": memory, **found.values}))
"""


def layouts(rows: int) -> dict[str, float]:
    """Map all rows, and a part of them before the rest is placed."""
    from benchmarks.million import labelled_mixture  # which imports this module

    figures: dict[str, float] = {}
    print(f"{'mapped':>12}{'layout s':>10}{'all s':>10}{'MB':>8}{'NPA-10':>9}{'CA-10':>8}{'trust.':>9}")
    with tempfile.TemporaryDirectory() as scratch:
        data = labelled_mixture(Path(scratch) / "rows.parquet", rows, 50)
        for mapped in (rows, rows // 10, rows // 100):
            with tempfile.TemporaryDirectory(dir=scratch) as folder:
                found = timed(LAYOUT, data, folder, mapped)
            figures |= {f"layout.{rows}.{mapped}.{name}": value for name, value in found.items()}
            print(
                f"{mapped:>12,}{found['layout_s']:>10.1f}{found['s']:>10.1f}{found['mb']:>8.0f}"
                f"{found['npa_10']:>9.4f}{found['ca_10']:>8.4f}{found['trustworthiness']:>9.4f}",
                flush=True,
            )
    return figures


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
    parser.add_argument("--layout", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.repeats = [200_000], 1
    if options.layout:
        quality = layouts(options.rows[0])
        if options.json:
            Path(options.json).write_text(json.dumps({"figures": quality, "ratios": {}}, indent=2))
        return
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
