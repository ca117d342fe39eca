"""The objective of distribution learning equals P1 (9), its gradient P1 (13), and declared bounds hold."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raydr.methods.landmarks.kernel
from raydr.arrays import Float64Array, FloatArray
from raydr.methods.landmarks.kernel import (
    cross_term,
    default_step,
    gaussian_kernel,
    gradient_bound,
    landmark_term,
    row_term,
)
from raydr.threads import one_blas_thread

Precision: TypeAlias = type[np.float32] | type[np.float64]


@pytest.fixture(scope="module")
def digits() -> Float64Array:
    from sklearn.datasets import load_digits

    return np.asarray(load_digits().data, np.float64)


def kernel(x: Float64Array, y: Float64Array, gamma: float) -> float:
    return float(np.exp(-gamma * ((x - y) ** 2).sum()))


def objective_9(rows: Float64Array, landmarks: Float64Array, gamma: float) -> float:
    """P1 (9), one kernel at a time."""
    n_x, n_y = len(rows), len(landmarks)
    among_rows = sum(kernel(rows[i], rows[j], gamma) for i in range(n_x) for j in range(n_x) if j != i)
    across = sum(kernel(x, y, gamma) for x in rows for y in landmarks)
    among_landmarks = sum(
        kernel(landmarks[i], landmarks[j], gamma) for i in range(n_y) for j in range(n_y) if j != i
    )
    return among_rows / (n_x * (n_x - 1)) - 2.0 * across / (n_x * n_y) + among_landmarks / (n_y * (n_y - 1))


def gradient_13(rows: Float64Array, landmarks: Float64Array, gamma: float) -> Float64Array:
    """P1 (13) as printed, where rows and landmarks are columns."""
    X, Y = rows.T, landmarks.T
    n_p, n_y = X.shape[1], Y.shape[1]
    K_XY = np.array([[kernel(x, y, gamma) for y in landmarks] for x in rows])
    K_YY = np.array([[kernel(x, y, gamma) for y in landmarks] for x in landmarks])
    across = -4 * gamma / (n_p * n_y) * (X @ K_XY - Y @ np.diag(np.ones(n_p) @ K_XY))
    among = 4 * gamma / (n_y * (n_y - 1)) * (Y @ K_YY - Y @ np.diag(np.ones(n_y) @ K_YY))
    return np.asarray((across + among).T)


def whole(rows: FloatArray, landmarks: Float64Array, gamma: float) -> tuple[float, Float64Array]:
    across, among = cross_term(rows, landmarks, gamma), landmark_term(landmarks, gamma)
    return across[0] + among[0] + row_term(rows, gamma), across[1] + among[1]


def example(
    n_x: int = 11, n_y: int = 5, features: int = 3, seed: int = 0
) -> tuple[Float64Array, Float64Array]:
    random = np.random.default_rng(seed)
    return random.normal(size=(n_x, features)), 0.5 * random.normal(size=(n_y, features)) + 0.3


@pytest.mark.parametrize("gamma", [0.01, 0.3, 4.0])
def test_objective_equals_equation_9(gamma: float) -> None:
    rows, landmarks = example()
    assert whole(rows, landmarks, gamma)[0] == pytest.approx(objective_9(rows, landmarks, gamma), rel=1e-12)


@pytest.mark.parametrize("gamma", [0.01, 0.3, 4.0])
def test_gradient_equals_equation_13(gamma: float) -> None:
    rows, landmarks = example()
    expected = gradient_13(rows, landmarks, gamma)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(whole(rows, landmarks, gamma)[1], expected, atol=1e-13 * scale)


@pytest.mark.parametrize("shape", [(11, 5, 3), (1, 2, 1), (40, 2, 17), (2, 30, 2)])
@pytest.mark.parametrize("gamma", [0.05, 1.0])
def test_gradient_equals_central_differences(shape: tuple[int, int, int], gamma: float) -> None:
    rows, landmarks = example(*shape)
    gradient = whole(rows, landmarks, gamma)[1]
    step = 1e-5
    differences = np.empty_like(landmarks)
    for at in np.ndindex(*landmarks.shape):
        up, down = landmarks.copy(), landmarks.copy()
        up[at] += step
        down[at] -= step
        differences[at] = (whole(rows, up, gamma)[0] - whole(rows, down, gamma)[0]) / (2 * step)
    np.testing.assert_allclose(gradient, differences, atol=1e-6 * np.abs(differences).max())


@pytest.mark.parametrize("offset", [2.0**10, -(2.0**26)])
def test_shift_of_rows_and_landmarks_changes_nothing(offset: float) -> None:
    """Both are on a grid, so that the shift is exact; float64 then has 20 bits to spare."""
    rows, landmarks = (np.round(points * 2**16) / 2**16 for points in example(n_x=60))
    objective, gradient = whole(rows, landmarks, 0.3)
    shifted_objective, shifted_gradient = whole(rows + offset, landmarks + offset, 0.3)
    assert shifted_objective == pytest.approx(objective, rel=1e-9)
    np.testing.assert_allclose(shifted_gradient, gradient, atol=1e-9 * np.abs(gradient).max())


@pytest.mark.parametrize("offset", [0.0, 2.0**14])
def test_float32_is_close_to_float64_at_any_offset(offset: float) -> None:
    rows, landmarks = example(n_x=300, n_y=20, features=8)
    rows = (np.round(rows * 2**8) / 2**8 + offset).astype(np.float32)
    # Neither landmarks nor their centre are float32 numbers.
    landmarks = landmarks + offset
    objective, gradient = cross_term(rows.astype(np.float64), landmarks, 0.1)
    single_objective, single_gradient = cross_term(rows, landmarks, 0.1)
    assert single_gradient.dtype == np.float64
    assert single_objective == pytest.approx(objective, rel=2e-6)
    np.testing.assert_allclose(single_gradient, gradient, atol=2e-6 * np.abs(gradient).max())


@settings(max_examples=300)
@given(
    seed=st.integers(0, 2**32),
    precision=st.sampled_from([np.float32, np.float64]),
    far=st.sampled_from([0.0, 1.0, 1e3, 1e5, 1e8, 1e12]),
    gamma=st.sampled_from([1e-12, 1e-3, 1.0, 1e6]),
)
def test_declared_bounds_hold_for_the_worst_data(
    seed: int, precision: Precision, far: float, gamma: float
) -> None:
    """Rows are at the distance of steepest descent from a landmark, all on one side, far from the others."""
    random = np.random.default_rng(seed)
    features, n_y = int(random.integers(1, 4)), int(random.integers(2, 6))
    bandwidth = 1.0 / np.sqrt(2.0 * gamma)
    landmarks = far * bandwidth * random.choice([-1.0, 0.0, 1.0], size=(n_y, features))
    direction = np.eye(features)[int(random.integers(features))]
    landmarks += random.uniform(0.5, 2) * bandwidth * random.choice([0.0, 1.0], size=(n_y, 1)) * direction
    chosen = landmarks[int(random.integers(n_y))]
    rows = chosen + bandwidth * random.uniform(0.9, 1.1, size=(int(random.integers(1, 5)), 1)) * direction
    for objective, gradient in (
        cross_term(rows.astype(precision), landmarks, gamma),
        landmark_term(landmarks, gamma),
    ):
        assert np.abs(gradient).max() <= gradient_bound(n_y, gamma)
        assert abs(objective) <= 2.001
    assert 0.0 <= row_term(rows.astype(precision), gamma) <= 1.001


def test_gradient_bound_is_reached() -> None:
    """A bound that is ten times too large would cost the ring three bits."""
    gamma = 0.7
    rows, landmarks = np.array([[1.0 / np.sqrt(2.0 * gamma)]]), np.array([[0.0], [9.0]])
    assert np.abs(cross_term(rows, landmarks, gamma)[1]).max() > 0.99 * gradient_bound(2, gamma)


@pytest.mark.parametrize("spread", [0.1, 0.4, 1.0])
def test_default_step_always_descends_on_digits(digits: Float64Array, spread: float) -> None:
    random = np.random.default_rng(0)
    sample = digits[::4]
    differences = sample[:200, None] - sample[None, 200:400]
    gamma = 1.0 / float(np.median((differences**2).sum(axis=2)))
    landmarks = sample.mean(axis=0) + spread * sample.std(axis=0) * random.normal(size=(40, 64))
    step = default_step(40, gamma)
    objectives = []
    with one_blas_thread():
        constant = row_term(sample, gamma)
        for _ in range(60):
            across, among = cross_term(sample, landmarks, gamma), landmark_term(landmarks, gamma)
            objectives.append(constant + across[0] + among[0])
            landmarks = landmarks - step * (across[1] + among[1])
    assert (np.diff(objectives) < 1e-12).all()
    assert objectives[-1] < 0.6 * objectives[0]


@pytest.mark.parametrize("precision", [np.float32, np.float64])
@pytest.mark.parametrize("block_rows", [1, 7, 64])
def test_blocks_of_rows_equal_the_whole(
    monkeypatch: pytest.MonkeyPatch, precision: Precision, block_rows: int
) -> None:
    rows, landmarks = example(n_x=64)
    rows = rows.astype(precision)
    objective, gradient = cross_term(rows, landmarks, 0.3)
    monkeypatch.setattr(raydr.methods.landmarks.kernel, "BLOCK_ROWS", block_rows)
    blocked_objective, blocked_gradient = cross_term(rows, landmarks, 0.3)
    tolerance = 20 * float(np.finfo(precision).eps)
    assert blocked_objective == pytest.approx(objective, rel=tolerance)
    np.testing.assert_allclose(blocked_gradient, gradient, atol=tolerance * np.abs(gradient).max())


def test_several_blocks_give_the_mean_over_all_rows() -> None:
    rows, landmarks = example(n_x=5000)
    parts = [rows[:100], rows[100:2300], rows[2300:]]
    shares = np.array([len(part) for part in parts]) / 5000
    terms = [cross_term(part, landmarks, 0.3) for part in parts]
    objective, gradient = cross_term(rows, landmarks, 0.3)
    assert objective == pytest.approx(shares @ [term[0] for term in terms], rel=1e-12)
    expected = np.tensordot(shares, np.array([term[1] for term in terms]), 1)
    np.testing.assert_allclose(gradient, expected, atol=1e-12 * np.abs(gradient).max())


def test_repeating_all_rows_changes_nothing() -> None:
    rows, landmarks = example()
    once, twice = cross_term(rows, landmarks, 0.3), cross_term(np.tile(rows, (2, 1)), landmarks, 0.3)
    assert twice[0] == pytest.approx(once[0], rel=1e-13)
    np.testing.assert_allclose(twice[1], once[1], atol=1e-14)


def test_client_of_one_row_is_accepted() -> None:
    row, landmarks = np.array([[0.5, -1.0]]), np.array([[0.0, 0.0], [1.0, 1.0], [0.5, -1.0]])
    objective, gradient = cross_term(row, landmarks, 0.3)
    weights = np.exp(-0.3 * np.array([1.25, 4.25, 0.0]))
    assert objective == pytest.approx(-2.0 / 3.0 * weights.sum(), rel=1e-14)
    expected = -4 * 0.3 / 3 * weights[:, None] * (row - landmarks)
    np.testing.assert_allclose(gradient, expected, atol=1e-15)
    assert row_term(row, 0.3) == 0.0


def test_equal_landmarks_do_not_move_each_other() -> None:
    objective, gradient = landmark_term(np.full((4, 3), 7.3), 2.0)
    assert objective == 1.0
    assert not gradient.any()


def test_landmarks_at_the_rows_have_no_gradient() -> None:
    """Without the diagonal the two terms differ only in their normalisation."""
    rows, _ = example(n_x=30)
    across, among = cross_term(rows, rows, 0.3)[1], landmark_term(rows, 0.3)[1]
    np.testing.assert_allclose(across * 30 / 29, -among, atol=1e-14)


def test_kernel_keeps_the_precision_of_its_arguments() -> None:
    rows, landmarks = example()
    single = gaussian_kernel(rows.astype(np.float32), landmarks.astype(np.float32), 0.3)
    assert single.dtype == np.float32
    expected = [[kernel(x, y, 0.3) for y in landmarks] for x in rows]
    np.testing.assert_allclose(single, expected, rtol=2e-6)
    np.testing.assert_allclose(gaussian_kernel(rows, landmarks, 0.3), expected, rtol=1e-13)
