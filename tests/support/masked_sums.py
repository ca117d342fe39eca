"""One secure sum in memory, with clients that leave before any stage."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache

import numpy as np

from raydr.arrays import Int64Array, UInt8Array
from raydr.privacy.masking import (
    Batch,
    Degrees,
    Group,
    Label,
    Member,
    Shared,
    advertise,
    enter,
    keys_for,
    mask,
    recover,
    reveal,
    share,
    shares_for,
    unmask,
)

LABEL = Label(Batch("first start", number=7, sums=3), place=1)


def secret_of(client: int) -> bytes:
    return client.to_bytes(4) * 8


@lru_cache(maxsize=64)
def members_of(group: Group) -> dict[int, Member]:
    """All clients of a group, each with its neighbours' keys."""
    public = {client: advertise(secret_of(client), group.run, client) for client in group.clients}
    return {
        client: enter(secret_of(client), group, client, keys_for(group, client, public))
        for client in group.clients
    }


def group_of(degrees: Degrees, seed: int = 0) -> Group:
    """Clients 0, 3, 6, ...: their numbers are not their places."""
    return Group("a run", tuple(range(0, 3 * degrees.clients, 3)), degrees, seed)


def secure_sum(
    group: Group,
    vectors: Mapping[int, Int64Array],
    *,
    unshared: Collection[int] = (),
    lost: Collection[int] = (),
    silent: Collection[int] = (),
    label: Label = LABEL,
) -> Int64Array:
    """Sum of who uploads; some leave before they share, some before they upload, some before they reveal."""
    members = members_of(group)
    shared = {
        client: share(members[client], label.batch) for client in group.clients if client not in unshared
    }
    survivors = [client for client in shared if client not in lost]
    masked = [mask([members[client]], label, shared, vectors[client]) for client in survivors]
    revealed, recovered = opened_by(group, label, shared, survivors, silent)
    return unmask(group, label, shared, survivors, revealed, recovered, np.add.reduce(masked))


def opened_by(
    group: Group,
    label: Label,
    shared: Mapping[int, Shared],
    survivors: Collection[int],
    silent: Collection[int] = (),
) -> tuple[dict[int, UInt8Array], dict[int, UInt8Array]]:
    """Seeds that survivors reveal, and shares of clients that were lost, by the client that sends them."""
    members, dropped = members_of(group), [client for client in shared if client not in survivors]
    quiet = [client for client in silent if client in survivors]
    answering = [client for client in survivors if client not in silent]
    revealed = reveal({client: members[client].own for client in answering}, group, label, survivors, dropped)
    lost = {*dropped, *quiet}
    recovered = {
        client: recover(
            members[client], label, shares_for(group, client, shared, lost), survivors, dropped, quiet
        )
        for client in answering
        if lost
    }
    return revealed, recovered
