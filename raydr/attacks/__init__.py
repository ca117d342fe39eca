"""Attacks on privacy: what an honest but curious server recovers from the messages that it saw.

What is public here is the contract (:mod:`raydr.attacks.contract`), the registry of attacks, and what an audit writes
down (:mod:`raydr.attacks.verdicts`). Each attack is a file.
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
