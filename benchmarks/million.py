"""A whole run with very many rows against the pooled map by the embedder's own library: seconds and memory, by stage.

    python -m benchmarks.million [--quick] [--rows 1000000] [--features 50] [--clients 100] [--repeats 1]
                                 [--methods fed-umap fed-tsne sense fedne] [--mnist] [--peers] [--json FILE]

Rows come from a mixture of 50 Gaussian classes, each with its own axes, in a .parquet file. With ``--mnist``
they are MNIST's digits, each shifted by up to two pixels up, down, left and right, along the first principal
axes of the original digits. FedNE trains for 20 rounds, with a tenth of the clients in each. ``raydr run``
reads the file, deals it to the clients, draws the map, computes metrics (neighbours kept, classes) and writes
the folder with its page. It draws no pooled map. Figures are seconds in total and by stage, and the peak
memory of all its processes together, with a shared page counted once. With ``--peers``, in turns, umap-learn
and openTSNE read the same file and map the pooled rows on the same number of threads, with the settings of
their documentation, without a seed, metrics or folder. ``--quick`` uses 20,000 rows and Fed-UMAP, with its
peer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.placing import CLASSES
from benchmarks.processes import printed_lines
from raydr.threads import cores

BATCH = 2**17
METHODS: dict[str, dict[str, Any]] = {
    "fed-umap": {"kind": "fed-umap"},
    "fed-tsne": {"kind": "fed-tsne"},
    "sense": {"kind": "sense", "embedder": "umap"},
    "fedne": {"kind": "fedne", "rounds": 20},
}
PARTICIPATION = {"fedne": 0.1}
PEERS = {"fed-umap": "umap-learn", "fed-tsne": "openTSNE"}
METRICS = ["npa_10", "ca_10", "trustworthiness"]
LIMIT_S = 3 * 3600.0
LOOK_S = 2.0
"""Seconds between memory samples, which take longer if there is more memory."""


def labelled_mixture(path: Path, rows: int, features: int) -> Path:
    """Write a file of rows with their classes, a batch at a time.

    Within a class, the deviation along its randomly rotated axes falls as one over their number, as in real
    measurements. So there are neighbours to preserve.
    """
    random = np.random.default_rng(0)
    centres = 4.0 * random.normal(size=(CLASSES, features))
    falling = 4.0 / np.arange(1, features + 1)
    axes = np.linalg.qr(random.normal(size=(CLASSES, features, features)))[0] * falling[:, None]
    names = [f"f{number}" for number in range(features)]
    schema = pa.schema([*((name, pa.float32()) for name in names), ("class", pa.int64())])
    with pq.ParquetWriter(path, schema, use_dictionary=False) as out:
        for start in range(0, rows, BATCH):
            count = min(BATCH, rows - start)
            classes = random.integers(0, CLASSES, count)
            found = random.normal(size=(count, features))
            for number in range(CLASSES):
                own = classes == number
                found[own] = centres[number] + found[own] @ axes[number]
            out.write_table(pa.table([*found.T.astype(np.float32), classes], schema=schema))
    return path


def moved_digits(path: Path, rows: int, features: int) -> Path:
    """Write a file of shifted MNIST digits with their classes, along principal axes."""
    from raydr.data import load

    table = load(source="mnist")
    pictures, classes = table.rows.reshape(-1, 28, 28), np.asarray(table.labels)
    mean = table.rows.mean(axis=0)
    covariance = (table.rows - mean).T @ (table.rows - mean)
    axes = np.linalg.eigh(covariance.astype(np.float64))[1][:, ::-1][:, :features].astype(np.float32)
    names = [f"f{number}" for number in range(features)]
    schema = pa.schema([*((name, pa.float32()) for name in names), ("class", pa.int64())])
    steps = sorted(
        ((down, right) for down in range(-2, 3) for right in range(-2, 3)),
        key=lambda step: (abs(step[0]) + abs(step[1]), step),
    )
    written = 0
    with pq.ParquetWriter(path, schema, use_dictionary=False) as out:
        for step in steps:
            if written == rows:
                break
            count = min(len(pictures), rows - written)
            moved = np.roll(pictures[:count], step, axis=(1, 2)).reshape(count, -1)
            found = (moved - mean) @ axes
            out.write_table(pa.table([*found.T, classes[:count]], schema=schema))
            written += count
    if written < rows:
        raise SystemExit(f"MNIST shifted by up to two pixels has {written:,} rows. Use at most that number.")
    return path


def of_method(name: str, data: Path, clients: int, folder: Path) -> dict[str, float]:
    """Run one method: its seconds in total and by stage, and its metrics."""
    import raydr

    began = time.perf_counter()
    result = raydr.run(
        {
            "name": name,
            "data": {"path": str(data), "label": "class"},
            "clients": {"count": clients, "participation": PARTICIPATION.get(name, 1.0)},
            "method": METHODS[name],
            "metrics": METRICS,
        },
        out=folder,
    )
    seconds = time.perf_counter() - began
    environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    stages = {f"stage.{stage}_s": value for stage, value in environment["seconds"].items()}
    return {"s": seconds, **stages, **result.metrics["federated"]}


def of_peer(name: str, data: Path) -> dict[str, float]:
    """Draw the pooled map with its own library."""
    began = time.perf_counter()
    table = pq.read_table(data).drop_columns("class")
    rows = np.stack([column.to_numpy() for column in table.columns], axis=1)
    if name == "umap-learn":
        import umap

        umap.UMAP(n_jobs=cores()).fit_transform(rows)
    else:
        import openTSNE

        openTSNE.TSNE(n_jobs=cores()).fit(rows)
    return {"s": time.perf_counter() - began}


def measured(side: str, method: str, data: Path, clients: int, scratch: Path) -> dict[str, float]:
    """Measure one side in a separate process, with the peak memory of it and its child processes."""
    arguments = ["--side", side, "--method", method, "--data", str(data), "--clients", str(clients)]
    arguments += ["--folder", str(scratch / f"{method}-{time.monotonic_ns()}")]
    lines = list(printed_lines("benchmarks.million", *arguments, timeout_s=LIMIT_S, interval_s=LOOK_S))
    figures: dict[str, float] = json.loads(lines[-1][0])
    return figures | {"memory_mb": max(memory for _, memory in lines)}


def main() -> None:
    """Measure, print a table, and write the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.million",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="20,000 rows, Fed-UMAP and its peer, once")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--mnist", action="store_true", help="MNIST's digits, moved, instead of the mixture")
    parser.add_argument(
        "--peers", action="store_true", help="also the pooled maps by umap-learn and openTSNE"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    for hidden in ("--side", "--method", "--data", "--folder"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side == "raydr":
        print(
            json.dumps(of_method(options.method, Path(options.data), options.clients, Path(options.folder)))
        )
        return
    if options.side == "peer":
        print(json.dumps(of_peer(PEERS[options.method], Path(options.data))))
        return
    if options.quick:
        options.rows, options.methods, options.peers = 20_000, ["fed-umap"], True
    figures, ratios = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        made = moved_digits if options.mnist else labelled_mixture
        data = made(scratch / "rows.parquet", options.rows, options.features)
        print(
            f"{options.rows:,} rows x {options.features}, {options.clients} clients, {cores()} cores",
            flush=True,
        )
        for method in options.methods:
            sides = ["raydr", *(["peer"] if options.peers and method in PEERS else [])]
            found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
            for _ in range(options.repeats):
                for side in sides:
                    found[side].append(measured(side, method, data, options.clients, scratch))
            for side, runs in found.items():
                name = method if side == "raydr" else PEERS[method]
                print(name)
                for figure in runs[0]:
                    value = statistics.median(run.get(figure, 0.0) for run in runs)
                    figures[f"{name}.{figure}"] = round(value, 4)
                    print(f"  {figure:<44}{value:>12.3f}", flush=True)
            if "peer" in found:
                pairs = zip(found["raydr"], found["peer"], strict=True)
                ratio = statistics.median(ours["s"] / theirs["s"] for ours, theirs in pairs)
                ratios[f"{method}/{PEERS[method]}"] = round(ratio, 3)
                print(f"  {f'{method} / {PEERS[method]}, seconds':<44}{ratio:>12.3f}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps({"figures": figures, "ratios": ratios}, indent=2) + "\n")


if __name__ == "__main__":
    main()
