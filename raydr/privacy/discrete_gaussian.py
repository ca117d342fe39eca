"""Samples of the discrete Gaussian by integers, as exact as the bits that they are made of.

The discrete Gaussian of deviation s (Canonne, Kamath & Steinke 2020) gives the integer i a probability in proportion to
exp(-i^2 / 2 s^2). It is drawn as Karney (2016) draws normal numbers: i = +-(k s + j), with k in proportion to
exp(-k^2 / 2), j uniform below s, and accepted with probability exp(-x (2 k + x) / 2), x = j / s. Doubles decide only
where their rounding cannot matter; what lies nearer is decided by 50 decimal digits.

In total variation a number is within 2^-60 of the discrete Gaussian: k comes from a table of 64 bits, cut off where
2^-72 is left, and acceptance from 64 bits. From a Gaussian rounded to integers that differs by less than 1 / (4 s^2),
and a sum of several from that of their joint deviation by less than 10 exp(-pi^2 s^2) each (Kairouz, Liu & Steinke
2021, arXiv 2102.06387, theorem 1): at s = 2^40, 2^-82 and nothing. numpy's normal numbers, rounded to a grid of as many
steps, are 2^-18 to 2^-15 away.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import cache

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import BoolArray, Int64Array

LARGEST = 10
"""No number is longer than this many deviations."""
_WORD = 2**64
_BLOCK = 1 << 16
"""Numbers that are tried at a time: 0.5 MB."""
_UNSURE = 2.0**24
"""In units of 2^-64, what the probabilities of doubles are right to, and 2^7 times more."""


def discrete_gaussian(deviation: int, count: int, stream: np.random.Generator) -> Int64Array:
    """Draw ``count`` numbers (count,) of a deviation from 1 to 2^50, each at most ten times as long.

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
        kept &= ~(negative & (whole == 0) & (rest == 0))  # of 0 and -0, one
        found = np.where(negative, -1, 1)[kept] * (whole * deviation + rest)[kept]
        found = found[: count - done]
        drawn[done : done + len(found)] = found
        done += len(found)
    return drawn


def accepted(whole: Int64Array, rest: Int64Array, deviation: int, words: NDArray[np.uint64]) -> BoolArray:
    """Whether each word / 2^64 is below exp(-x (2 whole + x) / 2), for x = rest / deviation; exactly."""
    part = rest / deviation
    probable = 2.0**64 * np.exp(-0.5 * part * (2.0 * whole + part))
    given = words.astype(np.float64)
    found = given < probable
    for place in np.flatnonzero(np.abs(given - probable) < _UNSURE):
        found[place] = int(words[place]) < _probability(int(whole[place]), int(rest[place]), deviation)
    return np.asarray(found)


def _probability(whole: int, rest: int, deviation: int) -> Decimal:
    """2^64 times the probability with which a number is accepted, to 50 digits."""
    with localcontext() as context:
        context.prec = 50
        exponent = Decimal(-rest * (2 * whole * deviation + rest)) / Decimal(2 * deviation**2)
        return _WORD * exponent.exp()


@cache
def thresholds() -> tuple[np.uint64, ...]:
    """Words from which on the whole part is at least 1, 2, ...: its probabilities are as exp(-k^2 / 2)."""
    with localcontext() as context:
        context.prec = 50
        weights = [(Decimal(-k * k) / 2).exp() for k in range(LARGEST)]
        parts = [_WORD * weight / sum(weights) for weight in weights]
        return tuple(np.uint64(round(sum(parts[: k + 1], Decimal(0)))) for k in range(LARGEST - 1))


def _words(stream: np.random.Generator, count: int) -> NDArray[np.uint64]:
    return stream.integers(_WORD - 1, size=count, dtype=np.uint64, endpoint=True)
