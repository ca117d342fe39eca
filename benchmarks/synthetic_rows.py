"""The private map against maps of differentially private synthetic rows, at the same epsilon and delta.

    python -m benchmarks.synthetic_rows [--quick] [--datasets ...] [--epsilons 1 8] [--seeds 0 1 2] [--dpmm PYTHON]
                                        [--json FILE]

Peers draw as many synthetic rows as there are real ones (2,000 at most) under the whole epsilon, map them by t-SNE or
by UMAP, and place the real rows among them as the private map places rows among its landmarks:

- ``merf``: one noisy mean of 2,000 random Fourier features of an RBF kernel (DP-MERF, Harder et al. 2021), and rows
  fitted to it by L-BFGS. The mean is a sum over sites, so this peer needs no trusted curator. Its length scale is the
  exact median distance, without noise, in the peer's favour.
- ``mst``, ``aim``: marginals chosen and measured with noise (McKenna et al. 2021 and 2022) by the package ``dpmm``.
  Both need all rows in one place. Ranges of columns are exact, in the peer's favour. dpmm pins old versions of numpy
  and pandas: install it in an environment of its own and name its Python with ``--dpmm``. Without it, these lines are
  left out. They are also left out above 32 columns, which is the most that dpmm is meant for.

``noise`` is the control: as many rows of a standard normal distribution, without any data. Its scores are what the
known scale of the columns and the clients' own neighbours give by themselves.

``cells`` is the private map with its cells as landmarks, without drawn ones.

All methods see rows standardised by exact moments, so none spends budget on ranges. Ten IID clients hold them and place
their rows with the same help of their own neighbours. The private map's epsilon is that against an adversary who sees
sums. Scores are those of the real rows' places: accuracy of ten neighbours (``ca_10``) and trustworthiness. Noise is
drawn again in each run.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.private_map import landmarks_of
from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.data import load
from raydr.embedding import TSNE, UMAP, principal_components
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points, squared_distances
from raydr.methods.private_map.placing import Landmarks, own_rows, place
from raydr.methods.private_map.server import PrivateMap
from raydr.methods.private_map.settings import NoiseShares
from raydr.methods.serving import Plan
from raydr.metrics import Evidence, evaluate
from raydr.privacy.accounting import Budget, gaussian_multiplier
from raydr.scenarios.running.backend import InlineBackend
from raydr.threads import cores

CLIENTS, DELTA = 10, 1e-5
OWN = 0.4
"""Weight of a client's own neighbours when it places its rows: the default of the private map."""
SCORES = ("ca_10", "trustworthiness")
DATASETS = ("heart_disease", "breast_cancer", "german_credit", "beijing_air", "digits")
MOST_ROWS, MOST_SYNTHETIC = 5_000, 2_000
FOURIER, FITTED_OVER = 2_000, 300
"""Random features, and iterations in which rows are fitted to their mean."""
MOST_COLUMNS = 32
_DPMM = """
import sys, warnings
import numpy as np, pandas as pd
from dpmm.pipelines import AIMPipeline, MSTPipeline
warnings.filterwarnings("ignore")
kind, epsilon, delta, count, source, target = sys.argv[1:]
rows = np.load(source)
table = pd.DataFrame({f"x{column}": rows[:, column] for column in range(rows.shape[1])})
ranges = {name: {"lower": float(table[name].min()), "upper": float(table[name].max())} for name in table}
pipeline = {"aim": AIMPipeline, "mst": MSTPipeline}[kind]
model = pipeline(epsilon=float(epsilon), delta=float(delta), proc_epsilon=0.1 * float(epsilon))
model.fit(table, ranges)
np.save(target, model.generate(n_records=int(count))[list(table)].to_numpy(np.float64))
"""


