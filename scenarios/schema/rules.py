"""Rules between the sections of a scenario: each returns a problem, or None."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import TypeAlias

from raydr.data.loading import TABLES, ending
from raydr.errors import ScenarioError
from raydr.methods import METHODS
from raydr.privacy.accounting import require_planned
from raydr.scenarios.schema.deployment import problems_of_deployment
from raydr.scenarios.schema.sections import Sections
from raydr.statistics.dissimilarity import AS_READ, BY_COLUMN

Problem: TypeAlias = str
"""A sentence on what is wrong and what to do, with keys of the scenario, without the full stop."""
Rule: TypeAlias = Callable[[Sections], Problem | None]

RULES: list[Rule] = []
"""All rules in the order in which they are checked; the first problem is reported."""


def rule(check: Rule) -> Rule:
    """Register a rule, after those above it."""
    RULES.append(check)
    return check


@rule
def one_origin(scenario: Sections) -> Problem | None:
    """Require exactly one source of rows."""
    data = scenario.data
    given = any(origin is not None for origin in (data.source, data.path, data.graph))
    if scenario.clients.deployed and (given or data.rows is not None):
        return (
            "clients.deployed names sites that read their own files: leave data.source, data.path, data.graph and"
            " data.rows out"
        )
    if scenario.clients.sites and (given or data.rows is not None):
        return "clients.sites names the files to read: leave data.source, data.path, data.graph and data.rows out"
    if not (scenario.clients.sites or scenario.clients.deployed) and not given:
        return "data: give exactly one of source (a built-in name), path (a file of yours) and graph (an edge list)"
    return None


@rule
def rows_that_can_be_held_out(scenario: Sections) -> Problem | None:
    """Refuse to hold out rows from files of sites, and for methods that place no new rows."""
    if scenario.data.holdout is None:
        return None
    if scenario.clients.deployed:
        return None  # refused below
    if scenario.clients.sites:
        return (
            "data.holdout cannot hold out rows of the files of clients.sites: leave it out, keep the new rows in a"
            " separate file, and place them with raydr transform"
        )
    if scenario.method.offers("transform_alone"):
        if scenario.data.target_weight or scenario.privacy.isometry_key:
            return (
                f"data.holdout: each client of method.kind {scenario.method.kind!r} places new rows by the features as"
                " they are: leave data.target_weight and privacy.isometry_key out"
            )
        return None
    reason = scenario.method.why_no_new_rows()
    return None if reason is None else f"data.holdout: {reason}"


@rule
def periods_that_are_no_sites(scenario: Sections) -> Problem | None:
    """Refuse one column for periods and for sites."""
    column = scenario.data.time
    if column is None or column != scenario.clients.partition.client_column:
        return None
    return (
        f"data.time and clients.partition.column both name {column!r}, so each period would be a site: name another"
        " column in one of them"
    )


@rule
def maps_that_start_from_a_prior(scenario: Sections) -> Problem | None:
    """Refuse an earlier run as the start of a method without one, and maps during training, which have none."""
    if scenario.prior is None:
        return None
    reason = scenario.method.why_no_prior()
    if reason is not None:
        return f"prior: {reason}"
    if scenario.privacy.isometry_key and not scenario.method.draws_from_prior:
        return (
            "prior: privacy.isometry_key turns the rows of each run in another way, so the earlier encoder does not fit"
            " them: leave one of them out"
        )
    if scenario.evaluate_every:
        return "evaluate_every draws maps without the earlier run, which prior names: leave one of them out"
    return None


@rule
def sites_that_can_be_harmonized(scenario: Sections) -> Problem | None:
    """Refuse to harmonize clients that are not real sites."""
    if scenario.data.harmonize is None or scenario.clients.natural:
        return None
    return (
        "data.harmonize adjusts sites to each other, and clients.partition makes clients that are not sites: set"
        " clients.partition to {kind: by-column, column: ...}, or give clients.sites"
    )


@rule
def counts_and_categories_without_noise(scenario: Sections) -> Problem | None:
    """Refuse metrics of counts or categories of records with permanent noise."""
    noise, metric = scenario.privacy.noise, scenario.data.metric
    if metric not in AS_READ or noise is None or noise.on != "data" or not noise.for_good:
        return None
    return (
        f"data.metric {metric} compares {'counts' if metric == 'hellinger' else 'categories'}, and permanent noise on"
        " records changes them: choose another metric, or leave privacy.noise.stage out"
    )


@rule
def labels_that_judge_no_rows_placed_by_them(scenario: Sections) -> Problem | None:
    """Refuse to place held-out rows with the label that they are scored by."""
    wanted = scenario.data.harmonize
    if wanted is None or scenario.data.holdout is None or wanted.kind == "center":
        return None
    if not scenario.data.label_kept:
        return None
    return (
        "data.harmonize.keep names the label, so held-out rows would be placed with the label that they are scored by:"
        " leave it out of keep, set kind to center, or leave data.holdout out"
    )


@rule
def labels_that_steer(scenario: Sections) -> Problem | None:
    """Refuse labels in distances where no noise covers them, or the method cannot use them."""
    if not scenario.data.target_weight:
        return None
    noise = scenario.privacy.noise
    if scenario.privacy.strict:
        return (
            "data.target_weight needs the shares of the classes, and privacy.strict requires noise on every message:"
            " leave one of them out"
        )
    if noise is not None and noise.on == "data" and noise.for_good:
        return (
            "data.target_weight appends the label to records, and permanent noise on data does not cover it: leave one"
            " of them out, or leave privacy.noise.stage out"
        )
    reason = scenario.method.why_no_label()
    return None if reason is None else f"data.target_weight: {reason}, or leave data.target_weight out"


@rule
def processors_that_compute_alike(scenario: Sections) -> Problem | None:
    """Refuse a GPU where the result must be the same on every machine."""
    runtime = scenario.runtime
    if not runtime.portable or runtime.device == "cpu":
        return None
    return f"runtime.portable cannot be kept with runtime.device {runtime.device}: set device to cpu, or leave one out"


@rule
def sums_that_can_be_kept_secret(scenario: Sections) -> Problem | None:
    """Refuse secure aggregation if the server compares the summands."""
    compared = scenario.robust_rule
    if not scenario.privacy.secure_aggregation or compared is None:
        return None
    return (
        f"method.aggregation {compared.kind!r} compares the uploads of clients,"
        " and privacy.secure_aggregation hides them: choose one of the two"
    )


@rule
def noise_that_the_method_offers(scenario: Sections) -> Problem | None:
    """Refuse noise on something that the method never uploads."""
    noise, method = scenario.privacy.noise, scenario.method
    if noise is None:
        return None
    if noise.on not in method.noise_on:
        places = " or ".join(sorted(method.noise_on)) or "nowhere"
        return (
            f"privacy.noise.on is {noise.on!r}, but clients of method.kind {method.kind!r} can add noise"
            f" {'on ' if method.noise_on else ''}{places}: leave privacy.noise out, or change privacy.noise.on"
        )
    if not method.releases(noise):
        return (
            f"privacy.noise.on is {noise.on!r}, but with these settings of method.kind {method.kind!r} clients never"
            " upload that: check privacy.noise.stage, method.landmarks_from, method.share and method.rounds"
        )
    return None


@rule
def noise_that_can_be_paid(scenario: Sections) -> Problem | None:
    """Refuse noise whose cost the method cannot account for."""
    noise = scenario.privacy.noise
    reason = None if noise is None else scenario.method.why_no_budget(noise)
    return None if noise is None or reason is None else f"privacy.noise.on is {noise.on!r}, and {reason}"


@rule
def noise_of_all_clients(scenario: Sections) -> Problem | None:
    """Refuse noise of some clients if the method needs it from all clients or from none."""
    noise = scenario.privacy.noise
    if noise is None or noise.clients == 1 or scenario.method.some_noisy:
        return None
    return (
        f"privacy.noise.clients is {noise.clients:g}, but with method.kind {scenario.method.kind!r} all clients add"
        " noise or none: leave it out"
    )


@rule
def noise_on_sums_that_are_taken(scenario: Sections) -> Problem | None:
    """Refuse noise that covers only a sum if the server looks at each upload."""
    noise = scenario.privacy.noise
    if noise is None or not noise.shared or scenario.robust_rule is None:
        return None
    return (
        "privacy.noise.per 'sum' covers only the sum, and a robust method.aggregation looks at each upload:"
        " choose per: client, or aggregation 'mean'"
    )


@rule
def nothing_posted_in_the_clear(scenario: Sections) -> Problem | None:
    """Refuse a strict run of a method that sends messages without noise."""
    noise = scenario.privacy.noise
    if scenario.privacy.strict is not True or noise is None or noise.for_good:
        return None
    posted = scenario.method.posts()
    if posted is None:
        return None
    return (
        f"privacy.strict requires noise with a guarantee for every message, and method.kind {scenario.method.kind!r}"
        f" sends {posted} without noise: put noise on data with stage: all, or set strict to sums, which does not"
        " cover that and says so"
    )


@rule
def noise_where_nothing_else_may_leave(scenario: Sections) -> Problem | None:
    """Refuse a strict run without noise."""
    if not scenario.privacy.strict or scenario.noisy:
        return None
    return "privacy.strict requires noise, and there is none: give privacy.noise"


@rule
def rows_that_sites_may_see(scenario: Sections) -> Problem | None:
    """Refuse query rows if noise protects rows, or if the server or the sites cannot measure them."""
    if not scenario.fidelity_rows:
        return None
    method = scenario.method
    if scenario.noisy:
        return (
            "fidelity_rows shows rows of each site to the other sites without noise, and the run protects rows by"
            " noise: leave fidelity_rows out"
        )
    if method.keeps_places:
        return (
            "fidelity_rows needs the server to know all places, and clients keep theirs: leave fidelity_rows out, or"
            " set method.publish to server"
        )
    if not method.is_euclidean:
        return "fidelity_rows measures Euclidean distances, in the data and on the map: leave it out"
    return None


@rule
def columns_that_a_survey_prepares(scenario: Sections) -> Problem | None:
    """Refuse exact statistics of columns if a noisy survey prepares them."""
    if not scenario.method.surveys_columns:
        return None
    data, method = scenario.data, f"method.kind {scenario.method.kind!r} without bounds and clip"
    exact = {
        "data.scale": data.scale != "none",
        "data.metric": data.metric != "euclidean",
        "data.target_weight": data.target_weight > 0,
        "data.missing": data.missing != "error",
        "data.categories": data.categories != "error",
        "data.harmonize": data.harmonize is not None,
        "data.graph": data.graph is not None,
    }
    given = [key for key, is_given in exact.items() if is_given]
    if not given:
        return None
    return (
        f"{method} prepares columns by a noisy survey, which scales numbers, fills in missing values and finds words:"
        f" leave {' and '.join(given)} out, or set method.bounds or method.clip, which gives no epsilon for the whole"
        " run if data are scaled or filled in"
    )


@rule
def columns_that_no_row_decides(scenario: Sections) -> Problem | None:
    """Refuse a survey of columns in a strict run: no noise covers it."""
    if not scenario.privacy.strict or scenario.method.surveys_columns:
        return None
    data = scenario.data
    paths = [data.path] if data.path else [site.path for site in scenario.clients.sites]
    wanted = []
    if data.categories != "error":
        wanted.append("data.categories to error")
    if data.features is None and any(ending(PurePath(path)) in TABLES for path in paths):
        wanted.append("data.features to the columns of numbers to map")
    if any(row.finds_words for row in data.codebook):
        wanted.append("words of each column of words in data.codebook")
    if not wanted:
        return None
    return (
        "privacy.strict requires noise on every message, but a single row can decide which columns of a table are"
        f" mapped, and how: set {' and '.join(wanted)}"
    )


@rule
def distances_that_no_row_refuses(scenario: Sections) -> Problem | None:
    """Refuse metrics of counts or categories in a strict run: one row that does not suit them ends the run."""
    metric = scenario.data.metric
    if not scenario.privacy.strict or metric not in AS_READ:
        return None
    return (
        "privacy.strict requires noise on every message, but a single row that is not suited to data.metric"
        f" {metric} ends the run: choose another metric"
    )


@rule
def rows_that_can_be_keyed(scenario: Sections) -> Problem | None:
    """Refuse an isometry key that another message would reveal, or that the method does not support."""
    reason = _why_rows_cannot_be_keyed(scenario) if scenario.privacy.isometry_key else None
    return None if reason is None else f"privacy.isometry_key: {reason}"


def _why_rows_cannot_be_keyed(scenario: Sections) -> Problem | None:
    data, noise = scenario.data, scenario.privacy.noise
    if data.scale in ("minmax", "maxabs"):
        return f"data.scale {data.scale} would reveal the extremes of features: set data.scale to standard or none"
    if data.metric in BY_COLUMN:
        return f"data.metric {data.metric} would reveal the extremes of features: choose another metric"
    if data.target_weight:
        return "data.target_weight would reveal the spread that the key hides: leave data.target_weight out"
    if data.harmonize is not None:
        return "data.harmonize would reveal the means that the key hides: leave data.harmonize out"
    if data.filling is not None:
        return (
            f"filling in missing values would reveal the {data.filling} of features that the key hides: set"
            " data.missing to drop"
        )
    if (
        noise is not None
        and noise.on == "data"
        and (noise.for_good or getattr(noise, "clip", None) is not None)
    ):
        return (
            "permanent noise on records is calibrated and clipped on values that the key hides: leave out"
            " privacy.noise.stage and privacy.noise.clip"
        )
    if scenario.evaluate_every:
        return "evaluate_every draws maps from rows without the key: leave out evaluate_every"
    return scenario.method.why_no_key()


@rule
def within_budget(scenario: Sections) -> Problem | None:
    """Refuse a run that is known to exceed its budget."""
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
    """Refuse maps of rounds if the method cannot draw them, or they do not compare with the last one."""
    if not scenario.evaluate_every:
        return None
    if not scenario.method.offers("redraw"):
        able = ", ".join(name for name, method in METHODS.items() if method.settings.offers("redraw"))
        return (
            f"evaluate_every draws maps after some rounds, and method.kind {scenario.method.kind!r} has no map before"
            f" its end: leave it out, or choose one of {able}"
        )
    noise = scenario.privacy.noise
    if noise is not None and (noise.for_good or noise.on == "distances"):
        return (
            f"evaluate_every draws maps from rows without the noise that privacy.noise.on {noise.on!r} adds to the"
            " final map, so they cannot be compared: leave out one of the two"
        )
    return None


@rule
def pooled_map_that_can_be_drawn(scenario: Sections) -> Problem | None:
    """Refuse to compare with the pooled-data map if the method has none."""
    method = scenario.method
    if not scenario.compare or method.drawn_by is not None or method.offers("central"):
        return None
    return (
        f"compare needs a pooled-data map, and method.kind {method.kind!r} has none (it has no embedder and does not"
        " override central): leave compare out"
    )


@rule
def table_where_needed(scenario: Sections) -> Problem | None:
    """Refuse files of sites if the method needs one table."""
    sites = scenario.clients.sites or scenario.clients.deployed
    return scenario.method.needs_table() if sites else None


@rule
def deployable(scenario: Sections) -> Problem | None:
    """Refuse what only a simulation has, which sees all rows, in a deployed run."""
    if not scenario.clients.deployed:
        return None
    return next((f"clients.deployed: {problem}" for problem in problems_of_deployment(scenario)), None)


@rule
def survivable(scenario: Sections) -> Problem | None:
    """Refuse faults that would end the run."""
    faults, runtime = scenario.faults, scenario.runtime
    if runtime.quorum < 1:
        return None
    if faults.dropout or faults.corrupt:
        return (
            "faults.dropout and faults.corrupt lose clients, and runtime.quorum 1 needs all of them:"
            " set runtime.quorum below 1"
        )
    if not runtime.retries and faults.crashes:
        return "faults.crashes needs runtime.retries of at least 1, or runtime.quorum below 1"
    return None


@rule
def rounds_to_strike_in(scenario: Sections) -> Problem | None:
    """Refuse faults and participation that would have no effect."""
    rounds = scenario.method.rounds_asked
    struck = [f"faults.{name}" for name in ("dropout", "stragglers", "corrupt", "crashes", "adversary")]
    given = [key for key in struck if getattr(scenario.faults, key.removeprefix("faults."))]
    if scenario.clients.participation < 1:
        given.append("clients.participation")
    if given and not rounds:
        return (
            f"{' and '.join(given)} would have no effect: it applies to rounds, and method.kind"
            f" {scenario.method.kind!r} has none; leave {'them' if len(given) > 1 else 'it'} out"
        )
    for crash in scenario.faults.crashes:
        if crash.round > rounds:
            return (
                f"faults.crashes has a crash in round {crash.round}, and the method has {rounds} rounds: choose one"
                " of them"
            )
    return None


@rule
def clients_that_are_there(scenario: Sections) -> Problem | None:
    """Refuse settings that do not fit the number of clients, if it is known; otherwise the run checks them."""
    count = scenario.clients.known_count
    if count:
        try:
            scenario.require_clients(count)
        except ScenarioError as error:
            return str(error).rstrip(".")
    return None
