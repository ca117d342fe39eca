"""Progress of a run: bars on a terminal and in a notebook, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib.util import find_spec

from rich.console import Console, RenderableType
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from raydr import journal
from raydr.front.console import console_on, logged, one_line
from raydr.front.streams import BestEffortStream
from raydr.front.sweeps import SweepTable
from raydr.geometry.points import Progress
from raydr.report import wording

PATIENCE_S = 10.0
"""Seconds between progress lines of a long stage, without a terminal."""
READING = "reading"
"""Name of the stage that reads a user's own data."""
TRIALS = "trials"
"""Name of a sweep's bar; the time left is in the table below it."""
_NEARLY = 0.999
LONG_S = 2.0
"""Seconds after which a stage shows the time left."""
_TELLING = 0.05
"""Part of a stage before which a first count gives no time left: it includes compilation, perhaps half a minute."""


@contextmanager
def heard_on_terminal(
    *, quiet: bool = False, passing: bool = False, logs: bool = True, title: str = ""
) -> Iterator[journal.Listener]:
    """Yield a listener that shows progress on standard error: bars on a terminal, plain lines elsewhere.

    Parameters
    ----------
    quiet : bool
        Show nothing.
    passing : bool
        Leave nothing on the terminal afterwards; without a terminal, print lines only for long stages.
    logs : bool
        Also print what raydr logs.
    title : str
        A line to print once the first stage has ended. A run that is refused before that has no title.
    """
    if quiet:
        yield journal.unheard
        return
    console = console_on(BestEffortStream(sys.stderr))
    if not _draws_bars(console):
        lines = _PlainLines(console, passing=passing)
        with logged(lines.say) if logs else nullcontext():
            yield _titled(title, lines.say, lines.hear)
        return
    sweep, pace = SweepTable(), Pace()
    with (
        _Bars(
            SpinnerColumn(finished_text=Text("✓", "green")),
            TextColumn("{task.description}", table_column=Column(min_width=12)),
            _Seconds(table_column=Column(min_width=8, justify="right")),
            _RunningBar(bar_width=30),
            _Count(),
            _Left(pace),
            console=console,
            transient=passing,
            table_below=sweep,
        ) as bars,
        logged(lambda text: console.print(one_line(text))) if logs else nullcontext(),
    ):
        stages = _StageBars(bars)

        def hear(event: journal.Event) -> None:
            pace.hear(event)
            sweep.hear(event)
            stages.hear(event)

        yield _titled(title, lambda text: console.print(one_line(text)), hear)


def _titled(title: str, say: Callable[[str], None], hear: journal.Listener) -> journal.Listener:
    """Print the title before the first stage that ends; every event also goes to ``hear``."""

    def both(event: journal.Event) -> None:
        nonlocal title
        if title and isinstance(event, journal.StageEnded):
            say(title)
            title = ""
        hear(event)

    return both


@contextmanager
def reading_on_terminal(*, quiet: bool = False, logs: bool = True) -> Iterator[Progress]:
    """Yield a callback that shows the progress of reading data if it takes long; ``logs`` also prints raydr's log."""
    with heard_on_terminal(quiet=quiet, passing=True, logs=logs) as listener:
        reading = journal.Journal(listener)
        with reading.stage(READING):
            yield reading.progress


def _draws_bars(console: Console) -> bool:
    """Return whether to draw bars: on a terminal, and in a notebook with ipywidgets."""
    return find_spec("ipywidgets") is not None if console.is_jupyter else console.is_terminal


@dataclass(frozen=True)
class _Leg:
    """A part of a stage in one unit: its start, the count at the start, and the last count.

    ``warm`` is the time of the first count after the start.
    """

    began: float
    first: float
    total: int
    done: float
    warm: float | None = None

    def counted(self, now: float, done: float) -> _Leg:
        """Return the part with a new count; after two counts, the pace is measured from the first one.

        The first step includes compilation and takes longer.
        """
        if done == self.done:
            return self
        if self.warm is None:
            return replace(self, done=done, warm=now)
        if self.began < self.warm:
            return _Leg(self.warm, self.done, self.total, done, self.warm)
        return replace(self, done=done)


