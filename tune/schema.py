"""Pydantic models for sweep files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from raydr.registry import one_of
from raydr.scenarios.schema.sections import LONGEST_NAME, NAME_PATTERN
from raydr.settings import Settings
from raydr.tune.tables import TableSearch, contents

Direction = Literal["min", "max"]


class Axis(Settings):
    """Values of one key: listed, or drawn from a range that includes both ends."""

    grid: tuple[Any, ...] | None = Field(None, min_length=1, description="values; each of them is used")
    choice: tuple[Any, ...] | None = Field(
        None, min_length=1, description="values; one of them is drawn for each point"
    )
    uniform: tuple[float, float] | None = Field(None, description="[low, high], any number in between")
    log_uniform: tuple[float, float] | None = Field(
        None, description="[low, high], both above 0: any number in between, uniform in its logarithm"
    )
    integers: tuple[int, int] | None = Field(None, description="[low, high], whole numbers, both included")
    log_integers: tuple[int, int] | None = Field(
        None, description="[low, high], whole numbers from 1, uniform in their logarithm"
    )
    when: dict[str, Any] = Field(
        {},
        description="other keys, each with the value or list of values for which the axis applies; otherwise the key"
        " is left out",
    )

    @model_validator(mode="after")
    def _one_sort(self) -> Self:
        given = [sort for sort in SORTS if getattr(self, sort) is not None]
        if len(given) != 1:
            raise ValueError(
                f"give exactly one of {', '.join(SORTS)}" + (f"; got {' and '.join(given)}" if given else "")
            )
        if given[0] in ("grid", "choice"):
            return self
        low, high = getattr(self, given[0])
        if not low < high:
            raise ValueError(f"{given[0]} is [{low}, {high}]: the first must be less than the second")
        if given[0].startswith("log") and low <= 0:
            raise ValueError(f"{given[0]} starts at {low}: a logarithmic range must start above 0")
        return self

    @property
    def sort(self) -> str:
        """The key of :data:`SORTS` that the axis has."""
        return next(sort for sort in SORTS if getattr(self, sort) is not None)


SORTS = ("grid", "choice", "uniform", "log_uniform", "integers", "log_integers")
"""Kinds of axes."""


def _alternatives(given: Any) -> Any:
    """Return one axis as a list, and plain values as a grid."""
    if isinstance(given, Mapping):
        return [given]
    if isinstance(given, list | tuple) and not any(isinstance(value, Mapping) for value in given):
        return [{"grid": given}]
    return given


Axes = Annotated[tuple[Axis, ...], BeforeValidator(_alternatives), Field(min_length=1)]
"""Alternatives for one key; the first one whose conditions hold applies."""


class GridSearch(Settings):
    """Search over every combination of grid values."""

    kind: Literal["grid"] = "grid"


class RandomSearch(Settings):
    """Search with random draws for every combination of grid values."""

    samples: int = Field(ge=1, description="draws for each combination of grid values")
    kind: Literal["random"] = "random"


class Optuna(Settings):
    """Search by Optuna (TPE), which proposes points from earlier results, for all objectives together."""

    samples: int = Field(ge=1, description="total number of points")
    at_once: int = Field(
        4,
        ge=1,
        description="points proposed together. The next follow when all of them are done, so proposals do not depend"
        " on which is done first",
    )
    kind: Literal["optuna"] = "optuna"


class ASHA(Settings):
    """Asynchronous successive halving: at each rung, only the best trials continue."""

    grace: int = Field(5, ge=1, description="rounds of every trial before the first rung")
    reduction: int = Field(3, ge=2, description="one in this many trials at a rung continues")
    kind: Literal["asha"] = "asha"


class MedianStopping(Settings):
    """Median rule: a trial stops if its best value so far is worse than the median of the others' means."""

    grace: int = Field(5, ge=1, description="rounds that every trial has")
    least: int = Field(3, ge=1, description="trials that must have reached the same round")
    kind: Literal["median"] = "median"


class TrialSettings(Settings):
    """Resources of one trial; all of its processes and threads stay within them."""

    cpus: int = Field(1, ge=1, description="cores; as many trials run at once as fit the cluster")
    gpus: float = Field(0.0, ge=0, description="GPUs, for runtime.device")
    memory_gib: float | None = Field(
        None, gt=0, description="memory; default: the share of the cluster's memory of its cores"
    )
    retries: int | None = Field(
        None,
        ge=0,
        description="restarts of a trial whose process or node is lost; default: 2, or 0 with `epsilon_max`, because"
        " each start is another release",
    )
    report: bool = Field(True, description="whether each trial writes its page and picture at once")


class Quick(Settings):
    """Changes of `--quick`."""

    base: dict[str, Any] = Field({}, description="values of the base by dotted key")
    space: dict[str, Axes] = Field({}, description="axes that replace those of the same key")
    repeats: int | None = Field(None, ge=1, description="replaces repeats")
    samples: int | None = Field(None, ge=1, description="replaces search.samples")
    max_trials: int | None = Field(None, ge=1, description="replaces max_trials")


