"""The one-line privacy verdict of a run, from the ledger's types and the accountant alone.

Message descriptions are not used: only granularity, protection and claim count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from raydr.privacy.ledger import Entry, Granularity
from raydr.privacy.statement import Statement


class Exposure(StrEnum):
    """The most revealing kind of data that left the clients without a claim."""

    RECORDS = "records"
    """Values of each record."""
    UPLOADS = "uploads"
    """Results of one client that the server could read."""
    SUMS = "sums"
    """Sums over clients; the server could not read any summand."""
    NOTHING = "nothing"
    """Everything that left is covered by accounted noise, or reveals nothing about records."""


@dataclass(frozen=True)
class PrivacyVerdict:
    """The privacy verdict of a run.

    Attributes
    ----------
    exposure : Exposure
        What left without a claim.
    epsilon : float or None
        Epsilon of the whole run at ``delta``; None if it is infinite.
    delta : float
    noisy : bool
        Whether noise with a claim covers any upload.
    keyed : bool
        Whether all uploads describe records under an isometry key.
    """

    exposure: Exposure
    epsilon: float | None
    delta: float
    noisy: bool
    keyed: bool


def verdict(ledger: Sequence[Entry], cost: Statement) -> PrivacyVerdict:
    """Return the verdict on a run's ledger and its privacy cost."""
    up = [entry for entry in ledger if entry.reaches_server and entry.public is None]
    bare = [entry for entry in up if entry.epsilon is None]
    if any(entry.granularity == Granularity.PER_RECORD for entry in bare):
        exposure = Exposure.RECORDS
    elif any(not entry.secure for entry in bare):
        exposure = Exposure.UPLOADS
    else:
        exposure = Exposure.SUMS if bare else Exposure.NOTHING
    noisy = any(release.releases > 0 for release in cost.releases)
    return PrivacyVerdict(
        exposure, cost.epsilon, cost.delta, noisy, bool(up) and all(entry.keyed for entry in up)
    )
