"""Perturbation scores: against a dense computation, and LOO-map's examples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_digits

import raydr
from raydr.arrays import Float64Array
from raydr.embedding import TSNE, UMAP, principal_components
from raydr.embedding.kernels.affinities import joint_affinities
from raydr.front.terminal import print_result
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points
from raydr.metrics import Evidence, evaluate, perturbation
from raydr.metrics.perturbation import AXES, JUMP, perturbations
from raydr.metrics.singularity import singularities
from raydr.report.colouring import jump_colouring
from raydr.report.run import fracture_rows
from raydr.runfolder.reading import read_run

MEANS = np.array([[2.0, 0.0], [-2.0, 0.0], [0.0, -4.0]])


def mixture(seed: int, rows: int = 300) -> Float64Array:
    """Return rows of three normal clusters in the plane, as in the example of LOO-map's package."""
    random = np.random.default_rng(seed)
    return MEANS[random.integers(3, size=rows)] + random.normal(size=(rows, 2))


def drawn(rows: Float64Array, embedder: TSNE | UMAP) -> Float64Array:
    graph = nearest_neighbors(Points(rows), embedder.neighbors_needed(len(rows)))
    return np.asarray(embedder.embed(graph, principal_components(rows), seed=0), np.float64)


def affinities(rows: Float64Array, embedder: TSNE) -> Float64Array:
    """Return the matrix of affinities of all rows."""
    count = len(rows)
    found = joint_affinities(
        nearest_neighbors(Points(rows), embedder.neighbors_needed(count)),
        embedder.effective_perplexity(count),
        1,
    )
    matrix = np.zeros((count, count))
    matrix[np.repeat(np.arange(count), np.diff(found.ends)), found.tails] = found.weights
    return matrix


def displacement(rows: Float64Array, places: Float64Array, row: int, move: Float64Array, tsne: TSNE) -> float:
    """Return how far the place of a moved row moves, with new bandwidths of all rows and SciPy's minimiser."""
    moved = rows.copy()
    moved[row] += move
    weights = affinities(moved, tsne)[row]
    others = np.arange(len(rows)) != row
    rest = 1.0 / (1.0 + ((places[others, None] - places[others]) ** 2).sum(axis=2))
    rest_total = rest.sum() - others.sum()

    def loss(place: Float64Array) -> float:
        u = ((place - places[others]) ** 2).sum(axis=1)
        total = rest_total + 2.0 * (1.0 / (1.0 + u)).sum()
        return float(2.0 * (weights[others] * np.log1p(u)).sum() + np.log(total)) * 1e4

    starts = [row, *np.argsort(-weights)[:2]]
    found = min((minimize(loss, places[start]) for start in starts), key=lambda each: each.fun)
    return float(np.linalg.norm(found.x - places[row]))


def radius(places: Float64Array) -> float:
    return float(np.sqrt(((places - places.mean(axis=0)) ** 2).sum(axis=1).mean()))


@pytest.mark.parametrize("perplexity", [10.0, 40.0])
def test_scores_equal_those_of_a_dense_computation(perplexity: float) -> None:
    """It computes all bandwidths again, as LOO-map does exactly. Few rows change their verdict by that."""
    rows, tsne = mixture(0, 150), TSNE(perplexity=perplexity)
    places = drawn(rows, tsne)
    axes = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2]
    own = np.arange(0, 150, 5)
    dense = [
        max(displacement(rows, places, row, 0.5 * move, tsne) for move in (*axes, *-axes))
        for row in own.tolist()
    ]
    dense = np.array(dense) / radius(places)
    found = perturbations(Points(rows), places, tsne, own, length=0.5)
    assert (np.abs(found - dense) < 0.02).mean() >= 0.9
    assert ((found >= JUMP) == (dense >= JUMP)).mean() >= 0.95
    assert 0 < (dense >= JUMP).sum() < len(own)


def test_affinities_of_a_row_that_stays_are_those_of_the_map() -> None:
    rows, tsne = np.random.default_rng(0).normal(size=(120, 4)), TSNE(perplexity=12, exaggeration=2.0)
    graph = nearest_neighbors(Points(rows), tsne.neighbors_needed(120))
    known = perturbation._Bandwidths.of(graph, 12.0)
    places = rows[:, :2]
    moved = perturbation._Moved(Points(rows), places, known, graph.k, 12.0, 2.0, np.zeros((1, 4)), 1.0)
    own = np.array([5, 17, 80])
    pulls, starts = moved._affinities(own)
    exact = 2.0 * affinities(rows, tsne)[own]
    for at, (start, end) in enumerate(zip(pulls.ends, pulls.ends[1:], strict=False)):
        found = np.zeros(120)
        found[pulls.tails[start:end]] = pulls.weights[start:end]
        np.testing.assert_allclose(found, exact[at], rtol=1e-3, atol=1e-9)
        assert starts[at].tolist() == [own[at], *np.argsort(-exact[at])[:2]]


def test_rows_between_clusters_would_jump_and_have_no_large_singularities() -> None:
    """As in LOO-map: overconfident places are those of rows between clusters, and fractures are elsewhere."""
    jumps, margins, near = [], [], []
    for seed in range(3):
        rows, tsne = mixture(seed), TSNE(perplexity=75)
        places = drawn(rows, tsne)
        jumps.append(perturbations(Points(rows), places, tsne, length=0.5) >= JUMP)
        apart = np.sort(np.linalg.norm(rows[:, None] - MEANS, axis=2), axis=1)
        margins.append(apart[:, 1] - apart[:, 0])
        scores = singularities(Points(rows), places, tsne)
        near.append(scores >= np.quantile(scores, 0.95))
    jump, margin, singular = map(np.concatenate, (jumps, margins, near))
    assert 0.01 < jump.mean() < 0.1
    assert margin[jump].mean() < 0.4 * margin[~jump].mean()
    assert margin[singular].mean() > 2.0 * margin[jump].mean()


