"""The whole federated pipeline against openTSNE on the pooled rows: seconds and peak memory.

    python -m benchmarks.fed_tsne [--quick] [--rows N] [--repeats N] [--json FILE]

Both get the same MNIST rows in memory and the same threads, in separate processes, in turn. ``federated``
does what ``raydr run mnist-fed-tsne`` does between reading the data and the metrics: start Ray, send each of
10 clients its rows, learn 500 landmarks in 50 rounds, trilaterate, search neighbours, run t-SNE. ``openTSNE``
is its own ``TSNE(n_jobs=threads).fit(rows)``. ``--quick`` uses 5,000 rows and a tenth of all iterations and
rounds in both. It only shows that the benchmark runs, because the start of Ray then takes most of the time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np

from raydr.arrays import FloatArray
from raydr.threads import cores

CLIENTS, LANDMARKS, ROUNDS = 10, 500, 50
EARLY, LATE = 250, 500


def rows_of_mnist(count: int) -> FloatArray:
    """Return a seeded sub-sample of MNIST, (count, 784) float32."""
    from raydr.data import load

    return load(source="mnist", rows=count).rows


def federated(rows: FloatArray, early: int, late: int) -> dict[str, float]:
    """Measure seconds and peak memory of the federated pipeline."""
    from raydr.actors.backend import ray_backend
    from raydr.journal import Journal
    from raydr.memory import peak_memory_bytes
    from raydr.methods.landmarks.maps import FedTSNE
    from raydr.methods.serving import Plan

    rounds = ROUNDS * late // LATE
    settings = FedTSNE(landmarks=LANDMARKS, rounds=rounds, early_iterations=early, iterations=late)
    partitions = np.array_split(rows, CLIENTS)
    journal = Journal()
    started = time.perf_counter()
    with ray_backend(None, cores(), 600.0) as backend:
        connected = time.perf_counter()
        backend.serve(
            partitions,
            Plan(method="fed-tsne", settings=settings, scale="none", seed=0),
            listener=journal.tell,
        )
        seconds = time.perf_counter() - started
    peak = max(peak_memory_bytes(), *backend.peak_memory_bytes.values())
    stages = {f"stage.{name}_s": value for name, value in journal.seconds.items()}
    return {"s": seconds, "start_s": connected - started, "peak_mb": peak / 2**20, **stages}


def pooled(rows: FloatArray, early: int, late: int) -> dict[str, float]:
    """Measure seconds and peak memory of openTSNE on all rows."""
    import openTSNE

    from raydr.memory import peak_memory_bytes

    started = time.perf_counter()
    openTSNE.TSNE(n_jobs=cores(), random_state=0, early_exaggeration_iter=early, n_iter=late).fit(rows)
    return {"s": time.perf_counter() - started, "peak_mb": peak_memory_bytes() / 2**20}


SIDES = {"federated": federated, "openTSNE": pooled}


def measure(side: str, rows: int, early: int, late: int) -> dict[str, float]:
    """Run one side in a fresh process, and also watch the peak of its largest process from outside."""
    import psutil

    arguments = ["--side", side, "--rows", str(rows), "--iterations", str(early), str(late)]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.fed_tsne", *arguments],
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},
        text=True,
    )
    largest = [0]

    def watch() -> None:
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                tree = [watched, *watched.children(recursive=True)]
                largest[0] = max(largest[0], *(member.memory_info().rss for member in tree))
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                pass
            time.sleep(0.2)

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    watcher.join()
    if process.returncode:
        raise SystemExit(f"{side} ended with exit status {process.returncode}")
    figures: dict[str, float] = json.loads(output.splitlines()[-1])
    return figures | {"peak_mb": max(figures["peak_mb"], largest[0] / 2**20)}


def main() -> None:
    """Measure both sides in turn and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--iterations", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = options.rows or (5_000 if options.quick else 40_000)
    early, late = options.iterations or ((EARLY // 10, LATE // 10) if options.quick else (EARLY, LATE))
    if options.side:
        print(json.dumps(SIDES[options.side](rows_of_mnist(rows), early, late)))
        return
    runs: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(options.repeats):
        for side in SIDES:
            runs[side].append(measure(side, rows, early, late))
    figures = {
        f"{side}.{name}": statistics.median(run[name] for run in results)
        for side, results in runs.items()
        for name in results[0]
    }
    paired = zip(runs["federated"], runs["openTSNE"], strict=True)
    ratio = statistics.median(ours["s"] / theirs["s"] for ours, theirs in paired)
    print(f"MNIST, {rows:,} rows, {cores()} threads, medians of {options.repeats}")
    for name, value in figures.items():
        print(f"{name:<36}{value:10.2f}")
    print(f"{'federated / openTSNE':<36}{ratio:10.2f}")
    if options.json:
        content: dict[str, Any] = {"figures": figures, "ratios": {"federated/openTSNE": ratio}}
        with open(options.json, "w") as file:
            json.dump(content, file, indent=2)


if __name__ == "__main__":
    main()
