"""Matrix completion: the closed form, raydr's SMACOF, a literal algorithm 2 of the paper, and one matrix product.

Run ``python -m benchmarks.completion``. It takes about 8 minutes, or a minute with ``--quick``.

Sizes are those of P3's table 14, multisite-full: 10 clients see all anchors and the distances between their
own rows. Rows are those of MNIST (784 features) if ``RAYDR_DATA`` has them, otherwise synthetic rows of 2,352
features and rank 200. The paper's BloodMNIST (2,352) is not used. All systems compute with one BLAS thread
and take turns. Seconds are medians of 3 runs, but of one run for algorithm 2 above 2,000 rows, which takes
minutes.

- ``closed-form``: trilateration of all clients and their distances from the anchors' hull.
- ``smacof``: client by client, from one random start, until the relative stress (over the sum of squared
  observed distances) is at most 0.005. Clients run in sequence here, but in parallel in a federation.
- ``literal``: algorithm 2 on whole N x N matrices, from the same start, for the same number of iterations,
  which give the same stress (checked). V_NN is inverted once, by ``numpy.linalg.pinv`` for symmetric
  matrices, which is faster.

``closed-form`` is also timed at 90,000 rows of 512 features and 511 anchors (``--quick``: 20,000 rows),
against ``gemm``, the product of rows and anchors alone.

Figures: ``SYSTEM.SIZE.s``, ``.iterations`` and ``.relative_stress`` (for the closed form, over distances to
anchors).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from raydr.arrays import Float64Array
from raydr.geometry.points import squared_distances
from raydr.geometry.trilateration import trilaterate
from raydr.methods.sense.smacof import random_start, smacof
from raydr.threads import one_blas_thread

CLIENTS = 10
TARGET = 0.005
SIZES = ((1000, 100), (1000, 1000), (5000, 100), (2000, 50))
LARGE, LARGE_QUICK, LARGE_FEATURES = 90_000, 20_000, 512
REPEATS = 3
_LITERAL_REPEATS_UP_TO = 2000  # rows
_MOST_ITERATIONS = 1000


@dataclass(frozen=True)
class Problem:
    """The server's input: anchors, and each client's rows (up to isometry) and distances to the anchors."""

    anchors: Float64Array  # (anchors, features)
    clients: list[Float64Array]  # (rows of the client, features)
    messages: list[Float64Array]  # (rows of the client, anchors), squared

    @property
    def name(self) -> str:
        """Rows x anchors."""
        return f"{sum(map(len, self.clients))}x{len(self.anchors)}"

    def scale(self) -> float:
        """Sum of squared observed distances, with each pair of points once."""
        inside = sum(float(squared_distances(own, own).sum()) / 2 for own in self.clients)
        return inside + sum(float(message.sum()) for message in self.messages)


def problem(rows: int, anchors: int) -> Problem:
    """Make a problem of one size of table 14."""
    folder = os.environ.get("RAYDR_DATA")
    if folder and (Path(folder) / "mnist.npz").is_file():
        from raydr.data import load

        table = load(source="mnist", rows=rows + anchors).rows.astype(np.float64)
    else:
        random = np.random.default_rng(0)
        spectrum = np.exp(-np.arange(200) / 40.0)
        table = (random.normal(size=(rows + anchors, 200)) * spectrum) @ random.normal(size=(200, 2352))
    return _split(table[:anchors], table[anchors:])


def large_problem(rows: int) -> tuple[Problem, Float64Array]:
    """Make synthetic rows of 512 features. Return the problem and the rows in one table."""
    table = np.random.default_rng(0).normal(size=(rows + LARGE_FEATURES - 1, LARGE_FEATURES))
    anchors, own = table[: LARGE_FEATURES - 1], table[LARGE_FEATURES - 1 :]
    return _split(anchors, own), own


def _split(anchors: Float64Array, rows: Float64Array) -> Problem:
    clients = np.array_split(rows, CLIENTS)
    messages = [np.asarray(squared_distances(own, anchors), np.float64) for own in clients]
    return Problem(anchors, clients, messages)


# Systems


def closed_form(given: Problem) -> tuple[Float64Array, Float64Array]:
    """Return coordinates of all rows along the anchors' hull, and squared distances from it."""
    coordinates, solver = trilaterate(given.anchors, given.messages)
    ends = np.cumsum([len(message) for message in given.messages])[:-1]
    parts = np.split(coordinates, ends)
    heights = [
        solver.squared_residuals(message, part) for message, part in zip(given.messages, parts, strict=True)
    ]
    return coordinates, np.concatenate(heights)


