"""Projection of wide rows before FedNE's encoder: geometry, the model over all columns, and which tables change."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from inline_federations import federate

from raydr.arrays import FloatArray, Int64Array
from raydr.methods import METHODS
from raydr.methods.fedne.edges import local_neighbors
from raydr.methods.fedne.encoder import Architecture, initial_weights, place
from raydr.methods.fedne.fedne import FedNE
from raydr.methods.fedne.pooled import epochs_on
from raydr.methods.fedne.projection import (
    MOST_COLUMNS,
    WIDTH,
    Projection,
    ProjectRows,
    project_client,
    projects_at_random,
)
from raydr.sparse_rows import SparseRows

PROJECTION = Projection(columns=3_000, seed=7)


def rows_of(count: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, PROJECTION.columns))


def test_projected_lengths_are_those_of_rows_per_column() -> None:
    rows = rows_of(200)
    lengths = (PROJECTION.project(rows) ** 2).mean(axis=1) / (rows**2).mean(axis=1)
    # The variance of a squared length is 2 / WIDTH (Johnson & Lindenstrauss).
    assert lengths.mean() == pytest.approx(1.0, abs=5 * np.sqrt(2 / WIDTH / 200))
    assert lengths.std() == pytest.approx(np.sqrt(2 / WIDTH), rel=0.2)


def test_encoder_of_columns_places_rows_as_the_encoder_of_projected_rows() -> None:
    rows, hidden = rows_of(20), (16, 8)
    weights = initial_weights(Architecture(WIDTH, hidden), np.random.default_rng(1))
    wide = PROJECTION.of_columns(weights, hidden)
    expected = place(Architecture(WIDTH, hidden), weights, PROJECTION.project(rows))
    found = place(Architecture(PROJECTION.columns, hidden), wide, rows)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_reach_bounds_projected_rows_and_is_attained() -> None:
    reach = np.abs(rows_of(1)[0])
    bound = PROJECTION.reach(reach)
    worst = reach * np.sign(PROJECTION.matrix().toarray()[:, 0])
    first = PROJECTION.project(worst[None])[0]
    assert (np.abs(first) <= bound).all()
    assert first[0] == pytest.approx(bound[0], rel=1e-4)


def test_lifted_rows_have_the_same_projection() -> None:
    projected = PROJECTION.project(rows_of(3)).astype(np.float64)
    lifted = PROJECTION.lift(projected)
    np.testing.assert_allclose(PROJECTION.project(lifted), projected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "rows", "columns", "projected"),
    [
        (FedNE(), 25, MOST_COLUMNS + 1, True),
        (FedNE(), 25, MOST_COLUMNS, False),
        (FedNE(), 2_000, 2_000, False),
        (FedNE(preset="published"), 25, 5_000, False),
        (FedNE(bounds=(0.0, 1.0)), 25, 5_000, False),
    ],
)
def test_only_tables_with_more_columns_than_the_bound_and_than_rows_are_projected(
    settings: FedNE, rows: int, columns: int, projected: bool
) -> None:
    assert projects_at_random(settings, rows, columns) == projected


def test_new_rows_of_a_wide_table_lie_where_the_run_put_them() -> None:
    table = np.random.default_rng(2).normal(size=(24, MOST_COLUMNS + 50)).astype(np.float32)
    settings = FedNE(rounds=2, hidden=(8,))
    found = METHODS["fedne"].serve(federate([table[:10], table[10:]]), settings)
    np.testing.assert_allclose(settings.transform(found.model, table), found.embedding, atol=1e-4)


def test_sparse_rows_are_projected_as_dense_ones_without_being_made_dense(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a sparse table was made dense")

    random = np.random.default_rng(3)
    table = np.where(random.random((30, MOST_COLUMNS + 50)) < 0.05, 1.0 + random.random((30, 1)), 0.0)
    table[:4], table[5], table[:, 7] = 0.0, table[6], 1e4 + random.random(30)
    parts = [table[:4], table[4:5], table[5:]]
    settings = FedNE(rounds=2, hidden=(8,))
    dense = METHODS["fedne"].serve(federate(parts), settings)
    monkeypatch.setattr(SparseRows, "__array__", refuse)
    sparse = METHODS["fedne"].serve(federate([SparseRows.of(part) for part in parts]), settings)  # type: ignore[misc]
    np.testing.assert_allclose(sparse.embedding, dense.embedding, atol=1e-3)
    for name, values in dense.model.items():
        np.testing.assert_allclose(sparse.model[name], values, rtol=1e-4, atol=1e-4)


def test_only_a_wide_table_stays_sparse() -> None:
    why = FedNE().why_dense
    assert why(25, 5_000, pooled=False) is None
    assert "columns than rows" in str(why(5_000, 5_000, pooled=False))
    assert "columns than rows" in str(why(0, 0, pooled=False)), "sites' own files"
    assert "leave compare out" in str(why(25, 5_000, pooled=True))


@pytest.mark.parametrize("seed", [None, 7])
def test_a_projection_without_a_label_is_that_of_the_features(seed: int | None) -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(20, 1_210)).astype(np.float32)
    found, plain = Projection(1_210, seed, label=10), Projection(1_200, 7)
    per_column = np.diff(found.matrix().indptr)
    assert (per_column[:1_200] == (1 if seed is None else 8)).all()
    assert not per_column[1_200:].any()
    projected = found.project(rows)
    expected = rows[:, :1_200] if seed is None else plain.project(rows[:, :1_200])
    np.testing.assert_array_equal(projected, expected)
    np.testing.assert_allclose(projected, rows.astype(np.float64) @ found.matrix(), rtol=1e-5, atol=1e-6)
    assert (np.abs(projected) <= found.reach(np.abs(rows).max(axis=0).astype(np.float64))).all()
    weights = random.normal(size=Architecture(found.width, (3,)).parameters).astype(np.float32)
    wide = Architecture(1_210, (3,)).parts(found.of_columns(weights, (3,)))[0]
    assert not wide[1_200:].any()
    np.testing.assert_allclose(
        rows @ wide, projected @ Architecture(found.width, (3,)).parts(weights)[0], atol=1e-3
    )


def test_a_table_as_wide_as_the_projection_is_not_taken_for_a_projected_one() -> None:
    settings = METHODS["fedne"].settings()
    assert settings.why_dense(100, 512, pooled=False) is not None
    assert settings.why_dense(100, 2_000, pooled=False) is None


def test_neighbours_are_those_of_all_columns_with_the_label() -> None:
    """Features without structure and a label of two classes: every neighbour has the row's own class."""
    random = np.random.default_rng(0)
    classes = np.arange(40) % 2
    rows = np.hstack([random.normal(size=(40, 3)), 100.0 * np.eye(2)[classes]]).astype(np.float32)
    client = SimpleNamespace(rows=rows, memory={})
    project_client(client, ProjectRows(Projection(5, None, label=2), neighbors=5))  # type: ignore[arg-type]
    assert client.rows.shape == (40, 3)
    assert (classes[client.memory["neighbors"]] == classes[:, None]).all()


def test_a_pooled_map_has_neighbours_by_the_label_and_an_encoder_of_the_features(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    def search(rows: FloatArray, k: int) -> Int64Array:
        seen.append(rows.shape)
        return local_neighbors(rows, k)

    monkeypatch.setattr("raydr.methods.fedne.edges.local_neighbors", search)
    settings = FedNE(rounds=1, hidden=(4,), neighbors=5)
    rows = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    ((weights, _),) = epochs_on(rows, settings, lambda *_: np.random.default_rng(0), label=2)
    assert seen == [(40, 5)]
    assert weights.size == Architecture(3, (4,)).parameters
