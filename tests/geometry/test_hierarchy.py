"""Trees keep their hop distances in hyperbolic space; a trained graph keeps its neighbours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import shortest_path

from raydr.arrays import Float64Array, Int64Array
from raydr.data.hierarchy import graph_points, riemannian_gradient, spread_directions, tree_points
from raydr.errors import DataError
from raydr.geometry.hyperbolic import FARTHEST_RADIUS, exponential_map, moved, seen_from, squared_distances


def balanced(branches: int, depth: int) -> Int64Array:
    """Return the edges of a tree whose inner nodes have ``children`` children each."""
    nodes = sum(branches**level for level in range(depth + 1))
    children = np.arange(1, nodes)
    return np.stack([(children - 1) // branches, children], axis=1)


def hops(edges: Int64Array) -> Float64Array:
    nodes = int(edges.max()) + 1
    adjacency = coo_matrix((np.ones(len(edges)), edges.T), (nodes, nodes))
    return np.asarray(shortest_path(adjacency, directed=False, unweighted=True))


def rank_and_precision(points: Float64Array, edges: Int64Array) -> tuple[float, float]:
    """Mean rank of a node's neighbours among all others (1: perfect), and mean average precision."""
    distances, near = squared_distances(points, points), hops(edges) == 1
    np.fill_diagonal(distances, np.inf)
    ranks, precisions = [], []
    for row in range(len(points)):
        places = np.flatnonzero(near[row][np.argsort(distances[row], kind="stable")])
        ranks.extend(places - np.arange(places.size) + 1)
        precisions.append(np.mean((np.arange(places.size) + 1) / (places + 1)))
    return float(np.mean(ranks)), float(np.mean(precisions))


# Sarkar's construction


@pytest.mark.parametrize("dimensions", [2, 3, 5])
@pytest.mark.parametrize(("branches", "depth"), [(2, 5), (3, 4)])
def test_tree_distances_are_proportional_to_hops(branches: int, depth: int, dimensions: int) -> None:
    edges = balanced(branches, depth)
    points = tree_points(edges, dimensions, edge_length=19.9 / depth)
    length, between = hops(edges) * 19.9 / depth, np.sqrt(squared_distances(points, points))
    assert points.shape == (len(edges) + 1, dimensions + 1)
    assert np.all(between <= length * (1 + 1e-9))
    # Each node on a path adds an error that depends on the angle between its edges, widest in the plane.
    lost = 2 * np.log(1 / np.sin(np.pi / (branches + 1))) * np.maximum(hops(edges) - 1, 0)
    assert np.all(length - between <= lost * (1 + 3 * np.exp(-19.9 / depth)) + 1e-6)
    assert rank_and_precision(points, edges) == (1.0, 1.0)


def test_distortion_falls_as_one_over_the_edge_length_and_obeys_its_bound() -> None:
    edges = balanced(2, 3)
    count, degree = hops(edges), 3
    losses = []
    for length in (1.6, 3.2, 6.4):
        points = tree_points(edges, edge_length=length)
        loss = length * count - np.sqrt(squared_distances(points, points))
        bound = 2 * np.log(1 / np.sin(np.pi / degree)) * np.maximum(count - 1, 0)
        assert np.all(loss <= bound * (1 + 2 * np.exp(-length)) + 1e-6)
        losses.append(float((loss / (length * np.maximum(count, 1))).max()))
    assert losses[1] < 0.55 * losses[0]
    assert losses[2] < 0.55 * losses[1]


def test_edges_have_the_requested_length_and_the_centre_is_the_origin() -> None:
    edges = balanced(3, 3)[:, ::-1]
    points = tree_points(edges, 3, edge_length=2.5)
    _, lengths = seen_from(points[edges[:, 0]], points[edges[:, 1]])
    np.testing.assert_allclose(lengths, 2.5, rtol=1e-9)
    np.testing.assert_array_equal(points[0], np.eye(1, 4)[0])


def test_path_is_a_geodesic() -> None:
    path = np.stack([np.arange(9), np.arange(1, 10)], axis=1)
    for dimensions in (1, 2, 3):
        points = tree_points(path, dimensions, edge_length=1.0)
        np.testing.assert_allclose(np.sqrt(squared_distances(points, points)), hops(path), atol=1e-3)
    assert np.arccosh(tree_points(path, edge_length=1.0)[:, 0]).max() == pytest.approx(5.0)  # from the centre


def test_default_edge_length_fits_the_ball() -> None:
    for edges in (balanced(2, 1), balanced(2, 8), np.stack([np.zeros(300, int), np.arange(1, 301)], axis=1)):
        points = tree_points(edges, jitter=0.1)
        assert np.arccosh(points[:, 0]).max() <= FARTHEST_RADIUS * (1 + 1e-9)


def test_jitter_breaks_ties_and_is_seeded() -> None:
    edges = balanced(2, 4)
    first = tree_points(edges, jitter=0.05, seed=1)
    np.testing.assert_array_equal(first, tree_points(edges, jitter=0.05, seed=1))
    _, steps = seen_from(tree_points(edges), first)
    assert steps.min() > 0.0
    assert steps.max() < 6 * 0.05, "six standard deviations in a direction"
    assert not np.array_equal(first, tree_points(edges, jitter=0.05, seed=2))


