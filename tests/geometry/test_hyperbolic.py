"""Hyperbolic distances stay precise near the boundary, and the models are one space."""

from __future__ import annotations

from decimal import Decimal, getcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydr.arrays import Float64Array
from raydr.errors import DataError
from raydr.geometry.hyperbolic import (
    FARTHEST_RADIUS,
    Hyperboloid,
    contained,
    exponential_map,
    from_ball,
    logarithm_map,
    moved,
    on_hyperboloid,
    seen_from,
    squared_distances,
    to_ball,
)
from raydr.geometry.neighbors import nearest_neighbors

getcontext().prec = 60


def random_points(rows: int, dimensions: int, radius: float, seed: int) -> Float64Array:
    """Radii uniform up to ``radius``, at curvature -1."""
    random = np.random.default_rng(seed)
    directions = random.normal(size=(rows, dimensions))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return exponential_map(directions * random.uniform(0, radius, (rows, 1)))


def lorentz_product(a: Float64Array, b: Float64Array) -> Float64Array:
    """Equation (12) along the last axis."""
    return np.asarray(a[..., 0] * b[..., 0] - (a[..., 1:] * b[..., 1:]).sum(axis=-1))


def boost(point: Float64Array) -> Float64Array:
    """Matrix of the boost that takes (1, 0, ..., 0) to the point."""
    space = point[1:]
    matrix = np.zeros((point.size, point.size))
    matrix[0], matrix[:, 0] = point, point
    matrix[1:, 1:] = np.eye(space.size) + np.outer(space, space) / (1 + point[0])
    return matrix


def exact_distance(a: Float64Array, b: Float64Array) -> float:
    """Return equation (14) in 60 digits for points with these space coordinates."""
    x, y = ([Decimal(float(value)) for value in point[1:]] for point in (a, b))
    times = [(1 + sum(value * value for value in point)).sqrt() for point in (x, y)]
    product = times[0] * times[1] - sum(p * q for p, q in zip(x, y, strict=True))
    return float((product + max(product * product - 1, Decimal(0)).sqrt()).ln())


# The two models and the maps between them


@settings(max_examples=50)
@given(
    dimensions=st.integers(1, 12),
    curvature=st.sampled_from([0.5, 1.0, 2.0]),
    scale=st.sampled_from([1e-6, 0.3, 1.0]),
    seed=st.integers(0, 2**32),
)
def test_exponential_map_keeps_radii_and_has_an_inverse(
    dimensions: int, curvature: float, scale: float, seed: int
) -> None:
    features = 2 * scale * np.random.default_rng(seed).normal(size=(20, dimensions))
    points = exponential_map(features, curvature)
    origin = np.eye(1, dimensions + 1)
    radii = np.sqrt(squared_distances(origin, points, curvature))[0]
    np.testing.assert_allclose(radii, np.linalg.norm(features, axis=1), rtol=1e-12)
    np.testing.assert_allclose(logarithm_map(points, curvature), features, rtol=1e-12)
    np.testing.assert_allclose(from_ball(to_ball(points)), points, rtol=1e-6, atol=1e-15)
    np.testing.assert_allclose(lorentz_product(points, points), 1.0, atol=1e-15 * points[:, 0].max() ** 2)


def test_origin_is_the_same_in_every_model() -> None:
    for points in (exponential_map(np.zeros((1, 3))), from_ball(np.zeros((1, 3)))):
        np.testing.assert_array_equal(points, np.eye(1, 4))
        np.testing.assert_array_equal(logarithm_map(points), np.zeros((1, 3)))


