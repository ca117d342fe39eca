"""Results of a published table: ``table.parquet``, with the paper's numbers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from raydr.data.catalogue import DATA_VARIABLE
from raydr.errors import ScenarioError
from raydr.runfolder import records
from raydr.runfolder.paper_table import HEADING
from raydr.runfolder.records import TrialRow
from raydr.tune.ledger import write_table
from raydr.tune.schema import Sweep
from raydr.tune.space import SweepPoint
from raydr.tune.tables import TableCell, TableSearch, cells, content_of
from raydr.tune.trials import Trial

_POOLED_METHOD = "global-ne"
"""Its map is a map of the pooled rows."""


def write_paper_table(folder: Path, sweep: Sweep, rows: Sequence[TrialRow]) -> None:
    """Write a sweep's table, with a row for each cell and seed; trials are matched by digest, not by number."""
    table = sweep.search
    if not isinstance(table, TableSearch):
        raise TypeError(f"the search of {sweep.name} is a {table.kind}, not a table")
    write_table(folder / records.TABLE, _arrow(sweep, table, _Found(sweep, table, rows)))


class _Found:
    """Trials by a cell's values and the number of the repeat."""

    def __init__(self, sweep: Sweep, table: TableSearch, rows: Sequence[TrialRow]) -> None:
        self.sweep, self.table = sweep, table
        self.rows = {row.digest: row for row in rows}
        self._digests: dict[tuple[str, int], str] = {}

    def row(self, values: Mapping[str, Any] | None, repeat: int) -> TrialRow | None:
        """Return the trial of a cell's values, or None."""
        if values is None:
            return None
        key = json.dumps(values, sort_keys=True), repeat
        if key not in self._digests:
            point = SweepPoint(0, values, content_of(self.sweep.scenario, self.table, values))
            self._digests[key] = Trial.of(point, repeat).digest
        return self.rows.get(self._digests[key])

    def value(self, values: Mapping[str, Any] | None, repeat: int, measure: str) -> float | None:
        """Return a measure of that trial, or None."""
        row = self.row(values, repeat)
        return None if row is None else row.measures.get(measure)

    def pooled(self, cell: TableCell, repeat: int) -> float | None:
        """Return a cell's measure for the pooled-data map that its own run is compared with, or None."""
        if cell.measure in records.COSTS:
            return None
        return self.value(cell.default, repeat, f"central.{cell.measure.partition('.')[2]}")

    def pooled_of(self, other: TableCell, repeat: int) -> float | None:
        """Return the pooled value of a cell that refers to this one: of its pooled map, or of the map that it is."""
        value = self.pooled(other, repeat)
        if value is not None or other.default is None:
            return value
        method = content_of(self.sweep.scenario, self.table, other.default)["method"]["kind"]
        return self.value(other.default, repeat, other.measure) if method == _POOLED_METHOD else None


def _arrow(sweep: Sweep, table: TableSearch, found: _Found) -> Any:
    import pyarrow as pa

    known = list(cells(table))
    at = {(cell.group, cell.row, cell.column): cell for cell in known}
    content: list[dict[str, Any]] = []
    for cell in known:
        for repeat in range(sweep.repeats if cell.absent is None else 1):
            row = found.row(cell.default, repeat)
            pooled = found.pooled(cell, repeat)
            if pooled is None and cell.pooled is not None:
                pooled = found.pooled_of(at[cell.pooled], repeat)
            content.append(
                {
                    "group": cell.group,
                    "row": cell.row,
                    "column": cell.column,
                    "measure": cell.measure,
                    "seed": row.seed if row is not None else None,
                    "paper": cell.published.value if cell.published else None,
                    "paper.sd": cell.published.deviation if cell.published else None,
                    "paper.rounding": cell.published.rounding if cell.published else None,
                    "published": found.value(cell.as_published, repeat, cell.measure),
                    "default": row.measures.get(cell.measure) if row is not None else None,
                    "pooled": pooled,
                    "run": row.folder if row is not None else None,
                    "why": cell.absent
                    or ("its run did not end" if row is None else _failure(row))
                    or _failure(found.row(cell.as_published, repeat)),
                }
            )
    text, number = pa.string(), pa.float64()
    types = {"seed": pa.int64(), "run": text, "why": text, "group": text, "row": text, "column": text}
    schema = pa.schema(
        [(name, types.get(name, text if name == "measure" else number)) for name in content[0]]
    )
    heading = json.dumps(_heading(sweep, table))
    return pa.Table.from_pylist(content, schema).replace_schema_metadata({HEADING: heading})


def _failure(row: TrialRow | None) -> str | None:
    """Return why a trial has no values. Tables are shared, so the machine's data folder is replaced in the text."""
    if row is None or row.status == "done":
        return None
    folder = os.environ.get(DATA_VARIABLE)
    error = row.error or "no reason given"
    return f"{row.status}: {error.replace(folder, f'${DATA_VARIABLE}') if folder else error}"


def _heading(sweep: Sweep, table: TableSearch) -> dict[str, Any]:
    described = table.model_dump(
        mode="json",
        include={"paper", "where", "title", "says", "substituted", "reduced"},
    )
    return {
        "name": sweep.name,
        **described,
        "columns": [column.name for column in table.columns],
        "groups": [group.name for group in table.groups],
        "repeats": sweep.repeats,
        "date": date.today().isoformat(),
        "raydr": version("raydr"),
        "commit": _commit(),
    }


def _commit() -> str | None:
    """Return the commit of the checkout that raydr runs from, or None."""
    here = Path(__file__).resolve().parent
    try:
        described = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty", "--exclude", "*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip() or None


def require_cells(sweep: Sweep) -> None:
    """Raise if no cell of a table can be run.

    Raises
    ------
    ScenarioError
        If no cell can be run. The message has the reason.
    """
    reason = why_nothing_runs(sweep.search) if isinstance(sweep.search, TableSearch) else None
    if reason is not None:
        raise ScenarioError(f"{sweep.name} cannot be run: {reason}.")


def why_nothing_runs(table: TableSearch) -> str | None:
    """Return why none of a table's cells can be run, or None if some can."""
    known = list(cells(table))
    if any(cell.default for cell in known):
        return None
    return "; ".join(dict.fromkeys(filter(None, [table.unmeasured, *(cell.absent for cell in known)])))
