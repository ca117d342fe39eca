"""Principal components and the scales that embedders start from."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from raydr.arrays import FloatArray
from raydr.embedding import initialization, principal_components
from raydr.embedding.initialization import tsne_start, umap_start
from raydr.errors import DataError


def correlated(rows: int, features: int) -> FloatArray:
    """Rows with a clear gap after each leading variance."""
    generator = np.random.default_rng(0)
    axes = np.linalg.qr(generator.normal(size=(features, 6)))[0]
    spread = generator.normal(size=(rows, 6)) * [20.0, 10.0, 5.0, 2.0, 1.0, 0.5]
    return np.asarray(spread @ axes.T + generator.normal(size=features) * 100)


@pytest.mark.parametrize("components", [1, 2, 3])
def test_equals_scikit_learn_up_to_the_sign_of_each_axis(components: int) -> None:
    coordinates = load_digits().data
    ours = principal_components(coordinates, components)
    theirs = PCA(n_components=components, svd_solver="full").fit_transform(coordinates)
    theirs *= np.sign((ours * theirs).sum(axis=0))
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_iteration_equals_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinates = correlated(9000, 40)  # more rows than two blocks
    decomposed = principal_components(coordinates)
    monkeypatch.setattr(initialization, "DENSE_FEATURES", 10)
    iterated = principal_components(coordinates)
    np.testing.assert_allclose(iterated, decomposed, atol=1e-8)
    np.testing.assert_array_equal(iterated, principal_components(coordinates))


def test_sign_follows_the_axes_and_not_the_solver() -> None:
    coordinates = correlated(500, 12)
    scores = principal_components(coordinates)
    axes = np.linalg.lstsq(scores, coordinates - coordinates.mean(axis=0), rcond=None)[0]
    assert (axes[np.arange(2), np.abs(axes).argmax(axis=1)] > 0).all()
    np.testing.assert_allclose(
        principal_components(np.vstack((coordinates, coordinates)))[:500], scores, atol=1e-9
    )


def test_float32_rows_are_summed_in_float64() -> None:
    coordinates = correlated(3000, 8).astype(np.float32)
    np.testing.assert_array_equal(
        principal_components(coordinates), principal_components(coordinates.astype(float))
    )


def test_fewer_features_than_components_leave_zero_columns() -> None:
    scores = principal_components(np.array([[1.0], [2.0], [6.0]]))
    np.testing.assert_allclose(scores, [[-2.0, 0.0], [-1.0, 0.0], [3.0, 0.0]])


@pytest.mark.parametrize("shape", [(3,), (0, 4), (4, 0), (2, 3, 4)])
def test_input_that_is_not_a_matrix_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="array of shape"):
        principal_components(np.zeros(shape))


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e9])
def test_tsne_start_equals_opentsne_in_any_unit(unit: float) -> None:
    from openTSNE.initialization import rescale

    layout = principal_components(correlated(400, 8)) * unit
    start = tsne_start(layout, seed=0)
    jitter = start - rescale(layout)
    assert np.std(start[:, 0]) == pytest.approx(1e-4, rel=1e-3)
    assert np.std(jitter) == pytest.approx(1e-6, rel=0.1)
    np.testing.assert_allclose(start, tsne_start(layout / unit, seed=0), rtol=1e-12, atol=1e-18)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e9])
def test_umap_start_equals_umap_learn_in_any_unit(unit: float) -> None:
    layout = principal_components(correlated(400, 8)) * unit
    start = umap_start(layout, seed=0)
    assert start.dtype == np.float32
    assert np.abs(start).max() == pytest.approx(10.0, abs=1e-3)
    noise = start - layout * (10.0 / np.abs(layout).max())
    assert np.std(noise) == pytest.approx(1e-4, rel=0.1)


@pytest.mark.parametrize("scaled", [tsne_start, umap_start])
def test_constant_layout_becomes_distinct_seeded_positions(scaled: object) -> None:
    assert callable(scaled)
    start = scaled(np.zeros((50, 2)), 0)
    assert len(np.unique(start, axis=0)) == 50
    np.testing.assert_array_equal(start, scaled(np.zeros((50, 2)), 0))
    assert not np.array_equal(start, scaled(np.zeros((50, 2)), 1))
