"""What a client does: pure functions of its secret, the group, the label and what the server tells it."""

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
    """A client in a group: what follows from its secret and its neighbours' keys, kept since agreements take time.

    Attributes
    ----------
    group : Group
        Which.
    client : int
        Who.
    own : bytes
        Its secret for this run.
    agreed : dict of int to bytes
        What it and each neighbour alone know.
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
        As for :func:`advertise`.
    group : Group
        Which.
    client : int
        Who.
    public_keys : (neighbours, 32) uint8
        Of the neighbours, ascending.

    Raises
    ------
    MaskingError
        If there are not as many keys as neighbours, a key is there twice, is the client's own, or is of small order:
        others would then know what was agreed on.
    """
    neighbours = group.neighbours(client)
    _require_shape("public keys", public_keys, (len(neighbours), KEY))
    public = dict(zip(neighbours, public_keys, strict=True))
    return Member(group, client, own_key(secret, group.run, client), agree(secret, group.run, client, public))


def share(member: Member, label: Label) -> Shared:
    """Hand out shares of the two secrets of a sum: the seed of the client's own stream, and the key to the others."""
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
    """Masked vector, of the vector's shape: uniform to all who do not know the streams.

    Parameters
    ----------
    member : Member
        Who.
    label : Label
        Of the sum.
    shared : collection of int
        Who has shared for it: all clients must be told the same.
    vector : int64, of any shape
        The client's summand.

    Raises
    ------
    MaskingError
        If the client is not said to have shared, or somebody outside the group is.
    TooFewError
        If more clients than may be dropped out before, or too few neighbours are left.
    """
    group, client, present = member.group, member.client, frozenset(shared)
    group.require(present, "shared")
    if client not in present:
        raise MaskingError(f"client {client} is to mask a vector, and is said not to have shared.")
    _require_neighbours(member, present, "shared")
    if vector.dtype != np.int64:
        raise MaskingError(f"masks are for int64, and the vector of client {client} is {vector.dtype}.")
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
    """One share of each neighbour, (neighbours, 33) uint8: of its own stream's seed, or of the key to its others'.

    Parameters
    ----------
    member : Member
        Who.
    label : Label
        Of the sum.
    shares : (neighbours, 82) uint8
        What each neighbour has shared with this client, ascending; zeros for one that has not.
    survivors, dropped : collection of int
        Who has shared and uploaded, and who has shared alone.

    Raises
    ------
    MaskingError
        If a client is in both sets, this one is not among the survivors, somebody is not in the group, or a share was
        not sealed by that neighbour for this client and sum.
    TooFewError
        If more clients than may be have dropped out, or too few neighbours are left.
    """
    group, client = member.group, member.client
    alive, gone = frozenset(survivors), frozenset(dropped)
    if alive & gone:
        raise MaskingError(
            f"client {min(alive & gone)} is said to have both uploaded and dropped out: both its secrets would show"
            " its vector."
        )
    group.require(alive, "uploaded")
    group.require(alive | gone, "shared")
    if client not in alive:
        raise MaskingError(f"client {client} is to reveal shares, and is said not to have uploaded.")
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
                f"the shares that client {neighbour} is said to have sent client {client} are forged, for somebody"
                " else, or of another sum."
            )
        revealed[row] = _array(both[:SHARE] if neighbour in alive else both[SHARE:])
    return revealed


_SELF, _ = _SECRETS = "own stream", "key to the seeds of pairs"


def _pair_seed(member: Member, label: Label, partner: int) -> bytes:
    return derive_for(member.agreed[partner], member.group, label, "pair")


def _box(member: Member, label: Label, sender: int, receiver: int) -> bytes:
    """Key that seals the shares of one for the other."""
    other = receiver if sender == member.client else sender
    return derive_for(member.agreed[other], member.group, label, "shares", sender, receiver)


def _coefficients(member: Member, label: Label, use: str) -> list[int]:
    """Of a polynomial: 48 bytes each, so that what is left of the prime is uniform to 2^-127."""
    key = derive_for(member.own, member.group, label, use, "polynomial")
    count, width = member.group.degrees.threshold - 1, 48
    stream = stream_bytes(key, count * width)
    return [int.from_bytes(stream[start : start + width]) % PRIME for start in range(0, len(stream), width)]


def _require_neighbours(member: Member, present: frozenset[int], what: str) -> None:
    near, threshold = len(present.intersection(member.agreed)), member.group.degrees.threshold
    if near < threshold:
        raise TooFewError(
            f"only {near} of {len(member.agreed)} neighbours of client {member.client} have {what}, and a secret takes"
            f" {threshold}."
        )


def _require_shape(what: str, array: UInt8Array, shape: tuple[int, ...]) -> None:
    if array.shape != shape or array.dtype != np.uint8:
        raise MaskingError(
            f"the {what} are {array.dtype} of shape {array.shape} instead of uint8 of {shape}."
        )


def _array(content: bytes) -> UInt8Array:
    return np.frombuffer(content, np.uint8)
