"""Compiled inner loops of secret sharing. They import numba, so import this module where it is used."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from raydr.arrays import Int64Array, UInt8Array
from raydr.compiled import compiled

_DIGIT = 32
_MASK = (1 << _DIGIT) - 1
_DIGITS = 8
"""Digits of 2^256. A number below the prime has one more, 0 or 1."""
_OVER = 297
"""The prime is 2^256 + 297, so 2^256 is -297 modulo it."""


def _folded(digits: Int64Array, high: int, into: Int64Array) -> None:
    """Write the 8 low ``digits`` minus 297 x ``high`` into ``into`` (9,), modulo the prime; ``high`` below 2^44."""
    rest = np.int64(_OVER) * high
    for place in range(_DIGITS):
        difference = digits[place] - (rest & _MASK)
        into[place] = difference & _MASK
        rest = (rest >> _DIGIT) - (difference >> _DIGIT)
    into[_DIGITS] = 0
    if rest != 0:  # below zero: the digits are 2^256 too large, so add 297 to have added the prime
        carry = np.int64(_OVER)
        for place in range(_DIGITS):
            value = into[place] + carry
            into[place] = value & _MASK
            carry = value >> _DIGIT
        into[_DIGITS] = carry


def _evaluate(coefficients: Int64Array, points: Int64Array, shares: UInt8Array) -> None:
    """Evaluate polynomials modulo the prime by Horner's rule.

    Parameters
    ----------
    coefficients : (steps, polynomials, 12) int64
        Digits of 32 bits from the lowest, from the constant coefficient on.
    points : (holders,) int64
        Below 2^30.
    shares : (holders, polynomials, 33) uint8
        Receives the values, big-endian.
    """
    steps, polynomials, width = coefficients.shape
    reduced, value = np.empty((steps, _DIGITS + 1), np.int64), np.empty(_DIGITS + 1, np.int64)
    for polynomial in range(polynomials):
        for step in range(steps):
            digits, last = coefficients[step, polynomial], reduced[step]
            last[:_DIGITS], last[_DIGITS] = digits[width - _DIGITS :], 0
            for place in range(width - _DIGITS - 1, -1, -1):  # by Horner's rule, too, at 2^32
                high = last[_DIGITS - 1] + (last[_DIGITS] << _DIGIT)
                last[1:_DIGITS] = last[: _DIGITS - 1].copy()
                last[0] = digits[place]
                _fold(last, high, last)
        for holder in range(points.size):
            point = points[holder]
            value[:] = reduced[steps - 1]
            for step in range(steps - 2, -1, -1):
                carry = np.int64(0)
                for place in range(_DIGITS + 1):
                    total = value[place] * point + reduced[step, place] + carry
                    value[place] = total & _MASK
                    carry = total >> _DIGIT
                _fold(value, value[_DIGITS], value)
            share = shares[holder, polynomial]
            share[0] = value[_DIGITS]
            for place in range(_DIGITS):
                digit = value[_DIGITS - 1 - place]
                for byte in range(4):
                    share[1 + 4 * place + byte] = (digit >> (24 - 8 * byte)) & 255


_compiled = compiled()
_fold = _compiled(_folded)
evaluate: Callable[[Int64Array, Int64Array, UInt8Array], None] = _compiled(_evaluate)
