"""What a sweep may say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from raydr.registry import one_of
from raydr.scenarios.schema.sections import LONGEST_NAME, NAME_PATTERN
from raydr.settings import Settings
from raydr.tune.tables import Table, contents

Direction = Literal["min", "max"]


class Axis(Settings):
    """Values of one key: listed, or drawn from a range whose ends both belong to it."""

    grid: tuple[Any, ...] | None = Field(None, min_length=1, description="values, each of which is taken")
    choice: tuple[Any, ...] | None = Field(
        None, min_length=1, description="values, one of which is drawn for a point"
    )
    uniform: tuple[float, float] | None = Field(None, description="[low, high], any number between them")
    log_uniform: tuple[float, float] | None = Field(
        None, description="[low, high], both above 0: any number between them, each order of magnitude alike"
    )
    integers: tuple[int, int] | None = Field(
        None, description="[low, high], whole numbers, the last included"
    )
    log_integers: tuple[int, int] | None = Field(
        None, description="[low, high], whole numbers from 1, each order of magnitude alike"
    )
    when: dict[str, Any] = Field(
        {},
        description="other keys, each with its value or a list of values, by which the axis applies; elsewhere the key"
        " is left out",
    )

    @model_validator(mode="after")
    def _one_sort(self) -> Self:
        given = [sort for sort in SORTS if getattr(self, sort) is not None]
        if len(given) != 1:
            raise ValueError(
                f"give exactly one of {', '.join(SORTS)}"
                + (f"; here are {' and '.join(given)}" if given else "")
            )
        if given[0] in ("grid", "choice"):
            return self
        low, high = getattr(self, given[0])
        if not low < high:
            raise ValueError(f"{given[0]} is [{low}, {high}]: the first must be less than the second")
        if given[0].startswith("log") and low <= 0:
            raise ValueError(f"{given[0]} starts at {low}: orders of magnitude begin above 0")
        return self

    @property
    def sort(self) -> str:
        """Which of its keys says where values come from."""
        return next(sort for sort in SORTS if getattr(self, sort) is not None)


SORTS = ("grid", "choice", "uniform", "log_uniform", "integers", "log_integers")
"""Where values of an axis may come from."""


def _alternatives(given: Any) -> Any:
    """An axis as a list of one, and bare values as a grid of them."""
    if isinstance(given, Mapping):
        return [given]
    if isinstance(given, list | tuple) and not any(isinstance(value, Mapping) for value in given):
        return [{"grid": given}]
    return given


Axes = Annotated[tuple[Axis, ...], BeforeValidator(_alternatives), Field(min_length=1)]
"""Alternatives for one key: the first whose conditions hold applies."""


class Grid(Settings):
    """Every combination of the grids' values."""

    kind: Literal["grid"] = "grid"


class Random(Settings):
    """Points drawn at random, so many for every combination of the grids' values."""

    samples: int = Field(ge=1, description="draws for each combination of grid values")
    kind: Literal["random"] = "random"


class Optuna(Settings):
    """Points that Optuna (TPE) proposes by what earlier ones came to, for all objectives together."""

    samples: int = Field(ge=1, description="points in all")
    at_once: int = Field(
        4,
        ge=1,
        description="points proposed together, each without knowing of the others: the next follow when all of them"
        " are done, so that proposals do not depend on which is done first",
    )
    kind: Literal["optuna"] = "optuna"


class ASHA(Settings):
    """Asynchronous successive halving: at each rung only the best part goes on."""

    grace: int = Field(5, ge=1, description="rounds that every trial has, the first rung")
    reduction: int = Field(3, ge=2, description="of so many trials at a rung, one goes on")
    kind: Literal["asha"] = "asha"


class MedianStopping(Settings):
    """A trial stops whose best so far is worse than the median of the others' means."""

    grace: int = Field(5, ge=1, description="rounds that every trial has")
    least: int = Field(3, ge=1, description="trials that must have come so far")
    kind: Literal["median"] = "median"


class TrialSettings(Settings):
    """What one trial gets of the cluster, all of whose processes and threads stay within it."""

    cpus: int = Field(1, ge=1, description="cores; as many trials run at once as the cluster has room for")
    gpus: float = Field(0.0, ge=0, description="GPUs, for runtime.device")
    memory_gib: float | None = Field(
        None, gt=0, description="memory; default: its cores' share of the cluster's"
    )
    retries: int | None = Field(
        None,
        ge=0,
        description="how often a trial whose process or node is lost starts again; default: 2, and 0 with"
        " `epsilon_max`, since each start releases again",
    )
    report: bool = Field(True, description="whether each trial's folder has its page and picture at once")


class Quick(Settings):
    """What `--quick` changes."""

    base: dict[str, Any] = Field({}, description="keys of the base, dotted, with other values")
    space: dict[str, Axes] = Field({}, description="axes in place of those of the same key")
    repeats: int | None = Field(None, ge=1, description="in place of repeats")
    samples: int | None = Field(None, ge=1, description="in place of search.samples")
    max_trials: int | None = Field(None, ge=1, description="in place of max_trials")