def test_directions_stay_apart() -> None:
    """Four directions on a sphere form a tetrahedron, to the accuracy that matters."""
    products = spread_directions(4, 3) @ spread_directions(4, 3).T
    np.testing.assert_allclose(products[np.triu_indices(4, 1)], -1 / 3, atol=0.02)
    circle = spread_directions(5, 2)
    np.testing.assert_allclose((circle[0] * circle[1]).sum(), np.cos(2 * np.pi / 5))


def test_real_tree_is_placed(data_dir: Path) -> None:
    with np.load(data_dir / "disease_lp.npz", allow_pickle=False) as file:
        edges = file["edges"]
    points = tree_points(edges, 3)
    assert points.shape == (2665, 4)
    _, lengths = seen_from(points[edges[:, 0]], points[edges[:, 1]])
    np.testing.assert_allclose(lengths, lengths[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("edges", "options", "words"),
    [
        (
            [[0, 1], [1, 2], [2, 0]],
            {},
            r"3 nodes has 2 edges and one piece, but there are 3 edges .*graph_points",
        ),
        ([[0, 1], [2, 3]], {}, r"4 nodes has 3 edges .* 2 nodes can be reached from node"),
        ([[0, 1], [1, 1]], {}, r"edge 1 is \[1, 1\]"),
        ([[0, -1]], {}, r"edge 0 is \[0, -1\]"),
        ([[0.5, 1.0]], {}, r"float64 of shape \(1, 2\)"),
        (np.zeros((0, 2), int), {}, r"int64 of shape \(0, 2\)"),
        ([[0, 1], [1, 2]], {"edge_length": 30.0}, r"1 edges deep .* at most 20"),
        ([[0, 1], [1, 2]], {"edge_length": 0.0}, r"at most 20"),
        ([[0, 1], [0, 2], [0, 3]], {"dimensions": 1}, r"A node with 3 edges .* Use 2 or more"),
    ],
)
def test_graph_that_is_not_a_tree_is_refused(edges, options, words) -> None:
    with pytest.raises(DataError, match=words):
        tree_points(np.array(edges), **options)


# The Poincaré embedding


@pytest.mark.parametrize("dimensions", [2, 5])
def test_training_finds_the_neighbours_of_a_tree(dimensions: int) -> None:
    edges = balanced(2, 4)
    random = exponential_map(np.random.default_rng(0).normal(size=(31, dimensions)))
    rank, precision = rank_and_precision(graph_points(edges, dimensions, seed=0), edges)
    by_chance = rank_and_precision(random, edges)
    assert rank - 1 < (by_chance[0] - 1) / 10
    assert 1 - precision < (1 - by_chance[1]) / 10


def test_training_accepts_cycles_and_separate_components() -> None:
    ring = np.stack([np.arange(12), (np.arange(12) + 1) % 12], axis=1)
    edges = np.concatenate([ring, ring + 12])
    rank, _ = rank_and_precision(graph_points(edges, 3, seed=1), edges)
    nodes = exponential_map(np.random.default_rng(1).normal(size=(24, 3)))
    assert rank - 1 < (rank_and_precision(nodes, edges)[0] - 1) / 10


def test_training_depends_on_the_seed_alone() -> None:
    edges = balanced(2, 3)
    first = graph_points(edges, 2, seed=3, epochs=30)
    np.testing.assert_array_equal(first, graph_points(edges[::-1, ::-1], 2, seed=3, epochs=30))
    assert not np.array_equal(first, graph_points(edges, 2, seed=4, epochs=30))


def test_gradient_equals_central_differences() -> None:
    random = np.random.default_rng(5)
    points = exponential_map(random.normal(size=(6, 3)))
    own, others = np.array([[0], [1]]), np.array([[1, 2, 3, 4], [2, 0, 5, 5]])
    ignored = np.zeros((2, 4), bool)
    ignored[0, 3] = True

    def loss(points: Float64Array) -> float:
        distances = seen_from(points[own], points[others])[1]
        return float((distances[:, 0] + np.log(np.where(ignored, 0.0, np.exp(-distances)).sum(axis=1))).sum())

    gradient = riemannian_gradient(points, own, others, ignored)
    assert np.linalg.norm(gradient, axis=1).max() < 1.0  # none is cut
    for node in range(6):
        for axis in range(3):
            step = np.zeros((6, 3))
            step[node, axis] = 1e-5
            difference = (loss(moved(points, step)) - loss(moved(points, -step))) / 2e-5
            assert gradient[node, axis] == pytest.approx(difference, abs=1e-8)


@pytest.mark.parametrize("setting", ["epochs", "dimensions"])
def test_settings_must_be_positive(setting: str) -> None:
    with pytest.raises(DataError, match=f"{setting} of at least 1, not 0"):
        graph_points(np.array([[0, 1]]), seed=0, **{"dimensions": 2, setting: 0})
