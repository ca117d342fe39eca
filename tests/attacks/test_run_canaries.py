"""Canaries in the data of a run: no claim of an honest run is broken, and half the noise in any release breaks one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from attacked import federation_seen
from half_noise import HalfTheNoise
from scipy.stats import chi2
from tiny import tiny_scenario

from raydr.arrays import Float64Array
from raydr.attacks import Bounded, NotApplicableError, Side, View
from raydr.attacks.canary import WHOLE, bounds, canary
from raydr.federation.replay import Part, Replay
from raydr.federation.transcript import Release
from raydr.methods.private_map.messages import FirstMomentsRequest
from raydr.methods.private_map.messages import View as Sight
from raydr.privacy import Mechanism, Quantity
from raydr.privacy.accounting import epsilon_of, gaussian_epsilon
from raydr.privacy.canaries import CONFIDENCE, epsilon_of_mu, most_deviation
from raydr.privacy.gaussian import GaussianNoise
from raydr.scenarios.afterwards.repetition import Repetition, repeated
from raydr.scenarios.runner import run

DELTA = 1e-5
SECRET = bytes(range(32)).hex()

QUICK: dict[str, Any] = {"early_iterations": 5, "iterations": 5}
LEARNT: dict[str, Any] = {
    "kind": "fed-tsne",
    "landmarks": 10,
    "rounds": 3,
    "bounds": [0, 8],
    "gamma": 0.02,
    **QUICK,
}
TRAINED: dict[str, Any] = {"rounds": 3, "hidden": [8, 8], "bounds": [0, 8]}
UPDATE: dict[str, Any] = {"on": "update", "epsilon": 2.0, "clip": 0.5}
SECURE = {"secure_aggregation": True}
RUNS: dict[str, tuple[dict[str, Any], dict[str, Any], float, dict[str, int]]] = {
    "private-map": (
        {"kind": "private-map", "epsilon": 4.0, "bounds": [0, 8], **QUICK}, SECURE, 0.7,
        {"FirstMoments": 1, "Scatter": 1, "CellSums": 5},
    ),
    "private-map, each client's own noise": (
        {"kind": "private-map", "epsilon": 4.0, "bounds": [0, 8], "per": "client", **QUICK}, {}, 0.7,
        {"FirstMoments": 1, "Scatter": 1, "CellSums": 5},
    ),
    "gradient": (
        LEARNT, {"noise": {"on": "gradient", "epsilon": 2.0, "per": "sum"}, **SECURE}, 0.3, {"Step": 3}
    ),
    "variable": (
        LEARNT | {"local_steps": 2, "share": "landmarks"}, {"noise": {"on": "variable", "epsilon": 2.0}}, 0.2,
        {"Step": 3},
    ),
    "embedding": (
        LEARNT | {"share": "embedding", "frequencies_in": "principal"},
        {"noise": {"on": "embedding", "epsilon": 2.0, "clip": 32.0}}, 0.8, {"SecondMoments": 1, "MeanEmbedding": 1},
    ),
    "data, for good": (
        LEARNT | {"bounds": None}, {"noise": {"on": "data", "epsilon": 2.0, "clip": 5.0, "stage": "all"}}, 0.8,
        {"records": 1},
    ),
    "data, for learning": (
        LEARNT | {"bounds": None}, {"noise": {"on": "data", "epsilon": 2.0, "clip": 5.0}}, 0.8, {"records": 1}
    ),
    "update by record": (
        {"kind": "fedne", **TRAINED}, {"noise": UPDATE}, 0.2, {"SecondMoments": 1, "Density": 3, "PairGradient": 3}
    ),
    "update by client": (
        {"kind": "fedne", **TRAINED}, {"noise": UPDATE | {"unit": "client", "per": "sum"}, **SECURE}, 0.2,
        {"SecondMoments": 1, "Density": 3, "Change": 3},
    ),
    "update, another record": (
        {"kind": "fedavg-ne", **TRAINED}, {"noise": UPDATE | {"relation": "replace-one"}}, 0.1,
        {"MeanAndLength": 1, "PairGradient": 3},
    ),
}  # fmt: skip
"""Method, privacy, part of the claimed epsilon that a canary shows at least, and how often each kind is charged."""
AGAIN = {"private-map, each client's own noise", "variable", "data, for learning"}
"""Runs whose kinds of releases others have too: they take minutes, so ``make slow`` has them."""


def _slow(name: str, *kind: str) -> Any:
    return pytest.param(name, *kind, marks=pytest.mark.slow if name in AGAIN else ())


NAMES = [_slow(name) for name in RUNS]
KINDS = [_slow(name, kind) for name, (*_, kinds) in RUNS.items() for kind in kinds]


@cache
def repetition(name: str) -> Repetition:
    """The run once more; its noise is the same whenever it is drawn."""
    method, privacy, *_ = RUNS[name]
    with TemporaryDirectory() as folder:
        secret = Path(folder) / "secret"
        secret.write_text(SECRET)
        secret.chmod(0o600)
        told = {"privacy": privacy | {"secret": str(secret)}, "method": method}
        return repeated(run(tiny_scenario(**told), out=Path(folder) / "run"), None, lambda event: None)


def whole(replay: Replay) -> Bounded:
    (found,) = [one for one in bounds(replay, DELTA) if one.variant == WHOLE]
    return found


def halved(replay: Replay, kind: str) -> Replay:
    """The same run, in which releases of one kind are covered by half the noise."""

    def less(mechanism: Mechanism) -> Mechanism:
        return HalfTheNoise.model_construct(**dict(mechanism))

    steps = [
        replace(step, mechanism=less(step.mechanism))
        if isinstance(step, Release) and step.charge.kind == kind
        else step
        for step in replay.steps
    ]
    return Replay(replay.hosts, steps)


@pytest.mark.parametrize("name", NAMES)
def test_no_claim_of_an_honest_run_is_broken(name: str) -> None:
    """Of each kind, and of the whole run, of which a record in the data shows its part."""
    *_, least, kinds = RUNS[name]
    found, charges = repetition(name), repetition(name).served.ledger.charges
    told = {one.variant: one for one in bounds(found.replay, DELTA)}
    assert list(told) == [WHOLE, *kinds]
    assert {kind: told[kind].numbers["releases"] for kind in kinds} == kinds
    for one in told.values():
        assert 0.0 < one.epsilon <= one.measured == one.claimed
    assert told[WHOLE].claimed == pytest.approx(epsilon_of(charges, DELTA), rel=1e-9)
    assert told[WHOLE].epsilon > least * told[WHOLE].claimed


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw a tenth of the noise that an audit draws: half the noise shows in less."""
    monkeypatch.setattr("raydr.attacks.canary._NUMBERS", 2_000_000)
    monkeypatch.setattr("raydr.attacks.canary._REPLIES", 500)


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_half_the_noise_in_any_release_is_caught_through_the_whole_run(name: str, kind: str) -> None:
    found = whole(halved(repetition(name).replay, kind))
    assert max(found.epsilon, found.measured) > found.claimed


