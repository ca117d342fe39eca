"""Names and keys of all clients of a deployed run, which a client has from its own files and not from the server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from raydr.arrays import UInt8Array
from raydr.errors import RunError
from raydr.privacy.node_keys import is_signed, public_pem, sign

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_PURPOSE = "public key for secure sums, version 1"


class UntrustedKeyError(RunError):
    """A public key of another client that its node has not signed for this run."""


@dataclass(frozen=True)
class Peers:
    """Names and keys of the sites of a run, as one of them knows them.

    Attributes
    ----------
    names : tuple of str
        Names of all sites in client order, by the server.
    start : str
        Digest of everything that the site was told at the start of the run. A signature holds for one start.
    key : EllipticCurvePrivateKey or None
        Private key of the site's own node; None if the site has named none.
    nodes : mapping of name to bytes
        Public keys of the nodes of all sites, in PEM, by their owners; empty if the site has named none.
    """

    names: tuple[str, ...]
    start: str
    key: EllipticCurvePrivateKey | None
    nodes: Mapping[str, bytes]

    def signature(self, client: int, public: UInt8Array) -> UInt8Array:
        """Return the signature (132,) uint8 of the site's own public key (32,) for this run.

        Raises
        ------
        UntrustedKeyError
            If the site has no key, or the sites of the run are not those that it knows.
        """
        name = self.names[client]
        if self.key is None or not self.nodes:
            raise UntrustedKeyError(
                f"site {name!r} cannot check public keys of other sites, which this run needs: name its `key` and"
                " `nodes` in site.yaml (docs/deploying.md)"
            )
        if sorted(self.names) != sorted(self.nodes):
            raise UntrustedKeyError(
                f"the server's sites are {', '.join(self.names)}, but the `nodes` of site {name!r} has"
                f" {', '.join(self.nodes)}: find out which is right, without the server"
            )
        if public_pem(self.key) != self.nodes[name]:
            raise UntrustedKeyError(
                f"the `key` of site {name!r} is not its key in `nodes`: correct the one that is wrong"
            )
        return np.frombuffer(sign(self.key, _PURPOSE, self._content(client, public)), np.uint8)

    def require_signed(self, client: int, public: UInt8Array, signature: UInt8Array) -> None:
        """Raise UntrustedKeyError unless the node of a client has signed its public key for this run."""
        name = self.names[client]
        node = self.nodes.get(name)
        if node is None or not is_signed(node, _PURPOSE, self._content(client, public), signature.tobytes()):
            raise UntrustedKeyError(
                f"the server sent a public key of site {name!r} that the node of {name!r} has not signed for this run."
                " The server may have exchanged it, or the sites do not know the right keys of their nodes: compare"
                " `nodes` with each other, without the server"
            )

    def _content(self, client: int, public: UInt8Array) -> bytes:
        return json.dumps([self.start, client, self.names[client], public.tobytes().hex()]).encode()
