"""Curvature of a row's loss: against central differences, and what it says about places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import raydr
from raydr.arrays import Float64Array
from raydr.embedding import CNE, TSNE, UMAP, principal_components
from raydr.front.terminal import print_result
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points
from raydr.metrics import Evidence, evaluate
from raydr.metrics.curvature import EPSILON, Pulls, Terms, least_curvatures, tsne_terms, umap_terms
from raydr.metrics.kernels import repulsion
from raydr.metrics.sampling import EXACT_ROWS, SAMPLED_ROWS
from raydr.metrics.singularity import NEAR, singularities
from raydr.report.colouring import fracture_colouring
from raydr.report.run import fracture_rows
from raydr.runfolder.reading import read_run

A, B, NEGATIVE = 1.58, 0.9, 5


def problem(rows: int, dimensions: int) -> tuple[Float64Array, csr_matrix]:
    """Return a map and a sparse symmetric matrix of weights."""
    random = np.random.default_rng(rows)
    weights = random.random((rows, rows)) * (random.random((rows, rows)) < 0.3)
    weights = np.triu(weights, 1)
    return 2.0 * random.normal(size=(rows, dimensions)), csr_matrix(weights + weights.T)


def tsne_loss(places: Float64Array, weights: Float64Array, row: int) -> float:
    """Return the divergence of t-SNE, without the terms that do not depend on the row."""
    w = 1.0 / (1.0 + ((places[:, None] - places) ** 2).sum(axis=2))
    np.fill_diagonal(w, 0.0)
    others = np.arange(len(places)) != row
    return float(-2.0 * (weights[row, others] * np.log(w[row, others])).sum() + np.log(w.sum()))


def umap_loss(places: Float64Array, weights: Float64Array, row: int) -> float:
    """Return the cross-entropy of one row, with repulsion as often as UMAP samples it."""
    others = np.arange(len(places)) != row
    u = ((places[row] - places[others]) ** 2).sum(axis=1)
    w = 1.0 / (1.0 + A * u**B)
    repelled = NEGATIVE * weights[row].sum() / (2.0 * len(places))
    return float(-(weights[row, others] * np.log(w)).sum() - repelled * np.log(1.0 - w + EPSILON).sum())


def terms_of(loss: Callable[..., float], places: Float64Array, weights: csr_matrix) -> Terms:
    rows = np.arange(len(places))
    pulls = Pulls.of(rows, weights.indptr, weights.indices, weights.data)
    if loss is tsne_loss:
        return tsne_terms(places, rows, pulls)
    return umap_terms(places, rows, pulls, a=A, b=B, negative_samples=NEGATIVE)


@pytest.mark.parametrize("loss", [tsne_loss, umap_loss])
@pytest.mark.parametrize("dimensions", [2, 3])
def test_gradient_and_hessian_equal_central_differences(loss: Callable[..., float], dimensions: int) -> None:
    places, weights = problem(30, dimensions)
    weights /= weights.sum()
    dense, found, step = weights.toarray(), terms_of(loss, places, weights), 1e-4

    def moved(row: int, by: Float64Array) -> float:
        other = places.copy()
        other[row] += by
        return loss(other, dense, row)

    axes = step * np.eye(dimensions)
    for row in (0, 7, 29):
        assert found.values[row] == pytest.approx(loss(places, dense, row), rel=1e-12)
        gradient = [(moved(row, axis) - moved(row, -axis)) / (2 * step) for axis in axes]
        np.testing.assert_allclose(found.gradients[row], gradient, rtol=1e-5, atol=1e-9)
        hessian = [
            [
                (
                    moved(row, one + other)
                    - moved(row, one - other)
                    - moved(row, other - one)
                    + moved(row, -one - other)
                )
                / (4 * step**2)
                for other in axes
            ]
            for one in axes
        ]
        np.testing.assert_allclose(found.hessians[row], hessian, rtol=1e-3, atol=1e-6)
        assert least_curvatures(found)[row] == pytest.approx(np.linalg.eigvalsh(hessian)[0], abs=1e-5)


def mixture(seed: int, rows: int = 500) -> Float64Array:
    """Return rows of five normal clusters in the plane, as in LOO-map's example."""
    random = np.random.default_rng(seed)
    centres = random.uniform(-6.0, 6.0, (5, 2))
    return centres[random.integers(5, size=rows)] + random.normal(size=(rows, 2))


def drawn(rows: Float64Array, embedder: TSNE | UMAP) -> Float64Array:
    graph = nearest_neighbors(Points(rows), embedder.neighbors_needed(len(rows)))
    return np.asarray(embedder.embed(graph, principal_components(rows), seed=0), np.float64)


