"""The server's part of secure aggregation: forward keys and shares, and remove the masks from the total."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from raydr.arrays import Int64Array, UInt8Array
from raydr.privacy.masking import keys
from raydr.privacy.masking.group import Group, Label
from raydr.privacy.masking.keys import KEY
from raydr.privacy.masking.messages import SHARE, Shared, check_of, name_for, stream_key
from raydr.privacy.masking.refusals import MaskingError, TooFewError
from raydr.privacy.masking.shamir import combine
from raydr.privacy.masking.streams import add_streams


def keys_for(group: Group, client: int, public_keys: Mapping[int, UInt8Array]) -> UInt8Array:
    """Return the public keys of a client's neighbours, (neighbours, 32) uint8."""
    return np.stack([public_keys[neighbour] for neighbour in group.neighbours(client)])


def shares_for(group: Group, client: int, shared: Mapping[int, Shared], lost: Collection[int]) -> UInt8Array:
    """Return the sealed shares of lost neighbours for a client, a row for each neighbour; zeros for all others.

    Parameters
    ----------
    group : Group
        Group of the sum.
    client : int
        The client that receives them.
    shared : mapping of client to Shared
        Shares distributed before the sum, of one client at least.
    lost : collection of int
        Clients that have shared, and then dropped out or revealed nothing.
    """
    neighbours = group.neighbours(client)
    size = next(iter(shared.values())).shares.shape[1]
    shares = np.zeros((len(neighbours), size), np.uint8)
    for row, neighbour in enumerate(neighbours):
        if neighbour in lost:
            shares[row] = shared[neighbour].shares[group.neighbours(neighbour).index(client)]
    return shares


def unmask(
    group: Group,
    label: Label,
    shared: Mapping[int, Shared],
    survivors: Collection[int],
    revealed: Mapping[int, UInt8Array],
    recovered: Mapping[int, UInt8Array],
    total: Int64Array,
) -> Int64Array:
    """Return the sum of the survivors' vectors, in the shape of the total.

    Parameters
    ----------
    group : Group
        Group of the sum.
    label : Label
        Label of the sum.
    shared : mapping of client to Shared
        Shares distributed before the sum, of the same clients that :func:`mask` received.
    survivors : collection of int
        Clients whose masked vectors are in the total.
    revealed : mapping of client to (32,) uint8
        Seeds that survivors revealed; some survivors may have dropped out since.
    recovered : mapping of client to (neighbours, 33) uint8
        Shares of lost clients' secrets, by the client that held them; empty if no client was lost.
    total : int64, of any shape
        Sum of the masked vectors mod 2^64.

    Raises
    ------
    MaskingError
        If a client revealed or uploaded without taking part, or a seed or shares do not match what a client shared.
    TooFewError
        If more clients dropped out than allowed, or fewer shares of a client are revealed than the threshold.
    """
    alive, present = frozenset(survivors), frozenset(shared)
    group.require(present, "shared")
    group.require(alive, "uploaded")
    contradictions = (
        (alive, present, "uploaded, but not shared"),
        (revealed.keys() | recovered.keys(), alive, "revealed, but not uploaded"),
    )
    for who, others, what in contradictions:
        if strangers := frozenset(who) - others:
            raise MaskingError(f"client {min(strangers)} has {what}.")
    added: list[bytes] = []
    subtracted: list[bytes] = []
    for client in sorted(present):
        known = revealed.get(client)
        secret = known.tobytes() if known is not None else _secret(group, client, recovered)
        if client in alive:
            if check_of(secret) != shared[client].checks[label.place].tobytes():
                raise MaskingError(_forged(client))
            subtracted.append(stream_key(secret))
            continue
        seeds = keys.unseal(secret, shared[client].seeds[label.place].tobytes())
        partners = group.partners(client)
        if seeds is None or len(seeds) != KEY * len(partners):
            raise MaskingError(_forged(client))
        for place, partner in enumerate(partners):
            if partner in alive:
                # Remove what the client with the smaller number added.
                (subtracted if partner < client else added).append(seeds[KEY * place : KEY * (place + 1)])
    unmasked = np.array(total, np.int64, order="C", copy=True)
    add_streams(unmasked.reshape(-1), added, subtracted, name_for(present))
    return unmasked


def _secret(group: Group, client: int, recovered: Mapping[int, UInt8Array]) -> bytes:
    """Return the one secret of a client whose shares were revealed."""
    threshold, neighbours = group.degrees.threshold, group.neighbours(client)
    holders = [neighbour for neighbour in neighbours if neighbour in recovered]
    if len(holders) < threshold:
        raise TooFewError(
            f"only {len(holders)} of {len(neighbours)} neighbours of client {client} have revealed a share, and a"
            f" secret needs {threshold}."
        )
    shares = {}
    for holder in holders[:threshold]:
        rows, row = recovered[holder], group.neighbours(holder).index(client)
        if rows.shape != (len(neighbours), SHARE):
            raise MaskingError(f"the shares that client {holder} revealed have shape {rows.shape}.")
        shares[holder] = int.from_bytes(rows[row].tobytes())
    secret = combine(shares)
    if secret >> (8 * KEY):
        raise MaskingError(_forged(client))
    return secret.to_bytes(KEY)


def _forged(client: int) -> str:
    return (
        f"what was revealed of client {client} does not match what it shared: its seed or a share is forged."
    )
