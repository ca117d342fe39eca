"""The page of a published table with raydr's values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

from raydr.files import write_whole
from raydr.report import wording
from raydr.report.templates import part, templates
from raydr.runfolder.manifest import require_unchanged
from raydr.runfolder.paper_table import CellResult, SeedMean, Verdict, read_paper_table
from raydr.runfolder.records import REPORT, TABLE, TABLE_REPORT

MARKS: Mapping[Verdict, str] = {"better": "▲", "within": "=", "worse": "▼"}


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
            at=at,
            groups=groups,
            reports=reports,
            marks=MARKS,
            reasons=list(dict.fromkeys(cell.why for cell in table.cells if cell.why)),
            cell_text=cell_text,
        )
    )
    return write_whole(
        folder / TABLE_REPORT,
        page.encode("utf-8"),
        "free disk space there and run `raydr report` on the folder",
    )
