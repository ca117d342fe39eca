"""Privacy leakage: attacks on each method at its default settings, and on full-size MNIST and Fashion-MNIST.

    python -m benchmarks.attacks [--quick] [--part methods|images] [--json FILE]

``methods`` runs each method on 600 rows of digits at 10 clients, and some methods on 200 rows at 100 clients.
All settings not named below are defaults, except that drawing the map is shortened, which reveals nothing. It
audits each run like ``raydr audit``, and prints the best attempt of each attack.

``images`` uses 40,000 rows of MNIST and Fashion-MNIST, without a map: SENSE with 783 and fewer anchors, as in
the paper; the same under a secret rotation and shift that the server does not know, with trilateration in the
secret frame; and the curve of distribution alignment over public rows. Errors are medians, relative to a
record's length (and to its distance from the mean). Data come from RAYDR_DATA, or else from their public
source. ``--quick`` runs five cases of 200 rows of digits, and 4,000 rows of MNIST.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from raydr.arrays import Float64Array, FloatArray
from raydr.threads import one_blas_thread

PRIVATE, PUBLIC, CLIENTS = 40_000, 10_000, 10
ANCHORS = (783, 400, 200, 50)
CURVE = (100, 200, 500, 1_000, 2_000, 5_000)
DRAWN = {"early_iterations": 5, "iterations": 5}
"""Shortened drawing. Messages do not depend on it, except if a method trains an encoder."""
TSNE = {"kind": "fed-tsne", **DRAWN}
SENSE = {"kind": "sense", "embedder": {"kind": "tsne", **DRAWN}}
PRIVATE_MAP = {"kind": "private-map", "bounds": [0, 16], "epsilon": 8.0, "placing_iterations": 5, **DRAWN}
KEYED = {"isometry_key": True}
SECURE = {"secure_aggregation": True}
METHODS: dict[str, dict[str, Any]] = {
    "sense": {"method": SENSE},
    "sense, keyed": {"method": SENSE, "privacy": KEYED},
    "sense, 20 anchors": {"method": {**SENSE, "anchors": 20}},
    "sense, noise 0.1 on distances": {
        "method": SENSE,
        "privacy": {"noise": {"on": "distances", "level": 0.1}},
    },
    "fed-tsne": {"method": TSNE},
    "fed-tsne, keyed": {"method": TSNE, "privacy": KEYED},
    "fed-tsne, 30 learnt landmarks": {"method": {**TSNE, "landmarks": 30, "rounds": 10}},
    "fed-tsne, 30 learnt landmarks, secure aggregation": {
        "method": {**TSNE, "landmarks": 30, "rounds": 10},
        "privacy": SECURE,
    },
    "fed-tsne, epsilon 1 on embedding": {
        "method": {**TSNE, "share": "embedding"},
        "privacy": {"noise": {"on": "embedding", "epsilon": 1.0, "clip": 60.0}},
    },
    "fed-umap": {"method": {"kind": "fed-umap", "epochs": 5}},
    "fed-spectral": {
        "method": {"kind": "fed-spectral", "clusters": 10, "embedder": {"kind": "tsne", **DRAWN}}
    },
    "fedne": {"method": {"kind": "fedne", "rounds": 10}},
    "fedne, secure aggregation": {"method": {"kind": "fedne", "rounds": 10}, "privacy": SECURE},
    "fedne, keyed": {"method": {"kind": "fedne", "rounds": 10}, "privacy": KEYED},
    "fedne, mlp": {"method": {"kind": "fedne", "rounds": 10, "surrogate": "mlp"}},
    "fedavg-ne": {"method": {"kind": "fedavg-ne", "rounds": 10}},
    "private-map, epsilon 8": {"method": PRIVATE_MAP},
    "private-map, epsilon 8, noise per client": {"method": {**PRIVATE_MAP, "per": "client"}},
    "private-map, epsilon 8, secure aggregation": {"method": PRIVATE_MAP, "privacy": SECURE},
}


QUICK = ("sense", "sense, keyed", "fed-tsne, keyed", "fedne", "private-map, epsilon 8, secure aggregation")
SMALL = (
    "sense",
    "fed-tsne, 30 learnt landmarks",
    "fed-tsne, 30 learnt landmarks, secure aggregation",
    "fed-tsne, epsilon 1 on embedding",
    "fedne",
    "fedne, mlp",
    "fedne, secure aggregation",
    "fedavg-ne",
    "private-map, epsilon 8",
    "private-map, epsilon 8, secure aggregation",
)
"""Cases for 100 clients: those where few records per client matter."""


@dataclass(frozen=True)
class Line:
    """A measurement: its case, its attack, and its results.

    ``figures`` are the result and what it is compared with: a guess, all columns, or the claimed epsilon.
    """

    case: str
    attack: str
    found: str
    guess: str
    seconds: float
    figures: tuple[float, float]

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of a table row."""
        return self.case, self.attack, self.found, self.guess, f"{self.seconds:.1f}"


