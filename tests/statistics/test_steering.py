"""The label's block adds a known distance with a known share of the variance, for every partition of the rows."""

from __future__ import annotations

import numpy as np
import pytest
from inline_federations import federate
from requests_for_tests import HandOver
from scipy.spatial.distance import cdist

from raydr.arrays import Float64Array, FloatArray
from raydr.data.loading import NO_LABEL
from raydr.errors import DataError
from raydr.sparse_rows import SparseRows
from raydr.statistics.preparing import Preparation
from raydr.statistics.scaling import Scaling
from raydr.statistics.steering import Steering, Target, fit_steering

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal(size=(60, 4)) * [1.0, 5.0, 0.1, 2.0] + 3.0
WORDS = np.repeat([0.0, 1.0, 2.0, 1.0, 0.0, 3.0], [20, 5, 10, 13, 7, 5])
"""Classes of unequal size: in three sites of 20, 15 and 25 rows, the first has one, and class 3 is only in the last."""
YEARS = 2000.0 + RANDOM.normal(size=60)
ENDS = [20, 35]


def without(labels: Float64Array, rows: object) -> Float64Array:
    found = labels.copy()
    found[rows] = np.nan
    return found


LABELS = {
    "classes": (Target(0.3, tuple("abcd")), WORDS),
    "some classes missing": (Target(0.3, tuple("abcd")), without(WORDS, slice(None, None, 3))),
    "a site without labels": (Target(0.3, tuple("abcd")), without(WORDS, slice(20, 35))),
    "a quantity": (Target(0.9, (), YEARS.min(), YEARS.max()), YEARS),
    "some of a quantity missing": (
        Target(0.05, (), YEARS[1:].min(), YEARS[1:].max()),
        without(YEARS, [0, 7, 30]),
    ),
}


def steered(
    target: Target, rows: FloatArray, labels: Float64Array, ends: list[int]
) -> tuple[FloatArray, Steering]:
    """Return the clients' rows with the label's block, which equal those that the model of the run gives."""
    parts = [np.ascontiguousarray(part) for part in np.split(rows, ends)]
    federation = federate(parts, targets=tuple(np.split(labels, ends)))
    found = fit_steering(federation, target)
    request = HandOver(federation.features, rows.dtype.name)
    held = np.concatenate([reply.rows for reply in federation.ask(request)])
    prepared = Preparation(Scaling(np.zeros(4), np.ones(4)), steering=found)
    again = Preparation.of(prepared.arrays, {}, "euclidean", None)
    assert np.array_equal(again.applied(rows, targets=labels), held)
    return held, found


def pooled_block(target: Target, rows: FloatArray, labels: Float64Array) -> Float64Array:
    """The block by its definition: zeros for unlabelled rows, as far from each class, and its share of variance."""
    known = ~np.isnan(labels)
    block = np.zeros((len(rows), target.width))
    if target.classes:
        block[known] = np.eye(target.width)[labels[known].astype(int)] - 1.0 / target.width
    else:
        block[known, 0] = labels[known] - labels[known].mean()
    wanted = rows.var(axis=0).sum() * target.weight / (1.0 - target.weight)
    return np.asarray(block * np.sqrt(wanted / block.var(axis=0).sum()))


@pytest.mark.parametrize("name", LABELS)
def test_squared_distance_is_the_features_part_and_the_labels_part(name: str) -> None:
    target, labels = LABELS[name]
    held, _ = steered(target, ROWS, labels, ENDS)
    block = pooled_block(target, ROWS, labels)
    expected = cdist(ROWS, ROWS, "sqeuclidean") + cdist(block, block, "sqeuclidean")
    np.testing.assert_allclose(cdist(held, held, "sqeuclidean"), expected, rtol=1e-9, atol=1e-10)
    variance = held.var(axis=0)
    assert variance[4:].sum() / variance.sum() == pytest.approx(target.weight, rel=1e-9)
    apart = cdist(held[:, 4:], held[:, 4:], "sqeuclidean").sum() / cdist(held, held, "sqeuclidean").sum()
    assert apart == pytest.approx(target.weight, rel=1e-9), (
        "so the label has this share of the mean squared distance"
    )


@pytest.mark.parametrize("name", LABELS)
def test_division_into_sites_does_not_matter(name: str) -> None:
    target, labels = LABELS[name]
    pooled, _ = steered(target, ROWS, labels, [])
    for ends in (ENDS, [1, 2, 50], [0, 60]):
        divided, _ = steered(target, ROWS, labels, ends)
        np.testing.assert_allclose(divided, pooled, rtol=1e-9, atol=1e-9)
    single, _ = steered(target, ROWS.astype(np.float32), labels, ENDS)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, pooled, atol=2e-5)


def test_row_without_a_label_is_nearer_to_every_class_than_two_classes_are_to_each_other() -> None:
    target, labels = LABELS["some classes missing"]
    held, found = steered(target, ROWS, labels, ENDS)
    blocks = np.unique(held[~np.isnan(labels), 4:], axis=0)
    assert len(blocks) == 4
    assert not held[np.isnan(labels), 4:].any()
    between = cdist(blocks, blocks)[~np.eye(4, dtype=bool)]
    np.testing.assert_allclose(between, between[0], rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(blocks, axis=1), between[0] * np.sqrt(0.75 / 2.0), rtol=1e-12)
    new = found.applied(ROWS[:3])
    assert np.array_equal(new, np.column_stack([ROWS[:3], np.zeros((3, 4))])), "new rows have no label"


def test_sparse_rows_stay_sparse() -> None:
    rows = SparseRows.of(ROWS * (ROWS > 3.0))
    found = Steering(np.array([0.25, 0.75]), 2.0)
    labels = np.where(WORDS > 1.0, np.nan, WORDS)
    made = found.applied(rows, labels)
    assert isinstance(made, SparseRows)
    assert np.array_equal(made[:], found.applied(rows[:], labels))
    assert made.data.size == rows.data.size + 2 * (~np.isnan(labels)).sum()


def test_targets_follow_names() -> None:
    names = ["b", NO_LABEL, "c", "a"]
    codes = np.array([0, 1, 2, 3])
    np.testing.assert_array_equal(Target(0.5, ("a", "b")).of(codes, names), [1.0, np.nan, np.nan, 0.0])
    numbers = Target(0.5, (), 1.0, 3.0).of(np.array([2, 0, 1]), ["1.5", NO_LABEL, "3"])
    np.testing.assert_array_equal(numbers, [3.0, 1.5, np.nan])


@pytest.mark.parametrize("labels", [np.zeros(60), np.full(60, np.nan)])
def test_one_label_cannot_steer(labels: Float64Array) -> None:
    with pytest.raises(DataError, match="all labelled rows have the same label"):
        steered(Target(0.5, ("a", "b")), ROWS, labels, ENDS)


def test_public_rows_have_the_block_of_their_labels() -> None:
    target = Target(0.3, tuple("abcd"))
    federation = federate([ROWS], targets=(WORDS,), public=ROWS[:4])
    found = fit_steering(federation, target, np.array([0.0, np.nan, 2.0, 3.0]))
    assert federation.public is not None
    expected = found.factor * (np.eye(4)[[0, 0, 2, 3]] - 0.25)
    expected[1] = 0.0
    np.testing.assert_allclose(federation.public, np.column_stack([ROWS[:4], expected]))
