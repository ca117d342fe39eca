"""Overhead of a sweep: against a bare Ray Tune loop over the same function, and the memory of its driver.

Run ``python -m benchmarks.sweep``: a quarter of an hour. With ``--quick``: fewer trials, within a minute.

Each trial is one run of a tiny scenario (iris, three clients, inline) into its own folder. The bare loop is
``tune.Tuner(...).fit()`` over a function that does only that, with the same placement groups and reused
processes, and stores nothing. The sweep collects folders, writes its ledger after each trial, and its tables
at the end. Its page, made once, is timed separately. Both run in the same Ray, in turns, and the overhead is
the median over turns. Then the driver's resident memory is measured along a longer sweep.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from ray import tune

from raydr.actors.cluster import connected
from raydr.journal import Event, StageStarted, TrialEnded
from raydr.scenarios import runner
from raydr.scenarios.schema.reading import read
from raydr.tune.reading import read_sweep
from raydr.tune.sweeping import sweep

_BASE: dict[str, Any] = {
    "name": "tiny",
    "data": {"source": "iris"},
    "clients": {"count": 3},
    "method": {"kind": "fed-tsne", "landmarks": 12, "rounds": 2, "early_iterations": 5, "iterations": 5},
    "runtime": {"federation": "inline", "checkpoint_every": 0},
    "metrics": ["npa_10"],
}


def bare(trials: int) -> float:
    """Return the seconds of a bare Tune loop."""

    def trainable(config: dict[str, Any]) -> None:
        place = Path(tempfile.mkdtemp(prefix="bare-"))
        try:
            run = runner.run(read(_BASE, {"seed": config["seed"]}), out=place / "run", report=False)
            metrics = json.loads((run / "metrics.json").read_text())["federated"]
        finally:
            shutil.rmtree(place, ignore_errors=True)
        tune.report(metrics)

    with tempfile.TemporaryDirectory() as storage:
        began = time.perf_counter()
        found = tune.Tuner(
            tune.with_resources(trainable, tune.PlacementGroupFactory([{"CPU": 1.0}])),
            param_space={"seed": tune.grid_search(list(range(trials)))},
            tune_config=tune.TuneConfig(reuse_actors=True),
            run_config=tune.RunConfig(storage_path=storage, verbose=0),
        ).fit()
        seconds = time.perf_counter() - began
    if found.num_errors or len(found) != trials:
        raise RuntimeError(f"of {trials} bare trials {found.num_errors} failed")
    return seconds


def swept(trials: int) -> tuple[float, float, list[float]]:
    """Return the seconds of a sweep until its tables, those of its page, and the driver's MB after each trial."""
    settings = read_sweep(
        {"name": "tiny", "base": _BASE, "space": {"seed": list(range(trials))}, "trial": {"report": False}}
    )
    memory: list[float] = []
    paged = 0.0

    def hear(event: Event) -> None:
        nonlocal paged
        if isinstance(event, TrialEnded):
            if event.status != "done":
                raise RuntimeError(f"a trial failed: {event.outcome}")
            memory.append(psutil.Process().memory_info().rss / 1e6)
        if isinstance(event, StageStarted) and event.stage == "page":
            paged = time.perf_counter()

    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        sweep(settings, out=Path(folder) / "swept", listener=hear)
        ended = time.perf_counter()
    return paged - began, ended - paged, memory


def main() -> None:
    """Print a table, and write the figures if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    trials, repeats, long = (12, 1, 0) if arguments.quick else (200, 3, 1000)
    figures: dict[str, float] = {}
    with connected():
        bare(2)  # warm up both sides
        swept(2)
        times: dict[str, list[float]] = {"bare": [], "sweep": [], "page": []}
        for _ in range(repeats):
            times["bare"].append(bare(trials))
            seconds, page, _ = swept(trials)
            times["sweep"].append(seconds)
            times["page"].append(page)
            print(
                f"{trials} trials: " + ", ".join(f"{name} {took[-1]:.2f} s" for name, took in times.items())
            )
        figures |= {f"{name}_s": statistics.median(took) for name, took in times.items()}
        if long:
            _, _, memory = swept(long)
            for part in (0.1, 0.5, 1.0):
                figures[f"driver_mb_after_{int(part * long)}"] = memory[int(part * long) - 1]
    turns = [swept_s / bare_s - 1.0 for swept_s, bare_s in zip(times["sweep"], times["bare"], strict=True)]
    ratios = {"overhead": statistics.median(turns)}
    if long:
        ratios["driver_growth"] = (
            figures[f"driver_mb_after_{long}"] / figures[f"driver_mb_after_{long // 10}"]
        )
    for name, value in (figures | ratios).items():
        print(f"{name:24} {value:10.3f}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"figures": figures, "ratios": ratios}, indent=2) + "\n")


if __name__ == "__main__":
    main()
