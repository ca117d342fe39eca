"""Figures of few records, which a run folder does not show if the sites' policies have a least count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from raydr.privacy.policy import SitePolicy
from raydr.runfolder.records import Island, Measures, PeriodMeasures, SiteMeasures


def without_few(measures: Measures, names: Sequence[str], policies: Sequence[SitePolicy]) -> Measures:
    """Return measures without those of fewer records than the policies of the sites allow.

    A site's figures follow its own policy. Figures of periods and islands have records of several sites, so they follow
    the strictest policy.

    Parameters
    ----------
    measures : Measures
        The measures of all sites.
    names : sequence of str
        Names of the sites.
    policies : sequence of SitePolicy
        Policy of each site; empty if no site has one.
    """
    least = {name: policy.least_shown for name, policy in zip(names, policies, strict=False)}
    strictest = max(least.values(), default=1)
    if strictest < 2:
        return measures
    islands = measures.islands
    if islands is not None:
        islands = replace(islands, found=[_island(each, strictest) for each in islands.found])
    return replace(
        measures,
        sites=[_site(each, least[each.site]) for each in measures.sites if each.measured >= least[each.site]],
        islands=islands,
        periods=[_period(each, strictest) for each in measures.periods],
    )


def filled_of_many(
    filled: Mapping[str, Mapping[str, int]], names: Sequence[str], policies: Sequence[SitePolicy]
) -> dict[str, dict[str, int]]:
    """Return the numbers of filled-in values by site and column, without those below the site's least count."""
    least = {name: policy.least_shown for name, policy in zip(names, policies, strict=False)}
    kept = {
        name: {column: count for column, count in columns.items() if count >= least.get(name, 1)}
        for name, columns in filled.items()
    }
    return {name: columns for name, columns in kept.items() if columns}


def _site(site: SiteMeasures, least: int) -> SiteMeasures:
    few = 0 < site.held_out < least or 0 < site.unlike < least
    return replace(site, held_out=0, unlike=0) if few else site


def _period(period: PeriodMeasures, least: int) -> PeriodMeasures:
    if 0 < period.compared < least or 0 < period.unlike < least:
        period = replace(period, compared=0, unlike=0)
    return replace(period, federated={}, central={}) if period.measured < least else period


def _island(island: Island, least: int) -> Island:
    return replace(island, differing=0, largest=()) if island.rows < least else island
