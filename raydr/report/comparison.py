"""Runs beside each other: one column for each, one row for each measure and each cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from raydr.errors import OutputError
from raydr.files import write_whole
from raydr.report import gist, wording
from raydr.report.joined import map_of_runs
from raydr.report.page import part, templates
from raydr.report.runfolder import RunFolder, read_run

Unit = Literal["metric", "seconds", "bytes"]
WRITERS = {"metric": wording.measure, "seconds": wording.duration, "bytes": wording.size}


@dataclass(frozen=True)
class ComparisonRow:
    """One measure or cost over all runs.

    Attributes
    ----------
    name : str
        ``federated.METRIC``, ``central.METRIC``, ``seconds``, ``bytes_up``, ``bytes_exposed`` or
        ``peak_memory_bytes``.
    title : str
        The same for people.
    unit : {"metric", "seconds", "bytes"}
    higher_is_better : bool or None
        None when the metric is unknown or when neither is better.
    values : tuple of float or None, (runs,)
        None where a run does not have it.
    """

    name: str
    title: str
    unit: Unit
    higher_is_better: bool | None
    values: tuple[float | None, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The values in words, a dash where a run has none."""
        write = WRITERS[self.unit]
        return tuple("–" if value is None else write(value) for value in self.values)

    @property
    def best(self) -> tuple[bool, ...]:
        """Which runs are best in this row: none when all are equal, or when no direction is better."""
        known = [value for value in self.values if value is not None]
        if self.higher_is_better is None or len(set(known)) < 2:
            return (False,) * len(self.values)
        target = max(known) if self.higher_is_better else min(known)
        return tuple(value == target for value in self.values)


@dataclass(frozen=True)
class Comparison:
    """A table of runs: ``runs`` are its columns, by folder name, and ``rows`` its lines."""

    runs: tuple[str, ...]
    rows: tuple[ComparisonRow, ...]


def compare(folders: Sequence[Path]) -> Comparison:
    """Compare run folders, one or more: their metrics, seconds, bytes that left the clients, and peak memory.

    A metric that any of the runs has gets a row.

    Raises
    ------
    OutputError
        No folder is given, or one is not a whole run folder.
    """
    return _table(_read(folders))


def write_comparison(folders: Sequence[Path], out: Path) -> Path:
    """Write a self-contained page with the federated maps side by side and the table of :func:`compare`.

    The maps are turned onto the first by the rows of the same table that they share, and coloured alike. Of a map
    in 3-D the two axes of largest spread are shown; a map in the Poincaré disk is only rotated and reflected.

    Raises
    ------
    OutputError
        As :func:`compare`, or the page cannot be written.
    """
    if Path(out).suffix not in (".html", ".htm"):
        raise OutputError(
            f"The comparison is a page, and {out} does not end in .html: name such a file with --out. A browser prints"
            " it as PDF."
        )
    runs = _read(folders)
    table = _table(runs)
    page = templates().get_template("comparison.html")
    content = page.render(
        style=part("report.css"),
        table=table,
        atlas=map_of_runs(runs, table.runs, [_caption(run) for run in runs]),
        any_in_disk=any(run.in_disk for run in runs),
        any_in_space=any(run.dimensions == 3 for run in runs),
    )
    return write_whole(Path(out), content.encode("utf-8"), "free the place, or name another with --out")


def _read(folders: Sequence[Path]) -> list[RunFolder]:
    if not folders:
        raise OutputError(
            "There is nothing to compare: give one run folder or more, as `raydr compare RUN RUN`."
        )
    return [read_run(Path(folder)) for folder in folders]


def _table(runs: Sequence[RunFolder]) -> Comparison:
    names = [run.path.resolve().name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.path) for run in runs]
    rows = _metric_rows(runs, "federated") + _metric_rows(runs, "central")
    costs: list[tuple[str, str, Unit, list[float]]] = [
        ("seconds", "Seconds", "seconds", [sum(run.environment.seconds.values()) for run in runs]),
        ("bytes_up", "Left the clients", "bytes", [_bytes_up(run) for run in runs]),
        (
            "bytes_exposed",
            "of which per record and unprotected",
            "bytes",
            [sum(message.bytes for message in run.exposed) for run in runs],
        ),
        (
            "peak_memory_bytes",
            "Peak memory of a process",
            "bytes",
            [max(run.environment.peak_memory_bytes.values(), default=0) for run in runs],
        ),
    ]
    rows += [ComparisonRow(name, title, unit, False, tuple(values)) for name, title, unit, values in costs]
    return Comparison(tuple(names), tuple(rows))


def _metric_rows(runs: Sequence[RunFolder], which: Literal["federated", "central"]) -> list[ComparisonRow]:
    measured = [run.measures.federated if which == "federated" else run.measures.central for run in runs]
    return [
        ComparisonRow(
            name=f"{which}.{name}",
            title=wording.metric_title(name) + (", pooled data" if which == "central" else ""),
            unit="metric",
            higher_is_better=wording.higher_is_better(name),
            values=tuple(values.get(name) for values in measured),
        )
        for name in dict.fromkeys(name for values in measured for name in values)
    ]


def _bytes_up(run: RunFolder) -> int:
    return sum(message.bytes for message in run.ledger if message.direction == "up")


def _caption(run: RunFolder) -> str:
    return f"{wording.summary(run)} {gist.points(run)[0].text}"
