"""Neighbour search by cells: the requested recall, reported correctly, for any number of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from raydr.arrays import FloatArray
from raydr.data import load
from raydr.errors import DataError
from raydr.geometry import cells
from raydr.geometry.cells import (
    Found,
    _CellsHere,
    _means,
    _near_cells,
    _needed_cells,
    find_neighbors,
    neighbors_by_cells,
)
from raydr.geometry.neighbors import candidates_for, filter_of, nearest_neighbors
from raydr.geometry.points import Points


def clustered(rows: int, features: int, seed: int = 0) -> FloatArray:
    random = np.random.default_rng(seed)
    centres = 3.0 * random.normal(size=(12, features))
    return centres[random.integers(0, 12, rows)] + random.normal(size=(rows, features))


def lopsided(rows: int) -> FloatArray:
    """Return one dense group, a few scattered rows, and many equal rows."""
    random = np.random.default_rng(1)
    table = random.normal(size=(rows, 4)) ** 5
    table[: rows // 3] = table[0]
    return table


def found_of_true(found: Found, points: Points, k: int) -> float:
    """Return the fraction of neighbours that are no farther than the true k-th one."""
    farthest = nearest_neighbors(points, k).distances[:, -1:]
    return float((found.graph.distances <= farthest).mean())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> FloatArray:
    """Return rows for cells of twenty: 240 in clusters, and 90 at one point."""
    monkeypatch.setattr(cells, "CELL_ROWS", 20)
    monkeypatch.setattr(cells, "TILE_ROWS", 2)
    return np.concatenate([clustered(240, 3), np.ones((90, 3))])


TABLES = {
    "clustered": lambda: clustered(9_000, 20),
    "one heap": lambda: np.random.default_rng(0).normal(size=(9_000, 8)),
    "a line": lambda: np.random.default_rng(0).normal(size=(9_000, 1)),
    "lopsided": lambda: lopsided(12_000),
    "far from 0": lambda: clustered(9_000, 6).astype(np.float64) + 1e8,
    "digits over": lambda: np.repeat(load(source="digits").rows, 6, axis=0),
}


@pytest.mark.parametrize(
    ("name", "k", "recall"),
    [
        pytest.param(name, k, recall, marks=pytest.mark.slow if is_slow else ())
        for name, is_slow_at_30 in (
            ("clustered", True), ("one heap", False), ("a line", True), ("lopsided", True), ("far from 0", True),
            ("digits over", True),
        )
        for k, recall, is_slow in ((5, 0.8, not is_slow_at_30), (30, 0.98, is_slow_at_30))
    ],
)  # fmt: skip
def test_recall_reaches_the_target_and_is_reported_correctly(name: str, k: int, recall: float) -> None:
    points = Points(TABLES[name]())
    found = neighbors_by_cells(points, k, recall=recall)
    true = found_of_true(found, points, k)
    assert found.recall >= recall
    # It is measured on 256 rows, so it has a sampling error.
    assert true == pytest.approx(found.recall, abs=0.03)


def test_distances_are_exact_sorted_and_exclude_the_row_itself() -> None:
    table = clustered(6_000, 5)
    graph = neighbors_by_cells(Points(table), 12, recall=0.9).graph
    apart = np.linalg.norm(table[:, None] - table[graph.indices], axis=2)
    np.testing.assert_allclose(graph.distances, apart, rtol=1e-6)
    assert (np.diff(graph.distances, axis=1) >= 0).all()
    assert (graph.indices != np.arange(6_000)[:, None]).all()
    assert (np.diff(np.sort(graph.indices, axis=1), axis=1) > 0).all()


def test_clustered_rows_need_few_comparisons() -> None:
    assert neighbors_by_cells(Points(clustered(12_000, 3)), 10, recall=0.95).looked_at < 0.5


def test_threads_change_no_bit() -> None:
    points = Points(clustered(8_000, 10))
    one, two = (neighbors_by_cells(points, 10, recall=0.95, threads=threads) for threads in (1, 2))
    assert one.recall == two.recall
    np.testing.assert_array_equal(one.graph.indices, two.graph.indices)
    np.testing.assert_array_equal(one.graph.distances, two.graph.distances)


class OneAfterTheOther:
    """Nodes that are this process."""

    def share(self, values: Iterable[Any]) -> list[Any]:
        return list(values)

    def compute(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        return map(work, tasks)


@pytest.mark.parametrize(("k", "recall"), [(2, 0.6), (6, 0.9)])
def test_tasks_that_fetch_cells_change_no_bit(
    small: FloatArray, k: int, recall: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "_GROUP_CELLS", 3)
    monkeypatch.setattr(cells, "_RECENT_CELLS", 2)
    points = Points(small.round(1))  # equal distances abound
    here = neighbors_by_cells(points, k, recall=recall)
    there = neighbors_by_cells(points, k, recall=recall, nodes=OneAfterTheOther())
    assert (there.recall, there.looked_at) == (here.recall, here.looked_at)
    np.testing.assert_array_equal(there.graph.indices, here.graph.indices)
    np.testing.assert_array_equal(there.graph.distances, here.graph.distances)


def test_groups_hold_cells_near_to_each_other() -> None:
    means = np.random.default_rng(0).uniform(size=(640, 2)) * [1.0, 4.0]
    groups = _near_cells(means)
    assert sorted(np.concatenate(groups)) == list(range(640))
    assert {len(group) for group in groups} == {10}
    wide = np.array([np.ptp(means[group], axis=0) for group in groups])
    assert wide.max() < 0.6  # squares of width 0.25 would hold ten


def test_rows_in_small_cells_are_compared_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "CELL_ROWS", 10)
    table = clustered(600, 2)
    points = Points(table)
    found = neighbors_by_cells(points, 30, recall=0.01)
    assert found.looked_at * 600 < 30
    exact = nearest_neighbors(points, 30)
    np.testing.assert_array_equal(found.graph.indices, exact.indices)
    np.testing.assert_array_equal(found.graph.distances, exact.distances)


def by_brute_force(small: FloatArray) -> tuple[_CellsHere, FloatArray, FloatArray]:
    """Return cells, squared distances (rows, rows) in their order, and the rank of each row's cell (rows, rows)."""
    made = _CellsHere.of(Points(small), 16, 1)
    rows = small[made.order]
    apart = ((rows[:, None] - rows) ** 2).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    centres = made.means / filter_of(Points(small))[1] + Points(small).shift
    far = ((rows[:, None] - centres) ** 2).sum(axis=2)
    far[np.arange(len(rows)), made.cell_at] = -1.0
    ranks = np.argsort(np.argsort(far, axis=1, kind="stable"), axis=1)
    return made, apart, ranks[:, made.cell_at]


