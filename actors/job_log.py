"""A run's journal as lines of a job's log, for a client that follows the job."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from pydantic import TypeAdapter, ValidationError

from raydr.journal import (
    Event,
    IncidentEvent,
    Progress,
    Seated,
    StageEnded,
    StageStarted,
    SweepBegan,
    TrialEnded,
    TrialStarted,
)

_KEY = "raydr"
"""First key of such a line; its value is the kind of the event."""


@dataclass(frozen=True)
class Failed:
    """A job that failed: one paragraph, and the exit status that the same run would have here."""

    text: str
    code: int


@dataclass(frozen=True)
class Kept:
    """A job's folder is complete and packed for its client to fetch; ``size`` in bytes."""

    size: int


JobMessage: TypeAlias = Event | Failed | Kept
_KINDS: dict[str, TypeAdapter[Any]] = {
    kind.__name__: TypeAdapter(kind)
    for kind in (
        StageStarted,
        StageEnded,
        Progress,
        IncidentEvent,
        Seated,
        SweepBegan,
        TrialStarted,
        TrialEnded,
        Failed,
        Kept,
    )
}
"""Kinds of events in the log. Rounds are left out: there may be a million, and the run folder has them."""


def line_of(event: JobMessage) -> str | None:
    """Return an event as a line; None for an event that the log leaves out.

    >>> line_of(IncidentEvent("client 3 is late"))
    '{"raydr": "IncidentEvent", "text": "client 3 is late"}'
    """
    kind = type(event).__name__
    return json.dumps({_KEY: kind, **asdict(event)}) if kind in _KINDS else None


def message_in(line: str) -> JobMessage | None:
    """Return the event in a line of a log; None for a line that raydr did not write.

    >>> message_in('{"raydr": "Progress", "stage": "rounds", "done": 3, "total": 50}')
    Progress(stage='rounds', done=3.0, total=50)
    >>> message_in("(raylet) node 3 joined") is None
    True
    """
    if not line.startswith("{"):
        return None
    try:
        content = json.loads(line)
        event: JobMessage = _KINDS[content.pop(_KEY)].validate_python(content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ValidationError):
        return None
    return event
