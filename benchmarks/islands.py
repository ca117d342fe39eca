"""Error rate and power of the test of islands: how often a cluster is called several groups.

    python -m benchmarks.islands [--quick] [--tables gaussian ...] [--seeds N] [--rows N] [--json FILE]

Each table has one cluster or three, and t-SNE and UMAP draw its map with raydr's defaults. ``islands`` is the mean
number on the map. ``false`` is the number of maps with more groups of islands than the table has clusters. The test's
level is 5 %. For tables of three clusters, a line has the mean number of listed columns of a map, and the mean share of
wrong ones, in which clusters do not differ. ``digits``, ``cell-lines`` and ``heart-disease`` are real tables, with one
map each. For these, ``groups`` is the number of separate groups. ``s`` is the mean time of the test in seconds.
``--quick`` draws two tables of each kind and no real ones.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from raydr.arrays import Float64Array, FloatArray
from raydr.data import load
from raydr.embedding.initialization import principal_components
from raydr.embedding.tsne import TSNE
from raydr.embedding.umap import UMAP
from raydr.errors import DataError
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points
from raydr.metrics.evidence import Evidence
from raydr.metrics.islands import Islands, islands

EMBEDDERS: dict[str, TSNE | UMAP] = {"t-SNE": TSNE(), "UMAP": UMAP()}


def correlated(random: np.random.Generator, rows: int) -> Float64Array:
    """Return Gaussian rows of 20 columns, whose principal variances are 1, 1/2, 1/3, ..."""
    axes = np.linalg.qr(np.random.default_rng(5).standard_normal((20, 20)))[0]
    return np.asarray(random.standard_normal((rows, 20)) @ (axes / np.sqrt(np.arange(1, 21))).T)


def mixed(random: np.random.Generator, rows: int) -> Float64Array:
    """Return eight Gaussian columns and four of the values 0 and 1, all correlated."""
    columns = correlated(random, rows)[:, :12]
    columns[:, 8:] = columns[:, 8:] > 0.3
    return columns


def curved(random: np.random.Generator, rows: int) -> Float64Array:
    """Return rows along a bent band in three dimensions."""
    angle = 4 * random.random(rows)
    band = np.column_stack([np.cos(angle), np.sin(angle), random.random(rows)])
    return band + 0.05 * random.standard_normal(band.shape)


def three_clusters(random: np.random.Generator, rows: int) -> Float64Array:
    """Return rows of three correlated Gaussian clusters of different sizes, far apart."""
    columns = correlated(random, rows)
    columns[:, :3] += 8 * np.eye(3)[random.choice(3, rows, p=[0.5, 0.3, 0.2])]
    return columns


def close_clusters(random: np.random.Generator, rows: int) -> Float64Array:
    """Return rows of three close clusters, and 20 columns that depend on a row's deviation from its cluster only."""
    deviation = random.standard_normal((rows, 3))
    clusters = deviation + 5 * np.eye(3)[random.choice(3, rows, p=[0.5, 0.3, 0.2])]
    others = 0.7 * deviation @ random.standard_normal((3, 20)) + random.standard_normal((rows, 20))
    return np.column_stack([clusters, others])


TABLES: dict[str, Callable[[np.random.Generator, int], Float64Array]] = {
    "gaussian": lambda random, rows: random.standard_normal((rows, 10)),
    "gaussian, 50 columns": lambda random, rows: random.standard_normal((rows, 50)),
    "correlated gaussian": correlated,
    "t, 5 degrees of freedom": lambda random, rows: (
        correlated(random, rows) / np.sqrt(random.chisquare(5, (rows, 1)) / 5)
    ),
    "lognormal": lambda random, rows: np.exp(correlated(random, rows)),
    "mixed": mixed,
    "curved band": curved,
    "three clusters": three_clusters,
    "close clusters": close_clusters,
}
CLUSTERED = ("three clusters", "close clusters")
"""Tables of three clusters, which differ in the first three columns."""
REAL = ("digits", "scrna_cell_lines_pc20", "heart_disease")


