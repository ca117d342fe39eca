"""CO-SNE: gradient (16), geometry of the ball, reproducibility, and trees with their leaves outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from embedded import central_differences, digest
from pydantic import ValidationError
from scipy.sparse import csr_matrix
from scipy.stats import spearmanr

from raydr.arrays import Float64Array
from raydr.embedding import COSNE
from raydr.embedding.cosne import BALL_RADIUS, joint_probabilities
from raydr.embedding.kernels.hyperbolic_cauchy import STRIPS, depth, divergence, repel_all, repel_some
from raydr.errors import DataError, ScenarioError
from raydr.geometry.neighbors import NeighborGraph

BRIEF = COSNE(perplexity=5, early_iterations=30, iterations=30)


def translated(point: Float64Array, by: Float64Array) -> Float64Array:
    """Move ``point`` by the isometry of the ball that takes its centre to ``by`` (Möbius addition)."""
    product, square, own = 2 * by @ point, by @ by, point @ point
    return np.asarray(((1 + product + own) * by + (1 - square) * point) / (1 + product + square * own))


def tree(children: int, levels: int, edge: float) -> tuple[Float64Array, list[int]]:
    """Points of the disk, (nodes, 2), and parents of a tree drawn by Sarkar's construction."""
    points, parents, level = [np.zeros(2)], [-1], [0]
    for node in range(sum(children**height for height in range(levels))):
        here, parent = points[node], parents[node]
        back = translated(points[parent], -here) if parent >= 0 else np.array([1.0, 0.0])
        turns = np.arange(children) if parent < 0 else np.arange(1, children + 1)
        for angle in np.arctan2(back[1], back[0]) + 2 * np.pi * turns / (children + (parent >= 0)):
            step = np.tanh(edge / 2) * np.array([np.cos(angle), np.sin(angle)])
            points.append(translated(step, here))
            parents.append(node)
            level.append(level[node] + 1)
    return np.array(points), parents


def hyperbolic_distances(points: Float64Array) -> Float64Array:
    gaps = np.square(points[:, None] - points).sum(axis=-1)
    room = 1 - np.square(points).sum(axis=1)
    return np.asarray(np.arccosh(1 + 2 * gaps / (room[:, None] * room)))


def graph_of(points: Float64Array, k: int) -> NeighborGraph:
    distances = hyperbolic_distances(points)
    np.fill_diagonal(distances, np.inf)
    indices = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return NeighborGraph(indices, np.take_along_axis(distances, indices, axis=1).astype(np.float32))


def ball(rows: int, width: int, seed: int = 0) -> Float64Array:
    """Points of the ball from its centre to 0.9999 of its radius."""
    generator = np.random.default_rng(seed)
    directions = generator.normal(size=(rows, width))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return np.asarray(directions * np.append(np.linspace(0, 0.99, rows - 1), 0.9999)[:, None])


# Objective and gradient


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("gamma", [0.1, 1.0])
def test_gradient_equals_central_differences(gamma: float, width: int) -> None:
    points = ball(20, width)
    layout = np.ascontiguousarray(points.T)
    norms = np.random.default_rng(1).uniform(0, 1, 20)
    p = joint_probabilities(graph_of(ball(20, width, seed=2), 9), 3.0)
    settings = COSNE(gamma=gamma, divergence_weight=1.7, depth_weight=0.3)

    def objective(y: Float64Array) -> float:
        return 1.7 * divergence(y, p, gamma) + 0.3 * depth(y, norms)

    with settings.gradient(p, norms, None, 0, 1) as gradient:
        slopes = gradient(layout, 1.0)
    with settings.gradient(p, None, None, 0, 1) as gradient:
        of_divergence = gradient(layout, 1.0)
    expected = central_differences(objective, layout, 1e-7)
    np.testing.assert_allclose(slopes, expected, rtol=2e-5, atol=2e-6)
    expected = central_differences(lambda y: 1.7 * divergence(y, p, gamma), layout, 1e-7)
    np.testing.assert_allclose(of_divergence, expected, rtol=2e-5, atol=2e-6)


def test_divergence_equals_its_definition() -> None:
    points = ball(12, 2)
    p = joint_probabilities(graph_of(ball(12, 2, seed=3), 6), 2.0)
    q = 0.3**2 / (hyperbolic_distances(points) ** 2 + 0.3**2)
    np.fill_diagonal(q, 0.0)
    q /= q.sum()
    at = p.toarray() > 0
    expected = float((p.toarray()[at] * np.log(p.toarray()[at] / q[at])).sum())
    assert divergence(points.T, p, 0.3) == pytest.approx(expected, rel=1e-9)


