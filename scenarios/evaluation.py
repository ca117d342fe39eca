"""What only a simulation can know: the pooled-data map, and how faithful the federated one is to the pooled data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raydr.arrays import FloatArray, Int64Array
from raydr.geometry.points import Geometry
from raydr.journal import Event, Incident, Journal, Listener, Progress
from raydr.methods import METHODS, Outcome, Pooled
from raydr.metrics import METRICS, Evidence, Scores, evaluate, row_graph
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


@dataclass(frozen=True)
class Findings:
    """Scores of the federated map, the pooled-data map with its own, and the bytes of the rows that were pooled."""

    federated: Scores
    central: Scores | None
    pooled: Pooled | None
    pooled_bytes: int


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
        with journal.stage("metrics"):
            # The pooled rows' geometry is the truth itself, so its recovery is no question.
            beside = [name for name in question.metrics if "recovered" not in METRICS[name].needs]
            truth = method.truth(question.settings, rows)
            graph = row_graph(rows if truth is None else truth, threads=cores())
            steps = len(question.metrics) + (len(beside) if pooled is not None else 0)

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
            central = None if pooled is None else scored(beside, pooled, None, len(question.metrics))
    return Findings(federated, central, pooled, rows.nbytes)


def _own_progress(journal: Journal) -> Journal:
    """A journal whose long stages move the present one of ``journal``, that tells incidents, and keeps the rest."""

    def hear(event: Event) -> None:
        match event:
            case Progress("embedding" | "clusters", done, total):
                journal.progress(done, total)
            case Incident():
                journal.tell(event)

    return Journal(hear)
