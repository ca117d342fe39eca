"""A deployed run as the driver sees it: sizes and names of sites that read their own files, and no rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np

from raydr.arrays import FloatArray
from raydr.data import Layout, Site, SiteFile
from raydr.data.provenance import Source
from raydr.deployment.messages import Agreement, FinishRequest, StartRequest
from raydr.deployment.sites import Port, Sites
from raydr.device import Found, computing_on
from raydr.errors import RunError
from raydr.federation import ClientError, FailurePolicy
from raydr.federation.checkpoint import Checkpoint
from raydr.federation.client import HostSecrets
from raydr.journal import IncidentEvent, Journal, Listener
from raydr.methods.serving import Plan, Served, serve
from raydr.privacy.ledger import Ledger
from raydr.privacy.policy import SitePolicy
from raydr.scenarios.running.client_data import ClientData
from raydr.scenarios.running.general_policies import general_policies
from raydr.scenarios.running.harmony import harmonizing_of
from raydr.scenarios.running.site_files import file_of_data
from raydr.scenarios.running.sparsity import why_dense
from raydr.scenarios.running.target import notices_of_target, target_of
from raydr.scenarios.schema.reading import dump
from raydr.scenarios.schema.scenario import Scenario


@dataclass(kw_only=True)
class DeployedBackend:
    """Runs the server of a deployed run; the clients are where their rows are.

    Parameters
    ----------
    port : Port
        Reaches the sites.
    scenario : Scenario
        The scenario, whose ``clients.deployed`` names the sites.
    journal : Journal
        Receives incidents before the run.
    """

    port: Port
    scenario: Scenario
    journal: Journal
    device: Found = "cpu"
    actors: int = 0
    peak_memory_bytes: dict[str, int] = field(default_factory=dict)
    name: str = field(init=False)
    sites: Sites = field(init=False)
    _labels: tuple[str, ...] = field(default=(), repr=False)
    _counts: tuple[int, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        runtime = self.scenario.runtime
        agreement = Agreement(dump(self.scenario), self.scenario.clients.deployed)
        self.name = self.port.name
        self.sites = Sites(self.port, agreement, FailurePolicy(runtime.retries), self.journal)

    def client_data(self) -> ClientData:
        """Let the sites describe their files, and return what the server may know; see :func:`described_by`."""
        client_data = described_by(self.scenario, self.sites)
        self._counts = tuple(source.rows for source in client_data.sources)
        self._labels = client_data.label_names
        return client_data

    def serve(
        self,
        parts: Sequence[FloatArray | Site],
        plan: Plan,
        *,
        listener: Listener,
        host_secrets: HostSecrets | None = None,
        policies: Sequence[SitePolicy] = (),
        checkpoint: bytes | None = None,
        released: Sequence[str] = (),
    ) -> Served:
        """Run the server, and send each site its part of the map. Sites have their own secrets and policies."""
        described = [part for part in parts if isinstance(part, Site)]
        start = StartRequest(
            file=described[0].file,
            agreement=self.sites.agreement,
            run=plan.run,
            seed=plan.seed,
            marks=tuple(site.fingerprint for site in described),
            label_names=self._labels,
            keeps_classes=plan.harmonize is not None and plan.harmonize.covariates.classes > 0,
            target=plan.target,
        )
        transport = self.sites.begin(start)
        resume = Checkpoint.from_bytes(checkpoint) if checkpoint is not None else None
        with computing_on(self.device):
            served = serve(
                transport, len(parts), plan, journal=Journal(listener), resume=resume, released=released
            )
        served = without_own_parts(served)
        try:
            self._finish(served)
        except ClientError as error:
            listener(IncidentEvent(f"not every site received its part of the map: {error}"))
        return replace(served, ledger=joined(self.sites.ledger, served.ledger))

    def lay_out_sites(self, files: Sequence[tuple[SiteFile, str | None]]) -> NoReturn:
        """Raise RunError: sites read their own files."""
        no_pooled_rows()

    def count_sites(self, files: Sequence[tuple[SiteFile, str | None]]) -> NoReturn:
        """Raise RunError: sites read their own files."""
        no_pooled_rows()

    def pool(self, sites: Sequence[Site]) -> Callable[[], FloatArray]:
        """Return a callable that raises RunError."""
        return no_pooled_rows

    def prepare_evaluation(self, libraries: Callable[[], object], values: int) -> None:
        """Do nothing: no pooled rows are evaluated."""

    def evaluate(self, work: Callable[..., Any], *arguments: Any, listener: Listener) -> Any:
        """Call ``work`` in this process."""
        with computing_on(self.device):
            return work(*arguments, listener=listener)

    def _finish(self, served: Served) -> None:
        """Send each site the places of its own rows, and the model."""
        places: dict[int, FloatArray] = {}
        if served.outcome.published:
            ends = np.cumsum(self._counts)[:-1]
            places = dict(enumerate(np.split(served.outcome.embedding, ends)))
        fidelity = served.fidelity
        self.sites.finish(
            FinishRequest(
                places=places,
                model={**served.outcome.model, **served.prepared.arrays},
                fidelity_rows=0 if fidelity is None else fidelity.rows,
                fidelity={} if fidelity is None else dict(fidelity.values),
                errors={} if fidelity is None else dict(fidelity.standard_errors),
            )
        )


def described_by(scenario: Scenario, sites: Sites) -> ClientData:
    """Let sites describe their files, and return what a server may know of them.

    Raises
    ------
    PolicyError, ClientError, DataError
        If a site refuses or does not answer, or the files do not fit together.
    """
    data = scenario.data
    file = sites.lay_out(asked_of_sites(scenario))
    sizes = sites.sizes(file)
    labels = sites.label_names(file) if data.target_weight or data.label_kept else ()
    counts = [size.rows for size in sizes]
    features = sizes[0].features
    layout = file.layout or Layout(features)
    return ClientData(
        names=sites.names,
        held=tuple(Site(file, None, size.mark) for size in sizes),
        client_of_row=np.repeat(np.arange(len(counts)), counts),
        ids=np.concatenate([np.arange(count) for count in counts]),
        labels=None,
        label_names=labels,
        feature_names=features,
        pooled=no_pooled_rows,
        sources=tuple(
            Source(name=name, rows=size.rows, dropped=0, named=size.named, client=name)
            for name, size in zip(sites.names, sizes, strict=True)
        ),
        filling=data.filling,
        words=layout.words,
        units=layout.units,
        codings=layout.codings,
        harmonizing=harmonizing_of(data, layout, labels),
        target=target_of(data, np.arange(len(labels)) if labels else None, labels),
        notices=notices_of_target(data),
    )


def asked_of_sites(scenario: Scenario) -> SiteFile:
    """Return how sites read their files, from the scenario: without a path, and without a site's own policy."""
    return replace(
        file_of_data(scenario.data),
        why_dense=why_dense(scenario),
        general=general_policies(scenario),
        cells=scenario.method.surveys_columns,
    )


def no_pooled_rows() -> NoReturn:
    """Raise RunError: a deployed run has no pooled rows."""
    raise RunError(
        "The rows are at the sites, so no one has all of them. Run a simulation for what needs all rows."
    )


def without_own_parts(served: Served) -> Served:
    """Return the result without what stays at the sites, in place of which they sent zeros."""
    harmonization = served.prepared.harmonization
    if harmonization is None:
        return served
    return replace(
        served, prepared=replace(served.prepared, harmonization=replace(harmonization, effects=()))
    )


def joined(before: Ledger, during: Ledger) -> Ledger:
    """Return one ledger of the messages around a run and in it, without those that stayed at the sites."""
    ledger = Ledger(charges=dict(during.charges))
    for entry in (*before.entries.values(), *during.entries.values()):
        if entry.direction != "simulation-only":
            ledger.record(entry)
    return ledger
