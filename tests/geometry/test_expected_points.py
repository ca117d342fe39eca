"""Expected distances between points whose residuals have unknown directions."""

from __future__ import annotations

import numpy as np
import pytest

from raydr.errors import DataError
from raydr.geometry.expected_points import CosineCurve, ExpectedPoints
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points

NONE = CosineCurve(np.zeros(0), np.zeros(0))
CURVE = CosineCurve(np.array([0.7, 0.4]), np.array([0.05, 2.0]))


def placed(rows: int = 30) -> tuple[Points, np.ndarray]:
    rng = np.random.default_rng(0)
    heights = rng.uniform(0.5, 1.5, rows)
    return Points(np.column_stack([rng.normal(size=(rows, 3)), heights])), heights


def test_distances_are_those_of_the_formula() -> None:
    points, heights = placed()
    found = ExpectedPoints(points, heights, CURVE).squared_distance_block(0, 30)
    y = points.coordinates[:, :3]
    for i, j in ((0, 1), (4, 29), (17, 3)):
        base = ((y[i] - y[j]) ** 2).sum() + (heights[i] - heights[j]) ** 2
        cosine = CURVE.cosine(np.array(base / (2 * heights[i] * heights[j])))
        plain = ((y[i] - y[j]) ** 2).sum() + heights[i] ** 2 + heights[j] ** 2
        assert found[i, j] == pytest.approx(plain - 2 * cosine * heights[i] * heights[j], rel=1e-12)
    assert not found.diagonal().any()
    np.testing.assert_allclose(found, found.T, rtol=1e-12)


def test_the_cosine_falls_from_1() -> None:
    cosines = CURVE.cosine(np.array([0.0, 0.01, 0.1, 1.0, 10.0, 1e9]))
    assert cosines[0] == 1.0
    assert (np.diff(cosines) < 0).all()
    assert cosines[-1] == pytest.approx(1.0 - 1.1, abs=1e-6)


def test_without_terms_or_residuals_the_points_decide() -> None:
    points, heights = placed()
    plain = points.squared_distance_block(3, 9)
    np.testing.assert_array_equal(ExpectedPoints(points, heights, NONE).squared_distance_block(3, 9), plain)
    none = np.zeros_like(heights)
    np.testing.assert_array_equal(ExpectedPoints(points, none, CURVE).squared_distance_block(3, 9), plain)


def test_equal_rows_stay_equal_and_blocks_agree() -> None:
    points, heights = placed()
    twice = np.arange(30).repeat(2)
    geometry = ExpectedPoints(points, heights, CURVE).take(twice)
    whole = geometry.squared_distance_block(0, 60)
    assert whole[::2, 1::2].diagonal().max() < 1e-12  # rounding
    np.testing.assert_allclose(geometry.squared_distance_block(17, 31), whole[17:31], rtol=1e-12, atol=1e-14)
    assert nearest_neighbors(geometry, 1).distances[:, 0].max() < 1e-6


def test_wrong_input_is_refused() -> None:
    points, heights = placed()
    with pytest.raises(DataError, match="one height for each of 30 points"):
        ExpectedPoints(points, heights[1:], CURVE)
    with pytest.raises(DataError, match="finite and not negative"):
        ExpectedPoints(points, -heights, CURVE)
    with pytest.raises(DataError, match="one amount for each scale"):
        CosineCurve(np.ones(2), np.ones(3))
    with pytest.raises(DataError, match="scales must be positive"):
        CosineCurve(np.ones(2), np.zeros(2))
