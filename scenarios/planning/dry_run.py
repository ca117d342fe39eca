"""Messages that would leave one site in a deployed run: ``raydr site dry-run``.

The site reads its own file and answers the first requests for real, but nothing leaves it. The other sites are taken to
be like it. The messages of the run come from a rehearsal, as in ``raydr plan``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn

import numpy as np

from raydr.data import Site
from raydr.deployment.messages import Agreement, StartRequest
from raydr.deployment.site_host import SiteHost
from raydr.deployment.site_settings import SiteSettings
from raydr.deployment.sites import Sites
from raydr.errors import DataError, ScenarioError, did_you_mean
from raydr.federation.agreement import SignedKey
from raydr.federation.gate import RefusedByPolicyError
from raydr.federation.peers import Peers, UntrustedKeyError
from raydr.federation.rehearsal import Asked
from raydr.federation.wire import Answer, Call
from raydr.methods.serving import Rehearsed
from raydr.privacy.ledger import OTHER_CLIENTS, Entry, Ledger
from raydr.privacy.policy import PolicyError
from raydr.privacy.statement import statement
from raydr.scenarios.planning.data_sizes import DataSizes
from raydr.scenarios.planning.plan import rehearsal_of
from raydr.scenarios.running.client_data import ClientData, with_public_file
from raydr.scenarios.running.declared_cost import SAMPLED_NUMBERS, sampled
from raydr.scenarios.running.deployed import asked_of_sites, described_by, joined
from raydr.scenarios.running.federation_plan import cells_of
from raydr.scenarios.schema.reading import dump
from raydr.scenarios.schema.scenario import Scenario
from raydr.sparse_rows import SparseRows

COUNTED = "if no count is too small"
"""Decision on messages whose numbers of records the site checks in the run."""


@dataclass(kw_only=True, frozen=True)
class SiteMessages:
    """All messages of one kind that would leave a site in a run.

    Attributes
    ----------
    kind, what : str
        As in the ledger.
    granularity : str
        Whether they describe single records, this site, or are added up over sites.
    readers : str
        Who can read them.
    count, bytes : int
        Number of messages, and their size together in the wire format.
    noise : str or None
        The noise on them, in words; None without noise.
    epsilon : float or None
        Epsilon of these messages; None without a guarantee.
    decision : {"yes", "if no count is too small", "no"}
        What the site's policy says.
    why : str
        The rule of the policy that does not allow it; empty if all do.
    """

    kind: str
    what: str
    granularity: str
    readers: str
    count: int
    bytes: int
    noise: str | None
    epsilon: float | None
    decision: str
    why: str = ""


@dataclass(kw_only=True, frozen=True)
class DryRun:
    """Messages that would leave a site, and the answer of its policy.

    Attributes
    ----------
    site, policy, scenario, method : str
        Names of the site, its policy, the scenario and the method.
    rows, sites : int
        Rows of the site, and number of all sites.
    columns : tuple of str
        Names of the mapped features.
    messages : tuple of SiteMessages
        What would leave, in order.
    allowed : bool
        Whether the policy allows all of it.
    epsilon : float or None
        Epsilon of the whole run; None if something leaves without a guarantee.
    notes : tuple of str
        Assumptions, and what the run would do otherwise.
    """

    site: str
    policy: str
    scenario: str
    method: str
    rows: int
    sites: int
    columns: tuple[str, ...]
    messages: tuple[SiteMessages, ...]
    allowed: bool
    epsilon: float | None
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        return asdict(self)


def dry_run(site: SiteSettings, scenario: Scenario) -> DryRun:
    """Read a site's file, and say what would leave the site in a run of the scenario. Nothing leaves.

    Raises
    ------
    ScenarioError
        If the scenario is not one of this site.
    DataError
        If the site's file cannot be used.
    """
    names = scenario.clients.deployed
    if not names:
        raise ScenarioError(
            f"The scenario {scenario.name} does not name sites that read their own files. Name them in"
            " clients.deployed, instead of clients.sites (docs/deploying.md)."
        )
    if site.name not in names:
        raise ScenarioError(
            f"The scenario {scenario.name} has no site {site.name!r}{did_you_mean(site.name, names)}. Its sites:"
            f" {', '.join(names)}. Correct name in site.yaml."
        )
    index = names.index(site.name)
    alike = _AlikeSites(SiteHost(site=site, index=index))
    sites = Sites(alike, Agreement(dump(scenario), names))
    asked, ledger, notes = Asked(), sites.ledger, []
    columns: tuple[str, ...] = ()
    rows, whole, allowed = 0, False, False
    try:
        client_data = described_by(scenario, sites)
    except PolicyError as error:
        notes.append(f"The run would end here: {error}")
    else:
        columns, rows = client_data.feature_names, client_data.sources[index].rows
        rehearsed, clients = rehearsal_of(scenario, _sizes(scenario, client_data, alike.host))
        asked, whole = clients.asked.get(site.name, asked), rehearsed.whole
        ledger, allowed = joined(sites.ledger, rehearsed.ledger), not asked.refused
        notes += _notes(scenario, rehearsed, rows)
        notes += _notes_on_keys(site, names, ledger)
    cost = statement(ledger, scenario.privacy.budget)
    return DryRun(
        site=site.name,
        policy=alike.host.own.policy(asked_of_sites(scenario)).name,
        scenario=scenario.name,
        method=scenario.method.kind,
        rows=rows,
        sites=len(names),
        columns=columns,
        messages=tuple(_messages(ledger, asked, len(names))),
        allowed=allowed,
        epsilon=cost.epsilon if whole else None,
        notes=tuple(notes),
    )


@dataclass
class _AlikeSites:
    """One site, which also answers in place of all others."""

    host: SiteHost
    name: str = "dry run"

    def ask(self, call: Call) -> list[Answer]:
        """Return the site's answer for each site."""
        own = call.cut(self.host.clients)
        with suppress(RefusedByPolicyError):
            self.host.own.answer(own)  # raises errors about the file, which the host keeps to itself
        (answer,) = self.host.ask(own)
        return [replace(answer, client=client) for client in call.clients]

    def transport(self, start: StartRequest) -> NoReturn:
        """Raise TypeError: a dry run starts nothing."""
        raise TypeError("a dry run starts no run")


