"""Width and weight decay of FedNE's encoder: quality of the map, new rows, and bytes of messages.

    python -m benchmarks.fedne_widths [--quick] [--data NAME ...] [--only WIDTHS ...] [--decay 0 0.001] [--rounds N]
                                      [--seeds 0 1 2] [--json FILE]

Each encoder is measured on the same rows: 100 rounds of 5 batches with momentum. A seed draws held-out rows, partition
and all random numbers of a run. ``pooled`` is the encoder that all rows train in one place, with layers of 128.
``npa_10``, ``trustworthiness`` and ``ca_10`` are those of the mapped rows. ``new_accuracy`` is the share of the held-
out rows with the class of most of their 7 nearest mapped rows, and ``new_trustworthiness`` is that of the held-out
rows' own map, with 7 neighbours. ``mb`` counts all messages in both directions, ``seconds`` those of the processor.
Clients train as one computation (``batch_clients``).

With ``--json``, runs that the file already has are not measured again, so that an interrupted command continues.
``--quick`` has 2 rounds on heart disease.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.partitions import DEALINGS
from raydr.arrays import Float32Array, FloatArray, Int64Array
from raydr.data import Table
from raydr.journal import Journal
from raydr.methods.fedne.fedne import FedNE
from raydr.methods.serving import Plan
from raydr.metrics import Evidence, evaluate
from raydr.scenarios.running.backend import InlineBackend

MEASURES = "npa_10", "trustworthiness", "ca_10"
ROUNDS = 100
COLUMNS = (*MEASURES, "new_accuracy", "new_trustworthiness", "mb", "seconds")


@dataclass(frozen=True)
class Rows:
    """Mapped rows of each client (rows, features) float32 and held-out rows, with their classes."""

    parts: list[Float32Array]
    labels: Int64Array
    new: Float32Array
    new_labels: Int64Array


@dataclass(frozen=True)
class Source:
    """A data set: its file, how many rows are mapped and held out, and how rows are dealt.

    Attributes
    ----------
    file : str
        Name in ``$RAYDR_DATA``, or "digits" of scikit-learn.
    mapped, held_out : int
        Numbers of rows.
    clients : int
        Clients among which the rows are dealt; 0: the file's own sites.
    dealing : str
        How they are dealt (:data:`benchmarks.partitions.DEALINGS`).
    standard : bool
        Whether columns are divided by their standard deviations.
    axes : int
        Number of principal axes of the mapped rows to which all rows are reduced; 0: all columns.
    """

    file: str
    mapped: int
    held_out: int
    clients: int = 0
    dealing: str = "dirichlet-0.1"
    standard: bool = False
    axes: int = 0


SOURCES: dict[str, Source] = {
    "heart": Source("heart_disease", 825, 95, standard=True),
    "cells": Source("scrna_cell_lines_pc20", 1900, 470),
    "digits": Source("digits", 1400, 397, 10),
    "neurons": Source("scrna_worm_neuron_pc50", 2143, 600, 10),
    "mnist": Source("mnist", 2000, 2000, 10, axes=50),
    "fashion": Source("fashion_mnist", 2000, 2000, 10, axes=50),
    "mnist-6000": Source("mnist", 6000, 2000, 10, axes=50),
    "fashion-6000": Source("fashion_mnist", 6000, 2000, 10, axes=50),
}
SOURCES |= {
    f"{name}-iid": replace(SOURCES[name], dealing="iid") for name in ("digits", "neurons", "mnist", "fashion")
}
USUAL = "heart", "cells", "digits"
POOLED = "pooled"
WIDTHS = "128-128-128", "64-64", "48-48", POOLED


def rows_of(name: str, seed: int) -> Rows:
    """Return the rows of a data set, drawn and dealt by the seed."""
    source = SOURCES[name]
    if source.file == "digits":
        from sklearn.datasets import load_digits

        (table, labels), sites = load_digits(return_X_y=True), None
    else:
        content = np.load(Path(os.environ["RAYDR_DATA"]) / f"{source.file}.npz", allow_pickle=False)
        table, labels = content["X"], content["y"].astype(np.int64)
        sites = content["client"] if not source.clients else None
    random = np.random.default_rng(seed)
    order = random.permutation(len(table))[: source.mapped + source.held_out]
    mapped, others = order[: source.mapped], order[source.mapped :]
    table = table[order].reshape(len(order), -1).astype(np.float64)
    if source.standard:
        table = (table - table.mean(axis=0)) / np.maximum(table.std(axis=0), 1e-12)
    if source.axes:
        table -= table[: source.mapped].mean(axis=0)
        table = table @ np.linalg.svd(table[: source.mapped], full_matrices=False)[2][: source.axes].T
    rows, new = np.split(table.astype(np.float32), [source.mapped])
    if sites is not None:
        own = [np.flatnonzero(sites[mapped] == site) for site in np.unique(sites)]
    else:
        dealt = Table(
            name=name,
            rows=rows,
            features=tuple(map(str, range(rows.shape[1]))),
            ids=np.arange(len(rows)),
            labels=labels[mapped],
            label_names=tuple(map(str, range(labels.max() + 1))),
        )
        partition = DEALINGS[source.dealing].deal(dealt, source.clients, seed=seed)
        own = [partition.rows_of(client) for client in range(source.clients)]
    order = np.concatenate(own)
    return Rows([rows[part] for part in own], labels[mapped][order], new, labels[others])


def measured(widths: str, rows: Rows, seed: int, rounds: int, decay: float) -> dict[str, float]:
    """Run FedNE with an encoder of these widths, and measure its map, its held-out rows and its messages."""
    began = time.process_time()
    if widths == POOLED:
        pooled = FedNE(hidden=(128, 128, 128)).central({}, np.concatenate(rows.parts), seed, Journal())
        seconds = time.process_time() - began
        assert pooled.place is not None
        return judged(rows, pooled.embedding, pooled.place) | {"mb": 0.0, "seconds": seconds}
    settings = FedNE(
        hidden=tuple(map(int, widths.split("-"))),
        rounds=rounds,
        local_steps=5,
        server_optimizer="nesterov",
        weight_decay=decay,
    )
    plan = Plan(method="fedne", settings=settings, scale="none", seed=seed, batch_clients=True)
    served = InlineBackend().serve(rows.parts, plan, listener=lambda event: None)
    seconds = time.process_time() - began
    figures = judged(rows, served.outcome.embedding, partial(settings.transform, served.outcome.model))
    return figures | {
        "mb": (served.ledger.bytes("up") + served.ledger.bytes("down")) / 1e6,
        "seconds": seconds,
    }


def judged(rows: Rows, embedding: FloatArray, place: Callable[[FloatArray], FloatArray]) -> dict[str, float]:
    """Return the measures of a map (rows, 2) and of where ``place`` puts the held-out rows."""
    mapped = Evidence(rows=np.concatenate(rows.parts), embedding=embedding, labels=rows.labels)
    figures = {name: float(value) for name, value in evaluate(MEASURES, mapped).values.items()}
    places = np.asarray(place(rows.new))
    new = Evidence(rows=places, embedding=places, labels=rows.new_labels)
    both = Evidence(rows=embedding, embedding=embedding, labels=rows.labels, new=new)
    figures["new_accuracy"] = float(evaluate(("knn_accuracy",), both).values["knn_accuracy"])
    alone = Evidence(rows=rows.new, embedding=places)
    trust = evaluate(("trustworthiness_7",), alone).values["trustworthiness_7"]
    return figures | {"new_trustworthiness": float(trust)}


def line(data: str, widths: str, decay: float, rounds: int) -> str:
    """Return the name of a line's figures; the pooled encoder has neither weight decay nor rounds of the federation."""
    if widths == POOLED:
        return f"{data}.{POOLED}"
    return f"{data}.{widths}{f' decay {decay}' * bool(decay)}{f' rounds {rounds}' * (rounds != ROUNDS)}"


