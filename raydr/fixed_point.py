"""Arithmetic on rows whose result for each row depends on that row alone, to the bit.

A claim of differential privacy is about what one record changes. BLAS and reductions add in an order that depends on
how many rows there are, so that one row more can change the last digit of all others; where such a digit decides (a
phase far out, the nearest of two centres, a rectified unit at 0), every row's contribution moves. Here nothing rounds
but elementwise operations, whose results IEEE 754 fixes. Products of matrices and sums over rows are of integers below
2^53, which doubles add exactly, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from raydr.arrays import Float64Array, FloatArray

EXACT_BITS = 53
"""Bits of an integer that a double holds; sums that stay within them are exact."""
_FACTOR_BITS = 26
"""Bits of each factor of an exact product."""
_MOST_EXPONENT = 900
"""No value counts as larger than 2^900, and rows without any above 2^-900 count as zeros: scales stay doubles."""


def shortened(rows: FloatArray, clip: float) -> Float64Array:
    """Rows in units of ``clip``, those that are longer made as long; (rows, features) float64."""
    scaled, exponents = _scaled(rows)
    lengths = np.sqrt(row_products(scaled, scaled))
    with np.errstate(over="ignore"):  # for a row this short, any clip may be infinite
        return np.asarray(scaled / np.maximum(lengths, np.ldexp(clip, -exponents))[:, None])


def on_grid(rows: FloatArray, clip: float, bits: int) -> Float64Array:
    """Rows in units of ``clip``, rounded to multiples of ``2**-bits``, none longer than 1.

    The length is that of the numbers that are returned, exactly, and not of what they were rounded from.

    Parameters
    ----------
    rows : (rows, features)
        Of finite numbers, however large.
    clip : float
        Length to which they are cut.
    bits : int
        At most 26: squared lengths are then exact.
    """
    exact = 2.0**bits * shortened(rows, clip)
    steps = np.rint(exact)
    longer = np.einsum("ij,ij->i", steps, steps) > 4.0**bits
    # Towards 0 no value grows; 2^-40 is more than the rounding of a length.
    steps[longer] = np.trunc((1.0 - 2.0**-40) * exact[longer])
    steps *= 2.0**-bits
    return steps


def grid_bits(rows: int, degree: int = 1) -> int:
    """Bits of a grid such that ``rows`` products of ``degree`` values of at most 1 on it add up exactly.

    >>> grid_bits(60_000), grid_bits(60_000, 2)
    (26, 18)
    """
    return max(1, min(_FACTOR_BITS, (EXACT_BITS - max(1, rows).bit_length()) // degree))


def row_products(a: Float64Array, b: Float64Array) -> Float64Array:
    """Inner product (rows,) of each row of a with that of b, added up in halves by elementwise additions."""
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
    """A matrix whose columns are rounded to 26 bits, each of its own scale, so that products with it can be exact.

    Attributes
    ----------
    steps : (features, columns) float64
        Integers, each column no longer than about 2^26.
    units : (columns,) float64
        What an integer of each column stands for: powers of two.
    """

    steps: Float64Array
    units: Float64Array

    @classmethod
    def of(cls, matrix: FloatArray) -> Self:
        """Round a matrix (features, columns) of finite numbers."""
        columns, exponents = _scaled(matrix.T)
        steps = np.rint(2.0**_FACTOR_BITS * _below_one(columns)).T
        return cls(np.ascontiguousarray(steps), _units(exponents, matrix.shape[0]))

    @property
    def values(self) -> Float64Array:
        """The matrix, rounded."""
        return np.asarray(self.steps * self.units)

    def product(self, rows: FloatArray) -> Float64Array:
        """Rows (rows, features), rounded to 26 bits as the columns are, times the matrix: (rows, columns).

        Inner products are of integer vectors no longer than about 2^26, so every partial sum is below 2^53 and exact.
        """
        scaled, exponents = _scaled(rows)
        steps = np.rint(2.0**_FACTOR_BITS * _below_one(scaled))
        found = steps @ self.steps
        found *= self.units
        found *= _units(exponents, rows.shape[1])[:, None]
        return np.asarray(found)


def _scaled(rows: FloatArray) -> tuple[Float64Array, np.ndarray]:
    """Rows over the power of two above their largest value, and its exponent."""
    rows = np.asarray(rows, np.float64)
    largest = np.maximum(rows.max(axis=1, initial=0.0), -rows.min(axis=1, initial=0.0))
    reach = 2.0**_MOST_EXPONENT
    if (largest > reach).any():
        rows, largest = np.clip(rows, -reach, reach), np.minimum(largest, reach)
    exponents = np.maximum(np.frexp(largest)[1], -_MOST_EXPONENT)
    return rows * np.ldexp(1.0, -exponents)[:, None], exponents


def _below_one(scaled: Float64Array) -> Float64Array:
    """Rows of values up to 1 made no longer than 1, by a power of two that is the same for all."""
    return np.asarray(scaled * 2.0 ** -_root_bits(scaled.shape[1]))


def _units(exponents: np.ndarray, features: int) -> Float64Array:
    return np.asarray(np.ldexp(1.0, exponents + (_root_bits(features) - _FACTOR_BITS)))


def _root_bits(features: int) -> int:
    """Least whole number whose power of two is at least the root of ``features``."""
    return -(-max(0, features - 1).bit_length() // 2)
