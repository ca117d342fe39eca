"""Exact sums in the ring of 64-bit fixed-point integers.

Floating-point sums depend on their order, and so on packing, workers and nodes. Here every summand is rounded once,
at its client, to a multiple of 2^-bits and added as a 64-bit integer: the sum is exact, in any order. The number of
fractional bits follows from the declared range and the total weight, so that no sum can leave the ring.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from raydr.arrays import FloatArray, Int64Array, IntArray
from raydr.errors import RunError
from raydr.federation.messages import Bound

CAPACITY_BITS = 62
"""Sums stay below 2^62: one bit is the sign, one is the margin for the rounding of summands."""


class RangeError(RunError):
    """A summand outside the range that its reply type declares, or not finite."""


def fraction_bits(bound: Bound, weight: int) -> IntArray:
    """Fractional bits such that summands up to ``bound`` with total weight ``weight`` cannot overflow.

    Parameters
    ----------
    bound : float or array
        Largest absolute value of one summand, at least 0 and finite.
    weight : int
        Sum of all clients' weights, at least 1.

    Returns
    -------
    bits : int or array like ``bound``
        ``bound * weight * 2**bits <= 2**62``; negative for huge ranges, at most 1000 so that 2**bits is finite.
    """
    largest = np.asarray(bound, np.float64) * float(weight)
    if not np.all(np.isfinite(largest)) or np.any(largest < 0):
        raise RangeError(f"the declared range {bound!r} of a sum must be finite and not negative")
    exponent = np.frexp(largest)[1]  # largest < 2**exponent
    return np.asarray(np.minimum(CAPACITY_BITS - exponent, 1000), np.int32)


def encode(values: ArrayLike, bound: Bound, bits: IntArray) -> Int64Array:
    """Round ``values`` to multiples of ``2**-bits``, as 64-bit integers.

    Raises
    ------
    RangeError
        Where a value is not finite or larger than ``bound`` in absolute value.
    """
    exact = np.asarray(values, np.float64)
    outside = ~(np.abs(exact) <= bound)  # written so that NaN is outside too
    if np.any(outside):
        worst = exact[outside].ravel()[0] if exact.ndim else exact
        raise RangeError(
            f"a summand of {worst:g} is outside the declared range of +-{float(np.max(bound)):g}"
            f" ({int(np.sum(outside))} of {exact.size} entries)"
        )
    return np.rint(np.ldexp(exact, bits)).astype(np.int64)


def decode(total: Int64Array, bits: IntArray) -> FloatArray:
    """Value of a ring sum, rounded once to double precision."""
    return np.asarray(np.ldexp(total.astype(np.float64), -np.asarray(bits)))
