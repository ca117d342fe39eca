"""Hyperbolic trilateration is exact if anchors span the space, and has zero stress otherwise."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydr.arrays import Float64Array
from raydr.data.hierarchy import graph_points, tree_points
from raydr.errors import DataError
from raydr.geometry.hyperbolic import (
    Hyperboloid,
    contained,
    exponential_map,
    from_ball,
    moved,
    on_hyperboloid,
    seen_from,
    squared_distances,
)
from raydr.geometry.neighbors import nearest_neighbors
from raydr.methods.sense.frames import residual_factor
from raydr.methods.sense.lorentz import LorentzFrame, lorentz_frame
from raydr.methods.sense.lorentz_descent import descend, random_start, refine
from raydr.methods.sense.lorentz_geometry import ALIGNMENT, ExpectedHyperboloid
from raydr.metrics.neighborhood import shared_neighbors


def f_score(true: Float64Array, found: Float64Array) -> float:
    """Return the share of the 10 nearest neighbours that are found."""
    tables = [nearest_neighbors(Hyperboloid(points), 10).indices for points in (true, found)]
    return float(shared_neighbors(*tables).sum() / tables[0].size)


def distance_error(true: Float64Array, found: Float64Array) -> float:
    a, b = (np.sqrt(squared_distances(points, points)) for points in (true, found))
    return float(np.linalg.norm(a - b) / np.linalg.norm(a))


def boosted(points: Float64Array, towards: Float64Array) -> Float64Array:
    """Isometry that takes the origin to ``towards``, by the matrix of the boost."""
    time, space = towards[0], towards[1:]
    matrix = np.block(
        [[time, space], [space[:, None], np.eye(space.size) + np.outer(space, space) / (1 + time)]]
    )
    return on_hyperboloid((points @ matrix.T)[:, 1:])


def isometric(
    points: Float64Array, dimensions: int, rapidity: float, random: np.random.Generator
) -> Float64Array:
    """Return the same configuration in more dimensions: rotate at random, then boost."""
    space = np.hstack([points[:, 1:], np.zeros((len(points), dimensions - points.shape[1] + 1))])
    space = space @ np.linalg.qr(random.normal(size=(dimensions, dimensions)))[0]
    direction = random.normal(size=(1, dimensions))
    towards = exponential_map(rapidity * direction / np.linalg.norm(direction))[0]
    return boosted(on_hyperboloid(space), towards)


def sample(points: Float64Array, count: int, seed: int = 0) -> Float64Array:
    return points[np.random.default_rng(seed).choice(len(points), count, replace=False)]


def placed(frame: LorentzFrame, squared: Float64Array) -> Float64Array:
    """Place rows as in the pointwise regime: all residuals in one direction."""
    coordinates, heights = frame.located(squared)
    return frame.points(coordinates, heights[:, None][:, : frame.codimension])


def dropped(frame: LorentzFrame, squared: Float64Array) -> Float64Array:
    """The nearest points of the anchors' span."""
    coordinates, heights = frame.located(squared)
    return frame.points(coordinates / np.sqrt(1 + heights[:, None] ** 2), np.zeros((len(heights), 0)))


def solved(points: Float64Array, anchors: Float64Array, curvature: float = 1.0) -> Float64Array:
    return placed(lorentz_frame(anchors, curvature), squared_distances(points, anchors, curvature))


