"""Noise on records from the start (P1 5.1): drawn once, before any other request."""

from __future__ import annotations

from dataclasses import dataclass

from raydr.federation.client import Client
from raydr.federation.federation import Federation
from raydr.federation.host import blurred
from raydr.federation.messages import Range, Reply, Request, answers
from raydr.privacy.ledger import Granularity, Public
from raydr.privacy.mechanism import Mechanism


@dataclass(frozen=True)
class Blurred(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="confirmation that a client has added noise to its records",
    public=Public.EMPTY,
):
    """A reply without content."""

    @staticmethod
    def ranges(request: BlurRecords, rows: int) -> dict[str, Range]:
        """Declare no field."""
        return {}


@dataclass(frozen=True)
class BlurRecords(Request[Blurred], what="the noise to add to all records", sets_state=True):
    """Sent to every client once; its records are noisy from then on. ``unit`` is the unit of a level."""

    noise: Mechanism
    unit: float


@answers(BlurRecords)
def blur_client(client: Client, request: BlurRecords) -> Blurred:
    """Client part: replace the partition with its noisy form."""
    client.rows = blurred(client, request.noise, request.unit)
    client.covered_by = request.noise
    return Blurred()


def blur_records(federation: Federation, noise: Mechanism, unit: float) -> None:
    """Let every client add noise to its records; all later requests use the noisy ones.

    Parameters
    ----------
    federation : Federation
        Federation of the clients.
    noise : Mechanism
        Mechanism on data.
    unit : float
        Root mean square deviation of the features, the unit of a level; NaN without one.
    """
    federation.ask(BlurRecords(noise, unit))
    federation.cover_records(noise)
