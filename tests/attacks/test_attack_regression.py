"""Regressions of attacks, compared with explicit leave-one-out fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from raydr.arrays import Float64Array, Int64Array
from raydr.attacks import principal, regression
from raydr.attacks.principal import principal_axes
from raydr.attacks.regression import LEAST_ROWS, fitted, predicted


def standard(posts: Float64Array) -> Float64Array:
    return np.asarray((posts - posts.mean(axis=0)) / posts.std(axis=0))


def by_ridge(posts: Float64Array, values: Float64Array, penalty: float, asked: Float64Array) -> Float64Array:
    """Return a ridge regression with an unpenalised intercept."""
    centre, mean = posts.mean(axis=0), values.mean(axis=0)
    apart, learnt, known = asked - centre, posts - centre, values - mean
    if learnt.shape[1] < len(learnt):
        weights = np.linalg.solve(learnt.T @ learnt + penalty * np.eye(learnt.shape[1]), learnt.T @ known)
    else:
        weights = learnt.T @ np.linalg.solve(learnt @ learnt.T + penalty * np.eye(len(learnt)), known)
    return np.asarray(mean + apart @ weights)


def by_nearest(posts: Float64Array, values: Float64Array, count: int, asked: Float64Array) -> Float64Array:
    apart = ((asked[:, None] - posts) ** 2).sum(axis=2)
    return np.asarray(values[np.argsort(apart, axis=1)[:, :count]].mean(axis=1))


def held_out(fit: Any, posts: Float64Array, values: Float64Array, how: float) -> float:
    """Return the median leave-one-out error."""
    misses = [
        values[row] - fit(np.delete(posts, row, 0), np.delete(values, row, 0), how, posts[row : row + 1])[0]
        for row in range(len(posts))
    ]
    return float(np.median(np.linalg.norm(misses, axis=1)))


@pytest.mark.parametrize(("rows", "numbers"), [(40, 4), (16, 16), (14, 25)])
def test_penalty_minimises_the_held_out_error(rows: int, numbers: int) -> None:
    draw = np.random.default_rng(21)
    posts = draw.normal(size=(rows, numbers)) * np.geomspace(1e-3, 1e3, numbers) + 5.0
    values = standard(posts)[:, :4] @ draw.normal(size=(4, 3)) + 0.3 * draw.normal(size=(rows, 3)) + 7.0
    units = standard(posts)
    penalties = np.logspace(-12.0, 1.0, 27) * float(np.linalg.svd(units)[1][0] ** 2)
    errors = [held_out(by_ridge, units, values, penalty) for penalty in penalties]
    found = fitted(posts, values, 0)
    assert found.name == "ridge regression"
    assert found.held_out == pytest.approx(min(errors), rel=1e-6)
    asked = posts + draw.normal(size=posts.shape) * posts.std(axis=0)
    best = penalties[int(np.argmin(errors))]
    expected = by_ridge(units, values, best, (asked - posts.mean(axis=0)) / posts.std(axis=0))
    np.testing.assert_allclose(predicted(found, asked), expected, rtol=1e-6, atol=1e-9)


def test_held_out_errors_include_the_part_outside_the_axes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Errors omit the 5 narrowest of 9 directions; the prediction has all of them."""
    draw = np.random.default_rng(21)
    monkeypatch.setattr("raydr.attacks.regression._AXES", 4)
    monkeypatch.setattr("raydr.attacks.regression._BLOCK", 7)
    posts = draw.normal(size=(30, 3))
    values = posts @ draw.normal(size=(3, 9)) + draw.normal(size=(30, 9)) + 4.0
    units, centred = standard(posts), values - values.mean(axis=0)
    axes = np.linalg.svd(centred)[2][:4].T
    residual = (centred**2).sum(axis=1) - ((centred @ axes) ** 2).sum(axis=1)
    penalties = np.logspace(-12.0, 1.0, 27) * float(np.linalg.svd(units)[1][0] ** 2)
    errors = []
    for penalty in penalties:
        misses = np.array(
            [
                centred[row]
                - by_ridge(np.delete(units, row, 0), np.delete(centred, row, 0), penalty, units[row][None])[0]
                for row in range(30)
            ]
        )
        errors.append(float(np.median(np.sqrt(((misses @ axes) ** 2).sum(axis=1) + residual))))
    found = fitted(posts, values, 0)
    assert found.name == "ridge regression"
    assert found.held_out == pytest.approx(min(errors), rel=1e-6)
    expected = by_ridge(units, values, penalties[int(np.argmin(errors))], units)
    np.testing.assert_allclose(predicted(found, posts), expected, rtol=1e-6)


