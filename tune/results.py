"""Results of a sweep: means over repeats, the Pareto front, and the best point's scenario."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import Any

from raydr.files import write_whole
from raydr.privacy.composition import OUTSIDE, Composition
from raydr.runfolder import Point, records
from raydr.runfolder.records import TrialRow
from raydr.scenarios.schema.reading import dump, read
from raydr.tune.ledger import swept_columns, write_table
from raydr.tune.schema import Direction
from raydr.tune.trials import measures_in

_REMEDY = "free disk space there, or move the folder, and resume the sweep"


def results_of(rows: Sequence[TrialRow]) -> list[Point]:
    """Return the results of the points with at least one ended trial, by number."""
    by_point: dict[int, list[TrialRow]] = {}
    for row in rows:
        by_point.setdefault(row.point, []).append(row)
    return [_result(by_point[point]) for point in sorted(by_point)]


def _result(trials: Sequence[TrialRow]) -> Point:
    done = [row for row in trials if row.status == "done"]
    found = {
        name: [row.measures[name] for row in done if name in row.measures]
        for name in dict.fromkeys(name for row in done for name in row.measures)
    }
    return Point(
        trials[0].point,
        trials[0].values,
        len(done),
        {name: statistics.fmean(values) for name, values in found.items()},
        {name: statistics.stdev(values) for name, values in found.items() if len(values) > 1},
    )


def pareto(results: Sequence[Point], objectives: Mapping[str, Direction]) -> list[Point]:
    """Return the Pareto front: points for which no other is as good in all objectives and better in one.

    A missing measure counts as the worst value. Objectives that no point has are ignored, and so are points without
    finished repeats.
    """
    results = [result for result in results if result.repeats]
    known = {
        name: direction
        for name, direction in objectives.items()
        if any(name in result.means for result in results)
    }
    if not known:
        return []
    costs = [
        tuple(_cost(result.means.get(name), direction) for name, direction in known.items())
        for result in results
    ]
    return [
        result
        for result, own in zip(results, costs, strict=True)
        if not any(other != own and all(a <= b for a, b in zip(other, own, strict=True)) for other in costs)
    ]


def best(results: Sequence[Point], objectives: Mapping[str, Direction]) -> Point | None:
    """Return the best point by the first objective, with ties by the next; None if no point has the first."""
    first = next(iter(objectives))
    return next((result for result in ranked(results, objectives) if first in result.means), None)


def ranked(results: Sequence[Point], objectives: Mapping[str, Direction]) -> list[Point]:
    """Return points sorted by the first objective, best first, with ties by the next and then by number."""
    return sorted(
        results,
        key=lambda result: [
            *(_cost(result.means.get(name), direction) for name, direction in objectives.items()),
            result.point,
        ],
    )


def _cost(value: float | None, direction: Direction) -> float:
    if value is None:
        return float("inf")
    return value if direction == "min" else -value


def write_results(
    folder: Path,
    rows: Sequence[TrialRow],
    keys: Sequence[str],
    objectives: Mapping[str, Direction],
    total: Composition | None,
) -> None:
    """Write the tables, ``best.yaml`` if a point has the first objective, and the total cost of private runs."""
    results = results_of(rows)
    measures = measures_in(rows)
    write_table(folder / records.POINTS, _table(results, keys, measures))
    write_table(folder / records.PARETO, _table(pareto(results, objectives), keys, measures))
    if total is not None:
        write_whole(folder / records.COMPOSITION, json.dumps(asdict(total), indent=2).encode(), _REMEDY)
    chosen = best(results, objectives)
    if chosen is not None:
        first = next(row for row in rows if row.point == chosen.point and row.folder is not None)
        scenario = read(folder / str(first.folder) / records.SCENARIO)
        name, direction = next(iter(objectives.items()))
        heading = (
            f"# Point {chosen.point} of the sweep, best by {name} ({direction}): {chosen.means[name]:.6g} over"
            f" {chosen.repeats} run{'s' * (chosen.repeats > 1)}; this is its first\n"
        )
        if total is not None:
            heading += "".join(f"# {line}\n" for line in wrap(f"{total.words} {OUTSIDE}", 100))
        write_whole(folder / records.BEST, (heading + dump(scenario)).encode(), _REMEDY)


def _table(results: Sequence[Point], keys: Sequence[str], measures: Sequence[str]) -> Any:
    import pyarrow as pa

    columns: dict[str, Any] = {"point": pa.array([result.point for result in results], pa.int64())}
    columns, _ = swept_columns(columns, [result.settings for result in results], keys)
    columns["repeats"] = pa.array([result.repeats for result in results], pa.int64())
    for name in measures:
        columns[name] = pa.array([result.means.get(name) for result in results], pa.float64())
        columns[name + records.DEVIATION] = pa.array(
            [result.deviations.get(name) for result in results], pa.float64()
        )
    return pa.table(columns)
