"""New rows on a finished map: exact on an isometric map, near their neighbours on a t-SNE map."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from raydr.arrays import Float64Array
from raydr.data import load
from raydr.embedding import TSNE, principal_components
from raydr.errors import DataError, ScenarioError
from raydr.geometry.neighbors import NeighborGraph, nearest_neighbors
from raydr.geometry.points import Points, squared_distances
from raydr.methods.sense import new_rows as module
from raydr.methods.sense.new_rows import map_scale, place


def between(a: Float64Array, b: Float64Array) -> Float64Array:
    """Distances by differences, without any cancellation."""
    return np.asarray(np.sqrt(((a[:, None] - b[None]) ** 2).sum(axis=2)))


def stress(
    distances: Float64Array, positions: Float64Array, placed: Float64Array, scale: float = 1.0
) -> Float64Array:
    """(23) of each row."""
    return np.asarray(((between(placed, positions) - scale * distances) ** 2).sum(axis=1))


@pytest.mark.parametrize("dimensions", [1, 2, 3, 6])
@pytest.mark.parametrize("neighbors", [None, 12])
@pytest.mark.parametrize("scale", [1.0, 250.0])
def test_rows_are_placed_exactly_on_an_isometric_map(
    dimensions: int, neighbors: int | None, scale: float
) -> None:
    random = np.random.default_rng(dimensions)
    positions, rows = random.normal(size=(40, dimensions)), 0.5 * random.normal(size=(100, dimensions))
    rows[0] = positions[7]
    placed = place(
        between(rows, positions),
        scale * positions,
        neighbors=neighbors,
        scale=scale,
        tolerance=1e-9,
        max_iterations=3000,
    )
    np.testing.assert_allclose(placed, scale * rows, atol=1e-5 * scale)


@settings(max_examples=40)
@given(
    rows=st.integers(1, 10),
    anchors=st.integers(2, 9),
    dimensions=st.integers(1, 3),
    scale=st.floats(0.1, 10),
    seed=st.integers(0, 2**32),
)
def test_iterations_never_raise_a_rows_stress(
    rows: int, anchors: int, dimensions: int, scale: float, seed: int
) -> None:
    """Random distances need not belong to any point."""
    random = np.random.default_rng(seed)
    positions, distances = random.normal(size=(anchors, dimensions)), random.exponential(size=(rows, anchors))
    before = np.full(rows, np.inf)
    for iterations in (0, 1, 2, 3, 5, 10, 100, 1000):
        placed = place(distances, positions, scale=scale, tolerance=0.0, max_iterations=iterations)
        now = stress(distances, positions, placed, scale)
        assert np.all(now <= before + 1e-12 * (1 + before))
        before = now


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_rows_with_noisy_distances_reach_a_minimum(dimensions: int) -> None:
    """Compare with scipy's minimiser, started from the result."""
    random = np.random.default_rng(10 + dimensions)
    positions, rows = random.normal(size=(9, dimensions)), 0.5 * random.normal(size=(20, dimensions))
    distances = between(rows, positions) * np.exp(0.2 * random.normal(size=(20, 9)))
    placed = place(distances, positions, tolerance=1e-9, max_iterations=3000)
    for row, at, left in zip(distances, placed, stress(distances, positions, placed), strict=True):

        def own(y: Float64Array, row: Float64Array = row) -> float:
            return float(stress(row[None], positions, y[None])[0])

        least = minimize(own, at, method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12}).fun
        assert left <= least + 1e-9


def test_iteration_averages_points_at_the_target_distances() -> None:
    random = np.random.default_rng(4)
    positions, distances = random.normal(size=(7, 2)), random.exponential(size=(3, 7))
    start = place(distances, positions, max_iterations=0)
    for row, before, after in zip(
        distances, start, place(distances, positions, max_iterations=1), strict=True
    ):
        sides = (before - positions) / np.linalg.norm(before - positions, axis=1)[:, None]
        np.testing.assert_allclose(after, (positions + row[:, None] * sides).mean(axis=0), atol=1e-12)


