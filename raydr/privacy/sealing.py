"""Sealed bytes: what a client wants back later, and nobody else is to read or change.

A client that forgets everything between two calls can be restarted, moved or resumed at any time. What it must
remember travels with the server's own state, sealed by ChaCha20-Poly1305 (RFC 8439) and bound to the run, the client,
the round and the purpose for which it was sealed: opened as anything else, it is refused.

It is as secret as the client's secret (:mod:`raydr.privacy.secrets`), which the server does not have. What is bound is
what the opener says: old content handed out as new is refused; a server that hands it out under its own old round is
noticed by a client that has been handed newer content before and remembers so.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass

import numpy as np

from raydr.arrays import UInt8Array
from raydr.errors import RunError

_NONCE, _TAG = 12, 16


def sealed_size(size: int) -> int:
    """How many bytes so many are once sealed."""
    return _NONCE + size + _TAG


@dataclass(frozen=True)
class Binding:
    """What sealed content belongs to.

    Attributes
    ----------
    run : str
        Digest of what the run is made from.
    client, round : int
        Who sealed it, and when.
    purpose : str
        What it is.
    """

    run: str
    client: int
    round: int
    purpose: str

    def to_bytes(self) -> bytes:
        """Return a text in which no two bindings are alike."""
        return json.dumps([self.run, self.client, self.round, self.purpose]).encode()


def seal(content: UInt8Array, secret: bytes, binding: Binding) -> UInt8Array:
    """Sealed content, (sealed_size(n),) uint8; the same content under the same binding gives the same bytes.

    Parameters
    ----------
    content : (n,) uint8
        What to seal.
    secret : bytes
        32 secret bytes of the client's, from which a key is derived for each thing that is done with one.
    binding : Binding
        What it belongs to.
    """
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    sealed, bound = np.empty(sealed_size(content.size), np.uint8), binding.to_bytes()
    # A nonce that follows from content and binding never serves two of them.
    nonces = hmac.new(_key(secret, "nonces"), bound, "sha256")
    nonces.update(content.data)
    nonce = nonces.digest()[:_NONCE]
    sealed[:_NONCE] = np.frombuffer(nonce, np.uint8)
    ChaCha20Poly1305(_key(secret, "contents")).encrypt_into(nonce, content.data, bound, sealed[_NONCE:].data)
    return sealed


def unseal(sealed: UInt8Array, secret: bytes, binding: Binding) -> UInt8Array:
    """Return what was sealed, (n,) uint8.

    Raises
    ------
    RunError
        If it was sealed with another secret or under another binding, or changed since.

    Examples
    --------
    >>> mine = Binding("run", client=3, round=7, purpose="an example")
    >>> unseal(seal(np.array([1, 255], np.uint8), bytes(32), mine), bytes(32), mine)
    array([  1, 255], dtype=uint8)
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    content = np.empty(max(0, sealed.size - sealed_size(0)), np.uint8)
    try:
        opener = ChaCha20Poly1305(_key(secret, "contents"))
        opener.decrypt_into(sealed[:_NONCE].data, sealed[_NONCE:].data, binding.to_bytes(), content.data)
    except (InvalidTag, ValueError):  # of another secret or binding, changed, or too short for a nonce
        raise RunError(
            f"what client {binding.client} had sealed for itself in round {binding.round} ({binding.purpose}) came back"
            " changed, or is of another client, round or run: the server's state is damaged. Resume from an earlier"
            " checkpoint, or start the run anew."
        ) from None
    return content


def _key(secret: bytes, use: str) -> bytes:
    """Key for one use, by HKDF (RFC 5869)."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), 32, salt=None, info=f"raydr sealing: {use}".encode()).derive(secret)
