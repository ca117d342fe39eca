"""One simulation in an existing run folder: client data, federation, evaluation, files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import Float64Array
from raydr.data import Provenance, Table
from raydr.data.survey.notices import of_spreads
from raydr.deployment.sites import Port
from raydr.errors import FeatureError, named
from raydr.federation.client import HostSecrets
from raydr.federation.failures import ClientError
from raydr.journal import Charged, CheckpointTaken, Event, IncidentEvent, Journal, Listener, RoundEnded
from raydr.memory import peak_memory_bytes
from raydr.methods.fidelity import Fidelity
from raydr.methods.novelty import NOVEL
from raydr.methods.outcome import Placed
from raydr.methods.serving import Served
from raydr.metrics import Need, metric_named
from raydr.metrics.drift import NOT_COMPARED
from raydr.metrics.islands import Islands
from raydr.metrics.site_scores import SiteScore
from raydr.privacy.ledger import Entry, Granularity
from raydr.privacy.secrets import RootedRun
from raydr.privacy.statement import statement
from raydr.runfolder import records
from raydr.runfolder.making import unwritable
from raydr.runfolder.model import KEYED, write_model
from raydr.runfolder.records import (
    FidelityEstimate,
    FidelityMeasures,
    Island,
    IslandColumn,
    IslandMeasures,
    Measures,
    PeriodMeasures,
    SiteMean,
    SiteMeasures,
)
from raydr.runfolder.writing import (
    write_central,
    write_data,
    write_embedding,
    write_held_out,
    write_json,
    write_progress,
    write_rounds,
    write_shown,
)
from raydr.scenarios.running.backend import Backend
from raydr.scenarios.running.checkpoints import Checkpoints
from raydr.scenarios.running.client_data import ClientData
from raydr.scenarios.running.declared_cost import declared_cost
from raydr.scenarios.running.environment import environment
from raydr.scenarios.running.evaluation import Findings, NewRows, Question, examine, load_libraries
from raydr.scenarios.running.federation_plan import plan_with_data, with_scaling
from raydr.scenarios.running.pooling import Dealt
from raydr.scenarios.running.site_policies import policies_of, shared_at_sites, with_merged_labels
from raydr.scenarios.running.start import StartedRun, begin, held_by
from raydr.scenarios.running.withheld import filled_of_many, without_few
from raydr.scenarios.schema.scenario import Scenario
from raydr.sparse_rows import SparseRows
from raydr.statistics.keying import keyed_metric, keyed_rows


def simulate(
    folder: Path,
    scenario: Scenario,
    *,
    address: str | None,
    data_dir: Path | None,
    listener: Listener,
    table: Table | None = None,
    ahead: Callable[[], object] | None = None,
    port: Port | None = None,
) -> None:
    """Run a scenario in an existing folder; resume from its checkpoint if it has one.

    ``port`` reaches the sites of a deployed run.

    ``ahead`` is called in a thread while other processes compute, if there are any.
    """
    now = datetime.now().astimezone()
    journal, checkpoints = Journal(listener), Checkpoints(folder)
    with held_by(scenario, data_dir, table, address, journal, port) as (backend, client_data):
        started = begin(scenario, client_data, checkpoints, backend.device)
        if ahead is not None and backend.name == "ray":
            Thread(target=ahead, name="ahead", daemon=True).start()
        served, findings = _served(scenario, started, backend, journal, checkpoints)
        described = environment(
            run=started.run.name,
            started=now,
            federation=backend.name,
            actors=backend.actors,
            device=backend.device,
            peak_memory_bytes={"driver": peak_memory_bytes()} | backend.peak_memory_bytes,
            network_seconds=served.network_seconds,
        )
    with unwritable(folder):
        with journal.stage("run folder"):
            write_results(folder, scenario, client_data, served, findings, journal)
        seconds = {stage: round(seconds, 4) for stage, seconds in journal.seconds.items()}
        write_json(folder / records.ENVIRONMENT, asdict(replace(described, seconds=seconds)))


def _served(
    scenario: Scenario,
    started: StartedRun,
    backend: Backend,
    journal: Journal,
    checkpoints: Checkpoints,
) -> tuple[Served, Findings]:
    """Run the federation and evaluate it; all results are in the table's order."""
    method, client_data, resumption = scenario.method, started.client_data, started.resumption
    if resumption is not None:
        for damage in resumption.damaged:
            journal.tell(IncidentEvent(f"{damage}; using the previous checkpoint"))
        journal.rounds[:] = resumption.rounds
        rounds = len(journal.rounds)
        journal.tell(
            IncidentEvent(f"resuming after round {rounds}" if rounds else "starting from the first round")
        )

    def hear(event: Event) -> None:
        with unwritable(checkpoints.folder):
            match event:
                case RoundEnded() if scenario.runtime.checkpoint_every:
                    checkpoints.add(event)
                case CheckpointTaken():
                    checkpoints.keep(event)
                case Charged():
                    checkpoints.charge(event)
        journal.tell(event)

    plan, reserve = plan_with_data(scenario, client_data)
    plan = replace(plan, declared=declared_cost(plan, client_data, reserve))
    if scenario.compare or scenario.metrics:
        backend.prepare_evaluation(load_libraries, client_data.rows * client_data.features)
    with _features_named(scenario, client_data):
        served = backend.serve(
            client_data.parts,
            replace(
                plan,
                run=started.run.name,
                start=started.start,
                geometry=_recovery_is_asked_for(scenario),
            ),
            host_secrets=HostSecrets.derived(
                started.run.root,
                range(len(client_data.names)),
                reserve,
                client_data.own_classes,
                client_data.own_targets,
            ),
            policies=policies_of(client_data),
            listener=hear,
            checkpoint=resumption.content if resumption is not None else None,
            released=resumption.released if resumption is not None else (),
        )
    for entry in client_data.surveyed:
        served.ledger.record(entry)
    if served.network_seconds is not None and plan.network is not None:
        before = sum(map(plan.network.seconds_of, client_data.surveyed))
        served = replace(served, network_seconds=served.network_seconds + before)
    served = with_scaling(served.reordered(client_data.in_table_order), started.run, scenario)
    has: dict[Need, bool] = {
        "clusters": served.outcome.clusters is not None,
        "new": client_data.held_out is not None,
        "sites": scenario.clients.natural,
    }
    names = scenario.metric_names({need for need, there in has.items() if not there})
    compared = "central" in scenario.compare
    question = Question(
        pooled=client_data.pooled,
        labels=client_data.labels,
        outcome=served.outcome,
        prepared=served.prepared,
        method=method,
        central=compared,
        metrics=names,
        seed=scenario.seed,
        snapshots=served.outcome.snapshots,
        client_of_row=client_data.client_of_row,
        new=new_rows(client_data, served, started.run, scenario),
        classes=client_data.kept_classes,
        targets=client_data.targets,
        scale=scenario.data.scale,
        joint=client_data.layout.joint,
        show=[client_data.feature_names.index(column) for column in scenario.show],
        islands=scenario.has_default_metrics,
        periods=client_data.periods,
        determined=any(entry.determines(client_data.rows) for entry in served.ledger.entries.values()),
    )
    if scenario.clients.deployed:
        return served, Findings.of_server(question)
    if not question.asks:  # then the rows are not pooled
        unseen = scenario.data.as_read and _summed_deviation(scenario, served) is None
        own = client_data.parts if unseen and isinstance(client_data.held, Dealt) else ()
        return served, Findings.of_parts(
            [part for part in own if isinstance(part, np.ndarray | SparseRows)], served.prepared
        )
    findings = backend.evaluate(examine, question, listener=journal.tell)
    served.ledger.record(
        Entry(
            kind="pooled evaluation",
            what="all rows in one place, to draw the pooled-data map and to score the federated one"
            if compared
            else "all rows in one place, to score the federated map",
            direction="simulation-only",
            granularity=Granularity.PER_RECORD,
            seen_by="the evaluation, which no federation has",
            count=1,
            bytes=findings.pooled_bytes,
        )
    )
    return served, findings


