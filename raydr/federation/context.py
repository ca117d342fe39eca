"""The settings of a federation that do not change during a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from raydr.arrays import Float64Array, FloatArray
from raydr.federation.failures import FailurePolicy
from raydr.federation.network import Network
from raydr.federation.secure import SecureSums
from raydr.privacy.accounting import Budget
from raydr.privacy.mechanism import Coverage, Mechanism


@dataclass(frozen=True)
class Prior:
    """The state of an earlier run, from which a map starts.

    Attributes
    ----------
    places : (rows, 2) or (rows, 3) float64
        Place of each row on the earlier map, in client order; NaN for rows that it does not have.
    model : mapping of name to array
        The earlier run's model for new rows.
    """

    places: Float64Array
    model: Mapping[str, FloatArray]


@dataclass(frozen=True, kw_only=True)
class Context:
    """The settings of a federation that no round changes.

    Attributes
    ----------
    seed : int
        The run's seed.
    run : str
        Digest of the run's inputs. Checkpoints carry it, and clients bind what they seal to it.
    start : str
        Identifies this start of the run; empty for the first.
    policy : FailurePolicy
        What to do if a client does not answer.
    participation : float
        Fraction of the clients, in (0, 1], that a mean in rounds asks; drawn again in each round.
    checkpoint_every : int
        Rounds between checkpoints; 0 for none.
    evaluate_every : int
        Rounds between the states that a method keeps for the evaluation (:meth:`Federation.keep`); 0 for none.
    batch_clients : bool
        Whether the clients of one host may compute together, if a method supports it.
    coverage : Coverage or None
        Mechanism for the clients' hosts, if a method supports it, and the clients that apply it.
    budget : Budget
        Privacy budget of the run.
    public : (rows, features) array or None
        Public rows, as read.
    isometry_key : bool
        Whether clients key their rows before they answer any request about them.
    secure : SecureSums or None
        Settings of secure sums; None if the server sees the summands.
    hidden : int
        Number of public rows that the server does not see. Clients send them under the key.
    prior : Prior or None
        State of an earlier run to start from, at the server.
    signed_keys : bool
        Whether clients sign their public keys with the keys of their nodes, and check those of all others.
    declared : tuple
        Cost of the whole run for each client, if it is known: see :class:`raydr.federation.enrolment.Enrol`.
    network : Network or None
        Lines of the clients, on which the time of messages is counted.
    """

    seed: int
    run: str = ""
    start: str = ""
    policy: FailurePolicy = field(default_factory=FailurePolicy)
    participation: float = 1.0
    checkpoint_every: int = 0
    evaluate_every: int = 0
    batch_clients: bool = False
    coverage: Coverage | None = None
    budget: Budget = field(default_factory=Budget)
    public: FloatArray | None = None
    isometry_key: bool = False
    hidden: int = 0
    secure: SecureSums | None = None
    prior: Prior | None = None
    signed_keys: bool = False
    declared: tuple[tuple[float, float], ...] = ()
    network: Network | None = None

    def mechanism(self, on: str) -> Mechanism | None:
        """Return the clients' mechanism on this quantity, such as "gradient"; None without one."""
        found = self.coverage.mechanism if self.coverage is not None else None
        return found if found is not None and found.on == on else None

    @property
    def blurred(self) -> bool:
        """Whether clients add noise to records or to distances of records."""
        return self.mechanism("data") is not None or self.mechanism("distances") is not None

    def covering(self, on: str) -> Mechanism | None:
        """Return the mechanism that a request for this quantity carries.

        It covers the quantity or the records. None if there is none, or if the records carry the noise from the start.
        """
        blur = self.mechanism("data")
        return None if blur is not None and blur.for_good else self.mechanism(on) or blur
