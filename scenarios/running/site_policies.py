"""The policies of a run's sites: who applies which, and what they mean for the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from raydr.arrays import FloatArray, Int64Array
from raydr.data import Table
from raydr.data.site import refusal_of_columns, refusal_of_sites
from raydr.errors import DataError, RaydrError, ScenarioError
from raydr.methods.requests import site_policy
from raydr.privacy.microdata import FEW, merged_labels, shared_values
from raydr.privacy.policy import Policy, SitePolicy
from raydr.scenarios.running.client_data import ClientData
from raydr.scenarios.schema.scenario import Scenario


def policies_of(client_data: ClientData) -> tuple[SitePolicy, ...]:
    """Return the policy of each site, for its host; none if no site has one.

    A site whose name may not be told has a number in errors too.
    """
    if not any(client_data.policies):
        return ()
    return tuple(
        site_policy(policies, name)
        for policies, name in zip(client_data.policies, client_data.names, strict=True)
    )


def with_policies(scenario: Scenario, client_data: ClientData) -> ClientData:
    """Return the data as the sites' policies allow: method and columns checked, names hidden, times coarsened.

    Raises
    ------
    ScenarioError, DataError
        If a policy does not allow the method, a column, or a column's words.
    """
    shown = without_hidden_names(client_data)
    for _, error in refusals_of_data(scenario, shown):
        raise error
    return with_shared_periods(with_numbered_rows(scenario, shown))


def refusals_of_data(scenario: Scenario, client_data: ClientData) -> Iterator[tuple[str, RaydrError]]:
    """Yield what the sites' policies do not allow before any message: the site, and the error."""
    sites = policies_of(client_data)
    columns = [
        *client_data.layout.columns,
        *filter(None, (scenario.data.label, scenario.data.time, scenario.data.id)),
    ]
    yield from refusals_of_method(scenario, sites)
    for site in sites:
        refused = [refusal_of_columns(site, columns)]
        for column, words in client_data.words.items():
            refusal = site.first(Policy.refusal_of_words, column, len(words))
            if refusal is not None:
                sentence = site.sentence(refusal, "this run")
                refused.append(DataError(f"{sentence}. Name it in data.exclude."))
        yield from ((site.site, error) for error in refused if error is not None)
    least = max((site.least_sites for site in sites), default=1)
    if least > 1 and client_data.gaps:
        sizes = np.bincount(client_data.client_of_row, minlength=len(client_data.names)).tolist()
        lacking = [client_data.layout.by_column(gaps) for gaps in client_data.gaps]
        for column in client_data.layout.columns:
            there = [own.get(column, 0) < rows for own, rows in zip(lacking, sizes, strict=True)]
            error = refusal_of_sites(column, sum(there), least, sum(rows > 0 for rows in sizes))
            if error is not None:
                yield client_data.names[there.index(True) if True in there else 0], error


def refusals_of_method(
    scenario: Scenario, sites: Sequence[SitePolicy]
) -> Iterator[tuple[str, ScenarioError]]:
    """Yield the sites whose policies do not allow the method, each with the error."""
    for site in sites:
        refusal = site.first(Policy.refusal_of_method, scenario.method.kind)
        if refusal is not None:
            sentence = site.sentence(refusal, "this run")
            yield site.site, ScenarioError(f"{sentence}. Set method.kind to an allowed one.")


def shown_names(names: Sequence[str], policies: Sequence[Sequence[Policy]]) -> tuple[str, ...]:
    """Return the names of sites, with numbers in place of those that their policies hide."""
    return tuple(
        name if SitePolicy(tuple(own)).tells_name else f"site {place}"
        for place, (name, own) in enumerate(zip(names, policies, strict=True), start=1)
    )


def without_hidden_names(client_data: ClientData) -> ClientData:
    """Return the data with numbers in place of the names of sites whose policies hide them."""
    if not any(client_data.policies):
        return client_data
    names = shown_names(client_data.names, client_data.policies)
    hidden = {old: new for old, new in zip(client_data.names, names, strict=True) if old != new}
    if not hidden:
        return client_data

    def shown(name: str) -> str:
        return hidden.get(name, name)

    held_out = client_data.held_out
    if held_out is not None:
        held_out = replace(held_out, client_names=tuple(map(shown, held_out.client_names)))
    sources = tuple(
        replace(
            source,
            name=source.name if source.client is None else hidden.get(source.client, source.name),
            client=None if source.client is None else shown(source.client),
            dropped_by_client={shown(name): rows for name, rows in source.dropped_by_client.items()},
        )
        for source in client_data.sources
    )
    return replace(
        client_data,
        names=names,
        held_out=held_out,
        sources=sources,
        notices=tuple(
            notice for notice in client_data.notices if not any(repr(name) in notice for name in hidden)
        ),
    )


