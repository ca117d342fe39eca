"""How far a run is, while it runs: bars on a terminal and in a notebook, plain lines now and then elsewhere."""

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
from raydr.front.streams import Remarks
from raydr.front.sweeps import SweepTable
from raydr.geometry.points import Progress
from raydr.report import wording

PATIENCE_S = 10.0
"""Without a terminal, a stage that takes longer says how far it is this often."""
READING = "reading"
"""What reading own data is called."""
TRIALS = "trials"
"""What a sweep's own bar is called, which tells the time left beneath."""
_NEARLY = 0.999
LONG_S = 2.0
"""A stage that takes longer says how much longer."""
_TELLING = 0.05
"""A first count tells how much longer only past this part of all: it holds what was compiled, half a minute perhaps."""


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
    console = console_on(Remarks(sys.stderr))
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
            beneath=sweep,
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
    """Say the title before the first stage that ends; every event also goes to ``hear``."""

    def both(event: journal.Event) -> None:
        nonlocal title
        if title and isinstance(event, journal.StageEnded):
            say(title)
            title = ""
        hear(event)

    return both


@contextmanager
def reading_on_terminal(*, quiet: bool = False, logs: bool = True) -> Iterator[Progress]:
    """Hears how far own data are read, and shows it where that takes long, with or without what raydr logs."""
    with heard_on_terminal(quiet=quiet, passing=True, logs=logs) as listener:
        story = journal.Journal(listener)
        with story.stage(READING):
            yield story.progress


def _draws_bars(console: Console) -> bool:
    """On a terminal; and in a notebook where it has what rich draws them with."""
    return find_spec("ipywidgets") is not None if console.is_jupyter else console.is_terminal


@dataclass(frozen=True)
class _Leg:
    """A stretch of a stage in one unit: when it began, what was done then, and what is done at the last count.

    ``warm`` is when the first count after the beginning came.
    """

    began: float
    first: float
    total: int
    done: float
    warm: float | None = None

    def counted(self, now: float, done: float) -> _Leg:
        """With another count; the pace is that since the first as soon as there are two.

        What is compiled is compiled in the first step, which takes longer by that.
        """
        if done == self.done:
            return self
        if self.warm is None:
            return replace(self, done=done, warm=now)
        if self.began < self.warm:
            return _Leg(self.warm, self.done, self.total, done, self.warm)
        return replace(self, done=done)


class Pace:
    """How much longer stages will take, as they went since their count began; a count that begins anew is another."""

    def __init__(self) -> None:
        self._legs: dict[str, _Leg] = {}
        self._began: dict[str, float] = {}

    def hear(self, event: journal.Event) -> None:
        """Note what an event says of a stage."""
        now = time.monotonic()
        match event:
            case journal.StageStarted(stage):
                self._began[stage] = now
                self._legs.pop(stage, None)
            case journal.Progress(stage, done, total):
                self._note(stage, now, done, total)

    def _note(self, stage: str, now: float, done: float, total: int) -> None:
        leg = self._legs.get(stage)
        if leg is None:  # of what was done before anybody counted, the stage's beginning tells the pace
            leg = _Leg(self._began.get(stage, now) if done > 0 else now, 0.0, total, 0.0)
        elif leg.total != total or done < leg.done:
            leg = _Leg(now, done, total, done)
        self._legs[stage] = leg.counted(now, done)

    def left_s(self, stage: str) -> float | None:
        """Seconds that a stage will take yet; None where nothing tells, or where it is young."""
        leg = self._legs.get(stage)
        now = time.monotonic()
        if leg is None or leg.done <= leg.first or now - self._began.get(stage, now) < LONG_S:
            return None
        if leg.began != leg.warm and leg.done - leg.first < _TELLING * leg.total:
            return None
        return (now - leg.began) * (leg.total - leg.done) / (leg.done - leg.first)

    def said(self, stage: str) -> str:
        """The same in words; nothing where nothing tells."""
        left = self.left_s(stage)
        return "" if left is None else f"about {wording.duration(max(round(left), 1))} left"


class _Bars(Bars):
    """Bars with a table beneath them while a sweep runs."""

    def __init__(
        self, *columns: ProgressColumn, beneath: SweepTable, console: Console, transient: bool
    ) -> None:
        self._beneath = beneath
        super().__init__(*columns, console=console, transient=transient)

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self._beneath.under_way:
            yield self._beneath.rendered()


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
            # A bar that stands at nothing says less than one that moves to and fro; one that is full is over, and a
            # stage is not before it ends.
            case journal.Progress(stage, done, total) if stage in self._tasks and done:
                reached, count = min(done, _NEARLY * total), _counted(done, total)
                self._bars.update(self._tasks[stage], completed=reached, total=total, count=count)
            case journal.StageEnded(stage, _) if stage in self._tasks:
                self._bars.update(self._tasks[stage], completed=1, total=1)
            case journal.Incident(text) | journal.Seated(text):
                self._bars.console.print(one_line(text))
            case journal.SweepBegan(trials, done, _):
                self._tasks[TRIALS] = self._bars.add_task(
                    TRIALS, total=trials, completed=done
                )  # counted beneath
            case journal.TrialEnded():
                self._bars.advance(self._tasks[TRIALS])


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
        return Text("" if task.finished else task.fields.get("count", ""))


class _Left(ProgressColumn):
    """How much longer a running stage will take."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    def render(self, task: Task) -> RenderableType:
        return Text() if task.finished else Text(self._pace.said(task.description), "cyan")


class _PlainLines:
    """A line when a stage ends, and now and then while a long one runs."""

    def __init__(self, console: Console, *, passing: bool) -> None:
        self._console = console
        self._passing = passing
        self._spoke = time.monotonic()
        self._sweep = SweepTable()
        self._pace = Pace()

    def hear(self, event: journal.Event) -> None:
        self._pace.hear(event)
        self._sweep.hear(event)
        match event:
            case journal.StageEnded(stage, seconds) if not self._passing:
                self.say(f"{stage}: {seconds:.1f} s")
            case journal.Progress(stage, done, total) if done < total and self._silent_s() > PATIENCE_S:
                left = self._pace.said(stage)
                self.say(f"{stage}: {_counted(done, total)}{left and f', {left}'}")
            case journal.Incident(text) | journal.Seated(text):
                self.say(text)
            case journal.SweepBegan() | journal.TrialEnded():
                self.say(self._sweep.said(event))

    def say(self, text: str) -> None:
        self._console.print(one_line(text))
        self._spoke = time.monotonic()

    def _silent_s(self) -> float:
        return time.monotonic() - self._spoke


def _counted(done: float, total: int) -> str:
    """How much is done, in whole units; of bytes and the like, which nobody counts, the share.

    >>> _counted(3.7, 12), _counted(50_000_000, 200_000_000)
    ('3/12', '25 %')
    """
    return f"{100 * done / total:.0f} %" if total > 10**6 else f"{int(done)}/{total}"
