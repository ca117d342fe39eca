"""What a person sees in a terminal: progress, one line per incident, tables."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from rich.console import Console, RenderableType
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.progress import Progress as Bars
from rich.table import Column, Table
from rich.text import Text

from raydr import journal
from raydr.front.results import Remarks
from raydr.plain import plain
from raydr.report import Comparison, mapped, wording
from raydr.report.runfolder import read_run

if TYPE_CHECKING:
    from raydr.scenarios.bounding import Line

_FIRST = (
    "clustering_nmi", "clustering_ari",
    "npa_10", "ca_10", "trustworthiness", "continuity", "f_score", "distance_error",
)  # fmt: skip

PATIENCE_S = 10.0
"""Without a terminal, a stage that takes longer says how far it is this often."""


@contextmanager
def heard_on_terminal() -> Iterator[journal.Listener]:
    """A listener that shows bars on a terminal and plain lines elsewhere; what raydr logs stands between them."""
    console = _console(Remarks(sys.stderr))
    if not console.is_terminal:
        lines = _PlainLines(console)
        with _logged(lines.say):
            yield lines.hear
        return
    with (
        Bars(
            SpinnerColumn(finished_text=Text("✓", "green")),
            TextColumn("{task.description}", table_column=Column(min_width=12)),
            _Seconds(table_column=Column(min_width=8, justify="right")),
            _RunningBar(bar_width=30),
            _Count(),
            console=console,
        ) as bars,
        _logged(lambda text: console.print(_line(text))),
    ):
        yield _StageBars(bars).hear


@contextmanager
def logged_on_terminal() -> Iterator[None]:
    """What raydr logs stands on standard error, a line each."""
    with _logged(print_paragraph):
        yield


def print_result(folder: Path) -> None:
    """What was mapped, how well, and what left the clients, on standard error."""
    run = read_run(folder)
    measured = [name for name in _FIRST if name in run.measures.federated] or list(run.measures.federated)
    central = run.measures.central
    console = _console(Remarks(sys.stderr))
    console.print()
    if measured:
        table = _table("", "federated", *["pooled data"] * bool(central))
        for name in measured:
            values = [run.measures.federated[name], *[central.get(name)] * bool(central)]
            table.add_row(
                _line(wording.metric_title(name)),
                *("" if value is None else wording.measure(value) for value in values),
            )
        console.print(table)
        console.print()
    console.print(_line(wording.summary(run)))
    console.print(_line(mapped.line(run.data)))
    console.print()


def print_comparison(comparison: Comparison) -> None:
    """Runs as columns, measures as rows; the best of a row is bold."""
    table = _table("", *comparison.runs)
    for row in comparison.rows:
        cells = [Text(text, "bold" if best else "") for text, best in zip(row.texts, row.best, strict=True)]
        table.add_row(_line(row.title), *cells)
    _console(sys.stdout).print(table)


def print_bounds(lines: Sequence[Line]) -> None:
    """Bounds, what they bound and how loose they are, on standard output; a bound that is broken is bold."""
    table = _table("theorem", "bounds", "bound", "measured", "factor")
    table.add_column(_line("note"))
    for line in lines:
        broken = line.bound is not None and line.measured is not None and line.bound < line.measured
        numbers = [
            Text("" if value is None else f"{value:.3g}", "bold" if broken else "")
            for value in (line.bound, line.measured, line.factor)
        ]
        table.add_row(_line(line.theorem), _line(line.what), *numbers, _line(line.note))
    _console(sys.stdout).print(table)


def print_catalogue(entries: Mapping[str, str]) -> None:
    """Names and one line each."""
    width = max(map(len, entries))
    for name, description in entries.items():
        print(f"{name:<{width}}  {description}")


def print_paragraph(text: str) -> None:
    """One paragraph on standard error: broken between words on a terminal, one line elsewhere."""
    _console(Remarks(sys.stderr)).print(_line(text))


def _line(text: str) -> Text:
    """Text of others as it is, on one line: nothing in it is markup, a picture's name, or a command to a terminal."""
    return Text(plain(" ".join(part.strip() for part in text.splitlines())))


def _console(stream: IO[str] | Remarks) -> Console:
    """A console that leaves numbers and paths uncoloured, and lines whole where nobody looks at them."""
    file = cast("IO[str]", stream)
    console = Console(file=file, highlight=False)
    return console if console.is_terminal else Console(file=file, highlight=False, width=10_000)


def _table(*titles: str) -> Table:
    """A table without rules: names to the left, figures to the right."""
    first, *others = titles
    columns = [Column(_line(first)), *(Column(_line(title), justify="right") for title in others)]
    return Table(*columns, box=None, pad_edge=False, padding=(0, 3, 0, 0))


@contextmanager
def _logged(say: Callable[[str], None]) -> Iterator[None]:
    """What raydr logs, from INFO on, goes to ``say``; other libraries are not heard."""
    handler, logger = _Saying(say), logging.getLogger("raydr")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


class _Saying(logging.Handler):
    """Passes each record's message on."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(record.getMessage())


class _StageBars:
    """One row for each stage."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def hear(self, event: journal.Event) -> None:
        match event:
            case journal.StageStarted(stage):
                if stage not in self._tasks:
                    self._tasks[stage] = self._bars.add_task(stage, total=None)
            # A bar that stands at nothing says less than one that moves to and fro.
            case journal.Progress(stage, done, total) if stage in self._tasks and done:
                self._bars.update(self._tasks[stage], completed=done, total=total)
            case journal.StageEnded(stage, _) if stage in self._tasks:
                self._bars.update(self._tasks[stage], completed=1, total=1)
            case journal.Incident(text):
                self._bars.console.print(_line(text))


class _Seconds(ProgressColumn):
    """Wall clock of a stage."""

    def render(self, task: Task) -> RenderableType:
        seconds = task.finished_time if task.finished else task.elapsed
        return Text(f"{seconds or 0.0:.1f} s", "none" if task.finished else "cyan")


class _RunningBar(BarColumn):
    """A bar while its stage runs, nothing afterwards: what is done needs no bar."""

    def render(self, task: Task) -> RenderableType:  # type: ignore[override]
        return Text() if task.finished else super().render(task)


class _Count(ProgressColumn):
    """How much of a running stage is done."""

    def render(self, task: Task) -> RenderableType:
        return (
            Text() if task.finished or task.total is None else Text(f"{task.completed:.0f}/{task.total:.0f}")
        )


class _PlainLines:
    """A line when a stage ends, and now and then while a long one runs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._spoke = time.monotonic()

    def hear(self, event: journal.Event) -> None:
        match event:
            case journal.StageEnded(stage, seconds):
                self.say(f"{stage}: {seconds:.1f} s")
            case journal.Progress(stage, done, total) if done < total and self._silent_s() > PATIENCE_S:
                self.say(f"{stage}: {done}/{total}")
            case journal.Incident(text):
                self.say(text)

    def say(self, text: str) -> None:
        self._console.print(_line(text))
        self._spoke = time.monotonic()

    def _silent_s(self) -> float:
        return time.monotonic() - self._spoke
