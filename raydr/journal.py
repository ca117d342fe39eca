"""What happens in a run, told while it happens: stages, progress, rounds, incidents.

A run tells its journal; the journal keeps what the run folder needs and passes every event on to one listener (a
progress bar, plain lines, or another process).
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
"""What a file may say; whoever reads one checks it."""


@dataclass(frozen=True)
class StageStarted:
    """A stage of the run began."""

    stage: str


@dataclass(frozen=True)
class StageEnded:
    """A stage of the run ended after so many seconds of wall clock."""

    stage: str
    seconds: float


@dataclass(frozen=True)
class Progress:
    """Part of a stage is done, in units of its own; ``done`` may be a part of one. A stage may begin another count."""

    stage: str
    done: float
    total: int


@dataclass(kw_only=True, frozen=True)
class RoundEnded:
    """One round of a method: a row of ``rounds.jsonl``.

    ``objective`` is the method's, before the round's step; seconds are wall clock; bytes are payload; ``incidents``
    say what failed and what was decided (:class:`raydr.federation.failures.Incident`, as plain dictionaries);
    ``moved`` is the squared length of the round's step, for methods that tell it.
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
        """That row."""
        return json.dumps(asdict(self)) + "\n"


@dataclass(frozen=True)
class Incident:
    """Something that a person should know of, in one line."""

    text: str


@dataclass(frozen=True)
class Seated:
    """Where the clients live, and why there, in one line."""

    text: str


@dataclass(frozen=True)
class CheckpointTaken:
    """The run can go on from here: the content of a checkpoint file, after so many rounds."""

    round: int
    content: bytes


@dataclass(frozen=True)
class Charged:
    """A release is charged, and is asked for once every listener has returned: a line for the run folder."""

    line: str


@dataclass(frozen=True)
class SweepBegan:
    """A sweep of so many trials began, or goes on; ``done`` of them ended before, ``at_once`` run side by side."""

    trials: int
    done: int
    at_once: int


@dataclass(frozen=True)
class TrialStarted:
    """A trial of a sweep began; ``settings`` say which, in a line."""

    trial: str
    settings: str


@dataclass(kw_only=True, frozen=True)
class TrialEnded:
    """A trial ended.

    ``status`` is "done", "failed" or "stopped"; ``outcome`` says in a line what it came to, the first objective first;
    ``value`` is that objective, None where there is none; seconds are wall clock since it started, None where nobody
    took them.
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
    | Incident
    | Seated
    | CheckpointTaken
    | Charged
    | SweepBegan
    | TrialStarted
    | TrialEnded
)
Listener: TypeAlias = Callable[[Event], None]


def unheard(event: Event) -> None:
    """Listen to nothing."""


@dataclass
class Journal:
    """Seconds by stage and the rounds of one run."""

    listener: Listener = unheard
    seconds: dict[str, float] = field(default_factory=dict)
    rounds: list[RoundEnded] = field(default_factory=list)
    incidents: list[str] = field(default_factory=list)
    stage_name: str = ""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage; the seconds of stages of one name add up."""
        self.stage_name = name
        self.tell(StageStarted(name))
        started = time.perf_counter()
        yield
        self.tell(StageEnded(name, time.perf_counter() - started))

    def progress(self, done: float, total: int) -> None:
        """Say how far the present stage is."""
        self.tell(Progress(self.stage_name, done, total))

    def tell(self, event: Event) -> None:
        """Keep an event, one's own or one told by another process, and pass it on."""
        match event:
            case StageEnded(stage, seconds):
                self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
            case RoundEnded(round=round):
                # a round that is done again, after a restart from a checkpoint, replaces what was told of it
                while self.rounds and self.rounds[-1].round >= round:
                    self.rounds.pop()
                self.rounds.append(event)
            case Incident(text):
                self.incidents.append(text)
        self.listener(event)


def within(journal: Journal) -> Journal:
    """A journal of work within the present stage of another, which hears how far it is and of incidents alone."""

    def hear(event: Event) -> None:
        match event:
            case Progress(_, done, total):
                journal.progress(done, total)
            case Incident():
                journal.tell(event)

    return Journal(hear)