def test_largest_singularities_fall_as_perplexity_grows() -> None:
    """As in LOO-map: fractures of a map of low perplexity."""
    largest = []
    for perplexity in (5.0, 50.0):
        embedder = TSNE(perplexity=perplexity)
        found = [
            singularities(Points(rows), drawn(rows, embedder), embedder) for rows in map(mixture, range(3))
        ]
        largest.append(np.mean([np.sort(each)[-25:].mean() for each in found]))
    assert largest[0] > 1.2 * largest[1]


@pytest.mark.parametrize("embedder", [TSNE(), UMAP()], ids=["tsne", "umap"])
def test_rows_near_a_fracture_lost_more_neighbours(embedder: TSNE | UMAP) -> None:
    """Neighbours in the data decide nothing about singularity, and nearly all places are minima."""
    rows = np.random.default_rng(0).normal(size=(400, 8))
    places = drawn(rows, embedder)
    scores = evaluate(["fracture", "npa_10"], Evidence(rows=rows, embedding=places, drawn_by=embedder))
    found, kept = scores.by_row["singularity"], scores.faithfulness["npa_10"]
    assert np.median(found) == pytest.approx(1.0, rel=0.05)
    assert np.isfinite(found).mean() > 0.98
    near = found >= NEAR
    assert scores.values["fracture"] == near.mean()
    assert 0.01 < near.mean() < 0.2
    assert kept[near].mean() < 0.75 * kept[~near].mean()


