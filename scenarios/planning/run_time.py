"""Time model of a run by stage: operations and messages divided by measured rates.

docs/plan.md has the source of the rates. The target is a factor of three on a similar machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from raydr.embedding.embedder import PAIRS_ROWS
from raydr.embedding.umap import FEW_ROWS
from raydr.federation import Effort
from raydr.geometry.cells import CELL_ROWS
from raydr.geometry.cells import EXACT_ROWS as SEARCHED_ROWS
from raydr.methods import MethodSettings
from raydr.metrics.sampling import EXACT_ROWS, SAMPLED_ROWS
from raydr.scenarios.planning.run_memory import Load, is_light

OPERATIONS_PER_S = 6e9
"""Operations of one core in matrix products, with the work between them."""
BYTES_PER_S = 4e8
"""Bytes through Ray's store or this process: copied, checked against ranges, summed."""
RAY_START_S, ACTOR_START_S = 4.0, 0.7
CALL_S = {"ray": 4e-3, "inline": 5e-4}
"""Seconds of one request: to one actor, and to all clients of one process."""
MESSAGE_S = 1e-4
"""Seconds of one client's answer, of any size."""
LOADING_S = 1.0
"""Seconds to import an embedder."""
PAIR_S, PAIR_FEATURE_S = 4e-9, 1e-11
"""Seconds of the neighbour search on one core, for each pair of rows and for each of their features."""
LOOKED_INTO = 20
"""Cells that the neighbour search visits for each row of a very large table, for ordinary data."""
TSNE_PAIR_S, TSNE_INTERPOLATED_ROW_S = 1.4e-9, 5.5e-7
"""Seconds of one iteration on one core for each pair of rows, and for each row by interpolation."""
COSNE_ROW_S = 1.4e-5
"""Seconds of one iteration of CO-SNE for each row on one core."""
TSNE_GRID_S, FULL_GRID_ROWS = 0.075, 40_000
"""Seconds of one iteration's full grid on one core, and the rows from which it is full; its side grows as the map's."""
EDGE_S, UMAP_EDGE_S = 2e-7, 7e-8
"""Seconds of one epoch for each neighbour on one core, of CNE and PHATE and of UMAP."""
METRICS_S, METRIC_PAIR_S, METRIC_PAIR_FEATURE_S = 7.0, 7e-8, 1e-10
"""Seconds of all metrics on one core: imports, each pair of rows, and each feature of a pair."""
SILHOUETTE_PAIR_S = 5e-9
"""Seconds of `sc` on one core for each pair of rows of the map."""
SAMPLED_PAIR_S, SAMPLED_PAIR_FEATURE_S = 1e-8, 1e-10
"""The same with a sample: each pair of a sampled row and any row, and each feature of a pair."""
FOLDER_S, FOLDER_ROW_S = 0.5, 5e-7
"""Seconds to write the run folder, and for each row."""
REPORT_S, REPORT_ROW_S = 5.0, 1e-5
"""Seconds to write picture and report, and for each row."""
REFERENCE_S = 2e-5
"""Seconds for each row on one core to keep references that place new rows."""
TABLE_BYTES_PER_S = 5e7


@dataclass(frozen=True)
class StageTime:
    """A stage, named as in environment.json, and its seconds."""

    stage: str
    seconds: float