def test_seen_from_is_the_boost_and_moved_is_its_inverse() -> None:
    points, origins = random_points(30, 4, 5.0, 0), random_points(30, 4, 5.0, 1)
    directions, distances = seen_from(origins[:, None], points)
    boosted = np.stack([points @ np.linalg.inv(boost(origin)).T for origin in origins])
    np.testing.assert_allclose(directions, boosted[..., 1:], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(np.cosh(distances), boosted[..., 0], rtol=1e-6)
    lengths = np.linalg.norm(directions, axis=2, keepdims=True)
    walked = moved(origins[:, None], directions / lengths * distances[..., None])
    np.testing.assert_allclose(walked, np.broadcast_to(points, walked.shape), rtol=1e-7, atol=1e-7)


def test_step_has_the_requested_length() -> None:
    points = random_points(40, 3, 12.0, 2)
    steps = np.random.default_rng(3).normal(size=(40, 3))
    reached = moved(points, steps)
    lengths = [np.sqrt(squared_distances(points[i : i + 1], reached[i : i + 1]))[0, 0] for i in range(40)]
    np.testing.assert_allclose(lengths, np.linalg.norm(steps, axis=1), rtol=1e-9)
    np.testing.assert_array_equal(moved(points, np.zeros((40, 3))), points)


def test_distant_points_are_pulled_back_radially() -> None:
    points = random_points(50, 3, 10.0, 4)
    pulled = contained(points, 6.0)
    near = np.arccosh(points[:, 0]) <= 6.0
    np.testing.assert_array_equal(pulled[near], points[near])
    np.testing.assert_allclose(np.arccosh(pulled[~near, 0]), 6.0)
    with np.errstate(invalid="ignore"):
        turned = pulled[:, 1:] / points[:, 1:]
    np.testing.assert_allclose(turned, np.broadcast_to(turned[:, :1], turned.shape), rtol=1e-12)


# Distances


@pytest.mark.parametrize("radius", [1e-3, 1.0, 6.0, 12.2, 20.0])
def test_distances_equal_equation_14_within_coordinate_precision(radius: float) -> None:
    points = random_points(25, 3, radius, 5)
    found = np.sqrt(squared_distances(points, points))
    exact = [[exact_distance(a, b) for b in points] for a in points]
    np.testing.assert_allclose(found, exact, rtol=1e-13, atol=4e-16 * np.exp(radius))
    assert not found.diagonal().any()


def test_close_points_near_the_boundary_stay_distinct() -> None:
    """|u| = 1 - 1e-5, a millionth apart: the arcosh of (14) sees nothing there."""
    point = from_ball(np.array([[1 - 1e-5, 0.0]]))
    near = moved(np.repeat(point, 20, axis=0), 1e-6 * np.random.default_rng(6).normal(size=(20, 2)))
    found = np.sqrt(squared_distances(point, near))[0]
    exact = np.array([exact_distance(point[0], other) for other in near])
    np.testing.assert_allclose(found, exact, rtol=1e-3)
    naive = np.arccosh(np.maximum(lorentz_product(point, near), 1.0))
    assert np.abs(naive - exact).max() > 100 * np.abs(exact).max()


def test_distances_in_the_ball_equal_equation_15() -> None:
    ball = to_ball(random_points(20, 4, 4.0, 7))
    apart = ((ball[:, None] - ball) ** 2).sum(axis=2)
    inner = 1 - (ball**2).sum(axis=1)
    expected = np.arccosh(1 + 2 * apart / np.outer(inner, inner))
    np.testing.assert_allclose(
        np.sqrt(Hyperboloid(from_ball(ball)).squared_distance_block(0, 20)), expected, atol=1e-7
    )


@pytest.mark.parametrize("curvature", [0.5, 2.0])
def test_curvature_only_scales_distances(curvature: float) -> None:
    points = random_points(15, 3, 5.0, 8)
    np.testing.assert_allclose(
        curvature * squared_distances(points, points, curvature),
        squared_distances(points, points),
        rtol=1e-14,
    )


def test_small_features_are_almost_euclidean() -> None:
    features = 1e-4 * np.random.default_rng(9).normal(size=(20, 5))
    euclidean = ((features[:, None] - features) ** 2).sum(axis=2)
    points = exponential_map(features)
    np.testing.assert_allclose(squared_distances(points, points), euclidean, rtol=1e-6)


# The geometry


def test_blocks_equal_the_whole_and_self_distance_is_0() -> None:
    geometry = Hyperboloid(random_points(30, 3, 12.0, 10), 0.7)
    whole = geometry.squared_distance_block(0, 30)
    assert geometry.rows == 30
    assert not whole.diagonal().any()
    np.testing.assert_array_equal(whole, whole.T)
    np.testing.assert_array_equal(geometry.squared_distance_block(7, 19), whole[7:19])
    order = np.random.default_rng(11).permutation(30)[:12]
    np.testing.assert_array_equal(
        geometry.take(order).squared_distance_block(0, 12), whole[np.ix_(order, order)]
    )
    np.testing.assert_allclose(geometry.ball, to_ball(geometry.points))


@pytest.mark.parametrize("radius", [2.0, 12.2])
def test_nearest_neighbors_equal_the_exact_search(radius: float) -> None:
    points = random_points(60, 3, radius, 12)
    graph = nearest_neighbors(Hyperboloid(points, 2.0), 5, block_rows=16)
    exact = np.array([[exact_distance(a, b) for b in points] for a in points])
    np.fill_diagonal(exact, np.inf)
    np.testing.assert_array_equal(graph.indices, np.argsort(exact, axis=1)[:, :5])
    np.testing.assert_allclose(graph.distances, np.sort(exact, axis=1)[:, :5] / np.sqrt(2.0), rtol=1e-6)


# Errors


def test_rows_outside_the_ball_are_named() -> None:
    with pytest.raises(
        DataError, match=r"norms below 1, but row 2 has norm 1.25 \(2 such rows\).*method.points"
    ):
        from_ball(np.array([[0.1, 0.2], [0.0, 0.0], [0.75, 1.0], [1.0, 0.0]]))


def test_rows_next_to_the_boundary_are_named() -> None:
    from_ball(np.array([[0.0, 1 - 1e-8]]))
    with pytest.raises(DataError, match=r"row 1 at radius 28.*boundary of the ball.*data.scale"):
        from_ball(np.array([[0.0, 0.0], [0.0, 1 - 1e-12]]))
    exponential_map(np.array([[FARTHEST_RADIUS / np.sqrt(2)]]), 2.0)
    for far in (21.0, 1e6, 1e300):
        with pytest.raises(DataError, match=r"row 1 at radius .* \(data.scale\).* \(now 2\)"):
            exponential_map(np.array([[1.0, 0.0], [far, far]]), 2.0)


def test_points_accepted_by_a_map_are_accepted_by_the_geometry() -> None:
    """Rounding in a later check must not refuse the farthest row."""
    for seed in range(50):
        direction = np.random.default_rng(seed).normal(size=(1, 7))
        points = exponential_map(FARTHEST_RADIUS * (1 - 1e-12) * direction / np.linalg.norm(direction))
        again = from_ball(to_ball(points)) if seed % 2 else points
        Hyperboloid(again).take(np.array([0]))


@pytest.mark.parametrize(
    ("points", "words"),
    [
        (np.array([[1.0, 0.0], [2.0, 1.0]]), r"row 1 of the points has 2 instead of 1.41421"),
        (np.array([[-1.0, 0.0]]), r"has -1 instead of 1"),
        (np.array([[1.0]]), r"at least one more, but the points has 1 column"),
        (np.array([[1.0, np.nan]]), r"row 0, column 1 of the points is nan"),
        (np.ones(3), r"shape \(3,\)"),
        (np.zeros((0, 3)), r"shape \(0, 3\)"),
        (on_hyperboloid(np.array([[1e12, 0.0]])), r"row 0 at radius 28"),
    ],
)
def test_points_off_the_hyperboloid_are_refused(points: Float64Array, words: str) -> None:
    with pytest.raises(DataError, match=words):
        Hyperboloid(points)


@pytest.mark.parametrize("curvature", [0.0, -1.0, np.nan, np.inf])
def test_curvature_must_be_positive(curvature: float) -> None:
    for refused in (
        lambda: Hyperboloid(np.eye(1, 3), curvature),
        lambda: exponential_map(np.ones((1, 2)), curvature),
        lambda: squared_distances(np.eye(1, 3), np.eye(1, 3), curvature),
    ):
        with pytest.raises(DataError, match=r"method\.curvature is"):
            refused()


def test_other_unusable_values_are_refused() -> None:
    with pytest.raises(DataError, match="first table has dimension 2 and the second 3"):
        squared_distances(np.eye(1, 3), np.eye(1, 4))
