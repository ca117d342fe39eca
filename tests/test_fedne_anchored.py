"""FedNE's neighbours across clients: who is told what, and that training on both ends is training in one place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inline_federations import federate
from test_fedne import NO_CONTROL_VARIATES

from raydr.arrays import FloatArray, Int64Array
from raydr.federation import Client
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points
from raydr.methods.fedne.anchored import (
    Across,
    ShowRequest,
    join,
    joined,
    places_across,
    remember_links,
    renew_places,
    show_places,
)
from raydr.methods.fedne.clients import TrainRequest, local_task, positions_of
from raydr.methods.fedne.edges import Schedule
from raydr.methods.fedne.encoder import Architecture, initial_weights
from raydr.methods.fedne.server import training_of
from raydr.methods.fedne.settings import FedNE
from raydr.methods.fedne.training import Batches, Local, Objective, batch_loss


def rows_of(count: int, features: int = 4, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).normal(size=(count, features)).astype(np.float32)


def split(rows: FloatArray, sizes: tuple[int, ...]) -> list[FloatArray]:
    return np.split(rows, np.cumsum(sizes)[:-1])


def whole_graph(rows: FloatArray, k: int) -> Int64Array:
    return nearest_neighbors(Points(rows), k, threads=1).indices


def joined_rows(graph: Int64Array, sizes: tuple[int, ...]) -> list[int]:
    """Rows at either end of an edge between two clients."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    pairs = [(head, int(tail)) for head, tails in enumerate(graph) for tail in tails]
    return sorted({end for pair in pairs if owner[pair[0]] != owner[pair[1]] for end in pair})


def told(across: Across, parts: list[FloatArray]) -> list[Client]:
    """Clients that know their links."""
    clients = [Client(index, part, 0, round=1) for index, part in enumerate(parts)]
    for client in clients:
        remember_links(client, across.links.addressed_to(client.index))
    return clients


# Who is told what


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(1, 4), st.integers(0, 9))
def test_both_ends_of_an_edge_between_clients_know_of_it_and_nobody_else(
    sizes: list[int], k: int, seed: int
) -> None:
    """Against a loop over edges."""
    total = sum(sizes)
    graph = np.random.default_rng(seed).integers(max(total, 1), size=(total, k))
    across = joined(graph, tuple(sizes))
    owner, first = np.repeat(np.arange(len(sizes)), sizes), np.cumsum([0, *sizes])
    expected: list[list[tuple[int, int, bool]]] = [[] for _ in sizes]
    for head in range(total):
        for tail in graph[head]:
            if owner[head] != owner[tail]:
                expected[owner[head]].append((head, int(tail), True))
                expected[owner[tail]].append((int(tail), head, False))
    ends = sorted({here for links in expected for here, _, _ in links})
    assert across.crossing == pytest.approx(sum(map(len, expected)) / 2 / max(1, graph.size))
    for client in range(len(sizes)):
        request = across.links.addressed_to(client)
        wanted = across.wanted[across.starts[client] : across.starts[client + 1]]
        found = [
            (int(row + first[client]), ends[wanted[place]], bool(outward))
            for row, place, outward in zip(request.rows, request.elsewhere, request.outward, strict=True)
        ]
        assert sorted(found) == sorted(expected[client])
        assert across.shown[client] == len({here for here, _, _ in expected[client]})
        assert sorted({there for _, there, _ in expected[client]}) == [ends[place] for place in wanted]


def test_clients_are_told_where_their_records_neighbours_elsewhere_are() -> None:
    sizes, hidden = (20, 0, 1, 15), (8,)
    rows = rows_of(36)
    graph = whole_graph(rows, 3)
    across = joined(graph, sizes)
    weights = initial_weights(Architecture(4, hidden), np.random.default_rng(0))
    shown = np.concatenate(
        [
            show_places(client, ShowRequest(weights, hidden, across.shown).addressed_to(client.index)).places
            for client in told(across, split(rows, sizes))
        ]
    )
    everywhere = positions_of(rows, weights, hidden)
    np.testing.assert_allclose(shown, everywhere[joined_rows(graph, sizes)], atol=1e-6)
    owner, first = np.repeat(np.arange(4), sizes), np.cumsum([0, *sizes])
    for client in range(4):
        links = across.links.addressed_to(client)
        theirs = shown[across.wanted[across.starts[client] : across.starts[client + 1]]]
        for row in range(sizes[client]):
            named = theirs[links.elsewhere[links.outward & (links.rows == row)]]
            elsewhere = [tail for tail in graph[first[client] + row] if owner[tail] != client]
            true = everywhere[elsewhere].reshape(-1, 2)
            np.testing.assert_allclose(named[np.lexsort(named.T)], true[np.lexsort(true.T)], atol=1e-6)