def test_a_record_alone_shows_half_the_noise_of_all_releases() -> None:
    """Without a look at the deviation of single entries: by the bound that assumes nothing of the mechanism."""
    replay = repetition("private-map").replay
    for kind in ("FirstMoments", "Scatter", "CellSums"):
        replay = halved(replay, kind)
    found = whole(replay)
    assert found.epsilon > found.claimed


def test_clean_values_and_noise_are_what_the_run_released() -> None:
    """Made again under the run's own secrets, each client's part is the one that its server saw."""
    found = repetition("private-map, each client's own noise")
    replay, compared = found.replay, 0
    for client in range(len(replay.sizes)):
        for release, now in zip(replay.releases, replay.clients(client, replay.rows(client)), strict=True):
            part = Part(release, now)
            seen = [
                one for one in found.transcript if (one.number, one.client) == (release.call.number, client)
            ]
            for one in seen:  # the transcript keeps some of the calls
                for name, values in part.sent.items():
                    np.testing.assert_array_equal(values, getattr(one.reply, name))
                    compared += 1
    assert compared >= 3 * 3


def test_noise_that_is_the_same_number_in_every_entry_is_caught() -> None:
    """Its entries have the deviation that is claimed, and one direction has none."""
    replay = repetition("embedding").replay

    class SameInAll(GaussianNoise):
        def cover(self, quantity: Quantity, stream: Any) -> Float64Array:
            noisy = super().cover(quantity, stream)
            return np.asarray(quantity.values + (noisy - quantity.values).flat[0])

    steps = [
        replace(step, mechanism=SameInAll.model_construct(**dict(step.mechanism)))
        if isinstance(step, Release)
        else step
        for step in replay.steps
    ]
    found = whole(Replay(replay.hosts, steps))
    assert max(found.epsilon, found.measured) > found.claimed


@pytest.mark.parametrize("count", [2, 40, 4_000])
def test_a_deviation_is_below_its_bound_but_for_one_audit_in_a_thousand(count: int) -> None:
    """Of 200,000 audits; the deviation is 1."""
    squares = chi2.rvs(count, size=200_000, random_state=np.random.default_rng(1))
    wrong = int((squares < chi2.ppf(1.0 - CONFIDENCE, count)).sum())
    assert abs(wrong - 200) < 4 * np.sqrt(200)
    for bound, tests in ((most_deviation(7.0, count), 1), (most_deviation(7.0, count, tests=10), 10)):
        assert chi2.cdf(7.0 / bound**2, count) == pytest.approx(1e-3 / tests, rel=1e-9)


def test_epsilon_of_a_shift_is_that_of_one_over_its_multiplier() -> None:
    assert epsilon_of_mu(0.5, DELTA) == gaussian_epsilon(2.0, DELTA)
    assert epsilon_of_mu(np.inf, DELTA) == np.inf
    assert epsilon_of_mu(0.0, DELTA) == epsilon_of_mu(-1.0, DELTA) == 0.0


def test_nothing_is_shown_of_what_moves_nothing() -> None:
    assert most_deviation(0.0, 0) == np.inf


def test_where_nothing_is_charged_no_claim_is_audited() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 3))
    federation, transcript = federation_seen([rows])
    federation.sum(FirstMomentsRequest(Sight(0.0, 9.0, None, None, 3), 20))
    view = View(
        transcript=transcript, sizes=(20,), embedding=rows[:, :2], replay=Replay([], transcript.steps)
    )
    with pytest.raises(NotApplicableError, match="nothing is charged"):
        list(canary(view, Side(public=rows[:0])))
