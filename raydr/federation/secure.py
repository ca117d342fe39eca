"""Secure sums in a federation: the messages around each sum, by which the server learns only the total.

The protocol is :mod:`raydr.privacy.masking`. Here its stages are ordinary requests, which the ledger counts. Clients
keep nothing that they could not compute again: each request contains the public keys that it needs.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from raydr.arrays import UInt8Array
from raydr.federation.agreement import Ask
from raydr.federation.client import Client
from raydr.federation.masks import Circle, Masks, bits_of, group_of, member_of, named, own_of
from raydr.federation.messages import Range, Reply, Request, answers, answers_jointly
from raydr.federation.noise_streams import digest
from raydr.federation.ring import split_as
from raydr.federation.sums import Total
from raydr.privacy import masking
from raydr.privacy.ledger import Granularity, Public
from raydr.privacy.masking.keys import KEY, TAG
from raydr.privacy.masking.messages import CHECK, SHARE, box_bytes


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


_MOST = 16
"""Most sums in a batch. Of 1,000 clients, the server then keeps 28 MB of shares."""


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
    checks: UInt8Array

    @staticmethod
    def ranges(request: ShareRequest, rows: int) -> dict[str, Range]:
        """Declare shares for each neighbour and seeds for each partner, of all sums of the batch."""
        sums = request.batch.sums
        return {
            "shares": Range((len(request.keys), box_bytes(sums)), dtype="uint8"),
            "seeds": Range((sums, KEY * request.partners + TAG), dtype="uint8"),
            "checks": Range((sums, CHECK), dtype="uint8"),
        }


@dataclass(frozen=True)
class ShareRequest(Request[Shares], what="public keys of a client's neighbours"):
    """Sent to one client before the sums of a batch; ``keys`` (neighbours, 32) uint8."""

    circle: Circle
    batch: masking.Batch
    keys: UInt8Array
    partners: int


@answers(ShareRequest)
def share(client: Client, request: ShareRequest) -> Shares:
    """Client part: distribute shares."""
    group = request.circle.group(client)
    shared = masking.share(member_of(client, group, lambda *_: request.keys), request.batch)
    return Shares(shared.shares, shared.seeds, shared.checks)


@dataclass(frozen=True)
class Revealed(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="the seed of one of a client's masks, which the server needs to remove it from the total",
    public=Public.RANDOM,
):
    """``seed`` (32,) uint8."""

    seed: UInt8Array

    @staticmethod
    def ranges(request: RevealRequest, rows: int) -> dict[str, Range]:
        """Declare 32 bytes."""
        return {"seed": Range((KEY,), dtype="uint8")}


@dataclass(kw_only=True, frozen=True)
class RevealRequest(Request[Revealed], what="who has uploaded a summand of a secure sum"):
    """Sent to all survivors; survivors and drop-outs as bits."""

    circle: Circle
    label: masking.Label
    survivors: UInt8Array
    dropped: UInt8Array

    @property
    def jointly(self) -> bool:
        """Whether a host answers for all its clients at once: it always does."""
        return True


@answers(RevealRequest)
def reveal(client: Client, request: RevealRequest) -> Revealed:
    """Client part: reveal the seed of the client's own stream.

    Raises
    ------
    MaskingError
        If it is asked about one sum twice with different survivors: both answers could reveal a vector.
    """
    return reveal_jointly([client], [request])[0]


@answers_jointly(RevealRequest)
def reveal_jointly(clients: Sequence[Client], requests: Sequence[RevealRequest]) -> list[Revealed]:
    """Client part of clients that share a process: check once who has uploaded."""
    request, owns = requests[0], {}
    for client in clients:
        _require_once(client, request.label, request.survivors, request.dropped)
        owns[client.index] = own_of(client)
    alive, gone = named(request.survivors), named(request.dropped)
    seeds = masking.reveal(owns, request.circle.group(clients[0]), request.label, alive, gone)
    return [Revealed(seed) for seed in seeds.values()]


@dataclass(frozen=True)
class Recovered(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="shares of lost clients' secrets, which the server needs to remove their masks from the total",
    public=Public.RANDOM,
):
    """``shares`` (neighbours, 33) uint8."""

    shares: UInt8Array

    @staticmethod
    def ranges(request: RecoverRequest, rows: int) -> dict[str, Range]:
        """Declare one share for each neighbour."""
        return {"shares": Range((len(request.keys), SHARE), dtype="uint8")}


@dataclass(kw_only=True, frozen=True)
class RecoverRequest(Request[Recovered], what="sealed shares of a client's neighbours, and who was lost"):
    """Sent to one survivor: ``keys`` and ``shares`` of its neighbours; survivors, drop-outs and silent ones as bits."""

    circle: Circle
    label: masking.Label
    keys: UInt8Array
    shares: UInt8Array
    survivors: UInt8Array
    dropped: UInt8Array
    silent: UInt8Array


@answers(RecoverRequest)
def recover(client: Client, request: RecoverRequest) -> Recovered:
    """Client part: reveal a share of each lost neighbour, and no other share of the same sum afterwards.

    Raises
    ------
    MaskingError
        If it was asked about the sum with different survivors before: both answers could reveal a vector.
    """
    _require_once(client, request.label, request.survivors, request.dropped)
    member = member_of(client, request.circle.group(client), lambda *_: request.keys)
    sets = (named(bits) for bits in (request.survivors, request.dropped, request.silent))
    return Recovered(masking.recover(member, request.label, request.shares, *sets))


def _require_once(client: Client, label: masking.Label, survivors: UInt8Array, dropped: UInt8Array) -> None:
    """Note who uploaded to a sum according to the server, and refuse another account of it."""
    sets = digest(survivors, dropped)
    if client.once.setdefault(f"revealed for {digest(label)}", sets) != sets:
        raise masking.MaskingError(
            f"client {client.index} is asked twice to reveal secrets of one sum (batch {label.batch.number}, place"
            f" {label.place}), with different survivors: the two answers together could reveal a vector."
        )


@dataclass(frozen=True)
class ShareRequests(Request[Shares], what=ShareRequest.what):
    """One request for each client."""

    own: dict[int, ShareRequest]

    def addressed_to(self, client: int) -> ShareRequest:  # type: ignore[override]
        """Return the request for one client."""
        return self.own[client]


@dataclass(frozen=True)
class RecoverRequests(Request[Recovered], what=RecoverRequest.what):
    """One request for each survivor that holds shares of lost clients."""

    own: dict[int, RecoverRequest]

    def addressed_to(self, client: int) -> RecoverRequest:  # type: ignore[override]
        """Return the request for one client."""
        return self.own[client]


@dataclass
class SecureSumServer:
    """The server's part in all secure sums of a federation.

    Clients share the secrets of a batch of sums at once. The first batch of a group has one sum. Each later one has as
    many as the group has taken so far, 16 at most, so that no more than half of the shares are for nothing.

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
    _ahead: _Ahead | None = field(default=None, repr=False)
    _batches: int = field(default=0, repr=False)

    def prepared(
        self, cohort: tuple[int, ...], public_keys: Mapping[int, UInt8Array], ask: Ask[Shares]
    ) -> Prepared:
        """Let the clients of a sum share the secrets of its masks, unless they have done so.

        Raises
        ------
        ScenarioError
            If there are too few clients for secure sums.
        TooFewError
            If fewer share than the settings allow.
        """
        members, settings = bits_of(cohort), self.settings
        group = group_of(members.tobytes(), settings.colluding, settings.dropping, self.run, self.seed)
        ahead, sums = self._ahead, 1
        if ahead is not None and ahead.group.digest == group.digest:
            # Who was missing when a batch was shared is asked again for the next sum.
            whole = len(ahead.shared) == len(cohort)
            if whole and ahead.taken < ahead.batch.sums:
                return ahead.next()
            sums = min(_MOST, 2 * ahead.batch.sums) if whole else 1
        circle = Circle(members, settings.colluding, settings.dropping, group.digest)
        self._batches += 1
        batch = masking.Batch(self.start, self._batches, sums)
        replies = ask(
            ShareRequests(
                {
                    client: ShareRequest(
                        circle,
                        batch,
                        masking.keys_for(group, client, public_keys),
                        len(group.partners(client)),
                    )
                    for client in cohort
                }
            ),
            cohort,
        )
        group.require(frozenset(replies), "shared")
        shared = {
            client: masking.Shared(reply.shares, reply.seeds, reply.checks)
            for client, reply in replies.items()
        }
        self._ahead = _Ahead(
            group, circle, batch, np.stack([public_keys[client] for client in cohort]), shared
        )
        return self._ahead.next()


