"""A secret of all clients that the server relays and cannot read: one client seals it for each other client.

The key of each box follows from the agreement of sender and receiver. The agreement is bound to the run, to both
clients and to their public keys. So a box opens only for its receiver, only in that run, and only as that sender's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from raydr.arrays import UInt8Array
from raydr.privacy.masking import keys
from raydr.privacy.masking.agreement import agree
from raydr.privacy.masking.keys import KEY, TAG
from raydr.privacy.masking.refusals import MaskingError

BOX = KEY + TAG
"""Bytes of a sealed secret."""


def hand_out(
    content: bytes, secret: bytes, run: str, client: int, public_keys: Mapping[int, UInt8Array]
) -> UInt8Array:
    """Seal 32 bytes for each of the other clients, (others, 48) uint8, in the order of their keys.

    Raises the errors of :func:`agree`. Always pass the same content, because the key of a box seals one content only.
    """
    agreed = agree(secret, run, client, public_keys)
    boxes = b"".join(keys.seal(_box(key, client, other), content) for other, key in agreed.items())
    return np.frombuffer(boxes, np.uint8).reshape(-1, BOX)


def receive(
    box: UInt8Array, secret: bytes, run: str, client: int, sender: int, public_key: UInt8Array
) -> bytes:
    """Return the 32 bytes that another client sealed for this one.

    Raises
    ------
    MaskingError
        If they are from another sender, for another client, of another run, or changed.
    """
    content = keys.unseal(
        _box(agree(secret, run, client, {sender: public_key})[sender], sender, client), box.tobytes()
    )
    if content is None:
        raise MaskingError(
            f"client {client} cannot open the secret from client {sender}: it is forged, or belongs to another"
            " client or run."
        )
    return content


def _box(agreed: bytes, sender: int, receiver: int) -> bytes:
    return keys.derive(agreed, "secret of all clients", sender, receiver)
