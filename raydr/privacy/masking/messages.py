"""Byte layout of the clients' messages, and the keys that both sides derive for one sum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from raydr.arrays import UInt8Array
from raydr.privacy.masking.group import Batch, Group, Label
from raydr.privacy.masking.keys import KEY, TAG, derive

SHARE = KEY + 1
"""Bytes of a share: the prime is above 2^256."""
CHECK = 16


def box_bytes(sums: int) -> int:
    """Return the bytes of a neighbour's shares of the two secrets of each sum, sealed together."""
    return 2 * SHARE * sums + TAG


@dataclass(frozen=True)
class Shared:
    """The shares that a client distributes before the sums of a batch.

    Attributes
    ----------
    shares : (neighbours, sums x 66 + 16) uint8
        For each neighbour, its shares of the two secrets of each sum, sealed so that only it can read them.
    seeds : (sums, partners x 32 + 16) uint8
        Seeds of the streams that the client exchanges in each sum, sealed with the key that is revealed if it drops
        out of that sum.
    checks : (sums, 16) uint8
        Check values that identify the seeds of its own streams. They reveal nothing about these streams.
    """

    shares: UInt8Array
    seeds: UInt8Array
    checks: UInt8Array


def derive_for(key: bytes, group: Group, batch: Batch, *use: str | int) -> bytes:
    """Return 32 bytes for one use in one batch of one group."""
    return derive(key, group.digest, batch.start, batch.number, batch.sums, *use)


def own_secret(own: bytes, group: Group, label: Label, use: str) -> bytes:
    """Return one of the two secrets of a client in a sum."""
    return derive_for(own, group, label.batch, use, label.place)


def name_for(shared: Iterable[int]) -> bytes:
    """Return the name, 16 bytes, of all streams of a sum that these clients share.

    Every key belongs to one sum, so it needs no other nonce. A server that names two sets of clients under one label
    gets two different streams, and not one stream under two vectors.
    """
    return hashlib.sha256(json.dumps(sorted(shared)).encode()).digest()[:16]


def stream_key(seed: bytes) -> bytes:
    """Return the key of the stream of a client's own seed."""
    return derive(seed, "stream")


def check_of(seed: bytes) -> bytes:
    """Return the check value that identifies a seed."""
    return derive(seed, "check")[:CHECK]
