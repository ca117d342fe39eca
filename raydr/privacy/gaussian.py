"""Gaussian noise of a client's own making; nothing is claimed about differential privacy."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from raydr.arrays import Float64Array
from raydr.privacy.mechanism import Mechanism, Quantity, mechanism


@mechanism
class GaussianNoise(Mechanism):
    """Gaussian noise that clients add; nothing is claimed about differential privacy."""

    on: Literal["data", "distances"] = Field(description="every feature, or every distance that is sent")
    level: float = Field(
        gt=0,
        description="its deviation: on data in units of the features' own, on distances of a record's mean distance",
    )
    kind: Literal["gaussian-noise"] = "gaussian-noise"

    @property
    def words(self) -> str:
        """What it is worth is the accountant's to say, and noise alone promises nothing.

        >>> GaussianNoise(on="distances", level=0.1).words
        'Gaussian noise of level 0.1 on distances'
        """
        return f"Gaussian noise of level {self.level:g} on {self.on}"

    @property
    def deviation(self) -> float:
        """The level."""
        return self.level

    def cover(self, quantity: Quantity, stream: np.random.Generator) -> Float64Array:
        """Values with noise."""
        deviations = self.level * quantity.unit
        return np.asarray(quantity.values + deviations * stream.standard_normal(quantity.values.shape))
