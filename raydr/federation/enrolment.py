"""The first request of every federation: the size of each client's partition, and what the run will cost its site."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    """Request for the size, sent once before any other.

    ``declared`` has for each client what all releases of the run will cost: the sums of 1 / multiplier^2 under the
    relations zero-out and replace-one. It is empty if nothing is declared. A site refuses at once what it cannot
    afford.
    """

    declared: tuple[tuple[float, float], ...] = ()

    def addressed_to(self, client: int) -> Enrol:
        """Return the request with this client's cost alone."""
        return replace(self, declared=self.declared[client : client + 1]) if self.declared else self


@answers(Enrol)
def enrol(client: Client, request: Enrol) -> Enrolment:
    """Client part: return the size of the partition."""
    return Enrolment(*client.rows.shape)
