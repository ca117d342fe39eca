"""From distances to landmarks to a geometry: trilateration is exact, and Nystrom equals P1 (22)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydr.arrays import Float64Array, FloatArray
from raydr.errors import DataError
from raydr.geometry.points import Points
from raydr.geometry.points import squared_distances as any_squared_distances
from raydr.geometry.trilateration import trilaterate, trilateration
from raydr.methods.landmarks.nystrom import NystromGeometry, nystrom
from raydr.metrics import Evidence, evaluate


def between(a: Float64Array, b: Float64Array) -> Float64Array:
    """Distances by differences, without any cancellation."""
    return np.asarray(np.sqrt(((a[:, None] - b[None]) ** 2).sum(axis=2)))


def squared_distances(a: FloatArray, b: FloatArray) -> Float64Array:
    """Return the message of a client."""
    return np.asarray(any_squared_distances(a, b), np.float64)


def random_rotation(dimensions: int, seed: int) -> Float64Array:
    matrix = np.random.default_rng(seed).normal(size=(dimensions, dimensions))
    return np.asarray(np.linalg.qr(matrix)[0])


def placed(rows: Float64Array, landmarks: Float64Array) -> Float64Array:
    return trilaterate(landmarks, [squared_distances(rows, landmarks)])[0]


def f_score(rows: Float64Array, coordinates: Float64Array) -> float:
    evidence = Evidence(rows=rows, embedding=np.zeros((len(rows), 2)), recovered=Points(coordinates))
    return float(evaluate(["f_score"], evidence).values["f_score"])


# Trilateration


@settings(max_examples=50)
@given(
    features=st.integers(1, 6),
    surplus=st.integers(1, 20),
    offset=st.sampled_from([0.0, 1.0, 1e4]),
    unit=st.sampled_from([1e-6, 1.0, 1e6]),
    seed=st.integers(0, 2**32),
)
def test_distances_are_exact_where_landmarks_span_the_data(
    features: int, surplus: int, offset: float, unit: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    rows = unit * (offset + random.normal(size=(30, features)))
    landmarks = unit * (offset + random.normal(size=(features + surplus + 3, features)))
    coordinates = placed(rows, landmarks)
    assert coordinates.shape == (30, features)
    true = between(rows, rows)
    np.testing.assert_allclose(between(coordinates, coordinates), true, atol=1e-9 * true.max())


def test_landmarks_spanning_the_data_subspace_are_exact() -> None:
    random = np.random.default_rng(0)
    plane = random.normal(size=(3, 20))
    rows, landmarks = random.normal(size=(40, 3)) @ plane + 5, random.normal(size=(9, 3)) @ plane + 5
    coordinates, solver = trilaterate(landmarks, [squared_distances(rows, landmarks)])
    assert solver.rank == 3
    true = between(rows, rows)
    np.testing.assert_allclose(between(coordinates, coordinates), true, atol=1e-9 * true.max())
    residuals = solver.squared_residuals(squared_distances(rows, landmarks), coordinates)
    np.testing.assert_allclose(residuals, np.zeros(40), atol=1e-9)


@settings(max_examples=30)
@given(landmark_count=st.integers(2, 12), seed=st.integers(0, 2**32))
def test_too_few_landmarks_give_a_projection(landmark_count: int, seed: int) -> None:
    """The residual is the distance from it; the reference projects by least squares."""
    random = np.random.default_rng(seed)
    rows, landmarks = random.normal(size=(25, 15)), random.normal(size=(landmark_count, 15))
    edges = (landmarks[1:] - landmarks[0]).T
    shares = np.linalg.lstsq(edges, (rows - landmarks[0]).T, rcond=None)[0]
    projected = landmarks[0] + (edges @ shares).T
    messages = squared_distances(rows, landmarks)
    coordinates, solver = trilaterate(landmarks, [messages])
    assert solver.rank == landmark_count - 1
    # The basis places the coordinates among the features, so the projections must agree.
    np.testing.assert_allclose(solver.centre + coordinates @ solver.basis, projected, atol=1e-7)
    np.testing.assert_allclose(solver.basis @ solver.basis.T, np.eye(solver.rank), atol=1e-12)
    heights = ((rows - projected) ** 2).sum(axis=1)
    np.testing.assert_allclose(solver.squared_residuals(messages, coordinates), heights, rtol=1e-7, atol=1e-7)


def test_isometry_of_rows_and_landmarks_changes_no_distance() -> None:
    """The map is invariant under the isometry key: x becomes Q(x - s)."""
    random = np.random.default_rng(1)
    rows, landmarks = random.normal(size=(30, 12)), random.normal(size=(7, 12))
    rotation, shift = random_rotation(12, 2), random.normal(size=12)
    before = placed(rows, landmarks)
    after = placed((rows - shift) @ rotation.T, (landmarks - shift) @ rotation.T)
    np.testing.assert_allclose(between(after, after), between(before, before), atol=1e-9)


def test_partition_does_not_change_coordinates() -> None:
    random = np.random.default_rng(3)
    rows, landmarks = random.normal(size=(30, 5)), random.normal(size=(9, 5))
    parts = [rows[:1], rows[1:1], rows[1:20], rows[20:]]
    split = trilaterate(landmarks, [np.sum((part[:, None] - landmarks) ** 2, axis=2) for part in parts])[0]
    whole = trilaterate(landmarks, [np.sum((rows[:, None] - landmarks) ** 2, axis=2)])[0]
    np.testing.assert_allclose(split, whole, atol=1e-13)


def test_features_of_very_different_scales_keep_neighbours() -> None:
    """Scales from 1 to 100,000, as in unscaled credit data; the small features determine the neighbours.

    Messages in float32 would drown them, so the test tells one from the other.
    """
    random = np.random.default_rng(4)
    rows = np.hstack([random.integers(0, 2, (400, 3)) * [1e3, 1e4, 1e5], random.normal(size=(400, 5))])
    landmarks = rows.mean(axis=0) + 0.4 * rows.std(axis=0) * random.normal(size=(50, 8))
    coordinates, solver = trilaterate(landmarks, [squared_distances(rows, landmarks)])
    assert solver.rank == 8
    assert f_score(rows, coordinates) > 0.999
    single = squared_distances(rows.astype(np.float32), landmarks.astype(np.float32))
    assert f_score(rows, trilaterate(landmarks, [single])[0]) < 0.5


@pytest.mark.parametrize("name", ["X", "X_onehot"])
def test_german_credit_is_placed_exactly(data_dir: Path, name: str) -> None:
    """Many neighbours are tied, so the distances are compared and not the neighbours."""
    with np.load(data_dir / "german_credit.npz", allow_pickle=False) as file:
        rows = file[name].astype(np.float64)
    noise = np.random.default_rng(5).normal(size=(2 * rows.shape[1], rows.shape[1]))
    coordinates = placed(rows, rows.mean(axis=0) + 0.4 * rows.std(axis=0) * noise)
    true = Points(rows).squared_distance_block(0, len(rows))
    found = Points(coordinates).squared_distance_block(0, len(rows))
    np.testing.assert_allclose(np.sqrt(found), np.sqrt(true), atol=1e-5)
    turned = rows @ random_rotation(rows.shape[1], 6)
    assert f_score(rows, coordinates) >= f_score(rows, turned) - 0.005


@pytest.mark.parametrize(
    ("landmarks", "rank"),
    [
        (np.outer([0.0, 1.0, 2.0, 3.5], [1.0, 1.0, 1.0]), 1),
        (np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]), 1),
        (np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1e-13]]), 2),
        (np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), 3),
    ],
    ids=["collinear", "duplicates", "nearly planar", "simplex"],
)
def test_directions_below_the_precision_of_distances_are_cut(landmarks: Float64Array, rank: int) -> None:
    rows = np.random.default_rng(6).normal(size=(20, 3)) * 3
    coordinates, solver = trilaterate(landmarks, [squared_distances(rows, landmarks)])
    assert solver.rank == rank
    projected = (rows - landmarks.mean(axis=0)) @ solver.basis.T
    np.testing.assert_allclose(coordinates, projected, atol=1e-5 * np.abs(rows).max())


@settings(max_examples=50)
@given(narrowest=st.floats(-16, 0), seed=st.integers(0, 2**32))
def test_kept_directions_are_not_noise(narrowest: float, seed: int) -> None:
    """For any shape of the landmarks, errors are about a millionth of the data's extent."""
    random = np.random.default_rng(seed)
    landmarks = random.normal(size=(12, 4)) * [1.0, 1.0, 1.0, 10.0**narrowest]
    rows = random.normal(size=(30, 4)) * 10
    coordinates, solver = trilaterate(landmarks, [squared_distances(rows, landmarks)])
    projected = (rows - solver.centre) @ solver.basis.T
    assert np.abs(coordinates - projected).max() < 1e-5 * np.sqrt(squared_distances(rows, landmarks).max())


