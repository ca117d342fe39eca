"""Summary of what the server knows after a run, from the ledger and, where there is one, the audit.

The summary depends on what messages tell about a record, on their noise, and on how many records their linear equations
determine. It also depends on what attacks on these messages recovered. It does not depend on the method's name or on
free text. A run without an audit is marked as not audited.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

from raydr.attacks.verdicts import Audit, Verdict
from raydr.plain import plain, short_number
from raydr.privacy.ledger import DeterminedRecords, Entry, Granularity, RecordContent
from raydr.privacy.verdict import Exposure, PrivacyVerdict, verdict
from raydr.report import wording
from raydr.report.run.audited import Gallery, galleries
from raydr.runfolder.reading import RunFolder

Tone = Literal["good", "bad", "open"]

NOT_AUDITED = "derived from the messages, not audited"
MOST_FEATURES = 6
"""Features of a record that an example lists."""
WEAK = 10.0
"""Largest epsilon whose bound is not called weak: at 10, odds may change 22,000-fold."""
SOMETHING = 0.02
"""Largest leakage that counts as no better than guessing: sampling alone can cause it."""


@dataclass(frozen=True)
class Knowledge:
    """The server's knowledge after a run.

    Attributes
    ----------
    text : str
        Summary for the person who decides whether the data may be shared this way.
    tone : {"good", "bad", "open"}
        Whether records are protected, are not, or it is unknown.
    audited : bool
        Whether the summary includes attacks on this run's own messages.
    examples : Gallery or None
        The best, a middle and the worst recovered record, next to the true ones; None if nothing was recovered.
    names : tuple of str
        Names of the features in ``examples``.
    """

    text: str
    tone: Tone
    audited: bool
    examples: Gallery | None = None
    names: tuple[str, ...] = ()


def knowledge(run: RunFolder) -> Knowledge:
    """Return what the server of a run knows, from its ledger and its audit."""
    given = verdict(run.ledger, run.privacy)
    held = _held(run, given)
    audit = run.audit
    if audit is None:
        text = f"The server {held.clause} ({NOT_AUDITED})."
        return Knowledge(text, held.tone, audited=False)
    text, tone = _audited(run, held)
    return Knowledge(f"The server {text}.", tone, audited=True, examples=_examples(audit), names=audit.shown)


@dataclass(frozen=True)
class _Held:
    """The conclusions from the ledger alone.

    ``clause`` continues "The server ...". Of ``records`` records, ``exact`` are determined exactly, because of ``by``.
    """

    clause: str
    tone: Tone
    exact: int = 0
    records: int = 0
    by: str = ""


def example(found: Knowledge) -> str:
    """Describe the best recovered record and its estimate; for tables, feature by feature."""
    if found.examples is None or not found.examples.shown:
        return ""
    best, attack = found.examples.shown[0], found.examples.attack
    if isinstance(best.true, str) or isinstance(best.recovered, str):
        return f"row {best.row}, which {attack} recovered with an error of {best.error}"
    pairs = list(zip(found.names, best.true, best.recovered, strict=False))[:MOST_FEATURES]
    values = ", ".join(f"{plain(name)} {true} (recovered {recovered})" for name, true, recovered in pairs)
    more = len(best.true) - len(pairs)
    return f"row {best.row}, by {attack}: {values}{f' and {more:,} more' if more > 0 else ''}"


# --- the ledger's part -----------------------------------------------------------------------------------------------


def _held(run: RunFolder, given: PrivacyVerdict) -> _Held:
    up = [entry for entry in run.ledger if entry.reaches_server and entry.public is None]
    each = [entry for entry in up if entry.granularity == Granularity.PER_RECORD]
    if not up:
        return _Held("received nothing about any record", "good")
    if not each:
        return _together(run, given, up)
    bare = [entry for entry in each if entry.epsilon is None]
    if not bare:
        return _Held(
            f"has data about each of {_rows(run)}, with noise that bounds{_weakly(run)} what they reveal about the"
            f" record: {_epsilon(run)}",
            "open" if _weakly(run) else "good",
        )
    contents = {entry.tells for entry in bare}
    for tells, describe in (
        (RecordContent.VALUES, _values),
        (RecordContent.DISTANCES, _distances),
        (RecordContent.PROJECTIONS, _projections),
    ):
        if tells in contents:
            return describe(run, [entry for entry in bare if entry.tells is tells])
    if contents == {RecordContent.PLACES}:
        where = f"knows where each of {_rows(run)} lies on the map{_blurred(bare)}"
        others = [entry for entry in up if entry.granularity != Granularity.PER_RECORD]
        return _Held(f"{where}{_besides_places(run, others)}", "bad")
    return _Held(f"has separate data about each of {_rows(run)}{_blurred(bare)}", "bad")


def _values(run: RunFolder, sent: list[Entry]) -> _Held:
    """Describe messages that hold the records themselves."""
    plain, covered, words = _parted(sent)
    if not plain.records:
        return _Held(
            f"has {covered.records:,} of {_rows(run)} with {words}, which {_claim(sent)}", "bad", 0, 0
        )
    by = "each was sent unchanged"
    return _exactly(run, plain, by, "can reconstruct")


def _distances(run: RunFolder, sent: list[Entry]) -> _Held:
    """Describe messages that hold distances to points that the server knows."""
    plain, covered, words = _parted(sent)
    fixed = plain if plain.records else covered
    points = f"{fixed.points:,} points that it knows{_among(sent)}"
    keyed = any(entry.keyed for entry in sent)
    if not fixed.records:
        return _Held(f"has the distance of each of {_rows(run)} to points that it knows", "bad")
    if plain.records:
        by = f"it has the distance of each to {points}"
        some = ""
        if covered.records:
            some = f"; for {covered.records:,} others it has distances with {words}, which {_claim(sent)}"
        if keyed:
            return _Held(
                f"has enough data to reconstruct {fixed.exact:,} of {_rows(run)} up to the clients' secret rotation and"
                f" shift, which similar rows can reveal: {by}, both transformed by the clients' key{some}",
                "bad",
                0,
                fixed.records,
                by,
            )
        held = _exactly(run, fixed, by, "has enough data to reconstruct")
        return _Held(held.clause + some, held.tone, held.exact, held.records, held.by)
    if any(entry.protection is not None and entry.protection.on == "data" for entry in sent):
        can = f"reconstruct {fixed.exact:,} of {_rows(run)}" if fixed.exact else f"{_others(fixed)},"
        return _Held(
            f"has enough data to {can} as their clients blurred them (with {words}, which {_claim(sent)}): it has the"
            f" distance of each to {points}",
            "bad",
        )
    return _Held(
        f"has the distance of each of {_rows(run)} to {points}, with {words}, which {_claim(sent)}", "bad"
    )


def _projections(run: RunFolder, sent: list[Entry]) -> _Held:
    """Describe messages that hold coordinates along axes that the server knows."""
    plain, covered, words = _parted(sent)
    fixed = plain if plain.records else covered
    if plain.records and plain.exact and not any(entry.keyed for entry in sent):
        return _exactly(
            run, plain, f"it has {plain.points} coordinates of each", "has enough data to reconstruct"
        )
    blurred = f", with {words}, which {_claim(sent)}" if not plain.records else ""
    turned = ", transformed by the clients' key" if any(entry.keyed for entry in sent) else ""
    return _Held(
        f"has {fixed.dimensions} of {wording.plural(fixed.features, 'coordinate')} of each of {_rows(run)}, along axes"
        f" that it knows{turned}{blurred}; it can only guess the others",
        "bad",
    )


def _exactly(run: RunFolder, fixed: DeterminedRecords, by: str, can: str) -> _Held:
    """Describe what the equations determine of records without noise."""
    every = fixed.dimensions >= fixed.features
    others = ""
    if fixed.exact < fixed.records and not every:
        others = _others(fixed)
    if not fixed.exact:
        clause = f"has enough data to {others}: {by}"
    else:
        and_others = f", and to {others}" if others else ""
        clause = f"{can} {fixed.exact:,} of {_rows(run)}, feature by feature{and_others}: {by}"
    return _Held(clause, "bad", fixed.exact, fixed.records, by)


def _others(fixed: DeterminedRecords) -> str:
    """Describe what the equations tell about records that they do not determine."""
    which = "each of the others" if fixed.exact else f"each of {wording.plural(fixed.records, 'record')}"
    if fixed.dimensions == fixed.features - 1:
        return f"narrow {which} to two candidates, mirror images of each other"
    return f"place {which} in {fixed.dimensions:,} of {fixed.features:,} dimensions"


def _together(run: RunFolder, given: PrivacyVerdict, up: list[Entry]) -> _Held:
    """Describe a run in which no client sent data about a single record."""
    if given.exposure is Exposure.NOTHING:
        each = f"sums over {_clients(run)}"
        if not all(entry.secure for entry in up):
            each = f"sums that {_each_client(run)} computed over its records"
        unit = "client" if run.privacy.unit == "client" else "record"
        return _Held(
            f"has {each}, with noise that bounds{_weakly(run)} what can be learnt about any one {unit}:"
            f" {_epsilon(run)}",
            "open" if _weakly(run) else "good",
        )
    secret = all(entry.secure for entry in up if entry.epsilon is None)
    if secret:
        return _Held(
            f"has sums over {_clients(run)}, but nothing about a single record or a single client; no bound holds for"
            " what they reveal about a record",
            "open",
        )
    return _Held(
        f"has what {_each_client(run)} computed from all its records, but nothing about a single"
        f" record{_single(run)}; no bound holds for what that reveals about a record",
        "open",
    )


def _besides_places(run: RunFolder, others: list[Entry]) -> str:
    """Describe what the server has in addition to the positions on the map."""
    bare = [entry for entry in others if entry.epsilon is None]
    if not others:
        return ""
    if not bare:
        return f", and what {_clients(run)} computed from their records, with noise ({_accounted(run)})"
    if all(entry.secure for entry in bare):
        return f", and sums over {_clients(run)} of what they computed from their records"
    return f", and what {_each_client(run)} computed from all its records{_single(run)}"


def _parted(sent: list[Entry]) -> tuple[DeterminedRecords, DeterminedRecords, str]:
    """Return what messages without noise determine, what noisy ones determine, and a description of the noise."""
    plain = covered = DeterminedRecords(records=0, exact=0, dimensions=0, features=0, points=0)
    words: dict[str, None] = {}
    for entry in sent:
        if entry.protection is not None:
            words[wording.protection(entry)] = None
        if entry.fixed is None:
            continue
        if entry.protection is None:
            plain += entry.fixed
        else:
            covered += entry.fixed
    return plain, covered, " and ".join(words)


def _among(sent: list[Entry]) -> str:
    """Return a clause for messages that also hold distances between records, else an empty text."""
    return (
        ", and the distances between the records of each client"
        if any(entry.fixed and entry.fixed.among for entry in sent)
        else ""
    )


def _blurred(sent: list[Entry]) -> str:
    """Return a clause on the noise of all these messages, empty if one has none."""
    if any(entry.protection is None for entry in sent):
        return ""
    return f" with {_parted(sent)[2]}, which {_claim(sent)}"


def _claim(sent: list[Entry]) -> str:
    covered = [entry for entry in sent if entry.protection is not None]
    if any(entry.epsilon is None for entry in covered):
        return "gives no privacy guarantee"
    return f"costs {wording.promise(covered[0])}"


def _single(run: RunFolder) -> str:
    alone = sum(rows == 1 for rows in Counter(run.clients).values())
    if not alone:
        return ""
    if alone == 1:
        return " (1 of them holds one record, so its result is about that record alone)"
    return f" ({alone:,} of them hold one record each, so their results are about that record alone)"


def _rows(run: RunFolder) -> str:
    return wording.plural(len(run.clients), "record")


def _each_client(run: RunFolder) -> str:
    """Return ``each of 3 clients``; for one client, ``the client``."""
    return f"each of {_clients(run)}" if run.client_count > 1 else "the client"


def _clients(run: RunFolder) -> str:
    return wording.plural(run.client_count, "client")


def _epsilon(run: RunFolder) -> str:
    return f"ε = {wording.epsilon(run.privacy.epsilon)} at δ = {short_number(run.privacy.delta)}"


def _weakly(run: RunFolder) -> str:
    """Return " only weakly" for an epsilon above :data:`WEAK`, else an empty text."""
    return " only weakly" if run.privacy.epsilon is not None and run.privacy.epsilon > WEAK else ""


def _accounted(run: RunFolder) -> str:
    return f"ε = {wording.epsilon(run.privacy.epsilon_accounted)} at δ = {short_number(run.privacy.delta)}"


# --- the audit's part ------------------------------------------------------------------------------------------------


def _audited(run: RunFolder, held: _Held) -> tuple[str, Tone]:
    """Describe what attacks recovered, then what the ledger says; the larger of the two comes first."""
    audit = run.audit
    assert audit is not None
    written, broken = _written_down(run, held, audit), next(filter(_broken, audit.verdicts), None)
    if written:
        return written, "bad"
    if broken is not None and broken.bound is not None:
        return (
            f"{held.clause}. The audit breaks the privacy claim: ε is at least {broken.bound.shown:.3g}, but"
            f" {broken.bound.claimed:.3g} is claimed ({broken.attack})"
        ), "bad"
    start, nearest = f"{held.clause}. In the audit,", audit.nearest
    inferred = "; ".join(filter(None, (_members(audit), _shares(audit), inferred_columns_text(audit))))
    if nearest is not None and nearest.leakage > SOMETHING:
        more = f"; {inferred}" if inferred else ""
        return f"{start} {nearest.attack}, {_knowing(nearest)}, came closest{_half(nearest)}{more}", "bad"
    if inferred:
        return f"{start} {inferred}; {no_better(audit)}", "bad"
    unused = ", because none used these data" if held.exact and audit.reconstructions else ""
    return f"{start} {no_better(audit)}{unused}", held.tone


def no_better(audit: Audit) -> str:
    """Return a clause for audits in which no attempt recovered records better than guessing."""
    if not audit.reconstructions:
        return "no reconstruction attack that was tried applies to these messages"
    return "none of the attacks tried recovered records better than guessing"


def _members(audit: Audit) -> str:
    """Describe how well membership inference worked; empty if it did not."""
    found = audit.members
    if found is None:
        return ""
    return (
        f"records of the run were distinguished from others with an AUC of {found.auc:.2f} (guessing: 0.5), and"
        f" {wording.percent(found.tpr)} of them at one false alarm in 1,000"
    )


def _shares(audit: Audit) -> str:
    """Describe how well the shares of groups were inferred; empty if guessing is as good."""
    found = audit.shares
    if found is None:
        return ""
    return (
        f"each client's share of a group was inferred with an error of {wording.percent(found.error)} of its records"
        f" (guessing: {wording.percent(found.guess)})"
    )


def inferred_columns_text(audit: Audit) -> str:
    """Describe how well columns were inferred from a record's other columns; empty if guessing is as good."""
    found = audit.attributes
    if found is None:
        return ""
    inferred, every = found.inferred_columns, wording.plural(len(found.columns), "column")
    first = inferred[0]
    return (
        f"{len(inferred):,} of {every} of a record were inferred better than from its other columns alone:"
        f" {plain(first.column)} to within {wording.percent(first.error)} of its standard deviation (other columns"
        f" alone: {wording.percent(first.guess)})"
    )


