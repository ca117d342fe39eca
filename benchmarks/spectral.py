"""Fed-SpeClust against spectral clustering of the pooled rows, as in P1's table 5: agreement with the classes.

    python -m benchmarks.spectral [--quick] [--affinity KIND] [--data NAMES] [--seeds N] [--landmarks N]
    [--widen X]
                                  [--json FILE]

This uses clusters only, no maps. For each data set and seed, rows are dealt to 10 clients at random (``iid``)
or one class to each client (``one-class``). Landmarks are learnt in 50 rounds, with ``+`` under noise of
level 1 on the gradient, or lie along the principal axes, as by default (``frame``). The affinity is that of
nearest neighbours, or with ``--affinity rbf`` the Gaussian kernel. The kernel also has the Nystrom estimate,
as in P1 (``nystrom``), and an estimate from the same number of pooled rows, drawn at random (``sampled``),
which a federation may not reveal. The pooled rows are clustered with the same affinity, at the bandwidth of
the iid run. Results are means over seeds with standard errors. ``ratio`` is the mean over seeds of federated
/ pooled. ``--widen`` divides the default gamma. MNIST is a seeded 40,000 rows, in another order for each
seed. Mice-Protein and COIL-20 are complete. ``--quick`` uses 1,000 rows of MNIST and Mice-Protein, and one
seed. Data come from RAYDR_DATA, or else from their public source.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from raydr.arrays import FloatArray, Int64Array
from raydr.threads import one_blas_thread

CLIENTS, LANDMARKS, ROUNDS = 10, 500, 50
PAPER = {
    "mnist": {"pooled": (0.5415, 0.3837), "iid": (0.5240, 0.3815), "one-class": (0.5235, 0.3806)},
    "coil20_32": {"pooled": (0.8885, 0.6066), "iid": (0.8425, 0.5113), "one-class": (0.8339, 0.4895)},
    "mice_protein": {"pooled": (0.3241, 0.1837), "iid": (0.3233, 0.1827), "one-class": (0.3222, 0.1809)},
}
PAPER["mnist"] |= {"iid+": (0.5220, 0.3807), "one-class+": (0.5025, 0.3829)}
PAPER["coil20_32"] |= {"iid+": (0.8333, 0.4793), "one-class+": (0.8215, 0.4551)}
PAPER["mice_protein"] |= {"iid+": (0.3220, 0.1802), "one-class+": (0.3198, 0.1783)}
"""NMI and ARI of table 5."""
WAYS = ("", " frame", "+", " nystrom")
SIDES = ("pooled", "sampled", *(deal + way for deal in ("iid", "one-class") for way in WAYS))
"""All ways except Nystrom, which needs a kernel, for either affinity."""
Scores = dict[str, tuple[float, float]]


def agreement(labels: Int64Array, clusters: Int64Array) -> tuple[float, float]:
    """Return NMI and ARI."""
    return (
        float(normalized_mutual_info_score(labels, clusters)),
        float(adjusted_rand_score(labels, clusters)),
    )


def federated(
    parts: Sequence[FloatArray], settings: Any, seed: int, widen: float, *, noisy: bool
) -> tuple[dict[str, Int64Array], float]:
    """Return clusters of the rows in client order by estimator, and the bandwidth."""
    from raydr.federation import ClientHost, Context, Federation, HostedClient, InlineTransport, fingerprint
    from raydr.journal import Journal
    from raydr.methods.landmarks.spectral import (
        KernelRequest,
        clustered,
        landmarks_of,
        place_clusters,
        places,
    )
    from raydr.privacy import Coverage
    from raydr.privacy.gaussian import GaussianNoise
    from raydr.statistics.moments import median_squared_distance, wide_spread

    def federation() -> Federation:
        hosted = [HostedClient(index, part, fingerprint(part)) for index, part in enumerate(parts)]
        noise = Coverage(GaussianNoise(on="gradient", level=1.0)) if noisy else None
        context = Context(seed=seed, coverage=noise)
        return Federation(InlineTransport([ClientHost(hosted=hosted, seed=seed)]), len(hosted), context)

    if widen != 1.0:
        first = federation()
        gamma = 1.0 / (widen * median_squared_distance(first, wide_spread(first)))
        settings = settings.model_copy(update={"gamma": gamma})
    found: dict[str, Int64Array] = {}
    for way, rounds in (("+", settings.rounds),) if noisy else (("", settings.rounds), (" frame", None)):
        running = federation()
        learnt = landmarks_of(running, settings.model_copy(update={"rounds": rounds}))
        kernels = [reply.values for reply in running.ask(KernelRequest(learnt.points, learnt.gamma))]
        placed = places(kernels, learnt)
        found[way] = place_clusters(settings, placed, learnt.gamma, seed, Journal()).clusters
        if not way and not settings.by_neighbors:
            found[" nystrom"] = clustered(kernels, learnt, settings, seed).clusters
    return found, learnt.gamma


def measure(
    rows: FloatArray, labels: Int64Array, affinity: str, landmarks: int, seed: int, widen: float
) -> tuple[Scores, dict[str, float]]:
    """Return NMI and ARI of all federated runs and of the pooled rows, and seconds of each."""
    from raydr.journal import Journal
    from raydr.methods.landmarks.kernel import gaussian_kernel
    from raydr.methods.landmarks.learning import LearntLandmarks
    from raydr.methods.landmarks.spectral import FedSpectral, clustered, place_clusters

    classes = len(np.unique(labels))
    keys = {"clusters": classes, "affinity": affinity, "landmarks": min(landmarks, len(rows) // 2)}
    settings = FedSpectral.model_validate(keys | {"rounds": ROUNDS})
    dealt = np.random.default_rng(seed).permutation(len(rows))
    own = np.argsort(labels[dealt], kind="stable")
    deals = {
        "iid": np.array_split(dealt, CLIENTS),
        "one-class": np.split(
            dealt[own], np.flatnonzero(np.diff(labels[dealt][own], prepend=labels[dealt][own][0]))
        ),
    }
    scores: Scores = {}
    seconds: dict[str, float] = {}
    gamma = 0.0
    with one_blas_thread():
        for name, parts in deals.items():
            for noisy in (False, True):
                started = time.perf_counter()
                held = [rows[part] for part in parts]
                found, used = federated(held, settings, seed, widen, noisy=noisy)
                for way, clusters in found.items():
                    side = name + way
                    seconds[side] = time.perf_counter() - started
                    scores[side] = agreement(labels[np.concatenate(parts)], clusters)
                gamma = gamma or used
        started = time.perf_counter()
        clusters = place_clusters(settings, rows[dealt], gamma, seed, Journal()).clusters
        seconds["pooled"] = time.perf_counter() - started
        scores["pooled"] = agreement(labels[dealt], clusters)
        if not settings.by_neighbors:
            started = time.perf_counter()
            pooled = rows[dealt].astype(np.float64)
            sample = LearntLandmarks(pooled[: settings.landmarks], gamma)
            kernel = np.asarray(gaussian_kernel(pooled, sample.points, gamma), np.float64)
            nystrom = settings.model_copy(update={"estimator": "nystrom"})
            clusters = clustered([kernel], sample, nystrom, seed).clusters
            seconds["sampled"] = time.perf_counter() - started
            scores["sampled"] = agreement(labels[dealt], clusters)
    return scores, seconds


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error, which is 0 for a single value."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return statistics.fmean(values), error


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--affinity", choices=("nearest-neighbors", "rbf"), default="nearest-neighbors")
    parser.add_argument("--data", nargs="+", choices=PAPER, default=list(PAPER))
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--rows", type=int, help="rows of MNIST")
    parser.add_argument("--landmarks", type=int, default=LANDMARKS)
    parser.add_argument("--widen", type=float, default=1.0)
    parser.add_argument("--json")
    options = parser.parse_args()
    from raydr.data import load

    seeds = options.seeds or (1 if options.quick else 3)
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    print(
        f"{'data':<14}{'rows':<19}{'NMI':>15}{'ARI':>17}{'ratio NMI':>17}{'ratio ARI':>17}{'P1':>15}{'s':>7}"
    )
    for name in options.data[::2] if options.quick else options.data:
        count = options.rows or (1_000 if options.quick else 40_000)
        table = load(source=name, rows=count if name == "mnist" else None)
        if table.labels is None:
            raise SystemExit(f"{name} has no labels")
        runs = [
            measure(table.rows, table.labels, options.affinity, options.landmarks, seed, options.widen)
            for seed in range(seeds)
        ]
        for side in [side for side in SIDES if side in runs[0][0]]:
            figure: dict[str, Any] = {"s": statistics.median(seconds[side] for _, seconds in runs)}
            for place, score in enumerate(("nmi", "ari")):
                found = [scores[side][place] for scores, _ in runs]
                figure[score] = mean_and_error(found)
                figure[f"ratio_{score}"] = mean_and_error(
                    [value / scores["pooled"][place] for value, (scores, _) in zip(found, runs, strict=True)]
                )
                figures[f"{name}.{side}.{score}"] = figure[score][0]
                ratios[f"{name}.{side}.{score}"], ratios[f"{name}.{side}.{score}.error"] = figure[
                    f"ratio_{score}"
                ]
            columns = [figure[key] for key in ("nmi", "ari", "ratio_nmi", "ratio_ari")]
            cells = "  ".join(f"{mean:.4f} ± {error:.4f}" for mean, error in columns)
            paper = " / ".join(f"{value:.3f}" for value in PAPER[name].get(side, ()))
            print(f"{name:<14}{side:<19}{cells}  {paper:<13}{figure['s']:8.1f}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"figures": figures, "ratios": ratios}, file, indent=2)


if __name__ == "__main__":
    main()
