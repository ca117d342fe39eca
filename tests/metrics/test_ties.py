"""Tied rows: no score depends on which of them a search returns first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from perfect import ONE_WHEN_PERFECT
from scipy.stats import rankdata

from raydr.arrays import Float64Array, Int64Array
from raydr.geometry.hyperbolic import Hyperboloid, exponential_map
from raydr.geometry.points import Points
from raydr.metrics import Evidence, evaluate
from raydr.metrics.ranks import MOST_TIED
from raydr.metrics.ties import Rounded, shared_by_ties

OF_SETS = [name for name in ONE_WHEN_PERFECT if name not in ("steadiness", "cohesiveness")]


def fivefold(rng: np.random.Generator) -> Float64Array:
    return np.repeat(rng.normal(size=(60, 2)), 5, axis=0)


def half_equal(rng: np.random.Generator) -> Float64Array:
    return np.concatenate([np.tile(rng.normal(size=(1, 2)), (150, 1)), rng.normal(size=(150, 2))])


def on_a_grid(rng: np.random.Generator) -> Float64Array:
    return rng.integers(0, 12, size=(300, 2)) / 7.0


def shuffled(made: Any, seed: int) -> Float64Array:
    rng = np.random.default_rng(seed)
    return np.asarray(made(rng)[rng.permutation(300)])


@pytest.mark.parametrize(
    ("made", "nudge"),
    [
        (fivefold, 1e-7),
        (half_equal, 0.0),
        pytest.param(on_a_grid, 0.0, marks=pytest.mark.slow),
        (on_a_grid, 1e-7),
    ],
)
def test_faithful_map_of_tied_rows_is_perfect(made: Any, nudge: float) -> None:
    """Rotate the map and move each copy of a row by less than the distance between different rows."""
    rows = shuffled(made, 0)
    rng = np.random.default_rng(1)
    turned = rows @ np.linalg.qr(rng.normal(size=(2, 2)))[0] + nudge * rng.normal(size=rows.shape)
    evidence = Evidence(rows=rows, embedding=turned, recovered=Points(turned))
    values = evaluate(ONE_WHEN_PERFECT, evidence).values
    # Groups depend on the nearest of nearly tied rows of the map, so these scores are not all perfect.
    groups = dict.fromkeys(("steadiness", "cohesiveness"), 0.95) if nudge and made is not fivefold else {}
    for name in ONE_WHEN_PERFECT:
        assert values[name] >= groups.get(name, 1.0), name


def test_duplicate_rows_in_the_disk_are_perfect() -> None:
    points = exponential_map(shuffled(fivefold, 0))
    nudged = exponential_map(shuffled(fivefold, 0) + 1e-7 * np.random.default_rng(1).normal(size=(300, 2)))
    evidence = Evidence(
        rows=points[:, 1:],
        embedding=nudged[:, 1:],
        recovered=Hyperboloid(nudged),
        truth=Hyperboloid(points),
        mapped=Hyperboloid(nudged),
    )
    assert evaluate(ONE_WHEN_PERFECT, evidence).values == dict.fromkeys(ONE_WHEN_PERFECT, 1.0)


@pytest.mark.parametrize(
    ("made", "ties"),
    [
        (fivefold, "in the data"),
        (half_equal, "in both"),
        (on_a_grid, "in the data"),
        (on_a_grid, "in the map"),
    ],
)
def test_order_of_tied_rows_changes_nothing(made: Any, ties: str) -> None:
    tied = shuffled(made, 2)
    other = tied + 0.3 * np.random.default_rng(3).normal(size=tied.shape)
    coarse = np.round(4.0 * other) / 4.0
    rows, embedding = {
        "in the data": (tied, other),
        "in the map": (other, coarse),
        "in both": (tied, coarse),
    }[ties]
    scores = []
    for seed in range(2):
        order = np.random.default_rng(seed).permutation(300) if seed else np.arange(300)
        evidence = Evidence(rows=rows[order], embedding=embedding[order], recovered=Points(embedding[order]))
        scores.append(evaluate(OF_SETS, evidence).values)
        assert scores[-1] == pytest.approx(scores[0], abs=1e-12)
    assert scores[0]["f_score"] < 0.95


@dataclass(frozen=True)
class Draws:
    """Neighbours (draws, k) of one row, ties broken at random; and its true squared distances (rows,)."""

    found: Int64Array
    true: Float64Array


def draws(rows: Float64Array, embedding: Float64Array, row: int, k: int, rng: np.random.Generator) -> Draws:
    others = np.delete(np.arange(len(rows)), row)
    distances = ((embedding[others] - embedding[row]) ** 2).sum(axis=1)
    found = [others[np.lexsort((rng.random(len(others)), distances))][:k] for _ in range(400)]
    true = ((rows - rows[row]) ** 2).sum(axis=1)
    true[row] = np.inf
    return Draws(np.array(found), true)


def test_ties_are_averaged_in_the_map_and_resolved_in_favour_in_the_data() -> None:
    """Compare with an average over random tie breaks, on integers, so that all ties are exact."""
    rng = np.random.default_rng(4)
    rows = rng.integers(0, 4, size=(60, 2)).astype(np.float64)
    embedding = np.clip(rows + rng.integers(-1, 2, size=rows.shape), 0, 3)
    shares, penalties = [], []
    for row in range(60):
        ten = draws(rows, embedding, row, 10, rng)
        last = np.sort(ten.true)[9]
        nearer = (ten.true < last).sum()
        best = (ten.true[ten.found] < last).sum(axis=1)
        best = best + np.minimum((ten.true[ten.found] == last).sum(axis=1), 10 - nearer)
        shares.append(best.mean() / 10)
        ranks = rankdata(ten.true, method="min")
        penalties.append(
            np.maximum(ranks[draws(rows, embedding, row, 5, rng).found] - 5, 0).sum(axis=1).mean()
        )
    values = evaluate(
        ["npa_10", "f_score", "trustworthiness"],
        Evidence(rows=rows, embedding=embedding, recovered=Points(embedding)),
    )
    assert values.values["npa_10"] == pytest.approx(np.mean(shares), abs=0.004)
    assert values.values["f_score"] == values.values["npa_10"]
    trusted = 1 - 2 * np.sum(penalties) / (60 * 5 * (120 - 15 - 1))
    assert values.values["trustworthiness"] == pytest.approx(trusted, abs=0.004)


@pytest.mark.parametrize("name", ["trustworthiness", "continuity"])
def test_ranks_of_many_ties_equal_scipy(name: str) -> None:
    """Rows have hundreds of equal rows on the map or in the data; the reference is scipy's ranks."""
    rng = np.random.default_rng(5)
    heap = np.repeat(rng.integers(0, 9, size=(3, 2)).astype(np.float64), MOST_TIED + 20, axis=0)
    other = rng.integers(0, 12, size=heap.shape).astype(np.float64)
    rows, embedding = (other, heap) if name == "trustworthiness" else (heap, other)
    count, k = len(heap), 5
    penalties = []
    for row in range(count):
        apart = {
            key: ((table - table[row]) ** 2).sum(axis=1) for key, table in (("near", heap), ("rank", other))
        }
        equal = np.flatnonzero(apart["near"] == 0.0)
        ranks = rankdata(np.delete(apart["rank"], row), method="min")
        ranks = np.sort(np.insert(ranks, row, 0)[equal[equal != row]])
        over = np.maximum(ranks - k, 0)
        penalties.append(k * over.mean() if name == "trustworthiness" else over[:k].sum())
    expected = 1 - 2 * np.sum(penalties) / (count * k * (2 * count - 3 * k - 1))
    evidence = Evidence(rows=rows, embedding=embedding)
    for exact_rows in (count, 0):  # exact, and a sample of all rows
        found = evaluate([name], evidence, exact_rows=exact_rows, sampled_rows=count).values[name]
        assert found == pytest.approx(expected, abs=1e-12)


def test_map_of_one_point_scores_at_chance() -> None:
    """No distances in the data are tied, and the first rows are close to each other."""
    rows = np.arange(200.0)[:, None] ** 1.01
    values = evaluate(["npa_10", "npa_50"], Evidence(rows=rows, embedding=np.zeros((200, 2)))).values
    assert values["npa_10"] == pytest.approx(10 / 199, abs=1e-12)
    assert values["npa_50"] == pytest.approx(50 / 199, abs=1e-12)


def test_tie_at_the_last_neighbour_does_not_hide_lost_neighbours() -> None:
    """Five neighbours are nearer than a ring of 100, so ten rows of the ring are half of ten neighbours."""
    angles = np.linspace(0.0, 2.0 * np.pi, 100, endpoint=False)
    ring = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    rows = np.concatenate([np.zeros((1, 2)), 0.1 * ring[:5], ring])
    found = rows.copy()
    found[1:6] += 100.0
    true, judged = Rounded(lambda: Points(rows)), Rounded(lambda: Points(found))
    assert shared_by_ties(np.array([0]), true, true, 10) == 10.0
    assert shared_by_ties(np.array([0]), true, judged, 10) == 5.0
