"""Search strategies of a sweep: a list of points, or proposals by Optuna."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from raydr.extras import require_packages
from raydr.tune.schema import Axis, Optuna, RandomSearch, Sweep
from raydr.tune.space import SweepPoint, points_of, points_of_cells, walk
from raydr.tune.tables import TableSearch

Measured = Mapping[int, Mapping[str, float] | None]
"""Results of points by number: means of measures by name, or None for a point without results."""


class Search(Protocol):
    """A sequence of points.

    ``learns`` is whether a point may depend on the results of others.
    """

    learns: ClassVar[bool]

    @property
    def count(self) -> int:
        """Number of points."""

    def point(self, number: int, measured: Measured) -> SweepPoint | None:
        """Return the point ``number``, from 0; None if it depends on points that are not in ``measured`` yet."""


def search_of(sweep: Sweep) -> Search:
    """Return the search of a sweep.

    Raises
    ------
    ScenarioError
        If a point that is known beforehand cannot be run.
    """
    match sweep.search:
        case Optuna():
            return Proposed(sweep, sweep.search)
        case TableSearch():
            return Listed(points_of_cells(sweep.scenario, sweep.search))
        case RandomSearch(samples=samples):
            return Listed(points_of(sweep, samples))
        case _:
            return Listed(points_of(sweep, 1))


def require_packages_of(search: Search) -> None:
    """Raise ScenarioError if a point that is known beforehand needs a package that is not installed."""
    for number in range(search.count):
        point = search.point(number, {})
        if point is not None:
            require_packages(point.scenario(0))


@dataclass(frozen=True)
class Listed:
    """Points that are known beforehand."""

    learns: ClassVar[bool] = False

    points: list[SweepPoint]

    @property
    def count(self) -> int:
        """Number of points."""
        return len(self.points)

    def point(self, number: int, measured: Measured) -> SweepPoint | None:
        """Return the point ``number``, whatever the results of others."""
        return self.points[number]


@dataclass
class Proposed:
    """Points that Optuna proposes in batches, each from the results of all earlier batches.

    Optuna's study is rebuilt for each batch from the results in order of point. So proposals do not depend on which
    point was done first, or on whether the sweep was interrupted.
    """

    learns: ClassVar[bool] = True

    sweep: Sweep
    settings: Optuna
    _points: list[SweepPoint] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Number of points that will be proposed."""
        return self.settings.samples

    def point(self, number: int, measured: Measured) -> SweepPoint | None:
        """Return the point ``number``, or None until all points of earlier batches are done."""
        while number >= len(self._points):
            if any(earlier not in measured for earlier in range(len(self._points))):
                return None
            self._propose(measured)
        return self._points[number]

    def _propose(self, measured: Measured) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        done, objectives = len(self._points), self.sweep.objectives
        study = optuna.create_study(
            directions=[
                "maximize" if direction == "max" else "minimize" for direction in objectives.values()
            ],
            # With `constant_liar`, pending trials count as bad, so that the points of a batch differ.
            sampler=optuna.samplers.TPESampler(seed=self.sweep.seed + done, constant_liar=True),
        )
        for point in self._points:
            study.add_trial(self._finished(point, measured[point.number]))
        for number in range(done, min(done + self.settings.at_once, self.count)):
            trial = study.ask()

            def choose(key: str, axis: Axis, trial: Any = trial) -> Any:
                return _asked(trial, self._name(key, axis), axis)

            self._points.append(SweepPoint(number, *walk(self.sweep.scenario, self.sweep.space, choose)))

    def _name(self, key: str, axis: Axis) -> str:
        """Return Optuna's name of an axis; alternatives for a key are separate parameters, because ranges are fixed."""
        axes = self.sweep.space[key]
        return key if len(axes) == 1 else f"{key} ({axes.index(axis)})"

    def _finished(self, point: SweepPoint, result: Mapping[str, float] | None) -> Any:
        """Return a finished Optuna trial, or a failed one if an objective is missing."""
        import optuna

        distributions: dict[str, Any] = {}
        parameters: dict[str, Any] = {}

        def choose(key: str, axis: Axis) -> Any:
            name, value = self._name(key, axis), point.values[key]
            options = axis.choice or axis.grid
            distributions[name] = _distribution(axis)
            parameters[name] = options.index(value) if options is not None else value
            return value

        walk(self.sweep.scenario, self.sweep.space, choose)
        found = [result[name] for name in self.sweep.objectives if result and name in result]
        whole = len(found) == len(self.sweep.objectives)
        return optuna.trial.create_trial(
            params=parameters,
            distributions=distributions,
            values=found if whole else None,
            state=optuna.trial.TrialState.COMPLETE if whole else optuna.trial.TrialState.FAIL,
        )


def _asked(trial: Any, name: str, axis: Axis) -> Any:
    options = axis.choice or axis.grid
    if options is not None:
        return options[trial.suggest_categorical(name, list(range(len(options))))]
    low, high = getattr(axis, axis.sort)
    suggest = trial.suggest_int if axis.sort.endswith("integers") else trial.suggest_float
    return suggest(name, low, high, log=axis.sort.startswith("log"))


def _distribution(axis: Axis) -> Any:
    """Return the Optuna distribution that matches :func:`_asked`."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    options = axis.choice or axis.grid
    if options is not None:
        return CategoricalDistribution(list(range(len(options))))  # values may be whole sections
    low, high = getattr(axis, axis.sort)
    kind = IntDistribution if axis.sort.endswith("integers") else FloatDistribution
    return kind(low, high, log=axis.sort.startswith("log"))
