"""Terminal output of sweeps: running trials, time left, and results."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from raydr import journal
from raydr.plain import listed, plain, short
from raydr.privacy.composition import OUTSIDE
from raydr.report import wording
from raydr.report.sweep.axes import axes, measures_of_interest, ranking
from raydr.report.sweep.papers import cell_text, mark
from raydr.runfolder import read_sweep, records
from raydr.runfolder.paper_table import SOURCES, read_paper_table
from raydr.runfolder.records import State, TrialRow

_LATEST = 8
"""Number of last ended trials in the table under the bars."""
VERDICT_STYLES = {"better": "green", "equal": "", "worse": "red", "undecided": ""}
_MOST_POINTS = 20
"""Maximum number of points, and of errors, in the final table; the page has all."""


@dataclass(kw_only=True)
class SweepTable:
    """State of a sweep, updated by events."""

    trials: int = 0
    ended: int = 0
    at_once: int = 0
    failed: int = 0
    _done_before: int = 0
    _began: float = 0.0
    _running: dict[str, tuple[str, float]] = field(default_factory=dict)
    _latest: deque[journal.TrialEnded] = field(default_factory=lambda: deque(maxlen=_LATEST))

    @property
    def under_way(self) -> bool:
        """Whether a sweep has begun and not ended."""
        return self.ended < self.trials

    def hear(self, event: journal.Event) -> None:
        """Update the state from an event."""
        match event:
            case journal.SweepBegan(trials, done, at_once):
                self.trials, self.ended, self._done_before, self.at_once = trials, done, done, at_once
                self._began = time.monotonic()
            case journal.TrialStarted(trial, settings):
                self._running[trial] = settings, time.monotonic()
            case journal.TrialEnded(trial=trial, status=status):
                self._running.pop(trial, None)
                self._latest.append(event)
                self.ended += 1
                self.failed += status == "failed"

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until all trials have ended; None before the first has ended."""
        ended = self.ended - self._done_before
        if not ended:
            return None
        return (time.monotonic() - self._began) / ended * (self.trials - self.ended)

    def line_for(self, event: journal.SweepBegan | journal.TrialEnded) -> str:
        """Return a line about an event."""
        if isinstance(event, journal.SweepBegan):
            before = f", {event.done} already ended" if event.done else ""
            return f"{event.trials} trials{before}, {event.at_once} at once"
        took = f" ({wording.duration(event.seconds)})" if event.seconds is not None else ""
        return f"{self._progress}: trial {event.trial}, {event.settings}: {event.outcome}{took}"

    def rendered(self) -> RenderableType:
        """Return a table of running trials and those that ended last."""
        table = Table(
            box=None, pad_edge=False, padding=(0, 2, 0, 0), caption=self._progress, caption_justify="left"
        )
        table.add_column("trial")
        table.add_column("settings", overflow="ellipsis", no_wrap=True)
        table.add_column("result", overflow="ellipsis", no_wrap=True)
        table.add_column("", justify="right")
        for ended in self._latest:
            seconds = wording.duration(ended.seconds) if ended.seconds is not None else ""
            style = {"failed": "red", "stopped": "yellow"}.get(ended.status, "")
            table.add_row(ended.trial, plain(ended.settings), Text(plain(ended.outcome), style), seconds)
        for trial, (settings, began) in self._running.items():
            table.add_row(
                trial, plain(settings), Text("runs", "cyan"), wording.duration(time.monotonic() - began)
            )
        return table

    @property
    def _progress(self) -> str:
        left = self.seconds_left
        eta = f", about {wording.duration(left)} left" if left and self.under_way else ""
        lost = f", {self.failed} failed" if self.failed else ""
        return f"{self.ended}/{self.trials}{lost}{eta}"


def sweep_table(folder: Path) -> Iterator[RenderableType]:
    """Yield a table of points, best first by the first objective, with mean and sd of each objective; then errors."""
    sweep = read_sweep(folder)
    known = axes(sweep)
    wanted = measures_of_interest(sweep, known)
    varied = [axis for axis in known if axis.swept and axis.varies]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("point")
    for axis in varied:
        table.add_column(Text(axis.title.rpartition(".")[2] if axis.title != "method.kind" else "method"))
    for axis in wanted:
        table.add_column(Text(axis.title), justify="right")
    order = ranking(wanted[0] if wanted else None, len(sweep.points))
    for place in order[:_MOST_POINTS]:
        cells = [
            "" if axis.swept and axis.values[place] is None else axis.text(place)
            for axis in (*varied, *wanted)
        ]
        table.add_row(str(sweep.points[place].point), *(Text(short(cell, 40)) for cell in cells))
    yield table
    states: tuple[State, ...] = ("done", "failed", "stopped")
    counts = [
        f"{wording.plural(count, 'trial')} {state}" for state in states if (count := sweep.count(state))
    ]
    more = len(sweep.points) - _MOST_POINTS
    yield Text(", ".join(counts + [f"{wording.plural(more, 'further point')} on the page"] * (more > 0)))
    if sweep.total is not None:
        yield Text(f"{sweep.total.words} {OUTSIDE}")
    for error, names in _errors(sweep.trials).items():
        yield Text(f"failed: {listed(names, 5)}: {error}", "red")


def paper_table(folder: Path) -> Iterator[RenderableType]:
    """Yield the cells of a paper's table, with the numbers of the paper and of raydr; then cells that did not run."""
    whole = read_paper_table(folder / records.TABLE)
    heading = whole.heading
    yield Text(f"{heading['paper']}, {heading['where']}: {heading['title']}", "bold")
    if whole.changed:
        yield Text(f"Not the whole table: run with {whole.changed}.", "yellow")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("", ""):
        table.add_column(title)
    for title in ("paper", *SOURCES, ""):
        table.add_column(title, justify="right")
    before = ""
    for cell in whole.cells:
        if all(value is None for value in (cell.paper, cell.published, cell.default, cell.pooled)):
            continue
        values = [getattr(cell, name) for name in ("paper", *SOURCES)]
        texts = [Text("" if value is None else cell_text(cell, value)) for value in values]
        found = cell.comparison
        verdict = Text("") if found is None else Text(mark(found), VERDICT_STYLES[found.verdict])
        table.add_row(Text(cell.name if cell.name != before else ""), Text(cell.column), *texts, verdict)
        before = cell.name
    yield table
    yield Text(f"{whole.summary}.")
    for reason in dict.fromkeys(cell.why for cell in whole.cells if cell.why):
        yield Text(f"not run: {short(' '.join(reason.split()), 300)}", "yellow")


def _errors(trials: Sequence[TrialRow]) -> dict[str, list[str]]:
    """Return the trials of each error, for the first ``_MOST_POINTS`` errors."""
    found: dict[str, list[str]] = {}
    for trial in trials:
        if trial.error is not None:
            name = f"{trial.point:04d}-{trial.repeat}"
            found.setdefault(short(" ".join(trial.error.split()), 300), []).append(name)
    return dict(list(found.items())[:_MOST_POINTS])