def test_cells_hold_the_rows_nearest_to_their_mean_up_to_a_limit(
    small: FloatArray,
) -> None:
    points = Points(small)
    made = _CellsHere.of(points, 16, 1)
    scaled = points.centred(slice(None)) * filter_of(points)[1]
    assert sorted(made.order) == list(range(330))
    sizes = np.diff(made.ends)
    assert (made.ends[0], made.ends[-1], made.count) == (0, 330, len(sizes))
    assert sizes.min() > 0
    assert sizes.max() == 80  # four times the average; the other ten equal rows are in the next cell
    np.testing.assert_array_equal(made.cell_at, np.repeat(np.arange(made.count), sizes))
    far = np.linalg.norm(scaled[made.order][:, None] - made.means, axis=2)
    np.testing.assert_allclose(far[np.arange(330), made.cell_at], far.min(axis=1), atol=1e-6)
    np.testing.assert_allclose(made.local, scaled[made.order] - made.means[made.cell_at], atol=1e-7)
    np.testing.assert_allclose(made.squared_norms, (made.local**2).sum(axis=1), rtol=1e-6)


def test_tile_holds_the_distances_to_the_rows_of_a_cell(small: FloatArray) -> None:
    made, apart, _ = by_brute_force(small)
    scale = filter_of(Points(small))[1]
    home = slice(made.ends[2], made.ends[3])
    for cell in range(made.count):
        part = slice(made.ends[cell], made.ends[cell + 1])
        seen = made.local[home] + (made.means[2] - made.means[cell]).astype(np.float32)
        tile = made.cell(cell).tile(seen) / scale**2
        wanted = np.where(np.isfinite(apart[home, part]), apart[home, part], 0.0)
        np.testing.assert_allclose(tile, wanted, atol=1e-5 * wanted.max() + 1e-5)
        assert tile.min() >= 0.0


