"""What can go wrong with a client's answer, and what is done about it.

Failures are values: a host or a transport reports them, one policy decides, and every decision is journalled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from raydr.errors import RunError
from raydr.settings import share_of


class Kind(StrEnum):
    """Whose failure it is."""

    CLIENT_RAISED = "client raised"
    REFUSED = "reply refused"
    REQUEST_REFUSED = "request refused"
    DROPPED_OUT = "dropped out"
    PROCESS_DIED = "process died"
    NODE_LOST = "node lost"
    TIMED_OUT = "timed out"


class Decision(StrEnum):
    """What follows from a failure."""

    RETRY = "retry"
    DROP = "drop for this round"
    GIVE_UP = "give up"


@dataclass(frozen=True)
class Failure:
    """One client that did not answer one call.

    Attributes
    ----------
    client : int
        Which.
    kind : Kind
        Whose failure it is: the client part's, the reply's, the network's, the process's, the machine's.
    reason : str
        What was seen, in one line.
    trace : str
        The client part's traceback, where it raised.
    """

    client: int
    kind: Kind
    reason: str
    trace: str = ""


@dataclass(kw_only=True, frozen=True)
class Incident:
    """A failure and what was decided: a log line, and an entry of the round's row in ``rounds.jsonl``."""

    round: int
    call: str
    attempt: int
    client: int
    kind: str
    reason: str
    decision: str


class ClientError(RunError):
    """A client did not answer, and the run cannot go on without it."""


class QuorumError(RunError):
    """Too few clients answered."""


@dataclass(frozen=True)
class FailurePolicy:
    """Retry what a new process can mend; drop, where the call allows it, what it cannot; else give up.

    A dead process, a lost node and a time-out say nothing about the client's answer, so the call is repeated, with
    the same random streams and so for the same answer. A client part that raises, or whose reply is refused, would
    do the same again: it is not repeated.

    Attributes
    ----------
    retries : int
        How often a call is repeated to a client before it counts as lost.
    quorum : float
        Part of the clients asked, from above 0 to 1, that must answer a call that can do without some. 1 means all.
    """

    retries: int = 2
    quorum: float = 1.0

    def decide(self, failure: Failure, attempt: int, *, droppable: bool) -> Decision:
        """Return what to do about the failure of attempt number ``attempt``, from 0."""
        mendable = failure.kind in (Kind.PROCESS_DIED, Kind.NODE_LOST, Kind.TIMED_OUT)
        if mendable and attempt < self.retries:
            return Decision.RETRY
        return Decision.DROP if droppable and self.quorum < 1 else Decision.GIVE_UP

    def most_lost(self, asked: int) -> int:
        """How many of so many may fail to answer a call that can do without some."""
        return asked - math.ceil(share_of(self.quorum, asked))

    def require_quorum(self, answered: int, asked: int) -> None:
        """Raise QuorumError if too few answered, by the decimal that was written: 0.56 of 25 are 14."""
        if answered < share_of(self.quorum, asked):
            raise QuorumError(
                f"only {answered} of {asked} clients answered, fewer than the quorum of {self.quorum:g}: lower"
                " runtime.quorum, or look at why the others failed."
            )
