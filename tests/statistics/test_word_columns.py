"""Columns of words in distances: each counts as one column, however many words it has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_federations import federate
from sklearn.metrics import pairwise_distances

from raydr.arrays import Float64Array, Int64Array
from raydr.data.survey.layout import JointColumns
from raydr.front.api import map as map_table
from raydr.statistics.preparing import Preparation
from raydr.statistics.scaling import Scaling, fit_scaling


def indicators(codes: Int64Array) -> Float64Array:
    return (codes[:, None] == np.unique(codes)).astype(np.float64)


def scaled(parts: list[Float64Array], scale: str, words: list[tuple[int, int]]) -> Float64Array:
    """Return the rows of all clients as scaled by a federation."""
    federation = federate(parts)
    joint = JointColumns(tuple(words))
    scaling = fit_scaling(federation, scale, joint)  # type: ignore[arg-type]
    rows = np.concatenate(parts)
    found = Preparation(scaling).applied(rows)
    alone = Preparation(Scaling(np.zeros(rows.shape[1]), np.ones(rows.shape[1])))
    np.testing.assert_allclose(found, alone.without_harmonizing(rows, scale, joint), atol=1e-9)  # type: ignore[arg-type]
    return np.asarray(found, np.float64)


@settings(max_examples=25)
@given(st.integers(2, 12), st.integers(0, 99))
def test_a_column_of_words_has_variance_1_whatever_their_number(count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(count), random.integers(0, count, 40)])
    rows = np.column_stack([random.normal(5.0, 3.0, len(codes)), indicators(codes)])
    found = scaled([rows[:20], rows[20:]], "standard", [(1, 1 + count)])
    np.testing.assert_allclose(found.var(axis=0).sum(), 2.0, rtol=1e-6)
    np.testing.assert_allclose(found[:, 1:].var(axis=0).sum(), 1.0, rtol=1e-6)


def test_two_words_are_one_column_of_zeros_and_ones() -> None:
    random = np.random.default_rng(0)
    sex, age = random.integers(0, 2, 50), random.normal(size=50)
    words = scaled([np.column_stack([age, indicators(sex)])], "standard", [(1, 3)])
    numbers = scaled([np.column_stack([age, sex.astype(np.float64)])], "standard", [])
    np.testing.assert_allclose(pairwise_distances(words), pairwise_distances(numbers), atol=1e-6)


def test_under_minmax_a_column_counts_as_in_gowers_distance() -> None:
    """Its square is the sum over columns of (x - y)^2 / range^2, and of 1 for two different words."""
    random = np.random.default_rng(1)
    numbers, codes = random.normal(size=(60, 2)), random.integers(0, 5, 60)
    found = scaled([np.column_stack([numbers, indicators(codes)])], "minmax", [(2, 7)])
    ranged = numbers / np.ptp(numbers, axis=0)
    expected = pairwise_distances(ranged) ** 2 + (codes[:, None] != codes)
    np.testing.assert_allclose(pairwise_distances(found) ** 2, expected, atol=1e-6)


@pytest.mark.parametrize("spellings", [6, 40])
def test_random_words_do_not_hide_two_groups(tmp_path: Path, spellings: int) -> None:
    """240 rows of two groups, with a column of random words: neighbours stay in their group."""
    random = np.random.default_rng(2)
    group = np.arange(240) % 2
    numbers = random.normal(size=(240, 6)) + 3.0 * group[:, None]
    words = random.integers(0, spellings, 240)
    lines = ["site,group,word," + ",".join("abcdef")]
    for row in range(240):
        lines.append(f"s{row % 3},g{group[row]},w{words[row]}," + ",".join(f"{x:.3f}" for x in numbers[row]))
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    result = map_table(
        tmp_path / "table.csv",
        site="site",
        label="group",
        method="fed-tsne",
        out=tmp_path / "run",
        runtime__federation="inline",
        method__landmarks=60,
        metrics=["ca_10"],
        compare=[],
        data__words={"rows": 1, "sites": 1},
    )
    assert result.metrics["federated"]["ca_10"] > 0.97
