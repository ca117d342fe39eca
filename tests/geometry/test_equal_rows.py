"""Groups of equal rows, and maps that give each group one place."""

from __future__ import annotations

import numpy as np
import pytest

from raydr.arrays import FloatArray, Int64Array
from raydr.embedding import TSNE, UMAP, Embedder
from raydr.geometry.equal_rows import equal_rows
from raydr.geometry.points import Points
from raydr.journal import Journal
from raydr.methods.outcome import draw_map


def repeated(rows: int = 60, kinds: int = 20, seed: int = 0) -> tuple[FloatArray, Int64Array]:
    """Return rows with ``kinds`` different values, and the number of the value of each."""
    random = np.random.default_rng(seed)
    which = np.concatenate([np.arange(kinds), random.integers(0, kinds, rows - kinds)])
    return random.normal(size=(kinds, 5))[which], which


def test_rows_that_differ_have_no_groups() -> None:
    assert equal_rows(Points(np.random.default_rng(0).normal(size=(500, 3)))) is None


def test_groups_are_in_the_order_of_their_first_rows() -> None:
    found = equal_rows(Points(np.array([[2.0], [1.0], [2.0], [0.0], [1.0]])))
    assert found is not None
    assert found.first.tolist() == [0, 1, 3]
    assert found.group_of_row.tolist() == [0, 1, 0, 2, 1]
    assert found.repeated == 2


def test_equal_rows_are_those_of_numpy() -> None:
    rows, which = repeated(5_000, 700)
    found = equal_rows(Points(rows))
    assert found is not None
    _, first, group = np.unique(which, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))
    assert (found.first == np.sort(first)).all()
    assert (found.group_of_row == order[group]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_that_differ_by_rounding_are_equal_and_others_are_not(dtype: type) -> None:
    rows, which = repeated()
    random = np.random.default_rng(1)
    resolved = float(np.finfo(dtype).eps) ** 0.5
    for part, groups in ((1e-6, 20), (1e3, 60)):
        moved = (rows + random.uniform(-1, 1, rows.shape) * resolved * part).astype(dtype)
        found = equal_rows(Points(moved))
        assert (len(rows) if found is None else len(found.first)) == groups
        assert found is None or (found.group_of_row == which).all()


def test_one_far_row_makes_no_others_equal() -> None:
    rows = np.random.default_rng(0).normal(size=(100, 2))
    rows[7] = 1e9
    assert equal_rows(Points(rows)) is None


def test_only_equal_rows_are_one_group() -> None:
    found = equal_rows(Points(np.full((9, 2), 3.7)))
    assert found is not None
    assert found.first.tolist() == [0]


@pytest.mark.parametrize("embedder", [TSNE(iterations=20, early_iterations=20), UMAP(epochs=20)])
def test_map_has_one_place_for_equal_rows_as_the_map_of_the_different_rows(embedder: Embedder) -> None:
    rows, which = repeated()

    def drawn(rows: FloatArray) -> FloatArray:
        return draw_map(Points(rows), rows, embedder, seed=3, journal=Journal()).embedding

    assert (drawn(rows) == drawn(rows[:20])[which]).all()


def test_graph_of_equal_rows_has_the_neighbours_of_their_first_row() -> None:
    rows, which = (each[np.random.default_rng(2).permutation(60)] for each in repeated())
    found = draw_map(Points(rows), rows, UMAP(neighbors=4, epochs=1), seed=0, journal=Journal())
    first = np.unique(which, return_index=True)[1]
    assert set(found.graph.indices.ravel()) <= set(first)
    which = first[which]
    assert (found.graph.indices == found.graph.indices[which]).all()
    gaps = np.linalg.norm(rows[:, None] - rows[found.graph.indices], axis=2)
    np.testing.assert_allclose(found.graph.distances, gaps, rtol=1e-5)
    assert any("40 of 60 rows equal an earlier row" in note.text for note in found.notes)


def test_too_few_different_rows_are_drawn_one_by_one() -> None:
    rows, _ = repeated(30, 3)
    embedding = draw_map(Points(rows), rows, TSNE(iterations=5), seed=0, journal=Journal()).embedding
    assert len(np.unique(embedding, axis=0)) == 30