def shared_at_sites(client_data: ClientData, values: FloatArray) -> FloatArray:
    """Return values of mapped columns (rows, columns) for display, as the sites' policies allow.

    At a site with a least count, each row then has the values of several; see :mod:`raydr.privacy.microdata`.
    """
    shown = np.array(values)
    for site, policy in enumerate(policies_of(client_data)):
        if policy.least_count > 1:
            own = client_data.client_of_row == site
            shown[own] = shared_values(shown[own], policy.least_count)
    return shown


def with_merged_labels(client_data: ClientData) -> ClientData:
    """Return the data with one class for the labels that too few records of a site have, for display.

    Held-out records are counted by site too, or together if they have none.
    """
    sites = policies_of(client_data)
    if client_data.labels is None or all(site.least_count < 2 for site in sites):
        return client_data
    labels, names = _merged(client_data.labels, client_data.label_names, client_data.client_of_row, sites)
    held_out = client_data.held_out
    if held_out is not None and held_out.labels is not None:
        owners, own_sites = _owners_of(held_out, client_data, sites)
        new, new_names = _merged(held_out.labels, held_out.label_names, owners, own_sites)
        held_out = replace(held_out, labels=new, label_names=new_names)
    return replace(client_data, labels=labels, label_names=names, held_out=held_out)


def with_shared_periods(client_data: ClientData) -> ClientData:
    """Return the data with one period for the rows whose period too few records of their site have.

    Periods without rows are left out. If one period is left, the data have none.
    """
    sites, times = policies_of(client_data), client_data.times
    if times is None or all(site.least_count < 2 for site in sites):
        return client_data
    merged, names = _merged(times.period_of_row, times.period_names, client_data.client_of_row, sites)
    there, places = np.unique(merged, return_inverse=True)
    if len(there) > 1:
        left = tuple(names[number] for number in there)
        return replace(
            client_data, times=replace(times, period_of_row=places.astype(np.int64), period_names=left)
        )
    notice = (
        f"The map shows no periods: with the least_count of the sites' policies, one period of {times.column!r} would"
        " be left."
    )
    return replace(client_data, times=None, notices=(*client_data.notices, notice))


def with_numbered_rows(scenario: Scenario, client_data: ClientData) -> ClientData:
    """Return the data with numbers from 0 at each site in place of the values of ``data.id``, if a policy counts."""
    sites = policies_of(client_data)
    if scenario.data.id is None or all(site.least_count < 2 for site in sites):
        return client_data
    held_out = client_data.held_out
    if held_out is not None:
        held_out = replace(held_out, ids=np.arange(len(held_out.ids)))
    return replace(
        client_data, ids=_places_at_sites(client_data.client_of_row, len(sites)), held_out=held_out
    )


def _places_at_sites(client_of_row: Int64Array, sites: int) -> Int64Array:
    """Return the place of each row among those of its site, from 0.

    >>> _places_at_sites(np.array([0, 1, 0, 1, 1]), 2).tolist()
    [0, 0, 1, 1, 2]
    """
    places = np.empty(len(client_of_row), np.int64)
    for site in range(sites):
        own = client_of_row == site
        places[own] = np.arange(own.sum())
    return places


def _merged(
    values: Int64Array, names: tuple[str, ...], owners: Int64Array, sites: Sequence[SitePolicy]
) -> tuple[Int64Array, tuple[str, ...]]:
    """Return values (rows,), indices of ``names``, with one more for those that few records of a site have."""
    values, few = values.copy(), len(names)
    for site, policy in enumerate(sites):
        own = owners == site
        if policy.least_count > 1 and own.any():
            values[own] = merged_labels(values[own], policy.least_count, few)
    return values, (*names, FEW)


def _owners_of(
    table: Table, client_data: ClientData, sites: tuple[SitePolicy, ...]
) -> tuple[Int64Array, tuple[SitePolicy, ...]]:
    """Return the site of each row of a table, and the sites' policies; all rows are of one site if they have none."""
    places = {name: number for number, name in enumerate(client_data.names)}
    if table.client_keys is not None and all(name in places for name in table.client_names):
        return np.array([places[name] for name in table.client_names], np.int64)[table.client_keys], sites
    together = tuple(dict.fromkeys(policy for site in sites for policy in site.policies))
    return np.zeros(len(table.rows), np.int64), (SitePolicy(together),)
