"""Rules between the sections of a scenario: each returns what is wrong, or None."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import TypeAlias

from raydr.data.loading import TABLES, ending
from raydr.errors import ScenarioError
from raydr.methods import METHODS
from raydr.privacy.accounting import require_planned
from raydr.scenarios.schema.sections import Sections

Problem: TypeAlias = str
"""What is wrong, in the words of a scenario, without the full stop."""
Rule: TypeAlias = Callable[[Sections], Problem | None]

RULES: list[Rule] = []
"""In the order in which they are asked; the first problem is the one that is told."""


def rule(check: Rule) -> Rule:
    """Ask a rule of every scenario, after those above it."""
    RULES.append(check)
    return check


@rule
def one_origin(scenario: Sections) -> Problem | None:
    """Ask for rows from one place."""
    data = scenario.data
    given = any(origin is not None for origin in (data.source, data.path, data.graph))
    if scenario.clients.sites and (given or data.rows is not None):
        return "clients.sites have files of their own, so leave data.source, data.path, data.graph and data.rows out"
    if not scenario.clients.sites and not given:
        return "data: give exactly one of source (a built-in name), path (a file of yours) and graph (an edge list)"
    return None


@rule
def rows_that_can_be_held_out(scenario: Sections) -> Problem | None:
    """Refuse to hold out rows that nobody could, or that no map of the method takes."""
    if scenario.data.holdout is None:
        return None
    if scenario.clients.sites:
        return (
            "data.holdout: clients.sites have files of their own, whose rows nobody else can hold out: leave it"
            " out, keep the new rows in a file apart, and place them by raydr transform"
        )
    reason = scenario.method.unplaceable()
    return None if reason is None else f"data.holdout: {reason}"


@rule
def sites_that_can_be_harmonized(scenario: Sections) -> Problem | None:
    """Refuse to adjust clients that are no sites."""
    if scenario.data.harmonize is None or scenario.clients.natural:
        return None
    return (
        "data.harmonize takes off rows what is their site's, and clients.partition deals rows to clients that"
        " are no sites: name a column in {kind: by-column, column: ...}, or give clients.sites"
    )


@rule
def labels_that_judge_no_rows_placed_by_them(scenario: Sections) -> Problem | None:
    """Refuse to place rows by the label that judges them."""
    wanted = scenario.data.harmonize
    if wanted is None or scenario.data.holdout is None or wanted.kind == "center":
        return None
    if not scenario.data.label_kept:
        return None
    return (
        "data.harmonize.keep names the label, and rows that are held out would be placed by the very label that"
        " they are judged by: leave it out of keep, set kind to center, or leave data.holdout out"
    )


@rule
def sums_that_can_be_kept_secret(scenario: Sections) -> Problem | None:
    """Refuse secret sums of a method whose server compares the summands."""
    compared = scenario.robust_rule
    if not scenario.privacy.secure_aggregation or compared is None:
        return None
    return (
        f"method.aggregation {compared.kind!r} compares each client's upload with the others',"
        " which is what privacy.secure_aggregation would hide: choose one of the two"
    )


@rule
def noise_that_the_method_offers(scenario: Sections) -> Problem | None:
    """Refuse noise on what the method never uploads."""
    noise, method = scenario.privacy.noise, scenario.method
    if noise is None:
        return None
    if noise.on not in method.noise_on:
        places = " or ".join(sorted(method.noise_on)) or "nowhere"
        return (
            f"privacy.noise.on is {noise.on!r}, but clients of method.kind {method.kind!r} can add noise"
            f" {'on ' if method.noise_on else ''}{places}: leave privacy.noise out, or choose another"
        )
    if not method.releases(noise):
        return (
            f"privacy.noise.on is {noise.on!r}, and with these settings of method.kind {method.kind!r} clients"
            " upload nothing of that sort: look at privacy.noise.stage, method.landmarks_from, method.share and"
            " method.rounds"
        )
    return None


@rule
def noise_that_can_be_paid(scenario: Sections) -> Problem | None:
    """Refuse noise whose cost the method cannot account for."""
    noise = scenario.privacy.noise
    reason = None if noise is None else scenario.method.unpayable(noise)
    return None if noise is None or reason is None else f"privacy.noise.on is {noise.on!r}, and {reason}"


@rule
def noise_of_all_clients(scenario: Sections) -> Problem | None:
    """Refuse noise of some clients where the method takes it from all or from none."""
    noise = scenario.privacy.noise
    if noise is None or noise.clients == 1 or scenario.method.some_noisy:
        return None
    return (
        f"privacy.noise.clients is {noise.clients:g}, but with method.kind {scenario.method.kind!r} all clients add"
        " noise or none: leave it out"
    )


@rule
def noise_on_sums_that_are_taken(scenario: Sections) -> Problem | None:
    """Refuse noise that covers a sum alone where each upload is looked at."""
    noise = scenario.privacy.noise
    if noise is None or not noise.shared or scenario.robust_rule is None:
        return None
    return (
        "privacy.noise.per 'sum' covers a sum alone, and a robust method.aggregation looks at each upload:"
        " choose per: client, or aggregation 'mean'"
    )


@rule
def nothing_posted_in_the_clear(scenario: Sections) -> Problem | None:
    """Refuse a strict run of a method that posts what its noise does not cover."""
    noise = scenario.privacy.noise
    if scenario.privacy.strict is not True or noise is None or noise.for_good:
        return None
    posted = scenario.method.posts()
    if posted is None:
        return None
    return (
        f"privacy.strict lets nothing leave without a claim, and method.kind {scenario.method.kind!r} posts"
        f" {posted} in the clear: put noise on data with stage: all, or set strict to sums, which leaves that"
        " out and says so"
    )


@rule
def noise_where_nothing_else_may_leave(scenario: Sections) -> Problem | None:
    """Refuse a strict run without noise."""
    if not scenario.privacy.strict or scenario.noisy:
        return None
    return "privacy.strict lets nothing leave without noise, and there is none: give privacy.noise"


@rule
def columns_that_no_row_decides(scenario: Sections) -> Problem | None:
    """Refuse a survey of columns where nothing may leave without noise: no noise covers it."""
    if not scenario.privacy.strict:
        return None
    data = scenario.data
    paths = [data.path] if data.path else [site.path for site in scenario.clients.sites]
    wanted = []
    if data.categories != "error":
        wanted.append("data.categories to error")
    if data.features is None and any(ending(PurePath(path)) in TABLES for path in paths):
        wanted.append("data.features to the columns of numbers to map")
    if not wanted:
        return None
    return (
        "privacy.strict lets nothing leave that no noise covers, and a single row can decide which columns of a"
        f" table are mapped, and as what: set {' and '.join(wanted)}"
    )


@rule
def rows_that_can_be_keyed(scenario: Sections) -> Problem | None:
    """Refuse an isometry key that something else would give away, or that the method cannot bear."""
    reason = _why_rows_cannot_be_keyed(scenario) if scenario.privacy.isometry_key else None
    return None if reason is None else f"privacy.isometry_key: {reason}"


def _why_rows_cannot_be_keyed(scenario: Sections) -> Problem | None:
    data, noise = scenario.data, scenario.privacy.noise
    if data.scale == "minmax":
        return "extremes of features are no sums, and would be told: set data.scale to standard, unit or none"
    if data.harmonize is not None:
        return "what sites are adjusted by would tell the means that the key hides: leave data.harmonize out"
    if data.filling is not None:
        return (
            f"what fills missing values in would tell the {data.filling} of features that the key hides: set"
            " data.missing to drop"
        )
    if (
        noise is not None
        and noise.on == "data"
        and (noise.for_good or getattr(noise, "clip", None) is not None)
    ):
        return (
            "noise that records carry for good is measured, and its clip seen, where the key hides them: leave"
            " out privacy.noise.stage and privacy.noise.clip"
        )
    if scenario.evaluate_every:
        return "maps along the way are drawn from rows without the key: leave out evaluate_every"
    return scenario.method.unkeyable()


@rule
def within_budget(scenario: Sections) -> Problem | None:
    """Refuse what is known to cost too much before anything runs."""
    noise, budget = scenario.privacy.noise, scenario.privacy.budget
    epsilon = getattr(noise, "epsilon", None)
    if epsilon is None or (getattr(noise, "delta", None) or budget.delta) != budget.delta:
        return None
    try:
        require_planned(epsilon, budget)
    except ScenarioError as error:
        return str(error).rstrip(".")
    return None


@rule
def maps_along_the_way(scenario: Sections) -> Problem | None:
    """Refuse maps of rounds where the method has none to draw, or none that compares with its last."""
    if not scenario.evaluate_every:
        return None
    if not scenario.method.offers("redraw"):
        able = ", ".join(name for name, method in METHODS.items() if method.settings.offers("redraw"))
        return (
            f"evaluate_every draws maps of what a method has learnt after some rounds, and method.kind"
            f" {scenario.method.kind!r} has nothing to draw before its end; leave it out, or choose one of {able}"
        )
    noise = scenario.privacy.noise
    if noise is not None and (noise.for_good or noise.on == "distances"):
        return (
            f"evaluate_every draws maps from the rows themselves, without the noise that privacy.noise.on"
            f" {noise.on!r} adds to the run's own map, so the two could not be compared; leave out one of the two"
        )
    return None


@rule
def pooled_map_that_can_be_drawn(scenario: Sections) -> Problem | None:
    """Refuse to compare with the pooled-data map of a method that has none."""
    method = scenario.method
    if not scenario.compare or method.drawn_by is not None or method.offers("central"):
        return None
    return (
        f"compare asks for the pooled-data map, and method.kind {method.kind!r} has none: it has no embedder, and does"
        " not override central; leave compare out"
    )


@rule
def table_where_needed(scenario: Sections) -> Problem | None:
    """Refuse files of sites where the method needs them in one table."""
    return scenario.method.needs_table() if scenario.clients.sites else None


@rule
def survivable(scenario: Sections) -> Problem | None:
    """Refuse faults that the run could not outlast."""
    faults, runtime = scenario.faults, scenario.runtime
    if runtime.quorum < 1:
        return None
    if faults.dropout or faults.corrupt:
        return (
            "faults.dropout and faults.corrupt lose clients, and runtime.quorum 1 can do without none:"
            " set runtime.quorum below 1"
        )
    if not runtime.retries and faults.crashes:
        return "faults.crashes need runtime.retries of at least 1, or runtime.quorum below 1"
    return None


@rule
def rounds_to_strike_in(scenario: Sections) -> Problem | None:
    """Refuse what would do nothing in silence."""
    rounds = scenario.method.rounds_asked
    struck = [f"faults.{name}" for name in ("dropout", "stragglers", "corrupt", "crashes", "adversary")]
    given = [key for key in struck if getattr(scenario.faults, key.removeprefix("faults."))]
    if scenario.clients.participation < 1:
        given.append("clients.participation")
    if given and not rounds:
        return (
            f"{' and '.join(given)} would do nothing: only rounds know such things, and method.kind"
            f" {scenario.method.kind!r} asks clients nothing in rounds; leave {'them' if len(given) > 1 else 'it'} out"
        )
    for crash in scenario.faults.crashes:
        if crash.round > rounds:
            return (
                f"faults.crashes has a crash in round {crash.round}, and the method has {rounds} rounds: choose a"
                " round of them"
            )
    return None


@rule
def clients_that_are_there(scenario: Sections) -> Problem | None:
    """Refuse what does not fit the number of clients, where that is known beforehand; a run refuses the rest."""
    count = scenario.clients.count or len(scenario.clients.sites)
    if count:
        try:
            scenario.require_clients(count)
        except ScenarioError as error:
            return str(error).rstrip(".")
    return None
