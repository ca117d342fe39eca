"""Rows of a period that are unlike those of the first one: against brute force, without drift, and with it."""

from __future__ import annotations

import numpy as np
import pytest

from raydr.arrays import FloatArray, Int64Array
from raydr.geometry.points import Points
from raydr.metrics.drift import LEAST_FIRST, MOST_COMPARED, UNLIKE, Drift, drift_by_period


def conformal(first: FloatArray, row: FloatArray) -> float:
    """Return the p-value of full conformal prediction, with the row among the references, from all distances."""
    every = np.concatenate([first, row[None]])
    distances = np.linalg.norm(every[:, None] - every, axis=2)
    np.fill_diagonal(distances, np.inf)
    scores = distances.min(axis=1)
    return float((scores >= scores[-1] - 1e-12).mean())


def test_counts_are_those_of_full_conformal_prediction() -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(260, 3))
    rows[180:] += [1.5, 0.0, 0.0]
    periods = np.repeat([2, 5, 9], [120, 60, 80])
    first = rows[periods == 2]
    found = drift_by_period(Points(rows), periods, seed=0)
    for period, drift in found.items():
        p = np.array([conformal(first, row) for row in rows[periods == period]])
        assert drift == Drift(compared=p.size, unlike=int((p <= UNLIKE).sum()))
    assert list(found) == [5, 9]
    assert found[9].unlike > found[5].unlike


def share(draw: int) -> float:
    random = np.random.default_rng(draw)
    rows = random.normal(size=(300, 4))
    drift = drift_by_period(Points(rows), random.permutation(np.repeat([0, 1], 150)), seed=draw)[1]
    return drift.unlike / drift.compared


def test_without_drift_at_most_one_row_in_twenty_is_unlike() -> None:
    """The bound holds for the mean over draws; its standard error is 0.002 here."""
    found = [share(draw) for draw in range(100)]
    assert 0.035 < np.mean(found) < UNLIKE + 0.005


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_equal_rows_are_not_unlike(offset: float) -> None:
    """The distances of equal rows are 0 but for rounding, which must not make rows unlike."""
    random = np.random.default_rng(0)
    words = random.normal(size=(30, 50)) + offset
    rows = np.concatenate([np.tile(words, (5, 1)), words[random.integers(0, 30, 200)]])
    drift = drift_by_period(Points(rows), np.repeat([0, 1], [150, 200]), seed=0)[1]
    assert drift == Drift(compared=200, unlike=0)


def test_units_and_places_of_rows_do_not_matter() -> None:
    random = np.random.default_rng(1)
    rows, periods = random.normal(size=(400, 3)), np.repeat([0, 1], 200)
    rows[periods == 1] *= 2.0
    found = drift_by_period(Points(rows), periods, seed=0)
    assert found == drift_by_period(Points(1e6 * rows + 3e6), periods, seed=0)
    assert found[1].unlike > 30


def test_few_rows_of_the_first_period_are_no_reference() -> None:
    rows = np.random.default_rng(0).normal(size=(300, 2))
    few = np.repeat([0, 1], [LEAST_FIRST - 1, 300 - LEAST_FIRST + 1])
    assert drift_by_period(Points(rows), few, seed=0) == {}
    enough = np.repeat([0, 1], [LEAST_FIRST, 300 - LEAST_FIRST])
    assert list(drift_by_period(Points(rows), enough, seed=0)) == [1]


def test_large_periods_are_sampled() -> None:
    """A sample of exchangeable rows is exchangeable, so the share stays."""
    random = np.random.default_rng(0)
    periods: Int64Array = np.repeat([0, 1, 2], [MOST_COMPARED + 500, 200, MOST_COMPARED + 500])
    rows = random.normal(size=(periods.size, 2)) + 3.0 * (periods == 2)[:, None]
    found = drift_by_period(Points(rows), periods, seed=0)
    assert [drift.compared for drift in found.values()] == [200, MOST_COMPARED]
    assert found[1].unlike / 200 < 0.1
    assert found[2].unlike / MOST_COMPARED > 0.7
    assert found == drift_by_period(Points(rows), periods, seed=0)
