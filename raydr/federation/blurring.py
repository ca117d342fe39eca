"""Noise on records from the start (P1 5.1): drawn once, before anything else is asked of them."""

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
    what="word that a client has added noise to its records",
    public=Public.EMPTY,
):
    """An answer without content."""

    @staticmethod
    def ranges(request: BlurRecords, rows: int) -> dict[str, Range]:
        """No field."""
        return {}


@dataclass(frozen=True)
class BlurRecords(Request[Blurred], what="the noise to add to all records", sets_state=True):
    """Told to every client once; its records are noisy from then on. ``unit`` is that of a level."""

    noise: Mechanism
    unit: float


@answers(BlurRecords)
def blur_client(client: Client, request: BlurRecords) -> Blurred:
    """Client part: replace the partition by its noisy form."""
    client.rows = blurred(client, request.noise, request.unit)
    client.covered_by = request.noise
    return Blurred()


def blur_records(federation: Federation, noise: Mechanism, unit: float) -> None:
    """Have every client add noise to its records: whatever is asked of them later is made of the noisy ones.

    Parameters
    ----------
    federation : Federation
        Whose clients are told.
    noise : Mechanism
        On data.
    unit : float
        Root mean square deviation of the features, in which a level is told; NaN where none is.
    """
    federation.ask(BlurRecords(noise, unit))
    federation.cover_records(noise)
