"""Events of a run: stages, progress, rounds, incidents.

A run reports events to its journal. The journal keeps what the run folder needs and passes every event to one
listener: a progress bar, plain lines, or another process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, TypeAlias

from pydantic import Field

Count: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
Seconds: TypeAlias = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
"""Limits for values from a file, checked on reading."""


@dataclass(frozen=True)
class StageStarted:
    """A stage of the run started."""

    stage: str


@dataclass(frozen=True)
class StageEnded:
    """A stage of the run ended after ``seconds`` of wall clock time."""

    stage: str
    seconds: float


@dataclass(frozen=True)
class Progress:
    """Progress within a stage, in the stage's own units.

    ``done`` can be a fraction. A stage can start a new count.
    """

    stage: str
    done: float
    total: int


@dataclass(kw_only=True, frozen=True)
class RoundEnded:
    """One round of a method: a row of ``rounds.jsonl``.

    ``objective`` is the method's value before the round's step. ``seconds`` is wall clock time. Bytes are those of the
    wire format. ``incidents`` lists the failures and the decisions
    (:class:`raydr.federation.failures.IncidentEvent`, as plain dictionaries). ``moved`` is the squared length of the
    round's step, for methods that report it.
    """

    round: Count
    objective: float | None
    seconds: Seconds
    bytes_up: Count
    bytes_down: Count
    asked: Count
    answered: Count
    failed: Count
    incidents: tuple[dict[str, Any], ...] = ()
    moved: float | None = None

    @property
    def line(self) -> str:
        """The round as a line of JSON."""
        return json.dumps(asdict(self)) + "\n"


@dataclass(frozen=True)
class IncidentEvent:
    """A message for the user, in one line."""

    text: str


@dataclass(frozen=True)
class Seated:
    """Where the clients run and why, in one line."""

    text: str


@dataclass(frozen=True)
class CheckpointTaken:
    """A checkpoint after ``round`` rounds: the content of its file, from which the run can resume."""

    round: int
    content: bytes


@dataclass(frozen=True)
class Charged:
    """A privacy charge, as a line for the run folder. The release is requested only after every listener returns."""

    line: str


@dataclass(frozen=True)
class SweepBegan:
    """A sweep of ``trials`` trials started or resumed.

    ``done`` trials ended before. ``at_once`` trials run in parallel.
    """

    trials: int
    done: int
    at_once: int


@dataclass(frozen=True)
class TrialStarted:
    """A trial of a sweep started. ``settings`` describes it in one line."""

    trial: str
    settings: str


@dataclass(kw_only=True, frozen=True)
class TrialEnded:
    """A trial of a sweep ended.

    ``status`` is "done", "failed" or "stopped". ``outcome`` gives the results in one line, the first
    objective first. ``value`` is the first objective, or None. ``seconds`` is wall clock time since the
    start, or None if it was not measured.
    """

    trial: str
    settings: str
    status: str
    outcome: str
    value: float | None
    seconds: float | None


Event: TypeAlias = (
    StageStarted
    | StageEnded
    | Progress
    | RoundEnded
    | IncidentEvent
    | Seated
    | CheckpointTaken
    | Charged
    | SweepBegan
    | TrialStarted
    | TrialEnded
)
Listener: TypeAlias = Callable[[Event], None]


def unheard(event: Event) -> None:
    """Ignore an event."""


@dataclass
class Journal:
    """Events of one run: seconds by stage, rounds and incidents."""

    listener: Listener = unheard
    seconds: dict[str, float] = field(default_factory=dict)
    rounds: list[RoundEnded] = field(default_factory=list)
    incidents: list[str] = field(default_factory=list)
    stage_name: str = ""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage. The seconds of stages with the same name add up."""
        self.stage_name = name
        self.tell(StageStarted(name))
        started = time.perf_counter()
        yield
        self.tell(StageEnded(name, time.perf_counter() - started))

    def progress(self, done: float, total: int) -> None:
        """Report the progress of the current stage."""
        self.tell(Progress(self.stage_name, done, total))

    def tell(self, event: Event) -> None:
        """Record an event, from this process or another one, and pass it on."""
        match event:
            case StageEnded(stage, seconds):
                self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
            case RoundEnded(round=round):
                # A round that is repeated after a restart from a checkpoint replaces the earlier one.
                while self.rounds and self.rounds[-1].round >= round:
                    self.rounds.pop()
                self.rounds.append(event)
            case IncidentEvent(text):
                self.incidents.append(text)
        self.listener(event)


def within(journal: Journal) -> Journal:
    """Return a journal for work within the current stage of another journal.

    It passes on only progress and incidents.
    """

    def hear(event: Event) -> None:
        match event:
            case Progress(_, done, total):
                journal.progress(done, total)
            case IncidentEvent():
                journal.tell(event)

    return Journal(hear)
