"""Exact samples of the discrete Gaussian from random integers.

The discrete Gaussian with deviation s (Canonne, Kamath & Steinke 2020) gives the integer i a probability proportional
to exp(-i^2 / 2 s^2). It is sampled in the way that Karney (2016) samples normal numbers. Draw i = +-(k s + j), with k
proportional to exp(-k^2 / 2) and j uniform below s. Accept it with probability exp(-x (2 k + x) / 2), x = j / s.
Doubles decide only if their rounding cannot matter; closer cases are decided with 50 decimal digits.

In total variation, a number is within 2^-60 of the discrete Gaussian. The table for k has 64 bits and is cut off where
2^-72 is left; acceptance uses 64 bits. The distance to a Gaussian that is rounded to integers is less than 1 / (4 s^2).
The distance of a sum of several to that of their joint deviation is less than 10 exp(-pi^2 s^2) each (Kairouz, Liu &
Steinke 2021, arXiv 2102.06387, theorem 1). At s = 2^40 these are 2^-82 and practically 0. numpy's normal numbers,
rounded to a grid with as many steps, are 2^-18 to 2^-15 away.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import cache

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import BoolArray, Int64Array

LARGEST = 10
"""Largest absolute value of a sample, in deviations."""
_WORD = 2**64
_BLOCK = 1 << 16
"""Samples tried at a time: 0.5 MB."""
_UNSURE = 2.0**24
"""Margin of the probabilities computed in doubles, in units of 2^-64: 2^7 times their rounding error."""


def discrete_gaussian(deviation: int, count: int, stream: np.random.Generator) -> Int64Array:
    """Draw ``count`` samples (count,) with a deviation from 1 to 2^50, each below ten deviations in size.

    >>> discrete_gaussian(3, 8, np.random.default_rng(0)).tolist()
    [0, 0, 0, 3, 5, -4, -7, 1]
    """
    drawn = np.empty(count, np.int64)
    done = 0
    while done < count:
        tried = min(_BLOCK, 3 * (count - done) // 2 + 8)
        blocks = _words(stream, tried)
        whole = np.zeros(tried, np.int64)
        for threshold in thresholds():
            whole += blocks >= threshold
        signed = stream.integers(2 * deviation, size=tried)
        rest, negative = signed >> 1, (signed & 1).astype(bool)
        kept = accepted(whole, rest, deviation, _words(stream, tried))
        kept &= ~(negative & (whole == 0) & (rest == 0))  # keep one of 0 and -0
        found = np.where(negative, -1, 1)[kept] * (whole * deviation + rest)[kept]
        found = found[: count - done]
        drawn[done : done + len(found)] = found
        done += len(found)
    return drawn


def accepted(whole: Int64Array, rest: Int64Array, deviation: int, words: NDArray[np.uint64]) -> BoolArray:
    """Return whether each word / 2^64 is below exp(-x (2 whole + x) / 2), x = rest / deviation; exactly."""
    part = rest / deviation
    probable = 2.0**64 * np.exp(-0.5 * part * (2.0 * whole + part))
    given = words.astype(np.float64)
    found = given < probable
    for place in np.flatnonzero(np.abs(given - probable) < _UNSURE):
        found[place] = int(words[place]) < _probability(int(whole[place]), int(rest[place]), deviation)
    return np.asarray(found)


def _probability(whole: int, rest: int, deviation: int) -> Decimal:
    """Return 2^64 times the acceptance probability of a sample, to 50 digits."""
    with localcontext() as context:
        context.prec = 50
        exponent = Decimal(-rest * (2 * whole * deviation + rest)) / Decimal(2 * deviation**2)
        return _WORD * exponent.exp()


@cache
def thresholds() -> tuple[np.uint64, ...]:
    """Return the words from which the whole part is at least 1, 2, ..., with weights exp(-k^2 / 2)."""
    with localcontext() as context:
        context.prec = 50
        weights = [(Decimal(-k * k) / 2).exp() for k in range(LARGEST)]
        parts = [_WORD * weight / sum(weights) for weight in weights]
        return tuple(np.uint64(round(sum(parts[: k + 1], Decimal(0)))) for k in range(LARGEST - 1))


def _words(stream: np.random.Generator, count: int) -> NDArray[np.uint64]:
    return stream.integers(_WORD - 1, size=count, dtype=np.uint64, endpoint=True)
