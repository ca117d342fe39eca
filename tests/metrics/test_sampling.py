"""Metrics of a sample of rows: the values of all rows, and by how much the sample may be off."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import silhouette_samples

import raydr
from raydr.front.terminal import print_result
from raydr.geometry.hyperbolic import Hyperboloid, exponential_map
from raydr.geometry.points import Points
from raydr.geometry.sample_neighbors import count_nearer, nearest_to, squared_distances_of
from raydr.methods.landmarks.nystrom import NystromGeometry
from raydr.metrics import DEFAULT_METRICS, Evidence, SharedGraph, evaluate
from raydr.metrics.clusters import silhouettes_among_all
from raydr.metrics.evidence import Examination
from raydr.metrics.sampling import EXACT_ROWS, SAMPLED_ROWS, drawn, drawn_by_group

ESTIMATED = {
    "ca_1", "ca_10", "ca_50", "npa_1", "npa_10", "npa_50", "sc", "trustworthiness", "continuity", "distance_error",
    "f_score", "pearson", "site_silhouette", "site_mixing",
}  # fmt: skip
NEVER = 0
"""Up to so many rows all are looked at: a sample is asked for."""


def evidence_of(kind: str, seed: int = 0) -> Evidence:
    """Data, and a map that keeps something of them: pictures, clouds of points, or integers in low dimension."""
    random = np.random.default_rng(0)
    if kind == "digits":
        rows, labels = load_digits(return_X_y=True)
        rows, labels = rows[:900], labels[:900]
    elif kind == "clouds":
        labels = random.integers(0, 6, 1000)
        rows = (3.0 * random.normal(size=(6, 12))[labels] + random.normal(size=(1000, 12))).astype(np.float32)
    else:
        labels = random.integers(0, 4, 700)
        rows = random.integers(0, 3, size=(700, 5)).astype(np.float64)
    embedding = rows @ random.normal(size=(rows.shape[1], 2)) / 3.0
    if kind == "integers":
        embedding = np.round(embedding)
    recovered = Points(rows + 0.3 * random.normal(size=rows.shape))
    sites = np.argsort(np.argsort(rows[:, 1], kind="stable")) * 15 // len(rows)  # each holds what is alike
    return Evidence(
        rows=rows,
        embedding=embedding,
        labels=labels,
        recovered=recovered,
        seed=seed,
        sites=sites,
        clusters=labels,
    )


def of_sample(evidence: Evidence, rows: int, names: Any = DEFAULT_METRICS, threads: int = 1) -> Any:
    return evaluate(names, evidence, threads=threads, exact_rows=NEVER, sampled_rows=rows)


@pytest.mark.parametrize("kind", ["digits", "clouds", "integers"])
def test_a_sample_of_all_rows_says_what_all_rows_do(kind: str) -> None:
    evidence = evidence_of(kind)
    # Metrics that no sample estimates are computed once: they are the same for every kind.
    names = DEFAULT_METRICS if kind == "clouds" else sorted(ESTIMATED)
    exact = evaluate(names, evidence, threads=1)
    sampled = of_sample(evidence, 10**6, names)
    assert exact.sampled_rows is None
    assert exact.standard_errors == {}
    assert sampled.values.keys() == exact.values.keys()
    assert sampled.sampled_rows == len(evidence.rows)
    assert set(sampled.standard_errors) == ESTIMATED
    assert set(sampled.standard_errors.values()) == {0.0}
    # Which of several equally near rows of the map are counted is chance where only sites are asked for.
    loose = {"site_mixing"} if kind == "integers" else set()
    for name in exact.values.keys() - loose:
        assert sampled.values[name] == pytest.approx(exact.values[name], abs=1e-6), name


@pytest.mark.parametrize("kind", ["digits", "clouds", "integers"])
def test_an_estimate_is_within_its_error_and_the_error_of_the_right_size(kind: str) -> None:
    """Over seeds estimates are spread as much as is stated, though sites hold rows that are alike."""
    evidence = evidence_of(kind)
    names = sorted(
        ESTIMATED - {"ca_1", "ca_10", "ca_50", "sc"}
    )  # whose splits and starts depend on the seed, too
    exact = evaluate(names, evidence, threads=1)
    graph = SharedGraph(evidence.rows, threads=1)
    scores = [of_sample(replace(evidence, seed=seed, row_neighbors=graph), 200, names) for seed in range(40)]
    spreads = []
    for name in names:
        values = np.array([score.values[name] for score in scores])
        errors = np.array([score.standard_errors[name] for score in scores])
        assert (np.abs(values - exact.values[name]) <= 4.0 * errors.mean() + 1e-12).all(), name
        # The mean of 40 is as near as 40 allow: there is no bias.
        assert abs(values.mean() - exact.values[name]) <= 4.0 * errors.mean() / np.sqrt(40) + 1e-12, name
        if name != "npa_1":  # a few neighbours in all
            spreads.append(values.std(ddof=1) / errors.mean())
    assert min(spreads) > 1 / 1.5
    assert max(spreads) < 1.5


def test_accuracy_by_a_sample_is_near_that_of_all_test_rows() -> None:
    evidence = evidence_of("clouds")
    exact = evaluate(["ca_10", "sc"], evidence, threads=1)
    sampled = of_sample(evidence, 150, ["ca_10", "sc"])
    for name, value in exact.values.items():
        assert 0.0 < abs(sampled.values[name] - value) < 4.0 * sampled.standard_errors[name], name


def test_small_data_are_looked_at_as_a_whole() -> None:
    assert SAMPLED_ROWS < EXACT_ROWS
    evidence = evidence_of("clouds")
    names = ["npa_10", "trustworthiness"]
    assert evaluate(names, evidence, threads=1, exact_rows=1000).sampled_rows is None
    assert evaluate(names, evidence, threads=1, exact_rows=999, sampled_rows=100).sampled_rows == 100


def test_faithfulness_row_by_row_is_left_out_where_not_all_rows_are_looked_at() -> None:
    assert of_sample(evidence_of("clouds"), 100, ["npa_10"]).faithfulness == {}


def test_two_maps_are_judged_at_the_same_rows_by_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = evidence_of("clouds")
    graph = SharedGraph(evidence.rows, threads=1)
    one, other = (
        Examination(
            evidence=replace(evidence, row_neighbors=graph, embedding=places),
            threads=1,
            exact_rows=0,
            sampled_rows=99,
        )
        for places in (evidence.embedding, evidence.embedding[:, ::-1] ** 2)
    )
    assert np.array_equal(one.sampled, other.sampled)
    assert one.sample_row_neighbors is other.sample_row_neighbors


def test_bits_of_a_sample_do_not_depend_on_threads() -> None:
    evidence = evidence_of("clouds")
    assert of_sample(evidence, 600, threads=1) == of_sample(evidence, 600, threads=3)


def test_new_rows_are_sampled_too() -> None:
    evidence = evidence_of("clouds")
    new = Evidence(rows=evidence.rows, embedding=evidence.embedding, labels=evidence.labels, seed=0)
    names = ["new_npa_10", "new_trustworthiness", "new_continuity", "knn_accuracy"]
    exact = evaluate(names, replace(evidence, new=new), threads=1)
    sampled = of_sample(replace(evidence, new=new), 300, names)
    for name in names:
        assert abs(sampled.values[name] - exact.values[name]) < 4.0 * sampled.standard_errors[name], name


@pytest.mark.parametrize("strata", [1, 7, 400])
def test_every_row_has_the_same_chance_and_every_stratum_its_share(strata: int) -> None:
    owners = np.sort(np.random.default_rng(1).integers(0, strata, 900))
    often = np.zeros(900)
    for seed in range(300):
        sample = drawn(900, 90, seed, owners)
        assert len(np.unique(sample.rows)) == 90
        shares = (
            np.bincount(owners[sample.rows], minlength=strata) - np.bincount(owners, minlength=strata) / 10
        )
        assert np.abs(shares).max() < 1.0 + 1e-9
        often[sample.rows] += 1
    assert abs(often[:450].mean() - 30.0) < 1.0
    assert often.std() < 7.0  # 5.2 by chance


def test_the_mean_over_groups_of_two_stages_is_unbiased_with_its_error() -> None:
    """More groups than rows of the sample: some groups are drawn, and some rows of each."""
    random = np.random.default_rng(2)
    groups = np.sort(np.concatenate([np.arange(300), random.integers(0, 300, 4000) ** 2 // 300]))
    values = random.normal(size=300)[groups] + random.normal(size=groups.size)
    exact = np.mean(np.bincount(groups, values) / np.bincount(groups))
    for rows in (200, 1500):
        samples = [drawn_by_group(groups, rows, seed) for seed in range(200)]
        found = [sample.mean(values[sample.rows]) for sample in samples]
        spread = np.std([one.value for one in found], ddof=1)
        stated = np.sqrt(np.mean([one.standard_error**2 for one in found]))
        assert abs(np.mean([one.value for one in found]) - exact) < 4.0 * spread / np.sqrt(200)
        assert 1 / 1.2 < spread / stated < 1.2


def geometries() -> dict[str, Any]:
    random = np.random.default_rng(3)
    wide = random.normal(size=(600, 30)) * np.linspace(1.0, 20.0, 30) + 1e4
    return {
        "wide": Points(wide),
        "single": Points(wide.astype(np.float32)),
        "outlier": Points(np.vstack([wide, np.full((1, 30), 1e9)])),
        "integers": Points(random.integers(0, 3, size=(600, 5)).astype(np.float64)),
        "plane": Points(random.normal(size=(600, 2))),
        "copies": Points(np.zeros((600, 2))),
        "copies of rows": Points(np.repeat(random.normal(size=(6, 8)), 100, axis=0)),
        "hyperbolic": Hyperboloid(exponential_map(random.normal(size=(600, 3)))),
        "estimate": NystromGeometry(
            random.normal(size=(600, 4)), random.normal(size=(600, 4)), squared=False
        ),
    }


@pytest.mark.parametrize("name", geometries())
def test_neighbours_of_some_rows_are_those_among_all(name: str) -> None:
    geometry = geometries()[name]
    own = np.sort(np.random.default_rng(4).choice(600, 300, replace=False))
    whole = squared_distances_of(geometry, own)
    blocks = np.maximum([geometry.squared_distance_block(row, row + 1)[0] for row in own.tolist()], 0.0)
    blocks[np.arange(300), own] = np.inf
    assert np.isinf(whole[np.arange(300), own]).all()
    if name != "outlier":  # of which products keep no digit
        np.testing.assert_allclose(
            whole, blocks, rtol=1e-3 if name == "single" else 1e-8, atol=1e-3 if name == "single" else 1e-8
        )
    for k in (1, 20):
        found = nearest_to(geometry, own, k, threads=2)
        assert np.array_equal(found.squared, np.sort(whole, axis=1)[:, :k])
        assert np.array_equal(found.squared, np.take_along_axis(whole, found.indices, axis=1))
        assert all(len(set(row)) == k for row in found.indices.tolist())


@pytest.mark.parametrize("name", [name for name, each in geometries().items() if isinstance(each, Points)])
def test_rows_that_are_nearer_are_counted(name: str) -> None:
    """Thresholds on the distances themselves, a hair below and a hair above: single precision cannot tell."""
    points = geometries()[name]
    random = np.random.default_rng(5)
    own = np.sort(random.choice(600, 300, replace=False))
    whole = squared_distances_of(points, own)
    sizes = random.integers(0, 6, 300)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    mine = np.repeat(np.arange(300), sizes)
    distances = whole[mine, (own[mine] + 1 + random.integers(0, 598, mine.size)) % 600]
    for hair in (-1e-12, 0.0, 1e-12):
        thresholds = distances * (1.0 + hair)
        counts = count_nearer(points, own, starts, thresholds, threads=2)
        assert np.array_equal(counts, (whole[mine] < thresholds[:, None]).sum(axis=1))


def test_silhouettes_among_all_equal_scikit_learn() -> None:
    evidence = evidence_of("digits")
    groups = np.random.default_rng(6).integers(0, 5, len(evidence.rows)) * 2  # numbers that are nobody's
    groups[0] = 12  # alone
    own = np.array([5, 0, 7, 300])
    found = silhouettes_among_all(Examination(evidence=evidence, threads=1), groups, own)
    np.testing.assert_allclose(found, silhouette_samples(evidence.embedding, groups)[own], atol=1e-5)


def test_a_run_of_many_rows_says_what_its_sample_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = np.random.default_rng(7).normal(size=(EXACT_ROWS + 1, 3)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    result = raydr.run(
        {
            "name": "many",
            "data": {"path": str(tmp_path / "rows.npy")},
            "clients": {"count": 4},
            "method": {"kind": "fed-pca"},
            "runtime": {"federation": "inline", "checkpoint_every": 0},
            "compare": ["central"],
            "metrics": ["npa_10", "trustworthiness", "cosine"],
        },
        out=tmp_path / "run",
    )
    content = json.loads((result.folder / "metrics.json").read_text())
    assert content["sampled_rows"] == result.sampled_rows == SAMPLED_ROWS
    assert content["standard_errors"] == result.standard_errors
    of_maps = {which: set(errors) for which, errors in result.standard_errors.items()}
    assert of_maps == {which: {"npa_10", "trustworthiness"} for which in ("federated", "central")}
    # The same map, judged at the same rows.
    assert result.metrics["federated"]["npa_10"] == pytest.approx(
        result.metrics["central"]["npa_10"], abs=1e-3
    )
    assert "npa_10" not in result.to_frame().columns
    assert "Values are estimates from a sample of 5,000 rows" in (result.folder / "report.html").read_text()
    assert raydr.load(result.folder).standard_errors == result.standard_errors
    print_result(result.folder)
    assert "±" in capsys.readouterr().err
