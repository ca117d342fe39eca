"""Byte layout of the clients' messages, and the keys that both sides derive for one sum."""

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
    """The shares that a client distributes before a sum.

    Attributes
    ----------
    shares : (neighbours, 82) uint8
        For each neighbour, its shares of the two secrets, sealed so that only it can read them.
    seeds : (partners x 32 + 16,) uint8
        Seeds of the streams that the client exchanges, sealed with the key that is revealed if it drops out.
    check : (16,) uint8
        Check value that identifies the seed of its own stream. It reveals nothing about that stream.
    """

    shares: UInt8Array
    seeds: UInt8Array
    check: UInt8Array


def derive_for(key: bytes, group: Group, label: Label, *use: str | int) -> bytes:
    """Return 32 bytes for one use in one sum of one group."""
    return derive(key, group.digest, label.start, label.call, label.round, *use)


def digest_of(clients: Iterable[int]) -> str:
    """Return the digest of a set of clients."""
    return hashlib.sha256(json.dumps(sorted(clients)).encode()).hexdigest()


def stream_key(seed: bytes, shared: str) -> bytes:
    """Return the key of a seed's stream for this set of sharing clients, so that no stream serves two sums."""
    return derive(seed, "stream", shared)


def check_of(seed: bytes) -> bytes:
    """Return the check value that identifies a seed."""
    return derive(seed, "check")[:CHECK]
