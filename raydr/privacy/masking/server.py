"""The server's part of secure aggregation: forward keys and shares, and remove the masks from the total."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from raydr.arrays import Int64Array, UInt8Array
from raydr.privacy.masking import keys
from raydr.privacy.masking.group import Group
from raydr.privacy.masking.keys import KEY
from raydr.privacy.masking.messages import PAIR, SHARE, Shared, check_of, digest_of, stream_key
from raydr.privacy.masking.refusals import MaskingError, TooFewError
from raydr.privacy.masking.shamir import combine
from raydr.privacy.masking.streams import add_streams


def keys_for(group: Group, client: int, public_keys: Mapping[int, UInt8Array]) -> UInt8Array:
    """Return the public keys of a client's neighbours, (neighbours, 32) uint8."""
    return np.stack([public_keys[neighbour] for neighbour in group.neighbours(client)])


def shares_for(group: Group, client: int, shared: Mapping[int, Shared]) -> UInt8Array:
    """Return the shares sent to a client, (neighbours, 82) uint8; zeros for neighbours that have not shared."""
    neighbours = group.neighbours(client)
    shares = np.zeros((len(neighbours), PAIR), np.uint8)
    for row, neighbour in enumerate(neighbours):
        if neighbour in shared:
            shares[row] = shared[neighbour].shares[group.neighbours(neighbour).index(client)]
    return shares


def unmask(
    group: Group,
    shared: Mapping[int, Shared],
    survivors: Collection[int],
    revealed: Mapping[int, UInt8Array],
    total: Int64Array,
) -> Int64Array:
    """Return the sum of the survivors' vectors, in the shape of the total.

    Parameters
    ----------
    group : Group
        Group of the sum.
    shared : mapping of client to Shared
        Shares distributed before the sum, of the same clients that :func:`mask` received.
    survivors : collection of int
        Clients whose masked vectors are in the total.
    revealed : mapping of client to (neighbours, 33) uint8
        Shares that survivors revealed; some survivors may have dropped out since.
    total : int64, of any shape
        Sum of the masked vectors mod 2^64.

    Raises
    ------
    MaskingError
        If a client revealed or uploaded without taking part, or a client's shares do not match its secret.
    TooFewError
        If more clients dropped out than allowed, or fewer shares of a client are revealed than the threshold.
    """
    alive, present = frozenset(survivors), frozenset(shared)
    group.require(present, "shared")
    group.require(alive, "uploaded")
    contradictions = (
        (alive, present, "uploaded, but not shared"),
        (revealed, alive, "revealed, but not uploaded"),
    )
    for who, others, what in contradictions:
        if strangers := frozenset(who) - others:
            raise MaskingError(f"client {min(strangers)} has {what}.")
    everybody = digest_of(present)
    added: list[bytes] = []
    subtracted: list[bytes] = []
    for client in sorted(present):
        secret = _secret(group, client, revealed)
        if client in alive:
            if check_of(secret) != shared[client].check.tobytes():
                raise MaskingError(_forged(client))
            subtracted.append(stream_key(secret, everybody))
            continue
        seeds = keys.unseal(secret, shared[client].seeds.tobytes())
        partners = group.partners(client)
        if seeds is None or len(seeds) != KEY * len(partners):
            raise MaskingError(_forged(client))
        for place, partner in enumerate(partners):
            if partner in alive:
                key = stream_key(seeds[KEY * place : KEY * (place + 1)], everybody)
                # Remove what the client with the smaller number added.
                (subtracted if partner < client else added).append(key)
    unmasked = np.array(total, np.int64, order="C", copy=True)
    add_streams(unmasked.reshape(-1), added, subtracted)
    return unmasked


def _secret(group: Group, client: int, revealed: Mapping[int, UInt8Array]) -> bytes:
    """Return the one secret of a client whose shares were revealed."""
    threshold, neighbours = group.degrees.threshold, group.neighbours(client)
    holders = [neighbour for neighbour in neighbours if neighbour in revealed]
    if len(holders) < threshold:
        raise TooFewError(
            f"only {len(holders)} of {len(neighbours)} neighbours of client {client} have revealed a share, and a"
            f" secret needs {threshold}."
        )
    shares = {}
    for holder in holders[:threshold]:
        rows, row = revealed[holder], group.neighbours(holder).index(client)
        if rows.shape != (len(neighbours), SHARE):
            raise MaskingError(f"the shares that client {holder} revealed have shape {rows.shape}.")
        shares[holder] = int.from_bytes(rows[row].tobytes())
    secret = combine(shares)
    if secret >> (8 * KEY):
        raise MaskingError(_forged(client))
    return secret.to_bytes(KEY)


def _forged(client: int) -> str:
    return (
        f"the revealed shares of client {client} do not match what it shared: at least one of them is forged."
    )
