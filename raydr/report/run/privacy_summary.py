"""The first screen's answer to what a run gave away: typed protections, the accountant, and what attacks found.

No text of a message has a part in it: neither in what is said, nor in how it is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from raydr.attacks.verdicts import Audit, Verdict
from raydr.privacy.verdict import Left, verdict
from raydr.report import wording
from raydr.report.run.audited import enough_public_rows
from raydr.report.run.server_knowledge import SOMETHING, columns_told, most_exact, no_better
from raydr.runfolder.reading import RunFolder

Tone = Literal["good", "bad", "open"]

LEFT = {
    Left.RECORDS: "Every record sent data to the server without a privacy guarantee.",
    Left.UPLOADS: "Without noise, no record left its client by itself. The server could read what each client computed"
    " from its records.",
    Left.SUMS: "Without noise, only sums over clients left. The server could not read any client's own part of them.",
    Left.NOTHING: "Apart from what is declared public, nothing left a client.",
}
_UNDER_NOISE = (
    "Apart from what is declared public, all that left a client was covered by noise that is accounted for."
)
_UNPROVEN = "Not tried yet: `raydr audit` shows what a server recovers from this run's own messages."


@dataclass(frozen=True)
class Point:
    """A line of the answer.

    Attributes
    ----------
    title, figure, text : str
        What it is about, the figure of it, and a sentence.
    tone : {"good", "bad", "open"}
        Whether that protects, does not, or is not known.
    """

    title: str
    figure: str
    text: str
    tone: Tone


def points(run: RunFolder) -> tuple[Point, ...]:
    """What left, what it cost, what was hidden, and what attacks recovered."""
    found = verdict(run.ledger, run.privacy)
    tones: dict[Left, Tone] = {
        Left.RECORDS: "bad",
        Left.UPLOADS: "open",
        Left.SUMS: "open",
        Left.NOTHING: "good",
    }
    figure, text = found.left.value, LEFT[found.left]
    if found.left is Left.NOTHING and found.noisy:
        figure, text = "under noise", _UNDER_NOISE
    left = Point("What left", figure, text, tones[found.left])
    at = f"δ = {found.delta:g}".replace("-", "−")
    if found.epsilon is None:
        some = " What noise covers is accounted for below." if found.noisy else ""
        cost = Point("Differential privacy", "ε = ∞", f"No epsilon holds for the whole run.{some}", "bad")
    else:
        text = f"The whole run, at {at}." if found.noisy else "No release told anything of a record."
        cost = Point("Differential privacy", f"ε = {wording.epsilon(found.epsilon)}", text, "good")
    shown = [left, cost]
    if found.keyed:
        said = "Records were turned by a key that the server lacks. Whoever has rows like them can find the turn."
        if run.audit is not None and (found_with := enough_public_rows(run.audit)):
            said = f"Records were turned by a key that the server lacks. {found_with}"
        shown.append(Point("Isometry key", "obfuscation", said, "open"))
    return (*shown, recovered(run.audit))


def broken_claim(found: Verdict) -> str:
    """Which claim does not hold, and by how much."""
    bound = found.bound
    assert bound is not None
    shown, claimed = (f"{epsilon:.3g}" for epsilon in (bound.shown, bound.claimed))
    return f"{found.attack}, {found.variant}: epsilon is at least {shown}, and {claimed} is claimed."


def recovered(audit: Audit | None) -> Point:
    """What the attack recovered that came nearest."""
    title = "Attacks"
    if audit is None:
        return Point(title, "not audited", _UNPROVEN, "open")
    broken = [found for found in audit.verdicts if found.bound is not None and found.bound.is_broken]
    if broken:
        return Point(title, "claim broken", broken_claim(broken[0]), "bad")
    best = most_exact(audit)
    if best is not None and best.errors is not None:
        errors = best.errors
        text = (
            f"{', '.join(filter(None, (best.attack, best.variant)))}: {round(errors.exact * errors.records):,} of"
            f" {wording.plural(errors.records, 'record')} that were scored are known to a thousandth of their distance"
            " from the mean of all."
        )
        return Point(title, f"{wording.percent(errors.exact)} recovered", text, "bad")
    nearest = audit.nearest
    if nearest is not None and nearest.errors is not None and nearest.leakage > SOMETHING:
        errors = nearest.errors
        text = (
            f"{', '.join(filter(None, (nearest.attack, nearest.variant)))}: half of the records are known to within"
            f" {errors.centred.median:.2g} of their distance from the mean, where guessing gives"
            f" {errors.centred_guess.median:.2g}."
        )
        return Point(title, f"error {wording.percent(1.0 - nearest.leakage)} of a guess", text, "bad")
    if audit.members is not None:
        text = (
            f"Records of the run are told from others with an AUC of {audit.members.auc:.2f}, where guessing gives 0.5,"
            f" and {wording.percent(audit.members.tpr)} of them at one false alarm in 1,000."
        )
        return Point(title, f"members AUC {audit.members.auc:.2f}", text, "bad")
    if audit.shares is not None:
        text = (
            f"Each client's share of a group of records is read off to within {wording.percent(audit.shares.error)} of"
            f" its records, where a guess is off by {wording.percent(audit.shares.guess)}."
        )
        return Point(title, "groups' shares read off", text, "bad")
    if columns := columns_told(audit):
        return Point(title, "columns told", f"{columns[0].upper()}{columns[1:]}.", "bad")
    said = no_better(audit)
    figure = "no better than guessing" if audit.reconstructions else "none applies"
    return Point(title, figure, f"{said[0].upper()}{said[1:]}.", "open")
