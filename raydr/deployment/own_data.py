"""A site's own acts before and at the start of a deployed run: read its file, describe it, agree, draw a secret.

Each request has everything that its answer depends on, so a process that answers one message can be a new one. Errors
about the file stay at the site, because they can name values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from raydr.arrays import Int64Array, fingerprint
from raydr.data import SiteFile, Table
from raydr.data.site import refusal_of_columns
from raydr.data.survey.categories import Survey, words_to_tell
from raydr.data.survey.spelling import votes
from raydr.deployment.messages import (
    Agreement,
    ColumnNames,
    ColumnSurvey,
    LabelNames,
    LabelRequest,
    ReadRequest,
    Size,
    SizeRequest,
    StartRequest,
    SurveyRequest,
    VoteRequest,
    WordVotes,
)
from raydr.deployment.site_settings import SiteSettings
from raydr.errors import DataError, RunError, ScenarioError
from raydr.federation import ClientHost, HostedClient, Reply
from raydr.federation.client import HostSecrets
from raydr.federation.gate import RefusedByPolicyError, message_of
from raydr.federation.noise_streams import digest
from raydr.federation.peers import Peers
from raydr.federation.wire import Call
from raydr.methods.requests import site_policy
from raydr.privacy.policy import Policy, SitePolicy
from raydr.privacy.secrets import Secret

_UNREAD = 2**31
"""Rows of a site before its file is read, for its policy: words have their own least count of rows."""


@dataclass
class OwnData:
    """The file of a site, and what the site does with it itself.

    Parameters
    ----------
    site : SiteSettings
        The site's settings.
    """

    site: SiteSettings
    _survey: tuple[SiteFile, Survey] | None = field(default=None, repr=False)
    _table: tuple[SiteFile, Table] | None = field(default=None, repr=False)

    def file(self, sent: SiteFile) -> SiteFile:
        """Return the site's file, read as the server asks. Its place and its policy are the site's own.

        Raises
        ------
        RefusedByPolicyError
            If the server names a record of releases, which is a file.
        """
        if any(policy.releases is not None for policy in sent.general):
            raise RefusedByPolicyError(
                f"site {self.site.name!r} keeps its own record of releases, not one that the server names"
            )
        return replace(sent, path=self.site.path, policy=self.site.policy)

    def policy(self, sent: SiteFile) -> SitePolicy:
        """Return the site's policy, together with those that the scenario has for all sites."""
        return site_policy(self.file(sent).policies, self.site.name)

    def table(self, sent: SiteFile) -> Table:
        """Return the site's rows, with identities and labels, which do not leave it.

        Raises
        ------
        RefusedByPolicyError
            If the policy does not allow a column.
        """
        if self._table is None or self._table[0] != sent:
            file, policy = self.file(sent), self.policy(sent)
            if sent.layout is not None:
                _require_columns(file, policy, sent.layout.columns)
            table = file.read()
            _require_columns(file, policy, table.layout.columns)
            self._table = sent, table
        return self._table[1]

    def answer(self, call: Call) -> Reply:
        """Return the answer to a request about the file.

        Raises
        ------
        RefusedByPolicyError
            If the policy does not allow it, or the site has not agreed.
        DataError, ScenarioError
            If the file cannot be used. The error is for the site alone.
        """
        match call.request:
            case ReadRequest() as request:
                self.require_agreed(request.agreement, call.clients)
                policy, file = self.policy(request.file), self.file(request.file)
                columns = tuple(self._surveyed(request.file).kinds) if file.needs_layout else ()
                return ColumnNames(columns, policy.least_sites)
            case SurveyRequest() as request:
                self._require(call, request.file, _UNREAD)
                found = self._surveyed(request.file)
                return ColumnSurvey(dict(found.kinds), dict(found.units))
            case VoteRequest() as request:
                self._require(call, request.file, _UNREAD)
                return _vote(request, self._surveyed(request.file))
            case SizeRequest() as request:
                table = self.table(request.file)
                self._require(call, request.file, len(table.rows))
                return Size(
                    len(table.rows), tuple(table.features), table.read_from.named, self._mark(request.file)
                )
            case LabelRequest() as request:
                return self._labels(call, request)
        raise TypeError(f"{type(call.request).__name__} is not a request about a site's file")

    def require_agreed(self, agreement: Agreement, clients: Sequence[int]) -> None:
        """Raise RefusedByPolicyError unless the site is meant, and has agreed to the scenario."""
        (client,) = clients
        if agreement.sites[client : client + 1] != (self.site.name,):
            raise RefusedByPolicyError(
                f"The server takes site {self.site.name!r} for number {client} of {', '.join(agreement.sites)}: write"
                " the name of clients.deployed in site.yaml"
            )
        if self.site.scenario is not None and agreement.scenario != self.site.agreed_scenario:
            raise RefusedByPolicyError(
                f"site {self.site.name!r} agreed to another scenario, the one in its own {self.site.scenario}. Ask it"
                " to look at this one"
            )

    def secret(self, start: StartRequest) -> Secret:
        """Return the site's secret for a run, which follows from everything that the site was told.

        So a server that repeats a run's name with other settings does not get the same noise again.
        """
        return self.site.secret.derived("deployed run", digest(start))

    def peers(self, start: StartRequest) -> Peers:
        """Return what the site knows of the sites of a run, by its own files.

        Raises
        ------
        DataError
            If a file of keys cannot be read.
        """
        return Peers(start.agreement.sites, digest(start), self.site.node_key, self.site.node_keys)

    def host(self, start: StartRequest, client: int, secret: Secret | None = None) -> ClientHost:
        """Return the host of the site's rows for a run.

        Parameters
        ----------
        start : StartRequest
            The start of the run.
        client : int
            Number of the site.
        secret : Secret, optional
            The site's secret for the run. Default: :meth:`secret`.

        Raises
        ------
        RefusedByPolicyError
            If the site has not agreed to the scenario.
        RunError
            If the rows have changed since the site described them.
        """
        self.require_agreed(start.agreement, (client,))
        table = self.table(start.file)
        if start.marks[client] != self._mark(start.file):
            raise RunError("the site's file has changed since the site described it: start the run again")
        codes = _coded(table, start.label_names) if start.label_names else None
        classes = {client: codes} if start.keeps_classes and codes is not None else {}
        target = start.target
        targets = {} if target is None else {client: target.of(codes, start.label_names)}
        return ClientHost(
            hosted=[HostedClient(client, table.rows, fingerprint(table.rows), self.policy(start.file))],
            seed=start.seed,
            run=start.run,
            host_secrets=HostSecrets(
                {client: secret or self.secret(start)},
                classes=classes,
                targets=targets,
                peers=self.peers(start),
            ),
        )

    def _mark(self, sent: SiteFile) -> str:
        """Return a digest of the rows that only the site can compute."""
        return self.site.secret.key("fingerprint", fingerprint(self.table(sent).rows))[:16].hex()

    def _surveyed(self, sent: SiteFile) -> Survey:
        if self._survey is None or self._survey[0] != sent:
            self._survey = sent, self.file(sent).survey()
        return self._survey[1]

    def _require(self, call: Call, sent: SiteFile, rows: int) -> None:
        """Raise RefusedByPolicyError if the policy does not allow the reply."""
        policy, message = self.policy(sent), message_of(call, call.request, rows, None)
        refusal = policy.refusal(message)
        if refusal is not None:
            raise RefusedByPolicyError(policy.sentence(refusal, message.described))

    def _labels(self, call: Call, request: LabelRequest) -> LabelNames:
        table, policy = self.table(request.file), self.policy(request.file)
        self._require(call, request.file, len(table.rows))
        if table.labels is None:
            return LabelNames(())
        counts = Counter(table.label_names[code] for code in table.labels.tolist())
        refusal = policy.first(Policy.refusal_of_count, min(counts.values())) or policy.first(
            Policy.refusal_of_words, request.file.label or "label", len(counts)
        )
        if refusal is not None:
            what = f"the message {LabelNames.__name__} ({LabelNames.what})"
            raise RefusedByPolicyError(policy.sentence(refusal, what))
        return LabelNames(tuple(sorted(counts)))


def _require_columns(file: SiteFile, policy: SitePolicy, columns: Sequence[str]) -> None:
    used = [*columns, *filter(None, (file.label, file.time, file.id_column))]
    refused = refusal_of_columns(policy, used)
    if refused is not None:
        raise RefusedByPolicyError(str(refused))


def _vote(request: VoteRequest, found: Survey) -> WordVotes:
    cast = {}
    for column, beginnings in request.beginnings.items():
        words = words_to_tell(found, column, request.separators.get(column))
        cast[column] = votes(frozenset(word.encode() for word in words), beginnings).astype(np.uint8)
    return WordVotes(cast)


def _coded(table: Table, names: Sequence[str]) -> Int64Array:
    """Return the labels of a table's rows as indices of the names that all sites share."""
    if table.labels is None:
        raise DataError("labels take part in the run, and the site's file has none")
    place = {name: number for number, name in enumerate(names)}
    there = {table.label_names[code] for code in np.unique(table.labels).tolist()}
    if not there <= place.keys():
        raise ScenarioError("the server's names of labels lack a label of the site")
    own = np.array([place.get(name, -1) for name in table.label_names], np.int64)
    return np.asarray(own[table.labels])
