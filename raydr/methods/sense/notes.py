"""Notes of SENSE: what the anchors protect and what they reveal."""

from __future__ import annotations

import numpy as np

from raydr.geometry.trilateration import EXACT_SHARE
from raydr.methods.outcome import Note
from raydr.methods.sense.anchor_counts import OpenSpread
from raydr.methods.sense.anchors import AnchorSource
from raydr.methods.sense.completion import Known
from raydr.methods.sense.observations import Observations
from raydr.methods.sense.settings import SenseSettings
from raydr.privacy.mechanism import Coverage

_SOURCES: dict[AnchorSource, str] = {
    "sample": "rows of the data that were set apart",
    "spanning": "rows of the data that were set apart and chosen to span most of them",
    "random": "drawn at random, as wide as the data",
    "learnt": "learnt from all clients' rows",
    "file": "from a file",
}


def notes(
    settings: SenseSettings,
    observations: Observations,
    known: Known,
    source: AnchorSource,
    coverage: Coverage | None = None,
    spread: OpenSpread | None = None,
) -> tuple[Note, ...]:
    """Return notes on what the anchors protect and what they reveal, from what the server received in this run."""
    seen, open_ones = observations.seen_by_each, known.codimension
    paragraphs = [
        f"Each client sent the server the distance of every record to {seen} anchors, {_SOURCES[source]}, in a space"
        f" of {known.rank + open_ones} dimensions. The anchors span {known.rank} of them. Within the span, the server"
        " can compute each record's coordinates by solving linear equations."
        + (
            f" Outside it, {open_ones} dimension{'s' if open_ones > 1 else ''} stay{'s' if open_ones == 1 else ''}"
            " open (P3, theorems 3.1 and 3.2): another record that differs there could have the same distances. This"
            " does not mean that a record is hidden."
            if open_ones
            else f" They leave no dimension open{', so distances hide nothing' if coverage is None else ''}."
        )
    ]
    share = known.open_share[~np.isnan(known.open_share)]
    within = int((share < EXACT_SHARE).sum())
    if coverage is not None:
        paragraphs.append(
            f"{coverage.mechanism.words} was added by {coverage.count(len(observations.sizes))} of"
            f" {len(observations.sizes)} clients. It blurs what the server can learn about their records, but raydr"
            " does not bound by how much: no differential privacy is claimed."
        )
    if len(share):
        spoilt = len(known.open_share) - len(share)
        paragraphs.append(
            f"Here {within:,} of {len(share):,} records ({within / len(share):.0%})"
            + (" of clients without noise" if spoilt else "")
            + f" lie within {EXACT_SHARE:.1%} of the span. The server knows which, and can reconstruct them, feature by"
            + " feature"
            + (", including their noise" if coverage is not None and coverage.mechanism.on == "data" else "")
            + f". For the median record, {np.median(share):.2%} of its distance from the anchors' mean is left open."
        )
    if spread is not None:
        paragraphs.append(spread.sentence)
    if known.aligned is not None and open_ones:
        between = observations.count - seen * observations.records
        aligned = known.aligned
        turned, settled = int(aligned.turned.sum()), int(aligned.settled.sum())
        clients = len(aligned.turned)
        paragraphs.append(
            f"The {between:,} distances between records of the same client add the shape of the open part, up to a"
            f" rotation. From the similarity of records, the server rotated the open parts of {turned} of {clients}"
            f" clients to fit the others'"
            + (
                f": {settled} of them with confidence, because each half of the other clients confirms the rotation"
                + (f", and {turned - settled} by the likeliest rotation" if settled < turned else "")
                if turned
                else ""
            )
            + "."
            + (
                " If a client's open part is rotated wrongly, the distances between its records and those of other"
                " clients are wrong too."
                if settled < clients - 1
                else ""
            )
            + f" With {known.rank + open_ones + 1} anchors that span all dimensions, nothing would stay open: the"
            " geometry would be exact, and the server could reconstruct every record."
        )
        if aligned.recurring:
            paragraphs[-1] += (
                f" Values recur in {aligned.recurring} columns, as counts and codes do, and only if the open part is"
                " rotated as in the data. So assume that the server knows the open part, feature by feature."
            )
        if turned > 1 and settings.visibility == "partial":
            paragraphs[-1] += (
                " The clients see different anchors, so the anchors of one client cover what those of another leave"
                " open. Rotated parts point as they do in the data, and the server's points are closer to the records"
                " than the open part suggests."
            )
        elif turned > 1:
            paragraphs[-1] += " One rotation stays unknown for these clients together, not one for each."
    if settings.regime == "pointwise" and open_ones:
        paragraphs.append(_directions(open_ones, len(share) - within, len(share), known.rank + open_ones + 1))
    if settings.regime == "pointwise" and open_ones and settings.visibility == "full":
        paragraphs[-1] += (
            " From these messages alone, no method can find the open part of the distance between two records. raydr"
            " estimates the part that is expected of records that differ as much in what the server knows. It draws the"
            " map with the smallest possible one. More anchors make the map more faithful."
        )
    if settings.regime == "pointwise" and open_ones and settings.visibility == "partial":
        paragraphs.append(
            "The distances of other records do not determine the open part of a record. The server fills it in with"
            + (
                " a Gaussian, because all records together reveal how the features are correlated."
                if settings.geometry == "euclidean"
                else " zero."
            )
            + " No message shows how far this is from the true record. More anchors make the map more faithful."
        )
    return (Note("What the anchors reveal, and what they leave open", "\n\n".join(paragraphs)),)


def _directions(open_ones: int, off: int, compared: int, enough: int) -> str:
    """Explain why the open part of pointwise records has no direction.

    ``off`` of the ``compared`` records reach into it.
    """
    text = "A record's distances determine the length of its open part, but "
    if open_ones == 1:
        text += "not on which side of the span it lies: its mirror image has the same distances."
    else:
        text += "not its direction: all directions fit the distances exactly."
    if compared:
        text += f" Of {compared:,} records, this leaves {off:,} open, those off the span" + (
            ", with two images each." if open_ones == 1 else "."
        )
    return f"{text} {enough} anchors in general position leave nothing open and hide nothing."
