"""Algorithms for the nearest neighbours of all rows: seconds, recall, and memory.

    python -m benchmarks.neighbors [--quick] [--data mixture mnist] [--rows 300000] [--k 15] [--repeats 3]
    [--json FILE]

``exact`` compares all pairs. ``cells`` compares those in the cells near each row
(``raydr/geometry/cells.py``) for a recall of .98. The peers are pynndescent and, if they are installed, faiss
(``faiss-cpu``: HNSW graphs and inverted files, the latter with the same numbers of lists and probes as cells)
and usearch, on the same number of threads, with the settings of their documentation. All get the same rows in
memory, in separate processes, in turns. Recall is measured on 500 rows that are compared with all rows.
Packages that are not installed are skipped and listed. ``2 nodes`` and ``3 nodes`` search the same cells on a
Ray cluster of raylets on this machine, with one core and 200 MB of object store each. The memory of the
coordinating process, and of the largest searching one, goes to standard error. ``--quick`` uses 10,000 rows
and pynndescent alone. One process then takes all turns, because pynndescent compiles for half a minute in each
process.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.million import labelled_mixture
from benchmarks.processes import printed_lines
from raydr.arrays import FloatArray, Int64Array
from raydr.geometry.cells import CELL_ROWS, neighbors_by_cells
from raydr.geometry.neighbors import nearest_neighbors, search_rows
from raydr.geometry.points import Points
from raydr.memory import peak_memory_bytes
from raydr.threads import cores

RECALL, JUDGED = 0.98, 500
STORE_BYTES = 200_000_000
"""Object store of each node."""
TIMED = ("faiss IVF", "2 nodes", "3 nodes")
"""Ways that measure their seconds themselves."""
LIMIT_S = 2 * 3600.0


def rows_of(data: str, rows: int) -> FloatArray:
    """Return rows of the mixture of :mod:`benchmarks.million`, or of MNIST, (rows, features) float32."""
    if data == "mnist":
        from raydr.data import load

        return load(source="mnist", rows=min(rows, 70_000)).rows.astype(np.float32)
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as folder:
        table = pq.read_table(labelled_mixture(Path(folder) / "rows.parquet", rows, 50))
    return np.stack([column.to_numpy() for column in table.drop_columns("class").columns], axis=1)


def exact(rows: FloatArray, k: int) -> tuple[Int64Array, float]:
    """Search all pairs."""
    return nearest_neighbors(Points(rows), k).indices, 1.0


def cells(rows: FloatArray, k: int) -> tuple[Int64Array, float]:
    """Search the cells near each row."""
    found = neighbors_by_cells(Points(rows), k, recall=RECALL)
    return found.graph.indices, found.looked_at


def on_nodes(nodes: int) -> Callable[[FloatArray, int], tuple[Int64Array, float]]:
    """Search the cells near each row on a cluster, whose start is not in the seconds."""

    def search(rows: FloatArray, k: int) -> tuple[Int64Array, float]:
        import ray
        from ray.cluster_utils import Cluster

        from raydr.actors.transport import RayTransport
        from raydr.federation import FaultPlan

        size = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
        cluster = Cluster(initialize_head=True, head_node_args=size | {"include_dashboard": False})
        for _ in range(nodes - 1):
            cluster.add_node(**size)
        ray.init(address=cluster.address, log_to_driver=False)
        try:
            transport = RayTransport(placements=(), seed=0, faults=FaultPlan(), timeout_s=60.0)
            list(transport.compute(_started, [0.5] * nodes))
            began = time.perf_counter()
            found = neighbors_by_cells(Points(rows), k, recall=RECALL, nodes=transport)
            seconds = time.perf_counter() - began
            searching = [
                process.memory_info().rss
                for process in psutil.process_iter(["cmdline"])
                if (process.info["cmdline"] or [""])[0].startswith(("ray::_with_one_thread", "ray::IDLE"))
            ]
            print(
                f"{nodes} nodes: this process {peak_memory_bytes() / 1e6:,.0f} MB, largest searching process"
                f" {max(searching, default=0) / 1e6:,.0f} MB at the end",
                file=sys.stderr,
            )
            return found.graph.indices, seconds
        finally:
            ray.shutdown()
            cluster.shutdown()

    return search


def _started(seconds: float) -> None:
    time.sleep(seconds)


def pynndescent(rows: FloatArray, k: int) -> tuple[Int64Array, float]:
    """Run nearest-neighbour descent, with umap-learn's settings."""
    from pynndescent import NNDescent

    trees, iterations = min(64, 5 + round(len(rows) ** 0.5 / 20.0)), max(5, round(np.log2(len(rows))))
    graph = NNDescent(
        rows,
        n_neighbors=k + 1,
        n_trees=trees,
        n_iters=iterations,
        max_candidates=60,
        n_jobs=cores(),
        random_state=0,
    ).neighbor_graph[0]
    return np.asarray(graph[:, 1:], np.int64), float("nan")


def faiss_hnsw(rows: FloatArray, k: int) -> tuple[Int64Array, float]:
    """Search navigable small worlds with 32 links."""
    import faiss

    faiss.omp_set_num_threads(cores())
    index = faiss.IndexHNSWFlat(rows.shape[1], 32)
    index.hnsw.efSearch = 64
    index.add(rows)
    return index.search(rows, k + 1)[1][:, 1:], float("nan")


