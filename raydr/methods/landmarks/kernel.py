"""Objective of federated distribution learning (P1, section 3), and its gradient.

The objective (9) is the squared maximum mean discrepancy between one client's rows X and the landmarks Y. The kernel is
Gaussian, k(x, y) = exp(-gamma |x - y|^2). Its three terms are separate, because different parties can compute them:
K_xx does not depend on Y, K_yy does not depend on X, and only K_xy needs both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from raydr.arrays import Float64Array, FloatArray
from raydr.device import ArrayDevice, workplace
from raydr.errors import DataError
from raydr.fixed_point import shortened
from raydr.geometry.points import distances_of_centred, float_table, squared_distances

KERNEL_OPERATIONS = 30
"""Floating-point operations that take as long as one exponential and its surroundings."""
BLOCK_ROWS = 2048
"""Rows per block of the kernel: 2048 x 500 float32 (4 MB) stay in cache between their two products."""


def cross_term(rows: FloatArray, landmarks: Float64Array, gamma: float) -> tuple[float, Float64Array]:
    """Return the K_xy part of the objective (9) and of its gradient (13).

    Parameters
    ----------
    rows : (rows, features)
        One client's X; at least one row. Products are computed in its precision.
    landmarks : (landmarks, features)
        Y.
    gamma : float
        Kernel bandwidth, 1 / squared distance.

    Returns
    -------
    objective : float
        ``-2 / (n_x n_y) * sum_ij k(x_i, y_j)``.
    gradient : (landmarks, features) float64
        ``-4 gamma / (n_x n_y) * [K^T X - diag(K^T 1) Y]``.
    """
    n_x, n_y = rows.shape[0], landmarks.shape[0]
    # Distances do not change under a shift, but their rounding does: work around the landmarks' centre,
    # rounded to the rows' precision, so that rows and landmarks have the same shift.
    centre = landmarks.mean(axis=0).astype(rows.dtype)
    here = workplace()
    float64 = here.functions.float64
    centred = _Centred.of(np.asarray(landmarks - centre, rows.dtype), here)
    shift = here.put(centre)
    product_there, weight_there = here.put(np.zeros(landmarks.shape)), here.put(np.zeros(n_y))
    held = here.kept(rows)
    for start in range(0, n_x, BLOCK_ROWS):
        block = held[start : start + BLOCK_ROWS] - shift
        kernel = centred.kernel(block, gamma)
        product_there += kernel.T @ block
        weight_there += kernel.sum(axis=0, dtype=float64)
    product, weight = here.fetch(product_there), here.fetch(weight_there)
    # In place: with 1,000 landmarks and 20,000 features, each array has 160 MB.
    attraction = landmarks - centre
    attraction *= weight[:, None]
    product -= attraction
    product *= -4.0 * gamma / (n_x * n_y)
    return -2.0 * float(weight.sum()) / (n_x * n_y), _bounded(product, gamma)


def landmark_term(landmarks: Float64Array, gamma: float) -> tuple[float, Float64Array]:
    """Return the K_yy part of the objective (9) and of its gradient (13).

    Returns
    -------
    objective : float
        ``1 / (n_y (n_y - 1)) * sum_{i != j} k(y_i, y_j)``.
    gradient : (landmarks, features) float64
        ``4 gamma / (n_y (n_y - 1)) * [K Y - diag(K 1) Y]``.
    """
    n_y = landmarks.shape[0]
    here = workplace()
    moved = landmarks - landmarks.mean(axis=0)
    centred = here.put(moved)
    kernel = _Centred.of(moved, here).kernel(centred, gamma)
    diagonal = here.put(np.arange(n_y))
    kernel[diagonal, diagonal] = 0.0
    pairs = n_y * (n_y - 1)
    gradient = kernel @ centred
    centred *= kernel.sum(axis=1)[:, None]
    gradient -= centred
    gradient *= 4.0 * gamma / pairs
    total = float(kernel.sum(dtype=here.functions.float64))
    return total / pairs, _bounded(here.fetch(gradient), gamma)


def row_term(rows: FloatArray, gamma: float) -> float:
    """Return the K_xx part of the objective (9), ``1 / (n_x (n_x - 1)) * sum_{i != j} k(x_i, x_j)``; 0 for one row.

    It does not depend on the landmarks, so it is not in the gradient. It costs O(rows^2): give it a sample.
    """
    n_x = rows.shape[0]
    if n_x < 2:
        return 0.0
    centred = rows - rows.mean(axis=0, dtype=np.float64).astype(rows.dtype)
    kernel = gaussian_kernel(centred, centred, gamma)
    pairs = n_x * (n_x - 1)
    return float((kernel.sum(dtype=np.float64) - kernel.trace()) / pairs)


def gaussian_kernel(a: FloatArray, b: FloatArray, gamma: float) -> FloatArray:
    """Return ``exp(-gamma |a_i - b_j|^2)``, shape (rows of a, rows of b), in the precision of the arguments."""
    kernel = squared_distances(a, b)
    kernel *= -kernel.dtype.type(gamma)
    np.exp(kernel, out=kernel)
    return kernel


@dataclass(frozen=True, eq=False)
class _Centred:
    """Centred points for kernels with many rows, on the device of large products.

    Attributes
    ----------
    points : (points, features)
    squared_norms : (points,)
    here : ArrayDevice
        The device of both.
    """

    points: Any
    squared_norms: Any
    here: ArrayDevice

    @classmethod
    def of(cls, points: FloatArray, here: ArrayDevice) -> _Centred:
        """Move points to a device; raise DataError if they are not a finite table."""
        there = here.put(float_table(points, "the points"))
        return cls(there, here.functions.einsum("ij,ij->i", there, there), here)

    def kernel(self, rows: Any, gamma: float) -> Any:
        """Return ``exp(-gamma |rows_i - points_j|^2)`` of rows on that device, in their precision."""
        norms = self.here.functions.einsum("ij,ij->i", rows, rows)
        found = distances_of_centred(rows, norms, self.points, self.squared_norms, self.here)
        found *= -float(gamma)
        self.here.functions.exp(found, out=found)
        return found


def gradient_bound(landmarks: int, gamma: float) -> float:
    """Return the largest absolute entry of the gradient of :func:`cross_term` or :func:`landmark_term`, for any data.

    ``r exp(-gamma r^2)`` is at most ``1 / sqrt(2 e gamma)``, so a mean over rows of ``4 gamma / n_y * k(x, y) (x - y)``
    is at most ``4 gamma / n_y / sqrt(2 e gamma)`` in norm. One thousandth is added for the rounding of sums.
    """
    return 1.001 * _steepest(landmarks, gamma)


def gradient_sensitivity(rows: int, landmarks: int, gamma: float) -> float:
    """Return how far one record, present or absent, moves :func:`cross_term`'s gradient of a client, in L2.

    For each landmark a record adds ``4 gamma / (n_p n_y) k(x, y) (x - y)``, of norm at most ``4 / (n_p n_y)
    sqrt(gamma / 2e)``. Over n_y landmarks the bound is ``4 sqrt(gamma / 2e) / (n_p sqrt(n_y))``. Replacing
    the record moves the gradient by at most twice that. Records are not clipped, and no distance or norm of
    the data is needed: the kernel itself is bounded. (P1's Theorem 6 has 8 gamma tau_X / (n_p sqrt(n_y)) (1 +
    2 gamma (tau_X + tau_Y)(tau_X + Upsilon)) for replacement.)
    """
    return (1.0 + 1e-7) * _steepest(landmarks, gamma) * math.sqrt(landmarks) / rows  # rounding


_NOTHING = 27.0
"""Distance in units of 1 / sqrt(gamma) at which the kernel is 0 in double precision: exp(-27^2) = 2e-317."""


def within_reach(rows: FloatArray, landmarks: Float64Array, gamma: float) -> Float64Array:
    """Return rows in float64, moved so near to the landmarks that :func:`gradient_rounding` bounds the computation.

    The sensitivity holds for the exact kernel. A computed squared distance has an error of some eps times the squared
    norms. For rows millions of bandwidths away, this could give a kernel value instead of 0. Such rows are moved
    towards the landmarks, to where the kernel is still 0.
    """
    centre, reach = landmarks.mean(axis=0), landmarks_reach(landmarks, gamma)
    return np.asarray(centre + reach * shortened(rows - centre, reach))


def landmarks_reach(landmarks: Float64Array, gamma: float) -> float:
    """Return the distance from the landmarks' centre beyond which no row has a kernel value with any of them.

    Raises
    ------
    DataError
        If the landmarks are so far apart that rounding would determine the kernel.
    """
    spread = float(np.sqrt(((landmarks - landmarks.mean(axis=0)) ** 2).sum(axis=1).max()))
    reach = spread + _NOTHING / math.sqrt(gamma)
    if not gamma * reach**2 <= 1e8:
        raise DataError(
            f"Landmarks lie {spread * math.sqrt(gamma):.3g} bandwidths apart, too far for the privacy"
            " claim of noise on gradients. Set a smaller method.step, or a smaller method.gamma."
        )
    return reach


def gradient_rounding(rows: int, landmarks: Float64Array, gamma: float, drift: float = 0.0) -> float:
    """Return how much further rounding moves the gradient of ``rows`` rows, in units of its sensitivity.

    One more row can change the order in which all others are summed, so the rounding of all rows counts, in
    both neighbouring data sets. Let rho be the largest norm of a row or landmark in units of 1 / sqrt(gamma),
    d the number of features and u = 2^-53. A computed kernel has a relative error of ``4 (d + 8) u rho^2``,
    which moves a row's term by as much of its own length. Sums of k rows have an error of ``2 k u rho``,
    where the longest term is 0.43.

    Parameters
    ----------
    rows : int
        Rows of the client.
    landmarks : (landmarks, features) float64
        Landmarks that the client receives.
    gamma : float
        Kernel bandwidth, 1 / squared distance.
    drift : float
        How far local steps may move them.
    """
    rho = 2.0 * math.sqrt(gamma) * (landmarks_reach(landmarks, gamma) + drift)
    kernels = 4.0 * (landmarks.shape[1] + 8.0) * rho**2
    terms = min(rows, BLOCK_ROWS) + rows / BLOCK_ROWS + len(landmarks) + 8.0
    return float(2.0**-51 * rows * (kernels + 2.0 * terms * rho / 0.43))


def lipschitz_constant(landmarks: int, gamma: float) -> float:
    """Return the smallest Lipschitz constant of the whole gradient (13) in the landmarks that holds for any data.

    The curvature of one kernel lies between -2 gamma, at its centre, and ``4 gamma exp(-3/2)``. In (9) the
    cross term has it times -2 / n_y, the landmark term up to 2 / (n_y - 1). The worst case of both is
    coinciding landmarks, ``sqrt(3 / (2 gamma))`` from all rows. With three or more landmarks the constant is
    below the ``8 gamma / n_y`` of :func:`default_step`; with two it is above.
    """
    return 4.0 * gamma / (landmarks - 1) + 8.0 * math.exp(-1.5) * gamma / landmarks


def _steepest(landmarks: int, gamma: float) -> float:
    return 4.0 / landmarks * math.sqrt(gamma / (2.0 * math.e))


def _bounded(gradient: Float64Array, gamma: float) -> Float64Array:
    """Clip a gradient to the bound of exact ones.

    Rounding exceeds it if rows lie thousands of bandwidths from the landmarks' centre. In float32, up to 13
    times the bound were observed. A reply out of its range ends the run.
    """
    largest = _steepest(gradient.shape[0], gamma)
    return np.asarray(np.clip(gradient, -largest, largest))


def default_step(landmarks: int, gamma: float) -> float:
    """Return the step n_y / (8 gamma), the inverse of a Lipschitz constant of the cross term's gradient.

    The largest curvature of one kernel is 2 gamma, at its centre. With the factor 2 / n_y of the objective
    this gives 4 gamma / n_y, and the landmark term can add as much.
    """
    return landmarks / (8.0 * gamma)
