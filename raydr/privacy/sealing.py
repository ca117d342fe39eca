"""Sealed arrays: what a client wants back later, and nobody else is to read or change.

A client that forgets everything between two calls can be restarted, moved or resumed at any time. What it must
remember travels with the server's own state, sealed by ChaCha20-Poly1305 (RFC 8439) under a key that only the client
has.
"""

from __future__ import annotations

import hashlib

import numpy as np

from raydr.arrays import Float32Array, UInt8Array
from raydr.errors import RunError

_NONCE, _TAG = 12, 16


def sealed_size(count: int) -> int:
    """Bytes of a sealed array of so many float32."""
    return _NONCE + 4 * count + _TAG


def seal(values: Float32Array, key: bytes) -> UInt8Array:
    """Sealed values, (sealed_size(n),) uint8; the same values give the same bytes.

    Parameters
    ----------
    values : (n,) float32
        What to seal.
    key : bytes
        32 secret bytes.
    """
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    content = values.tobytes()
    # A nonce that follows from the content under the key never serves two contents.
    nonce = hashlib.blake2b(content, digest_size=_NONCE, key=key).digest()
    return np.frombuffer(nonce + ChaCha20Poly1305(key).encrypt(nonce, content, None), np.uint8)


def unseal(sealed: UInt8Array, key: bytes) -> Float32Array:
    """Return what was sealed, (n,) float32.

    Raises
    ------
    RunError
        If it was sealed with another key, or changed since.

    Examples
    --------
    >>> unseal(seal(np.array([1.5, -2.0], np.float32), bytes(32)), bytes(32)).tolist()
    [1.5, -2.0]
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    content = sealed.tobytes()
    try:
        opened = ChaCha20Poly1305(key).decrypt(content[:_NONCE], content[_NONCE:], None)
    except (InvalidTag, ValueError):  # of another key, changed, or too short for a nonce
        raise RunError(
            "what a client had sealed for itself came back changed, or from another client: the server's state is"
            " damaged. Resume from an earlier checkpoint, or start the run anew."
        ) from None
    return np.frombuffer(opened, np.float32)
