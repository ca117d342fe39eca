"""Neighbours across clients, found through anchors: FedNE's option for who wants exact neighbours.

A client's own graph holds the neighbours that are at home. Among 10,000 rows of MNIST at twenty clients these are a
third, and no training on such graphs finds the others again (docs/fedne.md). So, where ``anchors`` are given:

1. Clients post their rows' distances to anchors along the principal axes, once: Fed-tSNE's message, which tells the
   server each record's coordinates in what the anchors span (:mod:`raydr.methods.landmarks.frames`).
2. The server searches the ``neighbors`` nearest of each row among all rows, and tells each client which of its rows
   are joined to rows elsewhere. Of the nearest of a row that are at home the client knows better than the server.
3. In each round clients show where their joined rows are on the map, and are told where the rows are that theirs are
   joined to. An edge attracts at both of its ends (P2 (1)): each client draws its own end to where the other was when
   the round began. The head alone is repelled, as among pooled rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import BoolArray, Float32Array, Int64Array
from raydr.federation import Client, Federation, Granularity, Range, Rehearsal, Reply, Request, answers
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points
from raydr.geometry.trilateration import trilaterate
from raydr.methods.fedne.clients import TrainRequest, links_of, positions_of
from raydr.methods.fedne.edges import Links
from raydr.methods.landmarks.frames import frame, rehearse_frame
from raydr.methods.landmarks.maps import DistanceRequest
from raydr.methods.landmarks.settings import LandmarkSettings
from raydr.methods.outcome import Note
from raydr.statistics.scaling import Done


@dataclass(frozen=True)
class LinkRequest(
    Request[Done], what="which of a client's records are neighbours of records elsewhere", sets_state=True
):
    """Told once, before the first round; each client remembers its own part.

    Attributes
    ----------
    rows : (links,) int64
        Of each link, the row at the client's own end, by its number there; one client's links after another's.
    elsewhere : (links,) int64
        Its other end, by its number among the places that the client is told in each round.
    outward : (links,) bool
        Whether the client's own row is the head: it has the other for a neighbour. Else the other has it.
    starts : (clients + 1,) int64
        Where each client's links begin, and where the last one's end.
    """

    rows: Int64Array
    elsewhere: Int64Array
    outward: BoolArray
    starts: Int64Array

    def addressed_to(self, client: int) -> LinkRequest:
        """Its own links alone."""
        own = slice(self.starts[client], self.starts[client + 1])
        count = len(self.rows[own])
        return LinkRequest(self.rows[own], self.elsewhere[own], self.outward[own], np.array([0, count]))


@answers(LinkRequest)
def remember_links(client: Client, request: LinkRequest) -> Done:
    """Client part of step 2."""
    client.memory["links"] = Links(request.rows, request.elsewhere, request.outward)
    return Done()


@dataclass(frozen=True)
class ShownPlaces(
    Reply,
    granularity=Granularity.PER_RECORD,
    what="where every record lies on the present map that is a neighbour of a record elsewhere",
):
    """``places`` (joined rows, 2) float32, in the order of the rows."""

    places: Float32Array

    @staticmethod
    def ranges(request: ShowRequest, rows: int) -> dict[str, Range]:
        """Two coordinates of each joined row."""
        return {"places": Range((int(request.joined[0]), 2), dtype="float32")}


@dataclass(frozen=True)
class ShowRequest(Request[ShownPlaces], what="the present encoder"):
    """Asked before the first round and in each; ``joined`` (clients,) int64 is how many rows each is to show."""

    weights: Float32Array
    hidden: tuple[int, ...]
    joined: Int64Array

    def addressed_to(self, client: int) -> ShowRequest:
        """Its own number alone."""
        return ShowRequest(self.weights, self.hidden, self.joined[client : client + 1])


@answers(ShowRequest)
def show_places(client: Client, request: ShowRequest) -> ShownPlaces:
    """Client part of step 3."""
    links = links_of(client)
    joined = np.unique(links.rows) if links is not None else np.zeros(0, np.int64)
    return ShownPlaces(positions_of(client.rows[joined], request.weights, request.hidden))


@dataclass(frozen=True)
class Across:
    """Who is whose neighbour across clients, as the server knows it.

    Attributes
    ----------
    links : LinkRequest
        What clients are told of it.
    shown : (clients,) int64
        How many rows each client shows. One client's after another's, these are the rows of all that have a neighbour
        elsewhere, or are one.
    wanted : (places,) int64
        Which of those each client is told of, one client's after another's.
    starts : (clients + 1,) int64
        Where each client's part of ``wanted`` begins, and where the last one's ends.
    crossing : float
        Part of all edges that join rows of two clients.
    """

    links: LinkRequest
    shown: Int64Array
    wanted: Int64Array
    starts: Int64Array
    crossing: float


def joined(graph: Int64Array, sizes: tuple[int, ...]) -> Across:
    """Deal the edges of a graph (rows, k) that join rows of two clients of such sizes to both of them."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    first = np.cumsum([0, *sizes])
    heads, tails = np.repeat(np.arange(len(graph)), graph.shape[1]), graph.reshape(-1)
    across = owner[heads] != owner[tails]
    heads, tails = heads[across], tails[across]
    # Both ends of an edge have a link: from the head outward, to the tail inward.
    here, there = np.concatenate([heads, tails]), np.concatenate([tails, heads])
    outward = np.repeat([True, False], len(heads))
    order = np.argsort(owner[here], kind="stable")
    here, there, outward = here[order], there[order], outward[order]
    links = np.searchsorted(owner[here], np.arange(len(sizes) + 1))
    ends = np.unique(here)
    wanted, elsewhere = [], []
    for start, stop in pairwise(links):
        theirs, number = np.unique(there[start:stop], return_inverse=True)
        wanted.append(np.searchsorted(ends, theirs))
        elsewhere.append(number)
    return Across(
        LinkRequest(here - first[owner[here]], np.concatenate(elsewhere), outward, links),
        np.bincount(owner[ends], minlength=len(sizes)),
        np.concatenate(wanted),
        np.cumsum([0, *map(len, wanted)]),
        float(across.mean()) if across.size else 0.0,
    )


