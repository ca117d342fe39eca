"""A secret of all clients that the server relays and cannot read: one client seals it for each of the others.

The key of each box follows from what sender and receiver agreed on, which is bound to the run, to both of them and to
their public keys. So a box opens for its receiver alone, in that run alone, and as that sender's alone.
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
    """Seal 32 bytes for each of some other clients, (others, 48) uint8, in the order of their keys.

    Raises as :func:`agree`. The same content must be handed out whenever it is: a box's key seals one content alone.
    """
    agreed = agree(secret, run, client, public_keys)
    boxes = b"".join(keys.seal(_box(key, client, other), content) for other, key in agreed.items())
    return np.frombuffer(boxes, np.uint8).reshape(-1, BOX)


def receive(
    box: UInt8Array, secret: bytes, run: str, client: int, sender: int, public_key: UInt8Array
) -> bytes:
    """Return the 32 bytes that another client has sealed for this one.

    Raises
    ------
    MaskingError
        If they are not that sender's, are for another client or of another run, or were changed on their way.
    """
    content = keys.unseal(
        _box(agree(secret, run, client, {sender: public_key})[sender], sender, client), box.tobytes()
    )
    if content is None:
        raise MaskingError(
            f"the secret that client {sender} is said to have sealed for client {client} is forged, for somebody else,"
            " or of another run."
        )
    return content


def _box(agreed: bytes, sender: int, receiver: int) -> bytes:
    return keys.derive(agreed, "secret of all clients", sender, receiver)
