"""Evaluation on pooled data, which only a simulation has: the pooled-data map and the metrics of both maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.data.survey.layout import JointColumns
from raydr.errors import DataError
from raydr.extras import without
from raydr.geometry.points import Geometry, Points, variances
from raydr.geometry.sparse_points import SparsePoints
from raydr.journal import IncidentEvent, Journal, Listener, within
from raydr.methods import MethodSettings, Outcome, Pooled
from raydr.methods.outcome import Placed
from raydr.metrics import Evidence, Scores, SharedGraph, evaluate, graph_size, metric_named
from raydr.metrics.drift import Drift, drift_by_period
from raydr.metrics.islands import Islands, islands
from raydr.metrics.sites import separation
from raydr.scenarios.running.own_maps import mean_scores, own_maps
from raydr.sparse_rows import SparseRows, rows_taken
from raydr.statistics.preparing import Preparation
from raydr.statistics.scaling import NOTHING_JOINT, Scale
from raydr.threads import cores, one_blas_thread

SHOWS_LABEL = "data.target_weight puts the label into the map, so it would say nothing about the features"
"""Why metrics of classes on a map have no value if labels steer it."""
ESTIMATED = ("npa_10", "trustworthiness", "continuity")
"""Metrics that a federation can estimate without pooling rows."""
RECOVERED_ROWS = 2_000
"""Maximum number of rows for scores by recovered distances. The standard error of ``npa_10`` is then about 0.006."""
APART_ROWS = 5_000
"""Maximum number of rows for measuring the separation of sites before and after harmonizing."""


@dataclass(frozen=True)
class NewRows:
    """Held-out rows, in the table's order.

    Attributes
    ----------
    rows : (rows, features) array
        Rows as read.
    labels : (rows,) int or None
        Classes, with the same codes as for the mapped rows.
    keyed : (rows, features) array or None
        Rows transformed by the run's isometry key, as its model needs them; None without a key.
    owners : (rows,) int or None
        Site of each row; None if sites are not harmonized.
    """

    rows: FloatArray
    labels: Int64Array | None
    keyed: FloatArray | None = None
    owners: Int64Array | None = None


@dataclass(kw_only=True, frozen=True)
class Question:
    """Input of the evaluation; all arrays are in the table's order.

    Attributes
    ----------
    pooled : callable
        Returns the pooled data, (rows, features), as read; only the evaluation calls it.
    labels : (rows,) int or None
        Classes.
    outcome : Outcome
        The federated map, the server's estimate of distances between rows, clusters, and the model.
    prepared : Preparation
        The clients' filling, harmonizing and scaling.
    method : MethodSettings
        The method, which defines true distances and the pooled-data map.
    central : bool
        Whether to draw the pooled-data map too.
    metrics : sequence of str
        Names of metrics.
    seed : int
        The run's seed.
    snapshots : mapping of round to mapping of name to array
        State of the method after some rounds; maps of it are drawn and scored too.
    client_of_row : (rows,) int
        Client of each row. Maps of rounds are drawn in client order, like the final map.
    new : NewRows or None
        Rows to place on the maps.
    classes : (rows,) int or None
        Classes whose effect harmonizing keeps.
    targets : (rows,) float or None
        Labels that steer the map.
    scale : {"none", "standard", "minmax", "unit"}
        Scaling for the comparison of rows before and after harmonizing.
    joint : JointColumns
        Columns of several features, such as words: see :func:`raydr.statistics.scaling.fit_scaling`.
    show : sequence of int
        Columns of the pooled data, as read, to return.
    islands : bool
        Whether to find the islands of the federated map and test them.
    periods : (rows,) int or None
        Period of each row; None without periods.
    determined : bool
        Whether the messages determine all rows exactly, so that the server can score the map itself.
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
    targets: Float64Array | None = None
    scale: Scale = "none"
    joint: JointColumns = NOTHING_JOINT
    show: Sequence[int] = ()
    islands: bool = False
    periods: Int64Array | None = None
    determined: bool = False

    @property
    def asks(self) -> bool:
        """Whether the evaluation needs pooled rows; otherwise they are not pooled."""
        harmonized = self.prepared.harmonization is not None
        return bool(
            self.central or self.metrics or self.snapshots or self.show or self.new is not None or harmonized
        )


