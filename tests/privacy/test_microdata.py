"""Values and labels of single records for display: each is shared by several records."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydr.privacy.microdata import merged_counts, merged_labels, shared_values


def rows_of(values: np.ndarray) -> list[tuple[str, ...]]:
    return [tuple(map(str, row)) for row in values.tolist()]


@given(st.integers(0, 10**6), st.integers(2, 9), st.integers(0, 60), st.integers(1, 4))
@settings(max_examples=80)
def test_each_row_is_shared_by_enough(seed: int, least: int, count: int, columns: int) -> None:
    random = np.random.default_rng(seed)
    values = random.normal(size=(count, columns)) * 10.0 ** random.integers(-3, 4, columns)
    values[:, 0] = np.round(values[:, 0])  # ties
    values[random.random(values.shape) < 0.1] = np.nan
    shown = shared_values(values, least)
    if count < least:
        assert np.isnan(shown).all()
        return
    assert min(Counter(rows_of(shown)).values()) >= least


def test_large_groups_are_halved_and_keep_the_mean() -> None:
    values = np.random.default_rng(2).normal(size=(400, 1))
    shown = shared_values(values, 5)
    sizes = Counter(rows_of(shown)).values()
    assert 5 <= min(sizes) <= max(sizes) < 10
    assert shown.mean() == pytest.approx(values.mean())
    assert np.corrcoef(shown.T, values.T)[0, 1] > 0.98


def test_column_of_two_values_keeps_them() -> None:
    values = np.random.default_rng(2).integers(0, 2, size=(50, 1)).astype(float)
    assert set(np.unique(shared_values(values, 4))) <= {0.0, 1.0}


@given(st.lists(st.integers(0, 6), max_size=60), st.integers(2, 8))
@settings(max_examples=80)
def test_each_label_is_shared_by_enough_or_all_are_merged(labels: list[int], least: int) -> None:
    before = np.array(labels, np.int64)
    shown = merged_labels(before, least, 7)
    counts = Counter(shown.tolist())
    if counts:
        assert min(counts.values()) >= least or set(counts) == {7}
    assert ((shown == before) | (shown == 7)).all()
    enough = Counter(labels)
    if labels and min(enough.values()) >= least:
        assert (shown == before).all()


@given(st.lists(st.integers(0, 12), min_size=1, max_size=40), st.integers(2, 9))
@settings(max_examples=80)
def test_bins_are_merged_until_each_has_enough(bins: list[int], least: int) -> None:
    counts = np.array(bins, np.int64)
    merged = merged_counts(counts, least)
    assert merged.sum() == counts.sum()
    there = merged[merged > 0]
    assert there.size == 0 or there.min() >= least or there.size == 1
    assert (merged[counts == 0] == 0).all()
    if (counts[counts > 0] >= least).all():
        assert (merged == counts).all()
