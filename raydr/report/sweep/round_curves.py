"""Curves of a sweep's points by round: means and standard deviations over repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

from raydr.report import wording
from raydr.runfolder.reading import read_rounds, read_scores
from raydr.runfolder.records import TrialRow
from raydr.runfolder.sweep import LARGEST_VALUE, SweepFolder

MOST_PLACES, FEWEST_PLACES = 200, 12
"""Largest and smallest limit on the rounds of a line; of more rounds, an even selection is kept."""
MOST_VALUES = 120_000
"""Limit on the rounds of all lines of a chart together."""

OBJECTIVE = "objective"


@dataclass(frozen=True)
class Band:
    """One point's line: mean and standard deviation over its repeats by round; no deviation for one repeat."""

    point: int
    rounds: tuple[int, ...]
    means: tuple[float, ...]
    deviations: tuple[float | None, ...]


@dataclass(frozen=True)
class RoundCurve:
    """A quantity by round; ``arrow`` is the better direction, ``shared`` whether methods can be compared by it."""

    name: str
    title: str
    arrow: str
    shared: bool
    bands: tuple[Band, ...]


def courses(sweep: SweepFolder) -> tuple[RoundCurve, ...]:
    """Return the objective and every metric by round, for all trials that are done and whose folder exists.

    Raises
    ------
    OutputError
        If a trial's folder exists but is not a complete run folder.
    """
    lines: dict[str, dict[int, list[Mapping[int, float]]]] = {}
    for trial in sweep.trials:
        if trial.status == "done" and trial.folder is not None and (sweep.path / trial.folder).is_dir():
            for name, line in _by_round(sweep, trial).items():
                lines.setdefault(name, {}).setdefault(trial.point, []).append(line)
    return tuple(
        _course(name, some) for name, some in sorted(lines.items(), key=lambda item: item[0] != OBJECTIVE)
    )


def _by_round(sweep: SweepFolder, trial: TrialRow) -> dict[str, dict[int, float]]:
    """Return a trial's quantities by round; those with fewer than two values are left out."""
    folder = sweep.path / str(trial.folder)
    rounds = read_rounds(folder)
    found: dict[str, dict[int, float | None]] = {OBJECTIVE: {line.round: line.objective for line in rounds}}
    scores = read_scores(folder)
    for round, measures in sorted(scores.items()):
        for name, value in measures.items():
            found.setdefault(name, {})[round] = value
    last = max((line.round for line in rounds), default=0)
    if scores and last > max(scores):  # the final map follows the last round
        for name in found.keys() - {OBJECTIVE}:
            found[name][last] = trial.measures.get(f"federated.{name}")
    finite = {
        name: {
            round: value for round, value in line.items() if value is not None and abs(value) < LARGEST_VALUE
        }
        for name, line in found.items()
    }
    return {name: line for name, line in finite.items() if len(line) > 1}


def _course(name: str, lines: Mapping[int, Sequence[Mapping[int, float]]]) -> RoundCurve:
    places = int(np.clip(MOST_VALUES // len(lines), FEWEST_PLACES, MOST_PLACES))
    shared = name != OBJECTIVE
    return RoundCurve(
        name=name,
        title=wording.metric_title(name) if shared else "Objective",
        arrow=wording.arrow(name) if shared else "",
        shared=shared,
        bands=tuple(_band(point, some, places) for point, some in sorted(lines.items())),
    )


def _band(point: int, lines: Sequence[Mapping[int, float]], places: int) -> Band:
    rounds = sorted({round for line in lines for round in line})
    kept = np.unique(np.linspace(0, len(rounds) - 1, min(places, len(rounds))).round().astype(int))
    values = [[line[rounds[at]] for line in lines if rounds[at] in line] for at in kept]
    return Band(
        point=point,
        rounds=tuple(rounds[at] for at in kept),
        means=tuple(fmean(some) for some in values),
        deviations=tuple(stdev(some) if len(some) > 1 else None for some in values),
    )