def test_with_as_many_anchors_as_features_and_one_the_graph_is_that_of_all_rows() -> None:
    """Also far from the origin, and in any unit."""
    rows = rows_of(60, 5).astype(np.float64)
    sizes = (25, 0, 1, 34)
    for table in (rows, 1e6 + 1e-3 * rows):
        across, note = join(federate(split(table, sizes)), 6, 4)
        expected = joined(whole_graph(rows, 4), sizes)
        for name in ("rows", "elsewhere", "outward", "starts"):
            np.testing.assert_array_equal(getattr(across.links, name), getattr(expected.links, name))
        assert f"{across.crossing:.0%} of all neighbours" in note.text


def test_who_does_not_take_part_stays_where_it_was() -> None:
    federation, hidden = federate(split(rows_of(300, 5), (30,) * 10), participation=0.5), (8,)
    across, _ = join(federation, 4, 3)
    before, now = (initial_weights(Architecture(5, hidden), np.random.default_rng(seed)) for seed in (0, 1))
    old, new = (places_across(federation, across, hidden, weights) for weights in (before, now))
    state: dict[str, Any] = {"weights": now, "places": old}
    for _ in federation.rounds(1, state):
        renew_places(federation, across, hidden, state)
    ends = np.cumsum([0, *across.shown])
    parts = [slice(*ends[client : client + 2]) for client in np.flatnonzero(across.shown)]
    moved = [np.array_equal(state["places"][part], new[part]) for part in parts]
    stayed = [np.array_equal(state["places"][part], old[part]) for part in parts]
    assert all(one != other for one, other in zip(moved, stayed, strict=True))
    assert 0 < sum(moved) <= 5


# Training at both ends


@pytest.mark.parametrize("sizes", [(30, 30), (40, 0, 1, 15, 4)])
def test_what_clients_train_on_together_is_the_graph_of_all_rows(sizes: tuple[int, ...]) -> None:
    """P2 (1) on the graph of all rows: its gradient is the mean by rows of the clients', each at its own ends."""
    rows, k = rows_of(60), 3
    parts = split(rows, sizes)
    graph = whole_graph(rows, k)
    across = joined(graph, sizes)
    architecture = Architecture(4, (8,))
    weights = torch.from_numpy(initial_weights(architecture, np.random.default_rng(1)))
    repelled = Objective(5.0, None, lambda at: (at**2).sum(dim=-1))

    def gradient(rows: FloatArray, schedule: Schedule, places: FloatArray) -> Any:
        start = weights.clone()[None].requires_grad_()
        batches = Batches([Local(rows, schedule, places.astype(np.float32))], "cpu")
        return torch.autograd.grad(batch_loss(architecture, start, batches, 0, repelled).sum(), start)[0][0]

    everywhere = positions_of(rows, weights.numpy(), (8,))
    shown = everywhere[joined_rows(graph, sizes)]
    settings = FedNE(neighbors=k, batch=10_000, anchors=5, hidden=(8,))
    request = TrainRequest(
        training_of(federate(parts), settings), weights.numpy(), 1e-3, np.zeros((0, 0), np.float32), 1.0,
        np.zeros((0, 0), np.float32), np.zeros(0, np.float32), **NO_CONTROL_VARIATES,
    )  # fmt: skip
    everybody = replace(request, places=shown[across.wanted], starts=across.starts)
    summed = torch.zeros_like(weights)
    for client in told(across, parts):
        if not len(client.rows):
            continue
        local = local_task(client, everybody.addressed_to(client.index))
        assert local.schedule.steps >= 1
        summed = summed + len(client.rows) / 60 * gradient(local.rows, local.schedule, local.places)
    pooled = local_task(Client(0, rows, 0, round=1), request)
    expected = gradient(pooled.rows, pooled.schedule, np.zeros((0, 2)))
    assert float(expected.norm()) > 0.1
    np.testing.assert_allclose(summed, expected, atol=1e-5 * float(expected.norm()))


# What may be asked for


def test_anchors_take_the_place_of_mixing() -> None:
    assert FedNE().mixing == 0.2
    assert FedNE(anchors=9).mixing is None
    assert FedNE(**FedNE(anchors=9).model_dump()) == FedNE(anchors=9)


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ({"mixing": 0.2}, "leave mixing out, or anchors"),
        ({"local_neighbors": 3}, "leave local_neighbors out, or anchors"),
        ({"publish": "local"}, "leave out either"),
    ],
)
def test_what_contradicts_anchors_is_refused(said: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        FedNE(anchors=9, **said)