def join(federation: Federation, anchors: int, neighbors: int) -> tuple[Across, Note]:
    """Steps 1 and 2: what the server found, and what it learnt in finding it."""
    landmarks = frame(federation, _anchors(anchors))
    posted = [reply.squared for reply in federation.ask(DistanceRequest(landmarks))]
    coordinates, solver = trilaterate(landmarks, posted)
    graph = nearest_neighbors(Points(coordinates.astype(np.float32)), min(neighbors, federation.rows - 1))
    found = joined(graph.indices, federation.sizes)
    federation.ask(found.links)
    beside = np.concatenate(
        [
            solver.squared_residuals(block, part)
            for block, part in zip(
                posted, np.split(coordinates, np.cumsum(federation.sizes)[:-1]), strict=True
            )
        ]
    )
    length = (coordinates**2).sum(axis=1) + beside
    outside = np.sqrt(beside.sum() / (length.sum() or 1.0))
    note = Note(
        "What finding neighbours across clients told the server",
        f"Each client showed the server the distance of every record to {len(landmarks)} anchors, which span"
        f" {solver.rank} of {federation.features} dimensions; in those the server can tell each record's coordinates by"
        f" solving linear equations, and {outside:.2%} of the records' root mean square distance from the anchors'"
        f" mean lies beside them. So it found that {found.crossing:.0%} of all neighbours are at another client, and"
        " in each round it was told where on the map the records are that have one or are one, and passed that on to"
        " whom they are neighbours of. Without method.anchors none of this leaves a client.",
    )
    return found, note


def _anchors(count: int) -> LandmarkSettings:
    return LandmarkSettings(landmarks=count, landmarks_from="principal")


def places_across(
    federation: Federation, across: Across, hidden: tuple[int, ...], weights: Float32Array
) -> Float32Array:
    """Where all joined rows are, (rows shown, 2) float32, before the first round."""
    replies = federation.ask(ShowRequest(weights, hidden, across.shown))
    return np.concatenate([reply.places for reply in replies])


def renew_places(
    federation: Federation, across: Across, hidden: tuple[int, ...], state: dict[str, NDArray[Any]]
) -> None:
    """Where they are in this round; those of clients that do not take part stay where they were."""
    first, places = np.cumsum([0, *across.shown]), state["places"].copy()
    for client, reply in federation.gather(ShowRequest(state["weights"], hidden, across.shown)).items():
        places[first[client] : first[client + 1]] = reply.places
    state["places"] = places


def rehearse_join(federation: Rehearsal, anchors: int, neighbors: int) -> Across:
    """Ask what :func:`join` asks, of clients whose rows are alike: then a neighbour is anywhere."""
    landmarks = rehearse_frame(federation, _anchors(anchors))
    federation.ask(DistanceRequest(landmarks))
    federation.reckon(
        at_clients=2.0 * federation.rows * landmarks.size,
        at_server=2.0 * federation.rows * len(landmarks) * (min(landmarks.shape) + federation.rows),
    )
    federation.guess(
        "every row was taken to have its neighbours anywhere",
        LinkRequest,
        ShowRequest,
        ShownPlaces,
        TrainRequest,
    )
    stream = np.random.default_rng(federation.seed)
    k = min(neighbors, federation.rows - 1)
    found = joined(stream.integers(federation.rows, size=(federation.rows, k)), federation.sizes)
    federation.ask(found.links)
    return found
