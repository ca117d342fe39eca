"""What the server knows when a run is over: one sentence, from the ledger and the audit, where there is one.

Neither the method's name nor a description that somebody wrote has a part in it: what messages say of a record, how
many records they fix by linear equations, what blurs them, and what attacks on these very messages recovered. Where no
attack was tried the sentence says so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

from raydr.attacks.verdicts import Audit, Verdict
from raydr.plain import plain
from raydr.privacy.ledger import Entry, Fixed, Granularity, Tells
from raydr.privacy.verdict import Left, verdict
from raydr.privacy.verdict import Verdict as Given
from raydr.report import wording
from raydr.report.run.audited import Gallery, galleries
from raydr.runfolder.reading import RunFolder

Tone = Literal["good", "bad", "open"]

NOT_AUDITED = "reckoned from what it was sent, not audited"
MOST_FEATURES = 6
"""Of a record that is told in words."""
WEAK = 10.0
"""Epsilon from which on a bound is called weak: odds may change 22,000-fold."""
SOMETHING = 0.02
"""Leakage from which an attack is said to be better than guessing: below, sampling alone may make it."""


@dataclass(frozen=True)
class Knowledge:
    """What the server knows.

    Attributes
    ----------
    text : str
        One sentence, for whoever decides whether the data may be shared so.
    tone : {"good", "bad", "open"}
        Whether records are guarded, are not, or nobody knows.
    audited : bool
        Whether attacks on this run's own messages stand behind it.
    examples : Gallery or None
        Records beside what was recovered of them, the one known best, the one known worst, and one between; None where
        nothing was recovered.
    names : tuple of str
        Of the features whose values they show.
    """

    text: str
    tone: Tone
    audited: bool
    examples: Gallery | None = None
    names: tuple[str, ...] = ()


def knowledge(run: RunFolder) -> Knowledge:
    """What the server of a run knows, and how that is known."""
    given = verdict(run.ledger, run.privacy)
    held = _held(run, given)
    audit = run.audit
    if audit is None:
        text = f"The server {held.said} ({NOT_AUDITED})."
        return Knowledge(text, held.tone, audited=False)
    text, tone = _audited(run, held)
    return Knowledge(f"The server {text}.", tone, audited=True, examples=_examples(audit), names=audit.shown)


@dataclass(frozen=True)
class _Held:
    """What follows from the ledger alone.

    ``said`` is what the server has, after its name; ``exact`` records are fixed as they are, out of ``records``; ``by``
    says by what.
    """

    said: str
    tone: Tone
    exact: int = 0
    records: int = 0
    by: str = ""


def example(found: Knowledge) -> str:
    """The record known best beside what was recovered of it, in words: of tables, feature by feature."""
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


def _held(run: RunFolder, given: Given) -> _Held:
    up = [entry for entry in run.ledger if entry.direction == "up" and entry.public is None]
    each = [entry for entry in up if entry.granularity == Granularity.PER_RECORD]
    if not up:
        return _Held("was told nothing of any record", "good")
    if not each:
        return _together(run, given, up)
    bare = [entry for entry in each if entry.epsilon is None]
    if not bare:
        return _Held(
            f"has something of each of {_rows(run)}, under noise that bounds{_weakly(run)} what it says of the record:"
            f" {_epsilon(run)}",
            "open" if _weakly(run) else "good",
        )
    told = {entry.tells for entry in bare}
    for tells, say in (
        (Tells.VALUES, _values),
        (Tells.DISTANCES, _distances),
        (Tells.PROJECTIONS, _projections),
    ):
        if tells in told:
            return say(run, [entry for entry in bare if entry.tells is tells])
    if told == {Tells.PLACES}:
        where = f"knows where each of {_rows(run)} lies on the map{_blurred(bare)}"
        others = [entry for entry in up if entry.granularity != Granularity.PER_RECORD]
        return _Held(f"{where}{_beside(run, others)}", "bad")
    return _Held(f"has something of each of {_rows(run)} by itself{_blurred(bare)}", "bad")


def _values(run: RunFolder, sent: list[Entry]) -> _Held:
    """The records themselves."""
    plain, covered, words = _parted(sent)
    if not plain.records:
        return _Held(
            f"has {covered.records:,} of {_rows(run)} under {words}, which {_claim(sent)}", "bad", 0, 0
        )
    by = "each was sent as it is"
    return _exactly(run, plain, by, "can write down")


def _distances(run: RunFolder, sent: list[Entry]) -> _Held:
    """How far each record is from points that the server knows."""
    plain, covered, words = _parted(sent)
    fixed = plain if plain.records else covered
    points = f"{fixed.points:,} points that it knows{_among(sent)}"
    keyed = any(entry.keyed for entry in sent)
    if not fixed.records:
        return _Held(f"knows how far each of {_rows(run)} is from points that it knows", "bad")
    if plain.records:
        by = f"it has the distance of each to {points}"
        some = ""
        if covered.records:
            some = f"; of {covered.records:,} others it has distances under {words}, which {_claim(sent)}"
        if keyed:
            return _Held(
                f"holds enough to write down {fixed.exact:,} of {_rows(run)} but for a turn and a shift that clients"
                f" keep from it, which rows like these give away: {by}, as the clients' key turned both{some}",
                "bad",
                0,
                fixed.records,
                by,
            )
        held = _exactly(run, fixed, by, "holds enough to write down")
        return _Held(held.said + some, held.tone, held.exact, held.records, held.by)
    if any(entry.protection is not None and entry.protection.on == "data" for entry in sent):
        can = f"write down {fixed.exact:,} of {_rows(run)}" if fixed.exact else f"{_others(fixed)},"
        return _Held(
            f"holds enough to {can} as their clients blurred them, under {words}, which {_claim(sent)}: it has the"
            f" distance of each to {points}",
            "bad",
        )
    return _Held(
        f"has the distance of each of {_rows(run)} to {points} under {words}, which {_claim(sent)}"
        f"{_among(sent)}",
        "bad",
    )


def _projections(run: RunFolder, sent: list[Entry]) -> _Held:
    """Where each record lies along some axes."""
    plain, covered, words = _parted(sent)
    fixed = plain if plain.records else covered
    if plain.records and plain.exact and not any(entry.keyed for entry in sent):
        return _exactly(
            run, plain, f"it has {plain.points} coordinates of each", "holds enough to write down"
        )
    blurred = f" under {words}, which {_claim(sent)}" if not plain.records else ""
    turned = ", as the clients' key turned them" if any(entry.keyed for entry in sent) else ""
    return _Held(
        f"has {fixed.dimensions} of {wording.plural(fixed.features, 'coordinate')} of each of {_rows(run)}, along axes"
        f" that it knows{turned}{blurred}; the others it can only guess",
        "bad",
    )


def _exactly(run: RunFolder, fixed: Fixed, by: str, can: str) -> _Held:
    """What is fixed of records that nothing blurs."""
    every = fixed.dimensions >= fixed.features
    others = ""
    if fixed.exact < fixed.records and not every:
        others = _others(fixed)
    if not fixed.exact:
        said = f"holds enough to {others}: {by}"
    else:
        beside = f", and to {others}" if others else ""
        said = f"{can} {fixed.exact:,} of {_rows(run)}, feature by feature{beside}: {by}"
    return _Held(said, "bad", fixed.exact, fixed.records, by)


def _others(fixed: Fixed) -> str:
    """What the equations say of records that they do not fix."""
    which = "each of the others" if fixed.exact else f"each of {wording.plural(fixed.records, 'record')}"
    if fixed.dimensions == fixed.features - 1:
        return f"narrow {which} to two candidates, mirror images of each other"
    return f"place {which} in {fixed.dimensions:,} of {fixed.features:,} dimensions"


def _together(run: RunFolder, given: Given, up: list[Entry]) -> _Held:
    """Where nothing of a single record left its client."""
    if given.left is Left.NOTHING:
        each = f"sums over {_clients(run)}"
        if not all(entry.secure for entry in up):
            each = f"what each of {_clients(run)} summed up over its records"
        unit = "client" if run.privacy.unit == "client" else "record"
        return _Held(
            f"has {each}, under noise that bounds{_weakly(run)} what can be learnt of any one {unit}: {_epsilon(run)}",
            "open" if _weakly(run) else "good",
        )
    secret = all(entry.secure for entry in up if entry.epsilon is None)
    if secret:
        return _Held(
            f"has sums over {_clients(run)}, of no record and no client by itself; what they say of a record nothing"
            " bounds",
            "open",
        )
    return _Held(
        f"has what each of {_clients(run)} computed of all its records, of no record by itself{_single(run)}; what that"
        " says of a record nothing bounds",
        "open",
    )


def _beside(run: RunFolder, others: list[Entry]) -> str:
    """What it has beside the places, of clients and of all of them."""
    bare = [entry for entry in others if entry.epsilon is None]
    if not others:
        return ""
    if not bare:
        return f", and what {_clients(run)} computed of their records under noise ({_accounted(run)})"
    if all(entry.secure for entry in bare):
        return f", and sums over {_clients(run)} of what they computed of their records"
    return f", and what each of {_clients(run)} computed of all its records{_single(run)}"


def _parted(sent: list[Entry]) -> tuple[Fixed, Fixed, str]:
    """What plain messages fix, what blurred ones fix, and by what those are blurred."""
    plain = covered = Fixed(records=0, exact=0, dimensions=0, features=0, points=0)
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
    """What else such messages tell of how records lie."""
    return (
        ", and those between the records of each client"
        if any(entry.fixed and entry.fixed.among for entry in sent)
        else ""
    )


def _blurred(sent: list[Entry]) -> str:
    """By what all of these are blurred; nothing where one is not."""
    if any(entry.protection is None for entry in sent):
        return ""
    return f" under {_parted(sent)[2]}, which {_claim(sent)}"


def _claim(sent: list[Entry]) -> str:
    covered = [entry for entry in sent if entry.protection is not None]
    if any(entry.epsilon is None for entry in covered):
        return "promises nothing"
    return f"costs {wording.promise(covered[0])}"


def _single(run: RunFolder) -> str:
    alone = sum(rows == 1 for rows in Counter(run.clients).values())
    if not alone:
        return ""
    return f" ({alone:,} of them hold{'s' * (alone == 1)} one record, so that speaks of it alone)"


def _rows(run: RunFolder) -> str:
    return wording.plural(len(run.clients), "record")


def _clients(run: RunFolder) -> str:
    return wording.plural(run.client_count, "client")


def _epsilon(run: RunFolder) -> str:
    at = f"{run.privacy.delta:g}".replace("-", "−")
    return f"ε = {wording.epsilon(run.privacy.epsilon)} at δ = {at}"


def _weakly(run: RunFolder) -> str:
    """A word where an epsilon is so large that it promises little."""
    return " weakly" if run.privacy.epsilon is not None and run.privacy.epsilon > WEAK else ""


def _accounted(run: RunFolder) -> str:
    at = f"{run.privacy.delta:g}".replace("-", "−")
    return f"ε = {wording.epsilon(run.privacy.epsilon_accounted)} at δ = {at}"


# --- the audit's part ------------------------------------------------------------------------------------------------


def _audited(run: RunFolder, held: _Held) -> tuple[str, Tone]:
    """What attacks recovered, before what the ledger says where they recovered more."""
    audit = run.audit
    assert audit is not None
    written, broken = _written_down(run, held, audit), next(filter(_broken, audit.verdicts), None)
    if written:
        return written, "bad"
    if broken is not None and broken.bound is not None:
        return (
            f"{held.said}; the audit shows that this is more than is claimed: ε is at least"
            f" {broken.bound.shown:.3g}, of {broken.bound.claimed:.3g} ({broken.attack})"
        ), "bad"
    said, nearest = f"{held.said}; in the audit", audit.nearest
    told = "; ".join(filter(None, (_members(audit), _shares(audit), columns_told(audit))))
    if nearest is not None and nearest.leakage > SOMETHING:
        more = f"; {told}" if told else ""
        return f"{said} {nearest.attack}, {_knowing(nearest)}, came nearest{_half(nearest)}{more}", "bad"
    if told:
        return f"{said} {told}; {no_better(audit)}", "bad"
    unused = ", since none used that" if held.exact and audit.reconstructions else ""
    return f"{said} {no_better(audit)}{unused}", held.tone


def no_better(audit: Audit) -> str:
    """Return a clause for audits in which no attempt recovered records better than guessing."""
    if not audit.reconstructions:
        return "no reconstruction attack that was tried applies to these messages"
    return "none of the attacks tried recovered records better than guessing"


def _members(audit: Audit) -> str:
    """How well members were told from others; empty where they were not."""
    found = audit.members
    if found is None:
        return ""
    return (
        f"records of the run were told from others with an AUC of {found.auc:.2f}, where guessing gives 0.5, and"
        f" {wording.percent(found.tpr)} of them at one false alarm in 1,000"
    )


def _shares(audit: Audit) -> str:
    """How well groups' shares were read off; empty where guessing is as good."""
    found = audit.shares
    if found is None:
        return ""
    return (
        f"each client's share of a group of records was read off to within {wording.percent(found.error)} of its"
        f" records, where a guess is off by {wording.percent(found.guess)}"
    )