@pytest.mark.parametrize("rows", [21, 60, 200])
def test_neighbour_count_minimises_the_held_out_error(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(21)
    monkeypatch.setattr("raydr.attacks.regression._BLOCK", 7)
    angle = draw.uniform(0.0, 12.0, rows)
    posts = np.column_stack([angle, 1e-3 * angle])
    values = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.3 * draw.normal(size=(rows, 2))
    errors = {
        count: held_out(by_nearest, standard(posts), values, count)
        for count in (1, 2, 3, 5, 10, 20, 50)
        if count < rows
    }
    found = fitted(posts, values, 0)
    best = min(errors, key=errors.__getitem__)
    assert found.name == ("the nearest row" if best == 1 else f"the {best} nearest rows")
    assert found.held_out == pytest.approx(errors[best], rel=1e-9)
    asked = np.linspace(0.5, 11.5, 23)
    expected = by_nearest(posts, values, best, np.column_stack([asked, 1e-3 * asked]))
    np.testing.assert_allclose(predicted(found, np.column_stack([asked, 1e-3 * asked])), expected, atol=1e-12)


def test_neighbours_are_searched_along_the_widest_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(21)
    monkeypatch.setattr("raydr.attacks.regression._NEAR_AXES", 2)
    angle = draw.uniform(0.0, 12.0, 90)
    posts = np.column_stack([np.cos(angle), np.sin(angle), np.cos(angle) + 0.1 * draw.normal(size=90)])
    values = np.column_stack([np.cos(3.0 * angle), np.sin(5.0 * angle)])
    units = standard(posts)
    seen = units @ np.linalg.svd(units)[2][:2].T
    errors = {count: held_out(by_nearest, seen, values, count) for count in (1, 2, 3, 5, 10, 20, 50)}
    found = fitted(posts, values, 0)
    assert "nearest" in found.name
    assert found.held_out == pytest.approx(min(errors.values()), rel=1e-9)


def test_uninformative_posts_use_all_rows_as_neighbours() -> None:
    """With 21 rows, the mean of the 20 others beats a ridge regression with a small penalty."""
    for seed in range(50):
        draw = np.random.default_rng(seed)
        posts, values = draw.normal(size=(21, 2)), draw.normal(size=(21, 2))
        errors = {
            count: held_out(by_nearest, standard(posts), values, count) for count in (1, 2, 3, 5, 10, 20)
        }
        found = fitted(posts, values, 0)
        if found.name != "ridge regression":
            assert found.held_out == pytest.approx(min(errors.values()), rel=1e-9)
            if found.name == "the 20 nearest rows":
                return
    raise AssertionError("no draw has all other rows for neighbours")


def test_equal_rows_are_not_their_own_neighbours() -> None:
    """Half of 120 rows are at each of two places."""
    posts = np.repeat([[0.0], [1.0]], 60, axis=0)
    values = np.repeat([[2.0, 2.0], [-2.0, 5.0]], 60, axis=0)
    found = fitted(posts, values, 0)
    np.testing.assert_allclose(predicted(found, posts), values, atol=1e-6)
    assert found.held_out < 1e-6


def test_constant_post_columns_are_ignored() -> None:
    """Cases include rounded sums of equal numbers, and other numbers in new rows."""
    draw = np.random.default_rng(21)
    posts = draw.normal(size=(30, 2))
    values = posts @ draw.normal(size=(2, 2))
    constant = np.column_stack([posts, np.full(30, 0.1), np.zeros(30), np.full(30, 1e7 / 3.0)])
    asked = np.column_stack([posts, np.linspace(5.0, 9.0, 30), np.ones(30), np.zeros(30)])
    expected = predicted(fitted(posts, values, 0), posts)
    np.testing.assert_allclose(predicted(fitted(constant, values, 0), asked), expected, atol=1e-9)
    far = np.column_stack([posts[:, :1] + 1e9, posts[:, 1:]])  # which varies by more than its rounding
    np.testing.assert_allclose(predicted(fitted(far, values, 0), far), values, atol=1e-4)


def test_too_few_rows_are_refused() -> None:
    draw = np.random.default_rng(21)
    posts = draw.normal(size=(10, 1))
    with pytest.raises(ValueError, match=r"9 rows are too few to learn from\. At least 10"):
        fitted(posts[:9], posts[:9], 0)
    assert fitted(posts, posts, 0).held_out < 1e-6
    assert LEAST_ROWS == 10


def test_empty_input_gives_empty_prediction() -> None:
    draw = np.random.default_rng(21)
    angle = draw.uniform(0.0, 12.0, (60, 1))
    found = fitted(angle, np.cos(angle), 0)
    assert "nearest" in found.name
    assert predicted(found, angle[:0]).shape == (0, 1)


def test_at_most_500_seeded_rows_are_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[Int64Array] = []
    ridge = regression._ridge

    def watched(*given: Any) -> Any:
        judged.append(given[-1])
        return ridge(*given)

    monkeypatch.setattr(regression, "_ridge", watched)
    draw = np.random.default_rng(21)
    for rows in (40, 501):
        fitted(draw.normal(size=(rows, 2)), draw.normal(size=(rows, 2)), 3)
    assert [len(np.unique(rows)) for rows in judged] == [40, 500]
    np.testing.assert_array_equal(judged[1], np.random.default_rng((3, 6)).permutation(501)[:500])


def test_more_than_50_numbers_or_200_values_are_projected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sought: list[tuple[int, int]] = []

    def watched(rows: Float64Array, count: int, seed: int) -> Any:
        sought.append((rows.shape[1], count))
        return principal_axes(rows, count, seed)

    monkeypatch.setattr(regression, "principal_axes", watched)
    draw = np.random.default_rng(21)
    for numbers, values in ((50, 200), (51, 201)):
        found = fitted(draw.normal(size=(202, numbers)), draw.normal(size=(202, values)), 0)
        assert (found.basis is None) == (values == 200)
    assert sought == [(201, 200), (51, 50)]


def test_residual_outside_the_axes_is_not_negative(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw = np.random.default_rng(21)
    monkeypatch.setattr(regression, "_AXES", 4)
    monkeypatch.setattr(regression, "_BLOCK", 7)
    values = 1e-2 * draw.normal(size=(30, 9)) + 4.0
    centred = values - values.mean(axis=0)
    outside = np.linalg.svd(centred)[2][4:]
    found = regression._Targets.of(values, 0)
    np.testing.assert_allclose(found.outside, ((centred @ outside.T) ** 2).sum(axis=1), rtol=1e-9)
    within = draw.normal(size=(200, 3)) @ draw.normal(size=(3, 9)) + 4.0
    residual = regression._Targets.of(within, 0).outside
    assert (residual >= 0.0).all()
    np.testing.assert_allclose(residual, 0.0, atol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10, 20, 50])
def test_all_others_of_a_group_are_neighbours_if_groups_differ(count: int) -> None:
    """Every second group on a line has other values, so a straight line fits none."""
    draw = np.random.default_rng(1)
    group = np.repeat(np.arange(max(3, 60 // (count + 1))), count + 1)
    posts = (group + 0.01 * draw.normal(size=len(group)))[:, None]
    values = 8.0 * (group % 2)[:, None] + draw.normal(size=(len(group), 3))
    errors = {
        each: held_out(by_nearest, posts, values, each)
        for each in (1, 2, 3, 5, 10, 20, 50)
        if each < len(posts)
    }
    found = fitted(posts, values, 0)
    assert min(errors, key=errors.__getitem__) == count
    assert found.name == ("the nearest row" if count == 1 else f"the {count} nearest rows")
    assert found.held_out == pytest.approx(errors[count], rel=1e-9)


def test_interpolating_fit_is_judged_by_its_penalty() -> None:
    """Without noise the smallest penalty is best, and residuals are not lost in subtraction."""
    for seed in range(5):
        draw = np.random.default_rng(seed)
        posts = draw.normal(size=(14, 25))
        values = posts @ draw.normal(size=(25, 3))
        units = standard(posts)
        penalties = np.logspace(-12.0, 1.0, 27) * float(np.linalg.svd(units)[1][0] ** 2)
        errors = [held_out(by_ridge, units, values, penalty) for penalty in penalties]
        found = fitted(posts, values, 0)
        assert found.name == "ridge regression"
        assert found.held_out == pytest.approx(min(errors), rel=1e-6)


@pytest.mark.parametrize("rows", [40, 12])
def test_equivalent_columns_count_equally_for_new_rows(rows: int) -> None:
    """If such columns disagree in new rows, the prediction is their mean."""
    for seed in range(5):
        draw = np.random.default_rng(seed)
        one = draw.normal(size=rows)
        posts = np.outer(one, draw.uniform(1.0, 3.0, 13))
        values = np.column_stack([one, -2.0 * one])
        found = fitted(posts, values, 0)
        assert found.name == "ridge regression"
        asked = draw.normal(size=(50, 13)) * posts.std(axis=0)
        alike = ((asked - posts.mean(axis=0)) / posts.std(axis=0)).mean(axis=1) * one.std() + one.mean()
        np.testing.assert_allclose(
            predicted(found, asked), np.column_stack([alike, -2.0 * alike]), rtol=1e-6, atol=1e-6
        )


@pytest.mark.parametrize("features", [40, 60])
def test_principal_axes_equal_those_of_a_singular_value_decomposition(
    monkeypatch: pytest.MonkeyPatch, features: int
) -> None:
    """Axes come from second moments, or by iteration for many features; also far from the origin."""
    monkeypatch.setattr(principal, "_DENSE", 50)
    monkeypatch.setattr(principal, "_BLOCK", 7)
    random = np.random.default_rng(0)
    rows = random.normal(size=(30, features)) * 0.5 ** np.arange(features) + 10.0
    rows[0, 5] += 40.0  # one row adds an axis
    found = principal_axes(rows, 4, 0)
    centred = rows - rows.mean(axis=0)
    _, _, expected = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(np.abs(found.basis @ expected[:4].T), np.eye(4), atol=1e-6)
    np.testing.assert_allclose(found.coordinates(rows), centred @ found.basis.T, atol=1e-10)
