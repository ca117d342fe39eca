"""Metrics of a sample of rows: close to the exact values, with correct standard errors."""

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
    "f_score", "f_score_published", "pearson", "site_silhouette", "site_mixing", "reliable",
}  # fmt: skip
NEVER = 0
"""Largest table of which all rows are used: none, so that a sample is drawn."""


def evidence_of(kind: str, seed: int = 0) -> Evidence:
    """Return data and a map that keeps some of their structure: digits, clusters, or integers in low dimension."""
    random = np.random.default_rng(0)
    if kind == "digits":
        rows, labels = load_digits(return_X_y=True)
        rows, labels = rows[:900], labels[:900]
    elif kind == "clouds":
        labels = random.integers(0, 6, 600)
        rows = (3.0 * random.normal(size=(6, 12))[labels] + random.normal(size=(600, 12))).astype(np.float32)
    else:
        labels = random.integers(0, 4, 500)
        rows = random.integers(0, 3, size=(500, 5)).astype(np.float64)
    embedding = rows @ random.normal(size=(rows.shape[1], 2)) / 3.0
    if kind == "integers":
        embedding = np.round(embedding)
    recovered = Points(rows + 0.3 * random.normal(size=rows.shape))
    sites = np.argsort(np.argsort(rows[:, 1], kind="stable")) * 15 // len(rows)  # rows of a site are similar
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


@pytest.mark.parametrize("kind", [pytest.param("digits", marks=pytest.mark.slow), "clouds", "integers"])
def test_full_sample_gives_the_exact_values(kind: str) -> None:
    evidence = evidence_of(kind)
    # Metrics without sampling are computed for one kind only: they are the same for every kind.
    # Metrics of groups take a sample of their own, and fractures need a map of a known embedder.
    names = sorted(ESTIMATED)
    if kind == "clouds":
        names = [
            name
            for name in DEFAULT_METRICS
            if name not in ("steadiness", "cohesiveness", "fracture", "perturbation")
        ]
    exact = evaluate(names, evidence, threads=1)
    sampled = of_sample(evidence, 10**6, names)
    assert exact.sampled_rows is None
    assert exact.standard_errors == {}
    assert sampled.values.keys() == exact.values.keys()
    assert sampled.sampled_rows == len(evidence.rows)
    assert set(sampled.standard_errors) == ESTIMATED
    assert set(sampled.standard_errors.values()) == {0.0}
    # Without other metrics, ties on the map are broken at random.
    loose = {"site_mixing"} if kind == "integers" else set()
    for name in exact.values.keys() - loose:
        assert sampled.values[name] == pytest.approx(exact.values[name], abs=1e-6), name


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("digits", marks=pytest.mark.slow),
        "clouds",
        pytest.param("integers", marks=pytest.mark.slow),
    ],
)
def test_standard_errors_match_the_spread_of_estimates(kind: str) -> None:
    """Estimates over many seeds spread as their standard errors state, though rows of a site are similar."""
    evidence = evidence_of(kind)
    names = sorted(
        ESTIMATED - {"ca_1", "ca_10", "ca_50", "sc"}
    )  # their splits and starts depend on the seed too
    exact = evaluate(names, evidence, threads=1)
    graph = SharedGraph(evidence.rows, threads=1)
    scores = [of_sample(replace(evidence, seed=seed, row_neighbors=graph), 200, names) for seed in range(40)]
    spreads = []
    for name in names:
        values = np.array([score.values[name] for score in scores])
        errors = np.array([score.standard_errors[name] for score in scores])
        assert (np.abs(values - exact.values[name]) <= 4.0 * errors.mean() + 1e-12).all(), name
        # The mean of 40 estimates has no bias.
        assert abs(values.mean() - exact.values[name]) <= 4.0 * errors.mean() / np.sqrt(40) + 1e-12, name
        if name != "npa_1":  # it counts only a few neighbours
            spreads.append(values.std(ddof=1) / errors.mean())
    assert min(spreads) > 1 / 1.5
    assert max(spreads) < 1.5


