"""Memory needs of each machine, and keys of the scenario that make a run fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from raydr.actors.capacity import Capacity
from raydr.scenarios.planning.run_memory import Load, footprint, is_light, node_bytes
from raydr.scenarios.schema.scenario import Scenario


@dataclass(frozen=True)
class NodeNeed:
    """Needed and available memory of one machine.

    Attributes
    ----------
    name : str
        Name of the machine.
    actors : int
        Number of client actors on it.
    needed, available : int
        Bytes.
    driver : bool
        Whether it runs driver, coordinator and evaluation.
    """

    name: str
    actors: int
    needed: int
    available: int
    driver: bool

    @property
    def fits(self) -> bool:
        """Whether the machine has enough memory."""
        return self.needed <= self.available


@dataclass(frozen=True)
class Remedy:
    """Keys that make a run fit.

    Attributes
    ----------
    keys : tuple of (str, str)
        Dotted keys and values for ``--set``.
    why : str
        Effect of the keys.
    """

    keys: tuple[tuple[str, str], ...]
    why: str


def needs_of(load: Load, hosted: tuple[int, ...], capacity: Capacity) -> tuple[NodeNeed, ...]:
    """Return the memory need of each machine for its number of actors."""
    return tuple(
        NodeNeed(
            machine.name,
            actors,
            node_bytes(load, actors, driver=machine.driver) if actors or machine.driver else 0,
            machine.memory_bytes,
            machine.driver,
        )
        for machine, actors in zip(capacity.machines, hosted, strict=True)
    )


def remedies(load: Load, scenario: Scenario, fixed: bool, capacity: Capacity) -> tuple[Remedy, ...]:
    """Return every single key that makes a run fit; if there is none, a combination of keys that does.

    Parameters
    ----------
    load : Load
        Load of the scenario.
    scenario : Scenario
        Scenario whose keys may change.
    fixed : bool
        Whether clients have their own files, so that actors and rows cannot be fewer.
    capacity : Capacity
        Available machines.
    """
    changes = list(_changes(load, scenario, fixed, capacity))
    single = [
        Remedy((found[0],), why)
        for change, why in changes
        if (found := change(load)) and _fits(found[1], capacity)
    ]
    if single:
        return tuple(single)
    keys: list[tuple[str, str]] = []
    reasons: list[str] = []
    for change, why in changes:
        found = change(load)
        if found is None:
            continue
        key, load = found
        keys.append(key)
        reasons.append(why)
        if _fits(load, capacity):
            return (Remedy(tuple(keys), "; ".join(reasons)),)
    return ()


Change = Callable[[Load], "tuple[tuple[str, str], Load] | None"]


def _changes(load: Load, scenario: Scenario, fixed: bool, capacity: Capacity) -> Iterator[tuple[Change, str]]:
    """Yield changes that need less memory, least harmful first; each uses the largest value that fits."""
    if load.actors > 1 and not fixed:
        yield _fewer_actors(capacity), "fewer processes with more clients each; results are identical"
    if load.central:
        yield (
            lambda now: (("compare", "[]"), replace(now, central=False)),
            "no pooled-data map",
        )
    few = tuple(filter(is_light, load.metrics)) or ("npa_10",)
    if not set(load.metrics) <= set(few):
        yield (
            lambda now: (("metrics", f"[{', '.join(few)}]"), replace(now, metrics=few)),
            "metrics that need less memory",
        )
    points = next((name for name in ("landmarks", "anchors") if hasattr(scenario.method, name)), None)
    if points is not None and load.posted:
        width = load.posted // (8 * load.rows)
        yield (
            _fewer_points(points, width, capacity),
            "fewer numbers for each record at the server; a coarser map",
        )
    if scenario.data.source is not None or scenario.data.path is not None or scenario.data.graph is not None:
        yield _fewer_rows(capacity), "a sample of the rows, stratified by class"


def _fewer_actors(capacity: Capacity) -> Change:
    def change(load: Load) -> tuple[tuple[str, str], Load]:
        actors = _largest(1, load.actors, lambda count: _fits(replace(load, actors=count), capacity))
        return ("runtime.actors", str(actors)), replace(load, actors=actors)

    return change


def _fewer_points(name: str, width: int, capacity: Capacity) -> Change:
    def fewer(load: Load, count: int) -> Load:
        return replace(
            load, posted=load.posted * count // max(1, width), message=load.message * count // max(1, width)
        )

    def change(load: Load) -> tuple[tuple[str, str], Load] | None:
        if width < 4:
            return None
        count = _largest(2, width, lambda count: _fits(fewer(load, count), capacity))
        return (f"method.{name}", str(count)), fewer(load, count)

    return change


def _fewer_rows(capacity: Capacity) -> Change:
    def fewer(load: Load, rows: int) -> Load:
        part = rows / load.rows
        return replace(load, rows=rows, largest=int(load.largest * part) + 1, posted=int(load.posted * part))

    def change(load: Load) -> tuple[tuple[str, str], Load]:
        rows = _largest(100, load.rows, lambda rows: _fits(fewer(load, rows), capacity))
        step = 10 ** max(0, len(str(rows)) - 2)
        rows = max(2, rows - rows % step)  # the memory model has two significant digits
        return ("data.rows", str(rows)), fewer(load, rows)

    return change


def _largest(least: int, most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number from ``least`` to ``most`` that fits; ``least`` if none does."""
    low, high = least, max(least, most)
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _fits(load: Load, capacity: Capacity) -> bool:
    """Return whether every machine has enough memory with actors spread evenly."""
    machines = capacity.machines
    each, over = divmod(load.actors, len(machines))
    hosted = tuple(each + (index < over) for index in range(len(machines)))
    return bool(footprint(load)) and all(need.fits for need in needs_of(load, hosted, capacity))
