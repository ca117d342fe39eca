"""Everything that was posted of each record, whatever the message, and what clients would have posted of other rows.

A server knows what it asked. Where a reply says of a record what follows from the record and the request alone
(distances, kernels, projections, the place that an encoder gives), it can run the client part on rows of its own.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.attacks.contract import NotApplicableError, View
from raydr.federation import ClientHost, Reply, Request, Seat, Tells, fingerprint
from raydr.federation.client import Withheld
from raydr.federation.failures import Failure
from raydr.federation.transcript import Seen
from raydr.federation.wire import Call
from raydr.methods.fedne.positions import PositionRequest
from raydr.methods.landmarks.spectral import Kernels
from raydr.methods.sense.clients import AnchorDistances, AnchorRequest
from raydr.privacy.ledger import Granularity
from raydr.privacy.secrets import Secret

_OF_THE_ROW_ALONE = (Tells.DISTANCES, Tells.PROJECTIONS, Tells.VALUES)


@dataclass(frozen=True)
class Block:
    """One kind of message: what it says of some records.

    Attributes
    ----------
    values : (rows, numbers) float64
    kind : type of Reply or None
        None for the places on the map that the server computed or published itself.
    request : Request or None
        What these clients were told.
    """

    values: Float64Array
    kind: type[Reply] | None
    request: Request[Any] | None

    @property
    def is_place(self) -> bool:
        """Whether it says where a record lies on the map."""
        return self.kind is None or self.kind.tells is Tells.PLACES

    @property
    def can_be_imitated(self) -> bool:
        """Whether what it says of a record follows from the record and the request alone."""
        return self.kind is not None and (
            self.kind.tells in _OF_THE_ROW_ALONE or isinstance(self.request, PositionRequest)
        )


@dataclass(frozen=True)
class Posts:
    """All that was posted of the records of clients that were told the same: ``rows`` (rows,) are their numbers."""

    rows: Int64Array
    blocks: tuple[Block, ...]

    @property
    def kinds(self) -> tuple[type[Reply], ...]:
        """Messages that were read."""
        return tuple(block.kind for block in self.blocks if block.kind is not None)

    @property
    def values(self) -> Float64Array:
        """Everything posted, (rows, numbers)."""
        return np.hstack([block.values for block in self.blocks])

    def only(self, blocks: tuple[Block, ...]) -> Posts:
        """Some of the messages."""
        return replace(self, blocks=blocks)

    def imitated(self, rows: FloatArray, view: View, seed: int) -> Float64Array:
        """Return the posts (rows, numbers) of other rows, as clients would have sent them, noise included."""
        fed = view.fed(rows).astype(rows.dtype)
        return np.hstack([_imitated(block, fed, seed) for block in self.blocks])


def per_record(view: View) -> list[Posts]:
    """All that was posted of single records: one of these for all clients that were told the same.

    Raises
    ------
    NotApplicableError
        If nothing was posted of any single record, and no map is published.
    """
    sent: dict[int, dict[type[Reply], Seen]] = {}
    for seen in view.transcript:
        if seen.client is not None and type(seen.reply).granularity == Granularity.PER_RECORD:
            sent.setdefault(seen.client, {})[type(seen.reply)] = seen  # of several, the last
    groups: dict[Hashable, list[int]] = {}
    for client, size in enumerate(view.sizes):
        if size:
            told = tuple((kind, _content(seen.request)) for kind, seen in sent.get(client, {}).items())
            groups.setdefault(told, []).append(client)
    together = [_together(view, clients, sent) for clients in groups.values()]
    found = [posts for posts in together if posts.blocks]
    if not found:
        raise NotApplicableError("nothing was posted of any single record, and no map is published.")
    return found


def noisy_for_good(view: View) -> bool:
    """Whether records carry noise in all that is asked of them, which rows of the server's own do not have."""
    return any(
        seen.protection is not None and seen.protection.on == "data" and seen.request.mechanism is None
        for seen in view.transcript
    )


def _together(view: View, clients: list[int], sent: dict[int, dict[type[Reply], Seen]]) -> Posts:
    rows = np.concatenate([view.rows_of(client) for client in clients])
    blocks = []
    for kind, first in sent.get(clients[0], {}).items():
        values = np.concatenate(
            [_numbers(sent[client][kind].reply, view.sizes[client]) for client in clients]
        )
        if values.shape[1]:
            blocks.append(Block(values, kind, first.request))
    if len(view.embedding) and not any(block.is_place for block in blocks):
        blocks.append(Block(view.embedding[rows].astype(np.float64), None, None))
    return Posts(rows, tuple(blocks))


def _content(request: Request[Any]) -> Hashable:
    """Return a key that is equal for equal requests."""
    return type(request), *(_mark(getattr(request, one.name)) for one in fields(request))  # type: ignore[arg-type]


def _mark(value: Any) -> Hashable:
    try:
        hash(value)
    except TypeError:
        return id(value)  # an array, which the transcript keeps, so no other has its identity
    return value  # type: ignore[no-any-return]


def _numbers(reply: Reply, rows: int) -> Float64Array:
    """Return the numbers of each record in a reply on so many records, (rows, numbers)."""
    match reply:
        case AnchorDistances():
            return reply.squared  # what is inside is in directions of the client's own
        case Kernels():
            return np.asarray(-np.log(np.maximum(reply.values, np.finfo(np.float64).tiny)))
    arrays = [value for value in vars(reply).values() if isinstance(value, np.ndarray)]
    parts = [value.reshape(rows, -1).astype(np.float64) for value in arrays if value.shape[:1] == (rows,)]
    return np.hstack(parts) if parts else np.zeros((rows, 0))


def _imitated(block: Block, fed: FloatArray, seed: int) -> Float64Array:
    """Return what a client would have replied of these rows (rows, features)."""
    if block.request is None:
        raise NotApplicableError("the server cannot compute what would be posted of other rows.")
    return replied(block.request, fed, seed)


def replied(request: Request[Any], fed: FloatArray, seed: int) -> Float64Array:
    """Return the numbers (rows, numbers) that a client with these rows (rows, features) replies, noise included.

    Raises
    ------
    NotApplicableError
        If it refuses, or fails.
    """
    if isinstance(request, AnchorRequest):
        request = replace(request, within=False)
    withheld = Withheld({0: Secret(bytes(32)).derived("imitation", seed)})
    host = ClientHost(seats=[Seat(0, fed, fingerprint(fed))], seed=seed, withheld=withheld)
    (answer,) = host.ask(Call(request=request, number=1, round=0, attempt=0, clients=(0,), in_rounds=False))
    if isinstance(answer, Failure):
        raise NotApplicableError(f"what would be posted of other rows cannot be computed: {answer.reason}.")
    return _numbers(answer.reply, len(fed))
