"""Layouts of large tables: gradients equal their formulas and openTSNE's; threads change no bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from memory import peak_memory

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.data import load
from raydr.embedding import TSNE, UMAP, principal_components
from raydr.embedding.initialization import tsne_start
from raydr.embedding.kernels import descent, fuzzy, interpolation
from raydr.embedding.kernels.affinities import Affinities, conditional, joint_affinities, local_order
from raydr.embedding.kernels.all_pairs import repulsion_by_pairs
from raydr.embedding.kernels.descent import Phase, descend, gradient
from raydr.embedding.kernels.fuzzy import BLOCKS, edges_by_pair, go_along, lay_out, rounds
from raydr.embedding.kernels.fuzzy_set import fuzzy_set
from raydr.embedding.kernels.interpolation import repulsion_by_interpolation
from raydr.geometry.neighbors import NeighborGraph, nearest_neighbors
from raydr.geometry.points import Points
from raydr.metrics import Evidence, evaluate

A, B = 1.577, 0.895
"""Curve parameters for UMAP's defaults."""


def graph_of(rows: int, k: int) -> NeighborGraph:
    return nearest_neighbors(Points(load(source="digits").rows[:rows]), k)


def wide(rows: int, spread: float) -> Float64Array:
    return spread * np.random.default_rng(0).normal(size=(rows, 2))


# t-SNE's affinities


@pytest.mark.parametrize(("k", "perplexity"), [(90, 30.0), (30, 10.0), (15, 14.0)])
def test_affinities_equal_opentsne(k: int, perplexity: float) -> None:
    from openTSNE.affinity import joint_probabilities_nn

    graph = graph_of(700, k)
    true = joint_probabilities_nn(graph.indices, graph.distances, [perplexity])
    true.sort_indices()
    found = joint_affinities(graph, perplexity, threads=2)
    np.testing.assert_array_equal(found.ends, true.indptr)
    np.testing.assert_array_equal(found.tails, true.indices)
    np.testing.assert_allclose(found.weights, true.data, rtol=2e-6)


def test_conditional_affinities_have_the_requested_perplexity() -> None:
    """OpenTSNE's own perplexity is less exact for ties among the nearest neighbours at small perplexity."""
    graph = graph_of(700, 6)
    order, found = np.empty((700, 6), np.int32), np.empty((700, 6), np.float32)
    conditional(graph.distances, graph.indices, float(np.log(2.5)), order, found)
    weights = found.astype(np.float64)
    entropy = -(weights * np.log(np.maximum(weights, 1e-300))).sum(axis=1)
    tied = (graph.distances[:, :3] == graph.distances[:, :1]).sum(axis=1)
    np.testing.assert_allclose(np.exp(entropy[tied < 3]), 2.5, rtol=1e-5)
    np.testing.assert_array_equal(np.sort(order, axis=1), order)


def test_affinities_of_equal_and_distant_rows_sum_to_1() -> None:
    table = np.repeat(np.array([[0.0], [1e-9], [1e9]]), 20, axis=0)
    found = joint_affinities(nearest_neighbors(Points(table), 30), 10.0, threads=1)
    assert np.isfinite(found.weights).all()
    assert found.weights.sum(dtype=np.float64) == pytest.approx(1.0, rel=1e-5)


# t-SNE's gradient


def exact_repulsion(layout: Float64Array) -> tuple[Float64Array, float]:
    apart = layout[:, None] - layout[None, :]
    cauchy = 1.0 / (1.0 + (apart**2).sum(axis=2))
    return (cauchy[:, :, None] ** 2 * apart).sum(axis=1), float(cauchy.sum() - len(layout))


