"""Neighbours by cells: as many true ones as were asked for, said truly, and the same for any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

from raydr.arrays import FloatArray
from raydr.data import load
from raydr.errors import DataError
from raydr.geometry import cells
from raydr.geometry.cells import Found, find_neighbors, neighbors_by_cells
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points


def clustered(rows: int, features: int, seed: int = 0) -> FloatArray:
    random = np.random.default_rng(seed)
    centres = 3.0 * random.normal(size=(12, features))
    return centres[random.integers(0, 12, rows)] + random.normal(size=(rows, features))


def lopsided(rows: int) -> FloatArray:
    """One dense heap, a few rows all over the place, and many that are equal."""
    random = np.random.default_rng(1)
    table = random.normal(size=(rows, 4)) ** 5
    table[: rows // 3] = table[0]
    return table


def found_of_true(found: Found, points: Points, k: int) -> float:
    """Part of each row's neighbours that are no farther than its k-th true one."""
    farthest = nearest_neighbors(points, k).distances[:, -1:]
    return float((found.graph.distances <= farthest).mean())


TABLES = {
    "clustered": lambda: clustered(9_000, 20),
    "one heap": lambda: np.random.default_rng(0).normal(size=(9_000, 8)),
    "a line": lambda: np.random.default_rng(0).normal(size=(9_000, 1)),
    "lopsided": lambda: lopsided(12_000),
    "far from 0": lambda: clustered(9_000, 6).astype(np.float64) + 1e8,
    "digits over": lambda: np.repeat(load(source="digits").rows, 6, axis=0),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(("k", "recall"), [(5, 0.8), (30, 0.98)])
def test_as_many_true_neighbours_are_found_as_was_asked_for_and_as_is_said(
    name: str, k: int, recall: float
) -> None:
    points = Points(TABLES[name]())
    found = neighbors_by_cells(points, k, recall=recall)
    true = found_of_true(found, points, k)
    assert found.recall >= recall
    # It is measured on 256 rows, whose share of neighbours found varies from row to row.
    assert true == pytest.approx(found.recall, abs=0.03)


def test_distances_are_those_of_the_rows_nearest_first_without_the_row_itself() -> None:
    table = clustered(6_000, 5)
    graph = neighbors_by_cells(Points(table), 12, recall=0.9).graph
    apart = np.linalg.norm(table[:, None] - table[graph.indices], axis=2)
    np.testing.assert_allclose(graph.distances, apart, rtol=1e-6)
    assert (np.diff(graph.distances, axis=1) >= 0).all()
    assert (graph.indices != np.arange(6_000)[:, None]).all()
    assert (np.diff(np.sort(graph.indices, axis=1), axis=1) > 0).all()


def test_pairs_looked_at_are_few_where_rows_stand_in_clusters() -> None:
    assert neighbors_by_cells(Points(clustered(12_000, 3)), 10, recall=0.95).looked_at < 0.5


def test_threads_change_no_bit() -> None:
    points = Points(clustered(8_000, 10))
    one, two = (neighbors_by_cells(points, 10, recall=0.95, threads=threads) for threads in (1, 2))
    assert one.recall == two.recall
    np.testing.assert_array_equal(one.graph.indices, two.graph.indices)
    np.testing.assert_array_equal(one.graph.distances, two.graph.distances)


def test_rows_whose_cells_hold_too_few_others_are_compared_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "CELL_ROWS", 10)
    table = clustered(600, 2)
    points = Points(table)
    found = neighbors_by_cells(points, 30, recall=0.01)
    assert found.looked_at * 600 < 30
    exact = nearest_neighbors(points, 30)
    np.testing.assert_array_equal(found.graph.indices, exact.indices)
    np.testing.assert_array_equal(found.graph.distances, exact.distances)


def test_where_cells_are_of_no_help_the_search_is_exact() -> None:
    points = Points(np.random.default_rng(0).normal(size=(5_000, 200)))
    found = neighbors_by_cells(points, 5, recall=0.99)
    assert (found.recall, found.looked_at, found.said) == (1.0, 1.0, "")
    np.testing.assert_array_equal(found.graph.indices, nearest_neighbors(points, 5).indices)


def test_few_rows_all_neighbours_and_geometries_without_coordinates_are_searched_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Table:
        """Distances and nothing else."""

        rows = 3_000

        def squared_distance_block(self, start: int, stop: int) -> FloatArray:
            return points.squared_distance_block(start, stop)

    points = Points(clustered(3_000, 3))
    assert find_neighbors(points, 5, recall=0.5).looked_at == 1.0
    monkeypatch.setattr(cells, "EXACT_ROWS", 1_000)
    assert find_neighbors(points, 5, recall=0.5).looked_at < 1.0
    assert find_neighbors(points, 5, recall=1.0).looked_at == 1.0
    assert find_neighbors(Table(), 5, recall=0.5).looked_at == 1.0  # type: ignore[arg-type]


def test_what_was_not_compared_is_said() -> None:
    found = neighbors_by_cells(Points(clustered(9_000, 3)), 10, recall=0.9)
    assert f"{found.recall:.1%} of the true 10 neighbours" in found.said
    assert f"{found.looked_at:.1%} of all" in found.said


def test_progress_ends_whole() -> None:
    heard: list[tuple[float, int]] = []
    neighbors_by_cells(
        Points(clustered(6_000, 3)), 5, recall=0.9, progress=lambda done, total: heard.append((done, total))
    )
    assert heard[-1][0] == heard[-1][1]


@pytest.mark.parametrize("k", [0, 3_000])
def test_numbers_of_neighbours_that_there_are_not_are_refused(k: int) -> None:
    with pytest.raises(DataError, match=f"Asked for {k} nearest neighbours among 3000 rows"):
        neighbors_by_cells(Points(clustered(3_000, 3)), k, recall=0.9)
