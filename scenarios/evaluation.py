"""What only a simulation can know: the pooled-data map, and how faithful the federated one is to the pooled data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from raydr.arrays import FloatArray, Int64Array
from raydr.geometry.points import Geometry
from raydr.journal import Event, Incident, Journal, Listener, Progress
from raydr.methods import METHODS, Outcome, Pooled
from raydr.metrics import Evidence, Scores, evaluate, graph_size, metric_named, row_graph
from raydr.settings import Settings
from raydr.statistics.scaling import Scaling, scale_rows
from raydr.threads import cores, one_blas_thread


@dataclass(frozen=True)
class Question:
    """Everything that the evaluation looks at; all arrays in the table's order.

    Attributes
    ----------
    pooled : callable
        Brings the pooled data, (rows, features), as read; called by the evaluation and nobody else.
    labels : (rows,) int or None
        Classes.
    outcome : Outcome
        The federated map, what the server took the distances between rows to be, clusters, and what the run used.
    scaling : Scaling
        What the clients scaled by.
    method : str
        A name of :data:`raydr.methods.METHODS`, which knows the true distances and the central map.
    settings : Settings
        That method's settings.
    central : bool
        Whether to draw the central map too.
    metrics : sequence of str
        Names of metrics.
    seed : int
        The run's seed.
    snapshots : mapping of round to mapping of name to array
        What the method had learnt along the way, to be drawn and scored too.
    client_of_row : (rows,) int
        Which client holds each row: a map along the way is drawn in the clients' order, as the run's own.
    """

    pooled: Callable[[], FloatArray]
    labels: Int64Array | None
    outcome: Outcome
    scaling: Scaling
    method: str
    settings: Settings
    central: bool
    metrics: Sequence[str]
    seed: int
    snapshots: Mapping[int, Mapping[str, FloatArray]]
    client_of_row: Int64Array


@dataclass(frozen=True)
class Along:
    """A map (rows, dimensions) that the run would have drawn had it ended earlier, and its scores."""

    embedding: FloatArray
    scores: Scores


@dataclass(frozen=True)
class Findings:
    """Scores of both maps, the pooled-data map, the bytes of the rows that were pooled, and maps along the way."""

    federated: Scores
    central: Scores | None
    pooled: Pooled | None
    pooled_bytes: int
    along: Mapping[int, Along] = field(default_factory=dict)


def examine(question: Question, *, listener: Listener) -> Findings:
    """Draw the central map and score both maps against the pooled, scaled rows."""
    journal = Journal(listener)
    rows = scale_rows(question.pooled(), question.scaling)
    with one_blas_thread():
        outcome, pooled = question.outcome, None
        method = METHODS[question.method]
        if question.central:
            with journal.stage("central map"):
                pooled = method.central(
                    question.settings, outcome.model, rows, question.seed, _own_progress(journal)
                )
        sights: dict[int, Outcome] = {}
        if question.snapshots:
            with journal.stage("maps along the way"):
                sights = dict(_sights(question, rows, journal))
        with journal.stage("metrics"):
            # The pooled rows' geometry is the truth itself, so its recovery is no question.
            beside = [name for name in question.metrics if "recovered" not in metric_named(name).needs]
            truth = method.truth(question.settings, rows)
            graph = row_graph(
                rows if truth is None else truth, neighbors=graph_size(question.metrics), threads=cores()
            )
            steps = (1 + len(sights)) * len(question.metrics) + (len(beside) if pooled is not None else 0)

            def scored(
                names: Sequence[str], found: Outcome | Pooled, recovered: Geometry | None, before: int
            ) -> Scores:
                evidence = Evidence(
                    rows,
                    found.embedding,
                    question.labels,
                    recovered,
                    question.seed,
                    graph,
                    truth=truth,
                    mapped=method.mapped(question.settings, found.embedding),
                    clusters=found.clusters,
                )
                return evaluate(
                    names,
                    evidence,
                    threads=cores(),
                    progress=lambda done, _: journal.progress(before + done, steps),
                )

            federated = scored(question.metrics, outcome, outcome.geometry, 0)
            along = {
                round: Along(
                    sight.embedding,
                    scored(question.metrics, sight, sight.geometry, number * len(question.metrics)),
                )
                for number, (round, sight) in enumerate(sights.items(), 1)
            }
            before = (1 + len(sights)) * len(question.metrics)
            central = None if pooled is None else scored(beside, pooled, None, before)
    return Findings(federated, central, pooled, rows.nbytes, along)


def _sights(question: Question, rows: FloatArray, journal: Journal) -> Iterator[tuple[int, Outcome]]:
    """Maps along the way, by round, in the table's order."""
    owners, redraw = question.client_of_row, METHODS[question.method].redraw
    if redraw is None:
        return
    parts = [rows[owners == client] for client in range(int(owners.max()) + 1)]
    order = np.argsort(np.argsort(owners, kind="stable"))
    for done, (round, snapshot) in enumerate(question.snapshots.items()):
        journal.progress(done, len(question.snapshots))
        drawn = redraw(question.settings, snapshot, parts, question.seed, Journal())
        geometry = drawn.geometry.take(order) if drawn.geometry is not None else None
        yield round, Outcome(drawn.embedding[order], geometry)


def _own_progress(journal: Journal) -> Journal:
    """A journal whose long stages move the present one of ``journal``, that tells incidents, and keeps the rest."""

    def hear(event: Event) -> None:
        match event:
            case Progress("embedding" | "clusters", done, total):
                journal.progress(done, total)
            case Incident():
                journal.tell(event)

    return Journal(hear)
