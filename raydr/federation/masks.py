"""The participants of a secure sum and the public keys for masking, both sent with its call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from raydr.arrays import Int64Array, UInt8Array
from raydr.federation.agreement import PublicKey, agreement_key, require_trusted
from raydr.federation.client import Client
from raydr.federation.messages import Request
from raydr.privacy import masking
from raydr.wire_types import travels


@travels
@dataclass(frozen=True)
class Circle:
    """The participants of secure sums.

    Attributes
    ----------
    members : uint8
        One bit for each client.
    colluding, dropping : float
        See :class:`SecureSums`.
    digest : str
        Digest of the server's group.
    """

    members: UInt8Array
    colluding: float
    dropping: float
    digest: str

    def group(self, client: Client) -> masking.Group:
        """Return the group that a client computes for its own run.

        Raises
        ------
        MaskingError
            If the server's group is another one.
        """
        found = group_of(self.members.tobytes(), self.colluding, self.dropping, client.run, client.seed)
        if found.digest != self.digest:
            raise masking.MaskingError(
                f"client {client.index} and the server have different runs or seeds, so a secure sum is not"
                " possible."
            )
        return found


@lru_cache(maxsize=64)
def group_of(members: bytes, colluding: float, dropping: float, run: str, seed: int) -> masking.Group:
    """Return the group of clients (one bit each), cached for each process."""
    clients = named(np.frombuffer(members, np.uint8))
    return masking.Group(run, clients, masking.degrees(len(clients), colluding, dropping), seed)


def bits_of(clients: frozenset[int] | tuple[int, ...]) -> UInt8Array:
    """Return clients as bits, eight in a byte.

    >>> named(bits_of((0, 3, 17)))
    (0, 3, 17)
    """
    flags = np.zeros(max(clients, default=-1) + 1, bool)
    flags[list(clients)] = True
    return np.packbits(flags)


def named(bits: UInt8Array) -> tuple[int, ...]:
    """Return the clients of these bits, ascending."""
    return tuple(np.flatnonzero(np.unpackbits(bits)).tolist())


@travels
@dataclass(frozen=True)
class Masks:
    """The data that clients need to mask their summands of one call; it is sent with the call.

    Attributes
    ----------
    circle : Circle
        Clients that could take part.
    label : Label
        Label of the sum.
    shared : uint8
        Clients that take part, one bit each.
    keys : (participants, 32) uint8
        Public keys of the participants, in client order. A process that was restarted agrees again with the
        neighbours of its clients.
    """

    circle: Circle
    label: masking.Label
    shared: UInt8Array
    keys: UInt8Array

    def on(self, clients: Sequence[Client], total: Int64Array) -> Int64Array:
        """Return the sum of the clients' masked vectors, given the sum of their vectors."""
        members = [member_of(client, self.circle.group(client), self._keys_of) for client in clients]
        return masking.mask(members, self.label, named(self.shared), total)

    def _keys_of(self, group: masking.Group, client: int) -> UInt8Array:
        public = dict(zip(group.clients, self.keys, strict=True))
        return masking.keys_for(group, client, public)

    def require_trusted(self, client: Client) -> None:
        """Raise UntrustedKeyError unless a client of a deployed run has checked the keys of all participants."""
        if client.peers is not None:
            require_trusted(client, dict(zip(self.circle.group(client).clients, self.keys, strict=True)))

    def for_ledger(self) -> MasksTold:
        """Return the part that no other message contains, for the ledger."""
        return MasksTold(self.label, self.shared)


@dataclass(frozen=True)
class MasksTold(Request[PublicKey], what="who takes part in a secure sum"):
    """Ledger entry for the masks, which are sent with the request for the summand."""

    label: masking.Label
    shared: UInt8Array


def member_of(
    client: Client, group: masking.Group, keys_of: Callable[[masking.Group, int], UInt8Array]
) -> masking.Member:
    """Return a client as a member of a group; the last group is kept because agreements take time."""
    kept = client.memory.get(_MEMBER)
    if kept is None or kept.group is not group:
        keys = keys_of(group, client.index)
        require_trusted(client, dict(zip(group.neighbours(client.index), keys, strict=True)))
        kept = client.memory[_MEMBER] = masking.enter(agreement_key(client), group, client.index, keys)
    member: masking.Member = kept
    return member


def own_of(client: Client) -> bytes:
    """Return the secret from which all that a client draws for masks follows, in any group; kept."""
    kept = client.memory.get(_OWN)
    if kept is None:
        kept = client.memory[_OWN] = masking.own_key(agreement_key(client), client.run, client.index)
    own: bytes = kept
    return own


_MEMBER = "member of a group"
_OWN = "own secret for masks"
