"""The client's part of secure aggregation: pure functions of secret, group, label and the server's messages."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from raydr.arrays import Int64Array, UInt8Array
from raydr.privacy.masking import keys
from raydr.privacy.masking.agreement import agree, own_key
from raydr.privacy.masking.group import Batch, Group, Label
from raydr.privacy.masking.keys import KEY
from raydr.privacy.masking.messages import (
    SHARE,
    Shared,
    box_bytes,
    check_of,
    derive_for,
    name_for,
    own_secret,
    stream_key,
)
from raydr.privacy.masking.refusals import MaskingError, TooFewError
from raydr.privacy.masking.shamir import split, split_many
from raydr.privacy.masking.streams import add_streams, stream_bytes

OWN, OPENER = "own stream", "key to the seeds of pairs"
"""The two secrets of a client in a sum."""
_MANY = 200
"""Clients from which compiled loops pay off, although numba must be loaded."""
_COEFFICIENT = 48
"""Bytes of a coefficient, so that it is uniform modulo the prime to 2^-127."""


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
    _pairs: dict[Batch, dict[int, bytes]] = field(default_factory=dict, repr=False, compare=False)

    def pair_seeds(self, label: Label) -> dict[int, bytes]:
        """Return the seeds of the streams that the client exchanges with each partner in a sum.

        The seeds of a batch are consecutive parts of one stream for each pair, whose key serves nothing else. So the
        seed of one sum tells nothing of another. The last batch is kept.
        """
        streams = self._pairs.get(label.batch)
        if streams is None:
            self._pairs.clear()
            size = KEY * label.batch.sums
            streams = self._pairs[label.batch] = {
                partner: stream_bytes(derive_for(self.agreed[partner], self.group, label.batch, "pair"), size)
                for partner in self.group.partners(self.client)
            }
        start = KEY * label.place
        return {partner: stream[start : start + KEY] for partner, stream in streams.items()}


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


def share(member: Member, batch: Batch) -> Shared:
    """Share the two secrets of each sum of a batch: the seed of the client's own stream, and the key to its pair seeds.

    The secrets of different sums are independent. A batch saves messages and seals, and no secret.
    """
    group, client = member.group, member.client
    neighbours, labels = group.neighbours(client), [Label(batch, place) for place in range(batch.sums)]
    secrets = [own_secret(member.own, group, label, use) for label in labels for use in (OWN, OPENER)]
    coefficients = _coefficients(member, batch, len(secrets))
    if len(group.clients) >= _MANY:
        shares = [held.tobytes() for held in split_many(secrets, coefficients, neighbours)]
    else:
        values = split([int.from_bytes(secret) for secret in secrets], coefficients, neighbours)
        shares = [b"".join(share.to_bytes(SHARE) for share in held) for held in values]
    rows = [
        keys.seal(_box(member, batch, client, neighbour), held)
        for neighbour, held in zip(neighbours, shares, strict=True)
    ]
    seeds = [
        keys.seal(opener, b"".join(member.pair_seeds(label).values()))
        for label, opener in zip(labels, secrets[1::2], strict=True)
    ]
    return Shared(
        _array(b"".join(rows)).reshape(len(neighbours), box_bytes(batch.sums)),
        _array(b"".join(seeds)).reshape(batch.sums, -1),
        _array(b"".join(map(check_of, secrets[::2]))).reshape(batch.sums, -1),
    )


def mask(members: Sequence[Member], label: Label, shared: Collection[int], total: Int64Array) -> Int64Array:
    """Return the sum of the masked vectors of clients that share a process, of the same shape.

    The result equals, bit for bit, the sum of vectors that each client masked by itself. Streams between two of these
    clients would cancel in it, so they are left out. Without knowledge of the other streams it is uniform.

    Parameters
    ----------
    members : sequence of Member
        The clients, at least one.
    label : Label
        Label of the sum.
    shared : collection of int
        Clients that have shared for the sum. All clients must receive the same set.
    total : int64, of any shape
        Sum of the clients' summands.

    Raises
    ------
    MaskingError
        If a client is not in ``shared``, or a client outside the group is.
    TooFewError
        If more clients dropped out than allowed, or too few neighbours are left.
    """
    group, present, together = members[0].group, frozenset(shared), {member.client for member in members}
    group.require(present, "shared")
    if strangers := together - present:
        raise MaskingError(
            f"client {min(strangers)} is asked to mask a vector, but is not listed as having shared."
        )
    if total.dtype != np.int64:
        raise MaskingError(
            f"masks need int64, but the vector of client {members[0].client} is {total.dtype}."
        )
    outside = present - together
    added: list[bytes] = []
    subtracted: list[bytes] = []
    for member in members:
        _require_neighbours(group, member.client, present, "shared")
        added.append(stream_key(own_secret(member.own, group, label, OWN)))
        for partner, seed in member.pair_seeds(label).items():
            if partner in outside:
                (added if member.client < partner else subtracted).append(seed)
    masked = np.array(total, np.int64, order="C", copy=True)
    add_streams(masked.reshape(-1), added, subtracted, name_for(present))
    return masked


def reveal(
    owns: Mapping[int, bytes],
    group: Group,
    label: Label,
    survivors: Collection[int],
    dropped: Collection[int],
) -> dict[int, UInt8Array]:
    """Return the seeds of clients' own streams in a sum to which they have uploaded, (32,) uint8 each, by client.

    Parameters
    ----------
    owns : mapping of client to bytes
        See :class:`Member`; of clients that share a process.
    group : Group
        The group.
    label : Label
        Label of the sum.
    survivors, dropped : collection of int
        Clients that have shared and uploaded, and clients that have only shared.

    Raises
    ------
    MaskingError
        If a client is in both sets, one of these clients is not a survivor, or a client is not in the group.
    TooFewError
        If more clients dropped out than allowed, or too few neighbours are left.
    """
    _require_outcome(group, owns, frozenset(survivors), frozenset(dropped))
    return {client: _array(own_secret(own, group, label, OWN)) for client, own in owns.items()}


def recover(
    member: Member,
    label: Label,
    shares: UInt8Array,
    survivors: Collection[int],
    dropped: Collection[int],
    silent: Collection[int],
) -> UInt8Array:
    """Return one share of each neighbour that was lost, (neighbours, 33) uint8; zeros for all others.

    It is a share of the key to its pair seeds if it has dropped out, and of the seed of its own stream if it has
    uploaded and revealed nothing.

    Parameters
    ----------
    member : Member
        The client.
    label : Label
        Label of the sum.
    shares : (neighbours, sums x 66 + 16) uint8
        Sealed shares from each lost neighbour, ascending; anything for others.
    survivors, dropped : collection of int
        Clients that have shared and uploaded, and clients that have only shared.
    silent : collection of int
        Survivors that did not reveal.

    Raises
    ------
    MaskingError
        As for :func:`reveal`. Also if a silent client is no survivor, or a share was not sealed by that neighbour for
        this client and batch.
    TooFewError
        As for :func:`reveal`.
    """
    group, client, quiet = member.group, member.client, frozenset(silent)
    alive, gone = frozenset(survivors), frozenset(dropped)
    _require_outcome(group, [client], alive, gone)
    if strangers := quiet - alive:
        raise MaskingError(f"client {min(strangers)} is listed as silent, but not as having uploaded.")
    neighbours = group.neighbours(client)
    _require_shape("shares", shares, (len(neighbours), box_bytes(label.batch.sums)))
    found = np.zeros((len(neighbours), SHARE), np.uint8)
    for row, (neighbour, sealed) in enumerate(zip(neighbours, shares, strict=True)):
        if neighbour not in gone | quiet:
            continue
        held = keys.unseal(_box(member, label.batch, neighbour, client), sealed.tobytes())
        if held is None:
            raise MaskingError(
                f"client {client} cannot open the shares from client {neighbour}: they are forged, or belong to"
                " another client or sum."
            )
        start = SHARE * (2 * label.place + (neighbour in gone))
        found[row] = _array(held[start : start + SHARE])
    return found


def _box(member: Member, batch: Batch, sender: int, receiver: int) -> bytes:
    """Return the key that seals the sender's shares for the receiver."""
    other = receiver if sender == member.client else sender
    return derive_for(member.agreed[other], member.group, batch, "shares", sender, receiver)


