"""Key agreement of clients through a server that relays messages: pairwise keys, and one secret of all clients.

Every client sends its public key once. All clients may need a secret that the server does not have. Then one of them,
the founder, draws it and seals it for each other client (:mod:`raydr.privacy.masking.group_secret`). The server
forwards the boxes. The secret follows from the founder's own secret. So a restarted founder or a resumed run derives
the same one, and the other clients receive the same messages again.

In a deployed run, clients do not believe that the server relays keys unchanged. Each node signs its client's key, each
client checks the signatures of all (:class:`TrustRequest`), and then accepts no other key (:func:`require_trusted`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from raydr.arrays import UInt8Array
from raydr.federation.client import Client
from raydr.federation.messages import Range, Reply, Request, answers
from raydr.federation.peers import Peers, UntrustedKeyError
from raydr.privacy import masking
from raydr.privacy.ledger import Granularity, Public
from raydr.privacy.masking.group_secret import BOX
from raydr.privacy.masking.keys import KEY
from raydr.privacy.node_keys import SIGNATURE
from raydr.privacy.secrets import Secret, group_secret

R = TypeVar("R", bound=Reply)
Ask = Callable[[Request[R], tuple[int, ...]], dict[int, R]]
"""Return the replies of the clients that answer, by client."""


def agreement_key(client: Client) -> bytes:
    """Return the secret bytes from which a client's key pair follows."""
    return client.secret.key("masking")


@dataclass(frozen=True)
class PublicKey(
    Reply, granularity=Granularity.AGGREGATE, what="a client's public key (X25519)", public=Public.RANDOM
):
    """``key``: (32,) uint8."""

    key: UInt8Array

    @staticmethod
    def ranges(request: AdvertiseRequest, rows: int) -> dict[str, Range]:
        """Declare 32 bytes."""
        return {"key": Range((KEY,), dtype="uint8")}


@dataclass(frozen=True)
class AdvertiseRequest(Request[PublicKey], what="a request for the public key"):
    """Request for a public key, sent once."""


@answers(AdvertiseRequest)
def advertise(client: Client, request: AdvertiseRequest) -> PublicKey:
    """Client part: return the public key derived from the client's secret."""
    return PublicKey(masking.advertise(agreement_key(client), client.run, client.index))


@dataclass(frozen=True)
class SignedKey(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="a client's public key (X25519), signed by its node (ECDSA)",
    public=Public.RANDOM,
):
    """``key``: (32,) uint8; ``signature``: (132,) uint8."""

    key: UInt8Array
    signature: UInt8Array

    @staticmethod
    def ranges(request: SignedKeyRequest, rows: int) -> dict[str, Range]:
        """Declare bytes."""
        return {"key": Range((KEY,), dtype="uint8"), "signature": Range((SIGNATURE,), dtype="uint8")}


@dataclass(frozen=True)
class SignedKeyRequest(Request[SignedKey], what="a request for the public key, signed by the client's node"):
    """Request for a signed public key in a deployed run, sent once."""


@answers(SignedKeyRequest)
def advertise_signed(client: Client, request: SignedKeyRequest) -> SignedKey:
    """Client part: return the public key with the signature of the client's node.

    Raises
    ------
    UntrustedKeyError
        If the client's site cannot sign, or does not know the sites of the run.
    """
    key = masking.advertise(agreement_key(client), client.run, client.index)
    return SignedKey(key, _peers(client).signature(client.index, key))


@dataclass(frozen=True)
class Trusted(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="confirmation that a client has checked who signed the public keys",
    public=Public.EMPTY,
):
    """A reply without content."""

    @staticmethod
    def ranges(request: TrustRequest, rows: int) -> dict[str, Range]:
        """Declare no field."""
        return {}


@dataclass(frozen=True)
class TrustRequest(
    Request[Trusted], what="public keys of all clients, each signed by its node", sets_state=True
):
    """``keys`` (clients, 32) uint8 and ``signatures`` (clients, 132) uint8, in client order."""

    keys: UInt8Array
    signatures: UInt8Array


@answers(TrustRequest)
def trust(client: Client, request: TrustRequest) -> Trusted:
    """Client part: check the signature of each client's node, and accept these keys alone from now on.

    Raises
    ------
    UntrustedKeyError
        If a key is missing, or its client's node has not signed it for this run.
    """
    peers, expected = _peers(client), len(_peers(client).names)
    if not len(request.keys) == len(request.signatures) == expected:
        raise UntrustedKeyError(f"the server sent {len(request.keys)} public keys of {expected} sites")
    for other, (key, signature) in enumerate(zip(request.keys, request.signatures, strict=True)):
        peers.require_signed(other, key, signature)
    client.trusted = {other: key.tobytes() for other, key in enumerate(request.keys)}
    return Trusted()


