from __future__ import annotations

import numpy as np
import pytest

from raydr.errors import DataError
from raydr.geometry.points import Points, common_shift, map_threaded, row_blocks, squared_distances


def brute_squared_distances(a, b):
    return ((a[:, None, :].astype(np.float64) - b[None, :, :].astype(np.float64)) ** 2).sum(axis=2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_squared_distances_equal_differences(dtype):
    random = np.random.default_rng(0)
    a, b = random.normal(size=(30, 7)).astype(dtype), random.normal(size=(40, 7)).astype(dtype)
    distances = squared_distances(a, b)
    assert distances.dtype == dtype
    np.testing.assert_allclose(distances, brute_squared_distances(a, b), atol=100 * np.finfo(dtype).eps)


def test_squared_distances_do_not_depend_on_the_copy_size(monkeypatch):
    random = np.random.default_rng(5)
    a, b = random.normal(size=(7, 6)) + 50.0, random.normal(size=(23, 6))
    whole = squared_distances(a, b)
    monkeypatch.setattr("raydr.geometry.points._BLOCK", 5 * 6)
    np.testing.assert_allclose(squared_distances(a, b), whole, rtol=1e-12)
    np.testing.assert_allclose(whole, ((a[:, None] - b) ** 2).sum(axis=2), rtol=1e-12)


def test_points_do_not_depend_on_the_copy_size(monkeypatch):
    rows = np.random.default_rng(6).normal(size=(23, 6)) + 50.0
    whole = Points(rows)
    monkeypatch.setattr("raydr.geometry.points._BLOCK", 5 * 6)
    cut = Points(rows)
    assert [block.stop - block.start for block in cut.blocks()] == [5, 5, 5, 5, 3]
    np.testing.assert_array_equal(cut.squared_norms, whole.squared_norms)
    np.testing.assert_array_equal(
        np.concatenate([cut.centred(block) for block in cut.blocks()]), rows - cut.shift
    )
    assert (np.abs(cut.shift - rows.mean(axis=0)) <= 0.5).all()


def test_mixed_precision_is_float64():
    a, b = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float64)
    assert squared_distances(a, b).dtype == np.float64


@pytest.mark.parametrize("offset", [1e3, 1e5])
def test_distances_far_from_the_origin_stay_precise(offset):
    """Without the common shift, float32 loses offset^2 * 1e-7, which exceeds the distances."""
    random = np.random.default_rng(1)
    rows = (offset + random.normal(size=(50, 5))).astype(np.float32)
    expected = brute_squared_distances(rows, rows)
    np.testing.assert_allclose(squared_distances(rows, rows), expected, rtol=0, atol=1e-4)
    np.testing.assert_allclose(Points(rows).squared_distance_block(0, 50), expected, rtol=0, atol=1e-4)


def test_squared_distances_are_never_negative():
    rows = np.tile(np.random.default_rng(2).normal(size=(1, 9)).astype(np.float32), (20, 1))
    rows[:10] *= 1000
    assert squared_distances(rows, rows).min() >= 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_integer_data_have_exact_distances_despite_the_shift(dtype):
    rows = np.random.default_rng(3).integers(0, 17, size=(60, 20))
    block = Points(rows.astype(dtype)).squared_distance_block(10, 40)
    np.testing.assert_array_equal(block, brute_squared_distances(rows[10:40], rows))
    assert block.dtype == dtype


def test_blocks_of_points_agree_with_the_whole():
    points = Points(np.random.default_rng(4).normal(size=(23, 4)))
    whole = points.squared_distance_block(0, 23)
    parts = np.concatenate([points.squared_distance_block(*block) for block in row_blocks(23, 5)])
    np.testing.assert_allclose(parts, whole, atol=1e-13)
    assert not whole.diagonal().any()


def test_shift_is_on_a_grid_and_used_only_when_it_helps():
    random = np.random.default_rng(5)
    rows = 1e4 + random.integers(0, 100, size=(500, 6)).astype(np.float64)
    shift = common_shift(rows)
    assert (shift == np.round(shift)).all()
    exact = ((rows - rows.mean(axis=0)) ** 2).sum()
    assert ((rows - shift) ** 2).sum() <= 1.25 * exact


def test_equal_rows_are_shifted_to_the_origin():
    assert not Points(np.full((4, 3), 7.3)).squared_norms.any()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.zeros(3), r"shape \(3,\)"),
        (np.zeros((0, 3)), r"shape \(0, 3\)"),
        (np.array([[1.0, 2.0], [3.0, np.nan]]), "row 1, column 1 of the coordinates is nan"),
        (np.array([[1.0, np.inf]]), "row 0, column 1 of the coordinates is inf"),
    ],
)
def test_unusable_coordinates_are_refused(values, words):
    with pytest.raises(DataError, match=words):
        Points(values)


def test_different_features_are_refused():
    with pytest.raises(DataError, match="first table has 3 and the second 2"):
        squared_distances(np.zeros((4, 3)), np.zeros((4, 2)))


def test_threaded_results_keep_task_order_and_errors_propagate():
    assert list(map_threaded(lambda n: n * n, list(range(20)), 4)) == [n * n for n in range(20)]
    with pytest.raises(ZeroDivisionError):
        list(map_threaded(lambda n: 1 // n, [1, 0, 1], 2))