def test_isometries_change_neither_divergence_nor_riemannian_gradient() -> None:
    points, by = ball(12, 2)[:-1], np.array([0.3, -0.5])
    p = joint_probabilities(graph_of(ball(11, 2, seed=3), 6), 2.0)
    moved = np.array([translated(point, by) for point in points])
    values, lengths = [], []
    for layout in (points, moved):
        columns = np.ascontiguousarray(layout.T)
        with COSNE(gamma=0.4).gradient(p, None, None, 0, 1) as gradient:
            slope = gradient(columns, 1.0) * (1 - np.square(columns).sum(axis=0)) / 2
        values.append(divergence(columns, p, 0.4))
        lengths.append(np.linalg.norm(slope, axis=0))
    assert values[0] == pytest.approx(values[1], rel=1e-8)
    np.testing.assert_allclose(lengths[0], lengths[1], rtol=1e-7)


def test_coincident_points_do_not_repel() -> None:
    layout = np.zeros((2, 8))
    layout[:, 4:] = 0.5
    p = csr_matrix(np.full((8, 8), 1 / 56) - np.eye(8) / 56)
    with COSNE().gradient(p, None, None, 0, 1) as gradient:
        slope = gradient(layout, 1.0)
    assert np.isfinite(slope).all()
    np.testing.assert_allclose(slope[:, :4], np.broadcast_to(slope[:, :1], (2, 4)), rtol=1e-12)


@pytest.mark.parametrize("width", [2, 3])
def test_repulsion_from_a_full_sample_equals_exact_repulsion(width: int) -> None:
    layout = np.ascontiguousarray(ball(50, width).T)
    inverse = 1 / (1 - np.square(layout).sum(axis=0))
    everybody, some = np.zeros_like(layout), np.empty_like(layout)
    total = sum(repel_all(layout, inverse, strip, 0.01, everybody) for strip in range(STRIPS))
    others = np.array([[other for other in range(50) if other != row] for row in range(50)])
    assert repel_some(layout, inverse, others, 0.01, some) == pytest.approx(total, rel=1e-12)
    np.testing.assert_allclose(some, everybody, rtol=1e-9, atol=1e-9)


def test_similarities_are_hyperbolic_gaussians_with_the_perplexity() -> None:
    rows, perplexity = 40, 6.0
    graph = graph_of(ball(rows, 3)[:rows], 18)
    conditional = np.zeros((rows, rows))
    for row in range(rows):
        squared = graph.distances[row].astype(float) ** 2
        low, high = 1e-6, 1e6
        for _ in range(200):
            precision = np.sqrt(low * high)
            weights = np.exp(-precision * (squared - squared.min()))
            weights /= weights.sum()
            entropy = -(weights * np.log(np.maximum(weights, 1e-300))).sum()
            low, high = (precision, high) if entropy > np.log(perplexity) else (low, precision)
        conditional[row, graph.indices[row]] = weights
    p = joint_probabilities(graph, perplexity).toarray()
    np.testing.assert_allclose(p, (conditional + conditional.T) / (2 * rows), atol=1e-5)
    assert p.sum() == pytest.approx(1.0)


# Determinism


@pytest.mark.parametrize("samples", [None, 20], ids=["all-pairs", "samples"])
def test_repeats_threads_and_progress_change_no_bit(samples: int | None) -> None:
    points, _ = tree(3, 4, 0.7)
    settings = COSNE(perplexity=5, early_iterations=20, iterations=20, negative_samples=samples)
    graph, norms = graph_of(points, 15), np.linalg.norm(points, axis=1)
    layouts = [settings.embed(graph, points, seed=3, threads=threads, norms=norms) for threads in (1, 1, 3)]
    done: list[tuple[int, int]] = []
    layouts.append(
        settings.embed(graph, points, seed=3, norms=norms, progress=lambda *report: done.append(report))
    )
    assert len({digest(layout) for layout in layouts}) == 1
    assert done == [(iteration, 40) for iteration in range(41)]
    assert digest(settings.embed(graph, points, seed=4, norms=norms)) != digest(layouts[0])


def test_extra_neighbors_change_nothing_and_inputs_are_unchanged() -> None:
    points, _ = tree(3, 3, 0.7)
    norms, start = np.linalg.norm(points, axis=1), points.copy()
    wide = graph_of(points, 20)
    narrow = wide.nearest(15)
    assert digest(BRIEF.embed(wide, start, seed=0, norms=norms)) == digest(
        BRIEF.embed(narrow, start, seed=0, norms=norms)
    )
    np.testing.assert_array_equal(start, points)
    np.testing.assert_array_equal(norms, np.linalg.norm(points, axis=1))


# Maps


