"""Verdicts on places: against brute force, on tables without structure, and on maps that lost what the data have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from raydr.arrays import Float64Array, Int64Array
from raydr.metrics import Evidence, Scores, default_metrics, evaluate
from raydr.metrics.verdicts import (
    LEAST_OF_SITE,
    LEVEL,
    MISPLACED,
    NO_STRUCTURE,
    RELIABLE,
    Reliability,
    mean_squared_distances,
    shuffled_columns,
)

CORNERS = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])


def clouds(each: int = 60, features: int = 12) -> tuple[Float64Array, Float64Array, Int64Array]:
    """Return rows in four clouds, which differ in all columns, a map with a cloud at each corner, and their clouds."""
    random = np.random.default_rng(0)
    classes = np.repeat(np.arange(4), each)
    rows = random.normal(size=(len(classes), features)) * 0.3 + random.normal(size=(4, features))[classes]
    return rows, 10.0 * CORNERS[classes] + random.normal(size=(len(classes), 2)), classes


def judged(rows: Float64Array, embedding: Float64Array, sites: Int64Array | None = None) -> Reliability:
    found = evaluate(
        ["reliable"], Evidence(rows=rows, embedding=embedding, sites=sites), threads=1
    ).reliability
    assert found is not None
    return found


def squared_distances(rows: Float64Array) -> Float64Array:
    return np.asarray(((rows[:, None] - rows) ** 2).sum(axis=2))


def statistics(rows: Float64Array, shown: Float64Array) -> Float64Array:
    """Return the statistic of each row with its ten nearest by the distances ``shown``."""
    squared, shown = squared_distances(rows), shown.copy()
    np.fill_diagonal(shown, np.inf)
    near = np.take_along_axis(squared, np.argsort(shown, axis=1)[:, :10], axis=1).mean(axis=1)
    return np.asarray(near / (squared.sum(axis=1) / (len(rows) - 1)))


def test_p_values_equal_brute_force() -> None:
    rows, *_ = clouds(30)
    random = np.random.default_rng(1)
    embedding, sites = (
        random.normal(size=(len(rows), 2)) + rows[:, :2] / 8,
        random.integers(2, size=len(rows)),
    )
    found = judged(rows, embedding, sites)
    shuffled = shuffled_columns(rows - rows.mean(axis=0), sites, 0)
    null = statistics(shuffled, squared_distances(shuffled))
    for p_values, shown in ((found.on_map, embedding), (found.in_data, rows)):
        own = statistics(rows, squared_distances(shown))
        expected = (1 + (null <= own[:, None]).sum(axis=1)) / (1 + len(null))
        np.testing.assert_allclose(p_values, expected, atol=1.5 / len(null))  # a tie may fall to either side
    assert found.value == pytest.approx((found.on_map <= LEVEL).mean())


@pytest.mark.parametrize("features", [2, 20])
def test_noise_is_unreliable_even_on_a_perfect_map(features: int) -> None:
    rows = np.random.default_rng(features).normal(size=(600, features))
    found = judged(rows, rows[:, :2])
    assert np.mean(found.verdicts != RELIABLE) >= 0.9
    assert (found.on_map >= found.in_data).all()  # no map shows nearer rows than the nearest


@pytest.mark.slow
def test_share_of_reliable_places_of_noise_keeps_its_level_over_seeds() -> None:
    shares = []
    for seed in range(40):
        random = np.random.default_rng(seed)
        rows = random.normal(size=(500, 2)) * [1.0, 3.0]
        rows += 50.0 * (np.arange(500) % 5)[:, None]  # sites differ, which is no structure
        shares.append(judged(rows, rows, np.arange(500) % 5).value)
    assert np.mean(shares) <= LEVEL + 3 * np.std(shares) / np.sqrt(len(shares))
    assert max(shares) <= 0.1


def test_verdict_tells_a_misplaced_row_from_one_without_near_rows() -> None:
    rows, embedding, classes = clouds()
    rows[-1] = rows.mean(axis=0) + 5.0
    embedding[0] = embedding[classes.argmax() + 5]  # a row of the first cloud within the last
    found = judged(rows, embedding).verdicts
    assert found[0] == MISPLACED
    assert found[-1] == NO_STRUCTURE
    assert np.mean(found[1:-1] == RELIABLE) > 0.95


def test_structure_between_sites_alone_is_no_structure() -> None:
    rows, embedding, classes = clouds()
    assert judged(rows, embedding).value > 0.95
    assert judged(rows, embedding, classes).value <= 0.1


def test_islands_of_independent_columns_are_no_structure() -> None:
    rows, embedding, classes = clouds()
    alone = np.random.default_rng(2).normal(size=rows.shape) * 0.3
    alone[:, :2] += 10.0 * CORNERS[classes]
    assert judged(alone, embedding).value <= 0.1


def test_columns_are_shuffled_within_sites_and_small_sites_together() -> None:
    small = LEAST_OF_SITE // 2
    sites = np.repeat([0, 1, 2, 3], [40, 60, small, small])
    rows = np.arange(len(sites) * 3, dtype=np.float64).reshape(-1, 3)
    found = shuffled_columns(rows, sites, 0)
    for group in (sites == 0, sites == 1, sites >= 2):
        for column in range(3):
            assert sorted(found[group, column]) == rows[group, column].tolist()
    assert len({tuple(row) for row in found.tolist()} & {tuple(row) for row in rows.tolist()}) < 5
    assert (found[sites == 2] > rows[sites == 2].max()).any()


def test_statistic_does_not_depend_on_place_or_scale_and_seeds_repeat() -> None:
    rows, embedding, _ = clouds(30)
    found, moved = judged(rows, embedding), judged(rows * 8.0 + 64.0, embedding)
    np.testing.assert_array_equal(found.verdicts, moved.verdicts)
    np.testing.assert_array_equal(found.on_map, judged(rows, embedding).on_map)
    np.testing.assert_allclose(
        mean_squared_distances(rows), squared_distances(rows).sum(axis=1) / (len(rows) - 1)
    )


def scores(rows: Float64Array, **more: int) -> Scores:
    return evaluate(["reliable"], Evidence(rows=rows, embedding=rows[:, :2]), threads=1, **more)


def test_reasons_for_no_verdict_are_named() -> None:
    rows, *_ = clouds(30)
    for found, reason in (
        (scores(rows[:99]), "at least 100 rows, but there are 99"),
        (scores(np.ones((120, 3))), "all rows are equal"),
    ):
        assert reason in found.not_computed["reliable"]
        assert found.reliability is None
        assert found.by_row == {}


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_share_is_estimated_from_a_sample(kind: type[np.floating[Any]]) -> None:
    rows, embedding, _ = clouds(100)
    embedding[:90] = embedding[300:390]  # misplaced
    given = Evidence(rows=(rows + 5.0).astype(kind), embedding=embedding, sites=np.arange(400) % 2)
    exact = evaluate(["reliable"], given, threads=1)
    whole = evaluate(["reliable"], given, threads=1, exact_rows=0, sampled_rows=400)
    assert whole.values["reliable"] == pytest.approx(exact.values["reliable"], abs=0.01)
    found = evaluate(["reliable"], given, threads=1, exact_rows=0, sampled_rows=200)
    error = found.standard_errors["reliable"]
    assert 0.005 < error < 0.05
    assert found.values["reliable"] == pytest.approx(exact.values["reliable"], abs=3 * error)
    assert found.reliability is None
    assert found.by_row == {}


def test_verdicts_are_computed_by_name_alone_and_change_no_other_metric() -> None:
    assert "reliable" not in default_metrics()
    rows, *_ = clouds(30)
    evidence = Evidence(rows=rows, embedding=rows[:, :2])
    alone = evaluate(["npa_10", "trustworthiness"], evidence).values
    both = evaluate(["npa_10", "reliable", "trustworthiness"], evidence).values
    assert {name: both[name] for name in alone} == alone
