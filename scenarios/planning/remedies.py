"""What does not fit into the machines of a run, and which key of the scenario would make it fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from raydr.actors.capacity import Capacity
from raydr.scenarios.planning.run_memory import Load, footprint, is_light, node_bytes
from raydr.scenarios.schema.scenario import Scenario


@dataclass(frozen=True)
class NodeNeed:
    """Memory that one machine needs, and has.

    Attributes
    ----------
    name : str
        Of the machine.
    actors : int
        That it hosts.
    needed, available : int
        Bytes.
    driver : bool
        Whether driver, coordinator and evaluation are there.
    """

    name: str
    actors: int
    needed: int
    available: int
    driver: bool

    @property
    def fits(self) -> bool:
        """Whether it has what it needs."""
        return self.needed <= self.available


@dataclass(frozen=True)
class Remedy:
    """Keys to set so that a run fits, and what it needs then.

    Attributes
    ----------
    keys : tuple of (str, str)
        Dotted keys and their values, as ``--set`` takes them.
    why : str
        What that saves.
    """

    keys: tuple[tuple[str, str], ...]
    why: str


def needs_of(load: Load, hosted: tuple[int, ...], capacity: Capacity) -> tuple[NodeNeed, ...]:
    """Return what each machine needs that hosts so many actors."""
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
    """Return every single key that would make a run fit, and where none does, keys that do together.

    Parameters
    ----------
    load : Load
        As the scenario has it.
    scenario : Scenario
        Whose keys they are.
    fixed : bool
        Whether clients have files of their own, so that neither actors nor rows can be fewer.
    capacity : Capacity
        That it must fit into.
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
    """Ways to need less, the least harmful first; each leads to the largest value that fits, or the smallest."""
    if load.actors > 1 and not fixed:
        yield _fewer_actors(capacity), "fewer processes, each of which hosts more clients; no bit changes"
    if load.central:
        yield (
            lambda now: (("compare", "[]"), replace(now, central=False)),
            "no pooled-data map beside the run's",
        )
    few = tuple(filter(is_light, load.metrics)) or ("npa_10",)
    if not set(load.metrics) <= set(few):
        yield (
            lambda now: (("metrics", f"[{', '.join(few)}]"), replace(now, metrics=few)),
            "metrics that need less",
        )
    points = next((name for name in ("landmarks", "anchors") if hasattr(scenario.method, name)), None)
    if points is not None and load.posted:
        width = load.posted // (8 * load.rows)
        yield _fewer_points(points, width, capacity), "less of each record at the server; a coarser map"
    if scenario.data.source is not None or scenario.data.path is not None or scenario.data.graph is not None:
        yield _fewer_rows(capacity), "a sample of the rows, class by class"


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
        rows = max(2, rows - rows % step)  # two digits are as much as the model knows
        return ("data.rows", str(rows)), fewer(load, rows)

    return change


def _largest(least: int, most: int, fits: Callable[[int], bool]) -> int:
    """Largest number from ``least`` to ``most`` that fits; ``least`` where none does."""
    low, high = least, max(least, most)
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _fits(load: Load, capacity: Capacity) -> bool:
    """Whether every machine has what it needs, actors spread evenly."""
    machines = capacity.machines
    each, over = divmod(load.actors, len(machines))
    hosted = tuple(each + (index < over) for index in range(len(machines)))
    return bool(footprint(load)) and all(need.fits for need in needs_of(load, hosted, capacity))
