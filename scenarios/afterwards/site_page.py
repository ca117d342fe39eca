"""A site's own page of a deployed run: its own rows on the map, with its labels, made and kept at the site.

The page is that of a run folder with the site's rows alone. Metrics compare the site's part of the map with the site's
rows, in the same way as the evaluation of a simulation. The ledger is the site's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path

import numpy as np

from raydr.data.site import gaps_of
from raydr.deployment.site_host import Finished
from raydr.documents import parse_yaml
from raydr.errors import DataError, ScenarioError
from raydr.federation import Reply
from raydr.journal import Journal, Listener, unheard
from raydr.memory import peak_memory_bytes
from raydr.methods.fidelity import Fidelity
from raydr.methods.outcome import Note, Outcome
from raydr.methods.serving import Served
from raydr.plain import listed
from raydr.runfolder import records
from raydr.runfolder.making import incomplete
from raydr.runfolder.writing import write_json
from raydr.scenarios.afterwards.showing import shown
from raydr.scenarios.running.checkpoints import Checkpoints
from raydr.scenarios.running.client_data import ClientData
from raydr.scenarios.running.environment import environment
from raydr.scenarios.running.evaluation import Question, examine
from raydr.scenarios.running.harmony import harmonizing_of
from raydr.scenarios.running.pooling import Dealt
from raydr.scenarios.running.simulation import write_results
from raydr.scenarios.running.times import times_of
from raydr.scenarios.schema.reading import read
from raydr.scenarios.schema.scenario import Scenario
from raydr.statistics.harmonizing import OwnEffect
from raydr.statistics.preparing import Preparation

PAGES = "maps"
"""Folder with a run folder for each run, in the site's own folder."""


def write_site_page(ended: Finished, *, listener: Listener = unheard) -> Path:
    """Write the run folder of a site's own rows, with its page, and return it.

    Raises
    ------
    OutputError
        If the site's folder cannot be written.
    RunError
        If only the picture or the page is missing.
    """
    now, journal = datetime.now().astimezone(), Journal(listener)
    text = ended.start.agreement.scenario
    scenario = scenario_of(text)
    client_data = own_client_data(ended, scenario)
    served = own_results(ended, scenario, client_data)
    with journal.stage("site's map"):
        findings = examine(question_of(scenario, client_data, served), listener=listener)
    place = Path(ended.site.folder) / PAGES
    name = f"{scenario.name}-{now:%Y%m%d-%H%M%S}-{ended.start.run[:8]}"
    with incomplete(place / name, Checkpoints) as folder:
        (folder / records.SCENARIO).write_text(text, encoding="utf-8")
        described = environment(
            run=ended.start.run,
            started=now,
            federation="deployed",
            actors=0,
            device="cpu",
            peak_memory_bytes={"site": peak_memory_bytes()},
        )
        write_results(folder, scenario, client_data, served, findings, journal)
        write_json(folder / records.ENVIRONMENT, asdict(replace(described, seconds=dict(journal.seconds))))
    return shown((place / name).absolute(), listener)


def scenario_of(text: str) -> Scenario:
    """Return the scenario that the server sent.

    Raises
    ------
    ScenarioError
        If it is invalid, or names a codebook file: raydr would open a file of the server's choice at the site.
    """
    content = parse_yaml(text)
    data = content.get("data") if isinstance(content, Mapping) else None
    if isinstance(data, Mapping) and isinstance(data.get("codebook"), str):
        raise ScenarioError(
            "the server's scenario names a file in data.codebook, which a site does not open: expected the"
            " rows of the codebook"
        )
    return read(content)


def own_client_data(ended: Finished, scenario: Scenario) -> ClientData:
    """Return the site's own rows as the data of one client."""
    table, data = ended.table, scenario.data
    owners = np.zeros(len(table.rows), np.int64)
    dealt = Dealt(table.rows, owners, 1)
    layout = ended.start.file.layout or table.layout
    times = None
    with suppress(DataError):  # one period at this site
        times = times_of(data.time, table.times, table.time_names)
    return ClientData(
        names=(ended.site.name,),
        held=dealt,
        client_of_row=owners,
        ids=table.ids,
        labels=table.labels,
        label_names=table.label_names,
        feature_names=table.features,
        pooled=dealt,
        sources=(replace(table.read_from, client=ended.site.name),),
        filling=data.filling,
        gaps=[gaps_of(table.rows)] if data.filling else (),
        words=layout.words,
        units=layout.units,
        codings=layout.codings,
        harmonizing=harmonizing_of(data, layout, ended.start.label_names),
        target=ended.start.target,
        times=times,
        notices=table.doubts,
    )


def own_results(ended: Finished, scenario: Scenario, client_data: ClientData) -> Served:
    """Return the results of the run as the site has them."""
    request, harmonizing = ended.request, client_data.harmonizing
    fidelity = None
    if request.fidelity_rows:
        fidelity = Fidelity(request.fidelity_rows, request.fidelity, request.errors)
    prepared = Preparation.of(
        request.model,
        _own_effect(ended.kept),
        scenario.data.metric,
        None if harmonizing is None else harmonizing.kind,
    )
    arrays = prepared.arrays
    note = Note(
        "The site's own page",
        f"This page has the {len(ended.places):,} rows of {ended.site.name}, and their identities and labels did not"
        f" leave the site. All sites: {listed(list(ended.start.agreement.sites), 12)}. Metrics compare this part of the"
        " map with these rows. What left is what left this site.",
    )
    outcome = Outcome(
        embedding=np.asarray(ended.places),
        geometry=None,
        model={name: array for name, array in request.model.items() if name not in arrays},
        notes=(note,),
    )
    return Served(outcome, prepared, ended.ledger.content, fidelity=fidelity)


def question_of(scenario: Scenario, client_data: ClientData, served: Served) -> Question:
    """Return the question to the evaluation: the default metrics, which the site computes with its rows alone."""
    metrics = scenario.model_copy(update={"clients": scenario.clients.model_copy(update={"deployed": ()})})
    return Question(
        pooled=client_data.pooled,
        labels=client_data.labels,
        outcome=served.outcome,
        prepared=served.prepared,
        method=scenario.method,
        central=False,
        metrics=metrics.metric_names({"clusters", "new", "sites", "recovered"}),
        seed=scenario.seed,
        snapshots={},
        client_of_row=client_data.client_of_row,
        classes=None,
        targets=client_data.targets,
        scale=scenario.data.scale,
        joint=client_data.layout.joint,
        periods=client_data.periods,
    )


def _own_effect(kept: Sequence[Reply]) -> dict[str, np.ndarray]:
    """Return what harmonizing did to the site's rows, which stayed at the site."""
    for reply in kept:
        if isinstance(reply, OwnEffect):
            return {"shift": reply.shift[None], "factor": reply.factor[None]}
    return {}
