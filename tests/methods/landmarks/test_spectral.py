"""Fed-SpeClust equals its paper's Algorithm 3, and its pooled counterpart the dense eigenproblem."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from inline_federations import cut, federate
from run_bits import bits_of_run
from sklearn.metrics import adjusted_rand_score
from tiny import tiny, tiny_run, tiny_scenario

from raydr.arrays import Float64Array, Int64Array
from raydr.embedding.kernels.fuzzy_set import fuzzy_set
from raydr.errors import DataError, ScenarioError
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points, squared_distances
from raydr.journal import Event, IncidentEvent, Journal, Progress
from raydr.methods import METHODS
from raydr.methods.landmarks import neighbor_spectrum, pooled_kernel
from raydr.methods.landmarks.clustering import factor_spectrum, spectral_clusters
from raydr.methods.landmarks.kernel import gaussian_kernel
from raydr.methods.landmarks.learning import learn_landmarks
from raydr.methods.landmarks.maps import FedTSNE
from raydr.methods.landmarks.nystrom import nystrom, similarity_factor
from raydr.methods.landmarks.pooled_kernel import GaussianKernel, pooled_spectrum
from raydr.methods.landmarks.spectral import FedSpectral, KernelRequest, serve
from raydr.metrics import Evidence, evaluate
from raydr.report.colouring import colourings
from raydr.runfolder.reading import read_run
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read as read_scenario

QUICK = {"kind": "tsne", "early_iterations": 5, "iterations": 5}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raydr.methods.outcome.cores", lambda: 1)


def settings(**given: Any) -> FedSpectral:
    return FedSpectral.model_validate({"clusters": 4, "embedder": QUICK, "rounds": 10} | given)


def blobs(rows: int = 160, features: int = 3) -> tuple[Float64Array, Int64Array]:
    """Return four clearly separated groups of unequal size."""
    random = np.random.default_rng(5)
    labels = random.choice(4, size=rows, p=[0.4, 0.3, 0.2, 0.1])
    centres = 6.0 * np.eye(4, features) + 6.0 * (np.arange(4) == 3)[:, None]
    return centres[labels] + random.normal(size=(rows, features)), labels


def of_outcome(parts: list[Float64Array], **given: Any) -> Int64Array:
    clusters = serve(federate(parts), settings(**given)).clusters
    assert clusters is not None
    return clusters


def dense(rows: Float64Array, gamma: float, count: int) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Return eigenvalues, eigenvectors and degrees of the normalised kernel, by definition."""
    K = np.exp(-gamma * ((rows[:, None] - rows) ** 2).sum(axis=2))
    degrees = K.sum(axis=1)
    values, vectors = np.linalg.eigh(K / np.sqrt(np.outer(degrees, degrees)))
    return values[::-1][:count], vectors[:, ::-1][:, :count], degrees


# Algorithm 3


def test_client_sends_the_kernel_of_its_rows_and_landmarks() -> None:
    rows = blobs(20)[0]
    landmarks = np.random.default_rng(2).normal(size=(5, 3))
    federation = federate([rows[:12].astype(np.float32), rows[12:], rows[:0]])
    first, second, none = federation.ask(KernelRequest(landmarks, 0.3))
    assert none.values.shape == (0, 5)
    for part, reply in ((rows[:12].astype(np.float32), first), (rows[12:], second)):
        expected = np.exp(-0.3 * ((part.astype(np.float64)[:, None] - landmarks) ** 2).sum(axis=2))
        assert reply.values.dtype == np.float64
        np.testing.assert_allclose(reply.values, expected, rtol=1e-12)
    (entry,) = [entry for entry in federation.ledger.entries.values() if entry.kind == "Kernels"]
    assert entry.granularity == "per-record"
    assert "distance to each" in entry.what


