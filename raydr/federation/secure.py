"""Secure sums in a federation: the messages around each sum, by which the server learns only the total.

The protocol is :mod:`raydr.privacy.masking`. Here its stages are ordinary requests, which the ledger counts. Clients
keep nothing that they could not compute again: each request contains the public keys that it needs.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from raydr.arrays import UInt8Array
from raydr.federation.agreement import Ask
from raydr.federation.client import Client
from raydr.federation.masks import Circle, Masks, bits_of, group_of, member_of, named
from raydr.federation.messages import Range, Reply, Request, answers
from raydr.federation.ring import split_as
from raydr.federation.sums import Total
from raydr.privacy import masking
from raydr.privacy.ledger import Granularity, Public
from raydr.privacy.masking.keys import KEY, TAG
from raydr.privacy.masking.messages import CHECK, PAIR, SHARE


@dataclass(frozen=True)
class SecureSums:
    """The collusion and drop-out that secure sums tolerate.

    Attributes
    ----------
    colluding : float
        Fraction of the clients that may share everything they know with the server.
    dropping : float
        Fraction of the clients that may drop out of a sum.
    """

    colluding: float = 0.2
    dropping: float = 0.0


_REVEALED = "revealed"


@dataclass(frozen=True)
class Shares(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="shares of the secrets of a client's masks, sealed for its neighbours",
    public=Public.RANDOM,
):
    """See :class:`raydr.privacy.masking.Shared`."""

    shares: UInt8Array
    seeds: UInt8Array
    check: UInt8Array

    @staticmethod
    def ranges(request: ShareRequest, rows: int) -> dict[str, Range]:
        """Declare one share for each neighbour and one seed for each partner."""
        return {
            "shares": Range((len(request.keys), PAIR), dtype="uint8"),
            "seeds": Range((KEY * request.partners + TAG,), dtype="uint8"),
            "check": Range((CHECK,), dtype="uint8"),
        }


@dataclass(frozen=True)
class ShareRequest(Request[Shares], what="public keys of a client's neighbours"):
    """Sent to one client before a sum; ``keys`` (neighbours, 32) uint8."""

    circle: Circle
    label: masking.Label
    keys: UInt8Array
    partners: int


@answers(ShareRequest)
def share(client: Client, request: ShareRequest) -> Shares:
    """Client part: distribute shares."""
    group = request.circle.group(client)
    shared = masking.share(member_of(client, group, request.keys), request.label)
    return Shares(shared.shares, shared.seeds, shared.check)


@dataclass(frozen=True)
class Revealed(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="one share of each neighbour's secrets, which the server needs to remove the masks from the total",
    public=Public.RANDOM,
):
    """``shares`` (neighbours, 33) uint8."""

    shares: UInt8Array

    @staticmethod
    def ranges(request: RevealRequest, rows: int) -> dict[str, Range]:
        """Declare one share for each neighbour."""
        return {"shares": Range((len(request.keys), SHARE), dtype="uint8")}


@dataclass(kw_only=True, frozen=True)
class RevealRequest(Request[Revealed], what="sealed shares of a client's neighbours, and who has uploaded"):
    """Sent to one survivor: ``keys`` and ``shares`` of its neighbours; survivors and drop-outs as bits."""

    circle: Circle
    label: masking.Label
    keys: UInt8Array
    shares: UInt8Array
    survivors: UInt8Array
    dropped: UInt8Array


@answers(RevealRequest)
def reveal(client: Client, request: RevealRequest) -> Revealed:
    """Client part: reveal a share of each neighbour, and no other share of the same sum afterwards.

    Raises
    ------
    MaskingError
        If it is asked about one sum twice with different survivors: both answers could reveal a vector.
    """
    sets = request.survivors.tobytes(), request.dropped.tobytes()
    before = client.memory.setdefault(_REVEALED, {}).setdefault(request.label, sets)
    if before != sets:
        raise masking.MaskingError(
            f"client {client.index} is asked twice to reveal shares of call {request.label.call}, with different"
            " survivors: the two answers together could reveal a vector."
        )
    group = request.circle.group(client)
    member = member_of(client, group, request.keys)
    alive, gone = named(request.survivors), named(request.dropped)
    return Revealed(masking.reveal(member, request.label, request.shares, alive, gone))


@dataclass(frozen=True)
class ShareRequests(Request[Shares], what=ShareRequest.what):
    """One request for each client."""

    own: dict[int, ShareRequest]

    def addressed_to(self, client: int) -> ShareRequest:  # type: ignore[override]
        """Return the request for one client."""
        return self.own[client]


@dataclass(frozen=True)
class RevealRequests(Request[Revealed], what=RevealRequest.what):
    """One request for each survivor."""

    own: dict[int, RevealRequest]

    def addressed_to(self, client: int) -> RevealRequest:  # type: ignore[override]
        """Return the request for one client."""
        return self.own[client]


@dataclass
class SecureSumServer:
    """The server's part in all secure sums of a federation.

    Attributes
    ----------
    settings : SecureSums
        What they tolerate.
    run : str
        Name of the run.
    seed : int
        Seed of the order on the circle.
    start : str
        Identifies this start of the run, because a label serves one sum.
    """

    settings: SecureSums
    run: str
    seed: int
    start: str = field(default_factory=lambda: secrets.token_hex(8))

    def prepared(
        self,
        cohort: tuple[int, ...],
        call: int,
        round: int,
        public_keys: Mapping[int, UInt8Array],
        ask: Ask[Shares],
    ) -> Prepared:
        """Let the clients of a sum share the secrets of their masks.

        Raises
        ------
        ScenarioError
            If there are too few clients for secure sums.
        TooFewError
            If fewer share than the settings allow.
        """
        members, settings = bits_of(cohort), self.settings
        group = group_of(members.tobytes(), settings.colluding, settings.dropping, self.run, self.seed)
        circle = Circle(members, settings.colluding, settings.dropping, group.digest)
        label = masking.Label(self.start, call, round)
        keys = {client: masking.keys_for(group, client, public_keys) for client in cohort}
        replies = ask(
            ShareRequests(
                {
                    client: ShareRequest(circle, label, keys[client], len(group.partners(client)))
                    for client in cohort
                }
            ),
            cohort,
        )
        group.require(frozenset(replies), "shared")
        shared = {
            client: masking.Shared(reply.shares, reply.seeds, reply.check)
            for client, reply in replies.items()
        }
        return Prepared(group, Masks(circle, label, bits_of(tuple(sorted(shared))), keys), shared)


@dataclass(frozen=True)
class Prepared:
    """A secure sum for which clients have shared their secrets.

    Attributes
    ----------
    group : Group
        Clients that could take part.
    masks : Masks
        Masks that are sent with the call.
    shared : mapping of client to Shared
        Shares of the clients that take part.
    """

    group: masking.Group
    masks: Masks
    shared: Mapping[int, masking.Shared]

    def unmask(self, total: Total, ask: Ask[Revealed]) -> None:
        """Remove the masks from a total, in place.

        Raises
        ------
        TooFewError
            If too many clients have dropped out.
        """
        revealed = {client: reply.shares for client, reply in self.reveal(total, ask).items()}
        vector = np.concatenate([part.reshape(-1) for part in total.totals.values()])
        plain = masking.unmask(self.group, self.shared, tuple(total.clients), revealed, vector)
        total.totals = split_as(plain, total.totals)

    def reveal(self, total: Total, ask: Ask[Revealed]) -> dict[int, Revealed]:
        """Ask the survivors of a sum for shares of the clients' secrets."""
        survivors = tuple(sorted(total.clients))
        self.group.require(frozenset(survivors), "uploaded")
        alive, gone = bits_of(survivors), bits_of(tuple(sorted(self.shared.keys() - total.clients)))
        masks = self.masks
        return ask(
            RevealRequests(
                {
                    client: RevealRequest(
                        circle=masks.circle,
                        label=masks.label,
                        keys=masks.keys[client],
                        shares=masking.shares_for(self.group, client, self.shared),
                        survivors=alive,
                        dropped=gone,
                    )
                    for client in survivors
                }
            ),
            survivors,
        )