def require_trusted(client: Client, keys: Mapping[int, UInt8Array]) -> None:
    """Raise UntrustedKeyError unless a client of a deployed run has checked these public keys of clients.

    A simulation has no such check, because one driver hosts the server and all clients.
    """
    if client.peers is None:
        return
    for other, key in keys.items():
        if client.trusted.get(other) != key.tobytes():
            raise UntrustedKeyError(
                f"the server sent site {client.peers.names[client.index]!r} a public key of client {other} that the"
                " node of this client has not signed for this run, so the site sends nothing more"
            )


def _peers(client: Client) -> Peers:
    if client.peers is None:
        raise UntrustedKeyError("signed public keys are for deployed runs, and this is a simulation")
    return client.peers


@dataclass(frozen=True)
class SealedSecret(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="the secret that all clients share, sealed for each other client",
    public=Public.SEALED,
):
    """``boxes``: (others, 48) uint8, in client order."""

    boxes: UInt8Array

    @staticmethod
    def ranges(request: HandOutRequest, rows: int) -> dict[str, Range]:
        """Declare one box for each key."""
        return {"boxes": Range((len(request.keys), BOX), dtype="uint8")}


@dataclass(frozen=True)
class HandOutRequest(Request[SealedSecret], what="public keys of all other clients", sets_state=True):
    """Sent to the founder; ``keys`` (others, 32) uint8, in client order."""

    keys: UInt8Array


@answers(HandOutRequest)
def hand_out(client: Client, request: HandOutRequest) -> SealedSecret:
    """Client part of the founder: draw the secret of all clients and seal it for the others."""
    others = (other for other in range(len(request.keys) + 1) if other != client.index)
    keys = dict(zip(others, request.keys, strict=True))
    require_trusted(client, keys)
    client.agreed = group_secret(client.secret)
    content = client.agreed.to_bytes()
    return SealedSecret(masking.hand_out(content, agreement_key(client), client.run, client.index, keys))


@dataclass(frozen=True)
class Agreed(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="confirmation that a client has opened the secret that all clients share",
    public=Public.EMPTY,
):
    """A reply without content."""

    @staticmethod
    def ranges(request: OpenRequest, rows: int) -> dict[str, Range]:
        """Declare no field."""
        return {}


@dataclass(frozen=True)
class OpenRequest(
    Request[Agreed], what="the secret that all clients share, sealed for this client", sets_state=True
):
    """Sent to one client: number of the founder, its public ``key`` (32,) uint8, and a ``box`` (48,) uint8."""

    founder: int
    key: UInt8Array
    box: UInt8Array


@answers(OpenRequest)
def open_box(client: Client, request: OpenRequest) -> Agreed:
    """Client part of all other clients: open the box."""
    require_trusted(client, {request.founder: request.key})
    secret = agreement_key(client)
    content = masking.receive(request.box, secret, client.run, client.index, request.founder, request.key)
    client.agreed = Secret(content)
    return Agreed()


@dataclass(frozen=True)
class OpenRequests(Request[Agreed], what=OpenRequest.what, sets_state=True):
    """One request for each client except the founder."""

    own: dict[int, OpenRequest]

    def addressed_to(self, client: int) -> OpenRequest:  # type: ignore[override]
        """Return the request for one client."""
        return self.own[client]


def agree(public_keys: Mapping[int, UInt8Array], founder: int, ask: Ask[Any]) -> None:
    """Server part: let the clients with these keys agree on a secret.

    Parameters
    ----------
    public_keys : mapping of client to (32,) uint8
        Public keys of all of them, from client 0.
    founder : int
        The client that distributes the secret.
    ask : callable
        Sends requests to the clients.
    """
    others = tuple(client for client in sorted(public_keys) if client != founder)
    keys = np.array([public_keys[client] for client in others], np.uint8).reshape(-1, KEY)
    sealed = ask(HandOutRequest(keys), (founder,))[founder]
    if others:
        boxes = dict(zip(others, sealed.boxes, strict=True))
        own = {client: OpenRequest(founder, public_keys[founder], box) for client, box in boxes.items()}
        ask(OpenRequests(own), others)
