"""Sealed bytes: state that a client gets back later, and that no one else can read or change.

A client that keeps nothing between two calls can be restarted, moved or resumed at any time. What it must remember
travels with the server's state. It is sealed with ChaCha20-Poly1305 (RFC 8439) and bound to the run, the client, the
round and the purpose. Opening it under any other binding fails.

The seal is as secret as the client's secret (:mod:`raydr.privacy.secrets`), which the server does not have. The opener
states the binding, so old content returned as new is refused. A server that returns old content under its own old
round is noticed only by a client that remembers having received newer content.
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
    """Return the sealed size in bytes of ``size`` bytes."""
    return _NONCE + size + _TAG


@dataclass(frozen=True)
class Binding:
    """The context that sealed content belongs to.

    Attributes
    ----------
    run : str
        Digest of the run's inputs.
    client, round : int
        The client that sealed it, and the round.
    purpose : str
        What it is for.
    """

    run: str
    client: int
    round: int
    purpose: str

    def to_bytes(self) -> bytes:
        """Return bytes that differ for different bindings."""
        return json.dumps([self.run, self.client, self.round, self.purpose]).encode()


def seal(content: UInt8Array, secret: bytes, binding: Binding) -> UInt8Array:
    """Return sealed content, (sealed_size(n),) uint8.

    The same content under the same binding gives the same bytes.

    Parameters
    ----------
    content : (n,) uint8
        Content to seal.
    secret : bytes
        The client's 32 secret bytes, from which one key for each use is derived.
    binding : Binding
        The context that the content belongs to.
    """
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    sealed, bound = np.empty(sealed_size(content.size), np.uint8), binding.to_bytes()
    # The nonce follows from content and binding, so no two messages share one.
    nonces = hmac.new(_key(secret, "nonces"), bound, "sha256")
    nonces.update(content.data)
    nonce = nonces.digest()[:_NONCE]
    sealed[:_NONCE] = np.frombuffer(nonce, np.uint8)
    ChaCha20Poly1305(_key(secret, "contents")).encrypt_into(nonce, content.data, bound, sealed[_NONCE:].data)
    return sealed


def unseal(sealed: UInt8Array, secret: bytes, binding: Binding) -> UInt8Array:
    """Return the content that was sealed, (n,) uint8.

    Raises
    ------
    RunError
        If it was sealed with another secret or under another binding, or changed afterwards.

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
    except (InvalidTag, ValueError):  # wrong secret or binding, changed, or too short for a nonce
        raise RunError(
            f"client {binding.client} cannot open what it sealed in round {binding.round} ({binding.purpose}): it"
            " was changed, or belongs to another client, round or run. The server's state is damaged. Resume from"
            " an earlier checkpoint, or start the run again."
        ) from None
    return content


def _key(secret: bytes, use: str) -> bytes:
    """Return the key for one use, by HKDF (RFC 5869)."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), 32, salt=None, info=f"raydr sealing: {use}".encode()).derive(secret)
