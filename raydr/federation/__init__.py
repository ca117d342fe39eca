"""The federation as a method sees it: requests, replies, exact sums and named random streams."""

from raydr.arrays import fingerprint
from raydr.federation.averaging import average
from raydr.federation.client import Client
from raydr.federation.context import Context
from raydr.federation.failures import ClientError, FailurePolicy, QuorumError
from raydr.federation.federation import Federation
from raydr.federation.host import ClientHost, HostedClient
from raydr.federation.inline import InlineTransport
from raydr.federation.loop import Loop
from raydr.federation.messages import (
    Cells,
    Range,
    RefusedReplyError,
    RefusedRequestError,
    Reply,
    Request,
    answers,
    answers_jointly,
)
from raydr.federation.rehearsal import Effort, Rehearsal, RehearsalClients
from raydr.federation.ring import RangeError
from raydr.federation.simulated.faults import Crash, FaultPlan
from raydr.federation.simulated.lying import Liars, attackers
from raydr.federation.transport import Transport
from raydr.privacy.ledger import DeterminedRecords, Granularity, Public, RecordContent
from raydr.privacy.mechanism import Bound

__all__ = [
    "Bound",
    "Cells",
    "Client",
    "ClientError",
    "ClientHost",
    "Context",
    "Crash",
    "DeterminedRecords",
    "Effort",
    "FailurePolicy",
    "FaultPlan",
    "Federation",
    "Granularity",
    "HostedClient",
    "InlineTransport",
    "Liars",
    "Loop",
    "Public",
    "QuorumError",
    "Range",
    "RangeError",
    "RecordContent",
    "RefusedReplyError",
    "RefusedRequestError",
    "Rehearsal",
    "RehearsalClients",
    "Reply",
    "Request",
    "Transport",
    "answers",
    "answers_jointly",
    "attackers",
    "average",
    "fingerprint",
]
