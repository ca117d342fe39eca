"""Bit-identical repetition of a run in this process, to record what the server saw."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from raydr.data.provenance import sha256_of_file
from raydr.errors import DataError, OutputError, RunError, ScenarioError
from raydr.extras import require_packages
from raydr.federation.client import HostSecrets
from raydr.federation.replay import Replay
from raydr.federation.transcript import Transcript
from raydr.journal import Event, Journal, Listener, RoundEnded
from raydr.methods.serving import Served
from raydr.portable import require_portable
from raydr.privacy.ledger import Entry
from raydr.registry import extensions
from raydr.runfolder import RunFolder, read_run
from raydr.runfolder.records import FINGERPRINTS, SCENARIO
from raydr.scenarios.running.backend import InlineBackend
from raydr.scenarios.running.client_data import ClientData, dealt_out, with_public_file
from raydr.scenarios.running.declared_cost import declared_cost
from raydr.scenarios.running.environment import versions
from raydr.scenarios.running.federation_plan import plan_with_data, with_scaling
from raydr.scenarios.running.identity import Identity, origin_of
from raydr.scenarios.running.site_files import from_sites
from raydr.scenarios.running.site_policies import policies_of, with_policies
from raydr.scenarios.schema.reading import read
from raydr.scenarios.schema.scenario import Scenario
from raydr.threads import blas_core_types

_DECIDING = ("numpy", "scipy", "scikit-learn", "numba")
"""Packages whose version can change a map."""


@dataclass(kw_only=True, frozen=True)
class Repetition:
    """A run and its repetition.

    Attributes
    ----------
    run : RunFolder
        The run.
    scenario : Scenario
        Its scenario.
    client_data : ClientData
        Client data.
    served : Served
        Result of the server, with rows in client order.
    transcript : Transcript
        All messages that the server saw.
    replay : Replay
        Repeats charged releases.
    """

    run: RunFolder
    scenario: Scenario
    client_data: ClientData
    served: Served
    transcript: Transcript
    replay: Replay


def repeated(folder: Path, data_dir: Path | None, listener: Listener) -> Repetition:
    """Repeat the run of a folder and check that the result is the same.

    Raises
    ------
    OutputError
        If the folder is not a complete run folder, or is from another version.
    ScenarioError
        If such a run cannot be repeated.
    DataError
        If the data have changed.
    RunError
        If the repetition has a different map or ledger.
    """
    run = read_run(folder)
    scenario = read(folder / SCENARIO)
    require_repeatable(run, scenario)
    require_packages(scenario)
    if scenario.runtime.portable:
        require_portable()
    journal = Journal(listener)
    client_data = data_of_run(run, scenario, data_dir, journal)
    transcript = Transcript()
    plan, reserve = plan_with_data(scenario, client_data)
    # With another secret, noise and messages would differ.
    rooted = origin_of(scenario).again(Identity.of(scenario, client_data).study, run.environment.run)
    backend = InlineBackend(transcript=transcript)
    served = backend.serve(
        client_data.parts,
        replace(
            plan,
            run=rooted.name,
            checkpoint_every=0,
            declared=declared_cost(plan, client_data, reserve),
        ),
        listener=lambda event: _passed_on(event, listener),
        host_secrets=HostSecrets.derived(
            rooted.root,
            range(len(client_data.names)),
            reserve,
            client_data.own_classes,
            client_data.own_targets,
        ),
        policies=policies_of(client_data),
    )
    for entry in client_data.surveyed:
        served.ledger.record(entry)
    _require_same_outcome(run, served.reordered(client_data.in_table_order))
    served = with_scaling(served, rooted, scenario)
    return Repetition(
        run=run,
        scenario=scenario,
        client_data=client_data,
        served=served,
        transcript=transcript,
        replay=Replay(backend.hosts, transcript.steps),
    )


def data_of_run(run: RunFolder, scenario: Scenario, data_dir: Path | None, journal: Journal) -> ClientData:
    """Read the data of a run again, with its public rows, and check that they are the same.

    Raises
    ------
    DataError
        If the data cannot be read, or have changed.
    """
    with journal.stage("data"):
        client_data = (
            from_sites(scenario, InlineBackend())
            if scenario.clients.sites
            else dealt_out(scenario, data_dir, progress=journal.progress)
        )
        client_data = with_policies(scenario, client_data)
        require_same_data(run, client_data, scenario.scaling)
        public = scenario.method.public_file
        return client_data if public is None else with_public_file(client_data, public)


def require_repeatable(run: RunFolder, scenario: Scenario, use: str = "audit it") -> None:
    """Raise an error if the run cannot be repeated bit for bit. ``use`` is what the repetition is for, as a command.

    Raises
    ------
    OutputError
        If the run is from another version.
    ScenarioError
        If its rows are at their sites, or its result depends on the packing of clients or on a GPU.
    """
    if scenario.clients.deployed:
        raise ScenarioError(
            "The rows of this run are at their sites: simulate the scenario with public rows of the same kind, then"
            f" {use}."
        )
    here, then = {"raydr": version("raydr")} | versions(), dict(run.environment.packages)
    then["raydr"] = run.environment.raydr
    deciding = ("raydr", *_DECIDING, *extensions())
    changed = [
        f"{name} {then.get(name, 'none')} (here {here[name]})"
        for name in deciding
        if then.get(name) != here[name]
    ]
    if changed:
        raise OutputError(
            f"The run in {run.path} used {', '.join(changed)}, so a repetition here would differ: {use} with the"
            " versions of the run, or run the scenario again."
        )
    if run.environment.device != "cpu":
        raise ScenarioError(
            f"The run computed on a GPU (runtime.device {scenario.runtime.device}), and a CPU cannot repeat it bit for"
            f" bit: run it with runtime.device cpu, and then {use}."
        )
    if scenario.runtime.batch_clients:
        raise ScenarioError(
            "runtime.batch_clients trains the clients of an actor together, so the result depends on their packing and"
            f" cannot be repeated with separate clients: run it without batch_clients, and then {use}."
        )


def require_same_data(run: RunFolder, client_data: ClientData, scaling: str) -> None:
    """Raise DataError unless the data are those of the run, according to data.json."""
    now, then = client_data.provenance(scaling), run.data
    changed = [
        one.name
        for one, other in zip(now.sources, then.sources, strict=False)
        if other.sha256 is not None and (one.sha256, one.hashed) != (other.sha256, other.hashed)
    ]
    same = (now.columns, now.mapped, len(now.sources)) == (then.columns, then.mapped, len(then.sources))
    if changed or not same:
        raise DataError(
            f"The data of the run in {run.path} have changed, according to data.json"
            f" ({', '.join(changed) or 'other columns, rows or files'}): restore them, or repeat the run."
        )


def require_same_files(run: RunFolder, scenario: Scenario) -> None:
    """Raise DataError if a file that the scenario names is here and differs from what the run read."""
    sites = {site.name or Path(site.path).stem: site.path for site in scenario.clients.sites}
    for source in run.data.sources:
        path = scenario.data.path if source.client is None else sites.get(source.client)
        file = None if path is None else Path(path).expanduser()
        if file is None or not file.is_file() or source.sha256 is None or source.hashed != "file":
            continue
        if sha256_of_file(file) != source.sha256:
            raise DataError(
                f"{file} has changed since the run in {run.path}, according to {FINGERPRINTS}: restore it, or run the"
                " scenario again."
            )


def _require_same_outcome(run: RunFolder, served: Served) -> None:
    """Raise RunError unless the ledger and, bit for bit, the map are those of the run."""
    found = np.asarray(served.outcome.embedding, np.float64)
    if found.shape != run.federated.shape or not np.array_equal(found, run.federated):
        off = "another shape" if found.shape != run.federated.shape else _apart(found, run.federated)
        raise RunError(
            f"The repetition of the run in {run.path} has a different map ({off}), so its messages are not those of the"
            " run. Results can differ between processors without runtime.portable (core types then:"
            f" {', '.join(run.environment.core_types) or 'unknown'}; here: {', '.join(blas_core_types())}), if clients"
            " were lost by chance, and if a run that may lose clients was resumed: run the scenario again here, and"
            " audit that run."
        )
    was, now = _messages(run.ledger), _messages(served.ledger.entries.values())
    different = [entry["kind"] for entry in [*was, *now] if (entry in was) != (entry in now)]
    if different:
        raise RunError(
            f"The repetition of the run in {run.path} has the same map but different messages"
            f" ({', '.join(dict.fromkeys(different))}): the run repeated requests to clients, or ledger.json was"
            " changed. Run the scenario again, and audit that run."
        )


def _apart(one: Any, other: Any) -> str:
    moved = int((one != other).any(axis=1).sum())
    return f"{moved:,} of {len(one):,} rows moved, by {float(np.abs(one - other).max()):.2g} at most"


def _messages(entries: Iterable[Entry]) -> Sequence[dict[str, Any]]:
    return [
        json.loads(json.dumps(entry.as_dict())) for entry in entries if entry.direction != "simulation-only"
    ]


def _passed_on(event: Event, listener: Listener) -> None:
    """Pass on all events except rounds, which are those of the run."""
    if not isinstance(event, RoundEnded):
        listener(event)
