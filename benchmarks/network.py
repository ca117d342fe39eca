"""Time of each method's messages on lines of 10 Mbit/s and 50 ms, as raydr plan counts it.

    python -m benchmarks.network [--quick] [--rows N] [--up MBIT] [--down MBIT] [--latency MS] [--json FILE]

MNIST, dealt evenly to ten sites with the same line. ``trips`` are the calls that wait for all sites. ``MB`` go to and
from one site. ``s`` is the time of the messages, ``secure s`` with secure aggregation. ``--quick`` plans for digits.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raydr.scenarios.planning.plan import RunPlan, plan_of_scenario
from raydr.scenarios.schema.reading import read

SITES = 10
METHODS: Mapping[str, Mapping[str, Any]] = {
    "fed-pca": {},
    "fed-umap": {},
    "fed-spectral": {"clusters": 10},
    "sense": {},
    "dsne": {},
    "fedne": {},
    "fedavg-ne": {},
    "private-map": {"epsilon": 1.0, "clip": 2550},
}
UNLIMITED = 1e12
"""Bandwidth at which only latency remains, in Mbit/s."""


def planned(kind: str, data: Mapping[str, Any], line: Mapping[str, float], secure: bool = False) -> RunPlan:
    """Return the plan of a method on ten equal lines."""
    scenario: dict[str, Any] = {
        "name": "lines",
        "data": data,
        "clients": {"count": SITES},
        "method": {"kind": kind, **METHODS[kind]},
        "privacy": {"secure_aggregation": secure},
        "network": line,
        "metrics": [],
    }
    return plan_of_scenario(read(scenario))


def seconds(plan: RunPlan) -> float:
    """Return the time of a plan's messages."""
    if plan.network_seconds is None:
        raise ValueError(f"the messages of {plan.method} are not known in advance")
    return plan.network_seconds


def main() -> None:
    """Print one line for each method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="digits instead of MNIST")
    parser.add_argument("--rows", type=int, default=60_000, help="rows of MNIST")
    parser.add_argument("--up", type=float, default=10.0, help="Mbit/s from a site")
    parser.add_argument("--down", type=float, default=10.0, help="Mbit/s to a site")
    parser.add_argument("--latency", type=float, default=50.0, help="ms of a round trip")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    data = {"source": "digits"} if options.quick else {"source": "mnist", "rows": options.rows}
    line = {"up_mbit_s": options.up, "down_mbit_s": options.down, "latency_ms": options.latency}
    trip = {"up_mbit_s": UNLIMITED, "down_mbit_s": UNLIMITED, "latency_ms": 1000.0}
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    print(
        "| method | trips | MB to a site | MB from a site | s | secure s |\n| --- | --- | --- | --- | --- | --- |"
    )
    for kind in METHODS:
        plan, secure = planned(kind, data, line), planned(kind, data, line, secure=True)
        found = {
            "trips": float(round(seconds(planned(kind, data, trip)))),
            "down_mb": plan.bytes_down / SITES / 1e6,
            "up_mb": plan.bytes_up / SITES / 1e6,
            "s": seconds(plan),
            "secure_s": seconds(secure),
        }
        figures |= {f"{kind}.{name}": float(f"{value:.5g}") for name, value in found.items()}
        ratios[f"{kind}: with secure sums"] = found["secure_s"] / found["s"]
        print(
            f"| {kind} | {found['trips']:,.0f} | {found['down_mb']:.3g} | {found['up_mb']:.3g} | {found['s']:,.1f}"
            f" | {found['secure_s']:,.1f} |"
        )
    if options.json:
        options.json.write_text(json.dumps({"figures": figures, "ratios": ratios}, indent=1) + "\n")


if __name__ == "__main__":
    main()
