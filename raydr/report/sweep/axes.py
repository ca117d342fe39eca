"""Axes of a sweep's page: swept keys and measures, as numbers on a scale or as names."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from raydr.plain import short
from raydr.report import wording
from raydr.runfolder.sweep import LARGEST_VALUE, Setting, SweepFolder, Way

Unit = Literal["setting", "metric", "bytes", "seconds", "count", "epsilon"]

SPANS_DECADES = 100.0
"""Smallest ratio of the largest to the smallest positive value that makes an axis logarithmic."""
LONGEST_NAME = 60
"""Largest number of characters of a key or a value."""

OF_SIDE = {"federated": "", "central": ", pooled data", "worst_site": ", worst site"}
"""End of a metric's title."""
COSTS: Mapping[str, tuple[str, Unit, Way | None]] = {
    "bytes_exposed": ("Left per record, unprotected", "bytes", "min"),
    "bytes_up": ("Left the clients", "bytes", "min"),
    "bytes_down": ("Sent to the clients", "bytes", "min"),
    "epsilon": ("ε of the whole run", "epsilon", "min"),
    "epsilon_accounted": ("ε of the noisy releases", "epsilon", "min"),
    "leakage": ("Leakage to the best attack, 0 is a guess", "metric", "min"),
    "exact": ("Records recovered exactly", "metric", "min"),
    "membership_auc": ("Membership inference, AUC", "metric", "min"),
    "seconds": ("Time", "seconds", "min"),
    "peak_memory_bytes": ("Peak memory of a process", "bytes", "min"),
    "rounds": ("Rounds", "count", "min"),
    # Objectives of different methods are not comparable, so neither direction is better.
    "objective": ("Objective in the last round", "metric", None),
}
"""Title, unit and better direction of the measures that are not metrics."""
TELLING = ("federated.npa_10", "federated.trustworthiness")
"""Preferred measures of faithfulness if a sweep has no objectives."""
PRICES = ("leakage", "bytes_exposed", "epsilon", "bytes_up", "seconds")


@dataclass(kw_only=True, frozen=True)
class ParallelAxis:
    """A swept key or a measure, for all points of a sweep.

    Attributes
    ----------
    kind : {"number", "category"}
        For a category, ``values`` are indices into ``categories``.
    swept : bool
        Whether it is a swept key, not a measure.
    better : {"min", "max"} or None
        None if the direction is unknown or neither is better.
    logarithmic : bool
        Whether the positive values span decades and none is negative.
    absent : str
        Text for a point without a value.
    values, deviations : tuple of float or None, (points,)
    """

    name: str
    title: str
    kind: Literal["number", "category"]
    unit: Unit
    swept: bool
    better: Way | None
    logarithmic: bool
    absent: str
    values: tuple[float | None, ...]
    deviations: tuple[float | None, ...]
    categories: tuple[str, ...] = ()

    @property
    def varies(self) -> bool:
        """Whether it has more than one value, not counting missing ones."""
        return len({*self.values} - {None}) > 1

    def text(self, point: int) -> str:
        """Write a point's value, with its standard deviation if its repeats differ."""
        value, deviation = self.values[point], self.deviations[point]
        if value is None:
            return self.absent
        if self.kind == "category":
            return self.categories[int(value)]
        write = WRITERS[self.unit]
        return write(value) + (f" ± {write(deviation)}" if deviation else "")


def _number(value: float) -> str:
    return f"{value:.6g}".replace("-", "−")


WRITERS: Mapping[Unit, Callable[[float], str]] = {
    "setting": lambda value: str(int(value) if value == int(value) else value).replace("-", "−"),
    "metric": wording.measure,
    "bytes": wording.size,
    "seconds": wording.duration,
    "count": _number,
    "epsilon": wording.epsilon,
}


def axes(sweep: SweepFolder) -> tuple[ParallelAxis, ...]:
    """Return every swept key, then every measure that any point has."""
    keys = [_of_key(key, [point.settings[key] for point in sweep.points]) for key in sweep.keys]
    measures = [_of_measure(name, sweep) for name in sweep.measures]
    return (*keys, *(axis for axis in measures if any(value is not None for value in axis.values)))


