"""Isometry key: a rotation and shift of the records that only the clients know.

All clients apply the same isometry. Distances stay the same, and so do kernels, neighbours and maps. Coordinates mean
nothing without the key. This is obfuscation, not protection. An attacker with rows from the same distribution can
recover the rotation from the shape of that distribution. An attacker who knows some of the records can recover it from
these. ``raydr audit`` shows how well that works.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from raydr.arrays import Float64Array, FloatArray
from raydr.privacy.secrets import Secret

_Turn: TypeAlias = "Callable[[Float64Array], Float64Array]"

_DENSE = 512
"""Features up to which the rotation is a dense matrix. Beyond, the cost grows as n log n, not n^2."""
_LAYERS = 3
_BLOCK = 4096


@dataclass(frozen=True)
class Isometry:
    """``x -> Q (x - shift)`` with an orthogonal Q that follows from a secret.

    Up to 512 features Q is drawn uniformly (Haar) from all orthogonal matrices. Beyond, it is a product of three
    layers, each of random signs, a random permutation and the orthonormal cosine transform.

    Parameters
    ----------
    secret : Secret
        Secret that all clients share.
    centre : (features,) float64
        A point near the middle of the data.
    unit : float
        Approximate spread of the data in each feature. The shift is drawn with this spread around the centre.

    Examples
    --------
    >>> key = Isometry(Secret(bytes(32)), np.zeros(3), 1.0)
    >>> rows = np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    >>> float(np.linalg.norm(np.diff(rows, axis=0)) - np.linalg.norm(np.diff(key(rows), axis=0))) < 1e-12
    True
    """

    secret: Secret
    centre: Float64Array
    unit: float

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Return a keyed copy of rows (rows, features), in their own precision."""
        move = self.motion()
        keyed = np.empty_like(rows)
        for start in range(0, len(rows), _BLOCK):
            keyed[start : start + _BLOCK] = move(rows[start : start + _BLOCK])
        return keyed

    def motion(self) -> Callable[[FloatArray], FloatArray]:
        """Return the function that keys rows (rows, features); the key is drawn once."""
        features = len(self.centre)
        shift = self.centre + self.unit * self.secret.stream("shift").standard_normal(features)
        turn = self._dense(features) if features <= _DENSE else self._layered(features)
        return lambda rows: turn(rows - shift).astype(rows.dtype, copy=False)

    def _dense(self, features: int) -> _Turn:
        drawn = self.secret.stream("turn").standard_normal((features, features))
        basis, triangle = np.linalg.qr(drawn)
        # These signs make the matrix uniform (Mezzadri 2007).
        matrix = basis * np.sign(np.diagonal(triangle))
        return lambda rows: np.asarray(rows @ matrix.T)

    def _layered(self, features: int) -> _Turn:
        from scipy.fft import dct

        layers = []
        for layer in range(_LAYERS):
            stream = self.secret.stream("turn", layer)
            layers.append((stream.choice([-1.0, 1.0], features), stream.permutation(features)))

        def turned(rows: Float64Array) -> Float64Array:
            for signs, order in layers:
                rows = dct((rows * signs)[:, order], norm="ortho", axis=1)
            return rows

        return turned