def columns_told(audit: Audit) -> str:
    """How many columns are told by somebody who knows the others of a record; empty where guessing is as good."""
    found = audit.attributes
    if found is None:
        return ""
    first, every = found.told[0], wording.plural(len(found.columns), "column")
    return (
        f"{len(found.told):,} of {every} of a record were told better than from its other columns,"
        f" {plain(first.column)} to within {wording.percent(first.error)} of its standard deviation, where those give"
        f" {wording.percent(first.guess)}"
    )


def _written_down(run: RunFolder, held: _Held, audit: Audit) -> str:
    """Where attacks recovered records whole: how many, of how many; empty where they did not."""
    best = most_exact(audit)
    if best is None or best.errors is None:
        return ""
    scored, exact = best.errors.records, round(best.errors.exact * best.errors.records)
    if exact == scored and held.exact == held.records == len(run.clients):
        tried = "all of them" if scored == held.records else f"all {scored:,} that the audit scored"
        return (
            f"can write down {held.exact:,} of {_rows(run)}, feature by feature: {held.by}, and {best.attack}"
            f" recovered {tried}"
        )
    records = wording.plural(scored, "record")
    if held.exact * scored > exact * len(run.clients):  # the equations say more than was tried
        recovered = f"{exact:,} of the {records} that were scored"
        return f"{held.said}; in the audit {best.attack} recovered {recovered}, {_knowing(best)}"
    return (
        f"can write down {exact:,} of the {records} that the audit scored, feature by feature: {best.attack}"
        f" recovered them, {_knowing(best)}{_half(best)}"
    )


