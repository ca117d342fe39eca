"""Published tables by name: the catalogue, their results, and reading one to run it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from raydr.errors import OutputError, ScenarioError
from raydr.plain import short
from raydr.runfolder.paper_table import PaperTable, read_paper_table
from raydr.runfolder.records import TABLE, is_incomplete
from raydr.tune.reading import PAPERS, read_sweep
from raydr.tune.schema import Sweep
from raydr.tune.tables import TableSearch
from raydr.tune.tabulating import why_nothing_runs


def read_table(
    table: str | Path | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    quick: bool = False,
    only: tuple[str, ...] = (),
    seeds: int | None = None,
    published: bool = True,
) -> Sweep:
    """Read a published table as the sweep of its cells.

    Parameters
    ----------
    table, overrides, quick, only
        As for :func:`raydr.tune.reading.read_sweep`.
    seeds : int, optional
        Number of seeds; default: the table's.
    published : bool
        Whether cells are also run as published.

    Raises
    ------
    ScenarioError
        If the table is invalid, or is a sweep of another kind.
    """
    sweep = read_sweep(table, overrides, quick=quick, store=PAPERS, only=only)
    if not isinstance(sweep.search, TableSearch):
        raise ScenarioError(
            f"{sweep.name} is a sweep without a published table. Run it with `raydr sweep`; a table has"
            " search: {kind: table}."
        )
    search, reduced = sweep.search, dict(sweep.search.reduced)
    if seeds is not None and seeds != sweep.repeats:
        reduced["repeats"] = seeds
    if not published:
        search, reduced["as published"] = search.of_defaults, "not run"
    return sweep.model_copy(
        update={
            "repeats": seeds or sweep.repeats,
            "search": search.model_copy(update={"reduced": reduced}),
        }
    )


def catalogue(folder: Path = Path("runs")) -> dict[str, str]:
    """Return the names of the shipped tables, each with its title and its latest result.

    Parameters
    ----------
    folder : Path
        Folder of run folders, whose results may be newer than the shipped ones.
    """
    known = results(folder)
    return {name: _line(name, title, known.get(name)) for name, title in PAPERS.names().items()}


def outcome_without_run(name: str) -> str:
    """Return the status of a shipped table without results: not run yet, or why it cannot be run."""
    table = read_table(name).search
    reason = why_nothing_runs(table) if isinstance(table, TableSearch) else None
    return "not run yet" if reason is None else f"nothing to run: {reason}"


def _line(name: str, title: str, found: PaperTable | None) -> str:
    if found is None:
        return f"{title}; {outcome_without_run(name)}"
    reduced = f", with {short(found.changed, 60)}" if found.changed else ""
    return f"{title}; {found.heading['date']}{reduced}: {found.summary}"


def results(folder: Path | None = None) -> dict[str, PaperTable]:
    """Return the latest result of each table by name, among the shipped results and a folder of runs.

    Damaged results are left out.
    """
    found: dict[str, PaperTable] = {}
    for path in [*shipped_results(), *_in(folder)]:
        try:
            table = read_paper_table(path)
        except OutputError:
            continue
        name = table.heading["name"]
        if name not in found or table.heading["date"] >= found[name].heading["date"]:
            found[name] = table
    return found


def shipped_results() -> list[Path]:
    """Return the files of the shipped results."""
    with resources.as_file(resources.files("raydr.scenarios") / "papers") as folder:
        return sorted(folder.glob("*.parquet"))


def _in(folder: Path | None) -> Iterator[Path]:
    if folder is not None and folder.is_dir():
        yield from (
            place / TABLE
            for place in sorted(folder.iterdir())
            if (place / TABLE).is_file() and not is_incomplete(place)
        )