@dataclass(frozen=True)
class ScoredSnapshot:
    """A map (rows, dimensions) of the run after some round, and its scores."""

    embedding: FloatArray
    scores: Scores


@dataclass(kw_only=True, frozen=True)
class Findings:
    """Scores of both maps, the pooled-data map, the bytes of the pooled rows, and maps of rounds.

    ``placed`` has the positions of held-out rows on the federated map, and their novelty. It is None if there are none
    or they have no place. ``deviation`` (features,) is the standard deviation of the mapped rows. ``before`` and
    ``after`` measure the separation of sites before and after harmonizing, by metric. ``shown`` (rows, columns) has the
    columns of ``show``. ``islands`` are those of the federated map, or None if they were not looked for. ``recovered``
    scores the federated map by the distances that the server recovered, or is None if there are none. ``drifts`` counts
    the rows of each period that are unlike those of the first one.
    """

    federated: Scores
    central: Scores | None
    pooled: Pooled | None
    pooled_bytes: int
    along: Mapping[int, ScoredSnapshot] = field(default_factory=dict)
    placed: Placed | None = None
    deviation: Float64Array | None = None
    before: Mapping[str, float | None] = field(default_factory=dict)
    after: Mapping[str, float | None] = field(default_factory=dict)
    shown: FloatArray | None = None
    islands: Islands | None = None
    recovered: Scores | None = None
    drifts: Mapping[int, Drift] = field(default_factory=dict)

    @classmethod
    def of_parts(cls, parts: Sequence[FloatArray], prepared: Preparation) -> Findings:
        """Return findings without pooled rows: only the standard deviation, from one part of ``parts`` at a time."""
        rows, mean, squares = 0, np.zeros(()), np.zeros(())
        for part in parts:
            if not len(part):
                continue
            values = prepared.features(part)
            more, shift = len(values), values.mean(axis=0, dtype=np.float64) - mean
            squares = squares + variances(values) * more + shift**2 * (rows * more / (rows + more))
            rows += more
            mean = mean + shift * (more / rows)
        deviation = np.sqrt(squares / rows) if rows else None
        return cls(federated=Scores({}, {}), central=None, pooled=None, pooled_bytes=0, deviation=deviation)

    @classmethod
    def of_server(cls, question: Question) -> Findings:
        """Return what the server of a deployed run can find: the fidelity of the map by distances that it recovered."""
        nothing = Scores({}, {})
        if not question.outcome.published:
            return cls(federated=nothing, central=None, pooled=None, pooled_bytes=0)
        recovered = _by_recovered(replace(question, metrics=ESTIMATED))
        return cls(federated=nothing, central=None, pooled=None, pooled_bytes=0, recovered=recovered)


_LIBRARIES = (
    "raydr.metrics.kernels.groups",
    "sklearn.cluster",
    "sklearn.model_selection",
    "sklearn.neighbors",
)


def load_libraries() -> None:
    """Import what most evaluations need, and load compiled loops, in a process that has time for it.

    scikit-learn would load pandas, only to recognise its tables: 60 MB and 0.4 s.
    """
    from raydr.geometry.neighbors import nearest_neighbors
    from raydr.geometry.points import Points

    with without("pandas"):
        for library in _LIBRARIES:
            import_module(library)
    nearest_neighbors(Points(np.eye(4)), 2)


