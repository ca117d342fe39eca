"""The server's side of a run: scale the rows, run the method, close the books."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from raydr.arrays import FloatArray, Int64Array
from raydr.federation import FailurePolicy, FaultPlan, Federation, Transport
from raydr.federation.checkpoint import Checkpoint
from raydr.journal import Journal
from raydr.methods import METHODS
from raydr.methods.outcome import Outcome
from raydr.privacy.ledger import Ledger
from raydr.privacy.mechanism import Coverage
from raydr.settings import Settings
from raydr.statistics.scaling import Scale, Scaling, fit_scaling, scale_rows
from raydr.threads import one_blas_thread


@dataclass(frozen=True)
class Plan:
    """What a federation is to do, whatever carries its calls.

    Attributes
    ----------
    method : str
        A name of :data:`raydr.methods.METHODS`.
    settings : Settings
        That method's settings.
    scale : {"none", "standard", "minmax", "unit"}
        See :func:`raydr.statistics.scaling.fit_scaling`.
    seed : int
        The run's seed.
    policy : FailurePolicy
        What follows when clients do not answer.
    faults : FaultPlan
        What goes wrong on purpose.
    participation : float
        Part of the clients in each round.
    checkpoint_every : int
        Rounds between checkpoints; 0 for none.
    batch_clients : bool
        Whether clients of one host may compute as one.
    coverage : Coverage, optional
        Mechanism that clients' hosts are to apply, and who does.
    public : (rows, features) array, optional
        Rows that are nobody's secret, as read.
    run : str
        Digest of what the run is made from.
    """

    method: str
    settings: Settings
    scale: Scale
    seed: int
    policy: FailurePolicy = field(default_factory=FailurePolicy)
    faults: FaultPlan = field(default_factory=FaultPlan)
    participation: float = 1.0
    checkpoint_every: int = 0
    batch_clients: bool = False
    coverage: Coverage | None = None
    public: FloatArray | None = None
    run: str = ""


@dataclass(frozen=True)
class Served:
    """What the server has at the end of a run.

    Attributes
    ----------
    outcome : Outcome
        The map and the geometry behind it, rows in client order.
    scaling : Scaling
        What the clients' rows were scaled by.
    ledger : Ledger
        Every message.
    """

    outcome: Outcome
    scaling: Scaling
    ledger: Ledger

    def reordered(self, order: Int64Array) -> Served:
        """Same, with row ``order[i]`` of the outcome as its row ``i``."""
        geometry = self.outcome.geometry
        outcome = replace(
            self.outcome,
            embedding=self.outcome.embedding[order],
            geometry=geometry.take(order) if geometry is not None else None,
        )
        return replace(self, outcome=outcome)


def serve(
    transport: Transport, clients: int, plan: Plan, *, journal: Journal, resume: Checkpoint | None = None
) -> Served:
    """Carry a plan out over a transport that reaches ``clients`` clients, from a checkpoint if there is one."""
    with one_blas_thread():
        with journal.stage("clients"):
            federation = Federation(
                transport,
                clients,
                seed=plan.seed,
                journal=journal,
                policy=plan.policy,
                participation=plan.participation,
                checkpoint_every=plan.checkpoint_every,
                run=plan.run,
                resume=resume,
            )
        with federation.stage("scaling"):
            scaling = fit_scaling(federation, plan.scale)
        federation.coverage = plan.coverage
        federation.batch_clients = plan.batch_clients
        if plan.public is not None:
            federation.public = scale_rows(plan.public, scaling)
        outcome = METHODS[plan.method].serve(federation, plan.settings)
    return Served(outcome, scaling, federation.ledger)
