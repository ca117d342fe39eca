"""Write sweep folders for tests of their readers, from runs or made-up numbers.

As a script it writes a sweep of real runs (``FOLDER``) or one of made-up numbers (``FOLDER --points 1000``).
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from tiny import tiny

from raydr.errors import RaydrError
from raydr.runfolder import read_run, records
from raydr.runfolder.manifest import seal
from raydr.runfolder.reading import RunFolder
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read

COSTS = (
    "bytes_up",
    "bytes_down",
    "bytes_exposed",
    "epsilon",
    "rounds",
    "objective",
    "seconds",
    "peak_memory_bytes",
)


@dataclass(frozen=True)
class Tried:
    """What a sweep says of one trial."""

    point: int
    repeat: int
    settings: Mapping[str, Any]
    measures: Mapping[str, float | None] = field(default_factory=dict)
    status: str = "done"
    error: str | None = None
    folder: str | None = "trials/none"


def write_sweep(
    folder: Path,
    trials: Sequence[Tried],
    *,
    objectives: Mapping[str, str] | None = None,
    name: str = "a sweep",
) -> Path:
    """Write the four files of a sweep folder."""
    folder.mkdir(parents=True, exist_ok=True)
    trials = sorted(trials, key=lambda trial: (trial.point, trial.repeat))
    keys = list(dict.fromkeys(key for trial in trials for key in trial.settings))
    measures = list(dict.fromkeys(name for trial in trials for name in trial.measures))
    columns: dict[str, pa.Array] = {
        "point": pa.array([trial.point for trial in trials], pa.int64()),
        "repeat": pa.array([trial.repeat for trial in trials], pa.int64()),
        "seed": pa.array([trial.repeat for trial in trials], pa.int64()),
        "status": pa.array([trial.status for trial in trials], pa.string()),
        "error": pa.array([trial.error for trial in trials], pa.string()),
        "folder": pa.array([trial.folder for trial in trials], pa.string()),
        "digest": pa.array(["0" * 64 for _ in trials], pa.string()),
        "data": pa.array(["1" * 64 for _ in trials], pa.string()),
    }
    settings = {key: _setting([trial.settings.get(key) for trial in trials]) for key in keys}
    columns |= {f"{records.SETTING}{key}": column for key, column in settings.items()}
    columns |= {
        name: pa.array([trial.measures.get(name) for trial in trials], pa.float64()) for name in measures
    }
    pq.write_table(pa.table(columns), folder / records.TRIALS)

    by_point = {point: list(some) for point, some in itertools.groupby(trials, key=lambda trial: trial.point)}
    firsts = pa.array([trials.index(some[0]) for some in by_point.values()], pa.int64())
    done = [[trial for trial in some if trial.status == "done"] for some in by_point.values()]
    rows: dict[str, pa.Array] = {"point": pa.array(list(by_point), pa.int64())}
    rows |= {f"{records.SETTING}{key}": column.take(firsts) for key, column in settings.items()}
    rows["repeats"] = pa.array([len(some) for some in done], pa.int64())
    for measure in measures:
        known = [[v for trial in some if (v := trial.measures.get(measure)) is not None] for some in done]
        rows[measure] = pa.array([fmean(some) if some else None for some in known], pa.float64())
        spread = [stdev(some) if len(some) > 1 else None for some in known]
        rows[f"{measure}{records.DEVIATION}"] = pa.array(spread, pa.float64())
    points = pa.table(rows)
    pq.write_table(points, folder / records.POINTS)

    wanted = dict(objectives or {})
    signs = [1.0 if way == "min" else -1.0 for way in wanted.values()]
    costs = [
        [math.inf if value is None else sign * value for value in points.column(measure).to_pylist()]
        for measure, sign in zip(wanted, signs, strict=True)
    ]
    front = best_of(list(zip(*costs, strict=True))) if costs else []
    pq.write_table(points.take(pa.array(front, pa.int64())), folder / records.PARETO)

    asked: dict[str, Any] = {
        "name": name,
        "base": tiny(),
        "space": dict.fromkeys(keys, "axis"),
        "repeats": max((trial.repeat for trial in trials), default=0) + 1,
    }
    if objectives is not None:
        asked["objectives"] = wanted
    (folder / records.SWEEP).write_text(yaml.safe_dump(asked, sort_keys=False))
    seal(folder)
    return folder


def best_of(costs: Sequence[Sequence[float]]) -> list[int]:
    """Places of the vectors that no other vector is below or equal to everywhere and below somewhere: by definition."""
    return [
        place
        for place, own in enumerate(costs)
        if math.inf not in own
        and not any(
            all(a <= b for a, b in zip(other, own, strict=True)) and list(other) != list(own)
            for other in costs
        )
    ]


def _setting(values: Sequence[Any]) -> pa.Array:
    """A column of one type, or of JSON text where values are sections, lists or of several types."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) == 1 and kinds <= {str, int, float, bool}:
        return pa.array(values)
    return pa.array([None if value is None else json.dumps(value) for value in values], pa.string())


# --- sweeps of real runs --------------------------------------------------------------------------------------------

DIGITS: dict[str, Any] = {
    "data.source": "digits",
    "data.rows": 150,
    "metrics": ["npa_10", "trustworthiness", "continuity", "ca_10"],
}
GRID: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "fed-tsne": [
        {"method.landmarks": landmarks, "privacy.noise": noise}
        for landmarks in (10, 40, 120)
        for noise in (None, {"on": "gradient", "level": 0.1}, {"on": "gradient", "level": 1.0})
    ],
    "fed-umap": [
        {"method.landmarks": landmarks, "clients.count": count}
        for landmarks in (10, 40, 120)
        for count in (3, 10)
    ],
    "sense": [
        {"method.anchors": anchors, "clients.count": count}
        for anchors in (8, 20, 40, 66)
        for count in (3, 10)
    ],
    "fedne": [
        {"method.rounds": rounds, "clients.count": count} for rounds in (2, 6) for count in (3, 10, 1000)
    ],
}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "fed-tsne": {
        "method.rounds": 8,
        "method.early_iterations": 50,
        "method.iterations": 100,
        "evaluate_every": 4,
    },
    "fed-umap": {"method.rounds": 8},
    "sense": {},
    "fedne": {"method.hidden": [16], "method.local_steps": 20},
}


