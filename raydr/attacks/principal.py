"""Principal axes of rows with any number of features.

Above 1,200 features, no features x features array is formed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array, FloatArray

_DENSE = 1200
"""Maximum number of features for which the matrix of second moments is formed: 12 MB."""
_SPARE = 16  # extra directions
_SWEEPS = 6
_BLOCK = 4096


@dataclass(frozen=True)
class Axes:
    """The mean of rows and their widest directions.

    Attributes
    ----------
    mean : (features,) float64
    basis : (axes, features) float64
        Orthonormal, the widest first.
    """

    mean: Float64Array
    basis: Float64Array

    def coordinates(self, rows: FloatArray) -> Float64Array:
        """Return the coordinates (rows, axes) of rows (rows, features), block by block."""
        found = np.empty((len(rows), len(self.basis)))
        for start in range(0, len(rows), _BLOCK):
            found[start : start + _BLOCK] = (rows[start : start + _BLOCK] - self.mean) @ self.basis.T
        return found


def principal_axes(rows: FloatArray, count: int, seed: int) -> Axes:
    """Return at most ``count`` principal axes of rows (rows, features), or fewer if the rows span fewer.

    Rows are centred before squaring, so offsets cost no precision.
    """
    mean = np.asarray(rows.mean(axis=0, dtype=np.float64))
    features = rows.shape[1]
    most = min(count, features, max(1, len(rows) - 1))
    if features <= _DENSE:
        values, vectors = np.linalg.eigh(_moments(rows, mean))
        basis = vectors[:, ::-1][:, :most].T
        spread = values[::-1][:most]
    else:
        basis, spread = _by_iteration(rows, mean, most, seed)
    wide = spread > 1e-12 * max(float(spread[0]), np.finfo(np.float64).tiny)
    return Axes(mean, np.ascontiguousarray(basis[wide]))


def _moments(rows: FloatArray, mean: Float64Array) -> Float64Array:
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK] - mean
        total += block.T @ block
    return total / len(rows)


def _by_iteration(
    rows: FloatArray, mean: Float64Array, count: int, seed: int
) -> tuple[Float64Array, Float64Array]:
    """Return the widest axes by subspace iteration (Halko, Martinsson & Tropp 2011), block by block."""
    width = min(count + _SPARE, *rows.shape)
    directions = np.random.default_rng((seed, 1)).standard_normal((rows.shape[1], width))
    for _ in range(_SWEEPS):
        directions = np.linalg.qr(_product(rows, mean, directions))[0]
    projected = Axes(mean, directions.T).coordinates(rows)
    values, turns = np.linalg.eigh(projected.T @ projected / len(rows))
    order = np.argsort(-values)[:count]
    return (directions @ turns[:, order]).T, values[order]


def _product(rows: FloatArray, mean: Float64Array, directions: Float64Array) -> Float64Array:
    total = np.zeros_like(directions)
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK] - mean
        total += block.T @ (block @ directions)
    return total
