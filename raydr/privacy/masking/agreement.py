"""Key agreement of two clients over public keys that the server relays (X25519, RFC 7748)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from raydr.arrays import UInt8Array
from raydr.privacy.masking import keys
from raydr.privacy.masking.keys import KEY
from raydr.privacy.masking.refusals import MaskingError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey


def advertise(secret: bytes, run: str, client: int) -> UInt8Array:
    """Return the public key of a client in a run, (32,) uint8.

    Parameters
    ----------
    secret : bytes
        32 random bytes that only the client knows.
    run : str
        Digest of the run's inputs.
    client : int
        Number of the client.
    """
    own = own_key(secret, run, client)
    return np.frombuffer(_private(own).public_key().public_bytes_raw(), np.uint8)


def agree(secret: bytes, run: str, client: int, public_keys: Mapping[int, UInt8Array]) -> dict[int, bytes]:
    """Return the secrets that the client shares with each of the other clients, by client.

    Parameters
    ----------
    secret, run, client
        As for :func:`advertise`.
    public_keys : mapping of client to (32,) uint8
        Public keys of the other clients.

    Raises
    ------
    MaskingError
        If a key occurs twice, is the client's own, or has small order: others would then know the secret.
    """
    private = _private(own_key(secret, run, client))
    mine = private.public_key().public_bytes_raw()
    owners, agreed = {mine: client}, {}
    for other, key in public_keys.items():
        public = key.tobytes()
        if public in owners:
            raise MaskingError(f"clients {owners[public]} and {other} have the same public key.")
        owners[public] = other
        try:
            between = keys.agree(private, public)
        except ValueError:
            raise MaskingError(
                f"the public key of client {other} has small order, so anyone could compute the secret that it"
                " agrees on."
            ) from None
        first, second = sorted([(client, mine), (other, public)])
        agreed[other] = keys.derive(between, run, first[0], first[1].hex(), second[0], second[1].hex())
    return agreed


def own_key(secret: bytes, run: str, client: int) -> bytes:
    """Return the key from which everything that a client draws in a run follows."""
    if len(secret) != KEY:
        raise MaskingError(f"the secret of client {client} has {len(secret)} bytes instead of {KEY}.")
    return keys.derive(keys.extract(secret), run, client)


def _private(own: bytes) -> X25519PrivateKey:
    return keys.private_key(keys.derive(own, "agreement"))
