"""Quality of a map against the bytes of all its messages, for all methods without noise on the same patients.

    python -m benchmarks.message_bytes [--quick] [--only NAME ...] [--seeds 0 1 2] [--json FILE] [--picture FILE]

The data are heart disease (``heart_disease.npz`` in ``$RAYDR_DATA``): 825 of 920 patients in four hospitals, drawn by
the seed, columns with variance 1. ``mb`` counts all messages in both directions, as the run's ledger does.
``npa_10``, ``trustworthiness`` and ``ca_10`` are those of the 825 patients. ``new_accuracy`` is the share of the others
whose diagnosis is that of most of their 7 nearest mapped patients, for methods whose encoder or axes place new rows.
Methods have default settings, except those in a line's name; ``64 bits`` is ``update_bits: 64``.
Fed-SpeClust has Fed-tSNE's map, and dSNE needs public rows, so they are left out. ``--picture`` draws trustworthiness
against megabytes. ``--quick`` has 5 rounds of FedNE at 16 and 64 bits.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from raydr.arrays import FloatArray, Int64Array
from raydr.methods import METHODS
from raydr.methods.serving import Plan
from raydr.metrics import Evidence, evaluate
from raydr.scenarios.running.backend import InlineBackend

MAPPED, CLIENTS = 825, 4
MEASURES = "npa_10", "trustworthiness", "ca_10"
EXACT = "fedne, 3 x 128 units, 64 bits"
LARGE: dict[str, Any] = {"hidden": (128, 128, 128)}
SMALL: dict[str, Any] = {"hidden": (64, 64)}
MOMENTUM: dict[str, Any] = {"rounds": 100, "local_steps": 5, "server_optimizer": "nesterov"}


@dataclass(frozen=True)
class Line:
    """One line of the comparison: a method, its settings, and whether its model alone places new rows."""

    kind: str
    options: dict[str, Any] = field(default_factory=dict)
    places: bool = True


LINES: dict[str, Line] = {
    EXACT: Line("fedne", LARGE | {"update_bits": 64}),
    "fedne, 3 x 128 units": Line("fedne", LARGE),
    "fedne, 64 + 64 units": Line("fedne", SMALL),
    "fedne": Line("fedne"),
    "fedne, 64 + 64 units, 100 rounds with momentum": Line("fedne", SMALL | MOMENTUM),
    "fedavg-ne": Line("fedavg-ne"),
    "landmark-ne": Line("landmark-ne"),
    "global-ne": Line("global-ne"),
    "fed-pca": Line("fed-pca"),
    "fed-tsne": Line("fed-tsne", places=False),
    "fed-umap": Line("fed-umap", places=False),
    "sense": Line("sense", places=False),
}
QUICK: dict[str, Line] = {
    EXACT: Line("fedne", LARGE | {"update_bits": 64, "rounds": 5}),
    "fedne": Line("fedne", {"rounds": 5}),
}


@dataclass(frozen=True)
class Patients:
    """Mapped rows of each hospital with their classes, and the other rows."""

    parts: list[FloatArray]
    labels: Int64Array
    others: FloatArray
    other_labels: Int64Array


def patients(seed: int) -> Patients:
    """Return the patients, with other rows left out for each seed."""
    content = np.load(Path(os.environ["RAYDR_DATA"]) / "heart_disease.npz", allow_pickle=False)
    rows = content["X"].astype(np.float64)
    rows = ((rows - rows.mean(axis=0)) / rows.std(axis=0)).astype(np.float32)
    order = np.random.default_rng(seed).permutation(len(rows))
    others, mapped = order[MAPPED:], order[:MAPPED]
    own = [mapped[content["client"][mapped] == client] for client in range(CLIENTS)]
    labels = content["y"].astype(np.int64)
    return Patients([rows[part] for part in own], labels[np.concatenate(own)], rows[others], labels[others])


def measured(line: Line, seed: int) -> dict[str, float]:
    """Run one line and measure its map and its messages."""
    found, settings = patients(seed), METHODS[line.kind].settings(**line.options)
    plan = Plan(method=line.kind, settings=settings, scale="none", seed=seed)
    served = InlineBackend().serve(found.parts, plan, listener=lambda event: None)
    map_of = Evidence(
        rows=np.concatenate(found.parts), embedding=served.outcome.embedding, labels=found.labels
    )
    figures = {name: float(value) for name, value in evaluate(MEASURES, map_of).values.items()}
    figures["mb"] = (served.ledger.bytes("up") + served.ledger.bytes("down")) / 1e6
    if line.places:
        places = np.asarray(settings.transform(served.outcome.model, found.others))
        new = Evidence(rows=places, embedding=places, labels=found.other_labels)
        mapped = Evidence(
            rows=served.outcome.embedding, embedding=served.outcome.embedding, labels=found.labels, new=new
        )
        figures["new_accuracy"] = float(evaluate(("knn_accuracy",), mapped).values["knn_accuracy"])
    return figures


def draw(means: dict[str, dict[str, float]], file: Path) -> None:
    """Draw trustworthiness against megabytes, one point for each line."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, line in means.items():
        axes.plot(line["mb"], line["trustworthiness"], "o", color="C0" if name.startswith("fedne") else "C7")
        left = (
            name in ("fedne", "fedavg-ne", "sense") or "momentum" in name or "128" in name
        )  # labels that would overlap
        axes.annotate(
            name,
            (line["mb"], line["trustworthiness"]),
            xytext=(-6 if left else 6, -9 if name == "fedne, 3 x 128 units" else -3),
            ha="right" if left else "left",
            textcoords="offset points",
            fontsize=8,
        )
    axes.set(xscale="log", xlabel="megabytes of all messages", ylabel="trustworthiness")
    axes.margins(x=0.25, y=0.1)
    axes.grid(alpha=0.3)
    figure.savefig(file, dpi=110)


