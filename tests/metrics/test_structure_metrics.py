"""Steadiness and cohesiveness, coordinates up to an isometry, and a truth that is not Euclidean."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hdbscan import HDBSCAN
from scipy.linalg import orthogonal_procrustes
from scipy.sparse import csr_matrix
from scipy.spatial import procrustes
from sklearn.manifold import trustworthiness
from zadu.measures import steadiness_cohesiveness

from raydr.errors import DataError
from raydr.geometry.points import Points
from raydr.metrics import METRICS, Evidence, evaluate, recovery, row_graph, structure
from raydr.metrics.kernels.groups import cluster_group, spanning_tree
from raydr.metrics.structure import stratified_sample

GROUPS = ["steadiness", "cohesiveness"]
OF_ROWS = ["npa_10", "trustworthiness", "continuity", *GROUPS]
OF_DISTANCES = ["distance_error", "f_score", "pearson"]
OF_COORDINATES = ["cosine", "frobenius"]
ANCHORED = ["anchored_cosine", "anchored_frobenius"]


def noisy(rows=300, features=6, rank=6, seed=0):
    """Return four clusters, their first two features as the map, and a noisy recovery in ``rank`` coordinates."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 4, size=rows)
    data = random.normal(size=(4, features))[labels] * 3 + random.normal(size=(rows, features)) + 5
    recovered = data @ np.linalg.qr(random.normal(size=(features, features)))[0]
    recovered = np.pad(recovered, ((0, 0), (0, max(0, rank - features))))[:, :rank] - 40
    recovered += 0.3 * random.normal(size=recovered.shape)
    return Evidence(rows=data, embedding=data[:, :2], labels=labels, recovered=Points(recovered), seed=3)


@dataclass(frozen=True, eq=False)
class Stored:
    """A geometry that has only distances."""

    squared: np.ndarray

    @property
    def rows(self):
        return len(self.squared)

    def squared_distance_block(self, start, stop):
        return self.squared[start:stop]

    def take(self, rows):
        return Stored(self.squared[np.ix_(rows, rows)])


def squared(points):
    return ((points[:, None] - points[None]) ** 2).sum(axis=2)


def bent(rows=200, seed=5):
    """Return positions on an open circle and their true squared distances along it."""
    angles = np.sort(np.random.default_rng(seed).uniform(0, 1.97 * np.pi, size=rows))
    return np.stack([np.cos(angles), np.sin(angles)], axis=1), (angles[:, None] - angles) ** 2


