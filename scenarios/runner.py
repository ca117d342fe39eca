"""Runs a scenario: data to clients, server part, evaluation, run folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from raydr.arrays import FloatArray
from raydr.data import Table, load
from raydr.federation import (
    Adversary,
    ClientHost,
    Crash,
    FailurePolicy,
    FaultPlan,
    InlineTransport,
    Seat,
    attackers,
    fingerprint,
)
from raydr.federation.checkpoint import Checkpoint
from raydr.journal import CheckpointTaken, Event, Incident, Journal, Listener, unheard
from raydr.memory import peak_memory_bytes
from raydr.methods.serving import Plan, Served, serve
from raydr.metrics import DEFAULT_METRICS
from raydr.partition import Partition, assign
from raydr.privacy.ledger import Entry
from raydr.report import write_picture, write_report
from scenarios.environment import environment
from scenarios.evaluation import Findings, Question, examine
from scenarios.folder import (
    default_folder,
    incomplete,
    latest_checkpoint,
    taken_up,
    target_of,
    write_central,
    write_checkpoint,
    write_embedding,
    write_json,
    write_model,
    write_rounds,
)
from scenarios.reading import dump, read
from scenarios.schema import ByColumn, Scenario


class Backend(Protocol):
    """Where the parts of a simulation run; which one changes no bit of the outcome."""

    name: str
    actors: int
    peak_memory_bytes: dict[str, int]

    def serve(
        self,
        partitions: Sequence[FloatArray],
        plan: Plan,
        *,
        listener: Listener,
        checkpoint: bytes | None = None,
    ) -> Served:
        """Run clients and server; ``partitions`` are each client's rows."""

    def evaluate(self, work: Callable[..., Any], *arguments: Any, listener: Listener) -> Any:
        """Call ``work(*arguments, listener=listener)`` where pooled rows may be seen."""


@dataclass
class InlineBackend:
    """Everything in this process, one part after the other."""

    name: str = "inline"
    actors: int = 0
    peak_memory_bytes: dict[str, int] = field(default_factory=dict)

    def serve(
        self,
        partitions: Sequence[FloatArray],
        plan: Plan,
        *,
        listener: Listener,
        checkpoint: bytes | None = None,
    ) -> Served:
        """Run clients and server here."""
        seats = [Seat(index, rows, fingerprint(rows)) for index, rows in enumerate(partitions)]
        # Hosts of one client each, where crashes are to strike one client and not all.
        groups = [[seat] for seat in seats] if plan.faults.crashes else [seats]
        transport = InlineTransport([ClientHost(group, plan.seed, plan.faults) for group in groups])
        resume = Checkpoint.from_bytes(checkpoint) if checkpoint is not None else None
        return serve(transport, len(partitions), plan, journal=Journal(listener), resume=resume)

    def evaluate(self, work: Callable[..., Any], *arguments: Any, listener: Listener) -> Any:
        """Call ``work`` here."""
        return work(*arguments, listener=listener)


def run(
    scenario: Scenario,
    *,
    out: Path | None = None,
    address: str | None = None,
    data_dir: Path | None = None,
    listener: Listener = unheard,
) -> Path:
    """Run a scenario and write its run folder.

    Parameters
    ----------
    scenario : Scenario
        What to run.
    out : Path, optional
        The run folder; ``runs/NAME-TIMESTAMP`` without it.
    address : str, optional
        A Ray cluster to run on; one is started on this machine without it.
    data_dir : Path, optional
        Folder of built-in data sets.
    listener : callable
        Hears stages, progress, rounds and incidents.

    Returns
    -------
    folder : Path
        The run folder, whole.

    Raises
    ------
    ScenarioError, DataError, OutputError
        If the scenario, its data or its place cannot be used.
    RunError
        If the run started and could not be finished; no folder is left.
    """
    target = out or default_folder(scenario.name, datetime.now())
    with incomplete(target) as folder:
        (folder / "scenario.yaml").write_text(dump(scenario))
        _run_in(folder, scenario, address=address, data_dir=data_dir, listener=listener)
    return target.expanduser().absolute()


def resume(
    folder: Path,
    *,
    address: str | None = None,
    data_dir: Path | None = None,
    listener: Listener = unheard,
) -> Path:
    """Go on with an interrupted run from its last checkpoint; the bits are those of a run never interrupted.

    Parameters
    ----------
    folder : Path
        The incomplete run folder.
    address, data_dir, listener
        As for :func:`run`.

    Returns
    -------
    folder : Path
        The run folder, whole.

    Raises
    ------
    OutputError
        If it is not an incomplete run folder.
    RunError
        If its checkpoint cannot be used, or the run fails again.
    """
    folder = folder.expanduser().absolute()
    target = target_of(folder)
    scenario = read(folder / "scenario.yaml")
    with taken_up(folder):
        _run_in(folder, scenario, address=address, data_dir=data_dir, listener=listener)
    return target