@pytest.mark.parametrize("ridge", [0.0, 0.1])
@pytest.mark.parametrize("rank", [None, 6, 20])
def test_factor_equals_line_3_of_algorithm_3(rank: int | None, ridge: float) -> None:
    random = np.random.default_rng(3)
    rows, landmarks = random.normal(size=(50, 4)), random.normal(size=(12, 4))
    C, W = gaussian_kernel(rows, landmarks, 0.2), gaussian_kernel(landmarks, landmarks, 0.2)
    values, vectors = np.linalg.eigh(W + ridge * np.eye(12))
    kept = np.argsort(-values)[:rank]
    inverse = vectors[:, kept] / values[kept] @ vectors[:, kept].T
    factor = similarity_factor([C[:20], C[20:]], W, rank=rank, ridge=ridge)
    np.testing.assert_allclose(factor.rows @ factor.rows.T, C @ inverse @ C.T, atol=1e-10)
    assert factor.rows.shape[1] + factor.left_out == 12
    assert factor.negative == 0


def test_negative_eigenvalues_are_clipped_and_counted() -> None:
    W = np.diag([2.0, 1.0, -0.5, 0.0])
    factor = similarity_factor([np.eye(4)], W)
    np.testing.assert_allclose(factor.rows @ factor.rows.T, np.diag([0.5, 1.0, 0.0, 0.0]))
    assert (factor.left_out, factor.negative) == (2, 1)


def test_factor_spectrum_equals_that_of_its_product() -> None:
    rows, _ = blobs(80)
    landmarks = rows[::4]
    F = similarity_factor(
        [gaussian_kernel(rows, landmarks, 0.1)], gaussian_kernel(landmarks, landmarks, 0.1)
    ).rows
    K = F @ F.T
    degrees = K.sum(axis=1)
    assert degrees.min() > 1.0
    found = factor_spectrum(F, 5)
    np.testing.assert_allclose(found.degrees, degrees)
    assert found.raised == 0
    values, vectors = np.linalg.eigh(K / np.sqrt(np.outer(degrees, degrees)))
    np.testing.assert_allclose(found.values, values[::-1][:5], atol=1e-10)
    assert abs(found.values[0] - 1.0) < 1e-10
    np.testing.assert_allclose(
        found.vectors @ found.vectors.T, vectors[:, ::-1][:, :5] @ vectors[:, ::-1][:, :5].T, atol=1e-8
    )


def test_row_unlike_any_landmark_gets_no_cluster_of_its_own() -> None:
    F = np.array([[3.0, 0.1], [3.0, 0.0], [3.0, -0.1], [0.0, 2.0], [0.1, 2.0], [1e-9, 0.0], [0.0, 0.0]])
    found = factor_spectrum(F, 2)
    assert found.raised == 2
    assert found.degrees[5:].tolist() == [1.0, 1.0]
    clusters = spectral_clusters(found.vectors, 2, 0)
    assert clusters.tolist() == [0, 0, 0, 1, 1, 0, 0]


def test_landmarks_at_all_rows_give_the_pooled_clusters() -> None:
    from sklearn.datasets import load_iris

    rows = np.unique(load_iris().data, axis=0)
    gamma = 1.0 / np.median(squared_distances(rows, rows))
    K = gaussian_kernel(rows, rows, gamma)
    of_factor = factor_spectrum(similarity_factor([K], K, rank_tolerance=1e-13).rows, 3)
    pooled, converged = pooled_spectrum(rows, gamma, 3, seed=0)
    assert converged
    np.testing.assert_allclose(of_factor.values, pooled.values, atol=1e-4)
    assert (
        adjusted_rand_score(
            spectral_clusters(of_factor.vectors, 3, 0), spectral_clusters(pooled.vectors, 3, 0)
        )
        == 1
    )