class Sweep(Settings):
    """A sweep, complete: the same sweep gives the same table, but for seconds and memory."""

    name: str = Field(
        pattern=NAME_PATTERN, max_length=LONGEST_NAME, description="names the sweep and its folder"
    )
    seed: int = Field(
        0, ge=0, lt=2**32, description="of what is drawn from the space; runs have the base's seed"
    )
    base: str | dict[str, Any] = Field(
        description="the scenario: a file, beside the sweep's as a rule, a shipped name, or its keys themselves"
    )
    space: dict[str, Axes] = Field(
        {},
        description="axes by dotted key of the scenario, in an order in which conditions come first; alternatives for"
        " one key as a list",
    )
    search: one_of((Grid, Random, Optuna, Table)) = Field(Grid(), description="which points of the space")  # type: ignore[valid-type]
    repeats: int = Field(
        1, ge=1, description="runs of each point, with seeds that follow each other: mean and sd"
    )
    objectives: dict[str, Direction] = Field(
        {
            "federated.npa_10": "max",
            "bytes_exposed": "min",
            "bytes_up": "min",
            "seconds": "min",
        },
        min_length=1,
        description="measures by name, each with min or max: of the Pareto front and of what is proposed; the first"
        " decides which point is best",
    )
    stopping: one_of((ASHA, MedianStopping)) | None = Field(  # type: ignore[valid-type]
        None, description="which trials end early, by the objective that their method reports by round"
    )
    max_trials: int | None = Field(None, ge=1, description="runs in all, at most")
    time_budget_s: float | None = Field(
        None,
        gt=0,
        description="seconds after which no further trial is taken up; those under way or next in line end",
    )
    epsilon_max: float | None = Field(
        None,
        gt=0,
        description="most that all trials together may come to, at the base's `privacy.delta`; checked before the first"
        " one starts",
    )
    trial: TrialSettings = Field(TrialSettings(), description="what one trial gets of the cluster")
    quick: Quick | None = Field(
        None, description="what `--quick` changes, to see in a minute whether it runs"
    )

    @model_validator(mode="after")
    def _points_of_one_sort(self) -> Self:
        if isinstance(self.search, Table) and (self.space or self.stopping is not None):
            raise ValueError(
                "search.kind is 'table', whose cells are the points: leave out space, and stopping, which would leave"
                " cells without their values"
            )
        if not isinstance(self.search, Table) and not self.space:
            raise ValueError("space is empty: give at least one key with the values that it takes")
        return self

    @model_validator(mode="after")
    def _values_that_are_drawn(self) -> Self:
        sorts = {key: {axis.sort for axis in axes} for key, axes in self.space.items()}
        drawn = [key for key, found in sorts.items() if found - {"grid"}]
        listed = [key for key, found in sorts.items() if "grid" in found]
        if isinstance(self.search, Grid) and drawn:
            raise ValueError(
                f"{drawn[0]} is to be drawn, and search.kind 'grid' draws nothing: give its values as a grid, or a"
                " search such as {kind: random, samples: 20}"
            )
        if isinstance(self.search, Random) and not drawn:
            raise ValueError("search.kind is 'random', and no axis is drawn: leave search out")
        if isinstance(self.search, Optuna) and any(
            axis.sort == "grid" and len(axis.grid or ()) > 1 for key in listed for axis in self.space[key]
        ):
            raise ValueError(
                f"{listed[0]} is a grid, each of whose values would be taken, and search.kind 'optuna' proposes: make"
                " it a choice"
            )
        return self

    @model_validator(mode="after")
    def _conditions_that_come_first(self) -> Self:
        before: set[str] = set()
        for key, axes in self.space.items():
            for condition in (name for axis in axes for name in axis.when):
                if condition in self.space and condition not in before:
                    raise ValueError(
                        f"{key} applies by {condition}, which comes after it: put {condition} first"
                    )
            before.add(key)
        return self

    @model_validator(mode="after")
    def _each_start_is_paid(self) -> Self:
        if self.epsilon_max is not None and self.trial.retries:
            raise ValueError(
                f"trial.retries is {self.trial.retries}, and a trial that starts again releases again, which"
                " epsilon_max cannot know beforehand: leave trial.retries out"
            )
        return self

    @property
    def retries(self) -> int:
        """How often a trial whose process or node is lost starts again."""
        if self.trial.retries is not None:
            return self.trial.retries
        return 2 if self.epsilon_max is None else 0

    @property
    def keys(self) -> list[str]:
        """Dotted keys that tell its points apart."""
        if isinstance(self.search, Table):
            return list(dict.fromkeys(key for values, _ in contents({}, self.search) for key in values))
        return list(self.space)

    @property
    def scenario(self) -> Mapping[str, Any]:
        """The base's keys; TypeError where it is not read yet."""
        if isinstance(self.base, str):
            raise TypeError(f"the base {self.base!r} is not read yet")
        return self.base
