"""Embedders: equal to their reference libraries, reproducible, faithful, and clear in their errors."""

from __future__ import annotations

import _thread
import pickle
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from embedded import BRIEF, digest, digits, exact_graph, prepared
from places import SUPPORT
from pydantic import ValidationError

from raydr.arrays import FloatArray
from raydr.embedding import EMBEDDERS, TSNE, UMAP, Embedder, principal_components
from raydr.embedding.initialization import tsne_start
from raydr.embedding.umap import similarity_curve
from raydr.errors import DataError, ScenarioError
from raydr.geometry.neighbors import NeighborGraph

NAMES = ["tsne", "umap"]


# Determinism


@pytest.mark.parametrize("embedder", BRIEF, ids=NAMES)
def test_repeats_and_threads_change_no_bit(embedder: Embedder) -> None:
    graph, start = prepared(embedder, digits(400))
    layouts = [embedder.embed(graph, start, seed=3, threads=threads) for threads in (1, 1, 2)]
    assert len({digest(layout) for layout in layouts}) == 1
    assert digest(embedder.embed(graph, start, seed=4)) != digest(layouts[0])


@pytest.mark.parametrize("embedder", BRIEF, ids=NAMES)
def test_threads_change_no_bit_with_duplicate_rows(embedder: Embedder) -> None:
    coordinates = np.repeat(np.random.default_rng(0).normal(size=(20, 3)), 20, axis=0)
    graph, start = prepared(embedder, coordinates)
    layouts = [embedder.embed(graph, start, seed=0, threads=threads) for threads in (1, 2)]
    assert np.isfinite(layouts[0]).all()
    assert digest(layouts[0]) == digest(layouts[1])


_FRESH_PROCESS = """
import sys
from embedded import BRIEF, digest, digits, prepared
for embedder in BRIEF:
    graph, start = prepared(embedder, digits(300))
    print(digest(embedder.embed(graph, start, seed=1, threads=2)))
from raydr.embedding.kernels import fuzzy, fuzzy_set
steps = fuzzy_set.memberships, fuzzy.go_along
for counts in ("cache_hits", "cache_misses"):
    print(sum(len(getattr(step.stats, counts)) for step in steps))
print(sorted({"umap", "openTSNE", "pynndescent", "torch"} & set(sys.modules)))
"""


