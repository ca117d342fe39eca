"""What clients send, in bytes, and the keys that both sides derive for one sum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from raydr.arrays import UInt8Array
from raydr.privacy.masking.group import Group, Label
from raydr.privacy.masking.keys import KEY, TAG, derive

SHARE = KEY + 1
"""Bytes of a share: the prime is above 2^256."""
PAIR = 2 * SHARE + TAG
"""Bytes of two sealed shares."""
CHECK = 16


@dataclass(frozen=True)
class Shared:
    """What a client hands out before a sum.

    Attributes
    ----------
    shares : (neighbours, 82) uint8
        For each neighbour, sealed so that it alone can read them: its shares of the two secrets.
    seeds : (partners x 32 + 16,) uint8
        Seeds of the streams that the client exchanges, sealed by the secret that is revealed if it drops out.
    check : (16,) uint8
        By which the seed of its own stream is known again. It tells nothing about that stream.
    """

    shares: UInt8Array
    seeds: UInt8Array
    check: UInt8Array


def derive_for(key: bytes, group: Group, label: Label, *use: str | int) -> bytes:
    """Return 32 bytes for one use in one sum of one group."""
    return derive(key, group.digest, label.start, label.call, label.round, *use)


def digest_of(clients: Iterable[int]) -> str:
    """Digest of a set of clients."""
    return hashlib.sha256(json.dumps(sorted(clients)).encode()).hexdigest()


def stream_key(seed: bytes, shared: str) -> bytes:
    """Key of a seed's stream: another for every set of clients that shared, by digest, so that no stream serves two."""
    return derive(seed, "stream", shared)


def check_of(seed: bytes) -> bytes:
    """By which a seed is known again."""
    return derive(seed, "check")[:CHECK]