def _run_in(
    folder: Path, scenario: Scenario, *, address: str | None, data_dir: Path | None, listener: Listener
) -> None:
    """Run a scenario in a folder that is there, from the checkpoint that may be in it."""
    started = datetime.now().astimezone()
    journal = Journal(listener)
    with journal.stage("data"):
        table, partition = read_clients(scenario, data_dir)
    with _backend(scenario, address, journal) as backend:
        served, findings = _simulate(scenario, table, partition, backend, journal, folder)
        described = {
            **environment(),
            "started": started.isoformat(timespec="seconds"),
            "federation": backend.name,
            "actors": backend.actors,
            "peak_memory_bytes": {"driver": peak_memory_bytes()} | backend.peak_memory_bytes,
        }
    with journal.stage("run folder"):
        _write(folder, table, partition, served, findings, journal)
    described["seconds"] = {stage: round(seconds, 4) for stage, seconds in journal.seconds.items()}
    write_json(folder / "environment.json", described)
    with journal.stage("report"):
        write_picture(folder, finishing=True)
        write_report(folder, finishing=True)


def read_clients(scenario: Scenario, data_dir: Path | None) -> tuple[Table, Partition]:
    """Read the table and deal its rows to the clients."""
    data, clients = scenario.data, scenario.clients
    by_column = clients.partition if isinstance(clients.partition, ByColumn) else None
    table = load(
        source=data.source,
        path=data.path,
        label=data.label,
        features=data.features,
        client=by_column.column if by_column else None,
        id_column=data.id,
        rows=data.rows,
        missing=data.missing,
        seed=scenario.seed,
        data_dir=data_dir,
    )
    options = clients.partition.model_dump(exclude={"kind", "column"})
    return table, assign(table, clients.partition.kind, clients=clients.count, seed=scenario.seed, **options)


@contextmanager
def _backend(scenario: Scenario, address: str | None, journal: Journal) -> Iterator[Backend]:
    if scenario.runtime.federation == "inline":
        yield InlineBackend()
        return
    with ExitStack() as connection:
        with journal.stage("starting Ray"):
            from actors.backend import ray_backend

            runtime = scenario.runtime
            backend = connection.enter_context(ray_backend(address, runtime.actors, runtime.timeout_s))
        yield backend


def _simulate(
    scenario: Scenario,
    table: Table,
    partition: Partition,
    backend: Backend,
    journal: Journal,
    folder: Path,
) -> tuple[Served, Findings]:
    """Run the federation, then judge it; everything that comes back is in the table's order."""
    by_client = [partition.rows_of(client) for client in range(partition.count)]
    method = scenario.method
    checkpoint = latest_checkpoint(folder)
    if checkpoint is not None:
        journal.rounds[:] = Checkpoint.from_bytes(checkpoint).rounds
        journal.tell(Incident(f"resuming after round {len(journal.rounds)}"))

    def hear(event: Event) -> None:
        if isinstance(event, CheckpointTaken):
            write_checkpoint(folder, event)
        journal.tell(event)

    served = backend.serve(
        [table.rows[rows] for rows in by_client],
        plan_of(scenario, partition.count),
        listener=hear,
        checkpoint=checkpoint,
    )
    in_table_order = np.argsort(np.concatenate(by_client))
    served = served.reordered(in_table_order)
    names = DEFAULT_METRICS if scenario.metrics == "default" else scenario.metrics
    compared = "central" in scenario.compare
    question = Question(
        table.rows,
        table.labels,
        served.outcome.embedding,
        served.outcome.geometry,
        served.scaling,
        method.embedder() if compared else None,
        names,
        scenario.seed,
    )
    findings = backend.evaluate(examine, question, listener=journal.tell)
    served.ledger.record(
        Entry(
            kind="pooled evaluation",
            what="all rows in one place, to draw the pooled-data map and to score the federated one"
            if compared
            else "all rows in one place, to score the federated map",
            direction="simulation-only",
            granularity="per-record",
            seen_by="the evaluation, which no federation has",
            count=1,
            bytes=table.rows.nbytes,
        )
    )
    return served, findings


def plan_of(scenario: Scenario, clients: int) -> Plan:
    """Return what a scenario asks of the federation, for so many clients."""
    runtime, faults = scenario.runtime, scenario.faults
    liars = faults.adversary
    return Plan(
        method=scenario.method.kind,
        settings=scenario.method,
        scale=scenario.data.scale,
        seed=scenario.seed,
        policy=FailurePolicy(runtime.retries, runtime.quorum),
        faults=FaultPlan(
            faults.dropout,
            faults.stragglers,
            faults.delay_s,
            faults.corrupt,
            tuple(Crash(crash.client, crash.round, crash.moment) for crash in faults.crashes),
            Adversary(attackers(scenario.seed, clients, liars.fraction), liars.kind, liars.strength)
            if liars is not None
            else None,
        ),
        participation=scenario.clients.participation,
        checkpoint_every=runtime.checkpoint_every,
    )


def _write(
    folder: Path,
    table: Table,
    partition: Partition,
    served: Served,
    findings: Findings,
    journal: Journal,
) -> None:
    write_embedding(folder / "embedding.parquet", table, partition, served.outcome.embedding)
    if findings.central_embedding is not None:
        write_central(folder / "central.parquet", table, findings.central_embedding)
    write_json(
        folder / "metrics.json",
        {
            "federated": findings.federated.values,
            "central": findings.central.values if findings.central else {},
            "not_computed": findings.federated.not_computed,
        },
    )
    write_json(folder / "ledger.json", served.ledger.as_list())
    write_rounds(folder / "rounds.jsonl", journal.rounds)
    scaling = {name: value for name, value in asdict(served.scaling).items() if name != "unit"}
    write_model(folder / "model", {**served.outcome.model, **scaling})