def _recovery_is_asked_for(scenario: Scenario) -> bool:
    """Return whether a metric scores the server's estimate of the distances between rows."""
    if scenario.clients.deployed:
        return True
    return any("recovered" in metric_named(name).needs for name in scenario.metric_names())


def _summed_deviation(scenario: Scenario, served: Served) -> Float64Array | None:
    """Return the standard deviation (features,) of the mapped rows, from sums; None if no sum has it."""
    return None if scenario.privacy.isometry_key else served.deviation


@contextmanager
def _features_named(scenario: Scenario, client_data: ClientData) -> Iterator[None]:
    """Replace feature numbers with column names in errors, unless an isometry key rotates the features."""
    try:
        yield
    except FeatureError as error:
        if scenario.privacy.isometry_key:
            raise
        raise error.of(client_data.feature_names) from None
    except ClientError as error:  # of a site's own file
        raise ClientError(named(str(error), client_data.feature_names)) from error


def new_rows(client_data: ClientData, served: Served, run: RootedRun, scenario: Scenario) -> NewRows | None:
    """Return the held-out rows, also transformed by the run's isometry key if it has one."""
    held_out, sealed, keyed = client_data.held_out, served.sealed_scaling, None
    if held_out is None:
        return None
    if sealed is not None:
        keyed = keyed_rows(held_out.rows, sealed, run.shared, run.name, keyed_metric(scenario.data.metric))
    owners = None if client_data.harmonizing is None else client_data.sites_of(held_out)
    return NewRows(held_out.rows, held_out.labels, keyed, owners)


