"""Shamir's secret sharing over the integers modulo a prime above 2^256 (Shamir 1979).

A share is the value of a random polynomial of degree ``threshold - 1`` at the number of its holder plus one. The secret
is its value at 0. For fewer shares than the threshold and any secret, such a polynomial exists: the shares reveal
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

PRIME = 2**256 + 297
"""The smallest prime above 2^256, so that every 32 bytes are a valid secret."""


def split(secret: int, coefficients: Sequence[int], holders: Sequence[int], prime: int = PRIME) -> list[int]:
    """Return one share of a secret for each holder; ``len(coefficients) + 1`` of them reconstruct it.

    Parameters
    ----------
    secret : int
        From 0 to below the prime.
    coefficients : sequence of int
        Coefficients of the polynomial from the linear one on: random, uniform below the prime.
    holders : sequence of int
        Numbers of the holders, from 0 to below ``prime - 1``, each once.
    prime : int
        Prime of the field.

    Examples
    --------
    >>> shares = split(42, [7], [0, 1, 5])
    >>> shares
    [49, 56, 84]
    >>> combine({1: shares[1], 5: shares[2]})
    42
    """
    descending = [*reversed(coefficients), secret]
    shares = []
    for holder in holders:
        value = 0
        for coefficient in descending:
            # Points are small numbers: one reduction is 3x faster than one per step.
            value = value * (holder + 1) + coefficient
        shares.append(value % prime)
    return shares


def combine(shares: Mapping[int, int], prime: int = PRIME) -> int:
    """Return the secret, given as many shares (by holder) as the threshold."""
    holders = tuple(sorted(shares))
    weights = _weights(holders, prime)
    return sum(weight * shares[holder] for weight, holder in zip(weights, holders, strict=True)) % prime


@lru_cache(maxsize=1024)
def _weights(holders: tuple[int, ...], prime: int) -> tuple[int, ...]:
    """Return the Lagrange weight of each share in the value at 0; cached for the same holders."""
    points = [holder + 1 for holder in holders]
    weights = []
    for point in points:
        above = below = 1
        for other in points:
            if other != point:
                above *= other
                below *= other - point
        weights.append(above * pow(below, -1, prime) % prime)
    return tuple(weights)