def test_means_are_four_rounds_of_k_means_on_a_sample() -> None:
    points, random = Points(clustered(500, 3)), np.random.default_rng(500)
    rough = filter_of(points)[0]
    sample = rough.coordinates[np.sort(random.choice(500, 32 * 8, replace=False))].astype(np.float64)
    means = sample[np.sort(random.choice(32 * 8, 8, replace=False))]
    for _ in range(4):
        nearest = ((sample[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
        means = np.stack([sample[nearest == cell].mean(axis=0) for cell in range(8)])
    np.testing.assert_allclose(_means(rough, 8, 1), means, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("k", "recall"), [(1, 0.5), (3, 0.8), (7, 0.95), (7, 0.999), (30, 0.9)])
def test_number_of_probed_cells_is_the_smallest_that_reaches_recall(
    small: FloatArray, k: int, recall: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over all rows, counting rows no farther than the k-th nearest, up to k of them."""
    monkeypatch.setattr(cells, "MEASURED_ROWS", 1000)
    made, apart, ranks = by_brute_force(small)
    near = apart <= np.sort(apart, axis=1)[:, [k - 1]] * (1.0 + 1e-9)
    for probes in range(1, made.count + 1):
        held = np.minimum((near & (ranks < probes)).sum(axis=1), k).mean() / k
        if held >= recall:
            break
    assert _needed_cells(Points(small), made, k, recall, 1) == (probes, pytest.approx(held))


@pytest.mark.parametrize(("k", "recall"), [(2, 0.6), (6, 0.9)])
def test_neighbours_are_the_nearest_rows_of_the_probed_cells(
    small: FloatArray, k: int, recall: float
) -> None:
    """Rows with too few candidates get the nearest of all rows."""
    made, apart, ranks = by_brute_force(small)
    found = neighbors_by_cells(Points(small), k, recall=recall)
    probes = round(found.looked_at * made.count)
    assert 0 < probes < made.count / 2
    inside = np.where(ranks < probes, apart, np.inf)
    enough = np.isfinite(inside).sum(axis=1) >= candidates_for(k, 330)
    wanted = np.sort(np.where(enough[:, None], inside, apart), axis=1)[:, :k]
    np.testing.assert_allclose(found.graph.distances[made.order], np.sqrt(wanted), rtol=1e-6, atol=1e-6)


def test_exact_search_is_used_from_half_of_all_cells_on(
    small: FloatArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = small[:240]
    count = _CellsHere.of(Points(small), 12, 1).count
    assert count % 2 == 0
    for probes in range(1, count + 1):
        monkeypatch.setattr(cells, "_needed_cells", lambda *_, probes=probes: (probes, 0.5))
        found = neighbors_by_cells(Points(small), 3, recall=0.5)
        exact = 2 * probes >= count
        assert (found.recall, found.looked_at) == ((1.0, 1.0) if exact else (0.5, probes / count))


@pytest.mark.parametrize(("rows", "exact"), [(39, True), (40, False)])
def test_exact_search_is_used_for_fewer_than_two_cells(
    rows: int, exact: bool, small: FloatArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "_WORTHWHILE", 0.9)
    two = np.arange(rows)[:, None] % 2 * 1e3 + np.random.default_rng(0).normal(size=(rows, 2))
    found = neighbors_by_cells(Points(two), 1, recall=0.5)
    assert (found.looked_at == 1.0) == exact


def test_exact_search_is_used_up_to_50000_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "neighbors_by_cells", lambda *_, **__: "by cells")
    monkeypatch.setattr(cells, "nearest_neighbors", lambda *_, **__: "all")
    everything = Found("all")  # type: ignore[arg-type]
    for rows, recall, way in (
        (50_000, 0.9, everything),
        (50_001, 0.9, "by cells"),
        (50_001, 1.0, everything),
    ):
        assert find_neighbors(Points(np.zeros((rows, 1))), 5, recall=recall) == way


def test_exact_search_is_used_when_cells_do_not_help() -> None:
    points = Points(np.random.default_rng(0).normal(size=(5_000, 200)))
    found = neighbors_by_cells(points, 5, recall=0.99)
    assert (found.recall, found.looked_at, found.description) == (1.0, 1.0, "")
    np.testing.assert_array_equal(found.graph.indices, nearest_neighbors(points, 5).indices)


def test_exact_search_is_used_for_full_recall_and_other_geometries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Table:
        """A geometry that has only distances."""

        rows = 3_000

        def squared_distance_block(self, start: int, stop: int) -> FloatArray:
            return points.squared_distance_block(start, stop)

    points = Points(clustered(3_000, 3))
    assert find_neighbors(points, 5, recall=0.5).looked_at == 1.0
    monkeypatch.setattr(cells, "EXACT_ROWS", 1_000)
    assert find_neighbors(points, 5, recall=0.5).looked_at < 1.0
    assert find_neighbors(points, 5, recall=1.0).looked_at == 1.0
    assert find_neighbors(Table(), 5, recall=0.5).looked_at == 1.0  # type: ignore[arg-type]


def test_description_reports_recall_and_comparisons() -> None:
    found = neighbors_by_cells(Points(clustered(9_000, 3)), 10, recall=0.9)
    assert f"{found.recall:.1%} of the true 10 neighbours" in found.description
    assert f"{found.looked_at:.1%} of all" in found.description


def test_progress_ends_at_the_total() -> None:
    reports: list[tuple[float, int]] = []
    neighbors_by_cells(
        Points(clustered(6_000, 3)), 5, recall=0.9, progress=lambda done, total: reports.append((done, total))
    )
    assert reports[-1][0] == reports[-1][1]


@pytest.mark.parametrize("k", [0, 3_000])
def test_impossible_number_of_neighbours_is_refused(k: int) -> None:
    with pytest.raises(DataError, match=f"Cannot find {k} nearest neighbours among 3000 rows"):
        neighbors_by_cells(Points(clustered(3_000, 3)), k, recall=0.9)


def test_as_many_neighbours_as_rows_are_refused_at_low_recall(small: FloatArray) -> None:
    with pytest.raises(DataError, match="Cannot find 330 nearest neighbours among 330 rows"):
        neighbors_by_cells(Points(small), 330, recall=0.1)
