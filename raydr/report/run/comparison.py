"""Comparison of runs: a column for each run, a row for each metric and each cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from raydr.errors import OutputError
from raydr.files import write_whole
from raydr.plain import listed
from raydr.report import wording
from raydr.report.map.aligned import map_of_runs, row_names
from raydr.report.run.metric_rows import FIRST, MOST_FIGURES
from raydr.report.run.server_knowledge import knowledge
from raydr.report.templates import part, templates
from raydr.runfolder.reading import RunFolder, read_run

MOST_NAMED = 4
"""Number of runs from which on the heading gives their number instead of their names."""
Unit = Literal["ratio", "metric", "seconds", "bytes"]
WRITERS = {
    "ratio": lambda value: f"{100 * value:.1f}{wording.NARROW}%",
    "metric": wording.measure,
    "seconds": wording.duration,
    "bytes": wording.size,
}


@dataclass(kw_only=True, frozen=True)
class ComparisonRow:
    """A metric or cost of all runs.

    Attributes
    ----------
    name : str
        ``ratio.METRIC``, ``federated.METRIC``, ``central.METRIC``, ``worst_site.METRIC``, ``seconds``, ``bytes_up``,
        ``bytes_exposed`` or ``peak_memory_bytes``.
    title : str
        Heading of the row.
    unit : {"ratio", "metric", "seconds", "bytes"}
    higher_is_better : bool or None
        None if the metric is unknown or has no direction.
    values : tuple of float or None, (runs,)
        None if a run does not have it.
    alike : bool
        Whether a best value may be marked: the runs mapped the same table, and the metric does not measure leakage.
    errors : tuple of float or None, (runs,)
        Standard errors of values that are estimates; empty if none is.
    """

    name: str
    title: str
    unit: Unit
    higher_is_better: bool | None
    values: tuple[float | None, ...]
    alike: bool = True
    errors: tuple[float | None, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The values as text, with a dash for a run that has none."""
        return tuple(
            wording.estimated(value, error) if error is not None else text
            for value, error, text in zip_longest(self.values, self.errors, self._plain)
        )

    @property
    def _plain(self) -> tuple[str, ...]:
        """The values as text, without standard errors."""
        write = WRITERS[self.unit]
        return tuple("–" if value is None else write(value) for value in self.values)

    @property
    def best(self) -> tuple[bool, ...]:
        """Whether each run is best in this row: none is if all read the same or cannot be compared."""
        known = {
            value: text for value, text in zip(self.values, self._plain, strict=True) if value is not None
        }
        if not self.alike or self.higher_is_better is None or len(set(known.values())) < 2:
            return (False,) * len(self.values)
        target = known[max(known) if self.higher_is_better else min(known)]
        return tuple(text == target for text in self._plain)


@dataclass(kw_only=True, frozen=True)
class RunComparison:
    """A table of runs.

    Attributes
    ----------
    runs : tuple of str
        Columns, by folder name.
    rows : tuple of ComparisonRow
        Lines, ratios first.
    known : tuple of str, (runs,)
        What each run's server now knows.
    others : mapping of int to str
        By column, how a run's data differ from those of the first.
    estimates : tuple of str
        Notes on values that are estimated from a sample of rows.
    edits : tuple of str
        Notes on folders that were changed.
    """

    runs: tuple[str, ...]
    rows: tuple[ComparisonRow, ...]
    known: tuple[str, ...] = ()
    others: Mapping[int, str] = field(default_factory=dict)
    estimates: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()

    @property
    def headings(self) -> tuple[str, ...]:
        """Names of the runs, with ``*`` if a run mapped other data than the first."""
        return tuple(f"{name} *" if place in self.others else name for place, name in enumerate(self.runs))

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes on edited runs, on standard errors, and on runs that mapped other data."""
        unlike = tuple(
            f"* {self.runs[place]} did not map the same data as {self.runs[0]}: {what}. Compare only the ratios to each"
            " run's own pooled-data map."
            for place, what in self.others.items()
        )
        return self.edits + self.estimates + unlike

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics, those that are shown first before the others."""
        metrics = dict.fromkeys(row.name.partition(".")[2] for row in self.rows if "." in row.name)
        return tuple(sorted(metrics, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)))

    @property
    def lines(self) -> tuple[MeasureRow, ...]:
        """Lines for a page: each metric with the pooled-data map's value, then each cost."""
        rows = {row.name: row for row in self.rows}
        found = []
        for name in self.metrics:
            ratio, own, pooled = (rows.get(f"{kind}.{name}") for kind in ("ratio", "federated", "central"))
            first = own or pooled
            assert first is not None
            cells = [
                ComparedCell(
                    own.texts[run] if own else "–",
                    _compared_with_pooled(ratio, pooled, run),
                    bool(own and own.best[run]),
                )
                for run in range(len(self.runs))
            ]
            found.append(
                MeasureRow(
                    wording.metric_title(name),
                    wording.arrow(name),
                    tuple(cells),
                    "metric",
                    wording.meaning(name),
                )
            )
        for row in self.rows:
            cells = [ComparedCell(text, "", best) for text, best in zip(row.texts, row.best, strict=True)]
            if row.name.startswith("worst_site."):
                arrow = wording.arrow(row.name.partition(".")[2])
                found.append(MeasureRow(row.title, arrow, tuple(cells), "metric"))
            elif row.unit in ("seconds", "bytes"):
                found.append(MeasureRow(row.title, "↓", tuple(cells), "cost"))
        return tuple(found)


