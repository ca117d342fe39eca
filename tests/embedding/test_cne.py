"""CNE: the published objective and gradient, mini-batches, reproducibility, and the spectrum from t-SNE to UMAP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embedded import central_differences, digest, digits, exact_graph, prepared
from pydantic import ValidationError
from sklearn.manifold import trustworthiness

from raydr.arrays import Float64Array
from raydr.embedding import CNE, TSNE, UMAP, principal_components
from raydr.embedding.kernels.contrastive import (
    add_attraction,
    add_repulsion,
    attraction,
    descend,
    draw_negatives,
    repulsion,
    symmetric_edges,
)
from raydr.errors import DataError, ScenarioError

BRIEF = CNE(epochs=20)


def some_pairs(rows: int = 9, edges: int = 30) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(1)
    heads = generator.integers(0, rows, edges, np.int32)
    tails = (heads + generator.integers(1, rows, edges, np.int32)) % rows
    return heads, tails, draw_negatives(generator, heads, rows, 4)


# Objective and gradient


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("nu", [0.02, 1.0, 30.0])
def test_gradients_equal_central_differences(nu: float, width: int) -> None:
    layout = np.random.default_rng(0).normal(scale=2.0, size=(9, width))
    heads, tails, negatives = some_pairs()
    attractive, repulsive = np.zeros_like(layout), np.zeros_like(layout)
    add_attraction(layout, heads, tails, nu, attractive)
    add_repulsion(layout, heads, negatives, nu, repulsive)
    np.testing.assert_allclose(
        attractive,
        central_differences(lambda y: attraction(y, heads, tails, nu), layout),
        rtol=1e-6,
        atol=1e-8,
    )
    np.testing.assert_allclose(
        repulsive,
        central_differences(lambda y: repulsion(y, heads, negatives, nu), layout),
        rtol=1e-6,
        atol=1e-8,
    )


def test_objective_is_the_noise_contrastive_cross_entropy() -> None:
    layout = np.random.default_rng(0).normal(size=(9, 2))
    heads, tails, negatives = some_pairs()

    def edge(a: int, b: int) -> float:
        kernel = 1 / (1 + np.sum((layout[a] - layout[b]) ** 2))
        return float(kernel / (kernel + 0.3))

    expected = -sum(np.log(edge(a, b)) for a, b in zip(heads, tails, strict=True))
    noise = -sum(np.log(1 - edge(a, b)) for a, others in zip(heads, negatives, strict=True) for b in others)
    assert attraction(layout, heads, tails, 0.3) == pytest.approx(expected)
    assert repulsion(layout, heads, negatives, 0.3) == pytest.approx(noise)


def test_s_interpolates_between_tsne_and_umap_normalisation() -> None:
    for rows in (600, 25_000):
        at = {s: CNE(s=s).normalisation(rows) for s in (0.0, 0.5, 1.0, 2.0)}
        assert at[0.0] == pytest.approx(100 * rows)
        assert at[1.0] == pytest.approx(rows**2 / 5)
        assert at[0.5] ** 2 == pytest.approx(at[0.0] * at[1.0])
        assert at[2.0] * at[0.0] == pytest.approx(at[1.0] ** 2)


# Mini-batches


@pytest.mark.parametrize("batch", [1, 7, 30])
def test_batch_steps_along_its_gradient(batch: int) -> None:
    heads, tails, negatives = some_pairs()
    layout = np.random.default_rng(0).normal(size=(9, 2))
    expected, largest = layout.copy(), 0.4
    for start in range(0, 30, batch):
        part = slice(start, start + batch)
        slope = np.zeros_like(layout)
        add_attraction(expected, heads[part], tails[part], 0.5, slope)
        add_repulsion(expected, heads[part], negatives[part], 0.5, slope)
        expected -= 0.1 * np.clip(slope, -largest, largest)
    gradient = np.zeros_like(layout)
    descend(layout, heads, tails, negatives, 0.5, 0.1, batch, largest, gradient)
    np.testing.assert_allclose(layout, expected, rtol=0, atol=1e-14)
    assert not gradient.any()


def test_edges_are_the_symmetric_neighbour_pairs() -> None:
    indices = exact_graph(digits(60), 4).indices
    wanted = {(a, b) for row, near in enumerate(indices) for n in near for a, b in ((row, n), (n, row))}
    heads, tails = symmetric_edges(indices)
    assert set(zip(heads.tolist(), tails.tolist(), strict=True)) == {(int(a), int(b)) for a, b in wanted}
    assert len(heads) == len(wanted)


def test_negatives_are_uniform_over_other_rows() -> None:
    heads = np.repeat(np.arange(6, dtype=np.int32), 2000)
    negatives = draw_negatives(np.random.default_rng(0), heads, 6, 5)
    counts = np.zeros((6, 6))
    np.add.at(counts, (np.broadcast_to(heads[:, None], negatives.shape), negatives), 1)
    assert not counts.diagonal().any()
    np.testing.assert_allclose(counts[~np.eye(6, dtype=bool)], 2000, rtol=0.1)


# Determinism


def test_repeats_threads_and_progress_change_no_bit() -> None:
    graph, start = prepared(BRIEF, digits(400))
    before = start.copy()
    layouts = [BRIEF.embed(graph, start, seed=3, threads=threads) for threads in (1, 1, 2)]
    done: list[tuple[int, int]] = []
    layouts.append(BRIEF.embed(graph, start, seed=3, progress=lambda *report: done.append(report)))
    assert len({digest(layout) for layout in layouts}) == 1
    assert done == [(epoch, 20) for epoch in range(21)]
    assert digest(BRIEF.embed(graph, start, seed=4)) != digest(layouts[0])
    np.testing.assert_array_equal(start, before)


def test_more_neighbors_than_needed_change_nothing() -> None:
    wide, narrow = exact_graph(digits(150), 20), exact_graph(digits(150), 20).nearest(15)
    start = principal_components(digits(150))
    assert digest(BRIEF.embed(wide, start, seed=0)) == digest(BRIEF.embed(narrow, start, seed=0))


# Maps


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("rows", [3, 10])
def test_few_rows_in_two_and_three_dimensions(rows: int, width: int) -> None:
    coordinates = np.random.default_rng(0).normal(size=(rows, 4))
    graph, _ = prepared(BRIEF, coordinates)
    layout = BRIEF.embed(graph, principal_components(coordinates, width), seed=0)
    assert layout.shape == (rows, width)
    assert layout.dtype == np.float64
    assert np.isfinite(layout).all()
    assert len(np.unique(layout, axis=0)) == rows


@pytest.mark.parametrize("coordinates", [np.zeros((40, 3)), np.eye(40)], ids=["one-point", "equidistant"])
def test_rows_without_any_structure_stay_finite(coordinates: Float64Array) -> None:
    graph, start = prepared(BRIEF, coordinates)
    assert np.isfinite(BRIEF.embed(graph, start, seed=0)).all()


@pytest.mark.parametrize("s", [-10.0, 10.0])
def test_extreme_s_values_stay_finite(s: float) -> None:
    graph, start = prepared(BRIEF, digits(600))
    assert np.isfinite(CNE(s=s, epochs=10).embed(graph, start, seed=0)).all()


def test_larger_s_attracts_more() -> None:
    graph, start = prepared(BRIEF, digits(1200))
    sizes = [float(np.std(CNE(s=s, epochs=60).embed(graph, start, seed=0))) for s in (-1.0, 0.0, 1.0, 2.0)]
    assert sizes == sorted(sizes, reverse=True)


def unfaithful(embedder: CNE | TSNE | UMAP | None, rows: int = 1000) -> float:
    """1 - trustworthiness of a map of digits; None is its principal components."""
    start = principal_components(digits(rows))
    layout = start if embedder is None else embedder.embed(exact_graph(digits(rows), 90), start, seed=0)
    return 1.0 - float(trustworthiness(digits(rows), layout, n_neighbors=5))


@pytest.mark.parametrize("s", [0.0, 0.5, 1.0])
def test_map_is_more_faithful_than_its_initialization(s: float) -> None:
    assert unfaithful(CNE(s=s)) < unfaithful(None) / 5


@pytest.mark.slow
def test_faithfulness_is_near_tsne_at_0_and_umap_at_1() -> None:
    assert unfaithful(CNE(s=0.0)) - unfaithful(TSNE()) < 0.015
    assert unfaithful(CNE(s=1.0)) - unfaithful(UMAP()) < 0.015


@pytest.mark.slow
def test_mnist_map_is_as_faithful_as_the_paper_reports(data_dir: Path) -> None:
    coordinates = np.load(data_dir / "mnist.npz")["X"][:5000].reshape(5000, -1).astype(np.float32) / 255
    graph, start = exact_graph(coordinates, 15), principal_components(coordinates)
    kept = {
        s: trustworthiness(coordinates, CNE(s=s).embed(graph, start, seed=0), n_neighbors=5)
        for s in (0.0, 0.5, 1.0)
    }
    # P3, Table 1: 0.9517, 0.9524, 0.9455 for 25,000 rows.
    assert all(value > 0.94 for value in kept.values())
    assert kept[0.0] > kept[1.0]
    assert kept[0.5] > kept[1.0]


# Errors


@pytest.mark.parametrize(
    "settings",
    [
        {"s": float("nan")},
        {"s": 11.0},
        {"learning_rate": 0.0},
        {"neighbors": 0},
        {"negative_samples": 0},
        {"epochs": 0},
        {"batch": 0},
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=rf"CNE\n{next(iter(settings))}\n"):
        CNE(**settings)


def test_too_many_neighbors_and_too_few_rows_are_refused() -> None:
    with pytest.raises(
        ScenarioError, match=r"neighbors is 10, but each of 10 rows has only 9 others\. The largest"
    ):
        CNE(neighbors=10).neighbors_needed(10)
    with pytest.raises(DataError, match=r"cannot embed 2 rows\. Give it at least 3"):
        CNE().neighbors_needed(2)
    with pytest.raises(DataError, match="holds 5 neighbours of each row, but this embedder needs 15"):
        CNE().embed(exact_graph(digits(50), 5), np.zeros((50, 2)), seed=0)