@pytest.mark.parametrize(("spread", "error"), [(1e-4, 1e-5), (1.0, 1e-3), (20.0, 0.1)])
def test_interpolated_repulsion_approximates_the_exact_sum_over_pairs(spread: float, error: float) -> None:
    layout = wide(2_000, spread)
    found = np.empty_like(layout)
    total = repulsion_by_interpolation(layout, 2, found)
    true, true_total = exact_repulsion(layout)
    assert total == pytest.approx(true_total, rel=error)
    assert np.linalg.norm(found - true) <= error * np.linalg.norm(true)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_repulsion_by_pairs_equals_the_sum_over_pairs(dimensions: int) -> None:
    layout = np.random.default_rng(0).normal(size=(700, dimensions))
    found, shared = np.empty_like(layout), np.empty_like(layout)
    total = repulsion_by_pairs(layout, 1, found)
    true, true_total = exact_repulsion(layout)
    assert total == pytest.approx(true_total, rel=1e-12)
    np.testing.assert_allclose(found, true, rtol=1e-10, atol=1e-12)
    assert repulsion_by_pairs(layout, 2, shared) == total
    np.testing.assert_array_equal(shared, found)


@pytest.mark.parametrize("most", [100, pytest.param(interpolation.MOST_BOXES, marks=pytest.mark.slow)])
def test_memory_is_limited_when_one_row_is_far_away(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpolation, "MOST_BOXES", most)
    layout = wide(500, 1.0)
    layout[0] = 1e5
    found = np.empty_like(layout)
    repulsion_by_interpolation(wide(50, 1.0), 1, np.empty((50, 2)))  # compiles
    with peak_memory() as peak:
        total = repulsion_by_interpolation(layout, 1, found)
    assert peak.bytes < 2.5e9 * (most / 800) ** 2
    assert np.isfinite(found).all()
    assert total > 0.0


