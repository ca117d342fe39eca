"""The first question of every federation: how large each client's partition is."""

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
        """Two numbers."""
        return {"rows": Range(()), "features": Range(())}


@dataclass(frozen=True)
class Enrol(Request[Enrolment], what="the question how many rows and features a client has"):
    """Asked once, before anything else."""


@answers(Enrol)
def enrol(client: Client, request: Enrol) -> Enrolment:
    """Client part of the first question."""
    return Enrolment(*client.rows.shape)