@pytest.mark.parametrize("landmarks", [np.zeros((3, 2)), np.full((5, 4), 7.3), np.ones((1, 2))])
def test_equal_landmarks_are_refused(landmarks: Float64Array) -> None:
    with pytest.raises(DataError, match=r"landmarks differ by no more .* Scale the data"):
        trilateration(landmarks, 4.0)
    with pytest.raises(DataError, match="landmarks"):
        trilaterate(landmarks, [squared_distances(landmarks, landmarks)])


# Nystrom


def nystrom_22(B: Float64Array, W: Float64Array, ridge: float, tolerance: float) -> Float64Array:
    """P1 (22) with a literal pseudo-inverse of W + lambda I."""
    return np.asarray(B @ np.linalg.pinv(W + ridge * np.eye(len(W)), rcond=tolerance, hermitian=True) @ B.T)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("ridge", [0.0, 0.5])
@pytest.mark.parametrize("tolerance", [1e-10, 0.05])
def test_nystrom_equals_equation_22(squared: bool, ridge: float, tolerance: float) -> None:
    random = np.random.default_rng(7)
    rows, landmarks = random.normal(size=(30, 4)), random.normal(size=(9, 4))
    B, W = between(rows, landmarks), between(landmarks, landmarks)
    if squared:
        B, W = B**2, W**2
    parts = [B[:4], B[4:4], B[4:]]
    geometry = nystrom(parts, W, squared=squared, ridge=ridge, rank_tolerance=tolerance)
    estimate = nystrom_22(B, W, ridge, tolerance)
    expected = estimate if squared else np.sign(estimate) * estimate**2
    scale = np.abs(expected).max()
    block = geometry.squared_distance_block(0, 30)
    assert geometry.rows == 30
    np.testing.assert_allclose(block, expected, atol=1e-9 * scale)
    np.testing.assert_allclose(block, block.T, atol=1e-9 * scale)
    np.testing.assert_allclose(geometry.squared_distance_block(7, 19), expected[7:19], atol=1e-9 * scale)
    order = random.permutation(30)[:11]
    taken = geometry.take(order)
    assert taken.rows == 11
    np.testing.assert_allclose(
        taken.squared_distance_block(0, 11), expected[np.ix_(order, order)], atol=1e-9 * scale
    )


