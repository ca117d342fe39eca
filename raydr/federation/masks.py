"""Who takes part in a secure sum, and the public keys that clients mask with: both travel with its call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from raydr.arrays import Int64Array, UInt8Array
from raydr.federation.agreement import PublicKey, agreement_key
from raydr.federation.client import Client
from raydr.federation.messages import Request
from raydr.privacy import masking


@dataclass(frozen=True)
class Circle:
    """Who takes part in secure sums.

    Attributes
    ----------
    members : uint8
        One bit for each client.
    colluding, dropping : float
        See :class:`SecureSums`.
    digest : str
        Of the group that the server makes of them.
    """

    members: UInt8Array
    colluding: float
    dropping: float
    digest: str

    def group(self, client: Client) -> masking.Group:
        """Return the group as a client makes it of them, in the run that it knows itself to be in.

        Raises
        ------
        MaskingError
            If the server is in another.
        """
        found = group_of(self.members.tobytes(), self.colluding, self.dropping, client.run, client.seed)
        if found.digest != self.digest:
            raise masking.MaskingError(
                f"client {client.index} and the server are not in the same run, or of other seeds: no sum can be secret"
                " between them."
            )
        return found


@lru_cache(maxsize=64)
def group_of(members: bytes, colluding: float, dropping: float, run: str, seed: int) -> masking.Group:
    """Return the group of clients (one bit each), made once in a process."""
    clients = named(np.frombuffer(members, np.uint8))
    return masking.Group(run, clients, masking.degrees(len(clients), colluding, dropping), seed)


def bits_of(clients: frozenset[int] | tuple[int, ...]) -> UInt8Array:
    """Clients as bits, eight in a byte.

    >>> named(bits_of((0, 3, 17)))
    (0, 3, 17)
    """
    flags = np.zeros(max(clients, default=-1) + 1, bool)
    flags[list(clients)] = True
    return np.packbits(flags)


def named(bits: UInt8Array) -> tuple[int, ...]:
    """Clients of bits, ascending."""
    return tuple(np.flatnonzero(np.unpackbits(bits)).tolist())


@dataclass(frozen=True)
class Masks:
    """What clients need to know to mask their summands of one call; it travels with the call.

    Attributes
    ----------
    circle : Circle
        Who could take part.
    label : Label
        Of the sum.
    shared : uint8
        Who does, a bit for each client.
    keys : mapping of client to (neighbours, 32) uint8
        Public keys of each client's neighbours.
    """

    circle: Circle
    label: masking.Label
    shared: UInt8Array
    keys: Mapping[int, UInt8Array]

    def on(self, client: Client, vector: Int64Array) -> Int64Array:
        """Masked vector of a client."""
        group = self.circle.group(client)
        member = member_of(client, group, self.keys[client.index])
        return masking.mask(member, self.label, named(self.shared), vector)

    def told(self) -> MasksTold:
        """What of it no other message tells a client."""
        return MasksTold(self.label, self.shared)


@dataclass(frozen=True)
class MasksTold(Request[PublicKey], what="who takes part in a secure sum"):
    """Counted by the ledger; it is sent along with the request for the summand."""

    label: masking.Label
    shared: UInt8Array


def member_of(client: Client, group: masking.Group, keys: UInt8Array) -> masking.Member:
    """A client as a member of a group; agreements take time, so the last group's are kept."""
    kept = client.memory.get(_MEMBER)
    if kept is None or kept.group is not group:
        kept = client.memory[_MEMBER] = masking.enter(agreement_key(client), group, client.index, keys)
    member: masking.Member = kept
    return member


_MEMBER = "member of a group"
