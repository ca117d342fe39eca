"""Sparse tables give the numbers of the same dense tables."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy.sparse import coo_matrix, csc_array, csr_matrix

from raydr.arrays import FloatArray, fingerprint
from raydr.federation import Client
from raydr.geometry.equal_rows import equal_rows
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points, squared_distances, variances
from raydr.geometry.sparse_points import SparsePoints
from raydr.metrics import Evidence, evaluate
from raydr.sparse_rows import SparseRows, rows_taken, stacked
from raydr.statistics.principal_axes import CovarianceRequest, covariance_product


@pytest.fixture(scope="module")
def dense() -> FloatArray:
    """Return counts with an empty row, an empty column and two equal rows; wide enough for several blocks."""
    random = np.random.default_rng(0)
    table = np.where(random.random((300, 7000)) < 0.02, random.normal(size=(300, 7000)), 0.0)
    table[7], table[:, 3], table[11] = 0.0, 0.0, table[12]
    return table.astype(np.float32)


def test_every_way_to_read_a_sparse_table(dense: FloatArray) -> None:
    rows = SparseRows.of(csc_array(dense))
    assert len(rows.slices) > 1
    for key in (
        slice(None),
        slice(5, 9),
        slice(9, 5),
        slice(0, 300, 7),
        4,
        np.array([8, 3]),
        dense[:, 0] == 0,
    ):
        assert np.array_equal(rows[key], dense[key])
    assert np.array_equal(rows[:, 5], dense[:, 5])
    assert np.array_equal(rows[3:8, [2, 1]], dense[3:8][:, [2, 1]])
    assert np.array_equal(np.asarray(rows), dense)
    assert np.array_equal(rows_taken(rows, np.array([2, 2, 1]))[:], dense[[2, 2, 1]])
    parts = rows.split(np.array([4, 4, 100]))
    assert [len(part) for part in parts] == [4, 0, 96, 200]
    assert np.array_equal(stacked(parts)[:], dense)
    assert np.array_equal(pickle.loads(pickle.dumps(rows))[:], dense)


def test_statistics_of_columns_are_the_same_bits(dense: FloatArray) -> None:
    rows = SparseRows.of(dense)
    assert fingerprint(rows) == fingerprint(dense)  # type: ignore[arg-type]
    assert np.array_equal(rows.min(), dense.min(axis=0))
    assert np.array_equal(rows.max(), dense.max(axis=0))
    assert np.array_equal(rows.mean(), dense.mean(axis=0, dtype=np.float64))
    assert np.array_equal(variances(rows), variances(dense))  # type: ignore[arg-type]


def test_stored_zeros_and_repeated_places_are_resolved() -> None:
    repeated = coo_matrix(([1.0, 2.0, 0.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    rows = SparseRows.of(repeated)
    assert (rows.data.tolist(), rows.indices.tolist()) == ([3.0], [1])
    given = csr_matrix(np.eye(2))
    given.data[0] = 0.0
    SparseRows.of(given)
    assert given.nnz == 2  # the caller's matrix is not changed


def test_distances_agree_with_scikit_learn_on_the_dense_table(dense: FloatArray) -> None:
    from sklearn.metrics.pairwise import euclidean_distances

    rows, others = SparseRows.of(dense), dense[:20].astype(np.float64)
    expected = euclidean_distances(dense.astype(np.float64), squared=True)
    error = 1e-13 * expected.max()
    assert np.allclose(squared_distances(rows, others), expected[:, :20], rtol=0, atol=error)  # type: ignore[arg-type]
    points = SparsePoints(rows)
    assert np.allclose(points.squared_distance_block(3, 90), expected[3:90], rtol=0, atol=error)
    assert np.allclose(points.take(np.array([5, 2])).squared_distance_block(0, 1), [[0.0, expected[5, 2]]])


def test_a_column_far_from_zero_costs_no_digits(dense: FloatArray) -> None:
    table = dense[:, :50].astype(np.float64)
    far = np.column_stack([table, np.full(len(table), 1e8)])
    far[:, -1] += np.arange(len(far)) % 5
    near = far - np.where(np.arange(51) == 50, 1e8, 0.0)
    expected = ((near[:, None] - near) ** 2).sum(axis=2)
    found = SparsePoints(SparseRows.of(far)).squared_distance_block(0, len(far))
    assert np.allclose(found, expected, rtol=0, atol=1e-9)
    request = CovarianceRequest(np.eye(51)[:, :3] + np.eye(51)[:, -3:], np.ones(51), far.mean(axis=0))
    products = [
        covariance_product(Client(index=0, rows=rows, seed=0), request).product
        for rows in (SparseRows.of(far), far)
    ]
    assert np.allclose(*products, rtol=0, atol=1e-6)


def test_neighbours_and_equal_rows_are_those_of_the_dense_table(dense: FloatArray) -> None:
    points, same = SparsePoints(SparseRows.of(dense)), Points(dense)
    found, expected = nearest_neighbors(points, 5), nearest_neighbors(same, 5)
    assert np.array_equal(found.indices, expected.indices)
    assert np.allclose(found.distances, expected.distances, rtol=1e-6, atol=1e-5)
    groups, others = equal_rows(points), equal_rows(same)
    assert groups is not None
    assert others is not None
    assert np.array_equal(groups.group_of_row, others.group_of_row)
    assert groups.repeated == 1


def test_neighbours_and_ranks_ask_for_few_distances_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 20,000 rows, blocks as large as those of dense rows took 0.4 GB more."""
    table = np.random.default_rng(0).poisson(0.3, (2200, 8)).astype(np.float64)
    points, asked = SparsePoints(SparseRows.of(table)), []
    whole = SparsePoints.squared_distance_block

    def recorded(self: SparsePoints, start: int, stop: int) -> FloatArray:
        asked.append((stop - start) * self.rows)
        return whole(self, start, stop)

    monkeypatch.setattr(SparsePoints, "squared_distance_block", recorded)
    nearest_neighbors(points, 5)
    searched = len(asked)
    evidence = Evidence(rows=table, embedding=table[:, :2], truth=points)
    evaluate(["trustworthiness"], evidence)
    assert 0 < searched < len(asked)
    assert max(asked) <= 2**21
