"""The server's side of a run: scale the rows, run the method, close the books."""

from __future__ import annotations

from dataclasses import dataclass, replace

from raydr.arrays import Int64Array
from raydr.federation import Federation, Transport
from raydr.journal import Journal
from raydr.methods import METHODS
from raydr.methods.outcome import Outcome
from raydr.privacy.ledger import Ledger
from raydr.scaling import Scale, Scaling, fit_scaling
from raydr.settings import Settings
from raydr.threads import one_blas_thread


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
        outcome = replace(
            self.outcome, embedding=self.outcome.embedding[order], geometry=self.outcome.geometry.take(order)
        )
        return replace(self, outcome=outcome)


def serve(
    transport: Transport, *, method: str, settings: Settings, scale: Scale, seed: int, journal: Journal
) -> Served:
    """Run a method's server part over a transport.

    Parameters
    ----------
    transport : Transport
        Reaches all clients.
    method : str
        A name of :data:`raydr.methods.METHODS`.
    settings : Settings
        That method's settings.
    scale : {"none", "standard", "minmax", "unit"}
        See :func:`raydr.scaling.fit_scaling`.
    seed : int
        The run's seed.
    journal : Journal
        Told of stages and rounds.
    """
    with one_blas_thread():
        federation = Federation(transport, seed=seed, journal=journal)
        with federation.stage("scaling"):
            scaling = fit_scaling(federation, scale)
        outcome = METHODS[method].serve(federation, settings)
    return Served(outcome, scaling, federation.ledger)
