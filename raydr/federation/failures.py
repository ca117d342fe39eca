"""Failures of clients to answer, and the policy that handles them.

Failures are values: a host or a transport reports them, one policy decides, and every decision is recorded in the
journal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from raydr.errors import RunError
from raydr.settings import share_of
from raydr.wire_types import travels


@travels
class Kind(StrEnum):
    """Where a failure occurred."""

    CLIENT_RAISED = "client raised"
    REFUSED = "reply refused"
    REQUEST_REFUSED = "request refused"
    POLICY = "refused by the site's policy"
    UNTRUSTED_KEY = "untrusted public key"
    DROPPED_OUT = "dropped out"
    PROCESS_DIED = "process died"
    NODE_LOST = "node lost"
    TIMED_OUT = "timed out"


class Decision(StrEnum):
    """The response to a failure."""

    RETRY = "retry"
    DROP = "drop for this round"
    GIVE_UP = "give up"


@travels
@dataclass(frozen=True)
class Failure:
    """One client that did not answer one call.

    Attributes
    ----------
    client : int
        Number of the client.
    kind : Kind
        Where it occurred: in the client part, reply, request, network, process or machine.
    reason : str
        The cause, in one line.
    trace : str
        Traceback of the client part, if it raised.
    """

    client: int
    kind: Kind
    reason: str
    trace: str = ""


@dataclass(kw_only=True, frozen=True)
class Incident:
    """A failure and the decision: a log line, and an entry of the round's row in ``rounds.jsonl``."""

    round: int
    call: str
    attempt: int
    client: int
    kind: str
    reason: str
    decision: str


class ClientError(RunError):
    """A client did not answer, and the run cannot continue without it."""


class QuorumError(RunError):
    """Too few clients answered."""


@dataclass(frozen=True)
class FailurePolicy:
    """Retry what a new process can fix; otherwise drop the client if the call allows it, or give up.

    A dead process, a lost node and a time-out do not depend on the client's answer. So the call is repeated with the
    same random streams, and gives the same answer. A client part that raises, or whose reply is refused, would fail
    again. Such a call is not repeated.

    Attributes
    ----------
    retries : int
        Number of times a call to a client is repeated before the client counts as lost.
    quorum : float
        Fraction of the asked clients, in (0, 1], that must answer a droppable call. 1 means all.
    """

    retries: int = 2
    quorum: float = 1.0

    def decide(self, failure: Failure, attempt: int, *, droppable: bool) -> Decision:
        """Return the decision for a failure of attempt number ``attempt``, from 0."""
        # A round without this site would hide that the site said no.
        if failure.kind in (Kind.POLICY, Kind.UNTRUSTED_KEY):
            return Decision.GIVE_UP
        mendable = failure.kind in (Kind.PROCESS_DIED, Kind.NODE_LOST, Kind.TIMED_OUT)
        if mendable and attempt < self.retries:
            return Decision.RETRY
        return Decision.DROP if droppable and self.quorum < 1 else Decision.GIVE_UP

    def most_lost(self, asked: int) -> int:
        """Return how many of ``asked`` clients may fail to answer a droppable call."""
        return asked - math.ceil(share_of(self.quorum, asked))

    def require_quorum(self, answered: int, asked: int) -> None:
        """Raise QuorumError if too few clients answered. The quorum is exact in decimal: 0.56 of 25 is 14."""
        if answered < share_of(self.quorum, asked):
            raise QuorumError(
                f"only {answered} of {asked} clients answered, fewer than the quorum of {self.quorum:g}: lower"
                " runtime.quorum, or look at why the others failed."
            )