def _coefficients(member: Member, batch: Batch, secrets: int) -> UInt8Array:
    """Return the coefficients of the polynomials of a batch, (threshold - 1, secrets, 48) uint8."""
    shape = member.group.degrees.threshold - 1, secrets, _COEFFICIENT
    key = derive_for(member.own, member.group, batch, "polynomials")
    return _array(stream_bytes(key, math.prod(shape))).reshape(shape)


def _require_outcome(
    group: Group, clients: Collection[int], alive: frozenset[int], gone: frozenset[int]
) -> None:
    """Raise unless clients may reveal, given who has uploaded and who has dropped out."""
    if alive & gone:
        raise MaskingError(
            f"client {min(alive & gone)} is listed both as uploaded and as dropped out: its two secrets together"
            " would reveal its vector."
        )
    group.require(alive, "uploaded")
    group.require(alive | gone, "shared")
    if strangers := frozenset(clients) - alive:
        raise MaskingError(
            f"client {min(strangers)} is asked to reveal a secret, but is not listed as having uploaded."
        )
    for client in clients:
        _require_neighbours(group, client, alive, "uploaded")


def _require_neighbours(group: Group, client: int, present: frozenset[int], what: str) -> None:
    neighbours, threshold = group.neighbours(client), group.degrees.threshold
    near = len(present.intersection(neighbours))
    if near < threshold:
        raise TooFewError(
            f"only {near} of {len(neighbours)} neighbours of client {client} have {what}, and a secret needs"
            f" {threshold}."
        )


def _require_shape(what: str, array: UInt8Array, shape: tuple[int, ...]) -> None:
    if array.shape != shape or array.dtype != np.uint8:
        raise MaskingError(
            f"the {what} have type {array.dtype} and shape {array.shape}; expected uint8 and {shape}."
        )


def _array(content: bytes) -> UInt8Array:
    return np.frombuffer(content, np.uint8)