@dataclass
class _Ahead:
    """A batch for which clients have shared their secrets, and how many of its sums were taken.

    ``keys`` are the participants' public keys, in client order.
    """

    group: masking.Group
    circle: Circle
    batch: masking.Batch
    keys: UInt8Array
    shared: Mapping[int, masking.Shared]
    taken: int = 0

    def next(self) -> Prepared:
        """Return the next sum of the batch; no label is given out twice."""
        label = masking.Label(self.batch, self.taken)
        self.taken += 1
        masks = Masks(self.circle, label, bits_of(tuple(sorted(self.shared))), self.keys)
        return Prepared(self.group, masks, self.shared)


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

    def unmask(self, total: Total, ask: Ask[Any]) -> None:
        """Remove the masks from a total, in place.

        Raises
        ------
        TooFewError
            If too many clients have dropped out.
        """
        seeds, shares = self.reveal(total, ask)
        revealed = {client: reply.seed for client, reply in seeds.items()}
        recovered = {client: reply.shares for client, reply in shares.items()}
        vector = np.concatenate([part.reshape(-1) for part in total.totals.values()])
        plain = masking.unmask(
            self.group,
            self.masks.label,
            self.shared,
            tuple(total.clients),
            revealed,
            recovered,
            vector,
        )
        total.totals = split_as(plain, total.totals)

    def reveal(self, total: Total, ask: Ask[Any]) -> tuple[dict[int, Revealed], dict[int, Recovered]]:
        """Ask the survivors of a sum for their seeds, and for shares of the secrets of clients that were lost."""
        survivors, masks = tuple(sorted(total.clients)), self.masks
        self.group.require(frozenset(survivors), "uploaded")
        dropped = self.shared.keys() - total.clients
        alive, gone = bits_of(survivors), bits_of(tuple(sorted(dropped)))
        revealed = ask(
            RevealRequest(circle=masks.circle, label=masks.label, survivors=alive, dropped=gone), survivors
        )
        silent = total.clients - revealed.keys()
        lost = dropped | silent
        holders = tuple(
            client for client in sorted(revealed) if not lost.isdisjoint(self.group.neighbours(client))
        )
        if not holders:
            return revealed, {}
        public = dict(zip(self.group.clients, masks.keys, strict=True))
        requests = {
            client: RecoverRequest(
                circle=masks.circle,
                label=masks.label,
                keys=masking.keys_for(self.group, client, public),
                shares=masking.shares_for(self.group, client, self.shared, lost),
                survivors=alive,
                dropped=gone,
                silent=bits_of(tuple(sorted(silent))),
            )
            for client in holders
        }
        return revealed, ask(RecoverRequests(requests), holders)
