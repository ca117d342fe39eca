from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from perfect import ONE_WHEN_PERFECT
from scipy.spatial.distance import cdist
from sklearn import manifold, metrics
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_wine
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NearestNeighbors

from raydr.errors import DataError, ScenarioError
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points
from raydr.metrics import (
    DEFAULT_METRICS,
    METRICS,
    Evidence,
    SharedGraph,
    default_metrics,
    evaluate,
    metric_named,
    recovery,
    row_graph,
)
from raydr.metrics import clusters as cluster_metrics

NAMES = [
    "ca_1",
    "ca_10",
    "ca_50",
    "npa_1",
    "npa_10",
    "npa_50",
    "nmi",
    "sc",
    "ari",
    "trustworthiness",
    "continuity",
    "steadiness",
    "cohesiveness",
    "distance_error",
    "f_score",
    "pearson",
    "cosine",
    "frobenius",
    "clustering_nmi",
    "clustering_ari",
]
OF_SITES = ["site_mixing", "site_silhouette"]
ANCHORED = ["anchored_cosine", "anchored_frobenius"]
OF_NEW_ROWS = [
    "knn_accuracy",
    "new_npa_10",
    "new_trustworthiness",
    "new_continuity",
    "new_steadiness",
    "new_cohesiveness",
    "new_steadiness_all",
    "new_cohesiveness_all",
]
OF_ALL = ["steadiness_all", "cohesiveness_all"]
NAMED = [
    *OF_ALL,
    "f_score_published",
    *ANCHORED,
    "new_steadiness_all",
    "new_cohesiveness_all",
    "reliable",
    "fracture",
    "perturbation",
]

GROUPS = ("steadiness", "cohesiveness")


