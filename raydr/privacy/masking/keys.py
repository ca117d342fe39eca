"""Key derivation, agreement and sealing.

Derivation is HKDF-SHA256 (RFC 5869); one block of it is one HMAC. Each key has one use, so nonces can be zero.
"""

from __future__ import annotations

import hmac
import json
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

KEY = 32
TAG = 16
_SALT = b"raydr masking, version 2"
_NONCE = bytes(12)


def extract(secret: bytes) -> bytes:
    """Return a key from which other keys can be derived."""
    return hmac.digest(_SALT, secret, "sha256")


def derive(key: bytes, *use: str | int) -> bytes:
    """Return 32 bytes for one use: different lists of text and numbers give different bytes."""
    return hmac.digest(key, _encoded(use), "sha256")


@lru_cache(maxsize=256)
def _encoded(use: tuple[str | int, ...]) -> bytes:
    """Return the text of a use; kept, because a host derives keys of many clients for the same use."""
    return json.dumps(use).encode() + b"\x01"


def private_key(content: bytes) -> X25519PrivateKey:
    """Return the X25519 private key of 32 random bytes (RFC 7748)."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(content)


def agree(private: X25519PrivateKey, public: bytes) -> bytes:
    """Return the secret that only the owners of the two keys know.

    Raises
    ------
    ValueError
        If the public key has small order, so that the result is no secret.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    return extract(private.exchange(X25519PublicKey.from_public_bytes(public)))


def seal(key: bytes, content: bytes) -> bytes:
    """Encrypt and authenticate content with ChaCha20-Poly1305 (RFC 8439); use a key for one content only."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(key).encrypt(_NONCE, content, None)


def unseal(key: bytes, sealed: bytes) -> bytes | None:
    """Return the sealed content, or None if the key is wrong or the bytes were changed."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, None)
    except InvalidTag:
        return None