def standardised(name: str, seed: int) -> tuple[Float64Array, Int64Array]:
    """Return a data set's rows, standardised by exact moments, and its labels."""
    table = load(source=name, rows=None if name != "beijing_air" else MOST_ROWS, seed=seed)
    rows = np.asarray(table.rows, np.float64)
    rows = rows[:, rows.std(axis=0) > 0]
    assert table.labels is not None
    return (rows - rows.mean(axis=0)) / rows.std(axis=0), np.asarray(table.labels)


def merf(rows: Float64Array, count: int, epsilon: float, rng: np.random.Generator) -> Float64Array:
    """Return ``count`` rows whose mean Fourier features fit the noisy mean of those of ``rows``."""
    from scipy.optimize import minimize

    sample = rows[rng.choice(len(rows), min(500, len(rows)), replace=False)]
    length = math.sqrt(float(np.median(squared_distances(sample, sample))))
    frequencies = rng.normal(size=(FOURIER // 2, rows.shape[1])) / length
    scale = math.sqrt(2.0 / FOURIER)

    def features(points: Float64Array) -> Float64Array:
        angles = points @ frequencies.T
        return scale * np.hstack([np.cos(angles), np.sin(angles)])  # of norm 1, the sensitivity of their sum

    noise = gaussian_multiplier(epsilon, DELTA) * rng.normal(size=FOURIER)
    target = features(rows).mean(axis=0) + noise / len(rows)

    def objective(flat: Float64Array) -> tuple[float, Float64Array]:
        points = flat.reshape(count, -1)
        found = features(points)
        rest = found.mean(axis=0) - target
        cosines, sines = np.hsplit(found, 2)
        slope = (cosines * rest[FOURIER // 2 :] - sines * rest[: FOURIER // 2]) @ frequencies
        return float(rest @ rest), (2.0 / count * slope).ravel()

    start = np.clip(rng.normal(size=(count, rows.shape[1])), -3.0, 3.0)
    # The objective is small (about 1 / rows), so it is scaled for the solver's tolerances.
    size = 1.0 / max(objective(start.ravel())[0], 1e-12)
    found = minimize(
        lambda flat: tuple(size * part for part in objective(flat)),
        start.ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": FITTED_OVER},
    )
    return np.asarray(found.x.reshape(count, -1))


def marginals(kind: str, python: str) -> Callable[..., Float64Array]:
    """Return a function like :func:`merf` that runs dpmm's ``kind`` in its own environment."""

    def synthetic(rows: Float64Array, count: int, epsilon: float, rng: np.random.Generator) -> Float64Array:
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "rows.npy", Path(folder) / "synthetic.npy"
            np.save(source, rows)
            subprocess.run(
                [python, "-c", _DPMM, kind, str(epsilon), str(DELTA), str(count), str(source), str(target)],
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            return np.asarray(np.load(target))

    return synthetic


def clients_of(rows: Float64Array, seed: int) -> list[Int64Array]:
    """Return the rows' indices by client."""
    return np.array_split(np.random.default_rng(seed).permutation(len(rows)), CLIENTS)


def map_among(rows: Float64Array, synthetic: Float64Array, embedder: TSNE | UMAP, seed: int) -> FloatArray:
    """Map synthetic rows, and return the places that clients give to ``rows`` among them."""
    graph = nearest_neighbors(Points(synthetic), embedder.neighbors_needed(len(synthetic)), threads=cores())
    places = embedder.embed(graph, principal_components(synthetic, 2), seed=seed, threads=cores())
    landmarks = Landmarks(synthetic, np.ones(len(synthetic)), np.asarray(places, np.float64))
    found = np.empty((len(rows), 2))
    for part in clients_of(rows, seed):
        found[part] = place(rows[part], landmarks, own_rows(rows[part], OWN, drawn=True), iterations=100)
    return found


def private_map(
    rows: Float64Array, epsilon: float, seed: int, *, draws: bool = True
) -> tuple[FloatArray, dict[str, float]]:
    """Return the places of ``rows`` on the private map of ten clients, and its numbers of landmarks and cells.

    Without ``draws``, the cells are the landmarks, however few there are.
    """
    parts = clients_of(rows, seed)
    settings = PrivateMap(epsilon=epsilon, delta=DELTA, clip=math.sqrt(rows.shape[1]), own=OWN)
    if not draws:
        cells = NoiseShares.of(settings, Budget(), CLIENTS).cells(settings, len(rows))[-1]
        settings = settings.model_copy(update={"cells": cells})
    served = InlineBackend().serve(
        [rows[part] for part in parts],
        Plan(method="private-map", settings=settings, scale="none", seed=seed),
        listener=lambda event: None,
    )
    places = np.empty((len(rows), 2))
    places[np.concatenate(parts)] = served.outcome.embedding
    return places, landmarks_of(served.outcome.model)


def measured(name: str, seed: int, options: argparse.Namespace) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the name and the figures of each line."""
    rows, labels = standardised(name, seed)
    count = min(len(rows), MOST_SYNTHETIC)
    embedders: dict[str, TSNE | UMAP] = {"tsne": TSNE(), "umap": UMAP()}

    def scores(places: FloatArray) -> dict[str, float]:
        evidence = Evidence(rows=rows, embedding=places, labels=labels, seed=seed)
        return dict(evaluate(SCORES, evidence, threads=cores()).values)

    if len(rows) == count:
        yield f"{name}.pooled.tsne.{seed}", scores(map_among(rows, rows, embedders["tsne"], seed))
    control = np.random.default_rng().standard_normal((count, rows.shape[1]))
    for form, embedder in embedders.items():
        yield f"{name}.noise.{form}.{seed}", scores(map_among(rows, control, embedder, seed))
    makers: dict[str, Callable[..., Float64Array]] = {"merf": merf}
    if options.dpmm and rows.shape[1] <= MOST_COLUMNS:
        makers |= {kind: marginals(kind, options.dpmm) for kind in ("mst", "aim")}
    for epsilon in options.epsilons:
        for kind, draws in (("private-map", True), ("cells", False)):
            started = time.perf_counter()
            places, landmarks = private_map(rows, epsilon, seed, draws=draws)
            seconds = time.perf_counter() - started
            yield f"{name}.{kind}.tsne.{epsilon:g}.{seed}", scores(places) | landmarks | {"s": seconds}
        for kind, maker in makers.items():
            started = time.perf_counter()
            synthetic = maker(rows, count, epsilon, np.random.default_rng())
            seconds = time.perf_counter() - started
            for form, embedder in embedders.items():
                found = scores(map_among(rows, synthetic, embedder, seed))
                yield f"{name}.{kind}.{form}.{epsilon:g}.{seed}", found | {"s": seconds}


def main() -> None:
    """Measure line by line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="heart disease, epsilon 8, one seed, without dpmm"
    )
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), choices=DATASETS)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 8.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--dpmm", metavar="PYTHON", help="Python of an environment with dpmm")
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.quick:
        options.datasets, options.epsilons, options.seeds, options.dpmm = ["heart_disease"], [8.0], [0], None
    figures: dict[str, float] = {}
    heads = (*SCORES, "landmarks", "cells", "s")
    print(f"{'dataset.method.map.epsilon.seed':<40}" + "".join(f"{head[:9]:>11}" for head in heads))
    for dataset in options.datasets:
        for seed in options.seeds:
            for name, line in measured(dataset, seed, options):
                figures |= {f"{name}.{key}": value for key, value in line.items()}
                cells = "".join(f"{line.get(head, float('nan')):>11.4f}" for head in heads)
                print(f"{name:<40}{cells}", flush=True)
                if options.json:  # after each line: a line of dpmm takes minutes
                    Path(options.json).write_text(json.dumps({"figures": figures, "ratios": {}}, indent=2))


if __name__ == "__main__":
    main()
