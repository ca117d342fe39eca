"""Sentences and table lines on which places stay on other maps, for the page and the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raydr.plain import listed, short_number
from raydr.report import wording
from raydr.runfolder.reading import RunFolder
from raydr.runfolder.stability import Comparison, RepetitionCost, StabilityRecord

NAMED_SITES = 3
"""Sites in the sentences, those without which most places change; the table has all."""
_NAMED_ISLANDS = 5


@dataclass(frozen=True)
class StabilityLine:
    """Another map, the rows that were compared, those that change, those of them that stay with seeds, and islands."""

    map: str
    rows: str
    changed: str
    stable: str
    islands: str


def sentences(run: RunFolder) -> list[str]:
    """Tell how many places change, without which sites, and what that costs; empty if maps were not compared."""
    if run.stability is None:
        return []
    record = run.stability.record
    seeds = [other for other in record.comparisons if other.without is None]
    sites = [other for other in record.comparisons if other.without is not None]
    found = []
    if record.rows < len(run.clients):
        found.append(
            f"Compared are a sample of {record.rows:,} of {len(run.clients):,} rows, each with all other rows."
        )
    if seeds:
        found.append(_with_seeds(record, len(seeds)))
        lost = _islands(record, sorted({island for other in seeds for island in other.dissolved}))
        found += [f"{lost} on at least one of these maps."] if lost else []
    if sites:
        found.append(_without_sites(record, len(sites), bool(seeds)))
        worst = sorted(sites, key=lambda other: -other.changed / max(1, other.rows))[:NAMED_SITES]
        found += [_without(record, other, seeds) for other in worst if other.changed]
    return [*found, *record.kept, cost(record.cost)]


def _with_seeds(record: StabilityRecord, seeds: int) -> str:
    maps = f"{seeds} map{'s' * (seeds != 1)} with {'another seed' if seeds == 1 else 'other seeds'}"
    rule = f"less than half of {'its' if record.with_seed < 2 else 'their'} {record.neighbors} nearest rows"
    if not record.with_seed:
        return f"No place changes with the seed: none keeps {rule} on {maps}, on average."
    verb, keep = ("changes", "keeps") if record.with_seed == 1 else ("change", "keep")
    them = "it" if record.with_seed == 1 else "they"
    return (
        f"{record.with_seed:,} of {record.rows:,} places {verb} with the seed: on {maps}, {them} {keep} {rule}"
        f"{' on average' if seeds > 1 else ''}."
    )


def _without_sites(record: StabilityRecord, sites: int, with_seeds: bool) -> str:
    which = "the site that was left out" if sites == 1 else f"at least one of {sites} sites"
    if not record.without_site:
        return f"No {'other ' if with_seeds and record.with_seed else ''}place changes without {which}."
    more = " more" if with_seeds and record.with_seed else ""
    verb = "changes" if record.without_site == 1 else "change"
    return f"{record.without_site:,}{more} of {record.rows:,} places {verb} without {which}."


def _without(record: StabilityRecord, other: Comparison, seeds: Sequence[Comparison]) -> str:
    """Return a sentence on a left-out site, and on the islands that dissolve without it and on no map with a seed."""
    text = f"Without {wording.brief(str(other.without))}, {other.changed:,} of {other.rows:,} places"
    text += " changes" if other.changed == 1 else " change"
    if seeds:
        text += f", of which {other.stable:,} {'stays' if other.stable == 1 else 'stay'} with other seeds"
    usual = {island for seed in seeds for island in seed.dissolved}
    lost = _islands(record, [island for island in other.dissolved if island not in usual])
    return f"{text}.{f' {lost}.' if lost else ''}"


def _islands(record: StabilityRecord, lost: Sequence[int]) -> str:
    """Name the islands that dissolve, without a full stop; "" for none."""
    if not lost:
        return ""
    named = [f"{island + 1} ({wording.plural(record.islands[island], 'row')})" for island in lost]
    if len(named) == 1:
        return f"Island {named[0]} dissolves"
    if len(named) > _NAMED_ISLANDS:
        return f"Islands {listed(named, _NAMED_ISLANDS)} dissolve"
    return f"Islands {', '.join(named[:-1])} and {named[-1]} dissolve"


def cost(spent: RepetitionCost) -> str:
    """Tell what the other maps would cost in a deployed federation."""
    if spent.redrawn:
        return (
            "The other maps are layouts of the noisy messages that the run already sent. They send nothing, and epsilon"
            f" stays {wording.epsilon(spent.epsilon)}."
        )
    again = "this repetition" if spent.repetitions == 1 else f"these {spent.repetitions} repetitions"
    text = (
        f"In a deployed federation, {again} would send {wording.plural(spent.messages, 'message')}"
        f" ({wording.size(spent.bytes)}) from sites again,"
        f" {spent.per_record:,} of them with data about single records."
    )
    at = f"at delta {short_number(spent.delta)}"
    if spent.epsilon is not None:
        if not spent.epsilon:
            return text
        return (
            f"{text} The run and all repetitions would cost epsilon {wording.epsilon(spent.epsilon)} {at}, and the run"
            f" alone {wording.epsilon(spent.epsilon_run)}."
        )
    if spent.accounted:
        text += (
            f" Their releases under noise and those of the run would cost epsilon {wording.epsilon(spent.accounted)}"
            f" {at}."
        )
    return f"{text} No finite epsilon holds for all messages."


def lines(run: RunFolder) -> list[StabilityLine]:
    """Return one line for each other map; none if maps were not compared."""
    if run.stability is None:
        return []
    record = run.stability.record
    return [
        StabilityLine(
            map=f"seed {other.seed}" if other.without is None else f"without {wording.brief(other.without)}",
            rows=wording.count(other.rows),
            changed=f"{other.changed:,} ({wording.percent(other.changed / max(1, other.rows))})",
            stable=wording.count(other.stable),
            islands=listed([str(island + 1) for island in other.dissolved], _NAMED_ISLANDS) or "none",
        )
        for other in record.comparisons
    ]
