"""Exact sums in the ring of fixed-point integers, of 64 bits or fewer.

Floating-point sums depend on their order, and therefore on packing, workers and nodes. Here every summand is rounded
once, at its client, to a multiple of 2^-bits and added as a 64-bit integer. The sum is exact in any order. The number
of fractional bits follows from the declared range and the total weight, so no sum can overflow the ring.

A narrow ring, of 32 or 16 bits, makes messages smaller. Its integers are the last bits of 64-bit ones. Sums and masks
can be truncated to these bits, before or after, with the same result. So a secure sum needs no other masks, and its
result is again the same in any order. The resolution is coarse. Each summand, multiplied by its weight, is therefore
rounded up or down at random, with the summand as its expectation (QSGD, Alistarh et al. 2017). The random numbers
follow from seed, client and round, so a client that is asked again sends the same.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from raydr.arrays import Float64Array, Int64Array, IntArray
from raydr.errors import RunError
from raydr.federation.messages import BLOCK, worth_compiling
from raydr.privacy.mechanism import Bound

MARGIN_BITS = 2
"""Sums stay below 2^62 in 64 bits: one bit is the sign, one is the margin for the rounding of summands. In a narrow
ring, the rounding of a summand is at most 1, so the margin of 16 bits is enough for 2^14 clients."""


_ROWS = 64
"""Short summands that are added up together."""


class RangeError(RunError):
    """A range that no ring can hold."""


def fraction_bits(largest: Bound, weight: int, ring: int = 64) -> IntArray:
    """Return the fractional bits with which a sum of this range and total weight cannot overflow.

    Parameters
    ----------
    largest : float or array
        Largest absolute value of one summand, at least 0 and finite.
    weight : int
        Sum of all clients' weights, at least 1.
    ring : {64, 32, 16}
        Bits of the ring.

    Returns
    -------
    bits : int32, of the shape of ``largest``
        ``largest * weight * 2**bits <= 2**(ring - 2)``; negative for huge ranges, -1024 at least, and 1000 at most, so
        that ``2**bits`` is a double.

    Raises
    ------
    RangeError
        If the range is negative, not finite, or too large for any ring of doubles.
    """
    total = np.asarray(largest, np.float64) * float(weight)
    if not np.all(np.isfinite(total)) or np.any(total < 0):
        raise RangeError(
            f"the declared range {largest!r} of a sum with total weight {weight} must be finite and not negative"
        )
    exponent = np.frexp(total)[1]  # total < 2**exponent
    return np.asarray(np.minimum(ring - MARGIN_BITS - exponent, 1000), np.int32)


def resolution(largest: Bound, weight: int, ring: int = 64) -> float:
    """Return the smallest difference that such a ring resolves, in the coarsest entry: ``2**-bits``."""
    return float(np.ldexp(1.0, -int(np.min(fraction_bits(largest, weight, ring)))))


def in_ring(total: IntArray, ring: int) -> IntArray:
    """Return a sum's last bits, which are all that a narrow ring keeps.

    >>> in_ring(np.array([2**16 + 5, -3]), 16).tolist()
    [5, -3]
    """
    return total if ring == 64 else total.astype(f"int{ring}")


class RingSum:
    """A weighted sum of arrays of one shape in the ring, in place.

    Each summand is rounded to a multiple of ``2**-bits`` (half to even). It is added in blocks that stay in a core's
    cache. Large arrays with one scale use a compiled loop, with identical bits. Adding a summand reads it once and
    allocates nothing. Short summands are collected in rows and added up together, because a numpy call takes longer
    than the addition itself.

    Parameters
    ----------
    shape : tuple of int
        Shape of every summand.
    bits : int32, () or of that shape
        Fractional bits, from :func:`fraction_bits`.

    Examples
    --------
    >>> ring = RingSum((2,), fraction_bits(1.0, 3))
    >>> ring.add(np.array([0.25, -1.0]), 2)
    >>> ring.add(np.array([0.5, 1.0]), 1)
    >>> decode(ring.total, fraction_bits(1.0, 3)).tolist()
    [1.0, -1.0]
    """

    def __init__(self, shape: tuple[int, ...], bits: IntArray) -> None:
        self._total = np.zeros(shape, np.int64)
        into = self._total.reshape(-1)
        # Multiplying by a power of two is exact, and ten times faster than ldexp.
        factor = np.ldexp(1.0, np.broadcast_to(bits, shape if bits.ndim else ()).reshape(-1))
        self._factor = float(factor[0]) if factor.size == 1 else None
        scaled, summand = np.empty(min(into.size, BLOCK)), np.empty(min(into.size, BLOCK), np.int64)
        self._blocks = [
            (
                slice(start, start + BLOCK),
                factor if factor.size == 1 else factor[start : start + BLOCK],
                scaled[: into.size - start],
                summand[: into.size - start],
                into[start : start + BLOCK],
            )
            for start in range(0, into.size, BLOCK)
        ]

        self._rows = np.empty((min(_ROWS, BLOCK // into.size) if into.size else 0, into.size))
        self._weights: list[int] = []

    @property
    def total(self) -> Int64Array:
        """The sum so far, times ``2**bits``, in the shape of the summands; writing to it changes the sum."""
        if self._weights:
            self._add_waiting()
        return self._total

    def _add_waiting(self) -> None:
        """Add up the short summands that were collected in rows."""
        rows = self._rows[: len(self._weights)]
        np.multiply(rows, self._blocks[0][1], out=rows)
        np.rint(rows, out=rows)
        summands = rows.astype(np.int64)
        if any(weight != 1 for weight in self._weights):
            summands *= np.array(self._weights, np.int64)[:, None]
        self._total += np.add.reduce(summands, axis=0).reshape(self._total.shape)
        self._weights.clear()

    def add_at_random(self, values: ArrayLike, weight: int, random: np.random.Generator) -> None:
        """Add ``weight`` times ``values``, each product rounded up or down at random with itself as its expectation."""
        flat, into = np.asarray(values).reshape(-1), self._total.reshape(-1)
        for block, factor, scaled, summand, _ in self._blocks:
            np.multiply(flat[block], weight, out=scaled, dtype=np.float64)
            scaled *= factor
            scaled += random.random(scaled.size)
            np.floor(scaled, out=scaled)
            np.copyto(summand, scaled, casting="unsafe")
            into[block] += summand

    def add(self, values: ArrayLike, weight: int) -> None:
        """Add ``weight`` times ``values``, which must be within the range behind the bits."""
        flat = np.asarray(values).reshape(-1)
        if len(self._rows) > 1:
            if len(self._weights) == len(self._rows):
                self._add_waiting()
            self._rows[len(self._weights)] = flat
            self._weights.append(weight)
            return
        if self._factor is not None and worth_compiling(flat):
            from raydr.federation.kernels import add_scaled

            add_scaled(self._total.reshape(-1), flat, self._factor, weight)
            return
        for block, factor, scaled, summand, into in self._blocks:
            part = flat[block]
            if part.dtype != np.float64:  # numpy multiplies mixed types at half the speed
                np.copyto(scaled, part)
                part = scaled
            np.multiply(part, factor, out=scaled)
            np.rint(scaled, out=scaled)
            np.copyto(summand, scaled, casting="unsafe")
            if weight != 1:
                np.multiply(summand, weight, out=summand)
            np.add(into, summand, out=into)


def split_as(flat: Int64Array, like: Mapping[str, IntArray]) -> dict[str, IntArray]:
    """Cut one long sum (n,) into arrays of these names and shapes, in their order.

    >>> split_as(np.arange(3), {"one": np.zeros((2, 1), int), "two": np.zeros((), int)})["one"].tolist()
    [[0], [1]]
    """
    parts: dict[str, IntArray] = {}
    start = 0
    for name, shaped in like.items():
        parts[name] = flat[start : start + shaped.size].reshape(shaped.shape)
        start += shaped.size
    return parts


def decode(total: IntArray, bits: IntArray, divisor: int = 1) -> Float64Array:
    """Return a ring sum divided by ``divisor`` as float64, rounded once, in one pass over memory."""
    value = np.empty(total.shape)
    factor = np.ldexp(1.0, np.broadcast_to(-bits, total.shape if bits.ndim else ()).reshape(-1))
    out, flat = value.reshape(-1), total.reshape(-1)
    for start in range(0, out.size, BLOCK):
        block = out[start : start + BLOCK]
        block[...] = flat[start : start + BLOCK]
        block *= factor if factor.size == 1 else factor[start : start + BLOCK]
        if divisor != 1:
            block /= divisor
    return value
