"""What a sweep came to: means over repeats, the Pareto front, the best point's scenario."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from raydr.files import write_whole
from raydr.privacy.composition import OUTSIDE, Composition
from raydr.runfolder import records
from raydr.runfolder.records import TrialRow
from raydr.scenarios.schema.reading import dump, read
from raydr.tune.ledger import swept_columns, write_table
from raydr.tune.schema import Direction
from raydr.tune.trials import measures_in

_REMEDY = "make room there, or move the folder, and resume the sweep"


@dataclass(frozen=True)
class PointResult:
    """What the repeats of a point that are done came to.

    Attributes
    ----------
    point : int
    values : mapping of dotted key to value
    repeats : int
        How many are done; 0 where all failed or were stopped.
    means, deviations : mapping of measure to float
        Over those repeats that have it; the deviation of one is left out.
    """

    point: int
    values: Mapping[str, Any]
    repeats: int
    means: Mapping[str, float]
    deviations: Mapping[str, float]


def results_of(rows: Sequence[TrialRow]) -> list[PointResult]:
    """Points of which a trial ended, in their order."""
    by_point: dict[int, list[TrialRow]] = {}
    for row in rows:
        by_point.setdefault(row.point, []).append(row)
    return [_result(by_point[point]) for point in sorted(by_point)]


def _result(trials: Sequence[TrialRow]) -> PointResult:
    done = [row for row in trials if row.status == "done"]
    found = {
        name: [row.measures[name] for row in done if name in row.measures]
        for name in dict.fromkeys(name for row in done for name in row.measures)
    }
    return PointResult(
        trials[0].point,
        trials[0].values,
        len(done),
        {name: statistics.fmean(values) for name, values in found.items()},
        {name: statistics.stdev(values) for name, values in found.items() if len(values) > 1},
    )


def pareto(results: Sequence[PointResult], objectives: Mapping[str, Direction]) -> list[PointResult]:
    """Points that no other is as good as in all objectives and better than in one.

    A measure that a point does not have is its worst; objectives that no point has do not count, nor do points of which
    nothing is done.
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


def best(results: Sequence[PointResult], objectives: Mapping[str, Direction]) -> PointResult | None:
    """The point that is best in the first objective, of equals by the next; None where no point has the first."""
    first = next(iter(objectives))
    return next((result for result in ranked(results, objectives) if first in result.means), None)


def ranked(results: Sequence[PointResult], objectives: Mapping[str, Direction]) -> list[PointResult]:
    """Points by the first objective, the best first, of equals by the next, and at last by number."""
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
    """Write the tables, ``best.yaml`` where a point has the first objective, and what private runs cost together."""
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


def _table(results: Sequence[PointResult], keys: Sequence[str], measures: Sequence[str]) -> Any:
    import pyarrow as pa

    columns: dict[str, Any] = {"point": pa.array([result.point for result in results], pa.int64())}
    columns, _ = swept_columns(columns, [result.values for result in results], keys)
    columns["repeats"] = pa.array([result.repeats for result in results], pa.int64())
    for name in measures:
        columns[name] = pa.array([result.means.get(name) for result in results], pa.float64())
        columns[name + records.DEVIATION] = pa.array(
            [result.deviations.get(name) for result in results], pa.float64()
        )
    return pa.table(columns)