def listed_columns(each: Islands) -> tuple[int, float]:
    """Return how many columns are listed, and the share of wrong ones: clusters differ in the first three."""
    groups = {island.group: island.largest for island in each.found}
    listed = [found.column for largest in groups.values() for found in largest]
    return len(listed), sum(column > 2 for column in listed) / max(1, len(listed))


def tested(rows: Float64Array, embedder: str, seed: int) -> tuple[Islands, float]:
    """Return the islands of a map of the rows, and the seconds of the test."""
    method = EMBEDDERS[embedder]
    graph = nearest_neighbors(Points(rows), method.neighbors_needed(len(rows)))
    places: FloatArray = method.embed(graph, principal_components(rows), seed=seed)
    started = time.perf_counter()
    found = islands(Evidence(rows=rows, embedding=places, seed=seed))
    if found is None:
        raise DataError(f"The test needs 100 rows, but there are {len(rows)}. Pass --rows 100 or more.")
    return found, time.perf_counter() - started


def main() -> None:
    """Print one line for each kind of table and each embedder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two tables of each kind, no real ones")
    parser.add_argument("--tables", nargs="*", default=[*TABLES, *REAL], choices=[*TABLES, *REAL])
    parser.add_argument("--seeds", type=int, default=50, help="tables of each kind")
    parser.add_argument("--rows", type=int, default=500, help="rows of each drawn table")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    seeds = range(2 if options.quick else options.seeds)
    print("| table | embedder | maps | islands | false | s |\n| --- | --- | --- | --- | --- | --- |")
    for name in (name for name in options.tables if name in TABLES):
        for embedder in EMBEDDERS:
            found, seconds = [], []
            for seed in seeds:
                random = np.random.default_rng((seed, list(TABLES).index(name)))
                rows = TABLES[name](random, options.rows)
                each, took = tested((rows - rows.mean(axis=0)) / rows.std(axis=0), embedder, seed)
                found.append(each)
                seconds.append(took)
            count = float(np.mean([len(each.found) for each in found]))
            clusters = 3 if name in CLUSTERED else 1
            wrong = sum(len({island.group for island in each.found}) > clusters for each in found)
            took = float(np.mean(seconds))
            print(f"| {name} | {embedder} | {len(found)} | {count:.1f} | {wrong} | {took:.2f} |", flush=True)
            names = (f"{name}.{embedder}.{figure}" for figure in ("maps", "islands", "false", "s"))
            figures |= dict(zip(names, (len(found), round(count, 2), wrong, round(took, 3)), strict=True))
            if clusters > 1:
                columns, false = np.mean([listed_columns(each) for each in found], axis=0).tolist()
                print(f"Listed columns in a map of {name} by {embedder}: {columns:.1f}, wrong {false:.3f}")
                figures[f"{name}.{embedder}.columns"] = round(columns, 1)
                figures[f"{name}.{embedder}.wrong"] = round(false, 3)
    real = [name for name in options.tables if name in REAL and not options.quick]
    if real:
        print(
            "\n| table | embedder | islands | groups | separate islands | s |\n| --- | --- | --- | --- | --- | --- |"
        )
    for name in real:
        rows = np.asarray(load(source=name).rows, dtype=np.float64)
        spread = rows.std(axis=0)
        rows = (rows - rows.mean(axis=0))[:, spread > 0] / (spread[spread > 0] if name == REAL[2] else 1)
        for embedder in EMBEDDERS:
            each, took = tested(rows, embedder, 0)
            groups = len({island.group for island in each.found})
            separate = sum(island.separate for island in each.found)
            print(
                f"| {name} | {embedder} | {len(each.found)} | {groups} | {separate} | {took:.2f} |",
                flush=True,
            )
            names = (f"{name}.{embedder}.{figure}" for figure in ("islands", "groups", "separate", "s"))
            figures |= dict(zip(names, (len(each.found), groups, separate, round(took, 3)), strict=True))
    if options.json:
        options.json.write_text(json.dumps({"figures": figures, "ratios": {}}, indent=2) + "\n")


if __name__ == "__main__":
    main()
