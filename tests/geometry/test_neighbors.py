from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from memory import peak_memory

from raydr.errors import DataError
from raydr.geometry import neighbors
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points


@dataclass(frozen=True, eq=False)
class Table:
    """A geometry given by a table of numbers: no coordinates, no metric."""

    squared: np.ndarray

    @property
    def rows(self):
        return len(self.squared)

    def squared_distance_block(self, start, stop):
        return self.squared[start:stop]


def brute_neighbors(squared, k):
    """Sort every row by (distance, index) after leaving the row itself out."""
    rows = len(squared)
    order = [
        sorted((j for j in range(rows) if j != i), key=lambda j: (squared[i, j], j)) for i in range(rows)
    ]
    indices = np.array(order)[:, :k]
    return indices, np.sqrt(np.take_along_axis(squared, indices, axis=1)).astype(np.float32)


def brute_squared_distances(rows):
    rows = rows.astype(np.float64)
    return ((rows[:, None, :] - rows[None, :, :]) ** 2).sum(axis=2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("rows", "k", "block_rows"), [(2, 1, None), (40, 39, 7), (300, 15, 64), (300, 1, None)]
)
def test_points_equal_brute_force(dtype, rows, k, block_rows):
    coordinates = np.random.default_rng(rows).normal(size=(rows, 6)).astype(dtype)
    graph = nearest_neighbors(Points(coordinates), k, block_rows=block_rows)
    indices, distances = brute_neighbors(brute_squared_distances(coordinates), k)
    np.testing.assert_array_equal(graph.indices, indices)
    np.testing.assert_allclose(graph.distances, distances, rtol=1e-6)
    assert graph.indices.dtype == np.int64
    assert graph.distances.dtype == np.float32


def test_tied_distances_are_ordered_by_index():
    coordinates = np.random.default_rng(0).integers(0, 3, size=(400, 3)).astype(np.float32)
    graph = nearest_neighbors(Points(coordinates), 20, block_rows=50)
    indices, distances = brute_neighbors(brute_squared_distances(coordinates), 20)
    np.testing.assert_array_equal(graph.indices, indices)
    np.testing.assert_array_equal(graph.distances, distances)


def test_duplicates_are_neighbours_but_the_row_itself_is_not():
    coordinates = np.repeat(np.random.default_rng(1).normal(size=(10, 5)), 4, axis=0)
    graph = nearest_neighbors(Points(coordinates), 3)
    own = np.arange(40)
    assert not (graph.indices == own[:, None]).any()
    np.testing.assert_array_equal(graph.indices // 4, np.repeat(own // 4, 3).reshape(40, 3))
    assert not graph.distances.any()


def test_all_rows_may_be_equal():
    graph = nearest_neighbors(Points(np.full((6, 2), 3.5, np.float32)), 2)
    np.testing.assert_array_equal(graph.indices, [[1, 2], [0, 2], [0, 1], [0, 1], [0, 1], [0, 1]])


@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e25])
def test_tight_distant_clusters_are_exact(scale):
    """All float32 products within a cluster are equal, so these rows need float64."""
    random = np.random.default_rng(2)
    centres = random.normal(size=(2, 8)) * 1e4
    coordinates = (np.repeat(centres, 100, axis=0) + random.normal(size=(200, 8)) * 0.1) * scale
    graph = nearest_neighbors(Points(coordinates), 10)
    np.testing.assert_array_equal(graph.indices, brute_neighbors(brute_squared_distances(coordinates), 10)[0])


def test_uncertified_rows_are_searched_again(monkeypatch):
    searched = []
    search_rows = neighbors.search_rows
    monkeypatch.setattr(
        neighbors,
        "search_rows",
        lambda points, own, *rest: searched.extend(own) or search_rows(points, own, *rest),
    )
    random = np.random.default_rng(3)
    spread = random.normal(size=(100, 8)) * 100
    tight = 50 + random.normal(size=(100, 8)) * 1e-3
    nearest_neighbors(Points(np.concatenate([spread, tight])), 10)
    assert set(range(100, 200)) <= set(searched)
    searched.clear()
    nearest_neighbors(Points(spread), 10)
    assert not searched


def test_any_geometry_can_be_searched():
    """Values that are no distances: asymmetric, negative, nonzero on the diagonal."""
    squared = np.random.default_rng(4).normal(size=(90, 90)) + 1.0
    graph = nearest_neighbors(Table(squared), 12, block_rows=13)
    indices, distances = brute_neighbors(np.maximum(squared, 0.0), 12)
    np.testing.assert_array_equal(graph.indices, indices)
    np.testing.assert_array_equal(graph.distances, distances)


@pytest.mark.parametrize("make", [Points, lambda rows: Table(brute_squared_distances(rows))])
def test_threads_change_no_bit(make):
    geometry = make(np.random.default_rng(5).normal(size=(700, 30)).astype(np.float32))
    one, three = (nearest_neighbors(geometry, 25, threads=threads, block_rows=96) for threads in (1, 3))
    assert one.indices.tobytes() == three.indices.tobytes()
    assert one.distances.tobytes() == three.distances.tobytes()


def test_permuting_rows_permutes_the_graph():
    random = np.random.default_rng(6)
    coordinates = random.normal(size=(150, 4))
    order = random.permutation(150)
    graph, permuted = (nearest_neighbors(Points(rows), 8) for rows in (coordinates, coordinates[order]))
    np.testing.assert_array_equal(order[permuted.indices], graph.indices[order])
    np.testing.assert_array_equal(permuted.distances, graph.distances[order])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_wide_table_is_not_copied_in_full_precision(monkeypatch, dtype):
    """The search holds one float32 copy and blocks."""
    monkeypatch.setattr("raydr.geometry.points._BLOCK", 1 << 15)
    rows = (3.0 + np.random.default_rng(0).normal(size=(300, 5_000))).astype(dtype)
    nearest_neighbors(Points(rows[:, :9]), 5)  # compiles
    with peak_memory() as peak:
        graph = nearest_neighbors(Points(rows), 5, block_rows=16, threads=1)
    assert peak.bytes < rows.size * (4 + 2)
    indices, _ = brute_neighbors(Points(rows).squared_distance_block(0, 300).astype(np.float64), 5)
    np.testing.assert_array_equal(graph.indices, indices)


@pytest.mark.parametrize("k", [0, 5, 6, -1])
def test_impossible_k_error_names_both_numbers_and_the_fix(k):
    with pytest.raises(DataError, match=rf"Cannot find {k} nearest neighbours among 5 rows.*1 to 4"):
        nearest_neighbors(Points(np.eye(5)), k)


def test_progress_ends_at_the_total():
    calls = []
    nearest_neighbors(
        Points(np.eye(40)), 3, block_rows=10, progress=lambda done, total: calls.append((done, total))
    )
    assert [done for done, _ in calls] == list(range(1, calls[-1][1] + 1))


def test_graph_can_be_cut_to_fewer_neighbours():
    graph = nearest_neighbors(Points(np.random.default_rng(7).normal(size=(30, 2))), 9)
    np.testing.assert_array_equal(graph.nearest(4).indices, graph.indices[:, :4])
    with pytest.raises(DataError, match="Cannot take 10 neighbours of a graph that holds 9"):
        graph.nearest(10)
