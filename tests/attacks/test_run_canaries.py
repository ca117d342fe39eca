"""Canaries in the data of a run: an honest run breaks no claim; half the noise in any release breaks one."""

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
FAST = {
    "private-map": {"FirstMoments", "Scatter", "CellSums"},
    "gradient": {"Step"},
    "embedding": {"SecondMoments", "MeanEmbedding"},
    "data, for good": {"records"},
    "update by client": {"Change"},
}
"""Runs in ``make test``, and the releases whose noise is halved there: each kind of release once.

``Density``, ``PairGradient`` and ``MeanAndLength`` are in ALSO_HALVED.
"""
ALSO_HALVED = {
    ("update by record", "Density"),
    ("update by record", "PairGradient"),
    ("update, another record", "MeanAndLength"),
}


def _slow(fast: bool, *case: str) -> Any:
    return pytest.param(*case, marks=() if fast else pytest.mark.slow)


NAMES = [_slow(name in FAST, name) for name in RUNS]
KINDS = [
    _slow(kind in FAST.get(name, ()) or (name, kind) in ALSO_HALVED, name, kind)
    for name, (*_, kinds) in RUNS.items()
    for kind in kinds
]


@cache
def repetition(name: str) -> Repetition:
    """Run a scenario and repeat it; its noise comes from a fixed secret."""
    method, privacy, *_ = RUNS[name]
    with TemporaryDirectory() as folder:
        secret = Path(folder) / "secret"
        secret.write_text(SECRET)
        secret.chmod(0o600)
        sections = {"privacy": privacy | {"secret": str(secret)}, "method": method, "metrics": []}
        done = run(tiny_scenario(**sections), out=Path(folder) / "run", report=False)
        return repeated(done, None, lambda event: None)


def whole(replay: Replay) -> Bounded:
    (found,) = [one for one in bounds(replay, DELTA) if one.variant == WHOLE]
    return found


def halved(replay: Replay, kind: str) -> Replay:
    """Return the same run with half the noise on releases of one kind."""

    def less(mechanism: Mechanism) -> Mechanism:
        return HalfTheNoise.model_construct(**dict(mechanism))

    steps = [
        replace(step, mechanism=less(step.mechanism))
        if isinstance(step, Release) and step.charge.kind == kind
        else step
        for step in replay.steps
    ]
    return Replay(replay.hosts, steps)


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw a tenth of the noise that an audit draws."""
    monkeypatch.setattr("raydr.attacks.canary._NUMBERS", 2_000_000)
    monkeypatch.setattr("raydr.attacks.canary._REPLIES", 500)


@pytest.fixture
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try 13 candidates instead of 49, on one release of each kind."""
    monkeypatch.setattr("raydr.attacks.canary._REACHES", (3.0,))
    monkeypatch.setattr("raydr.attacks.canary._TRIED", 1)


@pytest.mark.parametrize("draws", ["few", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_honest_run_breaks_no_claim(name: str, draws: str, request: pytest.FixtureRequest) -> None:
    """The bounds of each kind of release and of the whole run are below the claims and above a part of them."""
    if draws == "few":
        request.getfixturevalue("few_draws")
    *_, least, kinds = RUNS[name]
    found, charges = repetition(name), repetition(name).served.ledger.charges
    bounded = {one.variant: one for one in bounds(found.replay, DELTA)}
    assert list(bounded) == [WHOLE, *kinds]
    assert {kind: bounded[kind].numbers["releases"] for kind in kinds} == kinds
    for one in bounded.values():
        assert 0.0 < one.epsilon <= one.measured == one.claimed
    assert bounded[WHOLE].claimed == pytest.approx(epsilon_of(charges, DELTA), rel=1e-9)
    assert bounded[WHOLE].epsilon > least * bounded[WHOLE].claimed * (0.5 if draws == "few" else 1.0)


@pytest.mark.usefixtures("few_draws", "few_candidates")
@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_half_the_noise_in_any_release_is_detected_in_the_whole_run(name: str, kind: str) -> None:
    found = whole(halved(repetition(name).replay, kind))
    assert max(found.epsilon, found.measured) > found.claimed


def test_canary_alone_detects_half_the_noise_of_all_releases() -> None:
    """The bound from the canary does not use the deviation of single entries."""
    replay = repetition("private-map").replay
    for kind in ("FirstMoments", "Scatter", "CellSums"):
        replay = halved(replay, kind)
    found = whole(replay)
    assert found.epsilon > found.claimed


def test_replay_repeats_the_replies_of_the_run() -> None:
    """Under the run's own secrets, each client's part is bit-identical to the reply that the server saw."""
    found = repetition("private-map, each client's own noise")
    replay, compared = found.replay, 0
    for client in range(len(replay.sizes)):
        for release, now in zip(replay.releases, replay.clients(client, replay.rows(client)), strict=True):
            part = Part(release, now)
            seen = [
                one for one in found.transcript if (one.number, one.client) == (release.call.number, client)
            ]
            for one in seen:  # the transcript keeps only some of the calls
                for name, values in part.sent.items():
                    np.testing.assert_array_equal(values, getattr(one.reply, name))
                    compared += 1
    assert compared >= 3 * 3


@pytest.mark.usefixtures("few_draws", "few_candidates")
def test_noise_that_is_equal_in_every_entry_is_detected() -> None:
    """Each entry has the claimed deviation, but most directions have no noise."""
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
def test_deviation_exceeds_its_bound_in_one_audit_of_a_thousand(count: int) -> None:
    """The test simulates 200,000 audits with deviation 1."""
    squares = chi2.rvs(count, size=200_000, random_state=np.random.default_rng(1))
    wrong = int((squares < chi2.ppf(1.0 - CONFIDENCE, count)).sum())
    assert abs(wrong - 200) < 4 * np.sqrt(200)
    for bound, tests in ((most_deviation(7.0, count), 1), (most_deviation(7.0, count, tests=10), 10)):
        assert chi2.cdf(7.0 / bound**2, count) == pytest.approx(1e-3 / tests, rel=1e-9)


def test_epsilon_of_mu_equals_epsilon_of_its_inverse_multiplier() -> None:
    assert epsilon_of_mu(0.5, DELTA) == gaussian_epsilon(2.0, DELTA)
    assert epsilon_of_mu(np.inf, DELTA) == np.inf
    assert epsilon_of_mu(0.0, DELTA) == epsilon_of_mu(-1.0, DELTA) == 0.0


def test_no_draws_give_an_infinite_deviation_bound() -> None:
    assert most_deviation(0.0, 0) == np.inf


def test_canary_does_not_apply_without_charged_releases() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 3))
    federation, transcript = federation_seen([rows])
    federation.sum(FirstMomentsRequest(Sight(0.0, 9.0, None, None, 3), 20))
    view = View(
        transcript=transcript, sizes=(20,), embedding=rows[:, :2], replay=Replay([], transcript.steps)
    )
    with pytest.raises(NotApplicableError, match="nothing is charged"):
        list(canary(view, Side(public=rows[:0])))