def random_tree(nodes: int, random: np.random.Generator) -> Float64Array:
    return np.array([(random.integers(child // 4, child), child) for child in range(1, nodes)])


def loaded(data_dir: Path, name: str) -> Float64Array:
    file, key = {
        "airport-4": ("airport", "X"),
        "airport-5": ("airport", "feat5"),
        "disease": ("disease_lp", "X"),
    }[name]
    with np.load(data_dir / f"{file}.npz", allow_pickle=False) as arrays:
        features = arrays[key].astype(np.float64)
    return np.asarray((features - features.mean(axis=0)) / features.std(axis=0))


# Exact recovery


@settings(max_examples=60)
@given(
    dimensions=st.integers(1, 8),
    surplus=st.integers(1, 6),
    radius=st.sampled_from([1e-4, 0.1, 1.0, 6.0, 12.2]),
    curvature=st.sampled_from([0.5, 1.0, 2.0]),
    seed=st.integers(0, 2**32),
)
def test_rows_are_recovered_from_anchors_in_general_position(
    dimensions: int, surplus: int, radius: float, curvature: float, seed: int
) -> None:
    """The points are recovered in the anchors' coordinates, not only their distances."""
    random = np.random.default_rng(seed)
    directions = random.normal(size=(40, dimensions))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    points = exponential_map(
        radius * random.uniform(0.05, 1, (40, 1)) * directions / np.sqrt(curvature), curvature
    )
    anchors = exponential_map(
        np.vstack([np.zeros((1, dimensions)), np.eye(dimensions), random.normal(size=(surplus, dimensions))])
        * (radius / max(2.0, radius) / np.sqrt(curvature)),
        curvature,
    )
    found = solved(points, anchors, curvature)
    assert lorentz_frame(anchors, curvature).rank == dimensions
    apart = np.sqrt(np.diagonal(squared_distances(points, found)))
    assert apart.max() <= 1e-10 * max(1.0, np.exp(radius) / 100)


@pytest.mark.parametrize(("name", "curvature"), [("airport-4", 1.0), ("airport-5", 0.5), ("disease", 2.0)])
def test_real_rows_are_exact_from_d_plus_1_anchors(data_dir: Path, name: str, curvature: float) -> None:
    points = exponential_map(loaded(data_dir, name), curvature)[::2]
    for count in (points.shape[1], 2 * points.shape[1]):
        found = solved(points, sample(points, count), curvature)
        assert distance_error(points, found) <= 1e-6
        assert f_score(points, found) >= 0.999


@pytest.mark.parametrize("name", ["airport-4", "disease"])
@pytest.mark.parametrize("farthest", [1 - 1e-5, 1 - 1e-8])
@pytest.mark.parametrize("layout", ["scaled", "all", "half"])
def test_rows_and_anchors_next_to_the_boundary_are_exact(
    data_dir: Path, name: str, farthest: float, layout: str
) -> None:
    features = loaded(data_dir, name)[::4]
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    radius = 2 * np.arctanh(farthest)
    if layout == "scaled":
        features *= radius / norms.max()
    else:
        features *= (
            np.where((np.arange(len(features)) % 2 == 0)[:, None] | (layout == "all"), radius, 1.0) / norms
        )
    points = exponential_map(features)
    found = solved(points, sample(points, points.shape[1]))
    assert distance_error(points, found) <= 1e-6
    assert f_score(points, found) >= 0.999


@pytest.mark.parametrize("radii", [[1e-4], [1e-2, 20.0]])
def test_solution_is_more_precise_than_the_literal_equations(radii: list[float]) -> None:
    """The references solve x o a_j = cosh d_j by least squares and by the anchors' Gram matrix."""
    random = np.random.default_rng(0)
    features = random.normal(size=(300, 4))
    features *= random.choice(radii, (300, 1)) / np.linalg.norm(features, axis=1, keepdims=True)
    points = exponential_map(random.uniform(0.9, 1.0, (300, 1)) * features)
    anchors = points[:9]
    products = np.cosh(np.sqrt(squared_distances(points, anchors))).T
    metric = np.diag([1.0, -1.0, -1.0, -1.0, -1.0])
    least_squares = np.linalg.lstsq(anchors @ metric, products, rcond=None)[0].T
    gram = (np.linalg.pinv(anchors @ metric @ anchors.T, rcond=1e-13) @ products).T @ anchors
    literal = [
        distance_error(points, contained(on_hyperboloid(found[:, 1:]), 20.0))
        for found in (least_squares, gram)
    ]
    found = distance_error(points, solved(points, anchors))
    assert found < 1e-11
    assert min(literal) > 1e-10
    assert max(literal) > (1e-8 if len(radii) == 1 else 1e-3)


@pytest.mark.parametrize("rapidity", [0.5, 3.0])
def test_isometry_of_rows_and_anchors_changes_no_distance(rapidity: float) -> None:
    random = np.random.default_rng(1)
    points = exponential_map(random.normal(size=(60, 6)))
    anchors = sample(points, 5)
    there = random.permutation(60)
    towards = exponential_map(rapidity * np.eye(1, 6))[0]
    before, after = solved(points, anchors), solved(boosted(points, towards), boosted(anchors, towards))
    np.testing.assert_allclose(
        squared_distances(after, after[there]), squared_distances(before, before[there]), rtol=1e-6, atol=1e-8
    )


def test_one_distant_anchor_does_not_change_the_centre() -> None:
    """The Lorentz centroid would be close to it, where all other anchors look the same."""
    random = np.random.default_rng(2)
    points = exponential_map(random.normal(size=(100, 3)))
    anchors = np.vstack([points[:4], exponential_map(np.array([[19.0, 0.0, 0.0]]))])
    frame = lorentz_frame(anchors)
    assert np.arccosh(frame.centre[0]) < 4.0
    assert distance_error(points, placed(frame, squared_distances(points, anchors))) < 1e-10


def test_blocks_equal_the_whole() -> None:
    points = exponential_map(2 * np.random.default_rng(3).normal(size=(50, 5)))
    anchors = sample(points, 4)
    frame, squared = lorentz_frame(anchors), squared_distances(points, anchors)
    whole = placed(frame, squared)
    parts = [placed(frame, squared[part]) for part in (slice(0, 1), slice(1, 1), slice(1, 33), slice(33, 50))]
    np.testing.assert_allclose(np.vstack(parts), whole, rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(placed(frame, squared), whole)


# Fewer anchors, or anchors in a subspace


@pytest.mark.parametrize("intrinsic", [2, 3, 4, 5])
def test_low_dimensional_trees_in_eleven_dimensions_are_exact(intrinsic: int) -> None:
    random = np.random.default_rng(intrinsic)
    edges = random_tree(400, random)
    trees = {
        "as long as fits": tree_points(edges, intrinsic, jitter=0.1),
        "short": tree_points(edges, intrinsic, edge_length=1.0, jitter=0.05),
        "trained": graph_points(edges[:150], intrinsic, seed=0, epochs=20),
    }
    for tree in trees.values():
        for rapidity in (0.0, 1.5):
            points = isometric(tree, 11, rapidity, random)
            anchors = sample(points, 10)
            frame = lorentz_frame(anchors)
            found = placed(frame, squared_distances(points, anchors))
            assert frame.rank == intrinsic
            assert distance_error(points, found) <= 1e-6
            assert f_score(points, found) >= 0.999


def projection(points: Float64Array, anchors: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Lorentz-orthogonal projection onto the anchors' span by a Gram matrix, and the height above it."""
    metric = np.diag([1.0] + [-1.0] * (anchors.shape[1] - 1))
    shares = np.linalg.lstsq(anchors @ metric @ anchors.T, anchors @ metric @ points.T, rcond=None)[0]
    inside = shares.T @ anchors
    aside = points - inside
    return inside, np.sqrt(np.maximum(-np.einsum("ij,jk,ik->i", aside, metric, aside), 0.0))


@pytest.mark.parametrize("count", [2, 3, 5, 7])
def test_rows_are_a_minimum_norm_solution_and_a_height(count: int) -> None:
    points = exponential_map(np.random.default_rng(count).normal(size=(40, 7)), 2.0)
    anchors = points[:count]
    frame = lorentz_frame(anchors, 2.0)
    squared = squared_distances(points, anchors, 2.0)
    inside, heights = projection(points, anchors)
    assert (frame.rank, frame.codimension) == (count - 1, 8 - count)
    np.testing.assert_allclose(frame.located(squared)[1], heights, rtol=1e-6, atol=1e-6)
    shared, inner = placed(frame, squared), dropped(frame, squared)
    np.testing.assert_allclose(projection(shared, anchors)[0], inside, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(inner, inside / np.sqrt(1 + heights[:, None] ** 2), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(squared_distances(shared, anchors, 2.0), squared, rtol=1e-7, atol=1e-7)
    # One shared direction: rows with equal projections differ only in height.
    aside = shared - projection(shared, anchors)[0]
    assert np.linalg.matrix_rank(aside, tol=1e-6) == 1
    assert (aside @ aside[-1] >= -1e-9).all()


def test_dependent_anchors_are_cut_to_their_rank() -> None:
    random = np.random.default_rng(4)
    points = exponential_map(random.normal(size=(50, 6)))
    plane = isometric(exponential_map(random.normal(size=(9, 2))), 6, 2.0, random)
    again = np.vstack([plane, plane[:3]])
    for anchors in (plane, again, moved(again, 1e-13 * random.normal(size=(12, 6)))):
        frame = lorentz_frame(anchors)
        assert frame.rank == 2
        squared = squared_distances(points, anchors)
        np.testing.assert_allclose(
            squared_distances(placed(frame, squared), anchors), squared, rtol=1e-9, atol=1e-9
        )


@settings(max_examples=40)
@given(narrowest=st.floats(-15, 0), seed=st.integers(0, 2**32))
def test_kept_directions_are_not_noise(narrowest: float, seed: int) -> None:
    """Distances between rows as flat as the anchors are correct for any shape of the anchors."""
    random = np.random.default_rng(seed)
    flat = np.array([1.0, 1.0, 1.0, 10.0**narrowest])
    anchors, points = (exponential_map(random.normal(size=(rows, 4)) * flat) for rows in (8, 40))
    assert distance_error(points, solved(points, anchors)) < 1e-5


def test_only_rows_outside_the_anchors_span_have_a_height() -> None:
    random = np.random.default_rng(5)
    tree = np.vstack([exponential_map(random.normal(size=(30, 3))), exponential_map(9.0 * np.eye(3))])
    points = isometric(tree, 8, 1.0, random)
    frame = lorentz_frame(points[:6])
    off = moved(points, 1e-3 * random.normal(size=(33, 8)))
    assert not frame.located(squared_distances(points, points[:6]))[1].any()
    found = frame.located(squared_distances(off, points[:6]))[1]
    expected = np.linalg.norm(seen_from(frame.centre, off)[0] @ frame.complement.T, axis=1)
    np.testing.assert_allclose(found[:30], expected[:30], rtol=1e-3)


# Within a client


@pytest.mark.parametrize("radius", [1.0, 10.0])
def test_residual_factor_makes_distances_within_a_client_exact(radius: float) -> None:
    random = np.random.default_rng(6)
    features = random.normal(size=(60, 9))
    points = exponential_map(radius * features / np.linalg.norm(features, axis=1).max())
    frame = lorentz_frame(points[:6])
    squared = squared_distances(points, points[:6])
    for rows in (slice(6, 36), slice(36, 60), slice(6, 8)):
        factor = residual_factor(frame, points[rows])
        own = len(points[rows])
        assert factor.shape == (own, min(own, 4))
        found = frame.points(frame.located(squared[rows])[0], factor)
        assert distance_error(points[rows], found) < 1e-7
        if own > 2:
            assert distance_error(points[rows], placed(frame, squared[rows])) > 0.005
    np.testing.assert_allclose(np.linalg.norm(factor, axis=1), frame.located(squared[6:8])[1], rtol=1e-6)


def test_residual_factor_does_not_reveal_directions() -> None:
    """Rotate the complement, which changes no distance to the anchors or within the client."""
    random = np.random.default_rng(7)
    points = exponential_map(random.normal(size=(30, 8)))
    frame = lorentz_frame(points[:5])
    basis = np.concatenate([frame.spanned, frame.complement])
    space = seen_from(frame.centre, points)[0] @ basis.T
    turned = space.copy()
    turned[:, 4:] = space[:, 4:] @ np.linalg.qr(random.normal(size=(4, 4)))[0]
    again = boosted(on_hyperboloid(turned @ basis), frame.centre)
    factor = residual_factor(frame, points)
    np.testing.assert_allclose(residual_factor(frame, again), factor, atol=1e-9)
    np.testing.assert_allclose(factor @ factor.T, space[:, 4:] @ space[:, 4:].T, atol=1e-9)


# Stress


@pytest.mark.parametrize("count", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_default_placement_beats_random_starts(data_dir: Path, count: int) -> None:
    """Pointwise, d - 1 anchors: compare with dropped and random residuals, and with descent."""
    points = exponential_map(loaded(data_dir, "disease"))[::5]
    anchors = sample(points, 10)
    frame, squared = lorentz_frame(anchors), squared_distances(points, anchors)
    heights = frame.located(squared)[1]
    random = np.random.default_rng(8)
    score = f_score(points, placed(frame, squared))
    expected = nearest_neighbors(ExpectedHyperboloid(placed(frame, squared), heights), 10).indices
    assert (
        shared_neighbors(expected, nearest_neighbors(Hyperboloid(points), 10).indices).sum() / expected.size
        > score
    )
    starts = [random_start(len(points), anchors, random) for _ in range(count)]
    ends = [refine(start, anchors, squared, steps=60) for start in starts]
    assert score >= max(f_score(points, end.points) for end in ends)
    angles = random.uniform(0, 2 * np.pi, len(points))
    anywhere = heights[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert score > f_score(points, frame.points(frame.located(squared)[0], anywhere))
    assert score > f_score(points, dropped(frame, squared))
    assert refine(placed(frame, squared), anchors, squared, steps=0).stress.sum() < 1e-15


def test_refinement_never_raises_the_stress_of_any_row() -> None:
    random = np.random.default_rng(9)
    points = exponential_map(random.normal(size=(50, 4)), 2.0)
    anchors = sample(points, 9)
    squared = squared_distances(points, anchors, 2.0) * random.uniform(0.8, 1.2, (50, 9))
    start = random_start(50, anchors, random)
    ends = [refine(start, anchors, squared, curvature=2.0, steps=steps) for steps in range(12)]
    for before, after in pairwise(ends):
        assert (after.stress <= before.stress).all()
    literal = ((np.sqrt(squared_distances(ends[-1].points, anchors, 2.0)) - np.sqrt(squared)) ** 2).sum(
        axis=1
    )
    np.testing.assert_allclose(ends[-1].stress, literal, rtol=1e-12)


def test_refinement_ends_where_the_gradient_vanishes() -> None:
    random = np.random.default_rng(10)
    points = exponential_map(random.normal(size=(20, 3)))
    anchors = sample(points, 8)
    squared = squared_distances(points, anchors) * random.uniform(0.8, 1.2, (20, 8))
    end = refine(random_start(20, anchors, random), anchors, squared, steps=500, tolerance=0.0)
    far = np.sqrt(squared_distances(end.points, anchors)).min(axis=1) > 1e-3  # stress has a kink at an anchor
    assert far.sum() > 15
    for axis in range(3):
        step = np.zeros((20, 3))
        step[:, axis] = 1e-5
        up, down = (
            refine(moved(end.points, way * step), anchors, squared, steps=0).stress for way in (1, -1)
        )
        np.testing.assert_allclose((up - down)[far] / 2e-5, 0.0, atol=1e-5)


def test_refinement_uses_distances_within_the_client() -> None:
    """Three anchors in five dimensions leave a lot open, which distances among the rows determine."""
    random = np.random.default_rng(11)
    points = exponential_map(random.normal(size=(25, 5)))
    anchors = points[:3]
    squared, within = squared_distances(points, anchors), squared_distances(points, points)
    start = placed(lorentz_frame(anchors), squared)
    shaken = moved(start, 0.1 * random.normal(size=(25, 5)))
    several = (*range(12), 300)
    ends = [refine(shaken, anchors, squared, within=within, steps=steps) for steps in several]
    totals = [end.stress.sum() for end in ends]
    assert (np.diff(totals) <= 0).all()
    end = ends[-1]
    pairs = np.triu_indices(25, 1)
    errors = [
        np.sqrt(squared_distances(end.points, points)) - np.sqrt(given)
        for points, given in ((anchors, squared), (end.points, within))
    ]
    assert totals[-1] == pytest.approx((errors[0] ** 2).sum() + (errors[1][pairs] ** 2).sum())
    assert totals[-1] < 0.02 * totals[0]
    assert distance_error(points, end.points) < 0.5 * distance_error(points, start)
    exact = refine(points, anchors, squared, within=within)
    assert exact.stress.sum() < 1e-20


def test_noisy_distances_are_fitted_by_least_squares() -> None:
    """The error is half that of the linear solution, and close to the noise."""
    random = np.random.default_rng(12)
    points = exponential_map(2.0 * random.normal(size=(200, 3)))
    anchors = sample(points, 40)
    distances = np.sqrt(squared_distances(points, anchors))
    noisy = np.maximum(distances + 1e-2 * random.normal(size=distances.shape), 0.0) ** 2
    found = placed(lorentz_frame(anchors, noise=1e-2), noisy)
    stress = refine(found, anchors, noisy, steps=0).stress
    again = refine(found, anchors, noisy, steps=200).stress
    assert np.median(stress / again) < 1.5
    assert distance_error(points, found) < 2e-2


def test_row_on_an_anchor_stays_there() -> None:
    points = exponential_map(np.random.default_rng(13).normal(size=(10, 3)))
    squared = squared_distances(points, points)
    end = descend(points, points, np.sqrt(squared), steps=5)
    np.testing.assert_allclose(end.points, points, atol=1e-12)
    np.testing.assert_allclose(solved(points, points), points, atol=1e-9)


# Expected distances


def expected_distances(
    points: Float64Array, heights: Float64Array, curvature: float, alignment: float
) -> Float64Array:
    """Literal cosh, with the cosine between residuals replaced by its expectation."""
    cosh = points[:, :1] * points[:, 0] - points[:, 1:] @ points[:, 1:].T
    cosh += (1 - alignment) * np.outer(heights, heights)
    np.fill_diagonal(cosh, 1.0)
    return np.asarray(np.arccosh(np.maximum(cosh, 1.0)) ** 2 / curvature)


@pytest.mark.parametrize("alignment", [0.0, 0.7])
def test_expected_distances_replace_the_cosine_between_residuals(alignment: float) -> None:
    random = np.random.default_rng(15)
    points = exponential_map(random.normal(size=(30, 5)), 2.0)
    heights = random.uniform(0, 2, 30)
    geometry = ExpectedHyperboloid(points, heights, 2.0, alignment)
    literal = expected_distances(points, heights, 2.0, alignment)
    block = geometry.squared_distance_block(0, 30)
    np.testing.assert_allclose(block, literal, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(block, block.T)
    assert not block.diagonal().any()
    np.testing.assert_array_equal(geometry.squared_distance_block(7, 19), block[7:19])
    order = random.permutation(30)[:11]
    np.testing.assert_array_equal(
        geometry.take(order).squared_distance_block(0, 11), block[np.ix_(order, order)]
    )
    np.testing.assert_array_equal(geometry.ball, Hyperboloid(points).ball)


def test_expected_distances_without_residuals_are_distances() -> None:
    points = exponential_map(np.random.default_rng(16).normal(size=(20, 3)) * 3)
    for geometry in (
        ExpectedHyperboloid(points, np.zeros(20)),
        ExpectedHyperboloid(points, np.ones(20), alignment=1.0),
    ):
        block = geometry.squared_distance_block(3, 11)
        np.testing.assert_array_equal(block, Hyperboloid(points).squared_distance_block(3, 11))


def test_expected_distances_beat_those_of_any_placement() -> None:
    """Residuals scattered around a common direction, eleven features, seven anchors."""
    points = exponential_map(np.random.default_rng(17).normal(size=(300, 11)))
    anchors = points[:7]
    frame, squared = lorentz_frame(anchors), squared_distances(points, anchors)
    shared, heights = placed(frame, squared), frame.located(squared)[1]
    true = np.sqrt(squared_distances(points, points))
    error = {
        name: np.linalg.norm(np.sqrt(geometry.squared_distance_block(0, 300)) - true) / np.linalg.norm(true)
        for name, geometry in {
            "expected": ExpectedHyperboloid(shared, heights),
            "shared": Hyperboloid(shared),
            "dropped": Hyperboloid(dropped(frame, squared)),
        }.items()
    }
    assert error["expected"] < 0.5 * error["shared"]
    assert error["expected"] < 0.5 * error["dropped"]


def test_invalid_residuals_are_refused() -> None:
    points = exponential_map(np.eye(3))
    with pytest.raises(DataError, match=r"one height for each of 3 points, got \(2,\)"):
        ExpectedHyperboloid(points, np.zeros(2))
    with pytest.raises(DataError, match="finite and not negative"):
        ExpectedHyperboloid(points, np.array([0.0, -1.0, 0.0]))
    with pytest.raises(DataError, match=r"from 0 to 1, got 1\.5"):
        ExpectedHyperboloid(points, np.zeros(3), alignment=1.5)


# Errors


def test_too_few_anchors_are_refused() -> None:
    with pytest.raises(DataError, match=r"at least 2 different anchors, got 1. Raise method.anchors"):
        lorentz_frame(np.eye(1, 4))
    for one in (np.eye(1, 4).repeat(5, axis=0), exponential_map(np.full((3, 2), 4.0))):
        with pytest.raises(DataError, match=r"anchors are practically one point .*data.scale"):
            lorentz_frame(one)


def test_anchors_outside_the_model_are_refused() -> None:
    with pytest.raises(DataError, match="row 1 of the anchors has 3 instead of 1"):
        lorentz_frame(np.array([[1.0, 0.0], [3.0, 0.0]]))
    with pytest.raises(DataError, match=r"row 0 has norm 1\.5"):
        lorentz_frame(from_ball(np.array([[1.5, 0.0], [0.0, 0.0]])))
    with pytest.raises(DataError, match=r"method\.curvature"):
        lorentz_frame(exponential_map(np.eye(2)), curvature=0.0)
    with pytest.raises(DataError, match="noise of distances must be a finite number of at least 0, got -1"):
        lorentz_frame(exponential_map(np.eye(2)), noise=-1.0)


def frame_of_three() -> LorentzFrame:
    return lorentz_frame(exponential_map(np.vstack([np.zeros(4), np.eye(4)[:2]])), 2.0)


@pytest.mark.parametrize(
    ("squared", "words"),
    [
        ([[1.0, -0.5, 1.0]], r"from 0 to 800 .* row 0 sent -0.5 for anchor 1"),
        ([[1.0, 1.0, 1.0], [1.0, 1.0, np.nan]], r"row 1 sent nan for anchor 2"),
        ([[np.inf, 1.0, 1.0]], r"row 0 sent inf for anchor 0"),
        ([[1e6, 1.0, 1.0]], r"row 0 sent 1000000.0 .* the same method.curvature"),
        ([[1.0, 1.0]], r"1 rows to 3 points must have shape \(1, 3\), got \(1, 2\)"),
        ([1.0, 1.0, 1.0], r"got \(3,\)"),
    ],
)
def test_unusable_distances_are_refused(squared, words) -> None:
    with pytest.raises(DataError, match=words):
        frame_of_three().located(np.array(squared))


def test_inconsistent_distances_still_give_valid_points() -> None:
    """No point has these distances; the result is on the hyperboloid, within the accepted radius."""
    random = np.random.default_rng(14)
    anchors = exponential_map(random.normal(size=(6, 4)))
    for squared in (np.zeros((3, 6)), random.uniform(0, 1600, (50, 6)), np.full((2, 6), 1600.0)):
        for count in (6, 3):
            Hyperboloid(placed(lorentz_frame(anchors[:count]), squared[:, :count]))


def test_rows_with_equal_known_parts_are_aligned() -> None:
    rng = np.random.default_rng(0)
    kinds = exponential_map(rng.normal(size=(20, 3)))[rng.integers(0, 20, 300)]
    heights = np.repeat(0.5, 300)
    assert ExpectedHyperboloid(kinds, heights).alignment == 1.0
    scattered = exponential_map(rng.normal(size=(300, 3)))
    assert ExpectedHyperboloid(scattered, heights).alignment == ALIGNMENT
    assert ExpectedHyperboloid(kinds, np.zeros(300)).alignment == ALIGNMENT
    assert ExpectedHyperboloid(kinds, heights, alignment=0.2).alignment == 0.2
