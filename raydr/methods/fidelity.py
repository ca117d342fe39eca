r"""Trustworthiness, continuity and neighbour preservation of a map, estimated without pooling rows.

Some rows of all sites, the query rows, are shown to the other sites, with their places on the map. Each site measures
them against its own rows. What sites measure adds up to the exact ranks among all rows:

1. Each site sends the query rows that it holds to the other sites.
2. For each query row, each site sends the distances of its `NEIGHBORS` rows nearest in the data, and of those nearest
   on the map, each in the data and on the map, to the other sites. From all of them, each site knows how far the
   nearest rows of all sites are.
3. Each site counts its rows that are nearer than each of these. The server learns the sums: for each query row, the
   ranks in the data of its neighbours on the map, and the ranks on the map of its neighbours in the data.

Messages of the first two steps are sealed with a secret that the sites share. The server forwards them and cannot read
them, but every site can. Each row is a query row with the same probability, so the mean over query rows estimates the
mean over all rows without bias.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import Generic, Self, TypeVar

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array, UInt8Array
from raydr.errors import DataError
from raydr.federation import Cells, Client, Federation, Granularity, Range, Reply, Request, answers
from raydr.geometry.points import row_blocks, squared_distances
from raydr.privacy.sealing import Binding, seal, sealed_size, unseal
from raydr.statistics.scaling import Done
from raydr.wire_types import travels

R = TypeVar("R", bound=Reply)

NEIGHBORS, RANKED = 10, 5
"""Neighbours of ``npa_10``, and those whose ranks are used for trustworthiness and continuity."""
LEAST_ROWS = 20
"""Minimum number of query rows. The standard error of fewer is not reliable."""
BLOCK_ROWS = 4_096
"""Rows of a site that are compared with all query rows at a time."""
DATA, MAP = 0, 1
"""Where rows are near each other."""
_ROWS, _QUERIES, _NEAREST = "rows before the method", "query rows", "nearest rows"
_ROUNDING = 1e-12
"""Relative difference of squared distances that can be equal, apart from the rounding of products."""


@dataclass(frozen=True)
class Fidelity:
    """Metrics of a map from its query rows, each with the standard error of the draw.

    Attributes
    ----------
    rows : int
        Number of query rows.
    values, standard_errors : mapping of str to float
        By the name of the metric.
    """

    rows: int
    values: Mapping[str, float]
    standard_errors: Mapping[str, float]


@dataclass(frozen=True)
class KeepRows(Request[Done], what="a question without content", sets_state=True):
    """Sent to every client before the method, whose client parts may replace the rows."""


@answers(KeepRows)
def keep_own_rows(client: Client, request: KeepRows) -> Done:
    """Client part: remember the rows as they are now."""
    client.memory[_ROWS] = client.rows
    return Done()


@travels
@dataclass(frozen=True)
class Own:
    """The server's part of a request to one client.

    Attributes
    ----------
    places : (rows, 2 or 3) float64
        Places of the client's rows on the map.
    drawn : (queries,) int64
        The query rows among them, ascending.
    """

    places: Float64Array
    drawn: Int64Array


@dataclass(frozen=True)
class _ToEach(Request[R], Generic[R], what="a part for each client"):
    """Base of requests with the parts ``own`` of all clients, or of one."""

    own: Mapping[int, Own]

    def addressed_to(self, client: int) -> Self:
        """Return the request with the part of one client."""
        return self if len(self.own) == 1 else replace(self, own={client: self.own[client]})

    @property
    def part(self) -> Own:
        """The part of the client that is asked."""
        (part,) = self.own.values()
        return part


@dataclass(frozen=True)
class QueryRows(
    Reply,
    granularity=Granularity.PER_RECORD,
    what="a sample of each client's rows with their places on the map",
    forwarded=True,
):
    """``sealed``: (queries, features + dimensions) float64 of one client."""

    sealed: UInt8Array

    @staticmethod
    def ranges(request: QueryRequest, rows: int) -> dict[str, Range]:
        """Return the size of the sealed rows."""
        width = request.features + request.part.places.shape[1]
        return {"sealed": Range((sealed_size(8 * len(request.part.drawn) * width),), dtype="uint8")}


@dataclass(frozen=True)
class QueryRequest(_ToEach[QueryRows], what="the places of the client's rows, and which to show"):
    """Request for query rows, with their first ``features`` columns."""

    features: int


@answers(QueryRequest)
def show_rows(client: Client, request: QueryRequest) -> QueryRows:
    """Client part: seal the query rows for the other clients."""
    drawn = request.part.drawn
    rows = client.memory[_ROWS][drawn][:, : request.features]
    return QueryRows(_sealed(client, _QUERIES, np.hstack([rows, request.part.places[drawn]])))


@dataclass(frozen=True)
class Nearest(
    Reply,
    granularity=Granularity.PER_RECORD,
    what=f"for each query row, distances to a client's {NEIGHBORS} nearest rows, in the data and on the map",
    forwarded=True,
):
    """``sealed``: (queries, 2, `NEIGHBORS`, 2) float64, see :func:`find_nearest`."""

    sealed: UInt8Array

    @staticmethod
    def ranges(request: NearestRequest, rows: int) -> dict[str, Range]:
        """Return the size of the sealed distances."""
        return {"sealed": Range((sealed_size(8 * sum(request.counts) * 4 * NEIGHBORS),), dtype="uint8")}


@dataclass(frozen=True)
class NearestRequest(_ToEach[Nearest], what="the query rows of all clients, sealed"):
    """Request for the nearest rows of one client to all query rows.

    Attributes
    ----------
    features : int
        Columns of a query row, without its place.
    counts : tuple of int
        Query rows of each client.
    queries : tuple of (bytes,) uint8
        What each client sealed.
    """

    features: int
    counts: tuple[int, ...]
    queries: tuple[UInt8Array, ...]


@answers(NearestRequest)
def find_nearest(client: Client, request: NearestRequest) -> Nearest:
    """Client part: squared distances of the nearest own rows to each query row.

    The second axis has the rows nearest in the data, then those nearest on the map. The last axis has their distance
    there, and the other one. It is infinite if the client has fewer rows.
    """
    queries = _Queries.opened(client, request)
    found = np.full((queries.count, 2, NEIGHBORS, 2), np.inf)
    for both in queries.distances(client, request.part):
        for which in (DATA, MAP):
            here = np.stack([both[which], both[1 - which]], axis=-1)
            found[:, which] = queries.nearest(which, np.concatenate([found[:, which], here], axis=1))
    return Nearest(_sealed(client, _NEAREST, found))


@dataclass(frozen=True)
class RankCounts(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="how many of a client's rows are nearer to each query row than its nearest rows are",
):
    """``counts``: (queries, 2, `NEIGHBORS`) int64.

    Rows nearer in the data than the neighbours on the map, and nearer on the map than the neighbours in the data.
    """

    counts: Int64Array

    @staticmethod
    def ranges(request: RankRequest, rows: int) -> dict[str, Range]:
        """Bound each count by the rows of the largest client."""
        shape = (sum(request.counts), 2, NEIGHBORS)
        return {"counts": Range(shape, float(request.most_rows), "int64")}

    def cells(self, request: RankRequest, client: Client) -> tuple[Cells, ...]:
        """Return the number of records that are nearer than each neighbour."""
        return (Cells(self.counts),)


@dataclass(frozen=True)
class RankRequest(_ToEach[RankCounts], what="the query rows of all clients and their nearest rows, sealed"):
    """Request for counts of nearer rows.

    Attributes
    ----------
    features, counts, queries
        As in :class:`NearestRequest`.
    nearest : tuple of (bytes,) uint8
        The nearest rows of each client, which it sealed.
    most_rows : int
        Rows of the largest client.
    """

    features: int
    counts: tuple[int, ...]
    queries: tuple[UInt8Array, ...]
    nearest: tuple[UInt8Array, ...]
    most_rows: int


@answers(RankRequest)
def count_nearer(client: Client, request: RankRequest) -> RankCounts:
    """Client part: count the own rows nearer than the nearest rows of all clients."""
    queries = _Queries.opened(client, request)
    shape = (queries.count, 2, NEIGHBORS, 2)
    every = np.concatenate(
        [
            _opened(client, sender, _NEAREST, content).reshape(shape)
            for sender, content in enumerate(request.nearest)
        ],
        axis=2,
    )
    limits = []
    for which in (DATA, MAP):
        other = queries.nearest(1 - which, every[:, 1 - which])[:, :, 1]
        limits.append(other - queries.margins(which, other))
    counts = np.zeros((queries.count, 2, NEIGHBORS), np.int64)
    for both in queries.distances(client, request.part):
        for which in (DATA, MAP):
            counts[:, which] += (both[which][:, :, None] < limits[which][:, None]).sum(axis=1)
    return RankCounts(counts)


@dataclass(frozen=True)
class _Queries:
    """All query rows and their places, as every client reads them.

    Attributes
    ----------
    points : pair of (queries, features) and (queries, 2 or 3) float64
        In the data, and on the map.
    norms : pair of (queries,) float64
        Distances from the mean query row.
    first : int
        Number of the client's first query row.
    """

    points: tuple[Float64Array, Float64Array]
    norms: tuple[Float64Array, Float64Array]
    first: int

    @classmethod
    def opened(cls, client: Client, request: NearestRequest | RankRequest) -> _Queries:
        """Open what all clients sealed."""
        width = request.features + request.part.places.shape[1]
        parts = [
            _opened(client, sender, _QUERIES, content).reshape(-1, width)
            for sender, content in enumerate(request.queries)
        ]
        rows, places = np.split(np.concatenate(parts), [request.features], axis=1)
        norms = _norms(rows), _norms(places)
        return cls((rows, places), norms, sum(request.counts[: client.index]))

    @property
    def count(self) -> int:
        """Number of query rows."""
        return len(self.points[0])

    def distances(self, client: Client, own: Own) -> Iterator[tuple[Float64Array, Float64Array]]:
        """Yield squared distances (queries, some rows) of the client's rows, in the data and on the map, in blocks.

        They are infinite from a row to itself.
        """
        rows = client.memory[_ROWS]
        for start, stop in row_blocks(len(rows), BLOCK_ROWS):
            dense = rows[start:stop][:, : self.points[0].shape[1]]
            here = np.flatnonzero((own.drawn >= start) & (own.drawn < stop))
            both = []
            for part, points in zip((dense, own.places[start:stop]), self.points, strict=True):
                squared = np.ascontiguousarray(squared_distances(part, points).T, np.float64)
                squared[self.first + here, own.drawn[here] - start] = np.inf
                both.append(squared)
            yield both[DATA], both[MAP]

    def margins(self, which: int, squared: Float64Array) -> Float64Array:
        """Return the largest rounding errors of squared distances (queries, any) in the data or on the map."""
        unit = (3.0 * sqrt(self.points[which].shape[1]) + 12.0) * 2.0**-53
        finite = np.where(np.isfinite(squared), squared, 0.0)
        return _ROUNDING * finite + unit * (2.0 * self.norms[which][:, None] + np.sqrt(finite)) ** 2

    def nearest(self, which: int, pairs: Float64Array) -> Float64Array:
        """Return the `NEIGHBORS` nearest (queries, `NEIGHBORS`, 2) of some rows (queries, any, 2), nearest first.

        ``pairs`` are squared distances there and elsewhere. Of rows that are equally near in the data, those nearest on
        the map come first, as in :mod:`raydr.metrics.ties`.
        """
        near = pairs[:, :, 0]
        last = np.partition(near, NEIGHBORS - 1, axis=1)[:, NEIGHBORS - 1 : NEIGHBORS]
        margins = self.margins(which, last)
        found = np.empty((self.count, NEIGHBORS, 2))
        for query, within in enumerate(near <= last + margins):
            some = pairs[query, within]
            order = np.argsort(some[:, 0], kind="stable")
            if which == DATA:
                ascending = np.minimum(some[order, 0], np.finfo(np.float64).max)
                tiers = np.cumsum(np.diff(ascending, prepend=ascending[0]) > margins[query])
                order = order[np.lexsort((some[order, 1], tiers))]
            found[query] = some[order[:NEIGHBORS]]
        return found


def _norms(points: Float64Array) -> Float64Array:
    return np.asarray(np.sqrt(((points - points.mean(axis=0)) ** 2).sum(axis=1)))


def _sealed(client: Client, purpose: str, values: Float64Array) -> UInt8Array:
    """Seal values for all clients, which share the key."""
    content = np.ascontiguousarray(values, np.float64).reshape(-1).view(np.uint8)
    return seal(content, client.shared.key("fidelity"), Binding(client.run, client.index, 0, purpose))


def _opened(client: Client, sender: int, purpose: str, content: UInt8Array) -> Float64Array:
    """Open values (numbers,) that another client sealed."""
    binding = Binding(client.run, sender, 0, purpose)
    return unseal(content, client.shared.key("fidelity"), binding).view(np.float64)


def keep_rows(federation: Federation) -> None:
    """Ask what must be asked before the method: clients agree on a secret, and keep their rows."""
    if not federation.context.isometry_key:  # or else they have one
        federation.agree()
    federation.ask(KeepRows())


def estimated_fidelity(federation: Federation, embedding: FloatArray, count: int) -> Fidelity:
    """Estimate the fidelity of a map by ``count`` query rows, or by all rows if there are no more.

    Parameters
    ----------
    federation : Federation
        All clients, after :func:`keep_rows` and the method.
    embedding : (rows, 2) or (rows, 3) float
        The map, in client order.
    count : int
        Number of query rows, which every client sees.

    Raises
    ------
    DataError
        If there are at most ``2 * NEIGHBORS`` rows.
    """
    total = federation.rows
    if total <= 2 * NEIGHBORS:
        raise DataError(
            f"fidelity_rows needs more than {2 * NEIGHBORS} rows, but there are {total}: leave it out."
        )
    count = min(count, total)
    drawn = drawn_rows(federation, count)
    own, start = {}, 0
    for client, size in enumerate(federation.sizes):
        mine = drawn[(drawn >= start) & (drawn < start + size)] - start
        own[client] = Own(np.asarray(embedding[start : start + size], np.float64), mine)
        start += size
    counts = tuple(len(part.drawn) for part in own.values())
    features = federation.features - federation.label_columns
    shown = federation.ask(QueryRequest(own, features))
    queries = tuple(reply.sealed for reply in shown)
    found = federation.ask(NearestRequest(own, features, counts, queries))
    nearest = tuple(reply.sealed for reply in found)
    request = RankRequest(own, features, counts, queries, nearest, max(federation.sizes))
    nearer = federation.sum(request)
    return fidelity_of(np.asarray(nearer.counts), total)


def drawn_rows(federation: Federation, count: int) -> Int64Array:
    """Draw ``count`` rows, ascending in client order: each row with the same probability, and each client's share.

    Rows are numbered in client order, and evenly spaced rows of a random order within clients are taken.
    """
    random = federation.stream("query rows")
    owners = np.repeat(np.arange(federation.clients), federation.sizes)
    order = np.lexsort((random.random(len(owners)), owners))
    places = ((np.arange(count) + random.random()) * (len(order) / count)).astype(np.int64)
    return np.sort(order[np.minimum(places, len(order) - 1)])


def fidelity_of(nearer: Int64Array, rows: int) -> Fidelity:
    """Return metrics of a map of ``rows`` rows from counts of nearer rows (queries, 2, `NEIGHBORS`) of all clients."""
    ranks = 1 + nearer
    scale = 2.0 / (RANKED * (2.0 * rows - 3.0 * RANKED - 1.0))
    lost = scale * np.maximum(ranks[:, :, :RANKED] - RANKED, 0).sum(axis=2)
    by_row = {
        f"npa_{NEIGHBORS}": (ranks[:, DATA] <= NEIGHBORS).mean(axis=1),
        "trustworthiness": 1.0 - lost[:, DATA],
        "continuity": 1.0 - lost[:, MAP],
    }
    return Fidelity(
        len(nearer),
        {name: float(values.mean()) for name, values in by_row.items()},
        {name: _standard_error(values, rows) for name, values in by_row.items()},
    )


def _standard_error(values: Float64Array, rows: int) -> float:
    """Return the standard error of a mean of drawn rows (drawn,), in client order.

    It comes from differences of successive rows, so it measures the variation within clients. Their shares are fixed.
    """
    count = len(values)
    variance = float((np.diff(values) ** 2).sum()) / (2.0 * (count - 1))
    return sqrt(variance / count * (1.0 - count / rows))
