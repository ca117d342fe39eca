"""What only a simulation can know: the pooled-data map, and how faithful the federated one is to the pooled data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.errors import DataError
from raydr.geometry.points import Geometry, variances
from raydr.journal import Incident, Journal, Listener, within
from raydr.methods import MethodSettings, Outcome, Pooled
from raydr.metrics import Evidence, Scores, SharedGraph, evaluate, graph_size, metric_named
from raydr.metrics.sites import separation
from raydr.statistics.preparing import Preparation
from raydr.statistics.scaling import Scale
from raydr.threads import cores, one_blas_thread

APART_ROWS = 5_000
"""Of which it is told how far sites stand apart before and after they are harmonized."""


@dataclass(frozen=True)
class NewRows:
    """Rows that were held out, in the table's order.

    Attributes
    ----------
    rows : (rows, features) array
        As read.
    labels : (rows,) int or None
        Classes, by the same codes as those of the mapped rows.
    keyed : (rows, features) array or None
        Under the run's isometry key, where it has one: what its model knows.
    owners : (rows,) int or None
        Whose they are, where sites are harmonized.
    """

    rows: FloatArray
    labels: Int64Array | None
    keyed: FloatArray | None = None
    owners: Int64Array | None = None


@dataclass(kw_only=True, frozen=True)
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
    prepared : Preparation
        What the clients did to their rows.
    method : MethodSettings
        The method, which knows the true distances and the central map.
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
    new : NewRows or None
        To be placed on the maps.
    classes : (rows,) int or None
        What harmonizing keeps of the labels.
    scale : {"none", "standard", "minmax", "unit"}
        By which rows are compared with what they were before sites were harmonized.
    show : sequence of int
        Columns of the pooled data, as read, to hand back.
    """

    pooled: Callable[[], FloatArray]
    labels: Int64Array | None
    outcome: Outcome
    prepared: Preparation
    method: MethodSettings
    central: bool
    metrics: Sequence[str]
    seed: int
    snapshots: Mapping[int, Mapping[str, FloatArray]]
    client_of_row: Int64Array
    new: NewRows | None = None
    classes: Int64Array | None = None
    scale: Scale = "none"
    show: Sequence[int] = ()

    @property
    def asks(self) -> bool:
        """Whether it asks for anything that only the pooled rows tell; else nobody need bring them together."""
        harmonized = self.prepared.harmonization is not None
        return bool(
            self.central or self.metrics or self.snapshots or self.show or self.new is not None or harmonized
        )


@dataclass(frozen=True)
class Along:
    """A map (rows, dimensions) that the run would have drawn had it ended earlier, and its scores."""

    embedding: FloatArray
    scores: Scores


@dataclass(kw_only=True, frozen=True)
class Findings:
    """Scores of both maps, the pooled-data map, the bytes of the rows that were pooled, and maps along the way.

    ``placed`` (new rows, dimensions) is where the rows that were held out lie on the federated map, None where there
    are none or they have no place. ``deviation`` (features,) is that of the rows as they were mapped. Where sites were
    harmonized, ``before`` and ``after`` say how far their rows stood apart, by the names of metrics of sites.
    ``shown`` (rows, columns) are the columns that were asked for.
    """

    federated: Scores
    central: Scores | None
    pooled: Pooled | None
    pooled_bytes: int
    along: Mapping[int, Along] = field(default_factory=dict)
    placed: FloatArray | None = None
    deviation: Float64Array | None = None
    before: Mapping[str, float | None] = field(default_factory=dict)
    after: Mapping[str, float | None] = field(default_factory=dict)
    shown: FloatArray | None = None

    @classmethod
    def of_parts(cls, parts: Sequence[FloatArray], prepared: Preparation) -> Findings:
        """Of a run that asks for nothing that pooled rows tell: of ``parts``, if any, the deviation, one at a time."""
        rows, mean, squares = 0, np.zeros(()), np.zeros(())
        for part in parts:
            if not len(part):
                continue
            values = prepared.applied(part)
            more, shift = len(values), values.mean(axis=0, dtype=np.float64) - mean
            squares = squares + variances(values) * more + shift**2 * (rows * more / (rows + more))
            rows += more
            mean = mean + shift * (more / rows)
        deviation = np.sqrt(squares / rows) if rows else None
        return cls(federated=Scores({}, {}), central=None, pooled=None, pooled_bytes=0, deviation=deviation)


