"""Cost of reproducibility: t-SNE and UMAP as raydr runs them, against their libraries without restrictions.

Run ``python -m benchmarks.determinism``: 10,000 rows of MNIST, some minutes. With ``--quick``: 1,000 rows of
digits, under a minute.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from raydr.arrays import FloatArray
from raydr.data import load
from raydr.embedding import TSNE, UMAP, principal_components
from raydr.embedding.initialization import tsne_start, umap_start
from raydr.errors import RaydrError
from raydr.geometry.neighbors import NeighborGraph, nearest_neighbors
from raydr.geometry.points import Points


@dataclass(frozen=True)
class Measurement:
    """One way of embedding, run ``repeats`` times."""

    name: str
    seconds: float  # fastest repeat
    maps: int  # distinct maps among the repeats: 1 if the bits repeat
    digest: str  # of the first map


def measured(ways: dict[str, Callable[[], FloatArray]], repeats: int) -> list[Measurement]:
    """Time each way of embedding and count its distinct maps. The ways take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    digests: dict[str, list[str]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, embed in ways.items():
            began = time.perf_counter()
            layout = embed()
            seconds[name].append(time.perf_counter() - began)
            digests[name].append(hashlib.sha256(np.ascontiguousarray(layout).tobytes()).hexdigest())
    return [Measurement(name, min(seconds[name]), len(set(digests[name])), digests[name][0]) for name in ways]


def free_tsne(graph: NeighborGraph, start: FloatArray, threads: int) -> FloatArray:
    """Run openTSNE on the same inputs, with its default threads and BLAS."""
    import openTSNE
    from openTSNE.affinity import PerplexityBasedNN
    from openTSNE.nearest_neighbors import PrecomputedNeighbors

    neighbors = PrecomputedNeighbors(graph.indices, graph.distances)
    affinities = PerplexityBasedNN(
        knn_index=neighbors, perplexity=TSNE().effective_perplexity(graph.rows), n_jobs=threads
    )
    layout = openTSNE.TSNE(n_jobs=threads).fit(affinities=affinities, initialization=tsne_start(start, 0))
    return np.array(layout)


def free_umap(graph: NeighborGraph, start: FloatArray, threads: int) -> FloatArray:
    """Run umap-learn without a seed on the same inputs, so that its layout uses all threads at once."""
    import umap

    neighbors = UMAP().effective_neighbors(graph.rows)
    nearest = graph.nearest(neighbors - 1)
    with_self = (
        np.column_stack((np.arange(graph.rows), nearest.indices)),
        np.column_stack((np.zeros(graph.rows, np.float32), nearest.distances)),
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "precomputed_knn", UserWarning)  # no index for new rows: not needed
        embedding = umap.UMAP(
            n_neighbors=neighbors, precomputed_knn=with_self, init=umap_start(start, 0), n_jobs=threads
        ).fit_transform(start)
    return np.asarray(embedding)


def compare(coordinates: FloatArray, threads: int, repeats: int) -> list[Measurement]:
    """Measure every way on the same graph and the same first layout.

    Parameters
    ----------
    coordinates : array of shape (rows, features)
        Rows of the graph.
    threads : int
        Threads of the parallel ways.
    repeats : int
        Runs of each way, of which the fastest counts.

    Returns
    -------
    list of Measurement
        t-SNE on 1 thread, on ``threads``, free; UMAP for 1 thread, for ``threads``, free.
    """
    graph = nearest_neighbors(Points(coordinates), TSNE().neighbors_needed(len(coordinates)), threads=threads)
    start = principal_components(coordinates)
    # numba compiles umap-learn again in every process. Its layout runs once first, outside the clock.
    small = nearest_neighbors(Points(coordinates[:50]), UMAP().neighbors_needed(50))
    UMAP(epochs=1).embed(small, start[:50], seed=0)
    free_umap(small, start[:50], threads)
    many = f"{threads} threads"
    ways: dict[str, Callable[[], FloatArray]] = {
        "raydr t-SNE, 1 thread": lambda: TSNE().embed(graph, start, seed=0),
        f"raydr t-SNE, {many}": lambda: TSNE().embed(graph, start, seed=0, threads=threads),
        f"openTSNE alone, {many}": lambda: free_tsne(graph, start, threads),
        "raydr UMAP, 1 thread": lambda: UMAP().embed(graph, start, seed=0),
        f"raydr UMAP, {many}": lambda: UMAP().embed(graph, start, seed=0, threads=threads),
        f"umap-learn alone, no seed, {many}": lambda: free_umap(graph, start, threads),
    }
    return measured(ways, repeats)


def main() -> None:
    """Print the table and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.determinism", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="1,000 rows of digits instead of MNIST: under a minute"
    )
    parser.add_argument("--rows", type=int, default=10_000, help="rows of MNIST (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of the parallel ways (default: 2)")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each way (default: 2)")
    parser.add_argument("--json", type=Path, help="also write figures and ratios to this file")
    arguments = parser.parse_args()
    try:
        table = (
            load(source="digits", rows=1000) if arguments.quick else load(source="mnist", rows=arguments.rows)
        )
    except RaydrError as error:
        parser.exit(error.exit_code, f"{error}\n")
    coordinates = table.rows

    print(
        f"{'digits' if arguments.quick else 'MNIST'}, {len(coordinates)} rows, {arguments.repeats} runs each"
    )
    found = compare(coordinates, arguments.threads, arguments.repeats)
    print(f"{'':<42}{'fastest':>11}{'maps':>6}   first map")
    for one in found:
        print(f"{one.name:<42}{one.seconds:>9.2f} s{one.maps:>6}   {one.digest[:12]}")
    tsne_one, tsne_many, tsne_free, umap_one, umap_many, umap_free = found
    ratios = {
        "t-SNE: raydr / openTSNE alone, same threads": tsne_many.seconds / tsne_free.seconds,
        "t-SNE: threads / 1 thread": tsne_many.seconds / tsne_one.seconds,
        "UMAP: raydr / umap-learn alone, no seed": umap_many.seconds / umap_free.seconds,
    }
    equal = {
        "t-SNE: 1 thread and many, equal bits": tsne_one.digest == tsne_many.digest,
        "UMAP: 1 thread and many, equal bits": umap_one.digest == umap_many.digest,
    }
    for name, ratio in ratios.items():
        print(f"{name:<46}{ratio:>6.2f}")
    for name, value in equal.items():
        print(f"{name:<46}{'yes' if value else 'NO':>6}")
    if arguments.json is not None:
        figures: dict[str, float | bool] = dict(equal)
        for one in found:
            figures[f"{one.name}, seconds"] = round(one.seconds, 3)
            figures[f"{one.name}, different maps"] = one.maps
        rounded = {name: round(ratio, 3) for name, ratio in ratios.items()}
        arguments.json.write_text(json.dumps({"figures": figures, "ratios": rounded}, indent=2) + "\n")


if __name__ == "__main__":
    main()
