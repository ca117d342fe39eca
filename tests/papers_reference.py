"""Write the papers' tables with raydr's results into docs/papers.md, from what ``raydr reproduce`` wrote.

``python tests/papers_reference.py`` renews the page; a test keeps it up to date.
To renew a table:

    raydr reproduce p3-table-4 --out runs/p3-table-4
    cp runs/p3-table-4/table.parquet scenarios/papers/p3-table-4.parquet

A table that was run in several ways, few cells in full and many with fewer rows, has a file for each:
``p2-table-2.parquet`` and ``p2-table-2.fewer-rows.parquet``. The page has a section of each, the newest first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from raydr.report.sweep.papers import MARKS, cell_text
from raydr.runfolder.paper_table import CellResult, PaperTable, read_paper_table
from raydr.tune.reading import PAPERS
from raydr.tune.reproducing import outcome_without_run, read_table, shipped_results
from raydr.tune.tables import TableSearch, cells

PAGE = Path(__file__).parent.parent / "docs" / "papers.md"
MARK = "<!-- Below this line: made by tests/papers_reference.py -->\n"

CAPPED = "as published, the iteration took at most 300 steps and features were not scaled to 0 to 1"
CHANGED = {
    "p3-table-5": ("2026-11-28", CAPPED),
    "p3-table-9": ("2026-11-28", CAPPED),
}
"""By table, the day since which it runs other scenarios, and what was different before."""


def found_by_name() -> dict[str, list[PaperTable]]:
    """Results that come with raydr by the table that they are of, the newest first."""
    found: dict[str, list[PaperTable]] = {}
    for path in shipped_results():
        table = read_paper_table(path)
        found.setdefault(table.heading["name"], []).append(table)
    for tables in found.values():
        tables.sort(key=lambda table: str(table.heading["date"]), reverse=True)
    return found


def reference() -> str:
    """A line for each table, and a section with the cells of each that was run."""
    found = found_by_name()
    lines = ["\n## Every table and figure\n", "| name | what | how it came out |", "| --- | --- | --- |"]
    lines += [
        f"| `{name}` | {title} | {_outcome(name, found.get(name, []))} |"
        for name, title in PAPERS.names().items()
    ]
    for name in PAPERS.names():
        for number, table in enumerate(found.get(name, ())):
            lines += ["", *_section(table, again=number > 0)]
    return "\n".join(lines) + "\n"


def _outcome(name: str, found: Sequence[PaperTable]) -> str:
    if not found:
        return outcome_without_run(name)
    said = []
    for table in found:
        changed = f" (with {table.changed})" if table.changed else ""
        since = " (before its scenarios were changed)" if _before(table.heading) else ""
        said.append(f"{table.heading['date']}{changed}{since}: {table.summary}")
    return "; ".join(said)


def _section(found: PaperTable, *, again: bool) -> Iterator[str]:
    heading = found.heading
    table = read_table(heading["name"]).search
    assert isinstance(table, TableSearch)
    yield f"## {heading['name']}{f', with {found.changed}' if again else ''}: {table.title}\n"
    at_commit = f" at {heading['commit']}" if heading["commit"] else ""
    seeds = f"{heading['repeats']} seed{'s' if heading['repeats'] != 1 else ''}"
    yield f"{heading['paper']}, {heading['where']}. {heading['date']}, raydr {heading['raydr']}{at_commit}, {seeds}."
    if found.changed:
        yield f"**Not the whole table**: run with {found.changed}."
    if before := _before(heading):
        yield f"**Run before the table's scenarios were changed**: {before}."
    now = {(cell.group, cell.row, cell.column): cell.measure for cell in cells(table)}
    since = dict.fromkeys(
        f"{cell.row} is {_metric(cell.measure)} here, {_metric(now[cell.group, cell.row, cell.column])} now"
        for cell in found.cells
        if cell.measure != now.get((cell.group, cell.row, cell.column), cell.measure)
    )
    if since:
        yield f"**Run before the table's metrics were changed**: {'; '.join(since)}."
    yield from filter(None, [table.says, *table.substituted])
    yield ""
    shown = [
        column
        for column in heading["columns"]
        if any(_shown(cell) for cell in found.cells if cell.column == column)
    ]
    yield "| | " + " | ".join(shown) + " |"
    yield "| --- |" + " --- |" * len(shown)
    rows = dict.fromkeys((cell.group, cell.row) for cell in found.cells)
    at = {(cell.group, cell.row, cell.column): cell for cell in found.cells}
    for group, row in rows:
        line = [at[group, row, column] for column in shown]
        if any(map(_shown, line)):
            yield f"| {line[0].name} | " + " | ".join(map(_text, line)) + " |"
    reasons = dict.fromkeys(cell.why for cell in found.cells if cell.why)
    if reasons:
        yield "\nNot run: " + "; ".join(reasons) + "."


def _before(heading: Mapping[str, Any]) -> str:
    """Say what was different if the table's scenarios were changed after this run, or ""."""
    day, before = CHANGED.get(heading["name"], ("", ""))
    return before if str(heading["date"]) < day else ""


def _metric(measure: str) -> str:
    return f"`{measure.rpartition('.')[2]}`"


def _shown(cell: CellResult) -> bool:
    return cell.default is not None


def _text(cell: CellResult) -> str:
    if cell.default is None:
        return "–"
    others = {"paper": cell.paper, "as published": cell.published, "pooled": cell.pooled}
    known = "; ".join(f"{name} {cell_text(cell, mean)}" for name, mean in others.items() if mean is not None)
    mark = f" {MARKS[cell.verdict]}" if cell.verdict else ""
    return f"**{cell_text(cell, cell.default)}**{mark}" + (f" ({known})" if known else "")


if __name__ == "__main__":
    before = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    PAGE.write_text(before + MARK + reference(), encoding="utf-8")