def examine(question: Question, *, listener: Listener) -> Findings:
    """Draw the pooled-data map, place new rows, and score both maps against the pooled, scaled rows.

    If labels steer, the mapped rows have the label's block. Metrics compare maps with the features alone, except for
    those of the geometry that the server recovered, which has the block too. Metrics of classes on the map then have no
    value, except for held-out rows.
    """
    journal = Journal(listener)
    read, prepared = question.pooled(), question.prepared
    shown = read[:, list(question.show)] if question.show else None
    rows = prepared.features(read, question.client_of_row, question.classes)
    steering = prepared.steering
    steered = rows if steering is None else steering.applied(rows, question.targets)
    before: Mapping[str, float | None] = {}
    after: Mapping[str, float | None] = {}
    if prepared.harmonization is not None:
        with journal.stage("sites before and after"):
            before = _apart(prepared.without_harmonizing(read, question.scale, question.joint), question)
            after = _apart(rows, question)
    with one_blas_thread():
        outcome, pooled = question.outcome, None
        method = question.method
        if question.central:
            with journal.stage("central map"):
                pooled = method.central(outcome.model, steered, question.seed, within(journal))
        sights: dict[int, Outcome] = {}
        if question.snapshots:
            with journal.stage("maps along the way"):
                sights = dict(_sights(question, steered, journal))
        new, new_central, novelty = None, None, None
        apart = question.new is not None and method.offers("transform_alone")
        if question.new is not None:
            with journal.stage("new rows"):
                scaled, labels = (
                    prepared.features(question.new.rows, question.new.owners),
                    question.new.labels,
                )
                unlabelled = scaled if steering is None else steering.applied(scaled)
                known = unlabelled if question.new.keyed is None else question.new.keyed
                if not apart:
                    place = partial(method.transform, outcome.model)
                    new = _placed(place, known, scaled, labels, question, journal)
                if new is not None:
                    by_block = [method.novelty(outcome.model, block) for block in _blocks(known)]
                    told = [found for found in by_block if found is not None]
                    novelty = np.concatenate(told) if told else None
                if pooled is not None and pooled.place is not None:
                    new_central = _placed(pooled.place, unlabelled, scaled, labels, question, journal)
        with journal.stage("metrics"):
            # The pooled-data map uses the true geometry, so recovery metrics do not apply.
            compared = [name for name in question.metrics if "recovered" not in metric_named(name).needs]
            scored_along = [name for name in question.metrics if "new" not in metric_named(name).needs]
            truth = method.truth(rows)
            truth = _sparse_truth(rows) if truth is None else truth
            graph = SharedGraph(
                rows if truth is None else truth, neighbors=graph_size(question.metrics), threads=cores()
            )
            # A label that steers moves rows, and metrics compare with rows without it.
            drawn_by = method.drawn_by if steering is None else None
            steps = (
                len(question.metrics) + len(sights) * len(scored_along) + len(compared) * (pooled is not None)
            )
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
                    periods=question.periods,
                    new=new,
                    lift=lift,
                    drawn_by=drawn_by if found is pooled or method.draws_all_rows else None,
                )

                def scored_by(some: Sequence[str], evidence: Evidence) -> Scores:
                    return evaluate(
                        some,
                        evidence,
                        threads=cores(),
                        progress=lambda done, _: journal.progress(before + done, steps),
                    )

                if steering is None:
                    return scored_by(names, evidence)
                with_label = replace(evidence, rows=steered, row_neighbors=None, truth=_sparse_truth(steered))
                return _steered(names, evidence, with_label, scored_by)

            on_one_map = scored_along if apart else question.metrics
            federated = scores(on_one_map, outcome, outcome.geometry, new, outcome.lift)
            if apart:
                of_new = [name for name in question.metrics if name not in scored_along]
                each = own_maps(
                    method,
                    outcome.own_models,
                    rows,
                    scaled,
                    labels=(question.labels, labels),
                    names=of_new,
                    seed=question.seed,
                )
                federated = federated.joined(mean_scores(of_new, each, threads=cores()))
            along = {
                round: ScoredSnapshot(sight.embedding, scores(scored_along, sight, sight.geometry, None))
                for round, sight in sights.items()
            }
            central = None if pooled is None else scores(compared, pooled, None, new_central)
            recovered = _by_recovered(question)
        found_islands = None
        if question.islands:
            with journal.stage("islands"):
                seen = Evidence(
                    rows=rows,
                    embedding=outcome.embedding,
                    seed=question.seed,
                    truth=truth,
                    mapped=method.mapped(outcome.embedding),
                )
                found_islands = islands(seen)
        drifts: Mapping[int, Drift] = {}
        if question.periods is not None:
            with journal.stage("periods"):
                drifts = drift_by_period(truth or Points(rows), question.periods, seed=question.seed)
    if pooled is not None:
        pooled = replace(pooled, place=None)  # it refers to all rows, which must not travel with the findings
    deviation = np.sqrt(variances(rows))
    placed = None if new is None else Placed(new.embedding, novelty=novelty)
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
        islands=found_islands,
        recovered=recovered,
        drifts=drifts,
    )


