"""Plan of a sweep: the resources of its points together, before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raydr.actors.capacity import Capacity, Machine
from raydr.errors import DataError, ScenarioError
from raydr.scenarios.planning.plan import RunPlan, plan_of_scenario
from raydr.scenarios.schema.scenario import Scenario
from raydr.tune.schema import Sweep, TrialSettings
from raydr.tune.search import Search, search_of
from raydr.tune.space import digest, points_of_cells
from raydr.tune.tables import TableSearch

MOST_POINTS = 40
"""Largest number of points of a part that are planned, evenly spread; the others are assumed to be alike."""
DEFAULT, AS_PUBLISHED = "by default", "as published"


@dataclass(frozen=True)
class PointPlan:
    """A point's plan, or the reason why it cannot be run."""

    point: int
    values: Mapping[str, Any]
    plan: RunPlan | None
    refused: str | None


@dataclass(frozen=True)
class PlannedPart:
    """A part of a sweep: its trials, a rough duration of them alone, ``at_once`` at a time, and of the longest one."""

    name: str
    trials: int
    seconds: float
    longest_s: float


@dataclass(kw_only=True, frozen=True)
class SweepPlan:
    """The plan of a sweep.

    Attributes
    ----------
    name : str
    points, trials, at_once : int
        Totals, and the number of trials that run at once, by cores and by the memory that a trial asks for. It is 0 if
        none fits.
    memory_bytes : int
        Memory of the largest trial's processes together.
    room_bytes : int
        Memory that a trial has: what it asks for, or its cores' share.
    bytes_up, bytes_down : int
        Bytes of all trials together.
    seconds : float
        Rough duration of all trials, with ``at_once`` at a time.
    planned : tuple of PointPlan
        Plans of points that are known beforehand, at most :data:`MOST_POINTS` of each part.
    parts : tuple of PlannedPart
        For a published table, its runs by default and those as published; otherwise empty.
    """

    name: str
    points: int
    trials: int
    at_once: int
    memory_bytes: int
    room_bytes: int
    bytes_up: int
    bytes_down: int
    seconds: float
    planned: tuple[PointPlan, ...]
    parts: tuple[PlannedPart, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether every planned trial fits."""
        return self.at_once > 0 and self.memory_bytes <= self.room_bytes

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        known = {name: value for name, value in vars(self).items() if name not in ("planned", "parts")}
        planned = [
            {**vars(each), "plan": each.plan.to_json() if each.plan is not None else None}
            for each in self.planned
        ]
        return {**known, "fits": self.fits, "planned": planned, "parts": [vars(part) for part in self.parts]}


def plan_of_sweep(sweep: Sweep, *, capacity: Capacity, data_dir: Path | None) -> SweepPlan:
    """Plan the points of a sweep, each with the resources of one trial.

    Parameters
    ----------
    sweep : Sweep
        The sweep to plan.
    capacity : Capacity
        Capacity of all machines.
    data_dir : Path, optional
        Folder of built-in data sets.

    Raises
    ------
    ScenarioError
        If a point that is known beforehand cannot be run.
    """
    search = search_of(sweep)
    room = _room_of(sweep.trial, capacity)
    trials = search.count * sweep.repeats
    kept = min(1.0, sweep.max_trials / trials) if sweep.max_trials is not None and trials else 1.0
    at_once = sum(_fitting(sweep.trial, machine) for machine in capacity.machines)
    planned: list[PointPlan] = []
    parts: list[PlannedPart] = []
    up = down = 0.0
    for name, points in _parts(sweep, search).items():
        known = [search.point(number, {}) for number in points[:: max(1, -(-len(points) // MOST_POINTS))]]
        own = [
            _planned(point.number, point.values, point.scenario(0), room, data_dir)
            for point in known
            if point is not None
        ]
        plans = [each.plan for each in own if each.plan is not None]
        share = kept * len(points) * sweep.repeats / max(1, len(own))
        up += share * sum(plan.bytes_up for plan in plans)
        down += share * sum(plan.bytes_down for plan in plans)
        own_trials = round(kept * len(points) * sweep.repeats)
        seconds = share * sum(plan.seconds for plan in plans) / max(1, min(at_once, own_trials))
        longest = max((plan.seconds for plan in plans), default=0.0)
        parts.append(PlannedPart(name, own_trials, seconds, longest))
        planned += own
    return SweepPlan(
        name=sweep.name,
        points=search.count,
        trials=round(kept * trials),
        at_once=at_once,
        memory_bytes=max(
            (
                sum(process.count * process.bytes for process in each.plan.memory)
                for each in planned
                if each.plan is not None
            ),
            default=0,
        ),
        room_bytes=room.memory_bytes,
        bytes_up=round(up),
        bytes_down=round(down),
        seconds=sum(part.seconds for part in parts),
        planned=tuple(planned),
        parts=tuple(parts) if isinstance(sweep.search, TableSearch) else (),
    )


def _parts(sweep: Sweep, search: Search) -> dict[str, list[int]]:
    """Return the numbers of the points of each part: all points, or a table's by default and as published."""
    if not isinstance(sweep.search, TableSearch):
        return {"": list(range(search.count))}
    defaults = {
        digest(point.scenario(0)) for point in points_of_cells(sweep.scenario, sweep.search.of_defaults)
    }
    parts: dict[str, list[int]] = {DEFAULT: [], AS_PUBLISHED: []}
    for number in range(search.count):
        point = search.point(number, {})
        is_default = point is not None and digest(point.scenario(0)) in defaults
        parts[DEFAULT if is_default else AS_PUBLISHED].append(number)
    return {name: numbers for name, numbers in parts.items() if numbers}


def _planned(
    number: int, values: Mapping[str, Any], scenario: Scenario, room: Capacity, data_dir: Path | None
) -> PointPlan:
    """Plan a point. A point that its data refuse is not an error: its trials become rows with that error."""
    try:
        return PointPlan(number, values, plan_of_scenario(scenario, capacity=room, data_dir=data_dir), None)
    except (ScenarioError, DataError) as error:
        return PointPlan(number, values, None, str(error))


def _room_of(size: TrialSettings, capacity: Capacity) -> Capacity:
    """Return the machine of one trial: its cores, and the memory that it asks for or its cores' share."""
    largest = max(capacity.machines, key=lambda machine: machine.cores)
    share = round(largest.memory_bytes * size.cpus / max(size.cpus, largest.cores))
    memory = round(size.memory_gib * 2**30) if size.memory_gib is not None else share
    return Capacity((Machine(f"a trial on {largest.name}", size.cpus, memory),), capacity.cluster)


def _fitting(size: TrialSettings, machine: Machine) -> int:
    by_cores = machine.cores // size.cpus
    if size.memory_gib is None:
        return by_cores
    return min(by_cores, int(machine.memory_bytes / (size.memory_gib * 2**30)))
