"""Quantities that the theorems of :mod:`raydr.methods.landmarks.bounds` bound, computed in a simulation from all rows.

The computation is dense, with kernels of all pairs of rows: use a sample.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.geometry.points import squared_distances
from raydr.methods.landmarks.bounds import Extents, Norms, landmark_features
from raydr.methods.landmarks.kernel import cross_term, gaussian_kernel


def kernel_perturbation(rows: Float64Array, noisy: Float64Array, gamma: float) -> float:
    """Return Lemma 1's quantity: Frobenius norm of the kernel's change if rows become noisy ones."""
    change = gaussian_kernel(noisy, noisy, gamma) - gaussian_kernel(rows, rows, gamma)
    return _norms(change).frobenius


def disagreement(parts: Sequence[FloatArray], landmarks: Float64Array, gamma: float) -> float:
    """Return Theorem 1's zeta at these landmarks: the largest Frobenius norm between two clients' gradients."""
    gradients = np.stack([cross_term(part, landmarks, gamma)[1].ravel() for part in parts if len(part)])
    return float(np.sqrt(_squared_distances(gradients).max()))


def nystrom_error(kernel: Float64Array, columns: Int64Array, rank: int) -> Norms:
    """Return Theorem 2's quantity: error of rank-k Nystrom from these columns of a kernel (rows, rows)."""
    values, vectors = np.linalg.eigh(kernel[np.ix_(columns, columns)])
    chosen = np.argsort(values)[::-1][:rank]
    chosen = chosen[values[chosen] > 1e-10 * values.max()]
    features = kernel[:, columns] @ vectors[:, chosen] / np.sqrt(values[chosen])
    return _norms(kernel - features @ features.T)


def landmark_error(
    rows: Float64Array,
    landmarks: Float64Array,
    gamma: float,
    rank: int,
    truth: Float64Array | None = None,
) -> Norms:
    """Return the error of the landmarks' estimate of the rows' kernel (Theorem 5), or of ``truth``'s (Theorem 3).

    For Theorem 3, ``rows`` are noisy and ``truth`` is not.
    """
    features = landmark_features(rows, landmarks, gamma, rank)
    true = rows if truth is None else truth
    return _norms(gaussian_kernel(true, true, gamma) - features @ features.T)


def gradient_change(rows: Float64Array, landmarks: Float64Array, gamma: float, client_rows: int) -> float:
    """Return Theorem 6's quantity: the largest move of a client's gradient if one row replaces another, in L2.

    A record's part of the gradient is ``4 gamma / (n_p n_y) k(x, y) (y - x)`` for each landmark y. Inner
    products of those of two records come from the three distance matrices, so all pairs cost three matrix
    products.
    """
    squared = np.asarray(squared_distances(rows, landmarks))
    kernel = np.exp(-gamma * squared)
    weighted = kernel * squared
    inner = weighted @ kernel.T
    inner = 0.5 * (inner + inner.T - (kernel @ kernel.T) * _squared_distances(rows))
    own = inner.diagonal()
    change = np.maximum(own[:, None] + own[None, :] - 2.0 * inner, 0.0).max()
    return 4.0 * gamma / (client_rows * len(landmarks)) * float(np.sqrt(change))


def extents(rows: Float64Array, landmarks: Float64Array) -> Extents:
    """Return the extents of these rows and landmarks for Theorem 6."""
    return Extents(
        float(np.linalg.norm(rows, axis=1).max()),
        float(np.linalg.norm(landmarks, 2)),
        float(np.sqrt(squared_distances(rows, landmarks).max())),
    )


def diameter(rows: Float64Array) -> float:
    """Return the largest distance between two rows."""
    return float(np.sqrt(_squared_distances(rows).max()))


def _squared_distances(points: Float64Array) -> Float64Array:
    return np.asarray(squared_distances(points, points))


def _norms(matrix: Float64Array) -> Norms:
    """Return the norms of a symmetric matrix."""
    return Norms(float(np.abs(np.linalg.eigvalsh(matrix)).max()), float(np.linalg.norm(matrix)))