def block_smacof(
    given: Problem, starts: list[Float64Array], iterations: int
) -> tuple[list[Float64Array], float]:
    """Return coordinates client by client, and their stress."""
    placed = [
        smacof(given.anchors, message, start, inside=own, tolerance=0.0, max_iterations=iterations)
        for own, message, start in zip(given.clients, given.messages, starts, strict=True)
    ]
    return [one.coordinates for one in placed], sum(float(one.stress[-1]) for one in placed)


def literal(given: Problem, starts: list[Float64Array], iterations: int) -> tuple[Float64Array, float]:
    """Run algorithm 2: update (11) with dense V and B of all rows, and a pseudo-inverse of V_NN."""
    count, rows = len(given.anchors), sum(map(len, given.clients))
    ends = np.cumsum([0, *map(len, given.clients)])
    mask = np.zeros((rows, rows), bool)
    wanted = np.zeros((rows, rows))
    for own, start, stop in zip(given.clients, ends, ends[1:], strict=False):
        mask[start:stop, start:stop] = True
        wanted[start:stop, start:stop] = np.sqrt(squared_distances(own, own))
    np.fill_diagonal(mask, False)
    to_anchors = np.sqrt(np.concatenate(given.messages))
    V_NN = np.diag(mask.sum(axis=1) + float(count)) - mask
    V_NA = np.full((rows, count), -1.0)
    inverse = np.linalg.pinv(V_NN, hermitian=True)

    def compared(current: Float64Array) -> tuple[Float64Array, Float64Array, float]:
        inside = np.sqrt(squared_distances(current, current))
        outside = np.sqrt(squared_distances(current, given.anchors))
        stress = ((wanted - inside)[mask] ** 2).sum() / 2 + ((to_anchors - outside) ** 2).sum()
        return inside, outside, float(stress)

    current = np.concatenate(starts)
    inside, outside, stress = compared(current)
    for _ in range(iterations):
        B_NN = -np.divide(wanted, inside, out=np.zeros_like(inside), where=mask & (inside > 0))
        B_NA = -np.divide(to_anchors, outside, out=np.zeros_like(outside), where=outside > 0)
        np.fill_diagonal(B_NN, -(B_NN.sum(axis=1) + B_NA.sum(axis=1)))
        current = inverse @ (B_NN @ current + B_NA @ given.anchors - V_NA @ given.anchors)
        inside, outside, stress = compared(current)
    return current, stress


# Measurements


def iterations_to(given: Problem, starts: list[Float64Array], stress: float) -> int:
    """Count the iterations until SMACOF's stress is at most this."""
    step = 5
    current = starts
    for done in range(0, _MOST_ITERATIONS, step):
        histories = []
        for at, (own, message) in enumerate(zip(given.clients, given.messages, strict=True)):
            placed = smacof(
                given.anchors, message, current[at], inside=own, tolerance=0.0, max_iterations=step
            )
            current = [*current[:at], placed.coordinates, *current[at + 1 :]]
            histories.append(np.pad(placed.stress, (0, step + 1 - placed.stress.size), mode="edge"))
        reached = np.flatnonzero(np.sum(histories, axis=0) <= stress)
        if reached.size:
            return done + int(reached[0])
    raise SystemExit(f"{given.name}: SMACOF has not reached its target in {_MOST_ITERATIONS} iterations")


