"""What may be said of a run before anything else: from typed protections, the accountant and the audit alone.

No sentence that somebody wrote about a message enters here: a message is what its granularity, its protection and its
claim make it, whatever its description says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from raydr.privacy.ledger import Entry, Granularity
from raydr.privacy.statement import Statement


class Left(StrEnum):
    """The most revealing of what left the clients with no claim that guards it."""

    RECORDS = "records"
    """Something of each record by itself."""
    UPLOADS = "uploads"
    """What a client computed of all its records, which the server could read."""
    SUMS = "sums"
    """Sums over clients, of which the server could read no summand."""
    NOTHING = "nothing"
    """All that left is covered by noise that is accounted for, or tells nothing of records."""


@dataclass(frozen=True)
class Verdict:
    """What a run gave away.

    Attributes
    ----------
    left : Left
        What left without a claim.
    epsilon : float or None
        Of the whole run at ``delta``; None where it is infinite.
    delta : float
    noisy : bool
        Whether noise with a claim covers any of it.
    keyed : bool
        Whether all of it is of records under an isometry key.
    """

    left: Left
    epsilon: float | None
    delta: float
    noisy: bool
    keyed: bool


def verdict(ledger: Sequence[Entry], cost: Statement) -> Verdict:
    """Return what a run's ledger and its statement of cost come to."""
    up = [entry for entry in ledger if entry.direction == "up" and entry.public is None]
    bare = [entry for entry in up if entry.epsilon is None]
    if any(entry.granularity == Granularity.PER_RECORD for entry in bare):
        left = Left.RECORDS
    elif any(not entry.secure for entry in bare):
        left = Left.UPLOADS
    else:
        left = Left.SUMS if bare else Left.NOTHING
    noisy = any(release.releases > 0 for release in cost.releases)
    return Verdict(left, cost.epsilon, cost.delta, noisy, bool(up) and all(entry.keyed for entry in up))