def faiss_ivf(rows: FloatArray, k: int) -> tuple[Int64Array, float]:
    """Search inverted files, with the numbers of lists and probes of the cells."""
    import faiss

    looked_at = neighbors_by_cells(Points(rows), k, recall=RECALL).looked_at
    began = time.perf_counter()
    faiss.omp_set_num_threads(cores())
    lists = len(rows) // CELL_ROWS
    quantizer = faiss.IndexFlatL2(rows.shape[1])
    index = faiss.IndexIVFFlat(quantizer, rows.shape[1], lists)
    index.train(rows)
    index.add(rows)
    index.nprobe = max(1, round(looked_at * lists))
    found = index.search(rows, k + 1)[1][:, 1:]
    return found, time.perf_counter() - began


def usearch(rows: FloatArray, k: int) -> tuple[Int64Array, float]:
    """Search navigable small worlds with usearch's defaults."""
    from usearch.index import Index

    index = Index(ndim=rows.shape[1], metric="l2sq", dtype="f32")
    index.add(np.arange(len(rows)), rows, threads=cores())
    keys = index.search(rows, k + 1, threads=cores()).keys
    return np.asarray(keys[:, 1:], np.int64), float("nan")


WAYS: dict[str, tuple[str, Callable[[FloatArray, int], tuple[Int64Array, float]]]] = {
    "exact": ("numpy", exact),
    "cells": ("numpy", cells),
    "2 nodes": ("ray", on_nodes(2)),
    "3 nodes": ("ray", on_nodes(3)),
    "pynndescent": ("pynndescent", pynndescent),
    "faiss HNSW": ("faiss", faiss_hnsw),
    "faiss IVF": ("faiss", faiss_ivf),
    "usearch": ("usearch", usearch),
}
"""Algorithms by name, with the package that each needs."""


def judged(ways: Sequence[str], data: str, rows: int, k: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Measure seconds and recall of algorithms, in turns."""
    table = rows_of(data, rows)
    own = np.sort(np.random.default_rng(0).choice(len(table), JUDGED, replace=False))
    true = search_rows(Points(table), own, k, 512)[0][:, :k]
    for way in ways:
        WAYS[way][1](table[: 3 * CELL_ROWS], k)  # compile first, outside the clock
    for way in [*ways] * repeats:
        began = time.perf_counter()
        indices, measure = WAYS[way][1](table, k)
        seconds = measure if way in TIMED else time.perf_counter() - began
        kept = [len(np.intersect1d(indices[row], nearest)) for row, nearest in zip(own, true, strict=True)]
        figures = {"way": way, "s": seconds, "recall": float(np.mean(kept)) / k}
        yield figures | ({"looked_at": measure} if way == "cells" else {})


def measured(ways: Sequence[str], data: str, rows: int, k: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Measure algorithms in a separate process, with its peak memory."""
    arguments = ["--side", "--ways", *ways, "--data", data, "--rows", str(rows), "--k", str(k)]
    arguments += ["--repeats", str(repeats)]
    for line, memory in printed_lines("benchmarks.neighbors", *arguments, timeout_s=LIMIT_S, interval_s=1.0):
        yield json.loads(line) | {"memory_mb": memory}


def main() -> None:
    """Measure, print a table, and write the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.neighbors",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="10,000 rows")
    parser.add_argument("--data", nargs="+", choices=["mixture", "mnist"], default=["mixture"])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--k", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--side", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        for turn in judged(options.ways, options.data[0], options.rows, options.k, options.repeats):
            print(json.dumps(turn), flush=True)
        return
    if options.quick:
        options.rows, options.ways = 10_000, ["exact", "cells", "pynndescent"]
    there = [way for way in options.ways if importlib.util.find_spec(WAYS[way][0])]
    absent = sorted({WAYS[way][0] for way in options.ways} - {WAYS[way][0] for way in there})
    if absent:
        print(f"not installed, so skipped: {', '.join(absent)}")
    figures: dict[str, Any] = {}
    ratios: dict[str, float] = {}
    for data in options.data:
        runs: dict[str, list[dict[str, float]]] = {way: [] for way in there}
        processes = (
            [(there, options.repeats)] if options.quick else [([way], 1) for way in there] * options.repeats
        )
        for ways, turns in processes:
            for run in measured(ways, data, options.rows, options.k, turns):
                runs[run.pop("way")].append(run)
        print(
            f"{data}, {options.rows:,} rows, k = {options.k}, {cores()} threads, medians of {options.repeats}"
        )
        print(f"{'':<14}{'s':>10}{'recall':>10}{'MB':>10}")
        for way, found in runs.items():
            middle = {name: statistics.median(run[name] for run in found) for name in found[0]}
            print(f"{way:<14}{middle['s']:>10.2f}{middle['recall']:>10.4f}{middle['memory_mb']:>10.0f}")
            figures |= {f"{data}.{way}.{name}": round(value, 4) for name, value in middle.items()}
        for way in set(there) - {"cells"} if "cells" in there else ():
            pairs = zip(runs["cells"], runs[way], strict=True)
            ratios[f"{data}.cells/{way}"] = round(
                statistics.median(ours["s"] / theirs["s"] for ours, theirs in pairs), 4
            )
    if options.json is not None:
        options.json.write_text(json.dumps({"figures": figures, "ratios": ratios}, indent=2) + "\n")


if __name__ == "__main__":
    main()
