"""How long a run will take, stage by stage, roughly: operations and messages over measured rates.

docs/plan.md tells where the rates come from; the promise is a factor of three on a machine of that sort.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from raydr.federation import Effort
from raydr.geometry.cells import CELL_ROWS
from raydr.geometry.cells import EXACT_ROWS as SEARCHED_ROWS
from raydr.methods import MethodSettings
from raydr.metrics.sampling import EXACT_ROWS, SAMPLED_ROWS
from raydr.scenarios.planning.run_memory import INTERPOLATED_ROWS, Load, is_light

OPERATIONS_PER_S = 6e9
"""Of one core, in products of matrices with what goes between them."""
BYTES_PER_S = 4e8
"""Through Ray's store or this process: copied, checked against ranges, added up."""
RAY_START_S, ACTOR_START_S = 6.0, 0.7
CALL_S = {"ray": 4e-3, "inline": 5e-4}
"""Of one question to one actor, and of one to all clients of one process."""
MESSAGE_S = 1e-4
"""Of one client's answer, whatever it holds."""
LOADING_S = {"tsne": 2.0, "umap": 8.0, "phate": 3.0}
"""Importing an embedder, and what numba compiles."""
PAIR_S, PAIR_FEATURE_S = 4e-9, 1e-11
"""Of the neighbour search, on one core, for each pair of rows, and for each of their features."""
LOOKED_INTO = 20
"""Cells into which each of very many rows looks for neighbours, of data that are no better than usual."""
TSNE_ROW_S, TSNE_INTERPOLATED_ROW_S = 1.4e-5, 5.5e-7
"""Of one iteration for each row, on one core: Barnes-Hut, and interpolation."""
TSNE_GRID_S, FULL_GRID_ROWS = 0.15, 40_000
"""Of one iteration's grids, on one core, by so many rows on as large as they become; their side grows as the map's."""
EDGE_S, SHARED_EDGE_S = 2e-7, 1e-7
"""Of one epoch of UMAP and its like for each neighbour of a row, on one core: and of UMAP of more rows than that."""
METRICS_S, METRIC_PAIR_S, METRIC_PAIR_FEATURE_S = 7.0, 7e-8, 1e-10
"""Of all metrics, on one core: importing, and for each pair of rows."""
SAMPLED_PAIR_S, SAMPLED_PAIR_FEATURE_S = 1e-8, 1e-10
"""The same where they look at a sample: for each pair of one of its rows with one of all."""
FOLDER_S, FOLDER_ROW_S = 0.5, 5e-7
"""Of the run folder."""
REPORT_S, REPORT_ROW_S = 5.0, 1e-5
"""Of its picture and its page."""
REFERENCE_S = 2e-5
"""Of a row, on one core, where the run keeps references by which new rows are placed."""
TABLE_BYTES_PER_S = 5e7


@dataclass(frozen=True)
class StageTime:
    """A stage as environment.json has it, and its seconds."""

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
        Rows, clients, actors.
    efforts : mapping of stage to Effort
        Of the federation's stages.
    settings : MethodSettings
        The method's, which say what draws the map.
    cores, threads : int
        Of all machines together, and of the one that draws the map.
    central_operations : float
        What the pooled-data map costs where no embedder draws it.
    """
    at = "inline" if load.inline else "ray"
    times = {"data": load.table / TABLE_BYTES_PER_S}
    if not load.inline:
        times["starting Ray"] = RAY_START_S
        times["clients"] = ACTOR_START_S * load.actors / cores + 2.0
    workers = 1 if load.inline else max(1, min(cores, load.actors))
    actors = max(1, load.actors)
    for stage, effort in efforts.items():
        asked = effort.calls * actors * CALL_S[at] / (1 if load.inline else min(2, workers))
        times[stage] = times.get(stage, 0.0) + (
            asked
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
    loading = LOADING_S.get(name, 3.0)
    iterations = getattr(embedder, "iterations", None)
    if iterations is not None:
        iterations += getattr(embedder, "early_iterations", 0)
        interpolated = rows >= INTERPOLATED_ROWS and name == "tsne"
        if not interpolated:
            return float(loading + rows * iterations * TSNE_ROW_S / threads)
        grid = TSNE_GRID_S * min(1.0, rows / FULL_GRID_ROWS) ** 0.5
        return float(loading + iterations * (rows * TSNE_INTERPOLATED_ROW_S + grid) / threads)
    epochs = getattr(embedder, "epochs", None) or (500 if rows <= INTERPOLATED_ROWS else 200)
    if name == "umap" and rows > INTERPOLATED_ROWS:
        return float(loading + rows * load.neighbours * epochs * SHARED_EDGE_S / threads)
    return float(loading + rows * load.neighbours * epochs * EDGE_S)


def _without_pairs(metric: str) -> bool:
    """Whether a metric looks at neighbours alone, and so at no pair of rows that the search has not."""
    return is_light(metric) or metric.startswith("ca_")


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
        return METRICS_S + searched / threads
    pairs = float(load.rows) ** 2 * (METRIC_PAIR_S + METRIC_PAIR_FEATURE_S * load.features)
    return METRICS_S + (searched + pairs * maps) / threads
