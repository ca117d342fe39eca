"""Everything that was posted about each record, and what clients would have posted about other rows.

The server knows its requests. Some replies depend only on the record and the request: distances, kernels, projections,
the place that an encoder gives. For these the server can run the client code on its own rows.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.attacks.contract import NotApplicableError, View
from raydr.federation import ClientHost, HostedClient, RecordContent, Reply, Request, fingerprint
from raydr.federation.client import HostSecrets
from raydr.federation.failures import Failure
from raydr.federation.transcript import Seen
from raydr.federation.wire import Call
from raydr.methods.fedne.positions import PositionRequest
from raydr.methods.landmarks.spectral import Kernels
from raydr.methods.sense.clients import AnchorDistances, AnchorRequest
from raydr.privacy.ledger import Granularity
from raydr.privacy.secrets import Secret

_OF_THE_ROW_ALONE = (RecordContent.DISTANCES, RecordContent.PROJECTIONS, RecordContent.VALUES)


@dataclass(frozen=True)
class Block:
    """One kind of message about some records.

    Attributes
    ----------
    values : (rows, numbers) float64
    kind : type of Reply or None
        None for places on the map that the server computed or published itself.
    request : Request or None
        The request to these clients.
    """

    values: Float64Array
    kind: type[Reply] | None
    request: Request[Any] | None

    @property
    def is_place(self) -> bool:
        """Whether it gives a record's place on the map."""
        return self.kind is None or self.kind.tells is RecordContent.PLACES

    @property
    def can_be_imitated(self) -> bool:
        """Whether its content depends only on the record and the request."""
        return self.kind is not None and (
            self.kind.tells in _OF_THE_ROW_ALONE or isinstance(self.request, PositionRequest)
        )


@dataclass(frozen=True)
class Posts:
    """Everything posted about the records of clients with the same requests.

    ``rows`` (rows,) are the record numbers.
    """

    rows: Int64Array
    blocks: tuple[Block, ...]

    @property
    def kinds(self) -> tuple[type[Reply], ...]:
        """Kinds of messages in these posts."""
        return tuple(block.kind for block in self.blocks if block.kind is not None)

    @property
    def values(self) -> Float64Array:
        """Everything posted, (rows, numbers)."""
        return np.hstack([block.values for block in self.blocks])

    def only(self, blocks: tuple[Block, ...]) -> Posts:
        """Return a copy with only these messages."""
        return replace(self, blocks=blocks)

    def imitated(self, rows: FloatArray, view: View, seed: int) -> Float64Array:
        """Return the posts (rows, numbers) that clients would have sent about other rows, noise included."""
        fed = view.fed(rows).astype(rows.dtype)
        return np.hstack([_imitated(block, fed, seed) for block in self.blocks])


def per_record(view: View) -> list[Posts]:
    """Return everything posted about single records, with one entry for all clients with the same requests.

    Raises
    ------
    NotApplicableError
        If nothing was posted about single records, and no map is published.
    """
    sent: dict[int, dict[type[Reply], Seen]] = {}
    for seen in view.transcript:
        if seen.client is not None and type(seen.reply).granularity == Granularity.PER_RECORD:
            sent.setdefault(seen.client, {})[type(seen.reply)] = seen  # if there are several, the last
    groups: dict[Hashable, list[int]] = {}
    for client, size in enumerate(view.sizes):
        if size:
            received = tuple((kind, _content(seen.request)) for kind, seen in sent.get(client, {}).items())
            groups.setdefault(received, []).append(client)
    together = [_together(view, clients, sent) for clients in groups.values()]
    found = [posts for posts in together if posts.blocks]
    if not found:
        raise NotApplicableError("nothing was posted about single records, and no map is published.")
    return found


def noisy_for_good(view: View) -> bool:
    """Whether clients add permanent noise to their records, which the server's own rows do not have."""
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
        return id(value)  # an array; the transcript keeps it, so no other array gets its id
    return value  # type: ignore[no-any-return]


def _numbers(reply: Reply, rows: int) -> Float64Array:
    """Return the numbers (rows, numbers) about each record in a reply about ``rows`` records."""
    match reply:
        case AnchorDistances():
            return reply.squared  # its inner part is in the client's own directions
        case Kernels():
            return np.asarray(-np.log(np.maximum(reply.values, np.finfo(np.float64).tiny)))
    arrays = [value for value in vars(reply).values() if isinstance(value, np.ndarray)]
    parts = [value.reshape(rows, -1).astype(np.float64) for value in arrays if value.shape[:1] == (rows,)]
    return np.hstack(parts) if parts else np.zeros((rows, 0))


def _imitated(block: Block, fed: FloatArray, seed: int) -> Float64Array:
    """Return what a client would have replied about these rows (rows, features)."""
    if block.request is None:
        raise NotApplicableError("the server cannot compute what would be posted about other rows.")
    return replied(block.request, fed, seed)


def replied(request: Request[Any], fed: FloatArray, seed: int) -> Float64Array:
    """Return the numbers (rows, numbers) that a client replies about these rows (rows, features), noise included.

    Raises
    ------
    NotApplicableError
        If the client code refuses or fails.
    """
    if isinstance(request, AnchorRequest):
        request = replace(request, within=False)
    host_secrets = HostSecrets({0: Secret(bytes(32)).derived("imitation", seed)})
    host = ClientHost(hosted=[HostedClient(0, fed, fingerprint(fed))], seed=seed, host_secrets=host_secrets)
    (answer,) = host.ask(Call(request=request, number=1, round=0, attempt=0, clients=(0,), in_rounds=False))
    if isinstance(answer, Failure):
        raise NotApplicableError(
            f"the server cannot compute what would be posted about other rows: {answer.reason}."
        )
    return _numbers(answer.reply, len(fed))
