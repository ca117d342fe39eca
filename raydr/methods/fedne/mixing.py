"""Data mixing (P2 (9)): new rows between a row and one of its neighbours, near which unseen neighbours may lie."""

from __future__ import annotations

import numpy as np

from raydr.arrays import Float32Array


def mixing_weights(alpha: float, shape: tuple[int, ...], random: np.random.Generator) -> Float32Array:
    """Lambda of (9), drawn from Beta(alpha, alpha), float32 of that shape; near 0 or 1 for a small alpha."""
    return random.beta(alpha, alpha, shape).astype(np.float32)
