"""Sealed bytes: what a client wants back later, and nobody else is to read or change.

A client that forgets everything between two calls can be restarted, moved or resumed at any time. What it must
remember travels with the server's own state, sealed by ChaCha20-Poly1305 (RFC 8439) under a key that only the client
has.
"""

from __future__ import annotations

import hmac

import numpy as np

from raydr.arrays import UInt8Array
from raydr.errors import RunError

_NONCE, _TAG = 12, 16


def sealed_size(size: int) -> int:
    """How many bytes so many are once sealed."""
    return _NONCE + size + _TAG


def seal(content: UInt8Array, key: bytes) -> UInt8Array:
    """Sealed content, (sealed_size(n),) uint8; the same content gives the same bytes.

    Parameters
    ----------
    content : (n,) uint8
        What to seal.
    key : bytes
        32 secret bytes.
    """
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    sealed = np.empty(sealed_size(content.size), np.uint8)
    # A nonce that follows from the content under the key never serves two contents.
    nonce = hmac.digest(key, content.data, "sha256")[:_NONCE]
    sealed[:_NONCE] = np.frombuffer(nonce, np.uint8)
    ChaCha20Poly1305(key).encrypt_into(nonce, content.data, None, sealed[_NONCE:].data)
    return sealed


def unseal(sealed: UInt8Array, key: bytes) -> UInt8Array:
    """Return what was sealed, (n,) uint8.

    Raises
    ------
    RunError
        If it was sealed with another key, or changed since.

    Examples
    --------
    >>> unseal(seal(np.array([1, 255], np.uint8), bytes(32)), bytes(32))
    array([  1, 255], dtype=uint8)
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    content = np.empty(max(0, sealed.size - sealed_size(0)), np.uint8)
    try:
        opener = ChaCha20Poly1305(key)
        opener.decrypt_into(sealed[:_NONCE].data, sealed[_NONCE:].data, None, content.data)
    except (InvalidTag, ValueError):  # of another key, changed, or too short for a nonce
        raise RunError(
            "what a client had sealed for itself came back changed, or from another client: the server's state is"
            " damaged. Resume from an earlier checkpoint, or start the run anew."
        ) from None
    return content
