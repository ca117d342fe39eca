"""Keys: what each is derived from, and what it opens.

Derivation is HKDF-SHA256 (RFC 5869); one block of it is one HMAC. A key serves one use, so that nonces can be zero.
"""

from __future__ import annotations

import hmac
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

KEY = 32
TAG = 16
_SALT = b"raydr masking, version 1"
_NONCE = bytes(12)


def extract(secret: bytes) -> bytes:
    """Return a key from which others can be derived."""
    return hmac.digest(_SALT, secret, "sha256")


def derive(key: bytes, *use: str | int) -> bytes:
    """Return 32 bytes for one use: no two lists of text and numbers give the same."""
    return hmac.digest(key, json.dumps(use).encode() + b"\x01", "sha256")


def private_key(content: bytes) -> X25519PrivateKey:
    """X25519 private key of 32 random bytes (RFC 7748)."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(content)


def agree(private: X25519PrivateKey, public: bytes) -> bytes:
    """Return what the owners of two keys alone know.

    Raises
    ------
    ValueError
        If the public key is of small order, so that everybody knows it.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    return extract(private.exchange(X25519PublicKey.from_public_bytes(public)))


def seal(key: bytes, content: bytes) -> bytes:
    """Content, encrypted and authenticated by ChaCha20-Poly1305 (RFC 8439); a key may seal one content alone."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(key).encrypt(_NONCE, content, None)


def unseal(key: bytes, sealed: bytes) -> bytes | None:
    """Return what was sealed, or None if it was by another key, or changed since."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, None)
    except InvalidTag:
        return None
