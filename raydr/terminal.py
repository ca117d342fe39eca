"""What a person sees in a terminal: progress, one line per incident, tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from raydr import journal
from raydr.api import Result
from raydr.metrics import METRICS
from raydr.report import Comparison

_FIRST = ("npa_10", "ca_10", "trustworthiness", "continuity", "f_score", "distance_error")


@contextmanager
def heard_on_terminal() -> Iterator[journal.Listener]:
    """A listener that shows bars on a terminal, and a plain line per stage elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _plain(console)
        return
    with Progress(
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TimeElapsedColumn(),
        console=console,
    ) as bars:
        yield _Bars(bars).hear


def print_result(folder: Path) -> None:
    """The map in a few numbers."""
    metrics = Result(folder).metrics
    table = Table("", "federated", "pooled data", box=None, pad_edge=False)
    for name in (name for name in _FIRST if name in metrics["federated"]):
        pooled = metrics["central"].get(name)
        table.add_row(
            METRICS[name].title,
            f"{metrics['federated'][name]:.4f}",
            "" if pooled is None else f"{pooled:.4f}",
        )
    Console(stderr=True).print(table)


def print_comparison(comparison: Comparison) -> None:
    """Runs as columns, measures as rows; the best of a row is bold."""
    table = Table("", *comparison.runs, box=None, pad_edge=False)
    for row in comparison.rows:
        cells = [
            f"[bold]{text}[/bold]" if best else text for text, best in zip(row.texts, row.best, strict=True)
        ]
        table.add_row(row.title, *cells)
    Console().print(table)


def print_catalogue(entries: Mapping[str, str]) -> None:
    """Names and one line each."""
    width = max(map(len, entries))
    for name, description in entries.items():
        print(f"{name:<{width}}  {description}")


class _Bars:
    """One bar for each stage."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def hear(self, event: journal.Event) -> None:
        match event:
            case journal.StageStarted(stage):
                if stage not in self._tasks:
                    self._tasks[stage] = self._bars.add_task(stage, total=None)
            case journal.Progress(stage, done, total) if stage in self._tasks:
                self._bars.update(self._tasks[stage], completed=done, total=total)
            case journal.StageEnded(stage, _) if stage in self._tasks:
                self._bars.update(self._tasks[stage], completed=1, total=1)
            case journal.Incident(text):
                self._bars.console.print(text)


def _plain(console: Console) -> journal.Listener:
    def hear(event: journal.Event) -> None:
        match event:
            case journal.StageEnded(stage, seconds):
                console.print(f"{stage}: {seconds:.1f} s", highlight=False)
            case journal.Incident(text):
                console.print(text, highlight=False)

    return hear
