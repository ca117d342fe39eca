"""Swept keys and measures of a sweep as axes: numbers on a scale or names in their order, with what is absent said."""

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
"""Largest over smallest value above 0 from which on an axis is logarithmic."""
LONGEST_NAME = 60
"""Letters of a key or a value."""

COSTS: Mapping[str, tuple[str, Unit, Way | None]] = {
    "bytes_exposed": ("Left per record, unprotected", "bytes", "min"),
    "bytes_up": ("Left the clients", "bytes", "min"),
    "bytes_down": ("Sent to the clients", "bytes", "min"),
    "epsilon": ("ε of the whole run", "epsilon", "min"),
    "epsilon_accounted": ("ε of what noise covers", "epsilon", "min"),
    "leakage": ("Recovered by the best attack, 0 for a guess", "metric", "min"),
    "exact": ("Records recovered exactly", "metric", "min"),
    "membership_auc": ("Members told from others, AUC", "metric", "min"),
    "seconds": ("Seconds", "seconds", "min"),
    "peak_memory_bytes": ("Peak memory of a process", "bytes", "min"),
    "rounds": ("Rounds", "count", "min"),
    # Of different methods it is not the same thing, so neither way is better.
    "objective": ("Objective in the last round", "metric", None),
}
"""Title, unit and better way of the measures that are no metrics."""
TELLING = ("federated.npa_10", "federated.trustworthiness")
"""Measures that say best how faithful a map is, where a sweep does not say what it is after."""
PRICES = ("leakage", "bytes_exposed", "epsilon", "bytes_up", "seconds")


@dataclass(kw_only=True, frozen=True)
class Axis:
    """A swept key or a measure over all points of a sweep.

    Attributes
    ----------
    kind : {"number", "category"}
        Of categories ``values`` are positions in ``categories``.
    swept : bool
        Whether it is a key that was swept, rather than a measure.
    better : {"min", "max"} or None
        None where neither is better or nobody knows.
    logarithmic : bool
        Whether the values above 0 span decades, and none is below.
    absent : str
        What it means where there is no value.
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
        """Whether it has more than one value, apart from where it has none."""
        return len({*self.values} - {None}) > 1

    def text(self, point: int) -> str:
        """A point's value in words, with its deviation where its repeats differ."""
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


def axes(sweep: SweepFolder) -> tuple[Axis, ...]:
    """Every swept key, then every measure that any point has."""
    keys = [_of_key(key, [point.settings[key] for point in sweep.points]) for key in sweep.keys]
    measures = [_of_measure(name, sweep) for name in sweep.measures]
    return (*keys, *(axis for axis in measures if any(value is not None for value in axis.values)))


def measures_of_interest(sweep: SweepFolder, known: Sequence[Axis]) -> tuple[Axis, ...]:
    """Measures that a sweep is after, the first the one to rank by; by default faithfulness, leakage and costs."""
    by_name = {axis.name: axis for axis in known if not axis.swept}
    asked = [by_name[name] for name in sweep.objectives if name in by_name]
    if asked:
        return tuple(asked)
    metrics = [axis.name for axis in by_name.values() if axis.name.startswith("federated.") and axis.better]
    wanted = [*[name for name in (*TELLING, *metrics) if name in by_name][:1], *PRICES]
    return tuple(by_name[name] for name in wanted if name in by_name) or tuple(by_name.values())[:1]


def ranking(axis: Axis | None, points: int) -> list[int]:
    """Places of points (points,), the best by an axis first, those without a value last, in their order."""
    if axis is None:
        return list(range(points))
    sign = -1.0 if axis.better == "max" else 1.0

    def rank(place: int) -> tuple[bool, float]:
        value = axis.values[place]
        return value is None, 0.0 if value is None else sign * value

    return sorted(range(points), key=rank)


def _of_measure(name: str, sweep: SweepFolder) -> Axis:
    title, unit, better = _known(name)
    values = tuple(point.means[name] for point in sweep.points)
    return Axis(
        name=name,
        title=title,
        kind="number",
        unit=unit,
        swept=False,
        better=sweep.objectives.get(name, better),
        logarithmic=_spans_decades(values),
        absent="∞ or none" if unit == "epsilon" else "none",
        values=values,
        deviations=tuple(point.deviations[name] for point in sweep.points),
    )


def _known(name: str) -> tuple[str, Unit, Way | None]:
    """Title, unit and better way of a measure; the name alone where nobody knows it."""
    if name in COSTS:
        return COSTS[name]
    which, _, metric = name.partition(".")
    if which not in ("federated", "central"):
        return short(name, LONGEST_NAME), "metric", None
    higher = wording.higher_is_better(metric)
    title = short(wording.metric_title(metric), LONGEST_NAME) + (
        ", pooled data" if which == "central" else ""
    )
    return title, "metric", None if higher is None else "max" if higher else "min"


def _of_key(key: str, settings: Sequence[Setting]) -> Axis:
    values = _decoded(settings)
    numbers = [value for value in values if value is not None]
    if numbers and all(_is_number(value) for value in numbers):
        places: list[Any] = list(values)
        names: tuple[str, ...] = ()
    else:
        order = {_told(value): value for value in values if value is not None}
        position = {text: place for place, text in enumerate(order)}
        places = [None if value is None else position[_told(value)] for value in values]
        names = tuple(short(_words(value), LONGEST_NAME) for value in order.values())
    return Axis(
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
    """Values of a key: JSON text, which a column of sections or of several types is, as what it says."""
    texts = [value for value in settings if isinstance(value, str)]
    try:
        read = {text: json.loads(text) for text in texts}
    except (ValueError, RecursionError):
        return list(settings)
    return [read[value] if isinstance(value, str) else value for value in settings]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST_VALUE


def _told(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _words(value: object) -> str:
    """A setting as one would write it in a scenario, without brackets around it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_words(part)}" for key, part in value.items())
    if isinstance(value, list):
        return "[" + ", ".join(_words(part) for part in value) + "]"
    return value if isinstance(value, str) else json.dumps(value)


def _spans_decades(values: Sequence[float | None]) -> bool:
    known = [value for value in values if value is not None]
    positive = [value for value in known if value > 0]
    return len(positive) > 1 and min(known) >= 0 and max(positive) >= SPANS_DECADES * min(positive)
