"""A published table with raydr's values, read from ``table.parquet``."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from raydr.documents import MEGABYTE, require_limited
from raydr.errors import OutputError, ScenarioError
from raydr.parquet_files import read_parquet
from raydr.runfolder.records import COSTS

Verdict = Literal["better", "within", "worse"]
HEADING = b"raydr_table"
"""Key of the schema metadata that holds the table's heading as JSON."""
LARGEST = 16 * MEGABYTE
SOURCES = ("published", "default", "pooled")
"""Columns of raydr's values: with the paper's settings, with raydr's defaults, and for the pooled-data map."""
_COLUMNS = (
    "group",
    "row",
    "column",
    "measure",
    "seed",
    "paper",
    "paper.sd",
    "paper.rounding",
    *SOURCES,
    "run",
    "why",
)
_HEADING = (
    "name",
    "paper",
    "where",
    "title",
    "says",
    "substituted",
    "reduced",
    "columns",
    "groups",
    "repeats",
    "date",
)


@dataclass(frozen=True)
class SeedMean:
    """Mean over seeds, and standard deviation if there are several."""

    value: float
    deviation: float | None


@dataclass(kw_only=True, frozen=True)
class CellResult:
    """A cell: the paper's number and raydr's values.

    Attributes
    ----------
    group, row, column, measure : str
    paper : SeedMean or None
        The paper's number.
    rounding : float
        Half a unit of the last digit of the paper's number.
    published, default, pooled : SeedMean or None
        raydr's values, over the seeds that have one.
    runs : tuple of str
        Run folders of the default by seed, relative to the sweep folder.
    why : str or None
        Why there is no value.
    """

    group: str
    row: str
    column: str
    measure: str
    paper: SeedMean | None
    rounding: float
    published: SeedMean | None
    default: SeedMean | None
    pooled: SeedMean | None
    runs: tuple[str, ...]
    why: str | None

    @property
    def higher_is_better(self) -> bool | None:
        """Whether higher values are better; None if unknown."""
        from raydr.metrics import metric_named

        if self.measure in COSTS:
            return None if self.measure in ("rounds", "objective") else False
        try:
            return metric_named(self.measure.partition(".")[2]).higher_is_better
        except ScenarioError:
            return None

    @property
    def verdict(self) -> Verdict | None:
        """Whether the default is better or worse than the paper, or within one standard deviation of it.

        The larger of the two standard deviations counts, but at least the rounding of the paper's number.
        """
        if self.paper is None or self.default is None or self.higher_is_better is None:
            return None
        gain = (self.default.value - self.paper.value) * (1 if self.higher_is_better else -1)
        spread = max(self.paper.deviation or 0.0, self.default.deviation or 0.0, self.rounding)
        if abs(gain) <= spread * (1 + 1e-9):
            return "within"
        return "better" if gain > 0 else "worse"

    @property
    def ratio(self) -> float | None:
        """Ratio of the default to the paper, above 1 if the default is better; None if it is meaningless."""
        return self._ratio_to(self.paper)

    @property
    def ratio_to_pooled(self) -> float | None:
        """Ratio of the default to the pooled-data map, above 1 if the default is better; None if meaningless."""
        return self._ratio_to(self.pooled)

    def _ratio_to(self, other: SeedMean | None) -> float | None:
        if other is None or self.default is None or self.higher_is_better is None:
            return None
        above, below = self.default.value, other.value
        if not self.higher_is_better:
            above, below = below, above
        return above / below if above >= 0 and below > 0 else None

    @property
    def name(self) -> str:
        """Group and row."""
        return " ".join(filter(None, (self.group, self.row)))


@dataclass(frozen=True)
class PaperTable:
    """A published table with raydr's values; ``heading`` describes the table."""

    heading: Mapping[str, Any]
    cells: tuple[CellResult, ...]

    @property
    def worst(self) -> CellResult | None:
        """The cell with the smallest ratio of raydr's default to the paper; None if no cell can be compared."""
        return _least(self.cells, lambda cell: cell.ratio)

    @property
    def verdicts(self) -> Counter[str]:
        """Number of cells that are better, within and worse."""
        return Counter(verdict for cell in self.cells if (verdict := cell.verdict) is not None)

    @property
    def changed(self) -> str:
        """The settings that were changed to shorten the run, in words; empty if none."""
        return ", ".join(f"{key} {_said(value)}" for key, value in self.heading["reduced"].items())

    @property
    def summary(self) -> str:
        """Summary of the comparison in one line."""
        found, worst = self.verdicts, self.worst
        if not found:
            least_pooled = _least(self.cells, lambda cell: cell.ratio_to_pooled)
            if least_pooled is None:
                return "no cell can be compared"
            ratio = f"{least_pooled.ratio_to_pooled:.2f}"
            return f"least ratio to the pooled-data map {ratio} ({least_pooled.name}, {least_pooled.column})"
        words = {"better": "better", "within": "within one sd", "worse": "worse"}
        counts = [f"{found[verdict]} {word}" for verdict, word in words.items() if found[verdict]]
        least = "" if worst is None else f"; least ratio {worst.ratio:.2f} ({worst.name}, {worst.column})"
        compared = found.total()
        return f"{compared:,} cell{'s' if compared != 1 else ''} compared: {', '.join(counts)}{least}"


def _least(cells: Sequence[CellResult], ratio: Callable[[CellResult], float | None]) -> CellResult | None:
    known = [(found, place) for place, cell in enumerate(cells) if (found := ratio(cell)) is not None]
    return cells[min(known)[1]] if known else None


def _said(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def read_paper_table(path: Path) -> PaperTable:
    """Read a file that ``raydr reproduce`` wrote.

    Raises
    ------
    OutputError
        If it is another file, or damaged.
    """
    import pyarrow as pa

    try:
        content = read_parquet(require_limited(path, LARGEST))
        heading = json.loads((content.schema.metadata or {})[HEADING])
        lacking = [name for name in _COLUMNS if name not in content.column_names]
        lacking += [name for name in _HEADING if name not in heading]
        if lacking:
            raise ValueError(f"it lacks {lacking[0]!r}")
        rows = content.to_pylist()
        places: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
        for row in rows:
            places.setdefault((row["group"], row["row"], row["column"]), []).append(row)
        return PaperTable(heading, tuple(_cell(*place, seeds) for place, seeds in places.items()))
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise OutputError(
            f"{path} is not a table that `raydr reproduce` wrote ({' '.join(str(error).split())}). Run that command"
            " again."
        ) from error


def _cell(group: str, row: str, column: str, seeds: Sequence[Mapping[str, Any]]) -> CellResult:
    first = seeds[0]
    paper = None if first["paper"] is None else SeedMean(first["paper"], first["paper.sd"])
    means = {
        source: _mean([seed[source] for seed in seeds if seed[source] is not None]) for source in SOURCES
    }
    return CellResult(
        group=group,
        row=row,
        column=column,
        measure=first["measure"],
        paper=paper,
        rounding=first["paper.rounding"] or 0.0,
        runs=tuple(seed["run"] for seed in seeds if seed["run"] is not None),
        why=next((seed["why"] for seed in seeds if seed["why"] is not None), None),
        **means,
    )


def _mean(values: Sequence[float]) -> SeedMean | None:
    if not values:
        return None
    return SeedMean(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)