def test_scores_fall_as_perplexity_grows() -> None:
    rows = mixture(0)
    shares = []
    for perplexity in (5.0, 30.0, 75.0):
        tsne = TSNE(perplexity=perplexity)
        shares.append((perturbations(Points(rows), drawn(rows, tsne), tsne, length=0.5) >= JUMP).mean())
    assert shares[0] > 2.0 * shares[1] > 2.0 * shares[2]


def test_scores_do_not_depend_on_threads_blocks_samples_units_or_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, tsne = mixture(1, 100), TSNE(perplexity=10, iterations=200)
    places, own = drawn(rows, tsne), np.arange(1, 100, 7)
    first = perturbations(Points(rows), places, tsne, threads=1)
    np.testing.assert_array_equal(perturbations(Points(rows), places, tsne, threads=3), first)
    np.testing.assert_allclose(perturbations(Points(rows), places, tsne, own), first[own], rtol=1e-9)
    np.testing.assert_allclose(perturbations(Points(2.0**-9 * rows), places, tsne), first, rtol=1e-3)
    repeated = np.append(np.arange(100), [3, 3, 50])
    copies = perturbations(Points(rows[repeated]), places[repeated], tsne)
    scale = radius(places) / radius(places[repeated])
    np.testing.assert_allclose(copies, scale * first[repeated], rtol=1e-9)
    monkeypatch.setattr(perturbation, "_MOST", 3)
    np.testing.assert_allclose(perturbations(Points(rows), places, tsne), first, rtol=1e-9)
    assert AXES == 3


def test_maps_in_three_dimensions_have_scores() -> None:
    rows, tsne = np.random.default_rng(0).normal(size=(80, 5)), TSNE(perplexity=8, iterations=200)
    graph = nearest_neighbors(Points(rows), tsne.neighbors_needed(80))
    places = np.asarray(tsne.embed(graph, principal_components(rows, 3), seed=0), np.float64)
    found = perturbations(Points(rows), places, tsne)
    assert ((found > 0.0) & (found < 5.0)).all()


def test_share_of_a_sample_is_estimated() -> None:
    rows, tsne = mixture(2), TSNE()
    evidence = Evidence(rows=rows, embedding=drawn(rows, tsne), drawn_by=tsne)
    exact = evaluate(["perturbation"], evidence)
    scores = exact.by_row["perturbation"]
    assert exact.values["perturbation"] == (scores >= JUMP).mean()
    sampled = [
        evaluate(["perturbation"], replace(evidence, seed=seed), exact_rows=100, sampled_rows=100)
        for seed in range(5)
    ]
    for found in sampled:
        apart = abs(found.values["perturbation"] - exact.values["perturbation"])
        assert 0.0 < found.standard_errors["perturbation"] < 0.05
        assert apart < 4.0 * found.standard_errors["perturbation"]
        assert found.by_row == {}


def test_maps_of_other_embedders_have_no_scores() -> None:
    rows = mixture(0, 60)
    places = np.random.default_rng(0).normal(size=(60, 2))

    def reason(**evidence: object) -> str:
        made = Evidence(rows=rows, embedding=places, **evidence)  # type: ignore[arg-type]
        return evaluate(["perturbation"], made).not_computed["perturbation"]

    assert "t-SNE did not draw" in reason()
    assert "t-SNE did not draw" in reason(drawn_by=UMAP())
    assert "perplexity" in reason(drawn_by=TSNE(perplexity=30))


def test_run_reports_rows_that_would_jump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = {
        "name": "jumps",
        "data": {"source": "iris"},
        "clients": {"count": 3},
        "method": {"kind": "fed-tsne", "landmarks": 20, "rounds": 1},
        "compare": ["central"],
        "metrics": ["perturbation"],
        "runtime": {"federation": "inline"},
    }
    folder = raydr.run(scenario, out=tmp_path / "run").folder
    run = read_run(folder)
    assert run.perturbations is not None
    count = int((run.perturbations >= JUMP).sum())
    assert run.measures.federated["perturbation"] == count / 150
    told = fracture_rows.jumps(run)
    assert told.startswith(f"{count} of 150 rows would jump" if count else "None of 150 rows would jump")
    assert "On the pooled-data map" in told
    assert told in (folder / "report.html").read_text()
    assert jump_colouring(run.perturbations).counts == (150 - count, count)
    print_result(folder)
    assert told in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_more_rows_of_other_classes_would_jump() -> None:
    """As in LOO-map: a few rows unlike the others are drawn among them. Few of them jump, but more than of the rest."""
    rows, labels = load_digits(return_X_y=True)
    jumps = []
    for seed in range(5):
        random = np.random.default_rng(seed)
        known = random.choice(np.flatnonzero(labels < 5), 600, replace=False)
        others = random.choice(np.flatnonzero(labels >= 5), 25, replace=False)
        table, tsne = rows[np.concatenate([known, others])], TSNE()
        jumps.append(perturbations(Points(table), drawn(table, tsne), tsne) >= JUMP)
    shares = np.array([(jump[600:].mean(), jump[:600].mean()) for jump in jumps]).mean(axis=0)
    assert shares[0] > 3.0 * shares[1]