def in_turns(systems: dict[str, Callable[[], object]], repeats: dict[str, int]) -> dict[str, float]:
    """Return the median seconds of each system. The systems take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    for turn in range(max(repeats.values())):
        for name, run in systems.items():
            if turn < repeats[name]:
                began = time.perf_counter()
                run()
                seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(found) for name, found in seconds.items()}


def measure(given: Problem) -> dict[str, float]:
    """Measure all systems on one size of table 14."""
    random = np.random.default_rng(1)
    starts = [random_start(given.anchors, message, random) for message in given.messages]
    scale = given.scale()
    iterations = iterations_to(given, starts, TARGET * scale)
    stresses: dict[str, float] = {}

    def ours() -> None:
        stresses["smacof"] = block_smacof(given, starts, iterations)[1]

    def theirs() -> None:
        stresses["literal"] = literal(given, starts, iterations)[1]

    rows = sum(map(len, given.clients))
    repeats = {
        "closed-form": REPEATS,
        "smacof": REPEATS,
        "literal": REPEATS if rows <= _LITERAL_REPEATS_UP_TO else 1,
    }
    seconds = in_turns(
        {"closed-form": lambda: closed_form(given), "smacof": ours, "literal": theirs}, repeats
    )
    if not np.isclose(stresses["smacof"], stresses["literal"], rtol=1e-6):
        raise SystemExit(f"{given.name}: SMACOF and algorithm 2 differ in stress: {stresses}")
    figures = {f"{system}.{given.name}.s": value for system, value in seconds.items()}
    figures |= {f"{system}.{given.name}.iterations": float(iterations) for system in stresses}
    figures |= {f"{system}.{given.name}.relative_stress": value / scale for system, value in stresses.items()}
    return figures | {f"closed-form.{given.name}.relative_stress": anchor_stress(given)}


def anchor_stress(given: Problem) -> float:
    """Return the relative stress of the closed form over the distances between rows and anchors."""
    coordinates, heights = closed_form(given)
    solver = trilaterate(given.anchors, given.messages[:1])[1]
    placed = np.column_stack([coordinates, np.sqrt(heights)])
    known = np.column_stack([(given.anchors - solver.centre) @ solver.basis.T, np.zeros(len(given.anchors))])
    squared = np.concatenate(given.messages)
    return float(((np.sqrt(squared_distances(placed, known)) - np.sqrt(squared)) ** 2).sum() / squared.sum())


def measure_large(rows: int) -> dict[str, float]:
    """Time the closed form against one product, rows x anchors x features."""
    given, table = large_problem(rows)
    transposed = given.anchors.T
    seconds = in_turns(
        {"closed-form": lambda: closed_form(given), "gemm": lambda: table @ transposed},
        {"closed-form": REPEATS, "gemm": REPEATS},
    )
    return {f"{system}.{given.name}.s": value for system, value in seconds.items()}


def ratios_of(figures: dict[str, float]) -> dict[str, float]:
    """Return ratios of seconds: others to closed form, algorithm 2 to SMACOF, and closed form to a product."""
    pairs = (
        *(("literal", "closed-form"), ("smacof", "closed-form"), ("literal", "smacof")),
        ("closed-form", "gemm"),
    )
    names = [key.split(".")[1] for key in figures if key.startswith("closed-form.") and key.endswith(".s")]
    return {
        f"{over}/{under}.{name}": figures[f"{over}.{name}.s"] / figures[f"{under}.{name}.s"]
        for name in names
        for over, under in pairs
        if f"{over}.{name}.s" in figures and f"{under}.{name}.s" in figures
    }


def main() -> None:
    """Print the table and write the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.completion",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="1,000 rows, and 20,000: within a minute")
    parser.add_argument("--json", type=Path, help="also write figures and ratios to this file")
    arguments = parser.parse_args()

    sizes = [size for size in SIZES if size[0] == 1000] if arguments.quick else SIZES
    figures: dict[str, float] = {}
    with one_blas_thread():
        for rows, anchors in sizes:
            given = problem(rows, anchors)
            print(f"{given.name}: {given.anchors.shape[1]} features, {CLIENTS} clients", flush=True)
            figures |= measure(given)
        figures |= measure_large(LARGE_QUICK if arguments.quick else LARGE)
    ratios = ratios_of(figures)
    print(f"{'':<14}{'system':<14}{'seconds':>12}{'iterations':>12}{'relative stress':>18}")
    for key, value in figures.items():
        system, name, kind = key.split(".")
        if kind == "s":
            iterations = figures.get(f"{system}.{name}.iterations")
            stress = figures.get(f"{system}.{name}.relative_stress")
            print(
                f"{name:<14}{system:<14}{value:>12.4f}"
                f"{'' if iterations is None else f'{iterations:.0f}':>12}"
                f"{'' if stress is None else f'{stress:.2e}':>18}"
            )
    for name, ratio in ratios.items():
        print(f"{name:<40}{ratio:>12.2f}")
    if arguments.json is not None:
        content = {
            "figures": {name: float(f"{value:.6g}") for name, value in figures.items()},
            "ratios": {name: float(f"{ratio:.4g}") for name, ratio in ratios.items()},
        }
        arguments.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
