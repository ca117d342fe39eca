"""Random Fourier features: D numbers per row whose expected products are the Gaussian kernel.

They are due to Rahimi and Recht (2007). With D / 2 frequencies w ~ N(0, 2 gamma I), the features of a row x
are

    z(x) = sqrt(2 / D) [cos(w_1 . x), ..., cos(w_D/2 . x), sin(w_1 . x), ..., sin(w_D/2 . x)]

They have norm 1, and E z(x) . z(y) = exp(-gamma |x - y|^2). The objective (9) of P1 compares rows X and landmarks Y. X
occurs in it only as the mean of z over its rows, the mean embedding.

Frequencies are orthogonal within blocks of as many as there are dimensions (Yu et al. 2016), which keeps the
distribution of each. With 500 landmarks learnt on 10,000 rows of MNIST by 4,096 features, the final objective is
0.0067. With independent frequencies it is 0.0175, and with the kernel itself 0.0054.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from raydr.arrays import Float64Array, FloatArray
from raydr.fixed_point import GridMatrix, grid_bits
from raydr.threads import one_blas_thread

_BLOCK = 1 << 17
"""Phases computed at a time: 1 MB."""


@dataclass(frozen=True)
class FourierFeatures:
    """Random features of points relative to a centre.

    A shift of rows and landmarks alike changes no product of features, and phases far from 0 would lose their
    digits.

    Attributes
    ----------
    turns : GridMatrix
        (features, frequencies): one w / 2 pi per column.
    centre : (features,) float64
        Point from which phases are measured.
    """

    turns: GridMatrix
    centre: Float64Array

    @cached_property
    def frequencies(self) -> Float64Array:
        """Frequencies (features, frequencies), one w per column."""
        return 2.0 * np.pi * self.turns.values

    @property
    def scale(self) -> float:
        """``sqrt(2 / D)``, the largest absolute value of a feature."""
        return float(self.turns.units.size**-0.5)

    def mean(self, rows: FloatArray) -> Float64Array:
        """Return the mean embedding (D,) of rows (rows, features), zeros for no rows.

        The contribution of a row depends on it alone, bit for bit. Phases are exact products, waves come from
        elementwise operations, and sums are of multiples of 2^-26. A very large phase has few digits, but the
        same ones with any other rows.
        """
        count = self.turns.units.size
        total = np.zeros((2, count))
        grid = 2.0 ** grid_bits(len(rows))
        at_once = max(1, _BLOCK // count)
        for start in range(0, len(rows), at_once):
            phases = self.turns.product(rows[start : start + at_once] - self.centre)
            for sums, waves in zip(total, _waves(phases), strict=True):
                waves *= grid
                sums += np.rint(waves, out=waves).sum(axis=0)
        return np.asarray(self.scale / grid * total.reshape(-1) / max(1, len(rows)))

    def objective(self, embedding: Float64Array, landmarks: Float64Array) -> tuple[float, Float64Array]:
        """Return the objective (9) without its constant K_xx, and its gradient, both by features.

        Parameters
        ----------
        embedding : (D,) float64
            Mean embedding of the rows.
        landmarks : (landmarks, features) float64
            Y; at least two.

        Returns
        -------
        objective : float
            ``-2 / n_y sum_j m . z(y_j) + 1 / (n_y (n_y - 1)) sum_{i != j} z(y_i) . z(y_j)``, m the mean embedding.
        gradient : (landmarks, features) float64
            With respect to the landmarks.

        Notes
        -----
        K_yy also uses features. An exact K_yy with an approximate K_xy would be the better estimate but the
        worse objective. Landmarks then move to where the features overestimate the rows, and no equal error
        holds them back (0.14 instead of 0.0067 in the case above; the start was 0.11).
        """
        count = len(landmarks)
        pairs = count * (count - 1)
        phases = (landmarks - self.centre) @ self.frequencies
        cosines, sines = np.cos(phases), np.sin(phases)
        of_rows = embedding.reshape(2, -1)
        total = self.scale * np.stack([cosines.sum(axis=0), sines.sum(axis=0)])
        cross = -2.0 / count * float((of_rows * total).sum())
        among = (float((total**2).sum()) - count) / pairs
        # Gradient in the features: z(y_i) loses its own part in the sum over i != j, which has no gradient.
        pull = self.scale * (2.0 / pairs * total - 2.0 / count * of_rows)
        slopes = cosines * pull[1] - sines * pull[0]
        return cross + among, np.asarray(slopes @ self.frequencies.T)


_COSINE = [(-1.0) ** k / math.factorial(2 * k) for k in range(7, -1, -1)]
_SINE = [(-1.0) ** k / math.factorial(2 * k + 1) for k in range(6, -1, -1)]


def _waves(turns: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return cosine and sine of phases in turns, accurate to 1e-12, by elementwise operations.

    A library may use another algorithm for the last elements of an array, or next to a large phase. Here it
    is the Taylor series of a quarter of the angle, within pi / 4 of 0, doubled twice.
    """
    quarter = turns - np.rint(turns)
    quarter *= np.pi / 2.0
    squared = quarter * quarter
    cosine, sine = np.full_like(squared, _COSINE[0]), np.full_like(squared, _SINE[0])
    for series, coefficients in ((cosine, _COSINE[1:]), (sine, _SINE[1:])):
        for coefficient in coefficients:
            series *= squared
            series += coefficient
    sine *= quarter
    for _ in range(2):
        both = cosine * sine
        cosine *= cosine
        sine *= sine
        cosine -= sine
        sine = np.add(both, both, out=both)
    return cosine, sine


@lru_cache(maxsize=1)
def directions(seed: int, dimensions: int, count: int) -> Float64Array:
    """Draw frequencies (dimensions, count) for gamma = 1/2, equal wherever the seed is known.

    Blocks of orthogonal columns, each as long as a Gaussian vector of that dimension. Drawn once per process,
    for all its clients; 2,048 of 784 dimensions take half a second.
    """
    random = np.random.default_rng(seed)
    blocks = []
    for start in range(0, count, dimensions):
        width = min(dimensions, count - start)
        with one_blas_thread():
            turn, triangle = np.linalg.qr(random.standard_normal((dimensions, width)))
        lengths = np.sqrt(random.chisquare(dimensions, width))
        blocks.append(turn * (np.where(np.diag(triangle) < 0, -1.0, 1.0) * lengths))
    drawn = np.concatenate(blocks, axis=1)
    drawn.flags.writeable = False  # callers share it
    return drawn


def fourier_features(
    seed: int, count: int, gamma: float, centre: Float64Array, axes: Float64Array | None = None
) -> FourierFeatures:
    """Return the features of a seed.

    Parameters
    ----------
    seed : int
        Seed of the frequencies.
    count : int
        Number of frequencies, D / 2.
    gamma : float
        Kernel bandwidth.
    centre : (features,) float64
        Point from which phases are measured.
    axes : (features, axes) float64, optional
        Orthonormal columns: the frequencies lie in their span, and the kernel is that of the rows'
        projections on it. Default: any direction.
    """
    drawn = np.sqrt(2.0 * gamma) * directions(seed, len(centre) if axes is None else axes.shape[1], count)
    turns = (drawn if axes is None else axes @ drawn) / (2.0 * np.pi)
    return FourierFeatures(GridMatrix.of(turns), centre)
