"""Intervals of ratios: a worked example, agreement with t tests, coverage, and what they say without deviations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from raydr.runfolder.ratio_intervals import (
    PrintedMean,
    RatioInterval,
    _covariance,
    _fieller,
    independent_ratio,
    paired_ratio,
)


def printed(values: np.ndarray) -> PrintedMean:
    return PrintedMean(float(values.mean()), float(values.std(ddof=1)), len(values))


def test_a_paired_interval_by_hand() -> None:
    """Above 2, 4, 6 and below 1, 2, 6: means 4 and 3, variances of means 4/3 and 7/3, covariance 5/3, t^2 = 18.51.

    (9 - 43.20) r^2 - 2 (12 - 30.85) r + (16 - 24.68) is at most 0 up to r = 0.33 and from 0.78, so that there is no
    bound. With t^2 = 1 it is 6.67 r^2 - 20.67 r + 14.67, which is at most 0 from 1.1 to 2.
    """
    assert paired_ratio([2.0, 4.0, 6.0], [1.0, 2.0, 6.0]) == RatioInterval(0.0, math.inf)
    assert _covariance([2.0, 4.0, 6.0], [1.0, 2.0, 6.0]) == pytest.approx(5.0)
    found = _fieller(4.0, 3.0, 4 / 3, 7 / 3, 5 / 3, 1.0)
    assert (found.low, found.high) == (pytest.approx(1.1), pytest.approx(2.0))


def test_an_independent_interval_by_hand() -> None:
    """0.62 +- 0.01 of 3 seeds against 0.60 of one seed with the same deviation: t(2) = 4.303, variances 1/30000, 1e-4.

    (0.36 - 0.001851) r^2 - 2 * 0.372 r + (0.3844 - 0.000617) = 0.
    """
    found = independent_ratio(PrintedMean(0.62, 0.01, 3), PrintedMean(0.60, None, 1))
    assert found is not None
    roots = np.roots([0.36 - 0.00185128, -2 * 0.372, 0.3844 - 0.00061709])
    np.testing.assert_allclose([found.low, found.high], sorted(roots), rtol=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_an_interval_has_1_if_and_only_if_the_t_test_finds_no_difference(seed: int) -> None:
    random = np.random.default_rng(seed)
    above, below = random.normal(0.53, 0.02, 4), random.normal(0.5, 0.03, 6)
    found = independent_ratio(printed(above), printed(below))
    assert found is not None
    differs = stats.ttest_ind(above, below, equal_var=False).pvalue < 0.05
    assert (not found.low <= 1.0 <= found.high) == differs
    shared = random.normal(0.5, 0.05, 5)
    above, below = shared + random.normal(0.01, 0.01, 5), shared
    paired = paired_ratio(above.tolist(), below.tolist())
    assert paired is not None
    assert (not paired.low <= 1.0 <= paired.high) == (stats.ttest_rel(above, below).pvalue < 0.05)


def test_pairs_of_one_seed_give_a_narrower_interval_than_means() -> None:
    """What a seed does to both is in no difference."""
    shared = np.random.default_rng(0).normal(0.5, 0.05, 5)
    above = shared * 1.01
    paired = paired_ratio(above.tolist(), shared.tolist())
    apart = independent_ratio(printed(above), printed(shared))
    assert paired is not None
    assert apart is not None
    assert (paired.low, paired.high) == (pytest.approx(1.01), pytest.approx(1.01))
    assert apart.low < 0.95 < 1.07 < apart.high


def covered(intervals: list[RatioInterval | None], ratio: float) -> float:
    return float(np.mean([each is not None and each.low <= ratio <= each.high for each in intervals]))


def test_intervals_cover_the_true_ratio_in_95_of_100_repetitions() -> None:
    """2,000 synthetic tables: coverage has a standard error of 0.005."""
    random, ratio = np.random.default_rng(1), 0.8 / 0.9
    paired, welch, own_spread = [], [], []
    for _ in range(2_000):
        shared = random.normal(0.0, 0.03, 3)
        above, below = 0.8 + shared + random.normal(0, 0.01, 3), 0.9 + shared + random.normal(0, 0.02, 3)
        paired.append(paired_ratio(above.tolist(), below.tolist()))
        above, below = random.normal(0.8, 0.02, 5), random.normal(0.9, 0.01, 5)
        welch.append(independent_ratio(printed(above), printed(below)))
        single = PrintedMean(float(random.normal(0.9, 0.02)), None, 1)
        own_spread.append(independent_ratio(printed(random.normal(0.8, 0.02, 3)), single))
    assert covered(paired, ratio) == pytest.approx(0.95, abs=0.02)
    assert covered(welch, ratio) == pytest.approx(0.95, abs=0.02)
    assert covered(own_spread, ratio) == pytest.approx(0.95, abs=0.02)
    assert covered(welch, 1.0) < 0.02, "a difference of 10 deviations of the mean is found"


def test_a_rounded_number_widens_the_interval_by_its_rounding() -> None:
    ours = PrintedMean(0.9, 0.0, 3)
    found = independent_ratio(ours, PrintedMean(0.9, None, 1, rounding=0.005))
    assert found == RatioInterval(pytest.approx(0.9 / 0.905), pytest.approx(0.9 / 0.895))


def test_a_mean_that_may_be_0_bounds_no_ratio() -> None:
    below = PrintedMean(0.01, 0.02, 3)
    found = independent_ratio(PrintedMean(0.9, 0.001, 3), below)
    assert found is not None
    assert (found.low > 1, found.high) == (True, math.inf)
    assert found.inverse.low == 0.0
    assert independent_ratio(PrintedMean(0.01, 0.02, 3), below) == RatioInterval(0.0, math.inf)


def test_without_deviations_there_is_no_interval() -> None:
    assert independent_ratio(PrintedMean(0.9, None, 1), PrintedMean(0.8, None, 1)) is None
    assert paired_ratio([0.9], [0.8]) is None