def made_evidence(rows=260, features=6, classes=4, seed=0):
    """Return clusters, a noisy projection of them as the map, and a noisy recovery."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, size=rows)
    data = random.normal(size=(classes, features))[labels] * 2 + random.normal(size=(rows, features))
    embedding = PCA(2, random_state=0).fit_transform(data) + 0.1 * random.normal(size=(rows, 2))
    recovered = Points(data + 0.2 * random.normal(size=data.shape))
    clusters = np.where(random.random(rows) < 0.2, 0, labels)
    return Evidence(
        rows=data, embedding=embedding, labels=labels, recovered=recovered, seed=3, clusters=clusters
    )


def real_evidence(name, data_dir=None):
    if name == "digits":
        rows, labels = (table[:900] for table in load_digits(return_X_y=True))
    elif name == "wine":
        rows, labels = load_wine(return_X_y=True)
    else:
        with np.load(data_dir / "mnist.npz") as archive:
            rows, labels = archive["X"][:1500].astype(np.float64), archive["y"][:1500]
    return Evidence(rows=rows, embedding=PCA(2, random_state=0).fit_transform(rows), labels=labels)


def neighbor_sets(rows, k):
    found = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(rows).kneighbors(return_distance=False)
    return [set(row) for row in found]


def overlap(a, b, k):
    pairs = zip(neighbor_sets(a, k), neighbor_sets(b, k), strict=True)
    return np.mean([len(one & other) / k for one, other in pairs])


def test_metric_names_are_the_documented_ones():
    assert list(DEFAULT_METRICS) == list(METRICS)
    assert set(METRICS) == {*NAMES, *OF_SITES, *ANCHORED, *OF_NEW_ROWS, *NAMED}
    assert [name for name in METRICS if name not in default_metrics()] == NAMED
    assert [name for name, metric in METRICS.items() if "new" in metric.needs] == OF_NEW_ROWS
    assert all(metric.name == name for name, metric in METRICS.items())
    assert [name for name, metric in METRICS.items() if not metric.higher_is_better] == [
        "distance_error",
        "frobenius",
        "anchored_frobenius",
        "site_silhouette",
        "fracture",
        "perturbation",
    ]


def test_each_metric_is_the_same_alone_and_together():
    evidence = made_evidence(rows=130)
    together = evaluate(NAMES, evidence)
    assert not together.not_computed
    for name in NAMES:
        assert evaluate([name], evidence).values == {name: together.values[name]}


@pytest.mark.parametrize("name", ["digits", "wine", pytest.param("mnist", marks=pytest.mark.slow)])
def test_ranks_equal_scikit_learn_on_real_data(name, request):
    """Noise breaks the ties of digits and MNIST, which scikit-learn breaks by argsort."""
    evidence = real_evidence(name, request.getfixturevalue("data_dir") if name == "mnist" else None)
    noise = 1e-6 * np.random.default_rng(0).normal(size=evidence.rows.shape)
    evidence = replace(evidence, rows=evidence.rows + noise)
    values = evaluate(["trustworthiness", "continuity"], evidence).values
    rows, embedding = evidence.rows, evidence.embedding
    assert values["trustworthiness"] == pytest.approx(manifold.trustworthiness(rows, embedding), abs=1e-9)
    assert values["continuity"] == pytest.approx(manifold.trustworthiness(embedding, rows), abs=1e-9)
    for k in (7, 60):
        values = evaluate([f"trustworthiness_{k}", f"continuity_{k}"], evidence).values
        scikits = manifold.trustworthiness(rows, embedding, n_neighbors=k)
        assert values[f"trustworthiness_{k}"] == pytest.approx(scikits, abs=1e-9)
        scikits = manifold.trustworthiness(embedding, rows, n_neighbors=k)
        assert values[f"continuity_{k}"] == pytest.approx(scikits, abs=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ranks_equal_scikit_learn_in_either_precision(dtype):
    evidence = made_evidence(rows=600)
    rows, embedding = evidence.rows.astype(dtype), evidence.embedding.astype(dtype)
    values = evaluate(
        ["trustworthiness", "continuity"], replace(evidence, rows=rows, embedding=embedding)
    ).values
    rows, embedding = rows.astype(np.float64), embedding.astype(np.float64)
    assert values["trustworthiness"] == pytest.approx(manifold.trustworthiness(rows, embedding), abs=1e-9)
    assert values["continuity"] == pytest.approx(manifold.trustworthiness(embedding, rows), abs=1e-9)


@pytest.mark.parametrize("k", [1, 10, 50])
def test_neighbor_preservation_equals_the_overlap_of_sets(k):
    evidence = made_evidence()
    value = evaluate([f"npa_{k}"], evidence).values[f"npa_{k}"]
    assert value == pytest.approx(overlap(evidence.rows, evidence.embedding, k), abs=1e-12)


@pytest.mark.parametrize("k", [1, 10, 50])
def test_classification_accuracy_equals_a_majority_vote_by_hand(k):
    from sklearn.model_selection import train_test_split

    evidence = made_evidence(classes=2)
    train, test = train_test_split(
        np.arange(260), test_size=0.3, stratify=evidence.labels, random_state=evidence.seed
    )
    distances = ((evidence.embedding[test][:, None] - evidence.embedding[train][None]) ** 2).sum(axis=2)
    votes = evidence.labels[train][np.argsort(distances, axis=1)[:, :k]]
    predicted = (votes.mean(axis=1) > 0.5).astype(int)  # in a tie scikit-learn takes the lower class
    expected = np.mean(predicted == evidence.labels[test])
    assert evaluate([f"ca_{k}"], evidence).values[f"ca_{k}"] == pytest.approx(expected)


def test_metric_name_sets_the_number_of_neighbours():
    """Also for numbers of neighbours that are not listed or exceed the shared graph."""
    evidence = made_evidence()
    names = ["npa_70", "ca_7", "f_score_7", "f_score_70", "trustworthiness_5", "continuity_5", "npa_10"]
    values = evaluate(names, evidence).values
    assert list(values) == names
    assert values["npa_70"] == pytest.approx(overlap(evidence.rows, evidence.embedding, 70), abs=1e-12)
    for k in (7, 70):
        share = overlap(evidence.rows, evidence.recovered.coordinates, k)
        assert values[f"f_score_{k}"] == pytest.approx(share, abs=1e-12)
    listed = evaluate(["trustworthiness", "continuity", "npa_10"], evidence).values
    assert (values["trustworthiness_5"], values["continuity_5"]) == (
        listed["trustworthiness"],
        listed["continuity"],
    )
    assert values["npa_10"] == listed["npa_10"]
    assert metric_named("npa_70").title == "Neighbour preservation, k = 70"
    assert "(7 neighbours" in metric_named("trustworthiness_7").description


def test_new_rows_are_scored_on_their_own():
    """Only their classes are predicted from the nearest rows of the map."""
    evidence, new = made_evidence(rows=130, seed=1), made_evidence(rows=90, seed=2)
    values = evaluate([*OF_NEW_ROWS, "knn_accuracy_1", "new_npa_3"], replace(evidence, new=new)).values
    alone = evaluate([name.removeprefix("new_") for name in OF_NEW_ROWS[1:]], new).values
    assert {name: values[name] for name in OF_NEW_ROWS[1:]} == {f"new_{name}": alone[name] for name in alone}
    assert values["new_npa_3"] == pytest.approx(overlap(new.rows, new.embedding, 3), abs=1e-12)
    distances = ((new.embedding[:, None] - evidence.embedding[None]) ** 2).sum(axis=2)
    for k, name in ((1, "knn_accuracy_1"), (7, "knn_accuracy")):
        votes = evidence.labels[np.argsort(distances, axis=1)[:, :k]]
        most = [np.bincount(row).argmax() for row in votes]  # in a tie scikit-learn takes the lower class
        assert values[name] == pytest.approx(np.mean(most == new.labels))


def test_missing_new_rows_are_reported_as_a_reason():
    reasons = evaluate(OF_NEW_ROWS, made_evidence()).not_computed
    assert set(reasons.values()) == {"no rows were held out and placed on the map"}
    unlabelled = replace(made_evidence(), new=replace(made_evidence(), labels=None))
    assert evaluate(["knn_accuracy"], unlabelled).not_computed == {"knn_accuracy": "the data have no labels"}


def test_class_of_one_row_is_split_without_strata():
    evidence = made_evidence()
    labels = evidence.labels.copy()
    labels[0] = 99
    assert 0.5 < evaluate(["ca_10"], replace(evidence, labels=labels)).values["ca_10"] <= 1


def test_cluster_metrics_equal_scikit_learn():
    evidence = made_evidence()
    clusters = KMeans(4, n_init=10, random_state=evidence.seed).fit_predict(evidence.embedding)
    values = evaluate(["nmi", "sc", "ari"], evidence).values
    assert values["nmi"] == pytest.approx(metrics.normalized_mutual_info_score(evidence.labels, clusters))
    assert values["ari"] == pytest.approx(metrics.adjusted_rand_score(evidence.labels, clusters))
    assert values["sc"] == pytest.approx(metrics.silhouette_score(evidence.embedding, clusters))


def test_sampled_silhouette_is_near_the_exact_one(monkeypatch):
    evidence = made_evidence(rows=2000)
    whole = evaluate(["sc"], evidence).values["sc"]
    monkeypatch.setattr(cluster_metrics, "SILHOUETTE_ROWS", 1000)
    sampled = evaluate(["sc"], evidence).values["sc"]
    assert sampled != whole
    assert sampled == pytest.approx(whole, abs=0.03)


def test_silhouette_sample_is_drawn_from_all_rows(monkeypatch):
    """The first rows of a sorted table are of one class."""
    evidence = made_evidence(rows=400)
    clusters = KMeans(4, n_init=10, random_state=evidence.seed).fit_predict(evidence.embedding)
    monkeypatch.setattr(cluster_metrics, "SILHOUETTE_ROWS", 100)
    drawn = np.sort(np.random.default_rng(evidence.seed).choice(400, 100, replace=False))
    expected = metrics.silhouette_score(evidence.embedding[drawn], clusters[drawn])
    assert evaluate(["sc"], evidence).values["sc"] == pytest.approx(expected)


@pytest.mark.parametrize(("rows", "measured"), [(71, False), (72, True)])
def test_fifty_neighbours_need_fifty_training_rows(rows, measured):
    """70% of 72 rows are 50 of them."""
    evidence = made_evidence(rows=rows)
    train, _ = train_test_split(np.arange(rows), test_size=0.3, random_state=0)
    assert (len(train) >= 50) == measured
    found = evaluate(["ca_50"], evidence)
    assert ("ca_50" in found.not_computed) is not measured


def test_distance_error_and_f_score_equal_brute_force():
    evidence = made_evidence()
    true = np.sqrt(((evidence.rows[:, None] - evidence.rows[None]) ** 2).sum(axis=2))
    recovered = evidence.recovered.coordinates
    estimate = np.sqrt(((recovered[:, None] - recovered[None]) ** 2).sum(axis=2))
    values = evaluate(["distance_error", "f_score"], evidence).values
    expected = np.linalg.norm(estimate - true) / np.linalg.norm(true)
    assert values["distance_error"] == pytest.approx(expected, rel=1e-9)
    assert values["f_score"] == pytest.approx(overlap(evidence.rows, recovered, 10), abs=1e-12)


def test_published_f_score_equals_brute_force_and_is_not_a_function_of_the_mean():
    """The mean over rows of 2c / (c + k): the function of the mean share alone would be higher (Jensen)."""
    evidence = made_evidence()
    pairs = zip(
        neighbor_sets(evidence.rows, 10), neighbor_sets(evidence.recovered.coordinates, 10), strict=True
    )
    shared = np.array([len(true & found) for true, found in pairs])
    values = evaluate(["f_score_published", "f_score", "f_score_published_7"], evidence).values
    assert values["f_score_published"] == pytest.approx(np.mean(2 * shared / (shared + 10)), abs=1e-12)
    share = values["f_score"]
    assert share + 0.01 < values["f_score_published"] < 2 * share / (share + 1) - 0.001
    assert metric_named("f_score_published_7").k == 7
    exact = replace(evidence, recovered=Points(evidence.rows))
    assert evaluate(["f_score_published"], exact).values["f_score_published"] == 1.0


def test_sampled_distance_error_of_a_scaled_geometry_is_exact(monkeypatch):
    evidence = replace(made_evidence(rows=900), recovered=Points(made_evidence(rows=900).rows * 1.1))
    monkeypatch.setattr(recovery, "COMPARED_ROWS", 500)
    monkeypatch.setattr(recovery, "SAMPLED_ROWS", 256)
    values = evaluate(["distance_error", "f_score"], evidence).values
    assert values["distance_error"] == pytest.approx(0.1, rel=1e-9)
    assert values["f_score"] == 1.0


def test_sampled_distance_error_is_near_the_exact_one(monkeypatch):
    evidence = made_evidence(rows=2000)
    whole = evaluate(["distance_error"], evidence).values["distance_error"]
    monkeypatch.setattr(recovery, "COMPARED_ROWS", 500)
    monkeypatch.setattr(recovery, "SAMPLED_ROWS", 512)
    sampled = evaluate(["distance_error"], evidence).values["distance_error"]
    assert sampled != whole
    assert sampled == pytest.approx(whole, rel=0.05)


def test_perfect_map_has_perfect_scores():
    points = np.random.default_rng(1).normal(size=(150, 3))
    values = evaluate(
        DEFAULT_METRICS, Evidence(rows=points, embedding=points, recovered=Points(points))
    ).values
    assert [values[name] for name in ONE_WHEN_PERFECT] == [1.0] * len(ONE_WHEN_PERFECT)
    assert [values[name] for name in ("pearson", "cosine")] == pytest.approx([1.0, 1.0], abs=1e-12)
    assert values["distance_error"] < 1e-7
    assert values["frobenius"] < 1e-12


def test_unrelated_map_scores_at_chance():
    random = np.random.default_rng(2)
    evidence = Evidence(rows=random.normal(size=(500, 8)), embedding=random.normal(size=(500, 2)))
    values = evaluate(["npa_50", "trustworthiness"], evidence).values
    assert values["npa_50"] == pytest.approx(50 / 499, abs=0.01)
    assert values["trustworthiness"] == pytest.approx(0.5, abs=0.03)


def test_isometry_of_the_data_changes_nothing():
    evidence = made_evidence(rows=130)
    random = np.random.default_rng(4)
    rotation = np.linalg.qr(random.normal(size=(6, 6)))[0]
    moved = replace(evidence, rows=evidence.rows @ rotation + random.normal(size=6))
    assert evaluate(NAMES, moved).values == pytest.approx(evaluate(NAMES, evidence).values, abs=1e-9)


def test_permutation_of_rows_changes_no_exact_metric():
    evidence = made_evidence()
    order = np.random.default_rng(5).permutation(260)
    permuted = Evidence(
        rows=evidence.rows[order],
        embedding=evidence.embedding[order],
        labels=evidence.labels[order],
        recovered=Points(evidence.recovered.coordinates[order]),
        seed=evidence.seed,
        clusters=evidence.clusters[order],
    )
    drawn = {"ca_1", "ca_10", "ca_50", "steadiness", "cohesiveness"}  # by row index: a split and random walks
    names = [name for name in NAMES if name not in drawn and METRICS[name].needs != {"labels"}]
    assert evaluate(names, permuted).values == pytest.approx(evaluate(names, evidence).values, abs=1e-12)


def test_threads_change_no_bit():
    evidence = made_evidence(rows=1500)
    names = [name for name in NAMES if name not in GROUPS]
    assert evaluate(names, evidence, threads=1) == evaluate(names, evidence, threads=3)


def test_faithfulness_is_each_rows_share_of_neighbours_kept():
    evidence = made_evidence(rows=60)
    scores = evaluate(["npa_1", "npa_7", "npa_50"], evidence)
    (name,) = scores.faithfulness
    assert name == "npa_7"
    true, found = (
        np.argsort(cdist(points, points) + np.diag(np.full(60, np.inf)), axis=1)[:, :7]
        for points in (evidence.rows, evidence.embedding)
    )
    expected = [len(set(one) & set(other)) / 7 for one, other in zip(true, found, strict=True)]
    np.testing.assert_allclose(scores.faithfulness[name], expected)
    assert evaluate(["trustworthiness"], evidence).faithfulness == {}


def test_second_map_of_the_same_rows_reuses_neighbours(monkeypatch):
    evidence = made_evidence()
    expected = evaluate(["npa_10", "continuity"], evidence)
    shared = replace(evidence, row_neighbors=row_graph(evidence.rows))
    searched = []
    monkeypatch.setattr(
        "raydr.metrics.evidence.row_graph", lambda rows, **_: searched.append(rows.shape) or row_graph(rows)
    )
    assert evaluate(["npa_10", "continuity"], shared) == expected
    assert searched == [(260, 2)]


def test_data_neighbours_are_searched_once_and_only_when_needed(monkeypatch):
    evidence = made_evidence()
    expected = [evaluate(["npa_10", "ca_10"], evidence), evaluate(["npa_10"], evidence)]
    graph = SharedGraph(evidence.rows)
    shared = replace(evidence, row_neighbors=graph)
    searched = []
    monkeypatch.setattr(
        "raydr.metrics.evidence.row_graph", lambda rows, **_: searched.append(rows.shape) or row_graph(rows)
    )
    evaluate(["ca_10", "nmi"], shared)
    assert evidence.rows.shape not in searched
    assert [evaluate(["npa_10", "ca_10"], shared), evaluate(["npa_10"], shared)] == expected
    assert searched.count(evidence.rows.shape) == 1


def test_recovered_neighbours_are_not_searched_again(monkeypatch):
    evidence = made_evidence()
    expected = evaluate(["f_score"], evidence)
    shared = replace(evidence, recovered_neighbors=nearest_neighbors(evidence.recovered, 15))
    monkeypatch.setattr(recovery, "nearest_neighbors", None)
    assert evaluate(["f_score"], shared) == expected


def test_missing_evidence_is_reported_as_a_reason():
    evidence = replace(made_evidence(), labels=None, recovered=None)
    scores = evaluate(NAMES, evidence)
    unlabelled = {"ca_1", "ca_10", "ca_50", "nmi", "sc", "ari", "clustering_nmi", "clustering_ari"}
    assert {name for name, reason in scores.not_computed.items() if "no labels" in reason} == unlabelled
    recoveries = {"distance_error", "f_score", "pearson", "cosine", "frobenius"}
    assert set(scores.not_computed) - unlabelled == recoveries
    assert set(scores.values) | set(scores.not_computed) == set(NAMES)


@pytest.mark.parametrize(
    ("rows", "missing"),
    [
        (50, {"ca_50", "npa_50"}),
        (60, {"ca_50"}),
        (34, {"ca_50", "npa_50"}),
        (33, {"ca_50", "npa_50", *GROUPS}),
        (11, {"ca_10", "ca_50", "npa_50", *GROUPS}),
        (10, {"ca_10", "ca_50", "npa_10", "npa_50", "trustworthiness", "continuity", "f_score", *GROUPS}),
    ],
)
def test_too_few_rows_are_reported_as_a_reason(rows, missing):
    scores = evaluate(NAMES, made_evidence(rows=rows, classes=2))
    assert set(scores.not_computed) == missing


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_tiny_data_give_values_or_reasons(rows):
    random = np.random.default_rng(6)
    evidence = Evidence(
        rows=random.normal(size=(rows, 3)),
        embedding=random.normal(size=(rows, 2)),
        labels=np.arange(rows) % 2,
    )
    scores = evaluate(NAMES, evidence)
    assert set(scores.values) | set(scores.not_computed) == set(NAMES)
    assert np.isfinite(list(scores.values.values())).all()


def test_collapsed_map_and_equal_rows_are_reported_as_reasons():
    evidence = replace(made_evidence(), embedding=np.zeros((260, 2)))
    assert {"nmi", "sc", "ari"} <= set(evaluate(NAMES, evidence).not_computed)
    equal = replace(made_evidence(), rows=np.ones((260, 6)))
    assert "every true distance is 0" in evaluate(["distance_error"], equal).not_computed["distance_error"]
    one_class = replace(made_evidence(), labels=np.zeros(260, int))
    assert set(evaluate(["nmi", "ca_1"], one_class).values) == {"ca_1"}


def test_unknown_metric_error_suggests_the_nearest_name():
    with pytest.raises(ScenarioError, match=r"no metric 'trustworthines' \(did you mean trustworthiness\?\)"):
        evaluate(["npa_1", "trustworthines"], made_evidence())
    assert metric_named("sc").title == "Silhouette coefficient"


@pytest.mark.parametrize("name", ["npa_0", "npa_007", "npa_1001", "trustworthiness_999999999"])
def test_out_of_range_number_of_neighbours_is_refused(name):
    with pytest.raises(
        ScenarioError, match=f"{name!r} has an invalid number of neighbours.*End the name in _1 to _1000"
    ):
        metric_named(name)


@pytest.mark.parametrize("name", ["sc_7", "npa", "npa_", "npa_x", "npa_-1", "npa_1.5", "npa_²", "_7"])
def test_malformed_number_of_neighbours_is_refused(name):
    with pytest.raises(ScenarioError, match=re.escape(f"no metric {name!r}")):
        metric_named(name)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": np.zeros(3, int)}, "260 rows and the labels has 3"),
        ({"embedding": np.zeros((260, 5))}, r"shape \(260, 5\)"),
        ({"embedding": np.full((260, 2), np.nan)}, "embedding of row 0"),
        ({"recovered": Points(np.eye(4))}, "recovered geometry has 4"),
    ],
)
def test_unusable_evidence_is_refused(change, words):
    with pytest.raises(DataError, match=words):
        replace(made_evidence(), **change)


def test_progress_counts_metrics():
    calls = []
    evaluate(["npa_1", "npa_10"], made_evidence(), progress=lambda done, total: calls.append((done, total)))
    assert [call for call in calls if float(call[0]).is_integer()] == [(1, 2), (2, 2)]
    assert calls == sorted(calls)


def test_map_in_the_disk_is_scored_by_hyperbolic_distances() -> None:
    """All neighbours are kept by hyperbolic distances, but not by Euclidean ones."""
    from raydr.geometry.hyperbolic import Hyperboloid, from_ball

    rng = np.random.default_rng(0)
    angles, radii = rng.uniform(0, 2 * np.pi, 300), np.tanh(rng.uniform(0, 3, 300) / 2)
    disk = np.column_stack([radii * np.cos(angles), radii * np.sin(angles)])
    geometry = Hyperboloid(from_ball(disk))
    names = ["npa_10", "trustworthiness", "continuity"]
    by_geometry = evaluate(names, Evidence(rows=disk, embedding=disk, truth=geometry, mapped=geometry)).values
    assert by_geometry == {"npa_10": 1.0, "trustworthiness": 1.0, "continuity": 1.0}
    by_position = evaluate(names, Evidence(rows=disk, embedding=disk, truth=geometry)).values
    assert by_position["npa_10"] < 0.98
    assert all(by_position[name] < 1.0 for name in names)


def test_continuous_labels_make_no_classes() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 2))
    labels = np.arange(60)
    for alone, is_refused in ((60, True), (31, True), (30, False)):
        labels[alone:] = 99 + np.arange(60 - alone) // 2
        scores = evaluate(
            ["ca_10", "nmi", "sc", "npa_10"], Evidence(rows=rows, embedding=rows, labels=labels.copy())
        )
        refused = {name for name, why in scores.not_computed.items() if "and not a class" in why}
        assert refused == ({"ca_10", "nmi", "sc"} if is_refused else set())
        assert scores.values["npa_10"] == 1.0
        labels = np.arange(60)
