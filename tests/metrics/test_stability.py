"""Comparison of maps by neighbours and islands."""

from __future__ import annotations

import numpy as np
import pytest

from raydr.geometry.hyperbolic import Hyperboloid, from_ball
from raydr.geometry.points import Points
from raydr.metrics import stability as module
from raydr.metrics.islands import islands_of_map
from raydr.metrics.stability import (
    HALF,
    STAYS,
    WITH_SEED,
    WITHOUT_SITE,
    MapStability,
    OtherMap,
    dissolved,
    kept_neighbors,
    neighbors_of,
    stability,
)

RANDOM = np.random.default_rng(3)
MAP = RANDOM.normal(size=(200, 2))
OTHER = MAP + 0.15 * RANDOM.normal(size=MAP.shape)
EVERY = np.arange(len(MAP))


def test_shares_equal_those_of_all_distances() -> None:
    def nearest(points: np.ndarray) -> np.ndarray:
        distances = np.linalg.norm(points[:, None] - points[None], axis=2)
        np.fill_diagonal(distances, np.inf)
        return np.argsort(distances, axis=1)[:, :15]

    one, other = nearest(MAP), nearest(OTHER)
    wanted = [len(set(a) & set(b)) / 15 for a, b in zip(one.tolist(), other.tolist(), strict=True)]
    found = kept_neighbors(Points(MAP), Points(OTHER), EVERY)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(kept_neighbors(Points(OTHER), Points(MAP), EVERY), wanted)
    some = np.array([2, 50, 199])
    np.testing.assert_array_equal(kept_neighbors(Points(MAP), Points(OTHER), some), found[some])


def test_moved_turned_and_scaled_map_keeps_every_neighbor() -> None:
    turned = 7.0 * MAP @ np.array([[0.6, -0.8], [0.8, 0.6]]) + 100.0
    assert kept_neighbors(Points(MAP), Points(turned), EVERY).min() == 1.0


def test_map_by_chance_keeps_a_tenth_at_most() -> None:
    shuffled = RANDOM.permutation(MAP)
    share = kept_neighbors(Points(MAP), Points(shuffled), EVERY).mean()
    assert share == pytest.approx(15 / 199, abs=0.01)
    assert neighbors_of(50) / 49 == pytest.approx(0.1, abs=0.01)


def test_maps_in_the_disk_are_compared_by_hyperbolic_distances() -> None:
    disk = MAP / np.abs(MAP).max() * 0.7
    bent = Hyperboloid(from_ball(disk))
    assert kept_neighbors(bent, bent, EVERY).min() == 1.0
    assert kept_neighbors(bent, Points(disk), EVERY).mean() < 1.0


def test_rows_of_a_site_are_not_compared_and_are_neighbors_of_none() -> None:
    """A map of the other rows at the same places keeps everything, although its rows have other neighbours."""
    kept = np.flatnonzero(EVERY % 3 > 0)
    other = OtherMap(MAP[kept], kept, Points(MAP[kept]))
    found = stability(Points(MAP), [], [other], seed=0)
    assert np.isnan(found.sites[0][EVERY % 3 == 0]).all()
    assert (found.sites[0][kept] == 1.0).all()
    assert (found.verdicts == STAYS).all()
    assert np.isnan(found.over_seeds).all()


def test_verdicts_follow_the_mean_over_seeds_and_the_worst_site() -> None:
    nothing = np.nan
    found = MapStability(
        np.arange(4),
        seeds=np.array([[0.2, 0.9, 1.0, 0.4], [0.7, 0.9, 1.0, 0.6]]),
        sites=np.array([[nothing, 0.3, 1.0, 0.5], [0.9, 0.8, nothing, 0.5]]),
    )
    assert found.over_seeds.tolist() == pytest.approx([0.45, 0.9, 1.0, 0.5])
    assert found.over_sites.tolist() == [0.9, 0.3, 1.0, 0.5]
    assert found.verdicts.tolist() == [WITH_SEED, WITHOUT_SITE, STAYS, STAYS]
    assert HALF == 0.5


def test_many_rows_are_sampled_and_compared_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    other = OtherMap(OTHER, EVERY, Points(OTHER))
    whole = stability(Points(MAP), [other], [], seed=1)
    monkeypatch.setattr(module, "EXACT_ROWS", 100)
    monkeypatch.setattr(module, "SAMPLED_ROWS", 40)
    some = stability(Points(MAP), [other], [], seed=1)
    assert some.rows.size == 40
    np.testing.assert_array_equal(some.seeds[0], whole.seeds[0][some.rows])


def blobs(centers: list[tuple[float, float]], rows: int = 100) -> np.ndarray:
    random = np.random.default_rng(0)
    return np.concatenate([random.normal(center, 0.5, (rows, 2)) for center in centers])


def test_island_dissolves_if_it_merges_or_breaks() -> None:
    places = blobs([(0, 0), (10, 0), (0, 10)])
    island = islands_of_map(places)
    assert np.bincount(island).tolist() == [100, 100, 100]
    every = np.ones(300, np.bool_)
    assert dissolved(island, every, places[:, ::-1] * 3.0) == ()
    merged = blobs([(0, 0), (0, 0), (0, 10)])
    lost = dissolved(island, every, merged)
    assert island[250] not in lost  # the third stays
    assert set(lost) <= {int(island[0]), int(island[100])}
    one = blobs([(0, 0)] * 3)
    assert dissolved(island, every, one) == (0, 1, 2)
    spread = places.copy()
    spread[:100] = np.random.default_rng(1).uniform(-10, 20, (100, 2))
    assert dissolved(island, every, spread) == (int(island[0]),)


def test_island_of_the_left_out_site_is_not_judged() -> None:
    places = blobs([(0, 0), (10, 0), (0, 10)])
    island = islands_of_map(places)
    there = np.arange(300) >= 95  # five rows of the first island remain
    assert dissolved(island, there, places[there]) == ()