@pytest.mark.parametrize(
    ("method", "dimensions", "spread"),
    [
        ("pairs", 2, 0.01),
        ("pairs", 3, 1.0),
        ("pairs", 2, 5.0),
        ("interpolation", 2, 1e-4),
        ("interpolation", 2, 1.0),
        ("interpolation", 2, 5.0),
    ],
)
def test_gradient_equals_opentsne(
    method: str, dimensions: int, spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenTSNE's tree is exact with theta = 0, but for rows that are less than 1e-6 apart."""
    from openTSNE.tsne import kl_divergence_bh, kl_divergence_fft
    from scipy.sparse import csr_matrix

    rows = 1_000
    affinities = joint_affinities(graph_of(rows, 30), 10.0, threads=1)
    layout = spread * np.random.default_rng(0).normal(size=(rows, dimensions))
    matrix = csr_matrix(
        (affinities.weights.astype(np.float64), affinities.tails, affinities.ends), shape=(rows, rows)
    )
    if method == "interpolation":
        monkeypatch.setattr(descent, "PAIRS_ROWS", 0)
        grid = {"n_interpolation_points": 3, "min_num_intervals": 50, "ints_in_interval": 1}
        _, true = kl_divergence_fft(layout, matrix, 1, grid)
    else:
        _, true = kl_divergence_bh(layout, matrix, 1, {"theta": 0.0})
    found = np.empty_like(layout)
    gradient(layout, affinities, 1.0, 1, found)
    assert np.linalg.norm(found - true) <= 1e-6 * np.linalg.norm(true)


def objective(layout: Float64Array, affinities: Affinities) -> float:
    """Return the Kullback-Leibler divergence without the terms that do not depend on the layout."""
    heads = np.repeat(np.arange(len(layout)), np.diff(affinities.ends))
    squared = ((layout[heads] - layout[affinities.tails]) ** 2).sum(axis=1)
    weights = affinities.weights.astype(np.float64)
    return float((weights * np.log1p(squared)).sum() + weights.sum() * np.log(exact_repulsion(layout)[1]))


@pytest.mark.parametrize("dimensions", [2, 3])
def test_gradient_equals_central_differences(dimensions: int) -> None:
    affinities = joint_affinities(graph_of(200, 15), 5.0, threads=1)
    layout, step = 0.5 * np.random.default_rng(0).normal(size=(200, dimensions)), 1e-5
    found = np.empty_like(layout)
    gradient(layout, affinities, 1.0, 1, found)
    for row, axis in [(0, 0), (17, 1), (199, dimensions - 1)]:
        up, down = layout.copy(), layout.copy()
        up[row, axis] += step
        down[row, axis] -= step
        slope = (objective(up, affinities) - objective(down, affinities)) / (2 * step)
        # The gradient is four times openTSNE's.
        assert 4.0 * found[row, axis] == pytest.approx(slope, rel=1e-5, abs=1e-7)


def test_exaggeration_multiplies_only_the_attraction() -> None:
    affinities = joint_affinities(graph_of(300, 15), 5.0, threads=1)
    layout = wide(300, 1.0)
    once, thrice, push = (np.empty_like(layout) for _ in range(3))
    total = gradient(layout, affinities, 1.0, 1, once)
    gradient(layout, affinities, 3.0, 1, thrice)
    repulsion_by_pairs(layout, 1, push)
    pull = once + push / total
    np.testing.assert_allclose(thrice, 3.0 * pull - push / total, rtol=1e-9, atol=1e-15)


def test_descent_follows_opentsne_through_both_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    import openTSNE
    from openTSNE.affinity import PerplexityBasedNN
    from openTSNE.nearest_neighbors import PrecomputedNeighbors

    graph = graph_of(1_000, 30)
    start = tsne_start(principal_components(load(source="digits").rows[:1_000]), 0)
    known = PerplexityBasedNN(knn_index=PrecomputedNeighbors(graph.indices, graph.distances), perplexity=10)
    reference = openTSNE.TSNE(
        early_exaggeration_iter=15, n_iter=15, negative_gradient_method="fft", initialization=start
    ).fit(affinities=known)
    monkeypatch.setattr(descent, "PAIRS_ROWS", 0)
    layout = start.copy()
    phases = [Phase(15, 12.0, 1_000 / 12.0), Phase(15, 1.0, 1_000.0)]
    descend(layout, joint_affinities(graph, 10.0, threads=1), phases, threads=2)
    np.testing.assert_allclose(layout, np.asarray(reference), rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("rows", [150, pytest.param(1_797, marks=pytest.mark.slow)])
def test_divergence_is_no_larger_than_opentsnes(rows: int) -> None:
    """Compare means over four seeds: without the tree's error, it is about 1 % less on all digits."""
    import openTSNE
    from openTSNE.affinity import PerplexityBasedNN
    from openTSNE.nearest_neighbors import PrecomputedNeighbors

    graph, start = graph_of(rows, 90), principal_components(load(source="digits").rows[:rows])
    affinities = joint_affinities(graph, 30.0, threads=1)
    known = PerplexityBasedNN(knn_index=PrecomputedNeighbors(graph.indices, graph.distances), perplexity=30)

    def theirs(seed: int) -> Float64Array:
        how = openTSNE.TSNE(negative_gradient_method="bh", initialization=tsne_start(start, seed))
        return np.asarray(how.fit(affinities=known))

    settings = TSNE(perplexity=30)
    ours = [objective(settings.embed(graph, start, seed=seed), affinities) for seed in range(4)]
    assert np.mean(ours) < np.mean([objective(theirs(seed), affinities) for seed in range(4)]) + 0.005


# UMAP's layout


def test_rounds_cover_every_block_pair_once_without_conflicts() -> None:
    met = []
    for pairs in rounds(BLOCKS):
        blocks = [block for pair in pairs for block in set(pair)]
        assert len(blocks) == len(set(blocks))
        met += pairs
    assert sorted(met) == [(one, other) for one in range(BLOCKS) for other in range(one, BLOCKS)]


@pytest.mark.parametrize(("epochs", "as_in"), [(7, 500), (10, 500), (11, 11), (200, 200)])
@pytest.mark.parametrize("blocks", [1, 4])
def test_edges_are_those_of_enough_weight_by_their_pair_of_blocks(
    epochs: int, as_in: int, blocks: int
) -> None:
    """Up to ten epochs, as many edges are left out as of 500, as in umap-learn."""
    graph = fuzzy_set(graph_of(300, 14))
    place = np.random.default_rng(0).permutation(300).astype(np.int32)
    ends = np.linspace(0, 300, blocks + 1).astype(np.int64)
    heads, tails, every, starts = edges_by_pair(graph, place, ends, epochs)
    all_edges = graph.tocoo()
    kept = all_edges.data >= all_edges.data.max() / as_in
    assert len(heads) == len(tails) == len(every) == kept.sum() < len(kept)
    row, column = np.argsort(place)[heads], np.argsort(place)[tails]
    np.testing.assert_allclose(every, all_edges.data.max() / graph.tocsr()[row, column].A1, rtol=1e-6)
    assert len(set(zip(row.tolist(), column.tolist(), strict=True))) == len(heads)
    one, other = (np.searchsorted(ends, place_of, side="right") - 1 for place_of in (heads, tails))
    pair = np.minimum(one, other) * blocks + np.maximum(one, other)
    np.testing.assert_array_equal(pair, np.repeat(np.arange(blocks**2), np.diff(starts)))


@pytest.mark.parametrize(("rows", "blocks", "epochs"), [(10_000, 1, 500), (10_001, BLOCKS, 200)])
def test_more_than_10000_rows_have_blocks_and_fewer_epochs(
    rows: int, blocks: int, epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, Any] = {}

    def record(graph: Any, start: FloatArray, **options: Any) -> FloatArray:
        found.update(options)
        return start

    monkeypatch.setattr(fuzzy, "lay_out", record)
    indices = (np.arange(rows)[:, None] + np.arange(1, 15)) % rows
    graph = NeighborGraph(indices, np.tile(np.arange(1, 15, dtype=np.float32), (rows, 1)))
    UMAP().embed(graph, np.random.default_rng(0).normal(size=(rows, 2)), seed=0, threads=3)
    assert (found["blocks"], found["epochs"], found["threads"]) == (blocks, epochs, 3)


def moved(layout: FloatArray, rate: float, negative_samples: int, blocks: tuple[int, ...]) -> FloatArray:
    """Return the positions of the rows after one epoch of the edge 0 to 1."""
    after = layout.astype(np.float32)
    go_along(
        after,
        np.array([0], np.int32),
        np.array([1], np.int32),
        np.array([1.0], np.float32),
        np.array([1.0], np.float32),
        np.array(blocks),
        np.float32(A),
        np.float32(B),
        np.float32(rate),
        1,
        negative_samples,
        np.uint64(5),
    )
    return after


def test_attraction_step_follows_the_gradient() -> None:
    layout = np.array([[0.3, -0.2], [1.0, 0.4]])

    def cost(places: FloatArray) -> float:
        return float(np.log1p(A * ((places[0] - places[1]) ** 2).sum() ** B))

    step, slope = 1e-6, np.zeros((2, 2))
    for row in range(2):
        for axis in range(2):
            up, down = layout.copy(), layout.copy()
            up[row, axis] += step
            down[row, axis] -= step
            slope[row, axis] = (cost(up) - cost(down)) / (2 * step)
    np.testing.assert_allclose(moved(layout, 0.01, 0, (0, 1, 1, 2)), layout - 0.01 * slope, rtol=1e-5)


def test_repulsion_step_follows_the_gradient() -> None:
    layout = np.array(
        [[0.3, -0.2], [0.3, -0.2], [1.0, 0.4]]
    )  # both ends are at one point, so they do not attract

    def cost(place: FloatArray) -> float:
        squared = ((place - layout[2]) ** 2).sum()
        return float(-np.log(1.0 - 1.0 / (1.0 + A * squared**B)))

    step = 1e-6
    slope = [
        (cost(layout[0] + step * axis) - cost(layout[0] - step * axis)) / (2 * step) for axis in np.eye(2)
    ]
    after = moved(layout, 0.01, 1, (2, 3, 2, 3))  # the only row of the pair's blocks is the last
    # umap-learn's 0.001 in the denominator keeps it finite.
    np.testing.assert_allclose(after[0] - layout[0], -0.01 * np.array(slope), rtol=5e-3)
    np.testing.assert_array_equal(after[1:], layout[1:].astype(np.float32))


def test_negative_samples_are_uniform_over_both_blocks() -> None:
    """Count the draws of each row over many negative samples."""
    rows, draws = 40, 40_000
    layout = np.zeros((rows, 2), np.float32)
    layout[:, 0] = 100.0 + np.arange(rows)
    pushes = np.zeros(rows)
    for row in range(rows):
        layout_now = layout.copy()
        layout_now[row] = [0.0, 1.0]  # near the head only
        layout_now[0] = 0.0
        if row == 0:
            continue
        before = layout_now[0].copy()
        go_along(
            layout_now,
            np.array([0], np.int32),
            np.array([0], np.int32),
            np.ones(1, np.float32),
            np.ones(1, np.float32),
            np.array([0, 15, 25, 40]),
            np.float32(A),
            np.float32(B),
            np.float32(1e-5),
            1,
            draws,
            np.uint64(9),
        )
        pushes[row] = abs(float(layout_now[0, 1] - before[1]))
    drawn = np.r_[1:15, 25:40]
    assert pushes[15:25].max() < 0.02 * pushes[drawn].mean()
    assert pushes[drawn].min() > 0.8 * pushes[drawn].mean()
    assert pushes[drawn].max() < 1.2 * pushes[drawn].mean()


def laid_out(graph: Any, start: FloatArray, **options: Any) -> FloatArray:
    settings = {"a": A, "b": B, "epochs": 30, "negative_samples": 5, "seed": 0, "threads": 1}
    return lay_out(graph, start, **(settings | options))


def test_threads_change_no_bit_but_the_seed_does() -> None:
    graph = fuzzy_set(graph_of(900, 14))
    start = principal_components(load(source="digits").rows[:900])
    one = laid_out(graph, start)
    for threads in (2, 5):
        np.testing.assert_array_equal(laid_out(graph, start, threads=threads), one)
    assert not np.array_equal(laid_out(graph, start, seed=1), one)


def test_order_of_rows_does_not_show_on_the_map() -> None:
    """Rows of a few common neighbours, as by useless distances, must not lie next to those above and below them.

    Clients are runs of consecutive rows, so that a map could seem to tell them, or their classes, apart. With edges in
    the rows' order, 0.57 of the neighbours on the map are of the same run; by chance, 0.1.
    """
    random, rows = np.random.default_rng(0), 1000
    hubs = random.choice(rows, 30, replace=False)
    nearest = np.stack([random.choice(hubs[hubs != row], 14, replace=False) for row in range(rows)])
    graph = fuzzy_set(NeighborGraph(nearest.astype(np.int64), np.ones((rows, 14), np.float32)))
    layout = laid_out(graph, random.normal(size=(rows, 2)), epochs=200, blocks=1)
    run = np.arange(rows) // 100
    same = run[nearest_neighbors(Points(layout), 10).indices] == run[:, None]
    assert same.mean() < 0.15


def test_three_dimensions_and_few_rows_stay_finite() -> None:
    graph = fuzzy_set(nearest_neighbors(Points(wide(BLOCKS - 3, 1.0)), 3))
    start = np.random.default_rng(0).normal(size=(BLOCKS - 3, 3))
    found = laid_out(graph, start, threads=3)
    assert found.shape == start.shape
    assert np.isfinite(found).all()


def xorshifted(state: int) -> int:
    """Return the next state of Marsaglia's generator of 64 bits."""
    state ^= (state << 13) & (2**64 - 1)
    state ^= state >> 7
    return state ^ ((state << 17) & (2**64 - 1))


@pytest.mark.parametrize("dimensions", [2, 3])
def test_an_epoch_equals_its_formulas(dimensions: int) -> None:
    """Every second edge is due; each has three negative samples, from where its head was before the edge."""
    generator = np.random.default_rng(0)
    heads, tails = generator.permuted(np.tile(np.arange(40), (2, 6)), axis=1).astype(np.int32)
    heads[:4], tails[:4] = 5, 7
    due = np.tile(np.float32([1.0, 2.5]), len(heads) // 2)
    layout = generator.uniform(0, 10, (40, dimensions)).astype(np.float32)
    layout[tails[8]] = layout[heads[8]]
    true, found, rate, state = layout.astype(np.float64), layout.copy(), 0.8, 12345
    for edge in range(0, len(heads), 2):
        head, tail = heads[edge], tails[edge]
        places = true[head].copy()
        apart, others = places - true[tail], []
        for _ in range(3):
            state = xorshifted(state)
            others.append(places - true[((state >> 32) * 40) >> 32])
        squared = float(apart @ apart)
        slope = -2.0 * A * B * squared ** (B - 1.0) / (A * squared**B + 1.0) if squared > 0 else 0.0
        pull = rate * np.clip(slope * apart, -4, 4)
        true[tail] -= pull
        for other in others:
            squared = float(other @ other)
            pull += rate * np.clip(2.0 * B * other / ((0.001 + squared) * (A * squared**B + 1.0)), -4, 4)
        true[head] += pull
    every = np.full(len(heads), 2.0, np.float32)
    whole, number = np.array([0, 40, 0, 40]), np.uint64(12345)
    went_on = due.copy()
    go_along(
        found,
        heads,
        tails,
        every,
        went_on,
        whole,
        np.float32(A),
        np.float32(B),
        np.float32(rate),
        1,
        3,
        number,
    )
    np.testing.assert_allclose(found, true, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(went_on, np.where(due <= 1, due + 2, due))


def test_map_of_few_rows_is_as_faithful_as_umap_learns() -> None:
    """Compare means over four seeds, whose standard deviations are up to 0.006."""
    from umap.layouts import optimize_layout_euclidean

    rows = load(source="digits").rows[:600]
    graph, start = fuzzy_set(nearest_neighbors(Points(rows), 14)), principal_components(rows)
    edges = graph.tocoo()

    def theirs(seed: int) -> FloatArray:
        place = np.ascontiguousarray(
            10 * (start - start.min(axis=0)) / (start.max(axis=0) - start.min(axis=0)), np.float32
        )
        drawn = np.random.default_rng(seed).integers(-(2**31) + 1, 2**31 - 1, 3)
        every = (edges.data.max() / edges.data).astype(np.float64)
        kept = every <= 200
        return np.asarray(
            optimize_layout_euclidean(
                place, place, edges.row[kept], edges.col[kept], 200, len(rows), every[kept], A, B, drawn
            )
        )

    def faithful(layout: FloatArray) -> Float64Array:
        scores = evaluate(["npa_10", "trustworthiness", "continuity"], Evidence(rows=rows, embedding=layout))
        return np.array(list(scores.values.values()))

    ours = [faithful(laid_out(graph, start, epochs=200, seed=seed, blocks=1)) for seed in range(4)]
    reference = [faithful(theirs(seed)) for seed in range(4)]
    np.testing.assert_allclose(np.mean(ours, axis=0), np.mean(reference, axis=0), atol=0.015)


@pytest.mark.parametrize("embedder", [TSNE(perplexity=3, early_iterations=2, iterations=2), UMAP(epochs=3)])
def test_threads_change_no_bit_of_large_tables(embedder: TSNE | UMAP, ring: NeighborGraph) -> None:
    """Threads change no bit."""
    start = np.random.default_rng(0).normal(size=(ring.rows, 2))
    reports: list[tuple[float, int]] = []
    one = embedder.embed(ring, start, seed=0, progress=lambda done, total: reports.append((done, total)))
    np.testing.assert_array_equal(embedder.embed(ring, start, seed=0, threads=2), one)
    assert [reports[0][0], reports[-1][0]] == [0, reports[0][1]]


@pytest.fixture(name="ring")
def fixture_ring() -> NeighborGraph:
    rows = 10_001
    indices = (np.arange(rows)[:, None] + np.arange(1, 15)) % rows
    return NeighborGraph(indices, np.tile(np.arange(1, 15, dtype=np.float32), (rows, 1)))


def test_reordering_rows_keeps_the_affinities() -> None:
    graph = graph_of(500, 20)
    order = local_order(graph)
    assert sorted(order.tolist()) == list(range(500))
    plain, ordered = joint_affinities(graph, 6.0, 1), joint_affinities(graph, 6.0, 2, order)

    def dense(found: Affinities) -> Float64Array:
        table = np.zeros((500, 500))
        table[np.repeat(np.arange(500), np.diff(found.ends)), found.tails] = found.weights
        return table

    np.testing.assert_allclose(dense(ordered), dense(plain)[np.ix_(order, order)], rtol=1e-6)


def test_local_order_places_neighbours_close_together() -> None:
    rows = load(source="digits").rows
    graph = nearest_neighbors(Points(rows), 10)
    order = local_order(graph)
    place = np.argsort(order)

    def apart(places: Int64Array) -> float:
        return float(np.abs(places[graph.indices] - places[:, None]).mean())

    assert apart(place) < 0.5 * apart(np.random.default_rng(0).permutation(len(rows)))