@dataclass(frozen=True)
class ComparedCell:
    """A run's value in a line, the pooled-data map's, and whether the value is the best."""

    text: str
    pooled: str
    best: bool


@dataclass(frozen=True)
class MeasureRow:
    """A metric or a cost of all runs, with the direction that is better (``arrow``) and its leakage (``meaning``)."""

    title: str
    arrow: str
    cells: tuple[ComparedCell, ...]
    kind: Literal["metric", "cost"]
    meaning: str = ""


def _compared_with_pooled(ratio: ComparisonRow | None, pooled: ComparisonRow | None, run: int) -> str:
    """Compare a run's value with that of its pooled-data map."""
    if pooled is None or pooled.values[run] is None:
        return ""
    if ratio is None or ratio.values[run] is None:
        return f"pooled {pooled.texts[run]}"
    return f"{ratio.texts[run]} of pooled {pooled.texts[run]}"


def compare(folders: Sequence[Path]) -> RunComparison:
    """Compare run folders: their metrics, seconds, bytes that left the clients, and peak memory.

    Every metric of any run gets a row. The first rows are ratios of the federated to the pooled-data map, for runs that
    have both and metrics of which higher is better. Runs that mapped other data than the first (table, rows, columns or
    scaling) are marked, and then no run is best.

    Raises
    ------
    OutputError
        If no folder is given, or a folder is not a complete run folder.
    """
    return _table(_read(folders))


def write_comparison(folders: Sequence[Path], out: Path) -> Path:
    """Write a self-contained page with the federated maps side by side and the table of :func:`compare`.

    The maps are aligned with the first by their shared rows of the same table, and coloured alike. A 3-D map is shown
    along its two axes of largest spread. A map in the Poincaré disk is only rotated and reflected.

    Raises
    ------
    OutputError
        As in :func:`compare`, or if the page cannot be written.
    """
    if Path(out).suffix not in (".html", ".htm"):
        raise OutputError(
            f"The comparison is an HTML page, but {out} does not end in .html. Pass such a name with --out. To get a"
            " PDF, print the page from a browser."
        )
    runs = _read(folders)
    table = _table(runs)
    page = templates().get_template("run/comparison.html")
    content = page.render(
        style=part("report.css"),
        table=table,
        heading=" and ".join(table.runs) if len(runs) < MOST_NAMED else f"{len(runs)} runs",
        shown=MOST_FIGURES,
        atlas=map_of_runs(runs, table.runs, [_caption(run) for run in runs]),
        any_in_disk=any(run.in_disk for run in runs),
        any_in_space=any(run.dimensions == 3 for run in runs),
    )
    return write_whole(Path(out), content.encode("utf-8"), "free the path, or pass another with --out")


def _read(folders: Sequence[Path]) -> list[RunFolder]:
    if not folders:
        raise OutputError(
            "There is nothing to compare: pass one run folder or more, as in `raydr compare RUN RUN`."
        )
    return [read_run(Path(folder)) for folder in folders]


