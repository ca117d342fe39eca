"""Arithmetic on rows in which each row's result depends on that row alone, bit for bit.

Differential privacy is about the effect of one record. BLAS and reductions add in an order that depends on the number
of rows. So one more row can change the last digit of every other row. Where such a digit decides (a large phase, the
nearest of two centres, a rectified unit at 0), every row's contribution changes. Here only elementwise operations
round, and IEEE 754 fixes their results. Products of matrices and sums over rows use integers below 2^53, which doubles
add exactly in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from raydr.arrays import Float64Array, FloatArray

EXACT_BITS = 53
"""Bits of an integer that a double holds. Sums within this limit are exact."""
_FACTOR_BITS = 26
"""Bits of each factor of an exact product."""
_MOST_EXPONENT = 900
"""Limits for scales, so that they stay doubles: values are capped at 2^900, and rows below 2^-900 count as zeros."""


def shortened(rows: FloatArray, clip: float) -> Float64Array:
    """Clip rows to L2 norm ``clip``, in units of ``clip``: (rows, features) float64."""
    scaled, exponents = _scaled(rows)
    lengths = np.sqrt(row_products(scaled, scaled))
    with np.errstate(over="ignore"):  # for a very short row, the scaled clip can be infinite
        return np.asarray(scaled / np.maximum(lengths, np.ldexp(clip, -exponents))[:, None])


def on_grid(rows: FloatArray, clip: float, bits: int) -> Float64Array:
    """Clip rows to L2 norm ``clip`` and round them to multiples of ``2**-bits``, in units of ``clip``.

    The norm of the rounded rows is at most 1, exactly.

    Parameters
    ----------
    rows : (rows, features)
        Finite numbers of any size.
    clip : float
        Maximum L2 norm.
    bits : int
        At most 26, so that squared norms are exact.
    """
    exact = 2.0**bits * shortened(rows, clip)
    steps = np.rint(exact)
    longer = np.einsum("ij,ij->i", steps, steps) > 4.0**bits
    # Truncation towards 0 does not increase a value. 2^-40 is more than the rounding error of a norm.
    steps[longer] = np.trunc((1.0 - 2.0**-40) * exact[longer])
    steps *= 2.0**-bits
    return steps


def grid_bits(rows: int, degree: int = 1) -> int:
    """Return the bits of a grid on which ``rows`` products of ``degree`` values of at most 1 add up exactly.

    >>> grid_bits(60_000), grid_bits(60_000, 2)
    (26, 18)
    """
    return max(1, min(_FACTOR_BITS, (EXACT_BITS - max(1, rows).bit_length()) // degree))


def row_products(a: Float64Array, b: Float64Array) -> Float64Array:
    """Return the inner products (rows,) of matching rows of ``a`` and ``b``, by pairwise elementwise sums."""
    terms = a * b
    while terms.shape[1] > 1:
        half = terms.shape[1] // 2
        folded = terms[:, :half] + terms[:, half : 2 * half]
        if terms.shape[1] % 2:
            folded[:, 0] += terms[:, -1]
        terms = folded
    return np.asarray(terms[:, 0]) if terms.shape[1] else np.zeros(len(terms))


@dataclass(frozen=True)
class GridMatrix:
    """A matrix rounded to 26 bits with one scale per column, so that products with it can be exact.

    Attributes
    ----------
    steps : (features, columns) float64
        Integers. The norm of each column is at most about 2^26.
    units : (columns,) float64
        The value of one step in each column, a power of two.
    """

    steps: Float64Array
    units: Float64Array

    @classmethod
    def of(cls, matrix: FloatArray) -> Self:
        """Round a matrix (features, columns) of finite numbers to a grid."""
        columns, exponents = _scaled(matrix.T)
        steps = np.rint(2.0**_FACTOR_BITS * _below_one(columns)).T
        return cls(np.ascontiguousarray(steps), _units(exponents, matrix.shape[0]))

    @property
    def values(self) -> Float64Array:
        """The rounded matrix (features, columns)."""
        return np.asarray(self.steps * self.units)

    def product(self, rows: FloatArray) -> Float64Array:
        """Return the product (rows, columns) of rows (rows, features), rounded to 26 bits too, and the matrix.

        The integer vectors have norms of at most about 2^26, so every partial sum is below 2^53 and exact.
        """
        scaled, exponents = _scaled(rows)
        steps = np.rint(2.0**_FACTOR_BITS * _below_one(scaled))
        found = steps @ self.steps
        found *= self.units
        found *= _units(exponents, rows.shape[1])[:, None]
        return np.asarray(found)


def _scaled(rows: FloatArray) -> tuple[Float64Array, np.ndarray]:
    """Divide each row by the power of two above its largest value. Return the rows and the exponents."""
    rows = np.asarray(rows, np.float64)
    largest = np.maximum(rows.max(axis=1, initial=0.0), -rows.min(axis=1, initial=0.0))
    reach = 2.0**_MOST_EXPONENT
    if (largest > reach).any():
        rows, largest = np.clip(rows, -reach, reach), np.minimum(largest, reach)
    exponents = np.maximum(np.frexp(largest)[1], -_MOST_EXPONENT)
    return rows * np.ldexp(1.0, -exponents)[:, None], exponents


def _below_one(scaled: Float64Array) -> Float64Array:
    """Scale rows of values up to 1 to a norm of at most 1, by the same power of two for all rows."""
    return np.asarray(scaled * 2.0 ** -_root_bits(scaled.shape[1]))


def _units(exponents: np.ndarray, features: int) -> Float64Array:
    return np.asarray(np.ldexp(1.0, exponents + (_root_bits(features) - _FACTOR_BITS)))


def _root_bits(features: int) -> int:
    """Return the smallest whole number whose power of two is at least the square root of ``features``."""
    return -(-max(0, features - 1).bit_length() // 2)