def test_fresh_process_gives_the_same_bits_and_compiles_nothing() -> None:
    here = []
    for embedder in BRIEF:
        graph, start = prepared(embedder, digits(300))
        here.append(digest(embedder.embed(graph, start, seed=1, threads=1)))
    there = subprocess.run(
        [sys.executable, "-c", _FRESH_PROCESS],
        cwd=SUPPORT,
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    assert there.stdout.split() == [*here, "2", "0", "[]"]


@pytest.mark.parametrize("embedder", BRIEF, ids=NAMES)
def test_progress_rises_to_the_total_and_changes_no_bit(embedder: Embedder) -> None:
    graph, start = prepared(embedder, digits(200))
    reports: list[tuple[int, int]] = []
    watched = embedder.embed(graph, start, seed=0, progress=lambda done, total: reports.append((done, total)))
    done = [report[0] for report in reports]
    total = reports[-1][1]
    assert done == sorted(set(done))
    assert (done[0], done[-1]) == (0, total)
    assert {report[1] for report in reports} == {total}
    assert digest(watched) == digest(embedder.embed(graph, start, seed=0))


def test_tsne_reports_progress_across_both_phases() -> None:
    embedder = TSNE(early_iterations=100, iterations=130)
    graph, start = prepared(embedder, digits(60))
    done: list[int] = []
    embedder.embed(graph, start, seed=0, progress=lambda iterations, _: done.append(iterations))
    assert done == list(range(231))


@pytest.mark.parametrize("embedder", BRIEF, ids=NAMES)
def test_extra_neighbors_change_nothing_and_inputs_are_unchanged(embedder: Embedder) -> None:
    coordinates = digits(150)
    needed = embedder.neighbors_needed(150)
    wide = exact_graph(coordinates, needed + 7)
    narrow = NeighborGraph(indices=wide.indices[:, :needed], distances=wide.distances[:, :needed])
    start = principal_components(coordinates)
    before = (wide.indices.copy(), wide.distances.copy(), start.copy())
    assert digest(embedder.embed(wide, start, seed=0)) == digest(embedder.embed(narrow, start, seed=0))
    for array, copy in zip((wide.indices, wide.distances, start), before, strict=True):
        np.testing.assert_array_equal(array, copy)


# Equal to the reference libraries


@pytest.mark.parametrize(
    "settings",
    [
        TSNE(early_iterations=1, iterations=0),
        TSNE(perplexity=12, early_exaggeration=6.0, learning_rate=50.0, early_iterations=1, iterations=0),
    ],
    ids=["defaults", "all-set"],
)
@pytest.mark.parametrize("width", [2, 3])
def test_first_step_of_tsne_equals_opentsnes(settings: TSNE, width: int) -> None:
    """With openTSNE's own search, and its tree exact; later steps enlarge every difference of rounding."""
    import openTSNE

    coordinates = np.random.default_rng(0).normal(size=(300, 7))
    graph, _ = prepared(settings, coordinates)
    start = principal_components(coordinates, width)
    reference = openTSNE.TSNE(
        n_components=width,
        perplexity=settings.perplexity or 30,
        early_exaggeration=settings.early_exaggeration,
        learning_rate=settings.learning_rate or "auto",
        early_exaggeration_iter=1,
        n_iter=0,
        neighbors="exact",
        negative_gradient_method="bh",
        theta=0.0,
        initialization=tsne_start(start, 5),
    ).fit(coordinates)
    np.testing.assert_allclose(
        settings.embed(graph, start, seed=5), np.asarray(reference), rtol=1e-4, atol=1e-9
    )


@pytest.mark.parametrize(
    ("rows", "width", "by"), [(4_000, 2, "pairs"), (4_001, 2, "interpolation"), (4_001, 3, "pairs")]
)
def test_tsne_switches_to_interpolation_above_4000_rows_in_the_plane(
    rows: int, width: int, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from raydr.embedding.kernels import descent

    used: list[str] = []
    for name in ("repulsion_by_pairs", "repulsion_by_interpolation"):

        def repulsion(layout: FloatArray, threads: int, into: FloatArray, name: str = name) -> float:
            used.append(name)
            into[:] = 0.0
            return 1.0

        monkeypatch.setattr(descent, name, repulsion)
    settings = TSNE(perplexity=2, early_iterations=1, iterations=0)
    indices = (np.arange(rows)[:, None] + np.arange(1, 7)) % rows
    graph = NeighborGraph(indices, np.tile(np.arange(1, 7, dtype=np.float32), (rows, 1)))
    settings.embed(graph, np.random.default_rng(0).normal(size=(rows, width)), seed=0)
    assert used == [f"repulsion_by_{by}"]


@pytest.fixture(scope="module")
def umap_learn() -> Any:
    """Return umap-learn, whose slowest functions are compiled once and not again in every process."""
    from umap import umap_

    for compiled in (
        umap_.smooth_knn_dist,
        umap_.compute_membership_strengths,
    ):
        compiled.enable_caching()
    return umap_


def equal_at_first(farther: float) -> NeighborGraph:
    """Six neighbours at one distance, and others ``farther``: their scale is the least that UMAP allows."""
    generator = np.random.default_rng(0)
    distances = 1.0 + farther * np.maximum(0, np.arange(14) - 5)
    return NeighborGraph(
        np.array([generator.permutation(np.delete(np.arange(60), row))[:14] for row in range(60)]),
        np.tile(distances.astype(np.float32), (60, 1)),
    )


@pytest.mark.parametrize(("spread", "min_dist"), [(1.0, 0.1), (1.0, 0.5), (2.0, 0.01)])
def test_similarity_curve_equals_umap_learns(umap_learn: Any, spread: float, min_dist: float) -> None:
    """The usual curve is kept in the code, and fits of different processors differ in its tenth digit."""
    np.testing.assert_allclose(
        similarity_curve(spread, min_dist), umap_learn.find_ab_params(spread, min_dist), rtol=1e-8
    )


@pytest.mark.parametrize(
    "graph",
    [
        exact_graph(np.repeat(np.random.default_rng(0).normal(size=(20, 3)), 20, axis=0), 14),
        exact_graph(np.zeros((40, 3)), 5),
        exact_graph(1e6 * np.random.default_rng(0).normal(size=(300, 9)), 14),
        equal_at_first(1e-3),
        equal_at_first(10.0),  # so far that they are not similar at all
    ],
    ids=["equal rows", "one point", "wide", "equal at first", "far at last"],
)
def test_fuzzy_set_equals_umap_learns(umap_learn: Any, graph: NeighborGraph) -> None:
    from raydr.embedding.kernels.fuzzy_set import fuzzy_set

    rows = graph.rows
    own = np.arange(rows)[:, None]
    true = umap_learn.fuzzy_simplicial_set(
        X=own,
        n_neighbors=graph.k + 1,
        random_state=None,
        metric="euclidean",
        knn_indices=np.hstack((own, graph.indices)),
        knn_dists=np.hstack((np.zeros((rows, 1), np.float32), graph.distances)),
    )[0]
    found = fuzzy_set(graph)
    assert found.nnz == true.nnz
    np.testing.assert_array_equal(found.toarray(), true.toarray())


# Quality


@pytest.mark.parametrize(
    "embedder", [TSNE(early_iterations=100, iterations=150), UMAP(epochs=150)], ids=NAMES
)
def test_map_keeps_more_neighbors_than_its_initialization(embedder: Embedder) -> None:
    coordinates = digits(600)
    graph, start = prepared(embedder, coordinates)

    def kept(layout: FloatArray) -> float:
        found = exact_graph(layout, 10).indices
        pairs = zip(found, graph.indices[:, :10], strict=True)
        return float(np.mean([len(np.intersect1d(ours, true)) / 10 for ours, true in pairs]))

    assert kept(embedder.embed(graph, start, seed=0)) > 2 * kept(start)


@pytest.mark.parametrize("embedder", BRIEF, ids=NAMES)
@pytest.mark.parametrize("width", [2, 3])
def test_ten_rows_in_two_and_three_dimensions(embedder: Embedder, width: int) -> None:
    coordinates = np.random.default_rng(0).normal(size=(10, 4))
    graph = exact_graph(coordinates, embedder.neighbors_needed(10))
    layout = embedder.embed(graph, principal_components(coordinates, width), seed=0)
    assert layout.shape == (10, width)
    assert np.isfinite(layout).all()
    assert len(np.unique(layout, axis=0)) == 10


@pytest.mark.parametrize("embedder", BRIEF, ids=NAMES)
@pytest.mark.parametrize("coordinates", [np.zeros((40, 3)), np.eye(40)], ids=["one-point", "equidistant"])
def test_rows_without_any_structure_stay_finite(embedder: Embedder, coordinates: FloatArray) -> None:
    graph, start = prepared(embedder, coordinates)
    assert np.isfinite(embedder.embed(graph, start, seed=0)).all()


# Errors and interruption


def test_neighbors_needed() -> None:
    assert [TSNE().neighbors_needed(rows) for rows in (4, 10, 91, 10_000)] == [3, 9, 90, 90]
    assert TSNE(perplexity=3.5).neighbors_needed(100) == 10
    assert [UMAP().neighbors_needed(rows) for rows in (3, 10, 16, 10_000)] == [1, 8, 14, 14]
    assert UMAP(neighbors=30).neighbors_needed(100) == 29


def test_error_names_the_largest_valid_setting() -> None:
    with pytest.raises(ScenarioError, match=r"largest perplexity for 100 rows is 33\."):
        TSNE(perplexity=40).neighbors_needed(100)
    with pytest.raises(ScenarioError, match=r"largest perplexity for 102 rows is 33\.66\."):
        TSNE(perplexity=33.67).neighbors_needed(102)
    assert TSNE(perplexity=33.66).neighbors_needed(102) == 100
    with pytest.raises(ScenarioError, match=r"largest neighbors for 100 rows is 99\."):
        UMAP(neighbors=100).neighbors_needed(100)
    assert UMAP(neighbors=99).neighbors_needed(100) == 98


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(DataError, match="at least 4"):
        TSNE().neighbors_needed(3)
    with pytest.raises(DataError, match="at least 3"):
        UMAP().neighbors_needed(2)


@pytest.mark.parametrize(
    ("embedder", "settings", "message"),
    [
        (TSNE, {"perplexity": 0.5}, "perplexity\n"),
        (TSNE, {"exaggeration": float("nan")}, "exaggeration\n"),
        (TSNE, {"learning_rate": 0.0}, "learning_rate\n"),
        (TSNE, {"iterations": -1}, "iterations\n"),
        (UMAP, {"neighbors": 1}, "neighbors\n"),
        (UMAP, {"min_dist": 2.0}, "UMAP's min_dist is 2.0; it must be from 0 to spread, which is 1"),
        (UMAP, {"spread": 0.0}, "spread\n"),
        (UMAP, {"epochs": 0}, "epochs\n"),
    ],
)
def test_settings_out_of_range_are_refused(
    embedder: type[TSNE | UMAP], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        embedder(**settings)


@pytest.mark.parametrize("kind", EMBEDDERS)
def test_embedders_are_immutable_values(kind: str) -> None:
    """Compare embedders by value, hash and pickle them, and check that they cannot change."""
    embedder = EMBEDDERS[kind]()
    assert pickle.loads(pickle.dumps(embedder)) == embedder == type(embedder)(**embedder.model_dump())
    assert {embedder: kind}[EMBEDDERS[kind]()] == kind
    with pytest.raises(ValidationError, match="frozen"):
        embedder.kind = "other"  # type: ignore[attr-defined]


@pytest.mark.parametrize("embedder", BRIEF, ids=NAMES)
def test_mismatched_graph_or_initialization_is_refused(embedder: Embedder) -> None:
    coordinates = digits(100)
    graph, start = prepared(embedder, coordinates)
    with pytest.raises(DataError, match="holds 3 neighbours"):
        embedder.embed(NeighborGraph(graph.indices[:, :3], graph.distances[:, :3]), start, seed=0)
    for wrong in (start[:50], start[:, :1], np.zeros((100, 4)), start.ravel()):
        with pytest.raises(DataError, match=r"has shape"):
            embedder.embed(graph, wrong, seed=0)
    start[7, 1] = np.nan
    with pytest.raises(DataError, match="Row 7"):
        embedder.embed(graph, start, seed=0)


def test_exception_in_progress_reaches_the_caller() -> None:
    graph, start = prepared(TSNE(), digits(200))

    def interrupt(done: int, _: int) -> None:
        if done == 300:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TSNE().embed(graph, start, seed=0, progress=interrupt)


@pytest.mark.parametrize("endless", [TSNE(iterations=10**6), UMAP(epochs=10**6)], ids=NAMES)
def test_ctrl_c_stops_embedding_and_restores_thread_counts(endless: Embedder) -> None:
    import numba

    graph, start = prepared(endless, digits(200))
    threads = numba.get_num_threads()
    alarm = threading.Timer(0.5, _thread.interrupt_main)

    def start_alarm(done: int, _: int) -> None:
        if done == 0:
            alarm.start()

    try:
        with pytest.raises(KeyboardInterrupt):
            endless.embed(graph, start, seed=0, progress=start_alarm)
    finally:
        alarm.cancel()
    assert numba.get_num_threads() == threads
