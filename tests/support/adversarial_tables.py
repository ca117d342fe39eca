"""Tables on which floating point is at its worst, at sizes around which libraries change how they compute."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from raydr.arrays import FloatArray

SIZES = (1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)


def tables(rows: int, features: int, seed: int = 0) -> Iterator[tuple[str, FloatArray]]:
    """Tables (rows, features) by name; finite, without NaN."""
    rng = np.random.default_rng([seed, rows, features])
    normal = rng.normal(size=(rows, features))
    alternating = np.where(np.arange(rows) % 2, -1.0, 1.0)[:, None]
    yield "normal", normal
    yield "single precision", normal.astype(np.float32)
    yield "far", 1e8 * normal
    yield "far, single precision", (1e8 * normal).astype(np.float32)
    yield "huge", normal * 1e300
    yield "all magnitudes", normal * 10.0 ** rng.uniform(-300, 300, size=(rows, 1))
    yield "all magnitudes in a row", normal * 10.0 ** rng.uniform(-18, 18, size=normal.shape)
    yield "tiny", normal * 1e-200
    yield "subnormal", np.rint(3.0 * normal) * 5e-324
    yield "equal", np.repeat(normal[:1], rows, axis=0)
    yield "equal and far", np.repeat(1e8 * normal[:1], rows, axis=0)
    yield "cancelling", alternating * (1e12 + normal)
    yield "nearly equal and far", 1e12 * (1.0 + 1e-9 * normal)
    yield "on boundaries", np.rint(2.0 * normal) / 2.0
    outliers = normal.copy()
    outliers[:2] *= np.array([[1e10], [1e12]])[:rows]
    yield "two outliers", outliers
    yield "zeros", np.zeros((rows, features))