def test_singularities_do_not_depend_on_threads_blocks_or_the_place_of_the_map(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, embedder = mixture(0, 150), TSNE(iterations=100)
    places = drawn(rows, embedder)
    first = singularities(Points(rows), places, embedder, threads=1)
    np.testing.assert_array_equal(singularities(Points(rows), places, embedder, threads=3), first)
    np.testing.assert_allclose(singularities(Points(rows), 1000.0 - places, embedder), first, rtol=1e-8)
    monkeypatch.setattr(repulsion, "ROWS", 7)
    np.testing.assert_allclose(singularities(Points(rows), places, embedder), first, rtol=1e-9)


@pytest.mark.parametrize("embedder", [TSNE(), UMAP()], ids=["t-SNE", "UMAP"])
def test_scores_do_not_depend_on_the_unit_or_the_offset_of_rows(embedder: TSNE | UMAP) -> None:
    rows = mixture(0, rows=300)
    evidence = Evidence(rows=rows, embedding=drawn(rows, embedder), drawn_by=embedder)
    scores = evaluate(["fracture"], evidence).by_row["singularity"]
    for other in (rows * 2.0**-20, rows + 1024.0):
        found = evaluate(["fracture"], replace(evidence, rows=other)).by_row["singularity"]
        np.testing.assert_allclose(found, scores, rtol=1e-5)


def test_equal_rows_count_once() -> None:
    rows, embedder = mixture(0, 100), UMAP(epochs=100)
    places = drawn(rows, embedder)
    once = singularities(Points(rows), places, embedder)
    repeated = np.append(np.arange(100), [3, 3, 50])
    found = singularities(Points(rows[repeated]), places[repeated], embedder)
    np.testing.assert_array_equal(found, once[repeated])


@pytest.mark.parametrize("embedder", [TSNE(), UMAP(), TSNE(iterations=100)], ids=["tsne", "umap", "copies"])
def test_sampled_scores_are_near_those_of_all_rows(
    embedder: TSNE | UMAP, request: pytest.FixtureRequest
) -> None:
    """Only the median comes from the sample. Copies count once."""
    rows = np.random.default_rng(0).normal(size=(500, 6))
    if request.node.callspec.id == "copies":
        rows[400:] = rows[:10].repeat(10, axis=0)
    first, group = np.unique(rows, axis=0, return_inverse=True)
    places = drawn(first, embedder)[group]
    geometry, own = Points(rows), np.arange(1, 500, 3)
    exact = singularities(geometry, places, embedder)
    np.testing.assert_array_equal(singularities(geometry, places, embedder, np.arange(500)), exact)
    ratio = (1.0 / singularities(geometry, places, embedder, own)) / (1.0 / exact[own])
    ratio = ratio[np.isfinite(exact[own])]
    assert len(ratio) > 150
    assert np.median(ratio) == pytest.approx(1.0, abs=0.1)
    np.testing.assert_allclose(ratio, np.median(ratio), rtol=1e-8)


def test_sampled_scores_with_an_interpolated_sum_of_pairs_are_near_those_of_all_rows() -> None:
    """As for more rows than t-SNE sums over all pairs. Cells would need more than 50,000."""
    rows = np.random.default_rng(2).normal(size=(4_100, 4))
    places = drawn(rows, tsne := TSNE(early_iterations=60, iterations=60))
    exact = singularities(Points(rows), places, tsne)
    own = np.flatnonzero(np.isfinite(exact))[::5]
    np.testing.assert_allclose(singularities(Points(rows), places, tsne, own), exact[own], rtol=0.05)


def test_sampled_share_is_estimated_with_its_standard_error() -> None:
    rows = np.random.default_rng(1).normal(size=(600, 6))
    evidence = Evidence(rows=rows, embedding=drawn(rows, TSNE()), drawn_by=TSNE())
    exact = evaluate(["fracture"], evidence).values["fracture"]
    samples = [
        evaluate(["fracture"], replace(evidence, seed=seed), exact_rows=100, sampled_rows=200)
        for seed in range(20)
    ]
    values = np.array([scores.values["fracture"] for scores in samples])
    errors = np.array([scores.standard_errors["fracture"] for scores in samples])
    assert (np.abs(values - exact) < 4.0 * errors.mean()).all()
    assert abs(values.mean() - exact) < errors.mean()
    assert 1 / 1.6 < values.std(ddof=1) / errors.mean() < 1.6
    assert samples[0].by_row == {}
    assert samples[0].sampled_rows == 200


def test_maps_without_a_known_loss_or_minimum_have_no_fractures() -> None:
    rows = mixture(0, 60)
    random = np.random.default_rng(0).normal(size=(60, 2))

    def reason(**evidence: Any) -> str:
        return evaluate(["fracture"], Evidence(rows=rows, **evidence)).not_computed["fracture"]

    assert "neither t-SNE nor UMAP" in reason(embedding=random)
    assert "neither t-SNE nor UMAP" in reason(embedding=random, drawn_by=CNE())
    assert "no minimum" in reason(embedding=40.0 * random, drawn_by=TSNE())
    assert "perplexity" in reason(embedding=random, drawn_by=TSNE(perplexity=30))


def test_run_reports_rows_near_a_fracture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    method = {"kind": "fed-tsne", "landmarks": 20, "rounds": 1}
    scenario = {
        "name": "fractures",
        "data": {"source": "iris"},
        "clients": {"count": 3},
        "method": method,
        "compare": ["central"],
        "metrics": ["npa_10", "fracture"],
        "runtime": {"federation": "inline"},
    }
    folder = raydr.run(scenario, out=tmp_path / "run").folder
    run = read_run(folder)
    assert run.singularities is not None
    near = int((run.singularities >= NEAR).sum())
    assert run.measures.federated["fracture"] == near / 150
    told = fracture_rows.sentence(run)
    assert told.startswith(f"{near} of 150 rows" if near else "None of 150 rows")
    assert "On the pooled-data map" in told
    assert told in (folder / "report.html").read_text()
    assert fracture_colouring(run.singularities).counts == (150 - near, near)
    print_result(folder)
    assert told in " ".join(capsys.readouterr().err.split())
    errors = {which: {"fracture": 0.0123} for which in ("federated", "central")}
    sampled = replace(
        run, singularities=None, measures=replace(run.measures, standard_errors=errors, sampled_rows=50)
    )
    assert "(± 1.2\u202f%) of 150 rows are near a fracture" in fracture_rows.sentence(sampled)
    private = {"kind": "private-map", "epsilon": 8.0, "clip": 5.0, "cells": 8}
    apart = raydr.run(scenario | {"method": private, "compare": []}, out=tmp_path / "private").folder
    assert "neither t-SNE nor UMAP" in read_run(apart).measures.not_computed["fracture"]


@pytest.mark.slow
def test_large_run_estimates_both_shares_and_writes_no_columns(tmp_path: Path) -> None:
    rows = np.random.default_rng(7).normal(size=(EXACT_ROWS + 1, 3)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    result = raydr.run(
        {
            "name": "many",
            "data": {"path": str(tmp_path / "rows.npy")},
            "clients": {"count": 4},
            "method": {"kind": "fed-umap", "landmarks": 50, "rounds": 1, "epochs": 30},
            "compare": ["central"],
            "metrics": ["reliable", "fracture"],
            "runtime": {"federation": "inline", "checkpoint_every": 0},
        },
        out=tmp_path / "run",
    )
    run = read_run(result.folder)
    assert result.sampled_rows == SAMPLED_ROWS
    for which in ("federated", "central"):
        assert set(result.standard_errors[which]) == {"reliable", "fracture"}
        assert 0.0 < result.metrics[which]["fracture"] < 0.5
    assert run.singularities is None
    assert run.verdicts is None
    told = fracture_rows.sentence(run)
    assert told.startswith("About ")
    assert "of 50,001 rows are near a fracture" in told
    page = (result.folder / "report.html").read_text()
    assert told in page
    assert "of 50,001 places are unreliable" in page
    assert "singularity" not in result.to_frame().columns
