"""The server's side of a run: scale the rows, run the method, close the books."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from raydr.arrays import Float64Array, Int64Array, UInt8Array
from raydr.data.loading import Filling
from raydr.errors import RunError
from raydr.federation import Context, Crowd, Effort, FaultPlan, Federation, Rehearsal, Transport
from raydr.federation.blurring import blur_records
from raydr.federation.checkpoint import Checkpoint
from raydr.federation.transcript import Transcript
from raydr.journal import Journal
from raydr.methods import METHODS, MethodSettings
from raydr.methods.outcome import Outcome
from raydr.privacy.ledger import Ledger
from raydr.statistics.filling import fit_filling
from raydr.statistics.harmonizing import Harmonizing, fit_harmonizing
from raydr.statistics.keying import key_rows, keyed_scale
from raydr.statistics.moments import spread
from raydr.statistics.preparing import Preparation
from raydr.statistics.scaling import Scale, Scaling, fit_scaling
from raydr.threads import one_blas_thread


@dataclass(kw_only=True, frozen=True)
class Plan(Context):
    """What a federation is to do, and the context in which it does so, whatever carries its calls.

    Attributes
    ----------
    method : str
        A name of :data:`raydr.methods.METHODS`.
    settings : MethodSettings
        That method's settings.
    scale : {"none", "standard", "minmax", "unit"}
        See :func:`raydr.statistics.scaling.fit_scaling`.
    fill : {"mean", "median"} or None
        What stands in for missing values: see :func:`raydr.statistics.filling.fit_filling`; None where there are none.
    harmonize : Harmonizing or None
        How sites are adjusted to each other: see :func:`raydr.statistics.harmonizing.fit_harmonizing`; None: not at
        all.
    faults : FaultPlan
        What goes wrong on purpose.
    geometry : bool
        Whether anybody asks for the geometry that the server recovers; else it ends where it was made.
    """

    method: str
    settings: MethodSettings
    scale: Scale
    fill: Filling | None = None
    harmonize: Harmonizing | None = None
    faults: FaultPlan = field(default_factory=FaultPlan)
    geometry: bool = True


@dataclass(frozen=True)
class Served:
    """What the server has at the end of a run.

    Attributes
    ----------
    outcome : Outcome
        The map and the geometry behind it, rows in client order.
    prepared : Preparation
        What became of the clients' rows before the method began; of harmonized ones also what each client keeps to
        itself, for the evaluation.
    ledger : Ledger
        Every message.
    sealed_scaling : (bytes,) uint8 or None
        Of a keyed run, whose preparation says nothing: only clients can read it.
    deviation : (features,) float64 or None
        Standard deviation of each feature as it was mapped, if sums of the run told it.
    """

    outcome: Outcome
    prepared: Preparation
    ledger: Ledger
    sealed_scaling: UInt8Array | None = None
    deviation: Float64Array | None = None

    def reordered(self, order: Int64Array) -> Served:
        """Same, with row ``order[i]`` of the outcome as its row ``i``."""
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
    """Carry a plan out over a transport that reaches ``clients`` clients, from a checkpoint if there is one.

    ``released`` is what was written down of charged releases before. What the server sees is written into
    ``transcript`` where there is one.
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
        federation.deviation = None  # of rows before they were as they are mapped
        outcome = METHODS[plan.method].serve(federation, plan.settings)
    if not plan.geometry:
        outcome = replace(outcome, geometry=None, lift=None)
    ledger = federation.ledger.settled(plan.budget.delta)
    return Served(outcome, prepared, ledger, sealed, federation.deviation)


@dataclass(kw_only=True, frozen=True)
class Rehearsed:
    """What a rehearsal came to.

    Attributes
    ----------
    ledger : Ledger
        Every message that the run will send, and what they cost; up to its end, where it will fail.
    rounds : int
        That were rehearsed.
    efforts : dict of stage to Effort
        What each stage comes to.
    guesses : dict of message type's name to str
        Messages whose size is assumed, and why.
    whole : bool
        Whether the method's own messages are in it.
    failure : RunError or None
        What will end the run, where that is known beforehand.
    """

    ledger: Ledger
    rounds: int
    whole: bool
    efforts: dict[str, Effort]
    guesses: dict[str, str]
    failure: RunError | None = None


def rehearse(crowd: Crowd, plan: Plan) -> Rehearsed:
    """Ask a crowd everything that a plan's run will ask, and compute nothing of it.

    Raises
    ------
    ScenarioError, DataError
        What would refuse the run.
    """
    journal = Journal()
    with journal.stage("clients"):
        rehearsal = Rehearsal(crowd, replace(plan, checkpoint_every=0), journal)
    failure = None
    try:
        with one_blas_thread():
            with rehearsal.by_sample():
                _prepared(rehearsal, plan)
            plan.settings.rehearse(rehearsal)
    except RunError as error:
        failure = error
    ledger = rehearsal.ledger.settled(plan.budget.delta)
    whole = plan.settings.offers("rehearse")
    return Rehearsed(
        ledger=ledger,
        rounds=rehearsal.round,
        whole=whole,
        efforts=rehearsal.efforts,
        guesses=rehearsal.guesses,
        failure=failure,
    )


def _prepared(federation: Federation, plan: Plan) -> tuple[Preparation, UInt8Array | None]:
    """What comes before every method: noise on records, their scale, and their key, which makes a secret of both.

    Missing values are filled in before any of them, and sites harmonized before rows are scaled.
    """
    if plan.isometry_key:
        with federation.stage("isometry key"):
            sealed = key_rows(federation, keyed_scale(plan.scale), plan.hidden)
        nothing = Scaling(np.zeros(federation.features), np.ones(federation.features), False)
        return Preparation(nothing), sealed
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
        return Preparation(replace(fit_scaling(federation, plan.scale), fill=fill), harmonization), None