def test_server_follows_algorithm_3() -> None:
    """Compare with its lines on dense matrices, from the same landmarks."""
    rows, _ = blobs()
    parts = cut(rows, 5, 1)
    given = settings(landmarks=20, rank_tolerance=1e-6, estimator="nystrom")
    learnt = learn_landmarks(federate(parts), given)
    C = gaussian_kernel(rows, learnt.points, learnt.gamma)
    W = gaussian_kernel(learnt.points, learnt.points, learnt.gamma)
    K = C @ np.linalg.pinv(W, rcond=1e-6, hermitian=True) @ C.T
    degrees = K.sum(axis=1)
    vectors = np.linalg.eigh(K / np.sqrt(np.outer(degrees, degrees)))[1][:, -4:]
    outcome = serve(federate(parts), given)
    assert outcome.clusters is not None
    assert adjusted_rand_score(outcome.clusters, spectral_clusters(vectors, 4, 0)) == 1
    assert outcome.model["gamma"] == learnt.gamma
    assert outcome.geometry is not None
    # The kernel determines the distances: three features, twenty landmarks.
    np.testing.assert_allclose(
        outcome.geometry.squared_distance_block(0, 9), squared_distances(rows[:9], rows), atol=1e-3
    )


def test_clusters_are_found_and_numbered_by_size() -> None:
    rows, labels = blobs()
    clusters = of_outcome(cut(rows, 4, 0), landmarks=30)
    assert adjusted_rand_score(labels, clusters) > 0.98
    sizes = np.bincount(clusters)
    assert (np.diff(sizes) <= 0).all()
    assert clusters.dtype == np.int64


# Landmarks of a frame


@pytest.mark.parametrize("affinity", ["nearest-neighbors", "rbf"])
@pytest.mark.parametrize("features", [3, 400])
def test_default_clusters_and_distances_equal_the_pooled_ones(features: int, affinity: str) -> None:
    """As many axes as the rows span determine them, also with more features than rows."""
    rows, _ = blobs(80, features)
    chosen = FedSpectral.model_validate({"clusters": 4, "embedder": QUICK, "affinity": affinity})
    outcome = serve(federate(cut(rows, 4, 0)), chosen)
    truth = squared_distances(rows, rows)
    assert outcome.geometry is not None
    np.testing.assert_allclose(outcome.geometry.squared_distance_block(0, 80), truth, atol=1e-5 * truth.max())
    pooled = chosen.central(outcome.model, rows, 0, Journal())
    assert outcome.clusters is not None
    assert pooled.clusters is not None
    assert adjusted_rand_score(outcome.clusters, pooled.clusters) == 1


@pytest.mark.parametrize("origin", ["principal", "random"])
def test_frame_uses_the_learnt_or_given_bandwidth(origin: str) -> None:
    rows, _ = blobs()
    learnt = serve(federate([rows]), settings(rounds=0)).model["gamma"]
    for gamma, expected in ((None, learnt), (0.05, 0.05)):
        framed = settings(rounds=None, landmarks_from=origin, gamma=gamma)
        federation = federate([rows])
        assert serve(federation, framed).model["gamma"] == expected
        kinds = {entry.kind for entry in federation.ledger.entries.values()}
        assert "Step" not in kinds
        assert ("Histogram" in kinds) == (gamma is None)


def test_nystrom_needs_learnt_landmarks() -> None:
    assert FedSpectral(clusters=2).origin == "principal"
    assert FedSpectral(clusters=2, rounds=3).origin == "learnt"
    assert FedSpectral(clusters=2, estimator="nystrom", landmarks_from="learnt").steps == 50
    with pytest.raises(ScenarioError, match="needs landmarks that lie among the rows"):
        tiny_scenario(method={"kind": "fed-spectral", "clusters": 2, "estimator": "nystrom"})


# Invariance