def methods(quick: bool) -> Iterator[Line]:
    """Yield the best attempt of each attack on every method."""
    from raydr.runfolder import read_audit
    from raydr.scenarios.afterwards.auditing import audit
    from raydr.scenarios.runner import run
    from raydr.scenarios.schema.reading import read

    for clients, count in ((10, 200),) if quick else ((10, 600), (100, 200)):
        for name, sections in METHODS.items():
            if name not in (QUICK if quick else METHODS if clients == 10 else SMALL):
                continue
            content = {
                "name": "leaks",
                "data": {"source": "digits", "rows": count},
                "clients": {"count": clients},
                "runtime": {"federation": "inline"},
                "metrics": ["npa_10"],
            } | sections
            with tempfile.TemporaryDirectory() as place:
                folder = run(read(content), out=Path(place) / "run", report=False)
                audit(folder, report=False)
                found = read_audit(folder)
            if found is not None:
                yield from best_of(f"{name}, {clients} clients", found)


def best_of(case: str, audit: Any) -> Iterator[Line]:
    """Yield the best attempt of each attack that applies."""
    from raydr.report.run.audited import lines

    best: dict[str, Any] = {}
    for verdict, line in zip(audit.verdicts, _in_order(audit, lines(audit)), strict=True):
        if not line.applies:
            continue
        if verdict.attack not in best or _badness(verdict) < _badness(best[verdict.attack][0]):
            best[verdict.attack] = verdict, line
    for verdict, line in best.values():
        found = line.error
        if verdict.columns:
            found = (
                f"{len(verdict.inferred_columns)} of {len(verdict.columns)} columns, the first {line.error}"
            )
        if verdict.errors is not None and verdict.errors.exact:
            found += f", {line.exact} exact"
        attack = f"{line.attack}: {line.variant}" if line.variant else line.attack
        yield Line(case, attack, found, line.guess, verdict.seconds, _figures(verdict))


def _figures(verdict: Any) -> tuple[float, float]:
    if verdict.errors is not None:
        return verdict.errors.centred.median, verdict.errors.centred_guess.median
    if verdict.membership is not None:
        return verdict.membership.auc, 0.5
    if verdict.shares is not None:
        return verdict.shares.error, verdict.shares.guess
    if verdict.columns:
        return float(len(verdict.inferred_columns)), float(len(verdict.columns))
    return verdict.bound.epsilon, verdict.bound.claimed


def _badness(verdict: Any) -> float:
    """Return the sort key of an attack's attempts: lower means that it found more.

    For canaries, the whole run is first.
    """
    from raydr.attacks.canary import WHOLE

    found, guess = _figures(verdict)
    if verdict.bound is not None:
        return -float(verdict.variant == WHOLE)
    if verdict.errors is not None:
        return found
    return found / guess if verdict.shares is not None else -found


def _in_order(audit: Any, lines: Sequence[Any]) -> list[Any]:
    """Return lines in the order of the verdicts. Those that do not apply come last."""
    applying, others = iter([x for x in lines if x.applies]), iter([x for x in lines if not x.applies])
    return [next(others if verdict.why else applying) for verdict in audit.verdicts]


