"""FedNE under noise: faithfulness of the map by epsilon, for record and client privacy.

    python -m benchmarks.fedne_noise [--quick] [--rows N] [--rounds N] [--seed N] [--only NAME,...] [--json
    FILE]

The data are MNIST as mnist.npz in ``$RAYDR_DATA``, 10,000 training and 2,000 test rows, inline.
``knn_accuracy`` is that of the test rows, placed by the encoder, among the training rows on the map.
Trustworthiness is that of the test rows' map (7 neighbours). Lines are named UNIT.CLIENTS.EPSILON, with IID
clients. Noise covers sums (``per: sum``) at delta 1e-5, and ``inf`` is the same training with noise of a
billionth. ``start`` and ``start-random`` are untrained first encoders.

The options of P2's section 6, with 20 clients by Dirichlet(0.1): ``mlp`` uses networks as surrogates,
``mlp.noise-L`` adds noise of level L, ``mlp.left-out-F`` omits a part F of the others' networks, and
``field.noise-L`` is the field with noise.

``--quick`` uses 1,000 rows, 3 rounds, and only 10 clients.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fedne import Rows, knn_accuracy, rows_of
from raydr.arrays import FloatArray
from raydr.privacy import Coverage

DELTA, NO_NOISE = 1e-5, 1e-9
EPSILONS = (1.0, 8.0, float("inf"))
CLIENTS = (10, 100)
SETTINGS: dict[str, Any] = {"hidden": (32, 32), "bounds": (0, 255), "learning_rate": 3e-3}
OF_UNITS: dict[str, dict[str, Any]] = {
    "record": {"clip": 1.0},
    "client": {"clip": 0.3},
}
BY_UNIT: dict[str, dict[str, Any]] = {
    "record": {},
    "client": {"surrogate": "none", "start": "random", "rounds": 20},
}
STARTS = {"start": "principal", "start-random": "random"}
SECTION_6: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "mlp": ({}, None),
    "mlp.noise-0.1": ({}, {"level": 0.1}),
    "mlp.noise-0.5": ({}, {"level": 0.5}),
    "mlp.left-out-0.5": ({"surrogates_left_out": 0.5}, None),
    "mlp.left-out-0.9": ({"surrogates_left_out": 0.9}, None),
    "field": ({"surrogate": "field"}, None),
    "field.noise-1": ({"surrogate": "field"}, {"level": 1.0}),
    "field.noise-10": ({"surrogate": "field"}, {"level": 10.0}),
}


def names(clients: Sequence[int]) -> list[str]:
    """Return the names of all lines."""
    paid = [f"{unit}.{count}.{epsilon:g}" for unit in OF_UNITS for count in clients for epsilon in EPSILONS]
    return [*STARTS, *paid, *SECTION_6]


def line(name: str, rounds: int) -> tuple[dict[str, Any], dict[str, Any] | None, int]:
    """Return the settings, noise, and number of clients of a line."""
    if name in STARTS:
        return {**SETTINGS, "rounds": 1, "learning_rate": 1e-9, "start": STARTS[name]}, None, 10
    if name in SECTION_6:
        more, noise = SECTION_6[name]
        content = {"surrogate": "mlp", "surrogate_from": 0.0, "control_variates": False, "rounds": rounds}
        return {"hidden": SETTINGS["hidden"]} | content | more, noise and {"on": "surrogate", **noise}, 20
    unit, count, epsilon = name.split(".", 2)
    strength = {"multiplier": NO_NOISE} if epsilon == "inf" else {"epsilon": float(epsilon)}
    settings = {**SETTINGS, "rounds": rounds} | BY_UNIT[unit]
    noise = {"on": "update", "unit": unit, "per": "sum", **OF_UNITS[unit], **strength}
    return settings | {"rounds": min(rounds, settings["rounds"])}, noise, int(count)


def dealt(rows: Rows, clients: int, alpha: float | None) -> list[FloatArray]:
    """Return the rows of each client: IID in their random order, or by Dirichlet as in `fedne`."""
    if alpha is None:
        return np.array_split(rows.train, clients)
    from benchmarks.fedne import shares

    return [rows.train[part] for part in shares(rows, clients)]


def labels_of(rows: Rows, clients: int, alpha: float | None) -> Any:
    """Return the classes of the training rows in client order."""
    if alpha is None:
        return rows.train_labels
    from benchmarks.fedne import shares

    return rows.train_labels[np.concatenate(shares(rows, clients))]


def judged(rows: Rows, name: str, rounds: int, seed: int) -> dict[str, float]:
    """Measure one line."""
    from raydr.federation import ClientHost, Context, Federation, HostedClient, InlineTransport, fingerprint
    from raydr.methods import METHODS
    from raydr.methods.fedne.fedne import FedNE
    from raydr.metrics import Evidence, evaluate
    from raydr.privacy.accounting import epsilon_of
    from raydr.privacy.gaussian import GaussianNoise

    content, noise, clients = line(name, rounds)
    settings, coverage = FedNE(**content), None
    if noise is not None:
        mechanism = GaussianNoise(**noise)
        coverage = Coverage(mechanism.calibrated(settings.releases(mechanism), DELTA))
    alpha = 0.1 if name in SECTION_6 else None
    parts = dealt(rows, clients, alpha)
    hosted = [HostedClient(index, part, fingerprint(part)) for index, part in enumerate(parts)]
    started = time.perf_counter()
    context = Context(seed=seed, coverage=coverage)
    federation = Federation(InlineTransport([ClientHost(hosted=hosted, seed=seed)]), clients, context)
    outcome = METHODS["fedne"].serve(federation, settings)
    seconds = time.perf_counter() - started
    placed = settings.transform(outcome.model, rows.test)
    labels = labels_of(rows, clients, alpha)
    evidence = Evidence(rows=rows.test, embedding=placed, labels=rows.test_labels, grouped=len(rows.test))
    return {
        "knn_accuracy": knn_accuracy(outcome.embedding, labels, placed, rows.test_labels),
        "trustworthiness": evaluate(("trustworthiness_7",), evidence).values["trustworthiness_7"],
        "epsilon_of_client": epsilon_of(federation.ledger.charges, DELTA, "client"),
        "epsilon_of_server": epsilon_of(federation.ledger.charges, DELTA, "server"),
        "run_s": seconds,
    }


def main() -> None:
    """Measure, and print each line when it is known."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="lines, separated by commas")
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = rows_of("mnist", 1_000 if options.quick else options.rows, 500 if options.quick else 2_000)
    rounds = 3 if options.quick else options.rounds
    chosen = options.only.split(",") if options.only else names(CLIENTS[:1] if options.quick else CLIENTS)
    print(f"mnist, {len(rows.train):,} + {len(rows.test):,} rows, {rounds} rounds", flush=True)
    figures: dict[str, float] = {}
    for name in chosen:
        for metric, value in judged(rows, name, rounds, options.seed).items():
            figures[f"{metric}.{name}"] = value
            print(f"{metric + '.' + name:<44}{value:12.4g}", flush=True)
    if options.json:
        content = {"figures": figures, "ratios": {}, "rounds": rounds, "rows": len(rows.train)}
        Path(options.json).write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
