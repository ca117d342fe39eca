"""The adversaries that come with raydr."""

from __future__ import annotations

from typing import Literal

import numpy as np

from raydr.arrays import Float64Array
from raydr.federation.messages import Range
from raydr.federation.simulated.lying import Adversary, adversary


@adversary
class SignFlip(Adversary):
    """The truth times minus the strength."""

    kind: Literal["sign-flip"] = "sign-flip"

    def lie(self, truth: Float64Array, declared: Range, agreed: np.random.Generator) -> Float64Array:
        """Return the negative of the truth, times the strength."""
        return -self.strength * truth


@adversary
class Exaggeration(Adversary):
    """The truth times the strength."""

    kind: Literal["scaling"] = "scaling"

    def lie(self, truth: Float64Array, declared: Range, agreed: np.random.Generator) -> Float64Array:
        """Return the truth times the strength."""
        return self.strength * truth


@adversary
class Collusion(Adversary):
    """One random direction, the same for all liars and rounds, scaled to strength times the range.

    If the range is infinite, entries reach up to the strength itself.
    """

    kind: Literal["collusion"] = "collusion"

    def lie(self, truth: Float64Array, declared: Range, agreed: np.random.Generator) -> Float64Array:
        """Return the direction that the liars agreed on."""
        largest = np.asarray(declared.largest, np.float64)
        reach = np.where(np.isfinite(largest), largest, 1.0)
        return np.asarray(self.strength * reach * agreed.uniform(-1.0, 1.0, declared.shape))