@pytest.mark.parametrize("samples", [None, 100], ids=["all-pairs", "samples"])
def test_tree_keeps_depth_and_neighbors(samples: int | None) -> None:
    points, _ = tree(3, 5, 0.7)
    rows, norms = len(points), np.linalg.norm(points, axis=1)
    start = np.random.default_rng(0).normal(size=(rows, 2))
    settings = COSNE(perplexity=5, negative_samples=samples)
    graph = graph_of(points, settings.neighbors_needed(rows))
    layout = settings.embed(graph, start, seed=0, norms=norms)
    reached = np.linalg.norm(layout, axis=1)
    assert reached[0] < np.quantile(reached, 0.02)  # the root

    def shared(layout: Float64Array) -> float:
        pairs = zip(graph_of(layout, 10).indices, graph.indices[:, :10], strict=True)
        return float(np.mean([np.intersect1d(*pair).size for pair in pairs]))

    # Compared with the random start: a tenth of the depth disorder, and ten times the neighbours.
    scattered = start / (1 + np.linalg.norm(start, axis=1, keepdims=True))
    by_chance = spearmanr(norms, np.linalg.norm(scattered, axis=1)).statistic
    assert 1 - spearmanr(norms, reached).statistic < (1 - by_chance) / 10
    assert shared(layout) > 10 * shared(scattered)


def test_larger_depth_weight_brings_norms_closer() -> None:
    points, _ = tree(3, 4, 0.7)
    rows, norms = len(points), np.linalg.norm(points, axis=1)
    start = np.random.default_rng(0).normal(size=(rows, 2))
    misses = []
    for weight in (None, 0.1, 10.0):
        settings = COSNE(perplexity=5, depth_weight=weight, early_iterations=100, iterations=200)
        graph = graph_of(points, settings.neighbors_needed(rows))
        given = None if weight is None else norms
        misses.append(depth(settings.embed(graph, start, seed=0, norms=given).T, norms))
    assert misses == sorted(misses, reverse=True)
    assert misses[-1] < misses[0] / 20


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("rows", [4, 10])
def test_few_rows_in_the_disk_and_the_ball(rows: int, width: int) -> None:
    points = ball(rows, 4)
    settings = COSNE(early_iterations=30, iterations=30)
    graph = graph_of(points, settings.neighbors_needed(rows))
    layout = settings.embed(graph, points[:, :width], seed=0, norms=np.linalg.norm(points, axis=1))
    assert layout.shape == (rows, width)
    assert layout.dtype == np.float64
    assert np.isfinite(layout).all()
    assert len(np.unique(layout, axis=0)) == rows


def test_equal_rows_stay_finite() -> None:
    graph = graph_of(np.full((40, 2), 0.3), 15)
    assert np.isfinite(BRIEF.embed(graph, np.zeros((40, 2)), seed=0, norms=np.full(40, 0.4))).all()


def test_steps_stay_inside_the_ball() -> None:
    points, _ = tree(3, 4, 0.7)
    settings = COSNE(perplexity=5, gamma=3.0, learning_rate=1e6, early_iterations=10, iterations=10)
    layout = settings.embed(graph_of(points, 15), points, seed=0, norms=np.linalg.norm(points, axis=1))
    assert np.linalg.norm(layout, axis=1).max() <= BALL_RADIUS * (1 + 1e-15)


# Errors


@pytest.mark.parametrize(
    "settings",
    [
        {"perplexity": 0.5},
        {"gamma": 0.0},
        {"divergence_weight": -1.0},
        {"depth_weight": -1.0},
        {"early_exaggeration": float("inf")},
        {"learning_rate": 0.0},
        {"iterations": -1},
        {"negative_samples": 0},
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=rf"COSNE\n{next(iter(settings))}\n"):
        COSNE(**settings)


def test_too_large_a_perplexity_and_too_few_rows_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"CO-SNE's perplexity is 9, which needs 27 .* is 3"):
        COSNE(perplexity=9).neighbors_needed(10)
    with pytest.raises(DataError, match=r"CO-SNE cannot embed 3 rows\. Give it at least 4"):
        COSNE().neighbors_needed(3)


@pytest.mark.parametrize(
    ("norms", "text"),
    [
        (np.zeros(39), r"one norm for each of 40 rows, got norms of shape \(39,\)"),
        (np.append(np.zeros(39), 1.0), "Row 39 has norm 1.0. Points of a Poincaré ball"),
        (np.append(np.nan, np.zeros(39)), "Row 0 has norm nan"),
        (np.append(-0.1, np.zeros(39)), "Row 0 has norm -0.1"),
    ],
)
def test_norms_outside_the_ball_are_refused(norms: Float64Array, text: str) -> None:
    with pytest.raises(DataError, match=text):
        BRIEF.embed(graph_of(ball(40, 2), 15), np.zeros((40, 2)), seed=0, norms=norms)