def examine(question: Question, *, listener: Listener) -> Findings:
    """Draw the central map, place new rows, and score both maps against the pooled, scaled rows."""
    journal = Journal(listener)
    read, prepared = question.pooled(), question.prepared
    shown = read[:, list(question.show)] if question.show else None
    rows = prepared.applied(read, question.client_of_row, question.classes)
    before: Mapping[str, float | None] = {}
    after: Mapping[str, float | None] = {}
    if prepared.harmonization is not None:
        with journal.stage("sites before and after"):
            before = _apart(prepared.without_harmonizing(read, question.scale), question)
            after = _apart(rows, question)
    with one_blas_thread():
        outcome, pooled = question.outcome, None
        method = question.method
        if question.central:
            with journal.stage("central map"):
                pooled = method.central(outcome.model, rows, question.seed, within(journal))
        sights: dict[int, Outcome] = {}
        if question.snapshots:
            with journal.stage("maps along the way"):
                sights = dict(_sights(question, rows, journal))
        new, new_central = None, None
        if question.new is not None and method.offers("transform"):
            with journal.stage("new rows"):
                scaled, labels = prepared.applied(question.new.rows, question.new.owners), question.new.labels
                known = scaled if question.new.keyed is None else question.new.keyed
                place = partial(method.transform, outcome.model, known)
                new = _placed(place, scaled, labels, question, journal)
                if pooled is not None and pooled.place is not None:
                    new_central = _placed(partial(pooled.place, scaled), scaled, labels, question, journal)
        with journal.stage("metrics"):
            # The pooled rows' geometry is the truth itself, so its recovery is no question.
            beside = [name for name in question.metrics if "recovered" not in metric_named(name).needs]
            sighted = [name for name in question.metrics if "new" not in metric_named(name).needs]
            truth = method.truth(rows)
            graph = SharedGraph(
                rows if truth is None else truth, neighbors=graph_size(question.metrics), threads=cores()
            )
            steps = len(question.metrics) + len(sights) * len(sighted) + len(beside) * (pooled is not None)
            scored = 0

            def scores(
                names: Sequence[str],
                found: Outcome | Pooled,
                recovered: Geometry | None,
                new: Evidence | None,
                lift: Callable[[FloatArray], Float64Array] | None = None,
            ) -> Scores:
                nonlocal scored
                before, scored = scored, scored + len(names)
                evidence = Evidence(
                    rows=rows,
                    embedding=found.embedding,
                    labels=question.labels,
                    recovered=recovered,
                    seed=question.seed,
                    row_neighbors=graph,
                    truth=truth,
                    mapped=method.mapped(found.embedding),
                    clusters=found.clusters,
                    sites=question.client_of_row,
                    new=new,
                    lift=lift,
                )
                return evaluate(
                    names,
                    evidence,
                    threads=cores(),
                    progress=lambda done, _: journal.progress(before + done, steps),
                )

            federated = scores(question.metrics, outcome, outcome.geometry, new, outcome.lift)
            along = {
                round: Along(sight.embedding, scores(sighted, sight, sight.geometry, None))
                for round, sight in sights.items()
            }
            central = None if pooled is None else scores(beside, pooled, None, new_central)
    if pooled is not None:
        pooled = replace(pooled, place=None)  # which holds all rows, and is not to travel with the findings
    deviation = np.sqrt(variances(rows))
    placed = None if new is None else new.embedding
    return Findings(
        federated=federated,
        central=central,
        pooled=pooled,
        pooled_bytes=rows.nbytes,
        along=along,
        placed=placed,
        deviation=deviation,
        before=before,
        after=after,
        shown=shown,
    )


def _apart(rows: FloatArray, question: Question) -> Mapping[str, float | None]:
    """How far sites stand apart, not on a map but as their rows lie; of many rows of a sample."""
    owners, chosen = question.client_of_row, np.arange(len(rows))
    if len(rows) > APART_ROWS:
        random = np.random.default_rng((question.seed, APART_ROWS))
        chosen = np.sort(random.choice(len(rows), APART_ROWS, replace=False))
    return separation(rows[chosen], owners[chosen], threads=cores())


def _placed(
    place: Callable[[], FloatArray],
    scaled: FloatArray,
    labels: Int64Array | None,
    question: Question,
    journal: Journal,
) -> Evidence | None:
    """New rows on a map, as evidence; None, and an incident that says why, where they have no place there."""
    method = question.method
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            places = place()
        truth = method.truth(scaled)
        mapped = method.mapped(places)
        return Evidence(
            rows=scaled, embedding=places, labels=labels, seed=question.seed, truth=truth, mapped=mapped
        )
    except DataError as error:
        # Values that no mapped row comes near to, say: what else came of the run is not to be lost by them.
        journal.tell(Incident(f"rows that were held out have no place on the map: {error}"))
        return None


def _sights(question: Question, rows: FloatArray, journal: Journal) -> Iterator[tuple[int, Outcome]]:
    """Maps along the way, by round, in the table's order."""
    if not question.method.offers("redraw"):
        return
    owners = question.client_of_row
    parts = [rows[owners == client] for client in range(int(owners.max()) + 1)]
    order = np.argsort(np.argsort(owners, kind="stable"))
    for done, (round, snapshot) in enumerate(question.snapshots.items()):
        journal.progress(done, len(question.snapshots))
        drawn = question.method.redraw(snapshot, parts, question.seed, Journal())
        geometry = drawn.geometry.take(order) if drawn.geometry is not None else None
        yield round, Outcome(embedding=drawn.embedding[order], geometry=geometry)
