"""What a method sees of its clients: requests, replies, exact sums, named randomness."""

from raydr.federation.client import Client
from raydr.federation.federation import ClientError, Federation, Transport
from raydr.federation.host import ClientHost
from raydr.federation.inline import InlineTransport
from raydr.federation.messages import Bound, Granularity, Reply, Request, answers
from raydr.federation.ring import RangeError

__all__ = [
    "Bound",
    "Client",
    "ClientError",
    "ClientHost",
    "Federation",
    "Granularity",
    "InlineTransport",
    "RangeError",
    "Reply",
    "Request",
    "Transport",
    "answers",
]