def summary(figures: dict[str, float], name: str, seeds: Sequence[int]) -> dict[str, float]:
    """Return means and standard deviations of a line over seeds."""
    found = {}
    for key in COLUMNS:
        values = [figures[f"{name}.{seed}.{key}"] for seed in seeds if f"{name}.{seed}.{key}" in figures]
        if values:
            found[f"{name}.mean.{key}"] = statistics.mean(values)
        if len(values) > 1:
            found[f"{name}.deviation.{key}"] = statistics.stdev(values)
    return found


def main() -> None:
    """Print a table for each data set, and write the figures after each run."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fedne_widths", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--quick", action="store_true", help="2 rounds on heart disease")
    parser.add_argument("--data", nargs="+", choices=SOURCES, default=USUAL, help="data sets")
    parser.add_argument("--only", nargs="+", choices=WIDTHS, default=WIDTHS[:3], help="widths")
    parser.add_argument("--decay", nargs="+", type=float, default=[0.0], help="weight decays")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of each run")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--json", type=Path, help="also write figures and ratios to this file, and read it first"
    )
    options = parser.parse_args()
    sources, seeds, rounds = (["heart"], [0], 2)
    if not options.quick:
        sources, seeds, rounds = options.data, options.seeds, options.rounds
    kept = options.json is not None and options.json.exists() and not options.quick
    figures: dict[str, float] = json.loads(options.json.read_text())["figures"] if kept else {}
    for data in sources:
        print(f"\n{data}: " + ", ".join(COLUMNS), flush=True)
        for widths, decay in product(options.only, options.decay):
            if widths == POOLED and decay != options.decay[0]:
                continue
            name = line(data, widths, decay, rounds)
            for seed in seeds:
                if f"{name}.{seed}.npa_10" not in figures:
                    found = measured(widths, rows_of(data, seed), seed, rounds, decay)
                    figures |= {f"{name}.{seed}.{key}": value for key, value in found.items()}
                    write(options.json, figures)
            means = summary(figures, name, seeds)
            figures |= means
            print(name, *(f"{means[f'{name}.mean.{key}']:.3f}" for key in COLUMNS), flush=True)
    write(options.json, figures)


def write(file: Path | None, figures: dict[str, float]) -> None:
    """Write figures, and ratios of each line's NPA-10 to the wide or the pooled encoder's, if a file is given."""
    if file is None:
        return
    npa = {name: value for name, value in figures.items() if name.endswith("mean.npa_10")}
    ratios = {
        f"{name} to {other}": value / npa[reference]
        for name, value in npa.items()
        for other, reference in references(name).items()
        if reference in npa and reference != name
    }
    file.write_text(json.dumps({"figures": figures, "ratios": ratios}, indent=2) + "\n")


def references(name: str) -> dict[str, str]:
    """Return with what a mean is compared: the wide encoder after as many rounds, and the pooled encoder."""
    data = name.partition(".")[0]
    rounds = re.search(r" rounds \d+", name)
    return {
        WIDTHS[0]: f"{data}.{WIDTHS[0]}{rounds[0] if rounds else ''}.mean.npa_10",
        POOLED: f"{data}.{POOLED}.mean.npa_10",
    }


if __name__ == "__main__":
    main()
