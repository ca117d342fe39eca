"""Queue of published tables: which one runs next, what fits the time, and how each came out."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from raydr.actors.capacity import Capacity, capacity_at
from raydr.errors import DataError, RaydrError, RunError, ScenarioError
from raydr.journal import IncidentEvent, Listener
from raydr.report.wording import duration
from raydr.runfolder.paper_table import read_paper_table
from raydr.runfolder.records import SWEEP, TABLE, is_incomplete
from raydr.tune.planning import AS_PUBLISHED, SweepPlan, plan_of_sweep
from raydr.tune.reading import PAPERS, read_stored
from raydr.tune.reproducing import read_table
from raydr.tune.schema import Sweep
from raydr.tune.sweeping import OutOfTimeError, resume, sweep
from raydr.tune.tables import TableSearch, cells
from raydr.tune.tabulating import why_nothing_runs

USEFUL = (
    *("p3-table-3", "p3-table-11", "p3-table-12", "p3-table-1", "p3-figure-3"),
    *("p1-table-3", "p1-table-4", "p1-figure-2", "p1-figure-6", "p1-figure-7"),
    *("p1-table-1", "p1-table-2", "p1-table-5", "p2-table-3", "p2-table-8", "p2-table-2"),
    *("p2-table-4", "p2-table-6", "p2-table-7", "p2-table-9", "p2-figure-4", "p2-figure-5", "p2-figure-6"),
)
"""Tables in the order in which a queue runs them; all others follow by name."""
SEVERAL_SEEDS_S = 3600.0
"""Planned seconds from which on a table runs with one seed."""

Heard: TypeAlias = Callable[[], AbstractContextManager[Listener]]

Status: TypeAlias = Literal["complete", "before", "interrupted", "waiting", "failed"]


@dataclass(frozen=True)
class QueuedTable:
    """How a table of the queue came out.

    Attributes
    ----------
    name : str
    status : str
        "complete" in this call or "before" it, "interrupted" at the end of the time, "waiting" or "failed".
    detail : str
        Its result, or the reason why it has none.
    seconds : float
        Seconds that it took in this call.
    """

    name: str
    status: Status
    detail: str
    seconds: float = 0.0


def by_usefulness() -> list[str]:
    """Return the names of all published tables in the order in which a queue runs them."""
    return list(dict.fromkeys([*USEFUL, *PAPERS.names()]))


def run_queue(
    tables: Sequence[str | Path | Mapping[str, Any]],
    out: Path,
    *,
    heard: Heard,
    budget_s: float | None = None,
    overrides: Mapping[str, Any] | None = None,
    quick: bool = False,
    seeds: int | None = None,
    published: bool = True,
    address: str | None = None,
    data_dir: Path | None = None,
) -> Iterator[QueuedTable]:
    """Run tables one after the other, each into its own folder, and yield how each came out.

    A table whose folder is complete, for the same cells and version of raydr, does not run again. An interrupted one is
    resumed. A table starts only if the longest of its runs is planned to end in time. At the end of the time the
    running table is interrupted, and its folder keeps the trials that ended. Tables of which nothing can be run are
    left out.

    Parameters
    ----------
    tables : sequence of str, Path or mapping
        Tables in the order in which they run.
    out : Path
        Folder of the tables' folders. A table with other cells than its folder has gets a new one, ``NAME-2``.
    heard : callable
        Returns a context manager for each table, with the listener that shows its progress.
    budget_s : float, optional
        Seconds for all tables. Default: no limit.
    seeds : int, optional
        Number of seeds. Default: a table's own if it is planned to take less than :data:`SEVERAL_SEEDS_S`, else 1.
    published : bool
        Whether cells are also run as published; not those of a table whose longest such run takes more than all the
        time.
    overrides, quick, address, data_dir
        As for :func:`raydr.reproduce`.

    Yields
    ------
    queued : QueuedTable

    Raises
    ------
    OutputError
        If a folder cannot be read or written.
    """
    queue = _Queue(
        out=out,
        heard=heard,
        budget_s=budget_s,
        deadline=None if budget_s is None else time.monotonic() + budget_s,
        overrides=overrides or {},
        quick=quick,
        seeds=seeds,
        published=published,
        address=address,
        data_dir=data_dir,
        capacity=capacity_at(address),
    )
    for table in tables:
        known = read_table(table)
        if isinstance(known.search, TableSearch) and why_nothing_runs(known.search):
            continue
        try:
            whole = queue.read(table, seeds, published)
        except ScenarioError as error:
            yield QueuedTable(known.name, "failed", str(error))
        else:
            yield queue.outcome(table, whole)


_Way: TypeAlias = tuple[int, bool]
"""Number of seeds, and whether cells also run as published."""


@dataclass(kw_only=True, frozen=True)
class _Queue:
    """Options of a queue; attributes are as for :func:`run_queue`."""

    out: Path
    heard: Heard
    budget_s: float | None
    deadline: float | None
    overrides: Mapping[str, Any]
    quick: bool
    seeds: int | None
    published: bool
    address: str | None
    data_dir: Path | None
    capacity: Capacity

    def read(self, table: str | Path | Mapping[str, Any], seeds: int | None, published: bool) -> Sweep:
        """Read a table as the sweep of its cells."""
        return read_table(table, self.overrides, quick=self.quick, seeds=seeds, published=published)

    def outcome(self, table: str | Path | Mapping[str, Any], whole: Sweep) -> QueuedTable:
        """Run a table if it has to run and fits the time, and return how it came out."""
        if (folder := _complete(self.out, [whole])) is not None:
            return QueuedTable(whole.name, "before", _summary(folder))
        began = time.monotonic()
        if self.deadline is not None and began >= self.deadline:
            return QueuedTable(whole.name, "waiting", "the budget is used up")
        ways = {
            (way.repeats, as_published): way
            for as_published in dict.fromkeys([self.published, False])
            for way in (
                self.read(table, seeds, as_published)
                for seeds in dict.fromkeys([self.seeds, self.seeds or 1])
            )
        }
        try:
            with self.heard() as listener:
                status, detail = self._outcome(whole, ways, listener)
        except OutOfTimeError as error:
            status, detail = "interrupted", str(error)
        except (RunError, DataError, ScenarioError) as error:
            status, detail = "failed", str(error)
        return QueuedTable(whole.name, status, detail, time.monotonic() - began)

    def _outcome(self, whole: Sweep, ways: Mapping[_Way, Sweep], listener: Listener) -> tuple[Status, str]:
        way, planned = self._fitting(whole, ways)
        as_full = [each for key, each in ways.items() if key[0] >= way[0] and key[1] >= way[1]]
        if (folder := _complete(self.out, as_full)) is not None:
            return "before", _summary(folder)
        refused = [each.refused for each in planned.planned if each.refused is not None]
        if len(refused) == len(planned.planned):
            return "waiting", refused[0]
        longest_s = max(part.longest_s for part in planned.parts)
        if self.deadline is not None and longest_s > (left_s := self.deadline - time.monotonic()):
            left = duration(max(0.0, left_s))
            return "waiting", f"its longest run takes about {duration(longest_s)}, and {left} are left"
        listener(IncidentEvent(f"{whole.name}: {planned.trials} trials, about {duration(planned.seconds)}"))
        options: dict[str, Any] = {
            "address": self.address,
            "data_dir": self.data_dir,
            "listener": listener,
            "deadline": self.deadline,
        }
        left_behind = _interrupted(self.out, as_full)
        if left_behind is not None:
            folder = resume(left_behind, **options)
        else:
            folder = sweep(ways[way], out=_free(self.out, whole.name), **options)
        return "complete", _summary(folder)

    def _fitting(self, whole: Sweep, ways: Mapping[_Way, Sweep]) -> tuple[_Way, SweepPlan]:
        """Return the way in which a table runs, and its plan."""
        published, planned = self.published, self._plan(whole)
        if self.budget_s is not None and any(
            part.name == AS_PUBLISHED and part.longest_s > self.budget_s for part in planned.parts
        ):
            published, planned = False, self._plan(ways[whole.repeats, False])
        if self.seeds is not None or planned.seconds < SEVERAL_SEEDS_S or whole.repeats == 1:
            return (whole.repeats, published), planned
        return (1, published), self._plan(ways[1, published])

    def _plan(self, table: Sweep) -> SweepPlan:
        return plan_of_sweep(table, capacity=self.capacity, data_dir=self.data_dir)


def _complete(out: Path, same: Sequence[Sweep]) -> Path | None:
    """Return a complete folder of one of these sweeps, or None."""
    return _holding(same, (each for each in _folders(out, same[0].name) if not is_incomplete(each)))


def _interrupted(out: Path, same: Sequence[Sweep]) -> Path | None:
    """Return an incomplete folder of one of these sweeps, or None."""
    return _holding(same, filter(is_incomplete, _folders(out, same[0].name)))


def _free(out: Path, name: str) -> Path:
    """Return the folder of a new run: NAME, or NAME-2 and so on if that is taken."""
    taken = {folder.name.partition(".incomplete-")[0] for folder in _folders(out, name)}
    names = (name, *(f"{name}-{number}" for number in range(2, len(taken) + 2)))
    return out / next(each for each in names if each not in taken)


def _folders(out: Path, name: str) -> list[Path]:
    """Return the folders of a table, complete and incomplete."""
    own = re.compile(rf"{re.escape(name)}(-\d+)?(\.incomplete-\w+)?")
    return sorted(place for place in out.glob(f"{name}*") if own.fullmatch(place.name) and place.is_dir())


def _holding(same: Sequence[Sweep], folders: Iterable[Path]) -> Path | None:
    """Return the first folder that has one of these sweeps, started by this version of raydr."""
    asked = {_identity(each) for each in same}
    for folder in folders:
        try:
            found = read_stored(folder / SWEEP)
        except RaydrError:
            continue
        if _identity(found) in asked:
            return folder
    return None


def _identity(table: Sweep) -> str:
    """Return what determines the cells of a table: scenarios, seeds, measures and the paper's numbers."""
    known = list(cells(table.search)) if isinstance(table.search, TableSearch) else []
    return json.dumps([table.scenario, table.repeats, [asdict(cell) for cell in known]], sort_keys=True)


def _summary(folder: Path) -> str:
    return read_paper_table(folder / TABLE).summary
