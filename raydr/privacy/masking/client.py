"""The client's part of secure aggregation: pure functions of secret, group, label and the server's messages."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from raydr.arrays import Int64Array, UInt8Array
from raydr.privacy.masking import keys
from raydr.privacy.masking.agreement import agree, own_key
from raydr.privacy.masking.group import Group, Label
from raydr.privacy.masking.keys import KEY
from raydr.privacy.masking.messages import PAIR, SHARE, Shared, check_of, derive_for, digest_of, stream_key
from raydr.privacy.masking.refusals import MaskingError, TooFewError
from raydr.privacy.masking.shamir import PRIME, split
from raydr.privacy.masking.streams import add_streams, stream_bytes


@dataclass(frozen=True)
class Member:
    """A client in a group: keys derived from its secret and its neighbours' keys, kept because they take time.

    Attributes
    ----------
    group : Group
        The group.
    client : int
        Number of the client.
    own : bytes
        Its secret for this run.
    agreed : dict of int to bytes
        The secret that it shares with each neighbour.
    """

    group: Group
    client: int
    own: bytes = field(repr=False)
    agreed: dict[int, bytes] = field(repr=False)


def enter(secret: bytes, group: Group, client: int, public_keys: UInt8Array) -> Member:
    """Agree on a secret with each neighbour.

    Parameters
    ----------
    secret : bytes
        See :func:`advertise`.
    group : Group
        The group.
    client : int
        Number of the client.
    public_keys : (neighbours, 32) uint8
        Public keys of the neighbours, in ascending order of client.

    Raises
    ------
    MaskingError
        If the number of keys differs from the number of neighbours, or a key occurs twice, is the client's own, or has
        small order. Others would then know the secret.
    """
    neighbours = group.neighbours(client)
    _require_shape("public keys", public_keys, (len(neighbours), KEY))
    public = dict(zip(neighbours, public_keys, strict=True))
    return Member(group, client, own_key(secret, group.run, client), agree(secret, group.run, client, public))


def share(member: Member, label: Label) -> Shared:
    """Share the two secrets of a sum: the seed of the client's own stream, and the key to its pair seeds."""
    group, client = member.group, member.client
    neighbours = group.neighbours(client)
    seed, opener = (derive_for(member.own, group, label, use) for use in _SECRETS)
    halves = [
        split(int.from_bytes(secret), _coefficients(member, label, use), neighbours)
        for secret, use in zip((seed, opener), _SECRETS, strict=True)
    ]
    rows = [
        keys.seal(_box(member, label, client, neighbour), one.to_bytes(SHARE) + other.to_bytes(SHARE))
        for neighbour, one, other in zip(neighbours, *halves, strict=True)
    ]
    seeds = b"".join(_pair_seed(member, label, partner) for partner in group.partners(client))
    return Shared(
        _array(b"".join(rows)).reshape(len(neighbours), PAIR),
        _array(keys.seal(opener, seeds)),
        _array(check_of(seed)),
    )


def mask(member: Member, label: Label, shared: Collection[int], vector: Int64Array) -> Int64Array:
    """Return the masked vector, of the same shape: uniform without knowledge of the streams.

    Parameters
    ----------
    member : Member
        The client.
    label : Label
        Label of the sum.
    shared : collection of int
        Clients that have shared for the sum. All clients must receive the same set.
    vector : int64, of any shape
        The client's summand.

    Raises
    ------
    MaskingError
        If the client is not in ``shared``, or a client outside the group is.
    TooFewError
        If more clients dropped out than allowed, or too few neighbours are left.
    """
    group, client, present = member.group, member.client, frozenset(shared)
    group.require(present, "shared")
    if client not in present:
        raise MaskingError(f"client {client} is asked to mask a vector, but is not listed as having shared.")
    _require_neighbours(member, present, "shared")
    if vector.dtype != np.int64:
        raise MaskingError(f"masks need int64, but the vector of client {client} is {vector.dtype}.")
    masked, who = np.array(vector, np.int64, order="C", copy=True), digest_of(present)
    mine = stream_key(derive_for(member.own, group, label, _SELF), who)
    theirs = {
        partner: stream_key(_pair_seed(member, label, partner), who)
        for partner in group.partners(client)
        if partner in present
    }
    added = [mine, *(key for partner, key in theirs.items() if client < partner)]
    add_streams(masked.reshape(-1), added, [key for partner, key in theirs.items() if client > partner])
    return masked


