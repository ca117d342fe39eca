"""Points of a sweep's space: a value for each key that applies, and the resulting scenario."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from raydr.errors import ScenarioError
from raydr.scenarios.schema.reading import copied, override, read
from raydr.scenarios.schema.scenario import Scenario
from raydr.tune.schema import Axis, Sweep
from raydr.tune.tables import TableSearch, contents

Space = Mapping[str, Sequence[Axis]]


@dataclass(frozen=True)
class SweepPoint:
    """A combination of values.

    Attributes
    ----------
    number : int
        Number from 0, in the order of the sweep.
    values : mapping of dotted key to value
        Values of the keys that apply, in the order of the space.
    content : mapping
        The resulting scenario.
    """

    number: int
    values: Mapping[str, Any]
    content: Mapping[str, Any]

    def scenario(self, repeat: int) -> Scenario:
        """Return the scenario of a repeat; repeats have consecutive seeds.

        Raises
        ------
        ScenarioError
            If these values cannot be run.
        """
        settings = ", ".join(f"{key} {json.dumps(value)}" for key, value in self.values.items())
        try:
            first = read(self.content)
            return read(self.content, {"seed": first.seed + repeat}) if repeat else first
        except ScenarioError as error:
            raise ScenarioError(f"The point {settings}: {error}") from None


def digest(scenario: Scenario) -> str:
    """Return the digest of everything that determines a run's results, with its seed but without its name."""
    content = scenario.resolved().model_dump(mode="json", exclude={"name"})
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def combinations(
    base: Mapping[str, Any], space: Space, seed: int, sample: int = 0
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield values and scenario of every combination of grid values, with one draw of each drawn key.

    A key has the same draw in all combinations, so that these differ only in grid values.
    """
    yield from _beyond(list(space.items()), {}, copied(base), seed, sample)


def walk(
    base: Mapping[str, Any], space: Space, choose: Callable[[str, Axis], Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return values and scenario of one point, with each value chosen by ``choose(key, axis)``."""
    values: dict[str, Any] = {}
    content = copied(base)
    for key, axes in space.items():
        axis = _applying(axes, content)
        if axis is None:
            _left_out(content, key)
        else:
            values[key] = choose(key, axis)
            override(content, key, values[key])
    return values, content


def points_of(sweep: Sweep, samples: int) -> list[SweepPoint]:
    """Return the points of a grid, with ``samples`` draws each, without points that repeat an earlier scenario.

    Raises
    ------
    ScenarioError
        If one of them cannot be run.
    """
    return _distinct(
        combination
        for sample in range(samples)
        for combination in combinations(sweep.scenario, sweep.space, sweep.seed, sample)
    )


def points_of_cells(base: Mapping[str, Any], table: TableSearch) -> list[SweepPoint]:
    """Return the distinct points of a published table; several cells may share one.

    Raises
    ------
    ScenarioError
        If one of them cannot be run.
    """
    return _distinct(contents(base, table))


def _distinct(combinations: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[SweepPoint]:
    found: dict[str, SweepPoint] = {}
    for values, content in combinations:
        point = SweepPoint(len(found), values, content)
        found.setdefault(digest(point.scenario(0)), point)
    return list(found.values())


def _beyond(
    keys: Sequence[tuple[str, Sequence[Axis]]],
    values: Mapping[str, Any],
    content: dict[str, Any],
    seed: int,
    sample: int,
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    if not keys:
        yield values, content
        return
    (key, axes), *others = keys
    axis = _applying(axes, content)
    if axis is None:
        content = copied(content)
        _left_out(content, key)
        yield from _beyond(others, values, content, seed, sample)
        return
    for value in axis.grid if axis.grid is not None else (drawn(axis, key, seed, sample),):
        changed = copied(content)
        override(changed, key, value)
        yield from _beyond(others, {**values, key: value}, changed, seed, sample)


def drawn(axis: Axis, key: str, seed: int, sample: int) -> Any:
    """Draw a value of an axis; it depends only on the seed, the key and the number of the sample.

    >>> drawn(Axis(integers=(1, 3)), "method.landmarks", 0, 0) in (1, 2, 3)
    True
    """
    name = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest())
    random = np.random.default_rng([seed, sample, name])
    if axis.choice is not None:
        return axis.choice[int(random.integers(len(axis.choice)))]
    low, high = getattr(axis, axis.sort)
    match axis.sort:
        case "uniform":
            return float(random.uniform(low, high))
        case "log_uniform":
            return float(np.exp(random.uniform(np.log(low), np.log(high))))
        case "integers":
            return int(random.integers(low, high + 1))
        case _:
            return min(int(np.exp(random.uniform(np.log(low), np.log(high + 1)))), high)


def _applying(axes: Sequence[Axis], content: Mapping[str, Any]) -> Axis | None:
    return next((axis for axis in axes if _holds(axis.when, content)), None)


def _holds(conditions: Mapping[str, Any], content: Mapping[str, Any]) -> bool:
    for key, wanted in conditions.items():
        allowed = wanted if isinstance(wanted, list | tuple) else [wanted]
        if _at(content, key) not in allowed:
            return False
    return True


def _at(content: Any, key: str) -> Any:
    for part in key.split("."):
        content = content.get(part) if isinstance(content, Mapping) else None
    return content


def _left_out(content: dict[str, Any], key: str) -> None:
    *parents, last = key.split(".")
    inner: Any = content
    for parent in parents:
        inner = inner.get(parent) if isinstance(inner, dict) else None
    if isinstance(inner, dict):
        inner.pop(last, None)