def _by_recovered(question: Question) -> Scores | None:
    """Score the federated map as its server can: by the distances that it recovered, on a sample of many rows.

    A map shows the errors of recovered distances too. *Measured* on digits with 10 landmarks, ``npa_10`` is 0.135 too
    high by these, and 0.054 after subtracting what it is too high within sites. So they must be exact.
    """
    outcome, names = question.outcome, [name for name in ESTIMATED if name in question.metrics]
    if (
        not question.determined
        or outcome.geometry is None
        or question.prepared.steering is not None
        or not names
    ):
        return None
    evidence = Evidence(
        rows=outcome.embedding,  # not looked at: the geometry replaces the distances of rows
        embedding=outcome.embedding,
        truth=outcome.geometry,
        mapped=question.method.mapped(outcome.embedding),
        seed=question.seed,
    )
    rows = len(outcome.embedding)
    return evaluate(
        names, evidence, threads=cores(), exact_rows=RECOVERED_ROWS, sampled_rows=min(RECOVERED_ROWS, rows)
    )


def _sparse_truth(rows: FloatArray) -> SparsePoints | None:
    return SparsePoints(rows) if isinstance(rows, SparseRows) else None


def _steered(
    names: Sequence[str],
    evidence: Evidence,
    with_label: Evidence,
    scored: Callable[[Sequence[str], Evidence], Scores],
) -> Scores:
    """Score a map that labels steered; ``with_label`` has the rows with the label's block."""
    needs = {name: metric_named(name).needs for name in names}
    shown = [name for name in names if "labels" in needs[name] and "new" not in needs[name]]
    found = scored(
        [name for name in names if not {"recovered"} & needs[name] and name not in shown], evidence
    )
    known = scored([name for name in names if "recovered" in needs[name]], with_label)
    return found.joined(known).joined(Scores({}, dict.fromkeys(shown, SHOWS_LABEL)))


def _apart(rows: FloatArray, question: Question) -> Mapping[str, float | None]:
    """Measure the separation of sites in the rows themselves, on a sample of large tables."""
    owners, chosen = question.client_of_row, np.arange(len(rows))
    if len(rows) > APART_ROWS:
        random = np.random.default_rng((question.seed, APART_ROWS))
        chosen = np.sort(random.choice(len(rows), APART_ROWS, replace=False))
    return separation(rows[chosen], owners[chosen], threads=cores())


def _placed(
    place: Callable[[FloatArray], FloatArray],
    rows: FloatArray,
    scaled: FloatArray,
    labels: Int64Array | None,
    question: Question,
    journal: Journal,
) -> Evidence | None:
    """Place new rows on a map and return evidence; None, with an incident, if they have no place."""
    method = question.method
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            places = np.concatenate([place(block) for block in _blocks(rows)])
        truth = method.truth(scaled)
        truth = _sparse_truth(scaled) if truth is None else truth
        mapped = method.mapped(places)
        return Evidence(
            rows=scaled, embedding=places, labels=labels, seed=question.seed, truth=truth, mapped=mapped
        )
    except DataError as error:
        # For example, values far from all mapped rows. The other results of the run must not be lost.
        journal.tell(IncidentEvent(f"held-out rows have no place on the map: {error}"))
        return None


def _blocks(rows: FloatArray) -> Iterable[FloatArray]:
    """Return dense blocks of rows."""
    return rows.blocks() if isinstance(rows, SparseRows) else [rows]


def _sights(question: Question, rows: FloatArray, journal: Journal) -> Iterator[tuple[int, Outcome]]:
    """Yield maps of rounds in the table's order."""
    if not question.method.offers("redraw"):
        return
    owners = question.client_of_row
    parts = [rows_taken(rows, np.flatnonzero(owners == client)) for client in range(int(owners.max()) + 1)]
    order = np.argsort(np.argsort(owners, kind="stable"))
    for done, (round, snapshot) in enumerate(question.snapshots.items()):
        journal.progress(done, len(question.snapshots))
        drawn = question.method.redraw(snapshot, parts, question.seed, Journal())
        geometry = drawn.geometry.take(order) if drawn.geometry is not None else None
        yield round, Outcome(embedding=drawn.embedding[order], geometry=geometry)