def _broken(found: Verdict) -> bool:
    return found.bound is not None and found.bound.is_broken


def most_exact(audit: Audit) -> Verdict | None:
    """The attempt that recovered most records exactly; None where none did."""
    found = [one for one in audit.verdicts if one.errors is not None and one.errors.exact > 0.0]
    return max(found, key=lambda one: one.errors.exact if one.errors is not None else 0.0, default=None)


def _knowing(found: Verdict) -> str:
    """Its side knowledge, as a clause within a sentence."""
    return f"knowing {found.knows.replace('; ', ', ') or 'nothing else'}"


def _half(found: Verdict) -> str:
    """How near an attempt came to half of the records; nothing where those are known exactly."""
    errors = found.errors
    if errors is None or errors.exact >= 0.5:
        return ""
    return (
        f", with half of the records known to within {wording.percent(errors.centred.median)} of their distance from"
        f" the mean of all, where a guess is off by {wording.percent(errors.centred_guess.median)}"
    )


def _examples(audit: Audit) -> Gallery | None:
    """Some records of the attempt that is told of; None where it recovered nothing worth showing."""
    best = most_exact(audit) or audit.nearest
    if best is None or (best.leakage <= SOMETHING and not (best.errors and best.errors.exact)):
        return None
    found = galleries(audit, [best])
    if not found:
        return None
    shown = found[0].shown
    some = {0, len(shown) // 2, len(shown) - 1}
    return replace(found[0], shown=tuple(shown[place] for place in sorted(some)))