@pytest.mark.parametrize("clients", [1, 3, 9])
def test_partition_does_not_change_the_clusters(clients: int) -> None:
    rows, _ = blobs()
    alone = of_outcome([rows], landmarks=30, weights="rows")
    shuffled = np.random.default_rng(clients).permutation(len(rows))
    dealt = of_outcome(cut(rows[shuffled], clients, clients), landmarks=30, weights="rows")
    assert adjusted_rand_score(alone[shuffled], dealt) == 1


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_unit_and_origin_do_not_change_the_clusters(scale: float, offset: float) -> None:
    rows, _ = blobs()
    moved = scale * rows + scale * offset
    assert adjusted_rand_score(of_outcome([rows], landmarks=30), of_outcome([moved], landmarks=30)) == 1


def test_twenty_thousand_features_are_clustered() -> None:
    random = np.random.default_rng(0)
    labels = np.arange(60) % 3
    rows = random.normal(size=(3, 20_000))[labels] + random.normal(size=(60, 20_000))
    assert adjusted_rand_score(labels, of_outcome([rows[:25], rows[25:]], clusters=3, landmarks=20)) == 1


# Errors


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"clusters": 200}, r"method\.clusters is 200, but the clients hold only 160 rows"),
        ({"clusters": 30, "landmarks": 20}, r"method\.clusters is 30, but 20 landmarks"),
        ({"rank": 21, "landmarks": 20, "estimator": "nystrom"}, r"method\.rank is 21, .* 20 landmarks"),
        ({"neighbors": 161}, r"method\.neighbors is 161, .* only 160 rows"),
        ({"landmarks": 161}, r"method\.landmarks is 161"),
        ({"embedder": {"kind": "tsne", "perplexity": 60}}, "perplexity is 60"),
    ],
)
def test_settings_impossible_for_the_rows_are_refused_at_once(given: dict[str, Any], message: str) -> None:
    federation = federate([blobs()[0]])
    enrolled = list(federation.ledger.entries)
    with pytest.raises(ScenarioError, match=message) as caught:
        serve(federation, settings(**given))
    assert "\n" not in str(caught.value)
    assert list(federation.ledger.entries) == enrolled


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"clusters": 1}, "clusters"),
        ({"rank": 3, "clusters": 4, "estimator": "nystrom", "rounds": 1}, "rank is 3, but 4 clusters"),
        ({"rank": 9, "clusters": 4}, "rank applies to the estimator nystrom alone"),
        ({"clusters": 3, "embedder": "cosne"}, "cosne"),
        (
            {"clusters": 3, "affinity": "rbf", "neighbors": 9},
            "neighbors apply to affinity: nearest-neighbors alone",
        ),
        (
            {"clusters": 3, "estimator": "nystrom", "rounds": 1, "affinity": "nearest-neighbors"},
            "nystrom estimates the whole kernel",
        ),
    ],
)
def test_contradictory_settings_are_refused_when_read(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        tiny_scenario(method={"kind": "fed-spectral", **given})


def test_rank_needs_nystrom_and_enough_landmarks() -> None:
    with pytest.raises(ScenarioError, match="rank applies to the Nystrom estimators"):
        tiny_scenario(method__rank=3)
    with pytest.raises(ScenarioError, match=r"method\.rank is 13, .* 12 landmarks"):
        tiny_scenario(method__rank=13, method__estimator="nystrom", method__rounds=2).method.check(150, 4)
    FedTSNE(landmarks=12, rank=12, estimator="nystrom", rounds=2).check(150, 4)


def test_rank_of_nystrom_truncates_w() -> None:
    random = np.random.default_rng(4)
    D = squared_distances(landmarks := random.normal(size=(10, 6)), landmarks)
    B = squared_distances(random.normal(size=(30, 6)), landmarks)
    values, vectors = np.linalg.eigh(D)
    kept = np.argsort(-np.abs(values))[:3]
    expected = B @ (vectors[:, kept] / values[kept] @ vectors[:, kept].T) @ B.T
    estimate = nystrom([B], D, squared=True, rank=3)
    np.testing.assert_allclose(estimate.squared_distance_block(0, 30), expected, atol=1e-9)


def test_fewer_different_rows_than_clusters_are_refused() -> None:
    three = np.eye(3)[np.arange(40) % 3]
    with pytest.raises(DataError, match="separates only 3 of the 40 rows, too few for 4 clusters"):
        serve(federate([three]), settings(landmarks=10))


def test_equal_rows_are_refused() -> None:
    with pytest.raises(DataError, match="All rows of all clients are equal"):
        serve(federate([np.ones((30, 2))]), settings(landmarks=10))


def test_too_narrow_kernel_is_refused() -> None:
    with pytest.raises(DataError, match=r"separates only 0 of the 160 rows.*leave method\.gamma out"):
        serve(federate([blobs()[0]]), settings(landmarks=10, gamma=1e6))


def test_notes_report_rows_beyond_the_kernel() -> None:
    rows, _ = blobs()
    rows[0] += 100.0
    outcome = serve(federate([rows]), settings(landmarks=30, gamma=0.1))
    assert outcome.clusters is not None
    text = " ".join(note.text for note in outcome.notes)
    assert "1 rows are so far from every landmark" in text
    assert "30 kernel values are too small" in text
    assert outcome.clusters[0] == 0
    assert np.isfinite(outcome.embedding).all()


# The pooled rows


@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_kernel_products_equal_the_dense_matrix(monkeypatch: pytest.MonkeyPatch, precision: type) -> None:
    monkeypatch.setattr(pooled_kernel, "_SINGLE", np.inf if precision is np.float32 else 0.0)
    random = np.random.default_rng(0)
    rows, vectors = random.normal(size=(1300, 5)) + 1e6, random.normal(size=(1300, 3))
    kernel = GaussianKernel(rows, 0.3)
    expected = gaussian_kernel(rows, rows, 0.3) @ vectors
    tolerance = 1e-4 if precision is np.float32 else 1e-10
    events: list[tuple[int, int]] = []
    product = kernel.times(vectors, lambda done, total: events.append((done, total)))
    np.testing.assert_allclose(product, expected, atol=tolerance * np.abs(expected).max())
    assert events == [(512, 1300), (1024, 1300), (1300, 1300)]


def test_threads_change_no_bit_of_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    rows, vectors = random.normal(size=(2000, 5)), random.normal(size=(2000, 3))
    products = []
    for threads in (1, 3):
        monkeypatch.setattr(pooled_kernel, "cores", lambda threads=threads: threads)
        products.append(GaussianKernel(rows, 0.3).times(vectors).tobytes())
    assert products[0] == products[1]


@pytest.mark.parametrize(
    ("rows", "count", "others"), [(6, 2, 64), (6, 6, 2048), (40, 30, 64), (600, 5, 2048), (700, 20, 64)]
)
@pytest.mark.parametrize("gamma", [0.01, 0.3, 1.0])
def test_pooled_spectrum_equals_the_dense_one(
    monkeypatch: pytest.MonkeyPatch, rows: int, count: int, gamma: float, others: int
) -> None:
    monkeypatch.setattr(pooled_kernel, "_OTHERS", others)
    table = np.random.default_rng(rows).normal(size=(rows, 4))
    values, vectors, degrees = dense(table, gamma, count)
    found, _ = pooled_spectrum(table, gamma, count, seed=0)
    assert found.vectors.shape == (rows, count)
    np.testing.assert_allclose(found.degrees, degrees, rtol=1e-4)
    np.testing.assert_allclose(found.values, values, atol=1e-5)
    gap = values[:-1] - values[1:]
    for place in np.flatnonzero((gap[1:] > 1e-2) & (gap[:-1] > 1e-2)) + 1:
        assert abs(vectors[:, place] @ found.vectors[:, place]) > 1 - 1e-4


def test_pooled_clusters_equal_scikit_learn() -> None:
    """Scikit-learn divides by the roots of the degrees; both find the same for clear groups."""
    from sklearn.cluster import SpectralClustering

    rows, _ = blobs(400)
    gamma = 0.1
    theirs = SpectralClustering(4, affinity="precomputed", random_state=0).fit_predict(
        gaussian_kernel(rows, rows, gamma)
    )
    found, converged = pooled_spectrum(rows, gamma, 4, seed=0)
    assert converged
    assert adjusted_rand_score(theirs, spectral_clusters(found.vectors, 4, 0)) == 1


def test_pooled_map_uses_the_bandwidth_and_reports_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, labels = blobs()
    events: list[Event] = []
    narrow, wide = (
        settings(affinity="rbf").central({"gamma": np.array([gamma])}, rows, 0, Journal(events.append))
        for gamma in (30.0, 0.05)
    )
    assert narrow.clusters is not None
    assert wide.clusters is not None
    assert adjusted_rand_score(labels, wide.clusters) > 0.98 > adjusted_rand_score(labels, narrow.clusters)
    steps = [event for event in events if isinstance(event, Progress) and event.stage == "clusters"]
    assert steps[-1].done == steps[-1].total
    assert not any(isinstance(event, IncidentEvent) for event in events)
    monkeypatch.setattr(pooled_kernel, "TOLERANCE", 0.0)
    monkeypatch.setattr(pooled_kernel, "MOST_PRODUCTS", 1)
    settings(affinity="rbf").central({"gamma": np.array([0.05])}, rows, 0, Journal(events.append))
    assert any(isinstance(event, IncidentEvent) and "did not converge" in event.text for event in events)


# Nearest neighbours


def test_eigenvectors_equal_those_of_the_dense_fuzzy_set(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _ = blobs()
    nearest = nearest_neighbors(Points(rows), 9)
    A = fuzzy_set(nearest).toarray().astype(np.float64)
    np.testing.assert_array_equal(A, A.T)
    values, vectors = np.linalg.eigh(A / np.sqrt(np.outer(A.sum(axis=0), A.sum(axis=0))))
    for dense_up_to in (0, 1000):
        monkeypatch.setattr(neighbor_spectrum, "DENSE", dense_up_to)
        found, neighbors, converged = neighbor_spectrum.neighbor_spectrum(Points(rows), 4, 10, seed=0)
        assert (neighbors, converged) == (10, True)
        np.testing.assert_allclose(found.degrees, A.sum(axis=0), rtol=1e-6)
        np.testing.assert_allclose(found.values, values[::-1][:4], atol=1e-6)
        aligned = np.abs(np.linalg.svd(found.vectors.T @ vectors[:, ::-1][:, :4], compute_uv=False))
        np.testing.assert_allclose(aligned, 1.0, atol=1e-4)


def test_neighbours_are_doubled_until_the_graph_connects_enough() -> None:
    """Nine groups of seven: with 4 neighbours each is a component, and three clusters need fewer components."""
    random = np.random.default_rng(0)
    corners = np.array([[x, y] for x in (0.0, 100.0, 200.0) for y in (0.0, 5.0, 10.0)])
    rows = np.repeat(corners, 7, axis=0) + 0.1 * random.normal(size=(63, 2))
    _, neighbors, _ = neighbor_spectrum.neighbor_spectrum(Points(rows), 3, 4, seed=0)
    assert neighbors == 8
    three = of_outcome([rows], clusters=3, neighbors=4, landmarks=20)
    assert adjusted_rand_score(np.round(rows[:, 0] / 100.0), three) == 1
    nine = of_outcome([rows], clusters=9, neighbors=4, landmarks=20)
    assert adjusted_rand_score(np.arange(63) // 7, nine) == 1


def test_nearest_neighbours_separate_unequal_densities() -> None:
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 80)
    rows = np.array([[0.0, 0.0], [1.5, 0.0], [40.0, 0.0]])[labels]
    rows += np.array([0.2, 0.2, 8.0])[labels, None] * random.normal(size=(240, 2))
    by = {
        affinity: of_outcome([rows[::2], rows[1::2]], clusters=3, affinity=affinity, landmarks=20)
        for affinity in ("nearest-neighbors", "rbf")
    }
    order = np.concatenate([labels[::2], labels[1::2]])
    assert adjusted_rand_score(order, by["nearest-neighbors"]) > 0.95 > adjusted_rand_score(order, by["rbf"])


# Metrics, run folders, bits


def test_clustering_metrics_score_the_methods_own_clusters() -> None:
    rows, labels = blobs()
    names = ["clustering_nmi", "clustering_ari"]
    perfect = evaluate(
        names, Evidence(rows=rows, embedding=rows[:, :2] * 0, labels=labels, clusters=3 - labels)
    )
    assert perfect.values == {"clustering_nmi": pytest.approx(1.0), "clustering_ari": pytest.approx(1.0)}
    none = evaluate(names, Evidence(rows=rows, embedding=rows[:, :2], labels=labels))
    assert none.values == {}
    assert set(none.not_computed.values()) == {"the method makes no clusters of its own"}
    with pytest.raises(DataError, match="clustering has 159"):
        Evidence(rows=rows, embedding=rows[:, :2], labels=labels, clusters=labels[:-1])


METHOD: dict[str, Any] = {
    "kind": "fed-spectral",
    "clusters": 3,
    "landmarks": 40,
    "rounds": 4,
    "embedder": QUICK,
}


def test_run_folder_has_clusters_in_table_order(tmp_path: Path) -> None:
    content = tiny() | {"method": METHOD, "compare": ["central"], "metrics": ["npa_10", "clustering_ari"]}
    content["clients"] = {"count": 4, "partition": {"kind": "dirichlet", "alpha": 0.3}}
    folder = run(read_scenario(content), out=tmp_path / "run", report=False)
    written = pq.read_table(folder / "embedding.parquet")
    assert written.column_names == ["row", "client", "x", "y", "cluster", "label", "npa_10"]
    agreement = adjusted_rand_score(written["label"].to_pylist(), written["cluster"].to_pylist())
    read = read_run(folder)
    assert read.measures.federated["clustering_ari"] == pytest.approx(agreement)
    assert agreement > 0.5  # clusters in another order would give 0
    pooled = pq.read_table(folder / "central.parquet")
    assert pooled.column_names == ["row", "x", "y", "cluster", "npa_10"]
    agreement = adjusted_rand_score(written["label"].to_pylist(), pooled["cluster"].to_pylist())
    assert read.measures.central["clustering_ari"] == pytest.approx(agreement)
    assert [way.by for way in colourings(read)] == ["label", "cluster", "client"]
    assert read.clusters is not None
    assert sorted(set(read.clusters)) == ["0", "1", "2"]


def test_clustering_metrics_are_a_default_only_with_clusters(tmp_path: Path) -> None:
    by_default = read_run(tiny_run(tmp_path / "default", metrics="default", data__rows=60)).measures
    assert not [name for name in [*by_default.federated, *by_default.not_computed] if "clustering" in name]
    asked = read_run(tiny_run(tmp_path / "asked", metrics=["clustering_nmi"])).measures
    assert asked.not_computed == {"clustering_nmi": "the method makes no clusters of its own"}


def test_two_runs_have_the_same_bits(tmp_path: Path) -> None:
    inline = {"federation": "inline"}
    assert bits_of_run(tmp_path / "1", METHOD, inline) == bits_of_run(tmp_path / "2", METHOD, inline)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_ray_matches_inline_federation(tmp_path: Path) -> None:
    inline = bits_of_run(tmp_path / "inline", METHOD, {"federation": "inline"})
    assert bits_of_run(tmp_path / "ray", METHOD, {"federation": "ray", "actors": 2}) == inline


def test_title_is_the_papers_name() -> None:
    assert METHODS["fed-spectral"].title == "Fed-SpeClust"
