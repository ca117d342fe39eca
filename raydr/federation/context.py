"""What a federation is from its first call to its last, whatever it is asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field

from raydr.arrays import FloatArray
from raydr.federation.failures import FailurePolicy
from raydr.federation.secure import SecureSums
from raydr.privacy.accounting import Budget
from raydr.privacy.mechanism import Coverage, Mechanism


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a federation is made with, and what no round changes.

    Attributes
    ----------
    seed : int
        The run's seed.
    run : str
        Digest of what the run is made from, which checkpoints carry and to which clients bind what they seal.
    start : str
        Tells this start of the run from others; empty for its first.
    policy : FailurePolicy
        Decides what follows when a client does not answer.
    participation : float
        Part of the clients, from above 0 to 1, drawn anew in each round, that a mean in rounds asks.
    checkpoint_every : int
        Rounds between checkpoints; 0 for none.
    evaluate_every : int
        Rounds between the states that a method keeps for the evaluation (:mod:`raydr.methods.snapshots`); 0: keep none.
    batch_clients : bool
        Whether clients of one host may compute as one, where a method offers it.
    coverage : Coverage or None
        Mechanism that clients' hosts are to apply, where a method offers it, and which of them do.
    budget : Budget
        What the run's releases may cost.
    public : (rows, features) array or None
        Rows that are nobody's secret, as read.
    isometry_key : bool
        Whether clients key their rows before anything is told of them.
    secure : SecureSums or None
        What sums withstand whose summands the server does not see; None where it sees them.
    hidden : int
        How many public rows there are that the server does not see: clients tell them under the key.
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

    def mechanism(self, on: str) -> Mechanism | None:
        """Return what clients apply on this, such as "gradient"; None where they do not."""
        found = self.coverage.mechanism if self.coverage is not None else None
        return found if found is not None and found.on == on else None

    def covering(self, on: str) -> Mechanism | None:
        """Return what a request of this is to carry: what covers it, or its records, unless these have it for good."""
        blur = self.mechanism("data")
        return None if blur is not None and blur.for_good else self.mechanism(on) or blur