def _mapped(scenario: Scenario, client_data: ClientData, served: Served, findings: Findings) -> Provenance:
    """Return the provenance of the mapped data with the findings of the run."""
    data = client_data.provenance(scenario.scaling, scenario.data.metric)
    data = replace(data, filled=filled_of_many(data.filled, client_data.names, policies_of(client_data)))
    if data.harmonized is not None and served.prepared.harmonization is not None:
        adjusted = served.prepared.harmonization.common.adjusted
        unchanged = tuple(name for name, changed in zip(data.columns, adjusted, strict=True) if not changed)
        found = replace(
            data.harmonized,
            unchanged=unchanged,
            before=dict(findings.before),
            after=dict(findings.after),
        )
        data = replace(data, harmonized=found)
    if scenario.data.as_read and not scenario.noisy:
        summed = _summed_deviation(scenario, served)
        deviation = findings.deviation if summed is None else summed
        if deviation is not None:
            of_columns = deviation[: len(data.columns)]  # and not of the label's block, which follows them
            data = replace(data, notices=data.notices + of_spreads(data.columns, of_columns))
    return data


def _estimates(
    findings: Findings, queried: Fidelity | None, rows: int, pooled: Mapping[str, float]
) -> dict[str, FidelityMeasures]:
    """Return the metrics that the federation estimated without pooling, next to those of the pooled rows."""

    def measures(some: int, values: Mapping[str, float], errors: Mapping[str, float]) -> FidelityMeasures:
        return FidelityMeasures(
            rows=some,
            metrics={
                name: FidelityEstimate(
                    estimate=value, standard_error=errors.get(name, 0.0), pooled=pooled.get(name)
                )
                for name, value in values.items()
            },
        )

    found: dict[str, FidelityMeasures] = {}
    if queried is not None:
        found[records.QUERY_ROWS] = measures(queried.rows, queried.values, queried.standard_errors)
    recovered = findings.recovered
    if recovered is not None and recovered.values:
        some = recovered.sampled_rows or rows
        found[records.RECOVERED] = measures(some, recovered.values, recovered.standard_errors)
    return found


def _measures(
    findings: Findings, client_data: ClientData, queried: Fidelity | None, *, deployed: bool
) -> dict[str, Any]:
    """Return the content of ``metrics.json``, without fields that the run does not have.

    In a deployed run, metrics of rows are those of one site, which are no counterpart of estimates for all rows.
    """
    maps = {"federated": findings.federated, "central": findings.central}
    scored = {which: scores for which, scores in maps.items() if scores is not None}
    by_site = {which: {each.site: each for each in scores.sites} for which, scores in scored.items()}
    held_out, unlike = _novelty_by_site(client_data.held_out, findings.placed)
    measures = Measures(
        federated=findings.federated.values,
        central=findings.central.values if findings.central else {},
        standard_errors={which: scores.standard_errors for which, scores in scored.items()},
        sampled_rows=findings.federated.sampled_rows,
        sites=[
            SiteMeasures(
                site=client_data.names[own.site],
                rows=own.rows,
                measured=own.measured,
                **{which: _means(sites[own.site]) for which, sites in by_site.items()},
                held_out=int(held_out.get(client_data.names[own.site], 0)),
                unlike=int(unlike.get(client_data.names[own.site], 0)),
            )
            for own in sorted(findings.federated.sites, key=lambda own: tuple(own.means.values()))
        ],
        not_computed=findings.federated.not_computed,
        islands=None if findings.islands is None else _islands(findings.islands, client_data.feature_names),
        fidelity=_estimates(
            findings, queried, client_data.rows, {} if deployed else findings.federated.values
        ),
        periods=_periods(findings, client_data),
    )
    measures = without_few(measures, client_data.names, policies_of(client_data))
    content = asdict(measures)
    if measures.sampled_rows is None:
        del content["standard_errors"], content["sampled_rows"]
    if not measures.sites:
        del content["sites"]
    if measures.islands is None:
        del content["islands"]
    if not measures.fidelity:
        del content["fidelity"]
    if not measures.periods:
        del content["periods"]
    return content


