"""Landmarks by k-means: Lloyd's algorithm on the pooled rows, by sums, and no landmark is a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from inline_federations import cut, federate
from tiny import tiny_scenario

from raydr.arrays import Float64Array, FloatArray
from raydr.errors import ScenarioError
from raydr.methods.landmarks.kmeans import GroupRequest, Groups, k_means
from raydr.methods.landmarks.maps import FedTSNE, serve
from raydr.methods.landmarks.settings import LEAST_GROUP
from raydr.statistics.moments import spread


def rows_of(rows: int = 300, features: int = 6, seed: int = 0, groups: int = 5) -> Float64Array:
    """Return groups of different sizes, on a grid so fine that an offset of 1e8 is exact."""
    random = np.random.default_rng(seed)
    centres = 6.0 * random.normal(size=(groups, features))
    chosen = random.choice(groups, rows, p=random.dirichlet(np.full(groups, 3.0)))
    table = centres[chosen] + random.normal(size=(rows, features))
    return np.round(table * 2**12) / 2**12


def found(parts: list[FloatArray], seed: int = 0, **settings: Any) -> Groups:
    federation = federate(parts, seed=seed, evaluate_every=1)
    return k_means(federation, FedTSNE(landmarks_from="k-means", **settings), spread(federation))


def moved(rows: FloatArray, landmarks: FloatArray) -> Float64Array:
    """Return the landmarks after one Lloyd step, by all distances."""
    nearest = ((rows[:, None] - landmarks) ** 2).sum(axis=2).argmin(axis=1)
    return np.stack([rows[nearest == index].mean(axis=0) for index in range(len(landmarks))])


@pytest.mark.parametrize(("parts", "offset"), [(1, 0.0), (7, 0.0), (7, 1e8), (100, 1e8)])
def test_final_landmarks_are_a_fixed_point_of_pooled_k_means(parts: int, offset: float) -> None:
    """After this many rounds nothing moves: the result is a fixed point of Lloyd's step on all rows."""
    rows = rows_of(100) + offset
    own = cut(rows, parts, 0) if parts < 100 else list(rows[:, None])
    landmarks = found(own, landmarks=5, rounds=40).points
    assert landmarks.shape == (5, 6)
    np.testing.assert_allclose(
        landmarks - offset, moved(rows, landmarks) - offset, atol=1e-9 + 1e-16 * offset
    )


def test_round_equals_a_pooled_lloyd_step() -> None:
    rows, random = rows_of(), np.random.default_rng(1)
    centre, landmarks = rows.mean(axis=0), random.normal(size=(4, 6))
    reach = np.abs(rows - centre).max(axis=0)
    for parts in ([rows], cut(rows, 9, 3)):
        federation = federate(parts)
        sums = federation.sum(GroupRequest(landmarks, centre, reach, max(federation.sizes)))
        expected = moved(rows, centre + landmarks) - centre
        np.testing.assert_allclose(sums.sums / sums.counts[:, None], expected, atol=1e-12)
        apart = ((rows[:, None] - centre - landmarks) ** 2).sum(axis=2).min(axis=1)
        assert sums.squared_distances == pytest.approx(apart.sum(), rel=1e-12)


def test_packing_changes_no_bit_and_partition_only_rounding() -> None:
    rows = rows_of()
    settings = FedTSNE(landmarks_from="k-means", landmarks=12)
    parts = cut(rows, 6, 3)
    one, other = (
        k_means(federation, settings, spread(federation)).points
        for federation in (federate(parts, packing=packing) for packing in ([6], [1, 2, 3]))
    )
    np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(found([rows], landmarks=12).points, one, atol=1e-9)


def test_landmarks_start_at_the_mean_and_double() -> None:
    rows = rows_of()
    along = found([rows], landmarks=20, rounds=10).snapshots
    np.testing.assert_allclose(along[0], rows.mean(axis=0)[None], atol=1e-12)
    assert [len(points) for points in along.values()] == [1, 2, 3, 5, 10, 20, 20, 20, 20, 20, 20]


@pytest.mark.parametrize("landmarks", [10, 60])
def test_kept_landmarks_have_enough_rows(landmarks: int) -> None:
    """One row far from all others gets its own landmark, which the run does not keep."""
    rows = rows_of(groups=1)
    rows[17] += 1e3
    kept = found(cut(rows, 4, 0), landmarks=landmarks).points
    assert np.linalg.norm(kept - rows[17], axis=1).min() > 100.0
    nearest = ((rows[np.arange(300) != 17][:, None] - kept) ** 2).sum(axis=2).argmin(axis=1)
    assert np.bincount(nearest, minlength=len(kept)).min() >= LEAST_GROUP
    assert len(kept) < landmarks


def test_quantisation_error_is_near_scikit_learn() -> None:
    """The quantisation error is near that of scikit-learn's k-means on all rows."""
    from sklearn.cluster import KMeans

    rows = rows_of(1000, 8, groups=20)
    points = found(np.array_split(rows, 10), landmarks=30).points
    left = ((rows[:, None] - points) ** 2).sum(axis=2).min(axis=1).sum()
    assert left < 1.1 * KMeans(30, n_init=3, random_state=0).fit(rows).inertia_


def test_map_reports_its_messages_and_kept_landmarks() -> None:
    federation = federate(cut(rows_of(), 5, 0))
    outcome = serve(federation, FedTSNE(landmarks_from="k-means", early_iterations=2, iterations=2))
    assert outcome.model["landmarks"].shape[1] == 6
    (entry,) = [entry for entry in federation.ledger.entries.values() if entry.kind == "GroupSums"]
    assert "which for one record is the record itself" in entry.what
    assert "(k-means)" in outcome.notes[-1].text


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ({"landmarks": 31}, "at least 5 rows per landmark, so 150 rows allow 30"),
        ({"rounds": 0}, "k-means needs rounds to move the landmarks"),
        ({"gamma": 1.0}, "gamma is for learnt landmarks, but landmarks by k-means are not learnt"),
    ],
)
def test_settings_impossible_for_k_means_are_refused(method: dict[str, Any], words: str) -> None:
    scenario: dict[str, Any] = {"kind": "fed-tsne", "landmarks_from": "k-means"} | method
    with pytest.raises(ScenarioError, match=words):
        tiny_scenario(method=scenario).method.check(150, 4)


def test_nystrom_accepts_k_means_landmarks() -> None:
    settings = tiny_scenario(
        method={"kind": "fed-spectral", "clusters": 2, "estimator": "nystrom", "landmarks_from": "k-means"}
    ).method
    assert settings.origin == "k-means"
