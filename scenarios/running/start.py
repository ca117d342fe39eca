"""Start of a run: backend, client data, identity, and the checkpoint to resume from."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from raydr.data import Table
from raydr.deployment.sites import Port
from raydr.device import Found, found
from raydr.errors import ScenarioError
from raydr.geometry.points import Progress
from raydr.journal import IncidentEvent, Journal
from raydr.privacy.secrets import RootedRun
from raydr.runfolder.making import unwritable
from raydr.scenarios.running.backend import Backend, InlineBackend
from raydr.scenarios.running.checkpoints import Checkpoints, Resumption
from raydr.scenarios.running.client_data import ClientData, dealt_out, with_public_file
from raydr.scenarios.running.deployed import DeployedBackend
from raydr.scenarios.running.identity import Identity, origin_of
from raydr.scenarios.running.site_files import from_sites
from raydr.scenarios.running.site_policies import with_policies
from raydr.scenarios.schema.scenario import Scenario
from raydr.signals import signals_deferred
from raydr.threads import done_ahead

_LOOK_S = 0.2


@dataclass(frozen=True)
class StartedRun:
    """Checked data, the run's name and secrets, and where to resume.

    ``start`` identifies this start of the run; it is empty for the first.
    """

    client_data: ClientData
    run: RootedRun
    resumption: Resumption | None
    start: str = ""


def begin(
    scenario: Scenario, client_data: ClientData, checkpoints: Checkpoints, device: Found = "cpu"
) -> StartedRun:
    """Create the run's name and secrets, or read those of the run to resume."""
    identity = Identity.of(scenario, client_data, device)
    origin = origin_of(scenario)
    with unwritable(checkpoints.folder):
        resumption = checkpoints.resumption(identity, origin)
        if resumption is not None:
            return StartedRun(client_data, resumption.run, resumption, start=token_hex(8))
        run = origin.begin(identity.study, repeatable=scenario.runtime.quorum == 1)
        checkpoints.begin(identity, run.name)
    return StartedRun(client_data, run, None)


@contextmanager
def held_by(
    scenario: Scenario,
    data_dir: Path | None,
    given: Table | None,
    address: str | None,
    journal: Journal,
    port: Port | None = None,
) -> Iterator[tuple[Backend, ClientData]]:
    """Yield backend and client data. A table is read while Ray starts; clients' own files are read by Ray.

    ``port`` reaches the sites of a deployed run, which read their own files.
    """

    def table(progress: Progress) -> ClientData:
        return _usable(scenario, dealt_out(scenario, data_dir, given, progress=progress))

    backend: Backend
    with ExitStack() as connection:
        if scenario.clients.deployed:
            deployed = DeployedBackend(port=_required(port), scenario=scenario, journal=journal)
            backend = deployed
            with journal.stage("data"):
                client_data = _usable(scenario, deployed.client_data())
        elif scenario.clients.sites:
            backend = connection.enter_context(_backend(scenario, address, journal))
            with journal.stage("data"):
                client_data = _usable(scenario, from_sites(scenario, backend))
        elif scenario.runtime.federation == "inline":
            backend = connection.enter_context(_backend(scenario, address, journal))
            with journal.stage("data"):
                client_data = table(journal.progress)
        else:
            reached = _Reached()
            with done_ahead(lambda: table(reached.note)) as reading:
                backend = connection.enter_context(_backend(scenario, address, journal, reading))
                with journal.stage("data"):  # wait for the rest
                    client_data = reached.awaited(reading, journal)
        for notice in client_data.notices:
            journal.tell(IncidentEvent(notice))
        yield backend, client_data


def _required(port: Port | None) -> Port:
    if port is None:
        raise ScenarioError(
            "clients.deployed names sites that read their own files, and this command does not reach them: deploy the"
            " scenario with `raydr export`, or simulate the run with the files in clients.sites."
        )
    return port


@dataclass
class _Reached:
    """Progress of a thread that reads ahead, for the thread that waits for it."""

    done: float = 0.0
    total: int = 0

    def note(self, done: float, total: int) -> None:
        self.done, self.total = done, total

    def awaited(self, reading: Future[ClientData], journal: Journal) -> ClientData:
        """Wait for the data and report progress to the journal."""
        while not wait([reading], timeout=_LOOK_S).done:
            journal.progress(self.done, self.total)
        return reading.result()


def _usable(scenario: Scenario, client_data: ClientData) -> ClientData:
    """Raise ScenarioError or DataError if the data or the clients do not fit the scenario."""
    client_data = with_policies(scenario, client_data)
    scenario.require_clients(len(client_data.names))
    scenario.method.check(client_data.rows, client_data.features)
    scenario.require_columns(client_data.feature_names)
    harmonizing = client_data.harmonizing
    if scenario.privacy.strict and harmonizing is not None and harmonizing.covariates.classes:
        raise ScenarioError(
            "data.harmonize.keep names the label, but privacy.strict requires noise on every message, and noise on data"
            " does not cover the classes of records. Leave the label out of keep, or leave privacy.strict out."
        )
    if harmonizing is not None and client_data.held_out is not None:
        client_data.sites_of(client_data.held_out)
    public = scenario.method.public_file
    return client_data if public is None else with_public_file(client_data, public)


@contextmanager
def _backend(
    scenario: Scenario, address: str | None, journal: Journal, reading: Future[ClientData] | None = None
) -> Iterator[Backend]:
    """Yield the backend. Ray does not start if the data, read meanwhile, turn out to be unusable."""
    runtime = scenario.runtime
    if runtime.federation == "inline":
        yield InlineBackend(device=found(runtime.device))
        return
    with ExitStack() as connection:
        with journal.stage("starting Ray"):
            # Python drops exceptions of signal handlers in callbacks of the import system.
            with signals_deferred():
                from raydr.actors.backend import ray_backend

            if reading is not None and reading.done():
                reading.result()
            backend = connection.enter_context(
                ray_backend(
                    address, runtime.actors, runtime.timeout_s, runtime.device, portable=runtime.portable
                )
            )
        yield backend