def _table(runs: Sequence[RunFolder]) -> RunComparison:
    names = [run.path.resolve().name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.path) for run in runs]
    others = {place: what for place, run in enumerate(runs) if (what := _unlike(run, runs[0]))}
    measured = _metric_rows(runs, "federated", not others) + _metric_rows(runs, "central", not others)
    rows = _ratio_rows(runs) + measured
    rows += _worst_site_rows(runs, not others)
    costs: list[tuple[str, str, Unit, list[float]]] = [
        ("seconds", "Time", "seconds", [sum(run.environment.seconds.values()) for run in runs]),
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
    rows += [
        ComparisonRow(
            name=name, title=title, unit=unit, higher_is_better=False, values=tuple(values), alike=not others
        )
        for name, title, unit, values in costs
    ]
    samples = {wording.of_sample(run): None for run in runs if run.measures.sampled_rows is not None}
    known = tuple(knowledge(run).text for run in runs)
    edits = tuple(
        f"Files of {name} are not as the run left them: {'; '.join(run.edited)}."
        for name, run in zip(names, runs, strict=True)
        if run.edited
    )
    return RunComparison(
        runs=tuple(names), rows=tuple(rows), known=known, others=others, estimates=tuple(samples), edits=edits
    )


def _unlike(run: RunFolder, first: RunFolder) -> str:
    """Describe how a run's data differ from those of the first run; empty if they are the same."""
    if run is first:
        return ""
    ours, theirs = run.data, first.data
    names = [", ".join(dict.fromkeys(source.name for source in data.sources)) for data in (ours, theirs)]
    hashes = [[source.sha256 for source in data.sources] for data in (ours, theirs)]
    known = not any(None in each for each in hashes)
    if hashes[0] != hashes[1] if known else names[0] != names[1]:
        return (
            f"it mapped {names[0]}, not {names[1]}"
            if names[0] != names[1]
            else "the SHA-256 of its data differs"
        )
    differences = []
    if ours.mapped != theirs.mapped:
        differences.append(f"it mapped {wording.plural(ours.mapped, 'row')}, not {theirs.mapped:,}")
    elif set(row_names(run)) != set(row_names(first)):
        differences.append("it mapped other rows")
    if set(ours.columns) != set(theirs.columns):
        differences.append(f"it mapped {_others(ours.columns, theirs.columns)}")
    if ours.scaling != theirs.scaling:
        differences.append(f"its columns were scaled by {ours.scaling}, not by {theirs.scaling}")
    if ours.metric != theirs.metric:
        differences.append(f"its rows were compared by {ours.metric}, not by {theirs.metric}")
    labels = [each.section("data").get("label") for each in (run, first)]
    if labels[0] != labels[1]:
        differences.append(
            f"its classes are from {', not from '.join(label or 'an unnamed column' for label in labels)}"
        )
    return ", and ".join(differences)


def _others(ours: Sequence[str], theirs: Sequence[str]) -> str:
    """Name the columns that one run has in addition, and those that it lacks."""
    extra, lacking = (
        [name for name in one if name not in set(two)] for one, two in ((ours, theirs), (theirs, ours))
    )
    parts = [f"{listed(extra, 5)} as well"] * bool(extra) + [f"no {listed(lacking, 5)}"] * bool(lacking)
    return " and ".join(parts)


def _ratio_rows(runs: Sequence[RunFolder]) -> list[ComparisonRow]:
    """Return ratios of each run's metrics to those of its pooled-data map, if higher is better."""
    names = dict.fromkeys(name for run in runs for name in run.measures.central)
    found = []
    for name in names:
        values = [_ratio(run.measures.federated.get(name), run.measures.central.get(name)) for run in runs]
        if wording.higher_is_better(name) and any(value is not None for value in values):
            title = f"{wording.metric_title(name)}, relative to the pooled-data map"
            found.append(
                ComparisonRow(
                    name=f"ratio.{name}",
                    title=title,
                    unit="ratio",
                    higher_is_better=True,
                    values=tuple(values),
                )
            )
    return found


def _ratio(federated: float | None, central: float | None) -> float | None:
    return (
        None if federated is None or central is None or central <= 0 or federated < 0 else federated / central
    )


def _metric_rows(
    runs: Sequence[RunFolder], which: Literal["federated", "central"], alike: bool
) -> list[ComparisonRow]:
    measured = [run.measures.federated if which == "federated" else run.measures.central for run in runs]
    return [
        ComparisonRow(
            name=f"{which}.{name}",
            title=wording.metric_title(name) + (", pooled data" if which == "central" else ""),
            unit="metric",
            higher_is_better=wording.higher_is_better(name),
            values=tuple(values.get(name) for values in measured),
            alike=alike and not wording.meaning(name),
            errors=tuple(run.measures.error(which, name) for run in runs),
        )
        for name in dict.fromkeys(name for values in measured for name in values)
    ]


def _worst_site_rows(runs: Sequence[RunFolder], alike: bool) -> list[ComparisonRow]:
    """Return the metrics of each run's worst site, on the federated map."""
    worst = [run.measures.sites[0] if len(run.measures.sites) > 1 else None for run in runs]
    names = dict.fromkeys(name for site in worst if site is not None for name in site.federated)
    return [
        ComparisonRow(
            name=f"worst_site.{name}",
            title=f"{wording.metric_title(name)}, worst site",
            unit="metric",
            higher_is_better=wording.higher_is_better(name),
            values=tuple(
                site.federated[name].mean if site is not None and name in site.federated else None
                for site in worst
            ),
            alike=alike,
            errors=tuple(None if site is None else site.error("federated", name) for site in worst),
        )
        for name in names
    ]


def _bytes_up(run: RunFolder) -> int:
    return sum(message.bytes for message in run.ledger if message.direction == "up")


def _caption(run: RunFolder) -> str:
    return f"{wording.summary(run)} {knowledge(run).text}"
