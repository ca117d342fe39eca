"""What a method sees of its clients: requests, replies, exact sums, named randomness."""

from raydr.federation.client import Client
from raydr.federation.failures import ClientError, FailurePolicy, QuorumError
from raydr.federation.faults import Crash, FaultPlan
from raydr.federation.federation import Federation, Transport
from raydr.federation.host import ClientHost, Seat, fingerprint
from raydr.federation.inline import InlineTransport
from raydr.federation.messages import Bound, Granularity, Range, RefusedReplyError, Reply, Request, answers
from raydr.federation.ring import RangeError

__all__ = [
    "Bound",
    "Client",
    "ClientError",
    "ClientHost",
    "Crash",
    "FailurePolicy",
    "FaultPlan",
    "Federation",
    "Granularity",
    "InlineTransport",
    "QuorumError",
    "Range",
    "RangeError",
    "RefusedReplyError",
    "Reply",
    "Request",
    "Seat",
    "Transport",
    "answers",
    "fingerprint",
]
