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
from raydr.tune.search import search_of

MOST_POINTS = 40
"""Largest number of points that are planned, evenly spread; the others are assumed to be alike."""


@dataclass(frozen=True)
class PointPlan:
    """A point's plan, or the reason why it cannot be run."""

    point: int
    values: Mapping[str, Any]
    plan: RunPlan | None
    refused: str | None


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
        Plans of points that are known beforehand, at most :data:`MOST_POINTS`.
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

    @property
    def fits(self) -> bool:
        """Whether every planned trial fits."""
        return self.at_once > 0 and self.memory_bytes <= self.room_bytes

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        known = {name: value for name, value in vars(self).items() if name != "planned"}
        planned = [
            {**vars(each), "plan": each.plan.to_json() if each.plan is not None else None}
            for each in self.planned
        ]
        return {**known, "fits": self.fits, "planned": planned}


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
    step = max(1, -(-search.count // MOST_POINTS))
    known = [search.point(number, {}) for number in range(0, search.count, step)]
    planned = tuple(
        _planned(point.number, point.values, point.scenario(0), room, data_dir)
        for point in known
        if point is not None
    )
    plans = [each.plan for each in planned if each.plan is not None]
    trials = search.count * sweep.repeats
    trials = min(trials, sweep.max_trials) if sweep.max_trials is not None else trials
    at_once = sum(_fitting(sweep.trial, machine) for machine in capacity.machines)
    share = trials / max(1, len(planned))
    return SweepPlan(
        name=sweep.name,
        points=search.count,
        trials=trials,
        at_once=at_once,
        memory_bytes=max(
            (sum(process.count * process.bytes for process in plan.memory) for plan in plans), default=0
        ),
        room_bytes=room.memory_bytes,
        bytes_up=round(share * sum(plan.bytes_up for plan in plans)),
        bytes_down=round(share * sum(plan.bytes_down for plan in plans)),
        seconds=share * sum(plan.seconds for plan in plans) / max(1, min(at_once, trials)),
        planned=planned,
    )


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
