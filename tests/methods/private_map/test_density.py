"""The density of a private map: one noisy count for each record, by the landmarks alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from inline_federations import federate
from numpy.testing import assert_array_equal
from sklearn.datasets import load_digits

from raydr.arrays import FloatArray
from raydr.federation import Client
from raydr.methods import METHODS, Outcome
from raydr.methods.private_map.density import Grid, PlaceCountsRequest, place_counts
from raydr.methods.private_map.messages import Frame, View
from raydr.methods.private_map.placing import Landmarks
from raydr.methods.private_map.server import PrivateMap
from raydr.methods.private_map.settings import NoiseShares
from raydr.privacy.accounting import Budget
from raydr.privacy.statement import statement

ROWS = np.asarray(load_digits().data[:400])


def outcome(epsilon: float = 4.0, **more: Any) -> tuple[Outcome, PrivateMap, Any]:
    settings = PrivateMap(
        epsilon=epsilon,
        bounds=(0.0, 16.0),
        density=0.1,
        early_iterations=10,
        iterations=10,
        placing_iterations=5,
        **more,
    )
    federation = federate(np.array_split(ROWS, 4))
    return METHODS["private-map"].serve(federation, settings), settings, federation


def request(rows: int, side: int = 9) -> PlaceCountsRequest:
    random = np.random.default_rng(0)
    frame = Frame(View(8.0, 64.0, None, None, 64), np.zeros(64), np.linalg.qr(random.normal(size=(64, 3)))[0])
    landmarks = Landmarks(
        20.0 * random.normal(size=(12, 3)), random.uniform(5, 50, 12), random.normal(size=(12, 2))
    )
    return PlaceCountsRequest(frame, landmarks, Grid.over(landmarks.places, 4 * side**2, 2.0), 20, rows)


def counts(rows: FloatArray, asked: PlaceCountsRequest) -> FloatArray:
    return place_counts(Client(index=0, rows=rows, seed=0), asked).counts


def test_a_record_changes_one_count_by_one() -> None:
    """Own rows help to place records on the map, but not here: a record would move its neighbours."""
    asked = request(len(ROWS))
    whole = counts(ROWS, asked)
    assert whole.sum() == len(ROWS)
    far = ROWS.copy()
    far[17] = 1e9
    for row in range(0, 400, 40):
        changed = whole - counts(np.delete(ROWS, row, axis=0), asked)
        assert sorted(np.unique(changed)) == [0.0, 1.0]
        assert changed.sum() == 1.0 == asked.sensitivity(1) / (1 + 1e-9)
    replaced = np.linalg.norm(whole - counts(far, asked))
    assert replaced <= asked.replace_sensitivity(1)


def test_counts_are_those_of_a_histogram() -> None:
    random = np.random.default_rng(1)
    grid = Grid(np.array([-1.0, 0.0]), np.array([2.0, 4.0]), 5)
    places = random.uniform([-2.0, -1.0], [3.0, 5.0], (500, 2))
    inside = np.clip(places, grid.low, grid.high - 1e-9)
    expected = np.histogram2d(*inside.T, bins=5, range=[(-1, 2), (0, 4)])[0]
    assert_array_equal(grid.counts(places), expected)


@pytest.mark.parametrize(("rows", "deviation", "side"), [(1800, 10.0, 9), (10, 10.0, 3), (10**7, 1.0, 64)])
def test_squares_have_two_deviations_of_rows_on_average(rows: int, deviation: float, side: int) -> None:
    assert Grid.over(np.eye(2), rows, deviation).side == side


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("per", ["sum", "client"])
def test_the_run_keeps_its_epsilon(per: Any, relation: Any) -> None:
    _, _, federation = outcome(per=per, relation=relation)
    reported = statement(federation.ledger, Budget())
    assert reported.infinite == ()
    seen = "client" if per == "sum" else "server"
    assert reported.epsilon_by_adversary[seen].accounted == pytest.approx(4.0, rel=1e-6)
    share = {release.kind: release.share for release in reported.releases}["PlaceCounts"]
    assert share == pytest.approx(0.1)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("per", ["sum", "client"])
def test_the_server_assumes_the_noise_that_is_in_the_counts(
    per: Any, relation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raydr.methods.private_map.density._LEAST", -np.inf)
    monkeypatch.setattr("raydr.methods.private_map.density._ROWS_OF_A_SQUARE", 0.02)
    found, settings, _ = outcome(per=per, relation=relation, epsilon=40.0)
    low, high = found.model["density_corners"]
    grid = Grid(low, high, len(found.model["density"]))
    noise = found.model["density"] - grid.counts(settings.transform(found.model, ROWS))
    budget = NoiseShares.of(settings, Budget(), 4)
    assumed = budget.count_deviation(budget.density)
    assert noise.size > 1000
    assert noise.std() == pytest.approx(assumed, rel=0.1)


def test_counts_within_their_noise_are_left_out() -> None:
    found, settings, _ = outcome()
    budget = NoiseShares.of(settings, Budget(), 4)
    deviation = budget.count_deviation(budget.density)
    density = found.model["density"]
    assert density.max() > 2.0 * deviation
    assert not density[density < 2.0 * deviation].any()


def test_a_map_without_a_density_is_unchanged() -> None:
    plain = PrivateMap(epsilon=4.0, bounds=(0.0, 16.0))
    assert NoiseShares.of(plain, Budget(), 4).density == np.inf
    assert (
        NoiseShares.of(plain.model_copy(update={"density": 0.1}), Budget(), 4).rounds[0]
        > (NoiseShares.of(plain, Budget(), 4).rounds[0])
    )