def _sizes(scenario: Scenario, client_data: ClientData, host: SiteHost) -> DataSizes:
    """Return the sizes of the data if all sites are like this one."""
    public = scenario.method.public_file
    client_data = client_data if public is None else with_public_file(client_data, public)
    held = client_data.parts[host.index]
    assert isinstance(held, Site)
    rows, policy = host.own.table(held.file).rows, host.own.policy(held.file)
    scenario.method.check(client_data.rows, client_data.features)
    return DataSizes(
        sizes=tuple(source.rows for source in client_data.sources),
        features=client_data.features,
        itemsize=rows.nbytes / max(1, rows.size),
        sample=sampled(rows, scenario.seed),
        whole=rows.size <= SAMPLED_NUMBERS,
        labelled=bool(client_data.label_names),
        public=client_data.public,
        names=client_data.names,
        harmonizing=client_data.harmonizing,
        target=client_data.target,
        public_targets=client_data.public_targets,
        joint=client_data.layout.joint,
        cells=cells_of(scenario, client_data.layout),
        sparse=isinstance(rows, SparseRows),
        policies=tuple(replace(policy, site=name) for name in client_data.names),
    )


def _messages(ledger: Ledger, asked: Asked, sites: int) -> Iterator[SiteMessages]:
    """Yield what would leave the site; its bytes are the mean over sites that are alike."""
    up: dict[str, list[Entry]] = {}
    for entry in ledger.entries.values():
        if entry.direction == "up":
            up.setdefault(entry.kind, []).append(entry)
    for kind, entries in up.items():
        first, all_of_them = entries[0], sum(entry.count for entry in entries)
        sent = asked.sent.get(kind)
        count = len(sent) if sent is not None else all_of_them // sites
        refusal = next((refusal for _, refusal in sent or () if refusal is not None), None)
        yield SiteMessages(
            kind=kind,
            what=first.what,
            granularity=str(first.granularity),
            readers="other sites" if first.seen_by == OTHER_CLIENTS else first.seen_by,
            count=count,
            bytes=round(count * sum(entry.bytes for entry in entries) / max(1, all_of_them)),
            noise=None if first.protection is None else first.protection.words,
            epsilon=0.0 if first.public else first.epsilon,
            decision="no" if refusal else COUNTED if kind in asked.counts else "yes",
            why="" if refusal is None else f"{refusal.rule}: {refusal.why}",
        )


def _notes_on_keys(site: SiteSettings, names: tuple[str, ...], ledger: Ledger) -> Iterator[str]:
    """Yield why the site could not sign its public key, if the run needs one."""
    if not any(entry.kind == SignedKey.__name__ for entry in ledger.entries.values()):
        return
    try:
        Peers(names, "", site.node_key, site.node_keys).signature(
            names.index(site.name), np.zeros(32, np.uint8)
        )
    except (DataError, UntrustedKeyError) as error:
        yield f"The run would end when sites exchange public keys: {error}"


def _notes(scenario: Scenario, rehearsed: Rehearsed, rows: int) -> Iterator[str]:
    yield f"The other sites are taken to have {rows:,} rows like these."
    if rehearsed.failure is not None:
        yield f"The run would fail: {rehearsed.failure}"
    if not rehearsed.whole:
        yield f"The method {scenario.method.kind} does not declare its own messages in advance, so they are missing."
    yield from (f"{kind} is estimated: {why}." for kind, why in rehearsed.guesses.items())