def images(quick: bool) -> Iterator[Line]:
    """Yield results for full-size MNIST and Fashion-MNIST."""
    from raydr.attacks import Side
    from raydr.attacks.distribution_alignment import attempts
    from raydr.attacks.point_cloud import cloud
    from raydr.attacks.trilateration import trilateration
    from raydr.data import load

    def distribution_alignment(view: Any, side: Any) -> Iterator[Any]:
        return attempts(cloud(view), side, [len(side.public)])

    for source in ("mnist",) if quick else ("mnist", "fashion_mnist"):
        table = load(source=source)
        order = np.random.default_rng(0).permutation(len(table.rows))
        private = table.rows[order[: 4_000 if quick else PRIVATE]]
        public = table.rows[order[PRIVATE : PRIVATE + PUBLIC]]
        anchors = np.asarray(table.rows[order[PRIVATE + PUBLIC :][: ANCHORS[0]]], np.float64)
        for count in ANCHORS:
            view = seen(private, anchors[:count])
            yield judged(
                f"{source}, SENSE, {count} anchors", trilateration, view, Side(public=public[:0]), private
            )
        turn, shift = secret(private.shape[1])
        keyed = (np.asarray(private, np.float64) - shift) @ turn
        hidden = (anchors - shift) @ turn
        view = seen(keyed, hidden)
        yield judged(
            f"{source}, keyed, 783 hidden anchors", trilateration, view, Side(public=public[:0]), private
        )
        for count in (*CURVE, PUBLIC):
            side = Side(public=public[:count])
            yield judged(f"{source}, keyed, 783 hidden anchors", distribution_alignment, view, side, private)


def secret(features: int) -> tuple[Float64Array, Float64Array]:
    """Return a rotation (features, features) and a shift (features,) that the server does not know."""
    random = np.random.default_rng(1)
    turn, _ = np.linalg.qr(random.standard_normal((features, features)))
    return turn, random.normal(0.0, 100.0, features)


def seen(rows: FloatArray, anchors: Float64Array) -> Any:
    """Return the server's view of step 2 of SENSE, without distances inside clients."""
    from raydr.attacks import View
    from raydr.federation import ClientHost, Context, Federation, HostedClient, InlineTransport, fingerprint
    from raydr.federation.transcript import Transcript
    from raydr.methods.sense.clients import AnchorRequest
    from raydr.methods.sense.spaces import EuclideanSpace

    parts = np.array_split(np.asarray(rows), CLIENTS)
    hosts = [
        ClientHost(hosted=[HostedClient(index, part, fingerprint(part))], seed=0)
        for index, part in enumerate(parts)
    ]
    transcript = Transcript()
    federation = Federation(InlineTransport(hosts), CLIENTS, Context(seed=0), transcript=transcript)
    federation.ask(AnchorRequest(anchors, EuclideanSpace(), False))
    return View(transcript=transcript, sizes=federation.sizes, embedding=np.zeros((len(rows), 2)))


def judged(case: str, attack: Any, view: Any, side: Any, rows: FloatArray) -> Line:
    """Score the last attempt of an attack."""
    from raydr.attacks.scoring import AttackErrors, Truth

    truth = Truth(rows=rows, names=[""] * len(rows), members=np.zeros(0, np.bool_), shown=np.arange(1))
    started = time.perf_counter()
    with one_blas_thread():
        *_, found = attack(view, side)
        seconds = time.perf_counter() - started
    scores = AttackErrors.of(found.estimate, found.guess, truth, np.zeros(0, np.int64))
    errors = scores.errors
    error = f"{errors.relative.median:.2g} ({errors.centred.median:.2g}), {100 * errors.exact:.1f} % exact"
    if found.certain is not None:
        called = int(found.certain.sum())
        right = int((scores.centred[found.certain] < 1e-3).sum())
        error += f", {called:,} called exact, {right:,} are"
    guess = f"{errors.relative_guess.median:.2g} ({errors.centred_guess.median:.2g})"
    name = attack.__name__.replace("_", "-") + (f": {found.variant}" if found.variant else "")
    return Line(case, name, error, guess, seconds, (errors.relative.median, errors.relative_guess.median))


PARTS = {"methods": methods, "images": images}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    figures: dict[str, float] = {}
    print("| case | attack | error | guessing | seconds |\n| --- | --- | --- | --- | --- |")
    for name in [given.part] if given.part else PARTS:
        for line in PARTS[name](given.quick):
            print(f"| {' | '.join(line.cells)} |", flush=True)
            place = f"{line.case}: {line.attack}"
            figures |= dict(zip((place, f"{place}, of"), line.figures, strict=True))
            if given.json is not None:  # written after each line, in case the command is interrupted
                given.json.write_text(json.dumps({"figures": figures, "ratios": {}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