def stage_times(
    load: Load,
    efforts: Mapping[str, Effort],
    settings: MethodSettings,
    cores: int,
    threads: int,
    central_operations: float = 0.0,
) -> tuple[StageTime, ...]:
    """Return every stage of a run in order.

    Parameters
    ----------
    load : Load
        Rows, clients and actors.
    efforts : mapping of stage to Effort
        Work of the federation's stages.
    settings : MethodSettings
        Settings of the method, with its embedder.
    cores, threads : int
        Cores of all machines together, and of the machine that draws the map.
    central_operations : float
        Operations of the pooled-data map if no embedder draws it.
    """
    at = "inline" if load.inline else "ray"
    times = {"data": load.table / TABLE_BYTES_PER_S}
    if not load.inline:
        times["starting Ray"] = RAY_START_S
        times["clients"] = ACTOR_START_S * load.actors / cores + 2.0
    workers = 1 if load.inline else max(1, min(cores, load.actors))
    actors = max(1, load.actors)
    for stage, effort in efforts.items():
        calling = effort.calls * actors * CALL_S[at] / (1 if load.inline else min(2, workers))
        times[stage] = times.get(stage, 0.0) + (
            calling
            + effort.messages * MESSAGE_S / workers
            + effort.bytes / BYTES_PER_S
            + effort.at_clients / workers / OPERATIONS_PER_S
            + effort.at_server / OPERATIONS_PER_S
        )
    drawn = 0.0
    if load.embedder is not None:
        times["neighbours"] = _neighbours(load) / threads
        times["embedding"] = _embedding(load, settings, threads)
        drawn = times["neighbours"] + times["embedding"]
        times["references for new rows"] = load.rows * REFERENCE_S / threads
    if load.central:
        times["central map"] = drawn or central_operations / OPERATIONS_PER_S
    times["metrics"] = _metrics(load, threads)
    times["run folder"] = FOLDER_S + load.rows * FOLDER_ROW_S
    times["report"] = REPORT_S + load.rows * REPORT_ROW_S
    return tuple(StageTime(stage, seconds) for stage, seconds in times.items())


def _neighbours(load: Load) -> float:
    others = load.rows if load.rows <= SEARCHED_ROWS else min(load.rows, LOOKED_INTO * CELL_ROWS)
    return float(load.rows) * others * (PAIR_S + PAIR_FEATURE_S * load.features)


def _embedding(load: Load, settings: MethodSettings, threads: int) -> float:
    embedder = settings.drawn_by
    rows, name = load.rows, load.embedder or ""
    iterations = getattr(embedder, "iterations", None)
    if iterations is not None:
        iterations += getattr(embedder, "early_iterations", 0)
        if name != "tsne":
            return float(LOADING_S + rows * iterations * COSNE_ROW_S / threads)
        if rows <= PAIRS_ROWS:
            return float(LOADING_S + rows**2 * iterations * TSNE_PAIR_S / threads)
        grid = TSNE_GRID_S * min(1.0, rows / FULL_GRID_ROWS) ** 0.5
        return float(LOADING_S + iterations * (rows * TSNE_INTERPOLATED_ROW_S + grid) / threads)
    epochs = getattr(embedder, "epochs", None) or (500 if rows <= FEW_ROWS else 200)
    if name == "umap":
        shared = threads if rows > FEW_ROWS else 1
        return float(LOADING_S + rows * load.neighbours * epochs * UMAP_EDGE_S / shared)
    return float(LOADING_S + rows * load.neighbours * epochs * EDGE_S)


def _without_pairs(metric: str) -> bool:
    """Return whether a metric uses neighbours or the map alone, not distances of all pairs of rows."""
    return is_light(metric) or metric.startswith("ca_") or metric in {"nmi", "ari", "sc"}


def _metrics(load: Load, threads: int) -> float:
    maps = 2 if load.central else 1
    if load.rows > EXACT_ROWS:
        each = SAMPLED_PAIR_S + SAMPLED_PAIR_FEATURE_S * load.features
        if all(map(_without_pairs, load.metrics)):
            each /= 2.0
        return METRICS_S + load.rows * float(SAMPLED_ROWS) * each * maps / threads
    searched = 2.0 * _neighbours(load) * maps
    if all(map(is_light, load.metrics)):
        return 1.0 + searched / threads
    if all(map(_without_pairs, load.metrics)):
        silhouette = float(load.rows) ** 2 * SILHOUETTE_PAIR_S * maps if "sc" in load.metrics else 0.0
        return METRICS_S + searched / threads + silhouette
    pairs = float(load.rows) ** 2 * (METRIC_PAIR_S + METRIC_PAIR_FEATURE_S * load.features)
    return METRICS_S + (searched + pairs * maps) / threads