def test_each_row_is_placed_independently(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    positions, distances = random.normal(size=(30, 2)), random.exponential(size=(50, 30))
    for neighbors in (None, 6):
        whole = place(distances, positions, neighbors=neighbors)
        alone = np.concatenate([place(row[None], positions, neighbors=neighbors) for row in distances])
        np.testing.assert_allclose(whole, alone, atol=1e-12)
        with monkeypatch.context() as patch:
            patch.setattr(module, "BLOCK_VALUES", 100)
            np.testing.assert_allclose(place(distances, positions, neighbors=neighbors), whole, atol=1e-12)


def test_only_the_nearest_neighbors_are_used() -> None:
    """Other references may be anywhere without any effect."""
    random = np.random.default_rng(1)
    positions, rows = random.normal(size=(30, 2)), random.normal(size=(20, 2))
    distances = between(rows, positions)
    far = np.concatenate([distances, 100 + random.exponential(size=(20, 15))], axis=1)
    anywhere = np.concatenate([positions, random.normal(size=(15, 2)) * 1e3])
    found = place(far, anywhere, neighbors=8)
    np.testing.assert_allclose(found, place(distances, positions, neighbors=8), atol=1e-12)
    assert not np.allclose(found, place(far, anywhere), atol=1.0)


def test_rows_at_distance_zero_of_a_pseudo_anchor_start_there() -> None:
    positions = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    distances = between(positions[:1], positions)
    assert np.array_equal(place(distances, positions, max_iterations=0), positions[:1])
    np.testing.assert_allclose(place(distances, positions), positions[:1], atol=1e-12)


def test_two_pseudo_anchors_place_a_row_on_their_line() -> None:
    """Both intersections of two circles fit equally well; the line lies in the middle."""
    positions = np.array([[0.0, 0.0], [2.0, 0.0], [50.0, 50.0]])
    placed = place(np.array([[1.5, 1.5, 60.0]]), positions, neighbors=2)
    np.testing.assert_allclose(placed, [[1.0, 0.0]], atol=1e-12)


def test_no_new_rows_give_an_empty_result() -> None:
    assert place(np.empty((0, 3)), np.eye(3)).shape == (0, 3)


def test_scale_ignores_units_and_split_neighbours() -> None:
    rows = np.random.default_rng(2).normal(size=(200, 2))
    graph = nearest_neighbors(Points(rows), 5)
    assert map_scale(graph, 3.5 * rows) == pytest.approx(3.5, rel=1e-5)
    torn = 3.5 * rows
    torn[:20] += 1e4
    assert map_scale(graph, torn) == pytest.approx(3.5, rel=1e-4)


def test_scale_skips_equal_rows_up_to_a_limit() -> None:
    graph = NeighborGraph(np.array([[1], [0], [3], [2]]), np.array([[0], [0], [1], [1]], np.float32))
    positions = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 0.0], [2.0, 0.0]])
    assert map_scale(graph, positions) == 2.0
    with pytest.raises(DataError, match="neighbours among the 4 pseudo-anchors coincide"):
        map_scale(graph, np.zeros((4, 2)))
    with pytest.raises(DataError, match="coincide"):
        map_scale(NeighborGraph(graph.indices, np.zeros((4, 1), np.float32)), positions)


def majority(labels: Float64Array, nearest: Float64Array) -> Float64Array:
    return np.array([np.bincount(labels[row]).argmax() for row in nearest])


def test_new_digits_are_placed_near_their_class() -> None:
    """The accuracy is nearly that of neighbours in the data, the best that a map can show."""
    table = load(source="digits")
    order = np.random.default_rng(3).permutation(len(table.rows))[:1300]
    rows = table.rows[order].astype(np.float64)
    assert table.labels is not None
    labels = np.unique(table.labels[order], return_inverse=True)[1]
    known, new = rows[:900], rows[900:]
    graph = nearest_neighbors(Points(known), 90)
    positions = TSNE(early_iterations=150, iterations=250).embed(
        graph, principal_components(known, 2), seed=0
    )
    distances = np.sqrt(squared_distances(new, known))

    def accuracy(placed: Float64Array) -> float:
        nearest = np.argsort(between(placed, positions), axis=1)[:, :10]
        return float(np.mean(majority(labels[:900], nearest) == labels[900:]))

    in_data = float(np.mean(majority(labels[:900], np.argsort(distances, axis=1)[:, :10]) == labels[900:]))
    scale = map_scale(graph.nearest(5), positions)
    ours = accuracy(place(distances, positions, neighbors=5, scale=scale))
    assert ours > in_data - 2 * np.sqrt(in_data * (1 - in_data) / len(new)), "two standard deviations"
    # (23) to the letter, in the units of the data, does not: 0.3.
    assert accuracy(place(distances, positions, neighbors=5)) < ours / 2


GOOD, MAP = np.ones((4, 3)), np.eye(3)[:, :2]


@pytest.mark.parametrize(
    ("distances", "positions", "message"),
    [
        (GOOD[:, :2], MAP, r"distances have shape \(4, 2\) and the positions \(3, 2\)"),
        (GOOD[0], MAP, r"shape \(3,\)"),
        (GOOD[:, :1], MAP[:1], "at least 2 pseudo-anchors"),
        (GOOD[:, :0], MAP[:0], "at least 2 pseudo-anchors"),
        (GOOD * np.nan, MAP, "row 0, column 0 of the distances is nan"),
        (GOOD, MAP + np.inf, "row 0, column 0 of the pseudo-anchors' positions is inf"),
        (-GOOD, MAP, r"new row 0 to pseudo-anchor 0 is -1\. .* clip"),
    ],
)
def test_bad_input_is_refused_by_name(distances: Float64Array, positions: Float64Array, message: str) -> None:
    with pytest.raises(DataError, match=message):
        place(distances, positions)


@pytest.mark.parametrize("neighbors", [0, 1, 4])
def test_invalid_number_of_neighbors_is_refused(neighbors: int) -> None:
    with pytest.raises(ScenarioError, match=f"by {neighbors} of 3 pseudo-anchors. Set neighbors from 2 to 3"):
        place(GOOD, MAP, neighbors=neighbors)


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_invalid_scale_is_refused(scale: float) -> None:
    with pytest.raises(ScenarioError, match="scale"):
        place(GOOD, MAP, scale=scale)


def test_invalid_tolerance_and_iterations_are_refused() -> None:
    with pytest.raises(ScenarioError, match="tolerance"):
        place(GOOD, MAP, tolerance=-1.0)
    with pytest.raises(ScenarioError, match="max_iterations"):
        place(GOOD, MAP, max_iterations=-1)