def measures_of_interest(sweep: SweepFolder, known: Sequence[ParallelAxis]) -> tuple[ParallelAxis, ...]:
    """Return the sweep's objectives, or else faithfulness, leakage and costs; points are ranked by the first."""
    by_name = {axis.name: axis for axis in known if not axis.swept}
    objectives = [by_name[name] for name in sweep.objectives if name in by_name]
    if objectives:
        return tuple(objectives)
    metrics = [axis.name for axis in by_name.values() if axis.name.startswith("federated.") and axis.better]
    wanted = [*[name for name in (*TELLING, *metrics) if name in by_name][:1], *PRICES]
    return tuple(by_name[name] for name in wanted if name in by_name) or tuple(by_name.values())[:1]


def ranking(axis: ParallelAxis | None, points: int) -> list[int]:
    """Return the order of points (points,): best by the axis first, those without a value last."""
    if axis is None:
        return list(range(points))
    sign = -1.0 if axis.better == "max" else 1.0

    def rank(place: int) -> tuple[bool, float]:
        value = axis.values[place]
        return value is None, 0.0 if value is None else sign * value

    return sorted(range(points), key=rank)


def _of_measure(name: str, sweep: SweepFolder) -> ParallelAxis:
    title, unit, better = _known(name)
    values = tuple(point.means.get(name) for point in sweep.points)
    return ParallelAxis(
        name=name,
        title=title,
        kind="number",
        unit=unit,
        swept=False,
        better=sweep.objectives.get(name, better),
        logarithmic=_spans_decades(values),
        absent="∞ or none" if unit == "epsilon" else "none",
        values=values,
        deviations=tuple(point.deviations.get(name) for point in sweep.points),
    )


def _known(name: str) -> tuple[str, Unit, Way | None]:
    """Return the title, unit and better direction of a measure; for an unknown one, its name and None."""
    if name in COSTS:
        return COSTS[name]
    which, _, metric = name.partition(".")
    if which not in OF_SIDE:
        return short(name, LONGEST_NAME), "metric", None
    higher = wording.higher_is_better(metric)
    title = short(wording.metric_title(metric), LONGEST_NAME) + OF_SIDE[which]
    return title, "metric", None if higher is None else "max" if higher else "min"


def _of_key(key: str, settings: Sequence[Setting]) -> ParallelAxis:
    values = _decoded(settings)
    numbers = [value for value in values if value is not None]
    if numbers and all(_is_number(value) for value in numbers):
        places: list[Any] = list(values)
        names: tuple[str, ...] = ()
    else:
        order = {_as_json(value): value for value in values if value is not None}
        position = {text: place for place, text in enumerate(order)}
        places = [None if value is None else position[_as_json(value)] for value in values]
        names = tuple(short(_words(value), LONGEST_NAME) for value in order.values())
    return ParallelAxis(
        name=key,
        title=short(key, LONGEST_NAME),
        kind="category" if names or not numbers else "number",
        unit="setting",
        swept=True,
        better=None,
        logarithmic=not names and _spans_decades(places),
        absent="does not apply",
        values=tuple(places),
        deviations=(None,) * len(places),
        categories=names,
    )


def _decoded(settings: Sequence[Setting]) -> list[Any]:
    """Decode the values of a key: a column of sections or of mixed types holds JSON text."""
    texts = [value for value in settings if isinstance(value, str)]
    try:
        read = {text: json.loads(text) for text in texts}
    except (ValueError, RecursionError):
        return list(settings)
    return [read[value] if isinstance(value, str) else value for value in settings]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST_VALUE


def _as_json(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _words(value: object) -> str:
    """Write a setting as in a scenario, without outer braces."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_words(part)}" for key, part in value.items())
    if isinstance(value, list):
        return "[" + ", ".join(_words(part) for part in value) + "]"
    return value if isinstance(value, str) else json.dumps(value)


def _spans_decades(values: Sequence[float | None]) -> bool:
    known = [value for value in values if value is not None]
    positive = [value for value in known if value > 0]
    return len(positive) > 1 and min(known) >= 0 and max(positive) >= SPANS_DECADES * min(positive)