def swept() -> Iterator[dict[str, Any]]:
    """Settings of every point of the grid; sections and absent keys among them."""
    for kind, points in GRID.items():
        for settings in points:
            yield {"method.kind": kind} | dict(settings)


def run_sweep(folder: Path, repeats: int = 2, points: int | None = None) -> Path:
    """Run the grid in this process where it has not been, and write a sweep folder with all of its run folders."""
    trials = []
    for point, settings in enumerate(itertools.islice(swept(), points)):
        for repeat in range(repeats):
            place = f"trials/{point:04d}-{repeat}"
            own = {key: value for key, value in settings.items() if value is not None}
            base = tiny() | {"method": {"kind": settings["method.kind"]}}
            try:
                scenario = read(
                    base, DIGITS | dict(SETTINGS[settings["method.kind"]]) | {"seed": repeat} | own
                )
                if not (folder / place).exists():
                    run(scenario, out=folder / place)
                trials.append(
                    Tried(point, repeat, settings, _measured(read_run(folder / place)), folder=place)
                )
            except RaydrError as error:
                said = str(error)
                trials.append(Tried(point, repeat, settings, status="failed", error=said, folder=None))
    objectives = {"federated.npa_10": "max", "bytes_exposed": "min", "bytes_up": "min", "seconds": "min"}
    return write_sweep(folder, trials, objectives=objectives, name="digits-methods")


def _measured(run: RunFolder) -> dict[str, float | None]:
    ways = {
        way: float(sum(entry.bytes for entry in run.ledger if entry.direction == way))
        for way in ("up", "down")
    }
    objectives = [line.objective for line in run.rounds if line.objective is not None]
    return {
        **{f"federated.{name}": value for name, value in run.measures.federated.items()},
        **{f"central.{name}": value for name, value in run.measures.central.items()},
        "bytes_up": ways["up"],
        "bytes_down": ways["down"],
        "bytes_exposed": float(sum(entry.bytes for entry in run.exposed)),
        "epsilon": run.privacy.epsilon,
        "rounds": float(len(run.rounds)),
        "objective": objectives[-1] if objectives else None,
        "seconds": sum(run.environment.seconds.values()),
        "peak_memory_bytes": float(max(run.environment.peak_memory_bytes.values(), default=0)),
    }


# --- sweeps of made-up numbers --------------------------------------------------------------------------------------


def made_up(points: int, repeats: int = 3, seed: int = 0) -> list[Tried]:
    """Trials of many points over four methods, some of them failed or stopped, with keys that do not apply to all."""
    draw = np.random.default_rng(seed)
    trials = []
    for point in range(points):
        kind = str(draw.choice(["fed-tsne", "fed-umap", "sense", "fedne"]))
        settings = {
            "method.kind": kind,
            "method.landmarks": int(draw.choice([20, 50, 100, 200, 500]))
            if kind.startswith("fed-")
            else None,
            "method.anchors": int(draw.integers(10, 200)) if kind == "sense" else None,
            "privacy.noise.level": float(draw.choice([0.0, 0.01, 0.1, 1.0])),
            "clients.count": int(draw.choice([5, 10, 50])),
            "data.scale": bool(draw.integers(2)),
        }
        size = float(settings["method.landmarks"] or settings["method.anchors"] or 30)
        noise = settings["privacy.noise.level"]
        good = 0.55 - 0.3 / math.sqrt(size) - 0.12 * noise + 0.03 * draw.normal()
        for repeat in range(repeats):
            status = str(draw.choice(records.TRIAL_STATES, p=[0.95, 0.03, 0.02]))
            if status != "done":
                error = (
                    "RunError: too few clients answered in round 3: 4 of 10, of at least 6"
                    if status == "failed"
                    else None
                )
                trials.append(Tried(point, repeat, settings, {}, status, error, None))
                continue
            found = {
                "federated.npa_10": good + 0.01 * draw.normal(),
                "federated.trustworthiness": 0.8 + 0.3 * good + 0.004 * draw.normal(),
                "federated.ca_10": 0.6 + 0.5 * good + 0.01 * draw.normal(),
                "central.npa_10": 0.56 + 0.004 * draw.normal(),
                "bytes_up": size * 64 * 50 * settings["clients.count"],
                "bytes_down": size * 64 * 50,
                "bytes_exposed": size * 1797 * 8.0 if kind != "fedne" else 0.0,
                "epsilon": 2.0 / noise if noise else None,
                "rounds": 50.0,
                "objective": float(draw.uniform(0.5, 3.0)),
                "seconds": size * 0.02 * float(draw.uniform(0.8, 1.2)) + 1,
                "peak_memory_bytes": float(draw.uniform(2e8, 5e8)),
            }  # fmt: skip
            trials.append(Tried(point, repeat, settings, found, folder=f"trials/{point:04d}-{repeat}"))
    return trials


OBJECTIVES = {"federated.npa_10": "max", "bytes_exposed": "min", "bytes_up": "min", "seconds": "min"}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--points", type=int, help="that many points of made-up numbers instead of real runs")
    asked = parser.parse_args()
    if asked.points:
        write_sweep(asked.folder, made_up(asked.points), objectives=OBJECTIVES)
    else:
        run_sweep(asked.folder)
