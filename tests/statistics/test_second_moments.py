"""Packed moments equal those of pooled rows, and one record moves them at most as stated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_federations import cut, federate

from raydr.arrays import Float64Array
from raydr.errors import ScenarioError
from raydr.federation import Client
from raydr.fixed_point import shortened
from raydr.privacy.gaussian import GaussianNoise
from raydr.statistics.second_moments import (
    MOST_FEATURES,
    REPLACE_SENSITIVITY,
    SENSITIVITY,
    SecondMoments,
    SecondMomentsRequest,
    axes_of,
    moment_axes,
    packed,
    require_few_features,
    second_moments,
    unpacked,
)


def moments_of(rows: Float64Array, centre: Float64Array, clip: float) -> Float64Array:
    return second_moments(Client(index=0, rows=rows, seed=0), SecondMomentsRequest(centre, clip)).packed


def test_packing_has_an_inverse() -> None:
    random = np.random.default_rng(0)
    half = random.normal(size=(7, 7))
    mean, square = random.normal(size=7), half + half.T
    vector = packed(mean, square)
    assert vector.shape == (7 + 28,)
    again = unpacked(vector, 7)
    np.testing.assert_array_equal(again[0], mean)
    np.testing.assert_array_equal(again[1], square)


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_axes_equal_those_of_rows_around_their_mean(offset: float) -> None:
    random = np.random.default_rng(1)
    rows = np.round(random.normal(size=(300, 6)) * 0.6 ** np.arange(6) * 2**12) / 2**12
    centre = offset + np.array([0.5, -0.25, 0, 0, 0.125, 0])
    federation = federate(cut(rows + offset, 7, 0))
    clip = float(np.linalg.norm(rows + offset - centre, axis=1).max()) + 1e-9
    found = moment_axes(federation, SecondMomentsRequest(centre, clip), 4)
    _, singular, axes = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(np.abs((found.directions.T * axes[:4]).sum(axis=1)), 1.0, atol=1e-9)
    np.testing.assert_allclose(found.deviations, singular[:4] / np.sqrt(300), rtol=1e-9)


def test_blocks_of_rows_agree_with_the_whole() -> None:
    rows = np.random.default_rng(2).normal(size=(5000, 3))
    x = shortened(rows, 2.0)
    expected = packed(x.mean(axis=0), x.T @ x / 5000)
    np.testing.assert_allclose(moments_of(rows, np.zeros(3), 2.0), expected, atol=1e-15)


def test_rows_are_clipped_in_their_direction() -> None:
    x = shortened(np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]), 1.0)
    np.testing.assert_allclose(x, [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]])


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([1e-6, 0.3, 1.0, 1e3, 1e9]),
    offset=st.sampled_from([0.0, 1.0, 1e8]),
)
def test_stated_sensitivity_bounds_every_record(seed: int, scale: float, offset: float) -> None:
    random = np.random.default_rng(seed)
    rows, features = int(random.integers(1, 6)), int(random.integers(1, 6))
    table = offset + scale * random.standard_cauchy(size=(rows + 1, features))
    centre, clip = np.full(features, offset), float(random.uniform(0.5, 2))
    request = SecondMomentsRequest(centre, clip)
    total, without = (
        len(part) * second_moments(Client(index=0, rows=part, seed=0), request).packed
        for part in (table, table[:-1])
    )
    assert np.linalg.norm(total - without) <= SENSITIVITY * (1 + 1e-9)
    largest = SecondMoments.ranges(request, rows)["packed"].largest
    assert np.abs(total).max() <= largest * len(table)


def test_stated_sensitivity_is_reached() -> None:
    rows = np.zeros((4, 5))
    far = np.zeros((1, 5))
    far[0, 2] = 1e6
    before, after = (
        len(part) * moments_of(part, np.zeros(5), 1.0) for part in (rows, np.vstack([rows, far]))
    )
    assert np.linalg.norm(after - before) > 0.999 * SENSITIVITY


def test_too_many_features_are_refused() -> None:
    require_few_features(MOST_FEATURES)
    with pytest.raises(ScenarioError, match=r"landmarks_from: random"):
        require_few_features(MOST_FEATURES + 1)


def test_bounds_are_the_sensitivity_plus_a_billionth() -> None:
    """A record along an axis is zeroed out; or another, 120 degrees away, takes its place."""
    one, other = np.array([[1.0, 0.0]]), np.array([[-0.5, np.sqrt(0.75)]])

    def vector(row: Float64Array) -> Float64Array:
        square = row.T @ row
        # A triangle holds off-diagonal entries once; the bound is of the whole matrix.
        return np.concatenate([row.ravel(), square.ravel()])

    for moved, bound in (
        (np.linalg.norm(moments_of(one, np.zeros(2), 1.0)), SENSITIVITY),
        (np.linalg.norm(vector(one) - vector(other)), REPLACE_SENSITIVITY),
    ):
        assert moved < bound < moved * (1 + 3e-9)
    largest = SecondMoments.ranges(SecondMomentsRequest(np.zeros(2), 1.0), 1)["packed"].largest
    assert 1.0 < float(np.max(largest)) < 1.0 + 3e-9


def test_moments_of_one_row_or_none() -> None:
    row = np.array([[0.5, -0.25]])
    np.testing.assert_array_equal(moments_of(row, np.zeros(2), 1.0), [0.5, -0.25, 0.25, -0.125, 0.0625])
    np.testing.assert_array_equal(moments_of(row[:0], np.zeros(2), 1.0), np.zeros(5))


def test_noisy_moments_do_not_depend_on_row_order() -> None:
    """Rows on a grid of 2^-20 give sums exact for 2,500 products."""
    rows = np.random.default_rng(3).normal(size=(2500, 3))
    request = SecondMomentsRequest(np.zeros(3), 2.0, GaussianNoise(on="moments", sigma=1.0, clip=2.0))
    one, other = (
        second_moments(Client(index=0, rows=table, seed=0), request).packed for table in (rows, rows[::-1])
    )
    np.testing.assert_array_equal(one, other)
    exact = moments_of(rows, np.zeros(3), 2.0)
    assert 0 < np.abs(one - exact).max() < 2.0**-20


def test_negative_noisy_variances_count_as_0() -> None:
    vector = packed(np.zeros(3), np.diag([-0.25, 4.0, 1.0]))
    found = axes_of(vector, 3, 2.0, 5)
    np.testing.assert_allclose(found.deviations, [4.0, 2.0, 0.0])
    np.testing.assert_allclose(found.directions, np.eye(3)[:, [1, 2, 0]], atol=1e-12)
    np.testing.assert_allclose(axes_of(vector, 3, 2.0, 1).deviations, [4.0])
