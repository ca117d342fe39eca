"""Exact sums in the ring of 64-bit fixed-point integers.

Floating-point sums depend on their order, and so on packing, workers and nodes. Here every summand is rounded once,
at its client, to a multiple of 2^-bits and added as a 64-bit integer: the sum is exact, in any order. The number of
fractional bits follows from the declared range and the total weight, so that no sum can leave the ring.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from raydr.arrays import Float64Array, Int64Array, IntArray
from raydr.errors import RunError
from raydr.federation.messages import Bound

CAPACITY_BITS = 62
"""Sums stay below 2^62: one bit is the sign, one is the margin for the rounding of summands."""


class RangeError(RunError):
    """A range that no ring can hold."""


def fraction_bits(largest: Bound, weight: int) -> IntArray:
    """Fractional bits such that summands up to ``largest`` with total weight ``weight`` cannot overflow.

    Parameters
    ----------
    largest : float or array
        Largest absolute value of one summand, at least 0 and finite.
    weight : int
        Sum of all clients' weights, at least 1.

    Returns
    -------
    bits : int32, of the shape of ``largest``
        ``largest * weight * 2**bits <= 2**62``; negative for huge ranges, and between -1000 and 1000 so that
        ``2**bits`` is a double.

    Raises
    ------
    RangeError
        If the range is not finite, negative, or too large for any ring of doubles.
    """
    total = np.asarray(largest, np.float64) * float(weight)
    if not np.all(np.isfinite(total)) or np.any(total < 0):
        raise RangeError(
            f"the declared range {largest!r} of a sum with total weight {weight} must be finite and not negative"
        )
    exponent = np.frexp(total)[1]  # total < 2**exponent
    return np.asarray(np.clip(CAPACITY_BITS - exponent, -1000, 1000), np.int32)


def encode(values: ArrayLike, bits: IntArray) -> Int64Array:
    """Round ``values``, which must be within the range that gave ``bits``, to multiples of ``2**-bits``.

    Returns
    -------
    summand : int64
        ``values * 2**bits``, rounded to the nearest integer, half to even.
    """
    # A product with a power of two is exact, and ten times faster than ldexp.
    scaled = np.multiply(values, np.exp2(bits.astype(np.float64)), dtype=np.float64)
    return np.rint(scaled).astype(np.int64)


def decode(total: Int64Array, bits: IntArray) -> Float64Array:
    """Value of a ring sum, rounded once to double precision."""
    return np.asarray(total.astype(np.float64) * np.exp2(-bits.astype(np.float64)))
