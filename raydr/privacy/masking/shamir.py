"""Shamir's secret sharing over the integers modulo a prime above 2^256 (Shamir 1979).

A share is the value of a random polynomial of degree ``threshold - 1`` at the number of its holder plus one. The secret
is its value at 0. For fewer shares than the threshold and any secret, such a polynomial exists: the shares reveal
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from raydr.arrays import UInt8Array

PRIME = 2**256 + 297
"""The smallest prime above 2^256, so that every 32 bytes are a valid secret."""


def split(
    secrets: Sequence[int], coefficients: UInt8Array, holders: Sequence[int], prime: int = PRIME
) -> list[list[int]]:
    """Return one share of each secret for each holder; ``len(coefficients) + 1`` of them reconstruct it.

    All polynomials are evaluated at once: they lie side by side in one long integer, each in a slot wide enough for
    the largest value. Points are small numbers, so one multiplication serves all slots, without a carry between them.
    For 32 secrets this takes an eighth of the time of one polynomial after the other.

    Parameters
    ----------
    secrets : sequence of int
        From 0 to below the prime.
    coefficients : (threshold - 1, secrets, width) uint8
        Coefficients of the polynomials from the linear one on, little-endian: random, uniform modulo the prime.
    holders : sequence of int
        Numbers of the holders, from 0 to below ``prime - 1``, each once.
    prime : int
        Prime of the field.

    Returns
    -------
    shares : list of lists
        For each holder its shares, in the order of the secrets.

    Examples
    --------
    >>> shares = split([42], np.array([[[7]]], np.uint8), [0, 1, 5])
    >>> shares
    [[49], [56], [84]]
    >>> combine({1: shares[1][0], 5: shares[2][0]})
    42
    """
    steps, _, width = coefficients.shape
    largest = max(holders) + 1
    # A value is below (steps + 1) x 2^(8 x width) x largest^steps.
    bits = (
        8 * max(width, (prime.bit_length() + 7) // 8)
        + steps * largest.bit_length()
        + (steps + 1).bit_length()
    )
    slot = (bits + 7) // 8
    slots = np.zeros((steps, len(secrets), slot), np.uint8)
    slots[:, :, :width] = coefficients
    descending = [int.from_bytes(row.tobytes(), "little") for row in slots[::-1]]
    descending.append(
        int.from_bytes(b"".join(secret.to_bytes(slot, "little") for secret in secrets), "little")
    )
    shares = []
    for holder in holders:
        value = 0
        for together in descending:
            value = value * (holder + 1) + together
        content = value.to_bytes(slot * len(secrets), "little")
        shares.append(
            [
                int.from_bytes(content[start : start + slot], "little") % prime
                for start in range(0, len(content), slot)
            ]
        )
    return shares


def split_many(secrets: Sequence[bytes], coefficients: UInt8Array, holders: Sequence[int]) -> UInt8Array:
    """Return the shares of :func:`split` by compiled loops, (holders, secrets, 33) uint8, big-endian.

    For 32 secrets and 26 holders of a thousand clients it takes 0.4 ms instead of 1.9.

    Parameters
    ----------
    secrets : sequence of bytes
        32 bytes each, big-endian.
    coefficients : (threshold - 1, secrets, 48) uint8
        See :func:`split`.
    holders : sequence of int
        Numbers of the holders, below 2^30 - 1, each once.
    """
    from raydr.privacy.masking.kernels import evaluate

    steps, count, width = coefficients.shape
    content = np.zeros((steps + 1, count, width), np.uint8)
    content[0, :, :32] = np.frombuffer(b"".join(secrets), np.uint8).reshape(count, 32)[:, ::-1]
    content[1:] = coefficients
    shares = np.empty((len(holders), count, 33), np.uint8)
    evaluate(content.view("<u4").astype(np.int64), np.array(holders, np.int64) + 1, shares)
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