class TestGroups:
    @pytest.mark.parametrize("rows", [34, 300])
    def test_equal_zadu_on_all_rows(self, rows):
        evidence = noisy(rows=rows)
        found = steadiness_cohesiveness.measure(evidence.rows, evidence.embedding, random_state=3)
        assert evaluate(GROUPS, evidence).values == found
        assert 0 < found["steadiness"] < found["cohesiveness"] < 1

    @pytest.mark.parametrize("rows", [2, 5, 9, 10, 11, 30, 80])
    def test_group_has_the_clusters_of_hdbscan(self, rows):
        random = np.random.default_rng(rows)
        for _ in range(8):
            wanted = random.permutation(100)[:rows]
            centres = random.normal(size=(4, 2))[random.integers(0, 4, size=100)] * random.choice([0.5, 3])
            places = centres + random.normal(size=(100, 2))
            similar = np.round(4 * np.exp(-squared(places))) / 4 * ~np.eye(100, dtype=bool)  # with ties
            entries = csr_matrix(similar)
            within = 1 / (similar[np.ix_(wanted, wanted)] + 0.1)
            np.fill_diagonal(within, 0)
            theirs = HDBSCAN(metric="precomputed", allow_single_cluster=True).fit(within).labels_
            ends, lengths = np.empty((rows - 1, 2), np.int64), np.empty(rows - 1)
            spanning_tree(wanted, entries.indptr, entries.indices, entries.data, ends, lengths)
            order, ours = np.argsort(lengths), np.empty(rows, np.int64)
            count = cluster_group(ends[order], lengths[order], ours)
            alone = np.flatnonzero(theirs < 0)
            theirs[alone] = theirs.max() + 1 + np.arange(alone.size)
            assert ours.tolist() == theirs.tolist()
            assert count == theirs.max() + 1

    @pytest.mark.parametrize(("more", "clusters"), [(1e-9, 1), (1e-6, 2), (-1e-6, 1)])
    def test_two_clusters_must_be_more_stable_in_single_precision_as_in_hdbscan(self, more, clusters):
        halves = [(at, at + 1) for at in range(9) if at != 4]
        lengths, labels = np.array([0.5 / (1 + more)] * 8 + [1.0]), np.empty(10, np.int64)
        assert cluster_group(np.array([*halves, (4, 5)]), lengths, labels) == clusters
        assert labels.tolist() == [0] * 5 + [clusters - 1] * 5

    def test_map_equal_to_the_data_is_perfect(self):
        rows = np.random.default_rng(2).normal(size=(40, 2))
        assert evaluate(GROUPS, Evidence(rows=rows, embedding=rows)).values == dict.fromkeys(GROUPS, 1.0)

    def test_sampled_rows_are_scored_as_a_table_of_their_own(self, monkeypatch):
        evidence = noisy(rows=120)
        monkeypatch.setattr(structure, "SAMPLED_ROWS", 80)
        chosen = stratified_sample(120, 80, np.asarray(evidence.labels), 3)
        part = Evidence(
            rows=evidence.rows[chosen],
            embedding=evidence.embedding[chosen],
            labels=evidence.labels[chosen],
            seed=3,
        )
        expected = evaluate(GROUPS, part)
        assert evaluate(GROUPS, evidence) == expected
        monkeypatch.undo()
        assert evaluate(GROUPS, replace(evidence, grouped=80)) == expected

    def test_metrics_of_all_rows_take_no_sample(self, monkeypatch):
        evidence = noisy(rows=120)
        whole = evaluate(GROUPS, evidence).values
        monkeypatch.setattr(structure, "SAMPLED_ROWS", 80)
        assert evaluate(GROUPS, evidence).values != whole
        assert list(evaluate([f"{name}_all" for name in GROUPS], evidence).values.values()) == [
            *whole.values()
        ]
        of_new = evaluate(
            [f"new_{name}_all" for name in GROUPS], replace(evidence, new=replace(evidence, grouped=80))
        )
        assert list(of_new.values.values()) == [*whole.values()]

    def test_too_many_rows_are_reported_as_a_reason(self, monkeypatch):
        monkeypatch.setattr(structure, "MOST_ROWS", 200)
        reasons = evaluate([f"{name}_all" for name in GROUPS], noisy()).not_computed
        assert all("at most 200 rows, but there are 300" in reasons[f"{name}_all"] for name in GROUPS)

    def test_description_gives_the_number_of_rows(self):
        for name in GROUPS:
            assert f"{structure.SAMPLED_ROWS:,} rows" in METRICS[name].description
            assert "stratified by class" in METRICS[name].description

    def test_split_groups_lower_cohesiveness_and_false_groups_steadiness(self):
        random = np.random.default_rng(7)
        group = np.repeat(np.arange(6), 30)
        apart = random.normal(size=(6, 2))[group] * 50 + random.normal(size=(180, 2))
        merged = random.normal(size=(3, 2))[group // 2] * 50 + random.normal(size=(180, 2))
        torn = evaluate(GROUPS, Evidence(rows=merged, embedding=apart)).values
        false = evaluate(GROUPS, Evidence(rows=apart, embedding=merged)).values
        assert torn["steadiness"] > torn["cohesiveness"] + 0.1
        assert false["cohesiveness"] > false["steadiness"] + 0.1

    def test_print_nothing_and_keep_the_global_random_state(self, capfd):
        np.random.seed(11)  # noqa: NPY002
        expected = np.random.random(3)  # noqa: NPY002
        np.random.seed(11)  # noqa: NPY002
        evidence = noisy(rows=100)
        first = evaluate(GROUPS, evidence)
        assert np.random.random(3).tolist() == expected.tolist()  # noqa: NPY002
        assert evaluate(GROUPS, evidence) == first
        assert evaluate(GROUPS, replace(evidence, seed=4)) != first
        assert capfd.readouterr() == ("", "")

    def test_missing_groups_are_reported_as_a_reason(self, monkeypatch):
        shared = structure._Shared.among

        def strangers(neighbors):
            found = shared(neighbors)
            return replace(found, similarities=0 * found.similarities)

        monkeypatch.setattr(structure._Shared, "among", strangers)
        reasons = evaluate(GROUPS, noisy(rows=40)).not_computed
        assert all("found no group of rows" in reasons[name] for name in GROUPS)


class TestSample:
    @pytest.mark.parametrize("seed", range(4))
    def test_class_shares_are_exact_to_within_a_row(self, seed):
        labels = np.random.default_rng(seed).choice(5, size=997, p=[0.6, 0.3, 0.07, 0.02, 0.01])
        sample = stratified_sample(997, 250, labels, seed)
        assert np.unique(sample).size == sample.size == 250
        assert np.all(np.diff(sample) > 0)
        share = np.bincount(labels, minlength=5) * 250 / 997
        assert np.abs(np.bincount(labels[sample], minlength=5) - share).max() < 1

    def test_sample_without_labels_is_uniform(self):
        counts = sum(np.bincount(stratified_sample(40, 10, None, seed), minlength=40) for seed in range(4000))
        assert counts.sum() == 40_000
        assert np.abs(counts / 4000 - 0.25).max() < 0.035  # five standard deviations

    def test_few_rows_are_all_taken(self):
        assert stratified_sample(7, 7, None, 0).tolist() == list(range(7))


class TestCoordinates:
    @pytest.mark.parametrize(("features", "rank"), [(6, 6), (6, 3), (6, 9), (5, 1)])
    def test_equal_procrustes_on_padded_tables(self, features, rank):
        evidence = noisy(features=features, rank=rank)
        true, found = (
            np.pad(table - table.mean(axis=0), ((0, 0), (0, 9 - table.shape[1])))
            for table in (evidence.rows, evidence.recovered.coordinates)
        )
        turned = found @ orthogonal_procrustes(found, true)[0]
        norms = np.linalg.norm(true, axis=1) * np.linalg.norm(turned, axis=1)
        values = evaluate(OF_COORDINATES, evidence).values
        assert values["cosine"] == pytest.approx(np.mean((true * turned).sum(axis=1) / norms), abs=1e-10)
        error = np.linalg.norm(turned - true) / np.linalg.norm(true)
        assert values["frobenius"] == pytest.approx(error, rel=1e-9)
        assert values["frobenius"] > 0.05

    def test_error_at_the_best_scale_is_scipys_disparity(self):
        evidence = noisy()
        found = evidence.recovered.coordinates
        true = evidence.rows - evidence.rows.mean(axis=0)
        _, _, disparity = procrustes(evidence.rows, found)
        centred = found - found.mean(axis=0)
        scale = np.linalg.svd(centred.T @ true, compute_uv=False).sum() / (centred**2).sum()
        scaled = replace(evidence, recovered=Points(scale * found))
        assert evaluate(["frobenius"], scaled).values["frobenius"] ** 2 == pytest.approx(disparity, rel=1e-9)

    @pytest.mark.parametrize("block_rows", [7, 4096])
    def test_isometry_has_no_error_for_any_block_size(self, monkeypatch, block_rows):
        monkeypatch.setattr("raydr.metrics.coordinates.BLOCK_ROWS", block_rows)
        random = np.random.default_rng(2)
        rows = random.normal(size=(120, 5)) * [100, 10, 1, 0.1, 0] + 1e4
        mirror = np.linalg.qr(random.normal(size=(7, 7)))[0]
        moved = np.pad(rows, ((0, 0), (0, 2))) @ mirror + 300
        values = evaluate(
            ["pearson", *OF_COORDINATES], Evidence(rows=rows, embedding=rows[:, :2], recovered=Points(moved))
        ).values
        assert values["frobenius"] < 1e-11
        assert values["cosine"] == pytest.approx(1, abs=1e-9)
        assert values["pearson"] == pytest.approx(1, abs=1e-12)

    def test_extra_dimensions_count_as_error(self):
        random = np.random.default_rng(3)
        columns = np.linalg.qr(np.hstack([np.ones((50, 1)), random.normal(size=(50, 3))]))[0]
        rows, outside = columns[:, 1:3], columns[:, 3:]  # of norm sqrt(2) and 1, centred, and orthogonal
        evidence = Evidence(rows=rows, embedding=rows, recovered=Points(np.hstack([rows, 1e-3 * outside])))
        values = evaluate(["frobenius"], evidence).values
        assert values["frobenius"] == pytest.approx(1e-3 / np.sqrt(2), rel=1e-9)

    def test_scaled_recovery_keeps_the_cosine(self):
        evidence = noisy()
        evidence = replace(evidence, recovered=Points(1.25 * evidence.rows))
        values = evaluate(["pearson", *OF_COORDINATES], evidence).values
        assert values == pytest.approx({"pearson": 1, "cosine": 1, "frobenius": 0.25}, abs=1e-12)

    def test_geometry_without_coordinates_is_reported_as_a_reason(self):
        evidence = replace(noisy(), recovered=Stored(squared(noisy().rows)))
        scores = evaluate([*OF_DISTANCES, *OF_COORDINATES], evidence)
        assert set(scores.values) == set(OF_DISTANCES)
        assert all("no Euclidean coordinates" in scores.not_computed[name] for name in OF_COORDINATES)


class TestAnchored:
    """P3, A.11, whose formulas compare tables without alignment."""

    @pytest.mark.parametrize("values", [1, 40, 1 << 22])
    def test_anchored_metrics_equal_their_formulas_for_any_block_size(self, monkeypatch, values):
        monkeypatch.setattr("raydr.metrics.coordinates.VALUES", values)
        evidence = noisy(rank=3)
        turn = np.random.default_rng(9).normal(size=(3, 6))
        evidence = replace(evidence, lift=lambda coordinates: coordinates @ turn + 1)
        true, found = evidence.rows, evidence.recovered.coordinates @ turn + 1
        cosines = [x @ y / np.linalg.norm(x) / np.linalg.norm(y) for x, y in zip(true, found, strict=True)]
        expected = np.mean(cosines), np.linalg.norm(found - true) / np.linalg.norm(true)
        assert tuple(evaluate(ANCHORED, evidence).values.values()) == pytest.approx(expected, rel=1e-12)

    def test_rotation_is_not_fitted(self):
        evidence = noisy()
        turned = replace(evidence, recovered=Points(-np.asarray(evidence.rows)), lift=lambda rows: rows)
        assert evaluate([*OF_COORDINATES, *ANCHORED], turned).values == pytest.approx(
            {"cosine": 1.0, "frobenius": 0.0, "anchored_cosine": -1.0, "anchored_frobenius": 2.0}, abs=1e-12
        )

    def test_row_at_the_origin_counts_as_0(self):
        rows = np.array([[0.0, 0.0], [3.0, 4.0]])
        evidence = Evidence(rows=rows, embedding=rows, recovered=Points(rows), lift=lambda rows: rows)
        values = {"anchored_cosine": 0.5, "anchored_frobenius": 0.0}
        assert evaluate(ANCHORED, evidence).values == values
        reasons = evaluate(ANCHORED, replace(evidence, rows=0.0 * rows)).not_computed
        assert all("all rows lie at the origin" in reasons[name] for name in ANCHORED)

    def test_recovery_without_feature_space_is_reported_as_a_reason(self):
        for evidence in (noisy(), replace(noisy(), recovered=Stored(squared(noisy().rows)), lift=np.asarray)):
            reasons = evaluate(ANCHORED, evidence).not_computed
            assert all("cannot convert the recovered positions" in reasons[name] for name in ANCHORED)
        reasons = evaluate(ANCHORED, replace(noisy(), recovered=None)).not_computed
        assert all("recovers no geometry" in reasons[name] for name in ANCHORED)


class TestCorrelation:
    def test_equals_numpy_over_all_pairs(self):
        evidence = noisy()
        pairs = np.triu_indices(300, 1)
        distances = (
            np.sqrt(squared(table)[pairs]) for table in (evidence.rows, evidence.recovered.coordinates)
        )
        expected = np.corrcoef(*distances)[0, 1]
        assert evaluate(["pearson"], evidence).values["pearson"] == pytest.approx(expected, abs=1e-12)

    def test_sampled_correlation_is_near_the_exact_one(self, monkeypatch):
        evidence = noisy(rows=1500)
        whole = evaluate(["pearson"], evidence).values["pearson"]
        monkeypatch.setattr(recovery, "COMPARED_ROWS", 500)
        monkeypatch.setattr(recovery, "SAMPLED_ROWS", 512)
        sampled = evaluate(["pearson"], evidence).values["pearson"]
        assert sampled != whole
        assert sampled == pytest.approx(whole, abs=0.002)

    def test_equal_distances_are_reported_as_a_reason(self):
        simplex = np.eye(40) * 0.1
        evidence = Evidence(rows=simplex, embedding=simplex[:, :2], recovered=Points(simplex))
        assert "all true distances are equal" in evaluate(["pearson"], evidence).not_computed["pearson"]
        line = np.arange(40.0)[:, None]
        evidence = Evidence(rows=line, embedding=simplex[:, :2], recovered=Points(simplex))
        assert "all recovered distances are equal" in evaluate(["pearson"], evidence).not_computed["pearson"]

    def test_metrics_share_one_comparison_of_distances(self, monkeypatch):
        asked = []
        compare = recovery.map_threaded
        monkeypatch.setattr(recovery, "map_threaded", lambda *given: asked.append(1) or compare(*given))
        evaluate(["distance_error", "pearson"], noisy())
        assert asked == [1]


class TestTruth:
    def test_truth_equal_to_the_rows_changes_nothing(self):
        evidence = noisy(rows=120)
        names = [*OF_ROWS, *OF_DISTANCES, *OF_COORDINATES]
        given = replace(evidence, truth=Points(evidence.rows))
        assert evaluate(names, given).values == pytest.approx(evaluate(names, evidence).values, abs=1e-12)

    def test_metrics_use_the_given_truth(self):
        positions, true = bent()
        unrolled = np.sqrt(true[0])[:, None]
        mapped = np.hstack([unrolled, 0 * unrolled])
        evidence = Evidence(rows=positions, embedding=mapped, recovered=Points(unrolled), truth=Stored(true))
        scores = evaluate([*OF_ROWS, *OF_DISTANCES, *OF_COORDINATES], evidence)
        assert scores.values["distance_error"] < 1e-12
        perfect = dict.fromkeys([*OF_ROWS, "f_score", "pearson"], 1.0)
        assert {name: scores.values[name] for name in perfect} == pytest.approx(perfect, abs=1e-12)
        assert all("not Euclidean" in scores.not_computed[name] for name in OF_COORDINATES)
        chords = evaluate([*perfect, "distance_error"], replace(evidence, truth=None)).values
        assert chords["distance_error"] > 0.1
        assert all(chords[name] < 1 - 1e-6 for name in perfect), chords

    def test_ranks_equal_scikit_learn_on_the_true_distances(self):
        positions, true = bent()
        mapped = positions + 0.1 * np.random.default_rng(6).normal(size=positions.shape)
        values = evaluate(
            ["trustworthiness", "continuity"], Evidence(rows=positions, embedding=mapped, truth=Stored(true))
        ).values
        expected = trustworthiness(np.sqrt(true), mapped, metric="precomputed")
        assert values["trustworthiness"] == pytest.approx(expected, abs=1e-12)
        unrolled = np.sqrt(true[0])[:, None]
        assert values["continuity"] == pytest.approx(trustworthiness(mapped, unrolled), abs=1e-12)

    def test_truth_is_not_modified(self):
        positions, true = bent()
        before = true.copy()
        evaluate([*OF_ROWS, *OF_DISTANCES], Evidence(rows=positions, embedding=positions, truth=Stored(true)))
        assert np.array_equal(true, before)

    def test_neighbours_of_the_truth_can_be_shared(self):
        positions, true = bent()
        evidence = Evidence(rows=positions, embedding=positions, truth=Stored(true))
        shared = replace(evidence, row_neighbors=row_graph(Stored(true)))
        assert evaluate(["npa_10", "continuity"], shared) == evaluate(["npa_10", "continuity"], evidence)

    def test_truth_of_another_size_is_refused(self):
        with pytest.raises(DataError, match="true geometry has 200"):
            replace(noisy(), truth=Stored(bent()[1]))

    @pytest.mark.parametrize("names", [OF_ROWS, OF_DISTANCES])
    def test_threads_change_no_bit(self, names):
        positions, true = bent(rows=300)
        evidence = Evidence(
            rows=positions, embedding=positions, recovered=Points(positions), truth=Stored(true)
        )
        assert evaluate(names, evidence, threads=1) == evaluate(names, evidence, threads=3)
