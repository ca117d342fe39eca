"""Write the papers' tables with raydr's results into docs/papers.md, from what ``raydr reproduce`` wrote.

``python tests/papers_reference.py`` renews the page; a test keeps it up to date.
To renew a table:

    raydr reproduce p3-table-4 --out runs/p3-table-4
    cp runs/p3-table-4/table.parquet scenarios/papers/p3-table-4.parquet

A table that was run in several ways, few cells in full and many with fewer rows, has a file for each:
``p2-table-2.parquet`` and ``p2-table-2.fewer-rows.parquet``. The page has a section of each, the newest first,
and what the table means in the first of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raydr.report.sweep.papers import MARKS, MARKS_WITHOUT_INTERVAL, cell_text, interval_text, mark
from raydr.runfolder.paper_table import CellResult, Comparison, PaperTable, read_paper_table
from raydr.tune.reading import PAPERS
from raydr.tune.reproducing import outcome_without_run, read_table, shipped_results
from raydr.tune.tables import TableCell, TableSearch, cells

PAGE = Path(__file__).parent.parent / "docs" / "papers.md"
MARK = "<!-- Below this line: made by tests/papers_reference.py -->\n"
README = PAGE.parent.parent / "README.md"
COUNTS = ("<!-- counts, made by tests/papers_reference.py -->\n", "<!-- end of counts -->\n")
SAME_SIZE = {"repeats", "rows", "columns", "as published"}
"""Changes of a table after which its cells still have the data of the paper's size."""


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
    """Counts, a line for each table, and a section with the cells of each that was run."""
    found = found_by_name()
    lines = [
        "\n## Counts\n",
        *counts(found),
        "\n## Every table and figure\n",
        "| name | what | how it came out |",
        "| --- | --- | --- |",
    ]
    lines += [
        f"| `{name}` | {title} | {_outcome(name, found.get(name, []))} |"
        for name, title in PAPERS.names().items()
    ]
    for name in PAPERS.names():
        for number, table in enumerate(found.get(name, ())):
            lines += ["", *_section(table, again=number > 0)]
    return "\n".join(lines) + "\n"


def counts(found: Mapping[str, Sequence[PaperTable]]) -> Iterator[str]:
    """Lines of a table: numbers that each paper prints, and how those that raydr has compare."""
    by_paper: dict[str, list[_Number]] = {}
    for name in PAPERS.names():
        table = read_table(name).search
        assert isinstance(table, TableSearch)
        for cell in cells(table):
            if cell.published is not None:
                by_paper.setdefault(table.paper, []).append(_Number.of(cell, found.get(name, ())))
    papers = {**by_paper, "all": [number for numbers in by_paper.values() for number in numbers]}
    rows: dict[str, Callable[[Sequence[_Number]], str]] = {
        "numbers printed": lambda numbers: f"{len(numbers):,}",
        "of data and settings that are at hand": lambda numbers: (
            f"{sum(each.comparable for each in numbers):,}"
        ),
        "compared": lambda numbers: f"{sum(each.default is not None for each in numbers):,}",
        "compared at full size": lambda numbers: f"{sum(each.in_full for each in numbers):,}",
        "by default": lambda numbers: _marks(each.default for each in numbers),
        "by default, at full size": lambda numbers: _marks(each.default for each in numbers if each.in_full),
        "as published": lambda numbers: _marks(each.as_published for each in numbers),
        "as published, at full size": lambda numbers: _marks(
            each.as_published for each in numbers if each.published_in_full
        ),
    }
    yield "| | " + " | ".join(papers) + " |"
    yield "| --- |" + " --- |" * len(papers)
    for name, text in rows.items():
        yield f"| {name} | " + " | ".join(map(text, papers.values())) + " |"


@dataclass(frozen=True)
class _Number:
    """A number of a paper: whether it can be compared, the comparisons, and whether they are at full size."""

    comparable: bool
    in_full: bool
    default: Comparison | None
    as_published: Comparison | None
    published_in_full: bool

    @classmethod
    def of(cls, cell: TableCell, found: Sequence[PaperTable]) -> _Number:
        """Look a number up in the results of its table: the best by :func:`_worth`, of these the newest."""
        place = (cell.group, cell.row, cell.column)
        default, in_full, as_published, published_in_full = None, False, None, False
        for table in sorted(found, key=_worth, reverse=True):
            for other in table.cells:
                if (other.group, other.row, other.column) != place or other.measure != cell.measure:
                    continue
                if default is None:
                    default = other.comparison
                    in_full = default is not None and _at_full_size(table)
                if as_published is None:
                    as_published = other.comparison_as_published
                    published_in_full = as_published is not None and _at_full_size(table)
        return cls(cell.absent is None, in_full, default, as_published, published_in_full)


def _worth(table: PaperTable) -> tuple[bool, int]:
    """Whether a result is of the paper's size, and its number of seeds."""
    return _at_full_size(table), table.heading["repeats"]


def _at_full_size(table: PaperTable) -> bool:
    return set(table.heading["reduced"]) <= SAME_SIZE


def _marks(found: Iterable[Comparison | None]) -> str:
    """Count comparisons by their marks."""
    known = Counter(mark(each) for each in found if each is not None)
    order = dict.fromkeys([*MARKS.values(), *MARKS_WITHOUT_INTERVAL.values()])
    return ", ".join(f"{known[each]:,} {each}" for each in order if known[each]) or "–"


def write_counts(text: str) -> str:
    """Return the text of the README with the counts of today."""
    before, _, rest = text.partition(COUNTS[0])
    after = rest.partition(COUNTS[1])[2]
    return before + COUNTS[0] + "\n".join(counts(found_by_name())) + "\n" + COUNTS[1] + after


def _outcome(name: str, found: Sequence[PaperTable]) -> str:
    if not found:
        return outcome_without_run(name)
    said = []
    for table in found:
        changed = f" (with {table.changed})" if table.changed else ""
        said.append(f"{table.heading['date']}{changed}: {table.summary}")
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
    now = {(cell.group, cell.row, cell.column): cell.measure for cell in cells(table)}
    since = dict.fromkeys(
        f"{cell.row} is {_metric(cell.measure)} here, {_metric(now[cell.group, cell.row, cell.column])} now"
        for cell in found.cells
        if cell.measure != now.get((cell.group, cell.row, cell.column), cell.measure)
    )
    if since:
        yield f"**Run before the table's metrics were changed**: {'; '.join(since)}."
    if not again:
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


def _metric(measure: str) -> str:
    return f"`{measure.rpartition('.')[2]}`"


def _shown(cell: CellResult) -> bool:
    return cell.default is not None


def _text(cell: CellResult) -> str:
    if cell.default is None:
        return "–"
    ratio, of_pooled = interval_text(cell.comparison), interval_text(cell.comparison_to_pooled)
    pooled = None if cell.measure.startswith("central.") else cell.pooled
    others = (
        ("paper", cell.paper, f", ratio {ratio}" if ratio else ""),
        ("as published", cell.published, ""),
        ("pooled", pooled, f", ratio {of_pooled}" if of_pooled else ""),
    )
    known = "; ".join(
        f"{name} {cell_text(cell, mean)}{interval}" for name, mean, interval in others if mean is not None
    )
    verdict = f" {mark(cell.comparison)}" if cell.comparison else ""
    return f"**{cell_text(cell, cell.default)}**{verdict}" + (f" ({known})" if known else "")


if __name__ == "__main__":
    before = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    PAGE.write_text(before + MARK + reference(), encoding="utf-8")
    README.write_text(write_counts(README.read_text(encoding="utf-8")), encoding="utf-8")