class Sweep(Settings):
    """A complete sweep. The same sweep gives the same table, except for seconds and memory."""

    name: str = Field(
        pattern=NAME_PATTERN, max_length=LONGEST_NAME, description="names the sweep and its folder"
    )
    seed: int = Field(0, ge=0, lt=2**32, description="seed of draws from the space; runs use the base's seed")
    base: str | dict[str, Any] = Field(
        description="the scenario: a file (usually next to the sweep file), a shipped name, or its keys"
    )
    space: dict[str, Axes] = Field(
        {},
        description="axes by dotted key of the scenario; keys that conditions name come first; alternatives for one key"
        " are a list",
    )
    search: one_of((GridSearch, RandomSearch, Optuna, TableSearch)) = Field(  # type: ignore[valid-type]
        GridSearch(), description="which points of the space"
    )
    repeats: int = Field(
        1, ge=1, description="runs of each point with consecutive seeds, for mean and standard deviation"
    )
    objectives: dict[str, Direction] = Field(
        {
            "federated.npa_10": "max",
            "bytes_exposed": "min",
            "bytes_up": "min",
            "seconds": "min",
        },
        min_length=1,
        description="measures by name, each with min or max, for the Pareto front and Optuna; the first decides which"
        " point is best",
    )
    stopping: one_of((ASHA, MedianStopping)) | None = Field(  # type: ignore[valid-type]
        None,
        description="rule by which trials end early, by the objective that their method reports by round",
    )
    max_trials: int | None = Field(None, ge=1, description="largest total number of runs")
    time_budget_s: float | None = Field(
        None,
        gt=0,
        description="seconds after which no further trial starts; running trials and those next in line finish",
    )
    epsilon_max: float | None = Field(
        None,
        gt=0,
        description="largest total epsilon of all trials, at the base's `privacy.delta`; checked before the first trial"
        " starts",
    )
    trial: TrialSettings = Field(TrialSettings(), description="resources of one trial")
    quick: Quick | None = Field(None, description="changes of `--quick`, for a short test of the sweep")

    @model_validator(mode="after")
    def _points_of_one_sort(self) -> Self:
        if isinstance(self.search, TableSearch) and (self.space or self.stopping is not None):
            raise ValueError(
                "search.kind is 'table', whose cells are the points. Leave out space and stopping; stopping would leave"
                " cells without values"
            )
        if not isinstance(self.search, TableSearch) and not self.space:
            raise ValueError("space is empty: give at least one key with its values")
        return self

    @model_validator(mode="after")
    def _values_that_are_drawn(self) -> Self:
        sorts = {key: {axis.sort for axis in axes} for key, axes in self.space.items()}
        drawn = [key for key, found in sorts.items() if found - {"grid"}]
        listed = [key for key, found in sorts.items() if "grid" in found]
        if isinstance(self.search, GridSearch) and drawn:
            raise ValueError(
                f"{drawn[0]} must be drawn, but search.kind 'grid' draws nothing. Give its values as a grid, or set a"
                " search such as {kind: random, samples: 20}"
            )
        if isinstance(self.search, RandomSearch) and not drawn:
            raise ValueError("search.kind is 'random', but no axis is drawn: leave out search")
        if isinstance(self.search, Optuna) and any(
            axis.sort == "grid" and len(axis.grid or ()) > 1 for key in listed for axis in self.space[key]
        ):
            raise ValueError(
                f"{listed[0]} is a grid, which uses every value, but search.kind 'optuna' proposes values. Make it a"
                " choice"
            )
        return self

    @model_validator(mode="after")
    def _conditions_that_come_first(self) -> Self:
        before: set[str] = set()
        for key, axes in self.space.items():
            for condition in (name for axis in axes for name in axis.when):
                if condition in self.space and condition not in before:
                    raise ValueError(
                        f"{key} depends on {condition}, which comes after it: put {condition} first"
                    )
            before.add(key)
        return self

    @model_validator(mode="after")
    def _each_start_is_paid(self) -> Self:
        if self.epsilon_max is not None and self.trial.retries:
            raise ValueError(
                f"trial.retries is {self.trial.retries}, but each restart is another release, which epsilon_max cannot"
                " know beforehand: leave out trial.retries"
            )
        return self

    @property
    def retries(self) -> int:
        """Number of restarts of a trial whose process or node is lost."""
        if self.trial.retries is not None:
            return self.trial.retries
        return 2 if self.epsilon_max is None else 0

    @property
    def keys(self) -> list[str]:
        """Dotted keys in which points differ."""
        if isinstance(self.search, TableSearch):
            return list(dict.fromkeys(key for values, _ in contents({}, self.search) for key in values))
        return list(self.space)

    @property
    def scenario(self) -> Mapping[str, Any]:
        """The base's keys; TypeError if the base is still the name of a file."""
        if isinstance(self.base, str):
            raise TypeError(f"the base {self.base!r} was not read yet")
        return self.base
