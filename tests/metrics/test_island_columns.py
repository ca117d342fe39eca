"""Columns in which groups of islands differ."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from raydr.metrics.island_columns import MOST_COLUMNS, Difference, Differences, differing_columns


def test_columns_of_a_group_are_found_with_their_direction() -> None:
    random = np.random.default_rng(0)
    group = np.repeat([0, 1, 2], [300, 60, 40])
    rows = random.normal(size=(400, 6))
    rows[group == 1, 2] += 4
    rows[group == 2, 4] -= 4
    first, second, third = differing_columns(rows, group, 0.05)
    assert [each.column for each in second.largest] == [2]
    assert second.largest[0].auc > 0.95
    assert [each.column for each in third.largest] == [4]
    assert third.largest[0].auc < 0.05
    assert [each.column for each in first.largest] == [2, 4]
    assert first.largest[0].auc < 0.3
    assert first.largest[1].auc > 0.6
    assert (first.columns, second.columns, third.columns) == (2, 1, 1)


def test_auc_and_its_test_are_mann_and_whitneys_with_ties() -> None:
    random = np.random.default_rng(1)
    group = np.repeat([0, 1], [30, 50])
    column = random.integers(0, 4, 80) + 2 * group
    expected = mannwhitneyu(column[:30], column[30:], use_continuity=False, method="asymptotic")
    (found,) = differing_columns(column[:, None].astype(float), group, expected.pvalue * 1.001)[0].largest
    assert found.auc == pytest.approx(expected.statistic / 1500)
    assert differing_columns(column[:, None].astype(float), group, expected.pvalue * 0.999)[0].columns == 0


def test_small_differences_of_many_rows_are_left_out() -> None:
    random = np.random.default_rng(2)
    group = np.repeat([0, 1], 5_000)
    rows = random.normal(size=(10_000, 2)) + np.outer(group, [0.3, 1.0])  # an AUC of 0.58 and of 0.76
    assert [each.column for each in differing_columns(rows, group, 0.05)[1].largest] == [1]


def test_noise_constants_and_single_groups_have_no_columns() -> None:
    random = np.random.default_rng(3)
    rows = np.column_stack([random.normal(size=(60, 30)), np.ones(60)])
    group = np.repeat([0, 1], [10, 50])
    assert differing_columns(rows, group, 0.05) == [Differences(0, ())] * 2
    assert differing_columns(rows, np.zeros(60, np.int64), 0.05) == [Differences(0, ())]


def test_only_the_largest_differences_are_listed() -> None:
    group = np.repeat([0, 1], 50)
    rows = np.outer(group, np.ones(8)) + 1e-3 * np.arange(100)[:, None]
    found = differing_columns(rows, group, 0.05)[1]
    assert found.columns == 8
    assert found.largest == tuple(Difference(column, 1.0) for column in range(MOST_COLUMNS))
