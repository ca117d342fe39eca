"""The private map's density of records, against other ways to draw it at the same epsilon.

    python -m benchmarks.density [--quick] [--datasets ...] [--epsilons 1 4] [--seeds 0 1 2] [--json FILE]

Each line compares a density with that of the places of all rows, each placed by the landmarks alone: the total
variation distance of both on a grid of 96 squares along a side, smoothed over 1.5 squares. 0 is equal, 1 is disjoint.

- ``squares``: the run's own, from ``density: 0.1``: noisy counts above twice their noise.
- ``tree``: the matrix mechanism with a quad-tree (Hay et al. 2010). The same budget is divided among the grid and all
  coarser ones, and a non-negative least-squares fit combines them.
- ``kernels``: Gaussian kernels at the landmarks, weighted by their counts, each as wide as the distance to the nearest
  landmark. It costs nothing.

``cells`` and ``cells_without`` count cells with and without the density's part of the budget. Rows are
standardised by exact moments, ten IID clients hold them, and noise is drawn again in each run.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.private_map import landmarks_of
from benchmarks.synthetic_rows import CLIENTS, DELTA, clients_of, standardised
from raydr.arrays import Float64Array
from raydr.data import load
from raydr.methods.private_map.density import Grid
from raydr.methods.private_map.server import PrivateMap
from raydr.methods.private_map.settings import NoiseShares
from raydr.methods.serving import Plan, Served
from raydr.privacy.accounting import Budget
from raydr.scenarios.running.backend import InlineBackend

DATASETS = ("heart_disease", "breast_cancer", "german_credit", "digits", "mnist")
FINE, SMOOTHED = 96, 1.5
SHARE = 0.1


def table_of(name: str, seed: int) -> tuple[Float64Array, float]:
    """Return rows and their clip norm."""
    if name != "mnist":
        rows, _ = standardised(name, seed)
        return rows, math.sqrt(rows.shape[1])
    return np.asarray(load(source=name, rows=10_000, seed=seed).rows, np.float64), 2550.0


def served(rows: Float64Array, settings: PrivateMap, seed: int) -> Served:
    """Run the private map with ten clients."""
    plan = Plan(method="private-map", settings=settings, scale="none", seed=seed)
    parts = [rows[part] for part in clients_of(rows, seed)]
    return InlineBackend().serve(parts, plan, listener=lambda event: None)


def on_fine(density: Float64Array) -> Float64Array:
    """Return a density (side, side) as parts of the whole on the fine grid."""
    side = len(density)
    squares = (np.arange(FINE) + 0.5) / FINE * side
    fine = density[np.ix_(squares.astype(int), squares.astype(int))]
    return np.asarray(fine / max(fine.sum(), 1e-300))


def tree(counts: Float64Array, deviation: float, rng: np.random.Generator) -> Float64Array:
    """Return counts (side, side), side a power of two, from noisy sums at all levels of a quad-tree."""
    from scipy.optimize import nnls

    side = len(counts)
    levels = [2**level for level in range(1, side.bit_length())]
    index = np.arange(side**2).reshape(side, side)
    queries, answers = [], []
    for level in levels:
        step = side // level
        for row in range(level):
            for column in range(level):
                block = index[row * step : (row + 1) * step, column * step : (column + 1) * step].ravel()
                query = np.zeros(side**2)
                query[block] = 1.0
                queries.append(query)
                answers.append(counts.ravel()[block].sum())
    noisy = np.array(answers) + deviation * math.sqrt(len(levels)) * rng.standard_normal(len(answers))
    return np.asarray(nnls(np.stack(queries), noisy)[0].reshape(side, side))


def kernels(places: Float64Array, counts: Float64Array, grid: Grid) -> Float64Array:
    """Return the density (FINE, FINE) of kernels at the landmarks."""
    from scipy.special import ndtr

    apart = np.linalg.norm(places[:, None] - places, axis=-1)
    width = np.sort(apart, axis=1)[:, min(1, len(places) - 1)] + 1e-9
    along = []
    for axis in (0, 1):
        edges = np.linspace(grid.low[axis], grid.high[axis], FINE + 1)
        along.append(np.diff(ndtr((edges - places[:, axis, None]) / width[:, None]), axis=1))
    found = np.einsum("l,li,lj->ij", counts, *along)
    return np.asarray(found / found.sum())


def measured(name: str, epsilon: float, seed: int) -> dict[str, float]:
    """Return the distances of all densities of one run."""
    from scipy.ndimage import gaussian_filter

    rows, clip = table_of(name, seed)
    settings = PrivateMap(epsilon=epsilon, delta=DELTA, clip=clip, density=SHARE)
    model = served(rows, settings, seed).outcome.model
    budget = NoiseShares.of(settings, Budget(), CLIENTS)
    side = len(model["density"])
    low, high = np.asarray(model["density_corners"], np.float64)
    places = np.asarray(settings.transform(model, rows), np.float64)
    fine = Grid(low, high, FINE)
    truth = gaussian_filter(fine.counts(places), SMOOTHED)
    truth /= truth.sum()

    def distance(density: Float64Array) -> float:
        return float(np.abs(on_fine(density) - truth).sum() / 2.0)

    landmarks = np.asarray(model["counts"], np.float64)
    power = 2 ** max(1, round(math.log2(side)))
    rng = np.random.default_rng()
    without = settings.model_copy(update={"density": 0.0})
    free: Any = served(rows, without, seed).outcome.model
    return {
        "squares": distance(np.asarray(model["density"], np.float64)),
        "tree": distance(
            tree(Grid(low, high, power).counts(places), budget.count_deviation(budget.density), rng)
        ),
        "kernels": distance(kernels(np.asarray(model["places"], np.float64), landmarks, fine)),
        "side": float(side),
        "cells": landmarks_of(model)["cells"],
        "cells_without": landmarks_of(free)["cells"],
    }


def main() -> None:
    """Measure line by line; each is a mean over seeds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="heart disease at epsilon 4, one seed")
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), choices=DATASETS)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 4.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.quick:
        options.datasets, options.epsilons, options.seeds = ["heart_disease"], [4.0], [0]
    figures: dict[str, float] = {}
    heads = ("squares", "tree", "kernels", "side", "cells", "cells_without")
    print(f"{'dataset.epsilon':<24}" + "".join(f"{head:>18}" for head in heads))
    for name in options.datasets:
        for epsilon in options.epsilons:
            lines = [measured(name, epsilon, seed) for seed in options.seeds]
            means = {head: float(np.mean([line[head] for line in lines])) for head in heads}
            line = {"epsilon": epsilon} | means
            figures |= {f"{name}.{epsilon:g}.{head}": value for head, value in line.items()}
            print(
                f"{f'{name}.{epsilon:g}':<24}" + "".join(f"{means[head]:>18.3f}" for head in heads),
                flush=True,
            )
    if options.json:
        Path(options.json).write_text(json.dumps({"figures": figures, "ratios": {}}, indent=2))


if __name__ == "__main__":
    main()
