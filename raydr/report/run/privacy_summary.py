"""Privacy summary of a run, from typed protections, the accountant and the audit.

It does not depend on the free text of messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from raydr.attacks.verdicts import Audit, Verdict
from raydr.plain import short_number
from raydr.privacy.verdict import Exposure, verdict
from raydr.report import wording
from raydr.report.run.audited import enough_public_rows
from raydr.report.run.fidelity_rows import shown_rows
from raydr.report.run.server_knowledge import SOMETHING, inferred_columns_text, most_exact, no_better
from raydr.runfolder.reading import RunFolder

Tone = Literal["good", "bad", "open"]

EXPOSURES = {
    Exposure.RECORDS: "Every record sent data to the server without a privacy guarantee.",
    Exposure.UPLOADS: "Without noise, no single record left its client, but the server could read what each client"
    " computed from its records.",
    Exposure.SUMS: "Without noise, only sums over clients left. The server could not read a single client's part of"
    " them.",
    Exposure.NOTHING: "Apart from data that are declared public, nothing left a client.",
}
_UNDER_NOISE = (
    "Apart from data that are declared public, accounted noise covers everything that left a client."
)
_UNPROVEN = "No attack was tried yet. `raydr audit` shows what a server recovers from this run's messages."


@dataclass(frozen=True)
class SummaryLine:
    """A line of the summary.

    Attributes
    ----------
    title, figure, text : str
        Topic, result, and an explanation.
    tone : {"good", "bad", "open"}
        Whether the records are protected, are not, or it is unknown.
    """

    title: str
    figure: str
    text: str
    tone: Tone


def points(run: RunFolder) -> tuple[SummaryLine, ...]:
    """Return the lines of the summary: what left, its privacy cost, an isometry key, and attacks."""
    found = verdict(run.ledger, run.privacy)
    tones: dict[Exposure, Tone] = {
        Exposure.RECORDS: "bad",
        Exposure.UPLOADS: "open",
        Exposure.SUMS: "open",
        Exposure.NOTHING: "good",
    }
    figure, text = found.exposure.value, EXPOSURES[found.exposure]
    if found.exposure is Exposure.NOTHING and found.noisy:
        figure, text = "under noise", _UNDER_NOISE
    left = SummaryLine("What left", figure, text, tones[found.exposure])
    if found.epsilon is None:
        some = " The cost of the noisy releases is given below." if found.noisy else ""
        cost = SummaryLine(
            "Differential privacy", "ε = ∞", f"No finite epsilon holds for the whole run.{some}", "bad"
        )
    else:
        text = (
            f"For the whole run, at δ = {short_number(found.delta)}."
            if found.noisy
            else "No release contained data about a record."
        )
        cost = SummaryLine("Differential privacy", f"ε = {wording.epsilon(found.epsilon)}", text, "good")
    shown = [left, cost]
    if rows := shown_rows(run):
        text = f"Every site can read {wording.plural(rows, 'row')} of all sites, which the server forwards sealed."
        shown.append(SummaryLine("Shown to other sites", wording.plural(rows, "row"), text, "bad"))
    if found.keyed:
        keyed = "Records were rotated and shifted by a key that the server does not have."
        text = f"{keyed} Someone with similar rows can find the rotation."
        if run.audit is not None and (found_with := enough_public_rows(run.audit)):
            text = f"{keyed} {found_with}"
        shown.append(SummaryLine("Isometry key", "obfuscation", text, "open"))
    return (*shown, recovered(run.audit))


def broken_claim(found: Verdict) -> str:
    """Describe the claim that does not hold, and by how much."""
    bound = found.bound
    assert bound is not None
    shown, claimed = (f"{epsilon:.3g}" for epsilon in (bound.shown, bound.claimed))
    return f"{found.attack}, {found.variant}: epsilon is at least {shown}, but {claimed} is claimed."


def recovered(audit: Audit | None) -> SummaryLine:
    """Return the summary's line on attacks, by the most successful attempt."""
    title = "Attacks"
    if audit is None:
        return SummaryLine(title, "not audited", _UNPROVEN, "open")
    broken = [found for found in audit.verdicts if found.bound is not None and found.bound.is_broken]
    if broken:
        return SummaryLine(title, "claim broken", broken_claim(broken[0]), "bad")
    best = most_exact(audit)
    if best is not None and best.errors is not None:
        errors = best.errors
        text = (
            f"{', '.join(filter(None, (best.attack, best.variant)))}: {round(errors.exact * errors.records):,} of"
            f" {wording.plural(errors.records, 'scored record')} are known to a thousandth of their distance from the"
            " mean of all."
        )
        return SummaryLine(title, f"{wording.percent(errors.exact)} recovered", text, "bad")
    nearest = audit.nearest
    if nearest is not None and nearest.errors is not None and nearest.leakage > SOMETHING:
        errors = nearest.errors
        text = (
            f"{', '.join(filter(None, (nearest.attack, nearest.variant)))}: half of the records are known to within"
            f" {errors.centred.median:.2g} of their distance from the mean (guessing:"
            f" {errors.centred_guess.median:.2g})."
        )
        return SummaryLine(title, f"error {wording.percent(1.0 - nearest.leakage)} of a guess", text, "bad")
    if audit.members is not None:
        text = (
            f"Records of the run are distinguished from others with an AUC of {audit.members.auc:.2f} (guessing: 0.5),"
            f" and {wording.percent(audit.members.tpr)} of them at one false alarm in 1,000."
        )
        return SummaryLine(title, f"members AUC {audit.members.auc:.2f}", text, "bad")
    if audit.shares is not None:
        text = (
            f"Each client's share of a group is inferred with an error of {wording.percent(audit.shares.error)} of its"
            f" records (guessing: {wording.percent(audit.shares.guess)})."
        )
        return SummaryLine(title, "group shares inferred", text, "bad")
    if columns := inferred_columns_text(audit):
        return SummaryLine(title, "columns inferred", f"{columns[0].upper()}{columns[1:]}.", "bad")
    clause = no_better(audit)
    figure = "no better than guessing" if audit.reconstructions else "none applies"
    return SummaryLine(title, figure, f"{clause[0].upper()}{clause[1:]}.", "open")