def reveal(
    member: Member, label: Label, shares: UInt8Array, survivors: Collection[int], dropped: Collection[int]
) -> UInt8Array:
    """Return one share of each neighbour, (neighbours, 33) uint8: of its own seed, or of its pair-seed key.

    Parameters
    ----------
    member : Member
        The client.
    label : Label
        Label of the sum.
    shares : (neighbours, 82) uint8
        Sealed shares from each neighbour, ascending; zeros for a neighbour that has not shared.
    survivors, dropped : collection of int
        Clients that have shared and uploaded, and clients that have only shared.

    Raises
    ------
    MaskingError
        If a client is in both sets, this client is not a survivor, or a client is not in the group. Also if a share
        was not sealed by that neighbour for this client and sum.
    TooFewError
        If more clients dropped out than allowed, or too few neighbours are left.
    """
    group, client = member.group, member.client
    alive, gone = frozenset(survivors), frozenset(dropped)
    if alive & gone:
        raise MaskingError(
            f"client {min(alive & gone)} is listed both as uploaded and as dropped out: its two secrets together"
            " would reveal its vector."
        )
    group.require(alive, "uploaded")
    group.require(alive | gone, "shared")
    if client not in alive:
        raise MaskingError(
            f"client {client} is asked to reveal shares, but is not listed as having uploaded."
        )
    _require_neighbours(member, alive, "uploaded")
    neighbours = group.neighbours(client)
    _require_shape("shares", shares, (len(neighbours), PAIR))
    revealed = np.zeros((len(neighbours), SHARE), np.uint8)
    for row, (neighbour, sealed) in enumerate(zip(neighbours, shares, strict=True)):
        if neighbour not in alive | gone:
            continue
        both = keys.unseal(_box(member, label, neighbour, client), sealed.tobytes())
        if both is None:
            raise MaskingError(
                f"client {client} cannot open the shares from client {neighbour}: they are forged, or belong to"
                " another client or sum."
            )
        revealed[row] = _array(both[:SHARE] if neighbour in alive else both[SHARE:])
    return revealed


_SELF, _ = _SECRETS = "own stream", "key to the seeds of pairs"


def _pair_seed(member: Member, label: Label, partner: int) -> bytes:
    return derive_for(member.agreed[partner], member.group, label, "pair")


def _box(member: Member, label: Label, sender: int, receiver: int) -> bytes:
    """Return the key that seals the sender's shares for the receiver."""
    other = receiver if sender == member.client else sender
    return derive_for(member.agreed[other], member.group, label, "shares", sender, receiver)


def _coefficients(member: Member, label: Label, use: str) -> list[int]:
    """Return the polynomial's coefficients, each from 48 bytes, so that they are uniform to 2^-127."""
    key = derive_for(member.own, member.group, label, use, "polynomial")
    count, width = member.group.degrees.threshold - 1, 48
    stream = stream_bytes(key, count * width)
    return [int.from_bytes(stream[start : start + width]) % PRIME for start in range(0, len(stream), width)]


def _require_neighbours(member: Member, present: frozenset[int], what: str) -> None:
    near, threshold = len(present.intersection(member.agreed)), member.group.degrees.threshold
    if near < threshold:
        raise TooFewError(
            f"only {near} of {len(member.agreed)} neighbours of client {member.client} have {what}, and a secret"
            f" needs {threshold}."
        )


def _require_shape(what: str, array: UInt8Array, shape: tuple[int, ...]) -> None:
    if array.shape != shape or array.dtype != np.uint8:
        raise MaskingError(
            f"the {what} have type {array.dtype} and shape {array.shape}; expected uint8 and {shape}."
        )


def _array(content: bytes) -> UInt8Array:
    return np.frombuffer(content, np.uint8)
