"""The first request of every federation: the size of each client's partition."""

from __future__ import annotations

from dataclasses import dataclass

from raydr.federation.client import Client
from raydr.federation.messages import Range, Reply, Request, answers
from raydr.privacy.ledger import Granularity, Public


@dataclass(frozen=True)
class Enrolment(
    Reply,
    granularity=Granularity.PER_CLIENT,
    what="how many rows and features a client has",
    public=Public.SHAPES,
):
    """Size of a client's partition."""

    rows: int
    features: int

    @staticmethod
    def ranges(request: Enrol, rows: int) -> dict[str, Range]:
        """Declare two numbers."""
        return {"rows": Range(()), "features": Range(())}


@dataclass(frozen=True)
class Enrol(Request[Enrolment], what="a request for the number of rows and features"):
    """Request for the size, sent once before any other."""


@answers(Enrol)
def enrol(client: Client, request: Enrol) -> Enrolment:
    """Client part: return the size of the partition."""
    return Enrolment(*client.rows.shape)