def _written_down(run: RunFolder, held: _Held, audit: Audit) -> str:
    """Describe how many records attacks recovered exactly; empty if none."""
    best = most_exact(audit)
    if best is None or best.errors is None:
        return ""
    scored, exact = best.errors.records, round(best.errors.exact * best.errors.records)
    if exact == scored and held.exact == held.records == len(run.clients):
        tried = "all of them" if scored == held.records else f"all {scored:,} that the audit scored"
        return (
            f"can reconstruct {held.exact:,} of {_rows(run)}, feature by feature: {held.by}, and {best.attack}"
            f" recovered {tried}"
        )
    records = wording.plural(scored, "record")
    if held.exact * scored > exact * len(run.clients):  # the equations determine more than the audit tried
        recovered = f"{exact:,} of the {records} that were scored"
        return f"{held.clause}. In the audit, {best.attack} recovered {recovered}, {_knowing(best)}"
    return (
        f"can reconstruct {exact:,} of the {records} that the audit scored, feature by feature: {best.attack}"
        f" recovered them, {_knowing(best)}{_half(best)}"
    )


def _broken(found: Verdict) -> bool:
    return found.bound is not None and found.bound.is_broken


def most_exact(audit: Audit) -> Verdict | None:
    """Return the attempt that recovered most records exactly, or None."""
    found = [one for one in audit.verdicts if one.errors is not None and one.errors.exact > 0.0]
    return max(found, key=lambda one: one.errors.exact if one.errors is not None else 0.0, default=None)


def _knowing(found: Verdict) -> str:
    """Return the attacker's side knowledge as a clause."""
    return f"knowing {found.knows.replace('; ', ', ') or 'nothing else'}"


def _half(found: Verdict) -> str:
    """Return the median error of an attempt as a clause; empty if half of the records are known exactly."""
    errors = found.errors
    if errors is None or errors.exact >= 0.5:
        return ""
    return (
        f", with half of the records known to within {wording.percent(errors.centred.median)} of their distance from"
        f" the mean of all (guessing: {wording.percent(errors.centred_guess.median)})"
    )


def _examples(audit: Audit) -> Gallery | None:
    """Return some records of the attempt that the summary names; None if it recovered nothing worth showing."""
    best = most_exact(audit) or audit.nearest
    if best is None or (best.leakage <= SOMETHING and not (best.errors and best.errors.exact)):
        return None
    found = galleries(audit, [best])
    if not found:
        return None
    shown = found[0].shown
    some = {0, len(shown) // 2, len(shown) - 1}
    return replace(found[0], shown=tuple(shown[place] for place in sorted(some)))