def _novelty_by_site(
    table: Table | None, placed: Placed | None
) -> tuple[dict[str, np.int64], dict[str, np.int64]]:
    """Return the number of held-out rows of each site, and of those that are unlike the mapped rows.

    Both are empty if no held-out row has a novelty, or it is not known which site holds it.
    """
    if table is None or table.client_keys is None or placed is None or placed.novelty is None:
        return {}, {}
    rows = np.bincount(table.client_keys, minlength=len(table.client_names))
    novel = np.bincount(table.client_keys[placed.novelty <= NOVEL], minlength=len(table.client_names))
    return dict(zip(table.client_names, rows, strict=True)), dict(zip(table.client_names, novel, strict=True))


def _periods(findings: Findings, client_data: ClientData) -> list[PeriodMeasures]:
    """Return what is known about each period; nothing without periods."""
    of_row = client_data.periods
    if of_row is None:
        return []
    maps = {"federated": findings.federated, "central": findings.central}
    scored = {
        which: {score.site: score for score in scores.periods} for which, scores in maps.items() if scores
    }
    found = []
    for number, name in enumerate(client_data.period_names):
        own = of_row == number
        scores = {which: by_period[number] for which, by_period in scored.items() if number in by_period}
        drift = findings.drifts.get(number, NOT_COMPARED)
        found.append(
            PeriodMeasures(
                period=name,
                rows=int(own.sum()),
                sites=len(np.unique(client_data.client_of_row[own])),
                measured=scores["federated"].measured if "federated" in scores else 0,
                **{which: _means(score) for which, score in scores.items()},
                compared=drift.compared,
                unlike=drift.unlike,
            )
        )
    return found


def _islands(found: Islands, columns: Sequence[str]) -> IslandMeasures:
    """Return the islands with the names of their columns."""
    measures = []
    for island in found.found:
        largest = [IslandColumn(column=columns[each.column], auc=each.auc) for each in island.largest]
        measures.append(Island(**{**vars(island), "largest": largest}))
    return IslandMeasures(rows=found.rows, left_out=found.left_out, found=measures)


def _means(score: SiteScore) -> dict[str, SiteMean]:
    return {name: SiteMean(mean=mean, deviation=score.deviations[name]) for name, mean in score.means.items()}


def write_results(
    folder: Path,
    scenario: Scenario,
    client_data: ClientData,
    served: Served,
    findings: Findings,
    journal: Journal,
) -> None:
    """Write the files of a run folder except the scenario, the environment, the picture and the report."""
    by_row = dict(findings.federated.by_row)
    if findings.islands is not None and findings.islands.found:
        by_row["island"] = findings.islands.of_row
    shown = with_merged_labels(client_data)
    if served.outcome.published or not scenario.clients.deployed:  # else the places are at the sites
        write_embedding(folder / records.EMBEDDING, shown, served.outcome, by_row)
    if shown.held_out is not None and findings.placed is not None:
        write_held_out(folder / records.HELD_OUT, shown.held_out, findings.placed)
    if findings.pooled is not None and findings.central is not None:
        write_central(folder / records.CENTRAL, client_data, findings.pooled, findings.central.by_row)
    if findings.shown is not None:
        values = shared_at_sites(client_data, findings.shown)
        write_shown(folder / records.SHOWN, client_data, dict(zip(scenario.show, values.T, strict=True)))
    deployed = bool(scenario.clients.deployed)
    write_json(folder / records.METRICS, _measures(findings, client_data, served.fidelity, deployed=deployed))
    if findings.along:
        scores = {round: found.scores.values for round, found in findings.along.items()}
        write_json(folder / records.PROGRESS, scores)
        maps = {round: found.embedding for round, found in findings.along.items()}
        write_progress(folder / records.PROGRESS_MAPS, client_data, maps)
    write_json(folder / records.LEDGER, served.ledger.as_list())
    sizes = np.bincount(client_data.client_of_row, minlength=len(client_data.names)).tolist()
    cost = statement(served.ledger, scenario.privacy.budget, sizes)
    applied = tuple(site.applied for site in policies_of(client_data))
    write_json(folder / records.PRIVACY, asdict(replace(cost, policies=applied)))
    if served.outcome.stress is not None:
        write_json(folder / records.STRESS, served.outcome.stress.tolist())
    if served.outcome.notes:
        write_json(folder / records.NOTES, [asdict(note) for note in served.outcome.notes])
    write_rounds(folder / records.ROUNDS, journal.rounds)
    sealed = served.sealed_scaling
    prepared: Mapping[str, NDArray[Any]] = served.prepared.arrays if sealed is None else {KEYED: sealed}
    data = _mapped(scenario, client_data, served, findings)
    write_data(folder, data)
    own = served.prepared.kept_at_sites
    write_model(folder, {**served.outcome.model, **prepared}, data, sites=client_data.names, own=own)
