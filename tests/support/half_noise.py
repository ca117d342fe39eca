"""A mechanism that adds half the noise that it claims."""

from __future__ import annotations

from typing import Any

import numpy as np

from raydr.arrays import Float64Array
from raydr.privacy.gaussian import GaussianNoise


class HalfTheNoise(GaussianNoise):
    """A mechanism that promises twice what it adds."""

    def cover(self, quantity: Any, stream: np.random.Generator) -> Float64Array:
        honest = super().cover(quantity, stream)
        return np.asarray((honest + quantity.values) / 2.0)