def test_sampled_accuracy_is_near_the_exact_one() -> None:
    evidence = evidence_of("clouds")
    exact = evaluate(["ca_10", "sc"], evidence, threads=1)
    sampled = of_sample(evidence, 150, ["ca_10", "sc"])
    for name, value in exact.values.items():
        assert 0.0 < abs(sampled.values[name] - value) < 4.0 * sampled.standard_errors[name], name


def test_small_tables_are_not_sampled() -> None:
    assert SAMPLED_ROWS < EXACT_ROWS
    evidence = evidence_of("clouds")
    names = ["npa_10", "trustworthiness"]
    assert evaluate(names, evidence, threads=1, exact_rows=600).sampled_rows is None
    assert evaluate(names, evidence, threads=1, exact_rows=599, sampled_rows=100).sampled_rows == 100


def test_sampling_leaves_out_the_faithfulness_of_each_row() -> None:
    assert of_sample(evidence_of("clouds"), 100, ["npa_10"]).faithfulness == {}


def test_two_maps_share_the_sample_and_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_threads_change_no_bit_of_an_estimate() -> None:
    evidence = evidence_of("clouds")
    names = sorted(ESTIMATED)
    assert of_sample(evidence, 400, names, threads=1) == of_sample(evidence, 400, names, threads=3)


def test_new_rows_are_sampled_too() -> None:
    evidence = evidence_of("clouds")
    new = Evidence(rows=evidence.rows, embedding=evidence.embedding, labels=evidence.labels, seed=0)
    names = ["new_npa_10", "new_trustworthiness", "new_continuity", "knn_accuracy"]
    exact = evaluate(names, replace(evidence, new=new), threads=1)
    sampled = of_sample(replace(evidence, new=new), 300, names)
    for name in names:
        assert abs(sampled.values[name] - exact.values[name]) < 4.0 * sampled.standard_errors[name], name


@pytest.mark.parametrize("strata", [1, 7, 400])
def test_sample_is_uniform_and_stratified(strata: int) -> None:
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


def test_two_stage_group_mean_is_unbiased_with_its_error() -> None:
    """With more groups than sampled rows, draw some groups and some rows of each."""
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
def test_neighbours_of_sampled_rows_equal_the_full_search(name: str) -> None:
    geometry = geometries()[name]
    own = np.sort(np.random.default_rng(4).choice(600, 300, replace=False))
    whole = squared_distances_of(geometry, own)
    blocks = np.maximum([geometry.squared_distance_block(row, row + 1)[0] for row in own.tolist()], 0.0)
    blocks[np.arange(300), own] = np.inf
    assert np.isinf(whole[np.arange(300), own]).all()
    if name != "outlier":  # its inner products lose all digits
        np.testing.assert_allclose(
            whole, blocks, rtol=1e-3 if name == "single" else 1e-8, atol=1e-3 if name == "single" else 1e-8
        )
    for k in (1, 20):
        found = nearest_to(geometry, own, k, threads=2)
        assert np.array_equal(found.squared, np.sort(whole, axis=1)[:, :k])
        assert np.array_equal(found.squared, np.take_along_axis(whole, found.indices, axis=1))
        assert all(len(set(row)) == k for row in found.indices.tolist())


@pytest.mark.parametrize("name", [name for name, each in geometries().items() if isinstance(each, Points)])
def test_count_nearer_is_exact_at_the_threshold(name: str) -> None:
    """Use thresholds at, just below and just above the distances, where float32 is not exact."""
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
    groups = np.random.default_rng(6).integers(0, 5, len(evidence.rows)) * 2  # not consecutive
    groups[0] = 12  # alone
    own = np.array([5, 0, 7, 300])
    found = silhouettes_among_all(Examination(evidence=evidence, threads=1), groups, own)
    np.testing.assert_allclose(found, silhouette_samples(evidence.embedding, groups)[own], atol=1e-5)


def test_large_run_reports_sampled_values_and_errors(
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
    # The same map, scored at the same rows.
    assert result.metrics["federated"]["npa_10"] == pytest.approx(
        result.metrics["central"]["npa_10"], abs=1e-3
    )
    assert "npa_10" not in result.to_frame().columns
    assert "Values are estimates from a sample of 5,000 rows" in (result.folder / "report.html").read_text()
    assert raydr.load(result.folder).standard_errors == result.standard_errors
    print_result(result.folder)
    assert "±" in capsys.readouterr().err
