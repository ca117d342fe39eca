"""A published table with raydr's values, read from ``table.parquet``."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from raydr.documents import MEGABYTE, require_limited
from raydr.errors import OutputError, ScenarioError
from raydr.parquet_files import read_parquet
from raydr.runfolder.ratio_intervals import (
    ASSUMED_SEEDS,
    PrintedMean,
    RatioInterval,
    independent_ratio,
    paired_ratio,
)
from raydr.runfolder.records import COSTS

Verdict = Literal["better", "equal", "worse", "undecided"]
VERDICTS: tuple[Verdict, ...] = ("better", "equal", "worse", "undecided")
MARGIN = 0.02
"""Ratios within this of 1 are equal. Rounding alone moves P2's numbers, of two decimals, by up to 0.01."""
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
    """Mean over seeds, standard deviation if there are several, and raydr's values by number of the repeat."""

    value: float
    deviation: float | None
    by_repeat: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """How raydr's value compares with another.

    Attributes
    ----------
    verdict : {"better", "equal", "worse", "undecided"}
        By the interval: better above 1, worse below 1, equal within `MARGIN` of 1, and undecided otherwise. Without an
        interval, by the values: undecided if they differ by no more than the rounding.
    ratio : float or None
        Ratio of the means, above 1 if raydr's is better. None if one is negative, or both are 0.
    interval : RatioInterval or None
        Its 95 % interval. None if no deviation over seeds is known.
    """

    verdict: Verdict
    ratio: float | None
    interval: RatioInterval | None


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
    def comparison(self) -> Comparison | None:
        """The default compared with the paper; None if it cannot be."""
        return self._to_paper(self.default)

    @property
    def comparison_as_published(self) -> Comparison | None:
        """The value as published compared with the paper; None if it cannot be."""
        return self._to_paper(self.published)

    @property
    def comparison_to_pooled(self) -> Comparison | None:
        """The default compared with the pooled-data map, seed by seed; None if it cannot be, or is of the same map."""
        if self.measure.startswith("central.") or self.default is None or self.pooled is None:
            return None
        both = sorted(self.default.by_repeat.keys() & self.pooled.by_repeat.keys())
        own, pooled = ([mean.by_repeat[repeat] for repeat in both] for mean in (self.default, self.pooled))
        return self._compared(self.default.value, self.pooled.value, 0.0, lambda: paired_ratio(own, pooled))

    def _to_paper(self, own: SeedMean | None) -> Comparison | None:
        if own is None or self.paper is None:
            return None
        ours = PrintedMean(own.value, own.deviation, max(len(own.by_repeat), 1))
        seeds = 1 if self.paper.deviation is None else ASSUMED_SEEDS
        theirs = PrintedMean(self.paper.value, self.paper.deviation, seeds, self.rounding)
        return self._compared(
            own.value, self.paper.value, self.rounding, lambda: independent_ratio(ours, theirs)
        )

    def _compared(
        self, own: float, other: float, rounding: float, interval_of: Callable[[], RatioInterval | None]
    ) -> Comparison | None:
        higher = self.higher_is_better
        if higher is None:
            return None
        above, below = (own, other) if higher else (other, own)
        if min(above, below) < 0 or above == below == 0:
            ratio, interval = None, None
        else:
            ratio, interval = above / below if below else math.inf, interval_of()
        if interval is None:
            gain = above - below
            verdict: Verdict = "better" if gain > 0 else "worse"
            return Comparison("undecided" if abs(gain) <= rounding * (1 + 1e-9) else verdict, ratio, None)
        interval = interval if higher else interval.inverse
        return Comparison(_verdict(interval), ratio, interval)

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
        return _least(self.cells, lambda cell: cell.comparison)

    @property
    def verdicts(self) -> Counter[str]:
        """Number of cells with each verdict."""
        return Counter(found.verdict for cell in self.cells if (found := cell.comparison) is not None)

    @property
    def without_interval(self) -> int:
        """Number of compared cells without an interval."""
        found = (cell.comparison for cell in self.cells)
        return sum(each is not None and each.interval is None for each in found)

    @property
    def changed(self) -> str:
        """The settings that were changed to shorten the run, in words; empty if none."""
        return ", ".join(f"{key} {_said(value)}" for key, value in self.heading["reduced"].items())

    @property
    def summary(self) -> str:
        """Summary of the comparison in one line."""
        found, worst = self.verdicts, self.worst
        if not found:
            least_pooled = _least(self.cells, lambda cell: cell.comparison_to_pooled)
            if least_pooled is None:
                return "no cell can be compared"
            ratio = f"{_ratio(least_pooled.comparison_to_pooled):.2f}"
            return f"least ratio to the pooled-data map {ratio} ({least_pooled.name}, {least_pooled.column})"
        counts = [f"{found[verdict]} {verdict}" for verdict in VERDICTS if found[verdict]]
        least = (
            ""
            if worst is None
            else f"; least ratio {_ratio(worst.comparison):.2f} ({worst.name}, {worst.column})"
        )
        compared, bare = found.total(), self.without_interval
        lacking = (
            "" if not bare else ", without intervals" if bare == compared else f", {bare} without an interval"
        )
        return (
            f"{compared:,} cell{'s' if compared != 1 else ''} compared{lacking}: {', '.join(counts)}{least}"
        )


def _verdict(interval: RatioInterval) -> Verdict:
    if interval.low > 1:
        return "better"
    if interval.high < 1:
        return "worse"
    return "equal" if interval.low >= 1 / (1 + MARGIN) and interval.high <= 1 + MARGIN else "undecided"


def _ratio(found: Comparison | None) -> float:
    return math.inf if found is None or found.ratio is None else found.ratio


def _least(
    cells: Sequence[CellResult], compared: Callable[[CellResult], Comparison | None]
) -> CellResult | None:
    ratios = [(_ratio(compared(cell)), place) for place, cell in enumerate(cells)]
    known = [each for each in ratios if each[0] < math.inf]
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
        source: _mean({repeat: seed[source] for repeat, seed in enumerate(seeds) if seed[source] is not None})
        for source in SOURCES
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


def _mean(by_repeat: Mapping[int, float]) -> SeedMean | None:
    if not by_repeat:
        return None
    values = list(by_repeat.values())
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return SeedMean(statistics.fmean(values), deviation, by_repeat)