def test_nystrom_on_squared_distances_is_exact_where_their_rank_allows() -> None:
    """Squared distances in d dimensions have rank d + 2, so d + 2 landmarks in general position suffice."""
    random = np.random.default_rng(8)
    rows, landmarks = random.normal(size=(40, 3)), random.normal(size=(5, 3))
    geometry = nystrom([between(rows, landmarks) ** 2], between(landmarks, landmarks) ** 2, squared=True)
    np.testing.assert_allclose(geometry.squared_distance_block(0, 40), between(rows, rows) ** 2, atol=1e-8)
    fewer = landmarks[:4]
    inexact = nystrom([between(rows, fewer) ** 2], between(fewer, fewer) ** 2, squared=True)
    assert np.abs(inexact.squared_distance_block(0, 40) - between(rows, rows) ** 2).max() > 0.1


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_rank_tolerance_is_relative_to_the_largest_absolute_eigenvalue(ridge: float) -> None:
    """An eigenvalue is kept if its magnitude exceeds that part of the largest; the sign does not matter."""
    basis = random_rotation(4, 9)
    values = np.array([-8.0, 4.0, 0.9, -0.1]) - ridge
    W = basis @ np.diag(values) @ basis.T
    B = np.random.default_rng(9).normal(size=(6, 4))
    for tolerance, kept in ((0.0, [0, 1, 2, 3]), (0.05, [0, 1, 2]), (0.2, [0, 1]), (0.6, [0])):
        geometry = nystrom([B], W, squared=True, ridge=ridge, rank_tolerance=tolerance)
        V, values_kept = basis[:, kept], values[kept] + ridge
        expected = B @ (V / values_kept) @ V.T @ B.T
        assert geometry.left.shape == (6, len(kept))
        np.testing.assert_allclose(geometry.squared_distance_block(0, 6), expected, atol=1e-9)


def test_negative_estimates_keep_their_order() -> None:
    left = np.array([[1.0], [0.0], [0.0]])
    geometry = NystromGeometry(left, np.array([[-3.0], [-0.5], [2.0]]), squared=False)
    block = geometry.squared_distance_block(0, 1)
    assert block.tolist() == [[-9.0, -0.25, 4.0]]
    again = NystromGeometry(left, np.array([[-3.0], [-0.5], [2.0]]), squared=True)
    assert again.squared_distance_block(0, 1).tolist() == [[-3.0, -0.5, 2.0]]


def test_reading_a_block_does_not_change_the_geometry() -> None:
    geometry = NystromGeometry(np.eye(3) * -2, np.eye(3), squared=False)
    first = geometry.squared_distance_block(0, 3)
    first[:] = 99.0
    assert np.array_equal(geometry.squared_distance_block(0, 3), np.diag([-4.0] * 3))


def test_equal_landmarks_give_a_zero_estimate() -> None:
    with pytest.raises(DataError, match="All 3 landmarks are the same point"):
        nystrom([np.ones((4, 3))], np.zeros((3, 3)), squared=True)
