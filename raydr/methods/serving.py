"""The server's side of a run: scale the rows, run the method, close the ledger."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from raydr.arrays import Float64Array, Int64Array, UInt8Array, shaped
from raydr.data.loading import Filling
from raydr.data.survey.layout import JointColumns
from raydr.data.survey.raw_cells import RawColumn
from raydr.errors import RunError
from raydr.federation import Context, Effort, FaultPlan, Federation, Rehearsal, RehearsalClients, Transport
from raydr.federation.blurring import blur_records
from raydr.federation.checkpoint import Checkpoint
from raydr.federation.transcript import Transcript
from raydr.journal import Journal
from raydr.methods import METHODS, MethodSettings
from raydr.methods.fidelity import Fidelity, estimated_fidelity, keep_rows
from raydr.methods.outcome import Note, Outcome
from raydr.methods.references import without_labels
from raydr.privacy.ledger import Ledger
from raydr.statistics.dissimilarity import Metric, fit_transformation
from raydr.statistics.filling import fit_filling
from raydr.statistics.harmonizing import Harmonizing, fit_harmonizing
from raydr.statistics.keying import key_rows, keyed_metric, keyed_scale
from raydr.statistics.moments import spread
from raydr.statistics.noisy_survey import fit_survey
from raydr.statistics.preparing import Preparation
from raydr.statistics.scaling import NOTHING_JOINT, Scale, Scaling, fit_scaling
from raydr.statistics.steering import Target, fit_steering
from raydr.threads import one_blas_thread


@dataclass(kw_only=True, frozen=True)
class Plan(Context):
    """Plan of a federation: the method, its settings, and the context, for any transport.

    Attributes
    ----------
    method : str
        A name of :data:`raydr.methods.METHODS`.
    settings : MethodSettings
        That method's settings.
    scale : {"none", "standard", "minmax", "maxabs"}
        See :func:`raydr.statistics.scaling.fit_scaling`.
    metric : Metric
        See :mod:`raydr.statistics.dissimilarity`.
    fill : {"mean", "median"} or None
        Replacement of missing values: see :func:`raydr.statistics.filling.fit_filling`; None if there are none.
    joint : JointColumns
        Columns of several features, such as words: see :func:`raydr.statistics.scaling.fit_scaling`.
    harmonize : Harmonizing or None
        Adjustment of sites to each other: see :func:`raydr.statistics.harmonizing.fit_harmonizing`; None for none.
    cells : tuple of RawColumn or None
        Columns of raw cells, which a noisy survey prepares instead of ``scale``, ``metric`` and ``fill``: see
        :mod:`raydr.statistics.noisy_survey`.
    target : Target or None
        The label that steers: see :mod:`raydr.statistics.steering`; None for none.
    public_targets : (public rows,) float64 or None
        Labels of the public rows, as ``target`` numbers them.
    faults : FaultPlan
        Simulated faults.
    geometry : bool
        Whether the recovered geometry is kept for later; if not, it is dropped after use.
    fidelity_rows : int
        Rows from which the fidelity of the map is estimated without pooling: see :mod:`raydr.methods.fidelity`. 0 for
        no estimate.
    """

    method: str
    settings: MethodSettings
    scale: Scale
    metric: Metric = "euclidean"
    fill: Filling | None = None
    joint: JointColumns = NOTHING_JOINT
    harmonize: Harmonizing | None = None
    cells: tuple[RawColumn, ...] | None = None
    target: Target | None = None
    public_targets: Float64Array | None = None
    faults: FaultPlan = field(default_factory=FaultPlan)
    geometry: bool = True
    fidelity_rows: int = 0


@dataclass(frozen=True)
class Served:
    """State of the server at the end of a run.

    Attributes
    ----------
    outcome : Outcome
        The map and the geometry behind it, rows in client order.
    prepared : Preparation
        Preprocessing of the clients' rows before the method. With harmonization also what each client keeps,
        for the evaluation.
    ledger : Ledger
        Every message.
    sealed_scaling : (bytes,) uint8 or None
        Scaling of a keyed run, which only clients can read; the preparation is then empty.
    deviation : (features,) float64 or None
        Standard deviation of each feature as mapped, if sums of the run gave it.
    fidelity : Fidelity or None
        Metrics of the map that were estimated without pooling, if the plan asks for them.
    network_seconds : float or None
        Seconds of all messages on the clients' lines; None if the plan has no lines.
    """

    outcome: Outcome
    prepared: Preparation
    ledger: Ledger
    sealed_scaling: UInt8Array | None = None
    deviation: Float64Array | None = None
    fidelity: Fidelity | None = None
    network_seconds: float | None = None

    def reordered(self, order: Int64Array) -> Served:
        """Return the same, with row ``order[i]`` of the outcome as row ``i``."""
        geometry, clusters = self.outcome.geometry, self.outcome.clusters
        outcome = replace(
            self.outcome,
            embedding=self.outcome.embedding[order],
            geometry=geometry.take(order) if geometry is not None else None,
            clusters=clusters[order] if clusters is not None else None,
        )
        return replace(self, outcome=outcome)


def serve(
    transport: Transport,
    clients: int,
    plan: Plan,
    *,
    journal: Journal,
    resume: Checkpoint | None = None,
    released: Sequence[str] = (),
    transcript: Transcript | None = None,
) -> Served:
    """Run a plan over a transport that reaches ``clients`` clients, from a checkpoint if there is one.

    ``released`` are the charged releases recorded before. The server's view is recorded in ``transcript`` if
    given.
    """
    with one_blas_thread():
        with journal.stage("clients"):
            federation = Federation(
                transport,
                clients,
                plan,
                journal=journal,
                resume=resume,
                released=released,
                transcript=transcript,
            )
        prepared, sealed = _prepared(federation, plan)
        federation.deviation = None  # of rows before their preprocessing
        if plan.fidelity_rows:
            with federation.stage("fidelity"):
                keep_rows(federation)
        outcome = METHODS[plan.method].serve(federation, plan.settings)
        found = None
        if plan.fidelity_rows:
            with federation.stage("fidelity"):
                found = estimated_fidelity(federation, outcome.embedding, plan.fidelity_rows)
    if prepared.cells is not None and plan.cells is not None:
        note = Note("What the survey found", prepared.cells.described(plan.cells))
        outcome = replace(outcome, notes=(*outcome.notes, note))
    if prepared.steering is not None:
        outcome = replace(outcome, model=without_labels(outcome.model, len(prepared.steering.centre)))
    if not plan.geometry:
        outcome = replace(outcome, geometry=None, lift=None)
    ledger = federation.ledger.settled(plan.budget.delta)
    return Served(outcome, prepared, ledger, sealed, federation.deviation, found, federation.network_seconds)


@dataclass(kw_only=True, frozen=True)
class Rehearsed:
    """Result of a rehearsal.

    Attributes
    ----------
    ledger : Ledger
        Every message that the run will send, with its cost, up to the point where the run will fail.
    rounds : int
        Number of rehearsed rounds.
    features : int
        Number of features of rows as the method sees them, which some metrics and a label widen.
    efforts : dict of stage to Effort
        Effort of each stage.
    guesses : dict of message type's name to str
        Messages whose size is assumed, and why.
    whole : bool
        Whether the method's own messages are included.
    failure : RunError or None
        The error that will end the run, if known beforehand.
    network_seconds : float or None
        Seconds of all messages on the clients' lines; None if the plan has no lines.
    """

    ledger: Ledger
    rounds: int
    features: int
    whole: bool
    efforts: dict[str, Effort]
    guesses: dict[str, str]
    failure: RunError | None = None
    network_seconds: float | None = None


def rehearse(clients: RehearsalClients, plan: Plan) -> Rehearsed:
    """Ask clients everything that a plan's run will ask, without computing.

    Raises
    ------
    ScenarioError, DataError
        Errors that would also refuse the run.
    """
    journal = Journal()
    with journal.stage("clients"):
        rehearsal = Rehearsal(clients, replace(plan, checkpoint_every=0), journal)
    failure = None
    try:
        with one_blas_thread():
            with rehearsal.by_sample():
                _prepared(rehearsal, plan)
            if plan.fidelity_rows:
                with rehearsal.stage("fidelity"):
                    keep_rows(rehearsal)
            plan.settings.rehearse(rehearsal)
            if plan.fidelity_rows:
                with rehearsal.stage("fidelity"):
                    places = shaped((rehearsal.rows, getattr(plan.settings, "dimensions", 2)))
                    estimated_fidelity(rehearsal, places, plan.fidelity_rows)
                    operations = 4.0 * rehearsal.rows * min(plan.fidelity_rows, rehearsal.rows)
                    rehearsal.add_operations(at_clients=operations * rehearsal.features)
    except RunError as error:
        failure = error
    ledger = rehearsal.ledger.settled(plan.budget.delta)
    whole = plan.settings.offers("rehearse")
    return Rehearsed(
        ledger=ledger,
        rounds=rehearsal.round,
        features=rehearsal.features,
        whole=whole,
        efforts=rehearsal.efforts,
        guesses=rehearsal.guesses,
        failure=failure,
        network_seconds=rehearsal.network_seconds,
    )


def _prepared(federation: Federation, plan: Plan) -> tuple[Preparation, UInt8Array | None]:
    """Preprocess rows as before every method: noise on records, scaling, and the key, which hides both.

    Missing values are filled in first, and sites are harmonized before rows are scaled. A label that steers comes last.
    """
    if plan.isometry_key:
        with federation.stage("isometry key"):
            sealed = key_rows(
                federation, keyed_scale(plan.scale), plan.hidden, plan.joint, keyed_metric(plan.metric)
            )
        nothing = Scaling(np.zeros(federation.features), np.ones(federation.features))
        return Preparation(nothing), sealed
    if plan.cells is not None:
        of_survey = partial(plan.settings.survey_noise, plan.budget, federation.clients)
        nothing = Scaling(np.zeros(federation.features), np.ones(federation.features))
        with federation.stage("noisy survey"):
            return Preparation(nothing, cells=fit_survey(federation, plan.cells, of_survey)), None
    fill = None
    if plan.fill is not None:
        with federation.stage("missing values"):
            fill = fit_filling(federation, plan.fill)
    noise = plan.mechanism("data")
    if noise is not None and noise.for_good:
        with federation.stage("noise on records"):
            unit = spread(federation).width if noise.by_level else math.nan
            blur_records(federation, noise, unit)
    harmonization = None
    if plan.harmonize is not None:
        with federation.stage("harmonizing"):
            harmonization = fit_harmonizing(federation, plan.harmonize)
    with federation.stage("scaling"):
        scaling = fit_scaling(federation, plan.scale, plan.joint)
        transformation = fit_transformation(federation, plan.metric, plan.joint)
    steering = None
    if plan.target is not None:
        with federation.stage("label"):
            steering = fit_steering(federation, plan.target, plan.public_targets)
    return Preparation(replace(scaling, fill=fill), harmonization, transformation, steering), None
