"""Cost of a run against rows, features, landmarks, clients, cores and nodes: exponents, and the plan's error.

    python -m benchmarks.curves [--quick] [--axes rows features ...] [--methods fed-umap ...] [--json FILE]

One of these changes at a time, starting from 12,000 rows of 50 features (the mixture of
:mod:`benchmarks.million`) at 10 clients on all cores of one node. `landmarks` also stands for SENSE's
anchors. Both use 200 features, and Fed-UMAP learns its landmarks in 20 rounds there. FedNE trains for 10
rounds. Metrics are only NPA-10, except along `rows`. `nodes` are Ray's raylets on this machine, which share
its cores. Each run has its own process and runs once: total seconds and seconds by stage, the peak memory of
all processes, and the prediction of ``raydr plan``. An exponent is the slope of a straight line through
logarithms, for values of at least half a second at the largest point. Figures: ``METHOD.AXIS=VALUE.s``,
``.memory_mb``, ``.stage.NAME_s``, ``.plan_s``, and ``METHOD.AXIS.exponent.WHAT``. Ratios are the error
factors of the plan, in either direction. ``--quick`` runs Fed-UMAP on 2,000 and 8,000 rows.

``--million ROWS=FILE ...`` runs nothing: it computes exponents of rows from figures of
:mod:`benchmarks.million`. ``--plan-again FILE`` runs nothing either: it replaces the plans in FILE with the
current ones.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.million import METRICS, labelled_mixture
from benchmarks.processes import printed_lines
from raydr.threads import cores

BASE = {"rows": 12_000, "features": 50, "clients": 10}
AXES: dict[str, tuple[int, ...]] = {
    "rows": (12_000, 40_000, 120_000),
    "features": (50, 200, 800),
    "landmarks": (100, 400, 1600),
    "clients": (10, 100, 1000),
    "cores": (1, 2),
    "nodes": (1, 2),
}
METHODS: dict[str, dict[str, Any]] = {
    "fed-umap": {"kind": "fed-umap"},
    "fed-tsne": {"kind": "fed-tsne"},
    "sense": {"kind": "sense", "embedder": "umap"},
    "fedne": {"kind": "fedne", "rounds": 10},
}
MEASURED = {
    "rows": ("fed-umap", "fed-tsne", "sense", "fedne"),
    "features": ("fed-umap", "sense", "fedne"),
    "landmarks": ("fed-umap", "sense"),
    "clients": ("fed-umap", "sense", "fedne"),
    "cores": ("fed-umap", "fed-tsne"),
    "nodes": ("fed-umap", "fedne"),
}
LEAST_S = 0.5
"""Seconds at the largest value below which a stage has no exponent."""
TIMEOUT_S = 1800.0


def scenario_of(method: str, axis: str, value: int, data: Path) -> dict[str, Any]:
    """Return the scenario to run."""
    settings = dict(METHODS[method])
    if axis == "landmarks" and method == "sense":
        settings["anchors"] = value
    elif axis == "landmarks":
        settings |= {"landmarks": value, "landmarks_from": "learnt", "rounds": 20}
    return {
        "name": f"{method}-{axis}-{value}",
        "data": {"path": str(data), "label": "class"},
        "clients": {"count": value if axis == "clients" else BASE["clients"]},
        "method": settings,
        "metrics": METRICS if axis == "rows" else ["npa_10"],
    }


@contextmanager
def nodes_of(axis: str, value: int) -> Iterator[str | None]:
    """Yield the address of a cluster of raylets that share this machine's cores, or None if no cluster is needed."""
    if axis != "nodes":
        yield None
        return
    from ray.cluster_utils import Cluster

    each = {"num_cpus": max(1, cores() // value)}
    cluster = Cluster(initialize_head=True, head_node_args={**each, "include_dashboard": False})
    for _ in range(value - 1):
        cluster.add_node(**each)
    try:
        yield cluster.address
    finally:
        cluster.shutdown()


def one(method: str, axis: str, value: int, data: Path, folder: Path) -> dict[str, float]:
    """Run once in this process, with the prediction of its plan."""
    if axis == "cores":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:value])
    import raydr

    scenario = scenario_of(method, axis, value, data)
    planned = plan_of(method, axis, value, data)
    with nodes_of(axis, value) as address:
        began = time.perf_counter()
        raydr.run(scenario, out=folder, address=address)
        seconds = time.perf_counter() - began
    environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    found = {"s": seconds} | {f"stage.{stage}_s": taken for stage, taken in environment["seconds"].items()}
    found |= {f"peak.{name}_mb": peak / 2**20 for name, peak in environment["peak_memory_bytes"].items()}
    return found | planned


