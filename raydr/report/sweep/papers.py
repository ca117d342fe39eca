"""The page of a published table with raydr's values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

from raydr.files import write_whole
from raydr.report import wording
from raydr.report.templates import part, templates
from raydr.runfolder.manifest import require_unchanged
from raydr.runfolder.paper_table import CellResult, Comparison, SeedMean, Verdict, read_paper_table
from raydr.runfolder.records import REPORT, TABLE, TABLE_REPORT

MARKS: Mapping[Verdict, str] = {"better": "▲", "equal": "=", "worse": "▼", "undecided": "?"}
MARKS_WITHOUT_INTERVAL: Mapping[Verdict, str] = {**MARKS, "better": "△", "worse": "▽"}


def mark(found: Comparison) -> str:
    """Return the mark of a comparison, hollow if it has no interval."""
    return (MARKS if found.interval is not None else MARKS_WITHOUT_INTERVAL)[found.verdict]


def interval_text(found: Comparison | None) -> str:
    """Write the interval of a ratio, such as "0.98 to 1.02", or "" if there is none."""
    if found is None or found.interval is None:
        return ""
    low, high = found.interval.low, found.interval.high
    return f"{_bound(low)} to {_bound(high)}" if math.isfinite(high) else f"at least {_bound(low)}"


def _bound(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.3g}" if value < 1e4 else f"{value:.1e}"


def cell_text(cell: CellResult, mean: SeedMean) -> str:
    """Write one of a cell's values, with its standard deviation if known."""
    write = _writer(cell.measure)
    near = "" if mean.deviation is None else f" ± {write(mean.deviation)}"
    return write(mean.value) + near


def _writer(measure: str) -> Callable[[float], str]:
    if measure == "seconds":
        return wording.duration
    if "bytes" in measure:
        return wording.size
    return _number


def _number(value: float) -> str:
    """Write four decimals, or two significant digits for small values such as 0.000067."""
    return f"{value:.2g}" if 0 < abs(value) < 5e-4 else wording.measure(value)


def write_paper_report(folder: Path) -> Path:
    """Write a folder's ``table.html`` from its ``table.parquet``.

    Raises
    ------
    OutputError
        If ``table.parquet`` cannot be read, or the page cannot be written.
    """
    require_unchanged(folder, TABLE)
    table = read_paper_table(folder / TABLE)
    at = {(cell.group, cell.row, cell.column): cell for cell in table.cells}
    groups = {
        group: list(dict.fromkeys(cell.row for cell in table.cells if cell.group == group))
        for group in table.heading["groups"]
    }
    reports = {
        run: quote(f"{run}/{REPORT}")
        for cell in table.cells
        for run in cell.runs
        if (folder / run / REPORT).is_file()
    }
    page = (
        templates()
        .get_template("sweep/table.html")
        .render(
            style=part("report.css") + part("sweep/table.css"),
            table=table,
            heading=table.heading,
            paragraphs=list(filter(None, table.heading["says"].split("\n\n"))),
            at=at,
            groups=groups,
            reports=reports,
            mark=mark,
            interval_text=interval_text,
            reasons=list(dict.fromkeys(cell.why for cell in table.cells if cell.why)),
            cell_text=cell_text,
        )
    )
    return write_whole(
        folder / TABLE_REPORT,
        page.encode("utf-8"),
        "free disk space there and run `raydr report` on the folder",
    )
