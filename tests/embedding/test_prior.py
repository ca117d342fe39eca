"""Layouts that start from the places of an earlier map."""

from __future__ import annotations

import numpy as np
import pytest

from raydr.embedding import TSNE, UMAP, StartsFromPlaces, principal_components
from raydr.embedding.initialization import start_from
from raydr.geometry.equal_rows import equal_rows
from raydr.geometry.neighbors import NeighborGraph, nearest_neighbors
from raydr.geometry.points import Points
from raydr.metrics.displacement import displacement


def blobs(rows: int = 120) -> np.ndarray:
    random = np.random.default_rng(0)
    return random.normal(size=(rows, 5)) + 8.0 * random.integers(3, size=(rows, 1))


def test_rows_start_where_they_were_and_new_rows_at_their_neighbours() -> None:
    rows = blobs()
    graph = nearest_neighbors(Points(rows), 15)
    places = np.random.default_rng(1).normal(size=(120, 2))
    places[100:] = np.nan
    start = start_from(places, graph, 0)
    spread = np.nanstd(places, axis=0).max()
    np.testing.assert_allclose(start[:100], places[:100], atol=0.01 * spread)
    for row in range(100, 120):
        around = graph.indices[row, :10]
        around = around[around < 100]
        np.testing.assert_allclose(start[row], np.median(places[around], axis=0), atol=0.01 * spread)


def test_rows_without_a_mapped_neighbour_start_by_each_other() -> None:
    """Row 2 follows row 1, which follows row 0; rows 3 and 4 know no row with a place, and start at the centre."""
    graph = NeighborGraph(np.array([[1], [0], [1], [4], [3]]), np.ones((5, 1), np.float32))
    places = np.full((5, 2), np.nan)
    places[0] = [3.0, 4.0]
    np.testing.assert_allclose(start_from(places, graph, 0), np.tile([3.0, 4.0], (5, 1)), atol=0.1)


@pytest.mark.parametrize("embedder", [TSNE(), UMAP()], ids=["tsne", "umap"])
def test_map_drawn_from_its_own_places_stays(embedder: TSNE | UMAP) -> None:
    rows = blobs()
    graph = nearest_neighbors(Points(rows), embedder.neighbors_needed(120))
    drawn = np.asarray(embedder.embed(graph, principal_components(rows), seed=0), np.float64)
    assert isinstance(embedder, StartsFromPlaces)
    again = np.asarray(embedder.embed_from(graph, drawn, seed=1), np.float64)
    other = np.asarray(
        embedder.embed(graph, np.random.default_rng(0).normal(size=(120, 2)), seed=1), np.float64
    )
    kept, moved = displacement(again, drawn), displacement(other, drawn)
    assert kept is not None
    assert moved is not None
    assert kept.median < 0.2 * moved.median
    np.testing.assert_array_equal(again, embedder.embed_from(graph, drawn, seed=1, threads=2))


def test_no_iterations_leave_all_rows_at_their_start() -> None:
    rows = blobs()
    places = np.random.default_rng(1).normal(size=(120, 3))
    graph = nearest_neighbors(Points(rows), 90)
    found = TSNE(iterations=0).embed_from(graph, places, seed=0)
    np.testing.assert_allclose(found, places, atol=0.02)


def test_equal_rows_have_the_place_of_the_first_that_was_mapped() -> None:
    rows = blobs(10)
    rows[[4, 7]] = rows[1]
    groups = equal_rows(Points(rows))
    assert groups is not None
    places = np.arange(20.0).reshape(10, 2)
    places[[1, 3]] = np.nan
    found = groups.first_known(places)
    np.testing.assert_array_equal(found[groups.group_of_row[1]], places[4])
    assert np.isnan(found[groups.group_of_row[3]]).all()
    np.testing.assert_array_equal(found[groups.group_of_row[0]], places[0])


def test_displacement_of_unrelated_and_of_few_rows() -> None:
    random = np.random.default_rng(0)
    before, now = random.normal(size=(2, 2000, 2))
    found = displacement(now, before)
    assert found is not None
    assert found.shared == pytest.approx(found.expected, abs=0.01)
    assert found.median > 0.5
    assert displacement(before[:3], now[:3]) is None
    assert displacement(np.zeros((9, 2)), now[:9]) is None
    disk = 0.5 * before / np.abs(before).max()
    turned = displacement(disk[:, ::-1] @ np.diag([1.0, -1.0]), disk, in_disk=True)
    assert turned is not None
    assert turned.largest == pytest.approx(0.0, abs=1e-9)
    shifted = displacement(disk + 0.1, disk, in_disk=True)
    assert shifted is not None
    assert shifted.median > 0.1, "no shift in the disk"