def main() -> None:
    """Print the table and write the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.message_bytes", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--quick", action="store_true", help="5 rounds of FedNE at 16 and 64 bits")
    parser.add_argument("--only", nargs="+", choices=LINES, help="lines to measure")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--json", type=Path, help="also write figures and ratios to this file")
    parser.add_argument("--picture", type=Path, help="also draw trustworthiness against megabytes, as PNG")
    options = parser.parse_args()
    lines = QUICK if options.quick else {name: LINES[name] for name in options.only or LINES}
    seeds = [0] if options.quick else options.seeds
    figures: dict[str, float] = {}
    means: dict[str, dict[str, float]] = {}
    columns = (*MEASURES, "new_accuracy", "mb")
    print("| method | " + " | ".join(columns) + " |", flush=True)
    print("| --- |" + " ---: |" * len(columns), flush=True)
    for name, line in lines.items():
        runs = [measured(line, seed) for seed in seeds]
        means[name] = {key: statistics.mean(run[key] for run in runs) for key in runs[0]}
        for seed, run in zip(seeds, runs, strict=True):
            figures |= {f"{name}.{seed}.{key}": value for key, value in run.items()}
        figures |= {f"{name}.mean.{key}": value for key, value in means[name].items()}
        if len(runs) > 1:
            spread = {key: statistics.stdev(run[key] for run in runs) for key in runs[0]}
            figures |= {f"{name}.deviation.{key}": value for key, value in spread.items()}
        cells = (f"{means[name][key]:.3f}" if key in means[name] else "" for key in columns)
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    ratios = {}
    if {"fedne", EXACT} <= means.keys():
        ratios["bytes saved"] = means[EXACT]["mb"] / means["fedne"]["mb"]
    if options.json is not None:
        options.json.write_text(json.dumps({"figures": figures, "ratios": ratios}, indent=2) + "\n")
    if options.picture is not None:
        draw(means, options.picture)


if __name__ == "__main__":
    main()