class Pace:
    """Estimates the time left of stages from their pace since the count began; a restarted count is a new part."""

    def __init__(self) -> None:
        self._legs: dict[str, _Leg] = {}
        self._began: dict[str, float] = {}

    def hear(self, event: journal.Event) -> None:
        """Update the pace from an event."""
        now = time.monotonic()
        match event:
            case journal.StageStarted(stage):
                self._began[stage] = now
                self._legs.pop(stage, None)
            case journal.Progress(stage, done, total):
                self._note(stage, now, done, total)

    def _note(self, stage: str, now: float, done: float, total: int) -> None:
        leg = self._legs.get(stage)
        if leg is None:  # for work before the first count, measure the pace from the start of the stage
            leg = _Leg(self._began.get(stage, now) if done > 0 else now, 0.0, total, 0.0)
        elif leg.total != total or done < leg.done:
            leg = _Leg(now, done, total, done)
        self._legs[stage] = leg.counted(now, done)

    def left_s(self, stage: str) -> float | None:
        """Return the seconds left of a stage; None if unknown or if the stage has just begun."""
        leg = self._legs.get(stage)
        now = time.monotonic()
        if leg is None or leg.done <= leg.first or now - self._began.get(stage, now) < LONG_S:
            return None
        if leg.began != leg.warm and leg.done - leg.first < _TELLING * leg.total:
            return None
        return (now - leg.began) * (leg.total - leg.done) / (leg.done - leg.first)

    def time_left(self, stage: str) -> str:
        """Return the time left in words; an empty string if unknown."""
        left = self.left_s(stage)
        return "" if left is None else f"about {wording.duration(max(round(left), 1))} left"


class _Bars(Bars):
    """Bars with a table below them while a sweep runs."""

    def __init__(
        self, *columns: ProgressColumn, table_below: SweepTable, console: Console, transient: bool
    ) -> None:
        self._table_below = table_below
        super().__init__(*columns, console=console, transient=transient)

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self._table_below.under_way:
            yield self._table_below.rendered()


class _StageBars:
    """Shows one bar for each stage."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def hear(self, event: journal.Event) -> None:
        match event:
            case journal.StageStarted(stage):
                if stage not in self._tasks:
                    self._tasks[stage] = self._bars.add_task(stage, total=None)
            # At 0 the bar pulses, which says more than an empty bar. It is never full before the stage ends.
            case journal.Progress(stage, done, total) if stage in self._tasks and done:
                reached, count = min(done, _NEARLY * total), _counted(done, total)
                self._bars.update(self._tasks[stage], completed=reached, total=total, count=count)
            case journal.StageEnded(stage, _) if stage in self._tasks:
                self._bars.update(self._tasks[stage], completed=1, total=1)
            case journal.IncidentEvent(text) | journal.Seated(text):
                self._bars.console.print(one_line(text))
            case journal.SweepBegan(trials, done, _):
                self._tasks[TRIALS] = self._bars.add_task(
                    TRIALS, total=trials, completed=done
                )  # the table below counts
            case journal.TrialEnded():
                self._bars.advance(self._tasks[TRIALS])


class _Seconds(ProgressColumn):
    """Column with the wall clock time of a stage."""

    def render(self, task: Task) -> RenderableType:
        seconds = task.finished_time if task.finished else task.elapsed
        return Text(f"{seconds or 0.0:.1f} s", "none" if task.finished else "cyan")


class _RunningBar(BarColumn):
    """Column with a bar while the stage runs, and nothing afterwards."""

    def render(self, task: Task) -> RenderableType:  # type: ignore[override]
        return Text() if task.finished else super().render(task)


class _Count(ProgressColumn):
    """Column with the progress of a running stage."""

    def render(self, task: Task) -> RenderableType:
        return Text("" if task.finished else task.fields.get("count", ""))


class _Left(ProgressColumn):
    """Column with the time left of a running stage."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    def render(self, task: Task) -> RenderableType:
        return Text() if task.finished else Text(self._pace.time_left(task.description), "cyan")


class _PlainLines:
    """Prints a line when a stage ends, and every ``PATIENCE_S`` seconds during a long one."""

    def __init__(self, console: Console, *, passing: bool) -> None:
        self._console = console
        self._passing = passing
        self._printed_at = time.monotonic()
        self._sweep = SweepTable()
        self._pace = Pace()

    def hear(self, event: journal.Event) -> None:
        self._pace.hear(event)
        self._sweep.hear(event)
        match event:
            case journal.StageEnded(stage, seconds) if not self._passing:
                self.say(f"{stage}: {seconds:.1f} s")
            case journal.Progress(stage, done, total) if done < total and self._silent_s() > PATIENCE_S:
                left = self._pace.time_left(stage)
                self.say(f"{stage}: {_counted(done, total)}{left and f', {left}'}")
            case journal.IncidentEvent(text) | journal.Seated(text):
                self.say(text)
            case journal.SweepBegan() | journal.TrialEnded():
                self.say(self._sweep.line_for(event))

    def say(self, text: str) -> None:
        self._console.print(one_line(text))
        self._printed_at = time.monotonic()

    def _silent_s(self) -> float:
        return time.monotonic() - self._printed_at


def _counted(done: float, total: int) -> str:
    """Return the progress in whole units, or as a percentage for large totals such as bytes.

    >>> _counted(3.7, 12), _counted(50_000_000, 200_000_000)
    ('3/12', '25 %')
    """
    return f"{100 * done / total:.0f} %" if total > 10**6 else f"{int(done)}/{total}"
