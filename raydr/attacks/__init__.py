"""Privacy attacks: what an honest but curious server recovers from the messages that it sees.

The public parts are the contract (:mod:`raydr.attacks.contract`), the registry of attacks, and the audit's
results (:mod:`raydr.attacks.verdicts`). Each attack has its own file.
"""

from raydr.attacks.contract import (
    ATTACKS,
    Attack,
    Bounded,
    ColumnEstimates,
    Estimate,
    Finding,
    GroupShares,
    NotApplicableError,
    Piece,
    Reconstruction,
    Scored,
    Side,
    Unordered,
    View,
    attack,
)

__all__ = [
    "ATTACKS",
    "Attack",
    "Bounded",
    "ColumnEstimates",
    "Estimate",
    "Finding",
    "GroupShares",
    "NotApplicableError",
    "Piece",
    "Reconstruction",
    "Scored",
    "Side",
    "Unordered",
    "View",
    "attack",
]