def plan_of(method: str, axis: str, value: int, data: Path) -> dict[str, float]:
    """Return the prediction of ``raydr plan``: seconds in total and by stage, and the peak of each process."""
    from raydr.actors.capacity import imagined
    from raydr.scenarios.planning.plan import plan_of_scenario
    from raydr.scenarios.schema.reading import read

    nodes, there = (value if axis == "nodes" else 1), (value if axis == "cores" else cores())
    capacity = imagined(nodes, max(1, there // nodes), 16)
    planned = plan_of_scenario(read(scenario_of(method, axis, value, data)), capacity=capacity)
    found = {"plan_s": planned.seconds}
    found |= {f"plan.stage.{stage.stage}_s": stage.seconds for stage in planned.stages}
    return found | {f"plan.peak.{process.process}_mb": process.bytes / 2**20 for process in planned.memory}


def planned_again(figures: dict[str, float], ratios: dict[str, float], scratch: Path) -> None:
    """Replace the plans of measured runs with the current ones."""
    points = {name.removesuffix(".s") for name in figures if re.fullmatch(r"[^.]+\.\w+=\d+\.s", name)}
    for name in sorted(points):
        method, axis, value = name.partition(".")[0], *name.partition(".")[2].split("=")
        found = plan_of(method, axis, int(value), data_of(axis, int(value), scratch))
        for old in [key for key in figures if key.startswith(f"{name}.plan")]:
            del figures[old]
        figures |= {f"{name}.{figure}": round(seconds, 4) for figure, seconds in found.items()}
        taken, planned = figures[f"{name}.s"], found["plan_s"]
        ratios[f"off.{name}"] = round(max(taken / planned, planned / taken), 3)
        print(f"{name:<30}{taken:>10.1f} s, planned {planned:.1f}")


def exponents(found: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    """Return the slopes of the values measured along an axis."""
    values = sorted(found)
    largest = found[values[-1]]
    names = ["s", "memory_mb", *(name for name in largest if name.startswith("stage."))]
    slopes = {}
    for name in names:
        taken = [found[value].get(name, 0.0) for value in values]
        if min(taken) <= 0 or (name != "memory_mb" and max(taken) < LEAST_S):
            continue
        slopes[name] = float(np.polyfit(np.log(values), np.log(taken), 1)[0])
    return slopes


def of_million(files: Sequence[str]) -> dict[str, float]:
    """Return exponents of rows, from figures of :mod:`benchmarks.million`, for methods that every size has."""
    found: dict[str, dict[int, dict[str, float]]] = {method: {} for method in METHODS}
    for each in files:
        rows, _, file = each.partition("=")
        for name, value in json.loads(Path(file).read_text(encoding="utf-8"))["figures"].items():
            method, _, figure = name.partition(".")
            if method in found:
                found[method].setdefault(int(rows), {})[figure] = value
    sizes = {int(each.partition("=")[0]) for each in files}
    return {
        f"{method}.rows.exponent.{what}": round(slope, 3)
        for method, by_rows in found.items()
        if set(by_rows) == sizes
        for what, slope in exponents(by_rows).items()
    }


def data_of(axis: str, value: int, scratch: Path) -> Path:
    """Return the data file of a run, made once."""
    size = BASE | ({axis: value} if axis in BASE else {})
    features = 200 if axis == "landmarks" else size["features"]
    data = scratch / f"{size['rows']}x{features}.parquet"
    if not data.exists():
        labelled_mixture(data, size["rows"], features)
    return data


def measured(method: str, axis: str, value: int, scratch: Path) -> dict[str, float]:
    """Run once in a separate process."""
    data = data_of(axis, value, scratch)
    folder = scratch / f"run-{time.monotonic_ns()}"
    arguments = ["--side", method, axis, str(value), str(data), str(folder)]
    lines = list(printed_lines("benchmarks.curves", *arguments, timeout_s=TIMEOUT_S, interval_s=0.5))
    figures: dict[str, float] = json.loads(lines[-1][0])
    return figures | {"memory_mb": max(memory for _, memory in lines)}


def main() -> None:
    """Measure, print tables, and write the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.curves",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="Fed-UMAP of 2,000 and 8,000 rows")
    parser.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument(
        "--million", nargs="+", metavar="ROWS=FILE", help="compute exponents from existing figures"
    )
    parser.add_argument(
        "--plan-again", type=Path, metavar="FILE", help="update the plans of existing figures"
    )
    parser.add_argument("--side", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side is not None:
        method, axis, value, data, folder = options.side
        print(json.dumps(one(method, axis, int(value), Path(data), Path(folder))))
        return
    axes = AXES
    if options.quick:
        options.axes, options.methods, axes = ["rows"], ["fed-umap"], {"rows": (2_000, 8_000)}
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    if options.million is not None:
        figures, options.axes = of_million(options.million), []
        for name, slope in figures.items():
            print(f"{name:<60}{slope:>8.2f}")
    if options.plan_again is not None:
        there = json.loads(options.plan_again.read_text(encoding="utf-8"))
        figures, ratios, options.axes = there["figures"], there["ratios"], []
        with tempfile.TemporaryDirectory() as folder:
            planned_again(figures, ratios, Path(folder))
    print(f"{cores()} cores; once each")
    with tempfile.TemporaryDirectory() as folder:
        for axis in options.axes:
            for method in (method for method in MEASURED[axis] if method in options.methods):
                print(f"{method}, {axis}", flush=True)
                found = {}
                for value in axes[axis]:
                    found[value] = taken = measured(method, axis, value, Path(folder))
                    name = f"{method}.{axis}={value}"
                    figures |= {f"{name}.{figure}": round(seconds, 4) for figure, seconds in taken.items()}
                    off = max(taken["s"] / taken["plan_s"], taken["plan_s"] / taken["s"])
                    ratios[f"off.{name}"] = round(off, 3)
                    print(
                        f"  {value:>8,}{taken['s']:>10.1f} s, planned {taken['plan_s']:.1f}"
                        f"{taken['memory_mb']:>10.0f} MB",
                        flush=True,
                    )
                for what, slope in exponents(found).items():
                    figures[f"{method}.{axis}.exponent.{what}"] = round(slope, 3)
                    print(f"    {what:<40}{slope:>8.2f}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps({"figures": figures, "ratios": ratios}, indent=2) + "\n")


if __name__ == "__main__":
    main()
