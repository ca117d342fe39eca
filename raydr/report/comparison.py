"""Runs beside each other: one column for each, one row for each measure and each cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from raydr.arrays import Float64Array
from raydr.errors import OutputError
from raydr.files import write_whole
from raydr.report import wording
from raydr.report.colouring import RAMP, Colouring, colouring
from raydr.report.inline import in_page
from raydr.report.knowledge import knowledge
from raydr.report.page import part, templates
from raydr.report.runfolder import RunFolder, read_run
from raydr.report.views import in_plane, onto

Unit = Literal["metric", "seconds", "bytes"]
WRITERS = {"metric": wording.measure, "seconds": wording.duration, "bytes": wording.size}
ENOUGH_ROWS = 3  # fix a similarity of the plane, reflection included
INCHES = 6.4  # of a map's picture: sharp at half the page's width


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
    """A table of runs: ``runs`` are its columns, by folder name, and ``rows`` its lines.

    ``known`` says of each run what the server now knows.
    """

    runs: tuple[str, ...]
    rows: tuple[ComparisonRow, ...]
    known: tuple[str, ...] = ()


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
    key, colours = shared_colours([(run.labels, run.clients) for run in runs])
    table = _table(runs)
    maps = [beside(run, runs[0])[0] for run in runs]
    pictures = [
        (name, _caption(run), in_page(points, shades, INCHES, in_disk=run.in_disk))
        for name, run, points, shades in zip(table.runs, runs, maps, colours, strict=True)
    ]
    page = templates().get_template("comparison.html")
    content = page.render(
        style=part("report.css"),
        table=table,
        pictures=pictures,
        key=key,
        ramp=", ".join(RAMP),
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
    return Comparison(tuple(names), tuple(rows), tuple(knowledge(run).text for run in runs))


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


def beside(run: RunFolder, first: RunFolder) -> tuple[Float64Array, bool]:
    """A run's federated map in the plane (rows, 2), turned onto the first's by the rows of one table that both hold.

    Returns
    -------
    tuple
        The map, and whether it is turned: left as it is where the two share too few rows.
    """
    points = in_plane(run, run.federated)
    if run is first:
        return points, True
    place = {row: position for position, row in enumerate(_row_names(first))}
    shared = [(here, place[row]) for here, row in enumerate(_row_names(run)) if row in place]
    if len(shared) < ENOUGH_ROWS or _table_of(run) != _table_of(first):
        return points, False
    here, there = np.array(shared).T
    fixed = in_plane(first, first.federated)
    return onto(run, points[here], fixed[there])(points), True


def _table_of(run: RunFolder) -> list[object]:
    """What names the source table: rows of different tables are not the same for bearing the same number."""
    data, clients = (run.section(key) for key in ("data", "clients"))
    return [data.get("source"), data.get("path"), clients.get("sites") or None]


def _row_names(run: RunFolder) -> Sequence[str | int]:
    return run.rows if isinstance(run.rows, tuple) else run.rows.tolist()


def shared_colours(
    runs: Sequence[tuple[Sequence[str] | None, Sequence[str]]],
) -> tuple[Colouring, list[list[str]]]:
    """One colouring for all runs, of which labels (rows,) and clients (rows,) are given, and the colours of their rows.

    By label when all have labels, else by client.
    """
    by: Literal["label", "client"] = "label" if all(labels is not None for labels, _ in runs) else "client"
    names = [labels if by == "label" and labels is not None else clients for labels, clients in runs]
    key = colouring(by, [name for some in names for name in some])
    colour = dict(zip(key.names, key.colours, strict=True))
    return key, [[colour[name] for name in some] for some in names]


def _caption(run: RunFolder) -> str:
    return f"{wording.summary(run)} {knowledge(run).text}"
