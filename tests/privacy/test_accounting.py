"""Noise with a claim: its deviation, the stated sensitivity, and one charge per release."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_federations import federate
from requests_for_tests import LengthRequest, OwnShift, Shift
from scipy.stats import chi2, norm
from tiny import tiny_scenario

import raydr
from raydr.arrays import Float64Array
from raydr.errors import ScenarioError
from raydr.federation import Client, ClientError, Federation
from raydr.federation.accounts import Accounts, Due, claim_of, requests_with_rows, sharing_of
from raydr.federation.enrolment import Enrol
from raydr.federation.host import ClientHost
from raydr.federation.releases import Released
from raydr.federation.wire import Call, Sharing, SumCall
from raydr.methods.landmarks.kernel import gradient_sensitivity
from raydr.methods.landmarks.learning import StepRequest, local_steps, step_sensitivity
from raydr.privacy import Coverage, Quantity
from raydr.privacy.accounting import (
    Budget,
    BudgetError,
    Charge,
    accountant_epsilons,
    composed_multiplier,
    epsilon_of,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_multiplier,
    require_affordable,
)
from raydr.privacy.discrete_gaussian import discrete_gaussian
from raydr.privacy.gaussian import GaussianNoise, step_of
from raydr.privacy.ledger import RECORDS, Ledger
from raydr.privacy.statement import statement
from raydr.scenarios.runner import resume, run
from raydr.scenarios.running.identity import Identity

FALSE_ALARM = 1e-6


def gradient_noise(**strength: Any) -> GaussianNoise:
    return GaussianNoise(on="gradient", **strength)


def analytic_delta(epsilon: float, multiplier: float) -> float:
    """Balle & Wang 2018, Theorem 5."""
    half, shift = 0.5 / multiplier, epsilon * multiplier
    return float(norm.cdf(half - shift) - math.exp(epsilon) * norm.cdf(-half - shift))


class TestAccountant:
    @pytest.mark.parametrize("multiplier", [0.3, 1.0, 3.73, 50.0])
    @pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
    def test_epsilon_solves_the_closed_form(self, multiplier: float, delta: float) -> None:
        epsilon = gaussian_epsilon(multiplier, delta)
        assert analytic_delta(epsilon, multiplier) == pytest.approx(delta, rel=1e-6)
        assert gaussian_delta(multiplier, epsilon) == pytest.approx(delta, rel=1e-6)
        assert gaussian_multiplier(epsilon, delta) == pytest.approx(multiplier, rel=1e-6)

    def test_releases_compose_as_one(self) -> None:
        charges = {
            Charge(kind="a", deviation=6.0, sensitivity=2.0): 2,
            Charge(kind="b", deviation=5.0, sensitivity=1.0): 7,
        }
        spent = 2 / 3.0**2 + 7 / 5.0**2
        assert composed_multiplier(charges) == pytest.approx(spent**-0.5, rel=1e-12)
        assert epsilon_of(charges, 1e-5) == gaussian_epsilon(composed_multiplier(charges), 1e-5)

    @pytest.mark.parametrize("count", [1, 50])
    @pytest.mark.parametrize("multiplier", [5.0, 20.0])
    def test_other_accountants_give_no_smaller_epsilon(self, count: int, multiplier: float) -> None:
        charges = {Charge(kind="a", deviation=multiplier, sensitivity=1.0): count}
        exact, others = epsilon_of(charges, 1e-5), accountant_epsilons(charges, 1e-5)
        assert exact <= others["pld"] * (1 + 1e-6) <= exact * 1.01 + 1e-3
        assert exact <= others["rdp"] * (1 + 1e-6) <= exact * 1.3

    @pytest.mark.parametrize(("epsilon", "names"), [(49.5, {"rdp", "pld"}), (50.5, {"rdp"})])
    def test_loss_distribution_is_not_used_above_epsilon_50(
        self, epsilon: float, names: set[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("dp_accounting.pld.PLDAccountant", RdpAccountant)  # the other takes seconds there
        charges = {Charge(kind="a", deviation=gaussian_multiplier(epsilon, 1e-5), sensitivity=1.0): 1}
        assert set(accountant_epsilons(charges, 1e-5)) == names

    @pytest.mark.parametrize("multiplier", [0.3, 2.0, 100.0])
    def test_delta_at_epsilon_0_is_the_total_variation(self, multiplier: float) -> None:
        expected = 2.0 * norm.cdf(0.5 / multiplier) - 1.0
        assert gaussian_delta(multiplier, 0.0) == pytest.approx(expected, rel=1e-12)

    def test_budget_includes_other_kinds_of_release(self) -> None:
        """Each part alone is half of the budget, in squared inverse multipliers."""
        half = gaussian_multiplier(1.0, 1e-5, 2)
        spent, budget = (
            {Charge(kind="a", deviation=half, sensitivity=1.0): 1},
            Budget(epsilon_max=1.0, strict=True),
        )
        require_affordable(spent, Charge(kind="b", deviation=half, sensitivity=1.0), budget, "b")
        with pytest.raises(BudgetError, match=r"c would raise the run's epsilon to 1\.2"):
            require_affordable(
                spent | {Charge(kind="b", deviation=half, sensitivity=1.0): 1},
                Charge(kind="c", deviation=half, sensitivity=1.0),
                budget,
                "c",
            )

    @given(st.floats(0.2, 100), st.floats(1.0, 3.0), st.integers(1, 100))
    @settings(max_examples=50)
    def test_more_noise_costs_less_and_more_rounds_cost_more(
        self, multiplier: float, times: float, count: int
    ) -> None:
        one = Charge(kind="a", deviation=multiplier, sensitivity=1.0)
        more = Charge(kind="a", deviation=times * multiplier, sensitivity=1.0)
        assert epsilon_of({more: count}, 1e-5) <= epsilon_of({one: count}, 1e-5) * (1 + 1e-12)
        assert epsilon_of({one: count}, 1e-5) <= epsilon_of({one: count + 1}, 1e-5)


def gradient(rows: Float64Array, landmarks: Float64Array, gamma: float, **more: Any) -> Float64Array:
    """Return the upload of a client without its claimed noise."""
    request = StepRequest(
        landmarks=landmarks, gamma=gamma, **{"step": 1.0, "local_steps": 1, "share": "gradient"} | more
    )
    return local_steps(Client(index=0, rows=rows, seed=0), replace(request, objective=False)).direction


class TestSensitivity:
    @given(st.integers(0, 10**6), st.floats(-3, 3), st.floats(-4, 4), st.sampled_from([0.0, 1e3, 1e8]))
    @settings(max_examples=150)
    def test_gradient_sensitivity_bounds_every_record(
        self, seed: int, scale: float, bandwidth: float, offset: float
    ) -> None:
        rng = np.random.default_rng(seed)
        count, width, n_y = rng.integers(1, 8), rng.integers(1, 5), rng.integers(2, 12)
        landmarks = rng.normal(size=(n_y, width)) * 10.0**scale + offset
        spread = float(landmarks.std(axis=0).max()) or 1.0
        gamma = 10.0**bandwidth / spread**2
        rows = landmarks[rng.integers(0, n_y, count)] + rng.normal(size=(count, width)) / math.sqrt(gamma)
        other = rows.copy()
        other[0] = landmarks[0] + rng.normal(size=width) * 10.0 ** rng.uniform(-2, 8) / math.sqrt(gamma)
        moved = np.linalg.norm(gradient(rows, landmarks, gamma) - gradient(other, landmarks, gamma))
        assert moved <= 2.0 * gradient_sensitivity(int(count), int(n_y), gamma)

    def test_gradient_sensitivity_is_nearly_reached(self) -> None:
        # All landmarks on one point, and the record where r exp(-gamma r^2) is largest; then on the other side.
        gamma, n_y = 0.7, 9
        landmarks = np.zeros((n_y, 3)) + 1e-9 * np.arange(n_y)[:, None]
        steepest = np.array([[1.0 / math.sqrt(2.0 * gamma), 0.0, 0.0]])
        far = np.full((1, 3), 1e6)
        rows = np.concatenate([steepest, far, far])
        bound = gradient_sensitivity(3, n_y, gamma)
        gone = np.concatenate([far, far, far])
        one = gradient(rows, landmarks, gamma)
        assert np.linalg.norm(one - gradient(gone, landmarks, gamma)) >= 0.95 * bound
        opposite = np.concatenate([-steepest, far, far])
        assert np.linalg.norm(one - gradient(opposite, landmarks, gamma)) >= 0.95 * 2.0 * bound

    @given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from(["gradient", "landmarks"]))
    @settings(max_examples=100)
    def test_local_steps_sensitivity_bounds_every_record(self, seed: int, steps: int, share: Any) -> None:
        rng = np.random.default_rng(seed)
        count, n_y, gamma = int(rng.integers(1, 6)), int(rng.integers(2, 8)), 0.5
        step = n_y / (8.0 * gamma)
        landmarks, rows = rng.normal(size=(n_y, 2)), rng.normal(size=(count, 2))
        other = rows.copy()
        other[-1] = rng.normal(size=2) * 3.0
        more = {"step": step, "local_steps": steps, "share": share}
        moved = np.linalg.norm(
            gradient(rows, landmarks, gamma, **more) - gradient(other, landmarks, gamma, **more)
        )
        assert moved <= 2.0 * step_sensitivity(count, n_y, gamma, step, steps, share)

    def test_record_with_an_overflowing_square_moves_nothing(self) -> None:
        rows = np.random.default_rng(0).normal(size=(5, 3))
        beyond = np.concatenate([rows, np.full((1, 3), 1e200)])
        away = np.concatenate([rows, np.full((1, 3), 1e4)])
        np.testing.assert_array_equal(gradient(beyond, LANDMARKS, 0.5), gradient(away, LANDMARKS, 0.5))

    def test_clipped_record_moves_at_most_its_norm(self) -> None:
        noise = GaussianNoise(on="data", clip=2.0, multiplier=1.0)
        rows = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], np.float32)
        np.testing.assert_allclose(noise.limited(rows), [[1.2, 1.6], [0.3, 0.4], [0.0, 0.0]], atol=1e-7)
        assert noise.record_sensitivity == 4.0  # another record in its place
        assert noise.model_copy(update={"relation": "zero-out"}).record_sensitivity == 2.0


def partitions(sizes: Sequence[int] = (40, 25, 60), width: int = 3) -> list[Float64Array]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=(size, width)) for size in sizes]


LANDMARKS = np.random.default_rng(4).normal(size=(200, 3))


def steps(noise: GaussianNoise | None, **more: Any) -> StepRequest:
    given = {"step": 1.0, "local_steps": 1, "share": "gradient", "objective": noise is None or noise.by_level}
    return StepRequest(landmarks=LANDMARKS, gamma=0.5, mechanism=noise, **given | more)


def asked(federation: Federation, noise: GaussianNoise | None) -> list[Float64Array]:
    return [reply.direction for reply in federation.ask(steps(noise))]


class TestNoise:
    @pytest.mark.parametrize(
        "strength",
        [
            {"level": 1.0},
            {"sigma": 0.01},
            {"multiplier": 3.0},
            {"multiplier": 3.0, "relation": "replace-one"},
        ],
    )
    def test_client_noise_has_its_deviation(self, strength: dict[str, Any]) -> None:
        """The chi-squared test of 600 numbers per client fails once in a million seeds."""
        noise, clean = gradient_noise(**strength), asked(federate(partitions()), None)
        for size, true, noisy in zip((40, 25, 60), clean, asked(federate(partitions()), noise), strict=True):
            match strength:
                case {"level": level}:
                    common = _whole(true)
                    deviation = level * common.std()
                case {"sigma": sigma}:
                    deviation = sigma
                case _:
                    factor = 2.0 if "relation" in strength else 1.0
                    deviation = 3.0 * factor * gradient_sensitivity(size, 200, 0.5)
            statistic = float((((noisy - true) / deviation) ** 2).sum())
            low, high = chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], true.size)
            assert low < statistic < high

    @pytest.mark.parametrize("weights", ["clients", "rows"])
    def test_noise_of_a_sum_is_enough_without_one_share(self, weights: Any) -> None:
        noise = gradient_noise(multiplier=3.0, per="sum")
        federation = federate(partitions())
        clean = federate(partitions()).mean(steps(None), weights=weights).direction
        noisy = federation.mean(steps(noise), weights=weights).direction
        one = gradient_sensitivity(1, 200, 0.5)
        total, moved = (3, one / 25) if weights == "clients" else (125, one)
        statistic = float((((noisy - clean) * total / (3.0 * math.sqrt(3 / 2) * moved)) ** 2).sum())
        low, high = chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], clean.size)
        assert low < statistic < high
        (charge,) = federation.ledger.charges
        assert charge.client == pytest.approx(3.0, rel=1e-6)
        assert charge.outsider == pytest.approx(3.0 * math.sqrt(3 / 2), rel=1e-6)
        assert charge.multiplier == pytest.approx(3.0 / math.sqrt(2), rel=1e-6)

    def test_client_with_one_record_adds_the_noise_it_needs(self) -> None:
        noise, sizes = gradient_noise(multiplier=3.0), (1, 2)
        clean, noisy = (asked(federate(partitions(sizes)), each) for each in (None, noise))
        for size, one, other in zip(sizes, clean, noisy, strict=True):
            deviation = 3.0 * gradient_sensitivity(size, 200, 0.5)
            low, high = chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], one.size)
            assert low < float((((other - one) / deviation) ** 2).sum()) < high

    def test_half_the_noise_is_detected(self) -> None:
        """The statistic of the test above detects half the noise."""
        noise = gradient_noise(multiplier=3.0)
        clean, noisy = (asked(federate(partitions()), each)[0] for each in (None, noise))
        deviation = 3.0 * gradient_sensitivity(40, 200, 0.5)
        low, _ = chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], clean.size)
        assert float((((noisy - clean) / 2 / deviation) ** 2).sum()) < low

    @given(st.integers(0, 10**6), st.floats(-9, 6))
    @settings(max_examples=60)
    def test_values_and_noise_are_on_one_grid(self, seed: int, exponent: float) -> None:
        rng = np.random.default_rng(seed)
        sensitivity = 10.0**exponent
        quantity = Quantity(rng.normal(size=20) * sensitivity, sensitivity=sensitivity)
        noise = gradient_noise(multiplier=2.0)
        noisy = noise.cover(quantity, rng)
        step = step_of(2.0 * sensitivity)
        np.testing.assert_array_equal(noisy, step * np.rint(noisy / step))

    @pytest.mark.parametrize("resolution", [0.0, 2.0**-8])
    def test_rounding_is_included_in_the_claimed_sensitivity(self, resolution: float) -> None:
        """Values just below and above the middle of two steps are rounded in opposite directions."""
        noise, count, sensitivity = gradient_noise(sigma=1.0), 400, 1e-3
        step = max(step_of(1.0), resolution)
        apart = sensitivity / math.sqrt(count)
        whole = np.floor(apart / step) * step  # rounding may add to the rest
        low = np.full(count, step * (0.5 - 1e-6))
        seen = []
        for values in (low, low + (whole + 2e-6 * step)):
            quantity = Quantity(values, sensitivity=sensitivity, resolution=resolution)
            seen.append(noise.cover(quantity, np.random.default_rng(0)))
        moved = float(np.linalg.norm(seen[1] - seen[0]))
        assert moved > math.sqrt(count) * (whole + 0.99 * step)
        claim = noise.claim(sensitivity, values=count, resolution=resolution)
        assert claim is not None
        assert claim.sensitivity == sensitivity + math.sqrt(count) * step
        assert moved <= claim.sensitivity
        (charge,) = _charged(noise)
        assert charge.sensitivity > gradient_sensitivity(25, 200, 0.5)

    def test_noise_tails_never_fail_a_run(self) -> None:
        noise = gradient_noise(sigma=1e6)
        federation = federate(partitions())
        directions = asked(federation, noise)
        assert max(float(np.abs(direction).max()) for direction in directions) <= 13e6

    @pytest.mark.parametrize("decay", ["none", "theorem-2"])
    def test_rounds_together_cost_the_requested_epsilon(self, decay: Any) -> None:
        noise = gradient_noise(epsilon=2.0, decay=decay).calibrated(30, 1e-5)
        charges = {}
        for done in range(30):
            claim = noise.in_round(done).claim(0.25)
            assert claim is not None
            charges[Charge(kind=str(done), deviation=claim.deviation, sensitivity=claim.sensitivity)] = 1
        assert epsilon_of(charges, 1e-5) == pytest.approx(2.0, rel=1e-6)


class TestStrength:
    """Exact noise strengths for each way to set them."""

    def test_part_of_the_budget_determines_a_multiplier(self) -> None:
        of_sigma = gradient_noise(sigma=6.0).parted(0.25, 2.0)
        assert (of_sigma.sigma, of_sigma.multiplier) == (None, 6.0)
        assert gradient_noise(multiplier=3.0).parted(0.25, 2.0).multiplier == 6.0
        of_level = gradient_noise(level=3.0)
        assert of_level.parted(0.25, 2.0) == of_level

    @pytest.mark.parametrize("way", ["level", "sigma", "multiplier"])
    def test_noise_schedule_falls_with_the_root_of_the_round(self, way: str) -> None:
        noise = gradient_noise(decay="theorem-2", **{way: 6.0})
        assert noise.in_round(3) == gradient_noise(decay="theorem-2", **{way: 3.0})
        assert gradient_noise(**{way: 6.0}).in_round(3) == gradient_noise(**{way: 6.0})

    def test_calibration_prefers_the_delta_of_the_mechanism(self) -> None:
        noise = gradient_noise(epsilon=1.0, delta=1e-7)
        assert noise.calibrated(4, 1e-5).multiplier == pytest.approx(gaussian_multiplier(1.0, 1e-7, 4))
        assert gradient_noise(epsilon=1.0).calibrated(4, 1e-5).multiplier == pytest.approx(
            gaussian_multiplier(1.0, 1e-5, 4)
        )
        assert noise.calibrated(0, 1e-5) == noise
        assert gradient_noise(sigma=2.0).calibrated(4, 1e-5) == gradient_noise(sigma=2.0)

    @pytest.mark.parametrize(
        ("strength", "reach"), [({"level": 0.5}, 39.0), ({"sigma": 0.5}, 9.0), ({"multiplier": 2.0}, 9.0)]
    )
    def test_range_grows_by_twelve_deviations(self, strength: dict[str, float], reach: float) -> None:
        noise = gradient_noise(**strength)
        assert noise.reach(3.0, 0.25) == reach
        assert noise.reach(np.array([1.0, 3.0]), 0.25).tolist() == [reach - 2.0, reach]  # type: ignore[union-attr]

    def test_claim_includes_share_sensitivity_and_rounding(self) -> None:
        step = 2.0**-39  # 3 is in the binade of 2, which is divided by 2^40
        assert (step_of(3.0), step_of(4.0), step_of(0.9)) == (step, 2.0**-38, 2.0**-41)
        claim = gradient_noise(multiplier=3.0).claim(sensitivity=2.0, share=0.5, values=9)
        assert claim is not None
        assert (claim.deviation, claim.sensitivity - 2.0) == (3.0, 3 * step)
        coarse = gradient_noise(sigma=6.0).claim(2.0, 0.5, values=4, resolution=0.25)
        assert coarse is not None
        assert (coarse.deviation, coarse.sensitivity, coarse.multiplier) == (3.0, 2.5, 1.2)
        assert gradient_noise(level=3.0).claim(2.0) is None
        assert gradient_noise(sigma=3.0).claim(math.inf) is None

    def test_records_are_rounded_towards_0_and_other_values_to_the_nearest(self) -> None:
        step = step_of(3.0)
        for on, expected in (("data", [0.0, 1.0, -1.0]), ("moments", [1.0, 2.0, -2.0])):
            noise = GaussianNoise(on=on, sigma=3.0, clip=1.0)  # type: ignore[arg-type]
            values = [np.array([0.7, 1.7, -1.7]) * step, np.zeros(3)]
            noisy = [noise.cover(Quantity(each), np.random.default_rng(0)) for each in values]
            assert ((noisy[0] - noisy[1]) / step).tolist() == expected

    def test_added_noise_is_the_drawn_noise(self) -> None:
        values = Quantity(np.array([0.25, -1.0, 3.0]), unit=2.0, sensitivity=1.5)
        drawn = np.random.default_rng(1).standard_normal(3)
        of_level = gradient_noise(level=0.5).cover(values, np.random.default_rng(1))
        np.testing.assert_array_equal(of_level, values.values + drawn)
        steps = discrete_gaussian(
            3 * 2**39, 3, np.random.default_rng(1)
        )  # a deviation of 3, in steps of 2^-39
        of_claim = gradient_noise(multiplier=4.0).cover(replace(values, share=0.5), np.random.default_rng(1))
        np.testing.assert_array_equal(of_claim, values.values + 2.0**-39 * steps)

    @pytest.mark.parametrize(("on", "stage", "kept"), [("data", "all", True), ("data", "learning", False)])
    def test_noise_on_data_is_permanent_for_stage_all(self, on: Any, stage: Any, kept: bool) -> None:
        assert GaussianNoise(on=on, level=1.0, stage=stage).for_good == kept
        assert not gradient_noise(level=1.0).for_good

    def test_clipping_leaves_room_for_rounding(self) -> None:
        (cut,) = GaussianNoise(on="data", clip=2.0, multiplier=1.0).limited(np.array([[30.0, 40.0]]))
        assert 1.0 - float(np.linalg.norm(cut)) / 2.0 == pytest.approx(2.0**-40, rel=1e-3, abs=0.0)
        whole = GaussianNoise(on="data", sigma=1.0)
        assert whole.limited(np.array([[30.0, 40.0]])).tolist() == [[30.0, 40.0]]
        assert whole.record_sensitivity == math.inf

    @pytest.mark.parametrize(
        ("noise", "words"),
        [
            (gradient_noise(sigma=0.5), "of deviation 0.5 on gradient"),
            (gradient_noise(epsilon=0.5, per="sum"), "of epsilon 0.5 on the sum of gradients"),
            (
                GaussianNoise(on="moments", multiplier=2, clip=1, per="sum"),
                "sensitivity on the sum of moments",
            ),
        ],
    )
    def test_description_names_amount_and_target(self, noise: GaussianNoise, words: str) -> None:
        assert noise.words.endswith(words)


CLIPPED = {"epsilon": 1.0, "clip": 1.0}


@pytest.mark.parametrize(
    "settings",
    [
        {"on": "data", "level": 1},
        {"on": "data", "sigma": 1},
        {"on": "data", **CLIPPED, "stage": "all"},
        {"on": "variable", "multiplier": 1, "decay": "theorem-2", "per": "sum"},
        {"on": "gradient", "epsilon": 1, "multiplier": 2, "delta": 1e-6, "decay": "theorem-2"},
        {"on": "embedding", **CLIPPED, "per": "sum"},
        {"on": "embedding", "epsilon": 1},
        {"on": "moments", **CLIPPED, "per": "sum"},
        {"on": "distances", "level": 1},
        {"on": "update", **CLIPPED, "unit": "client", "per": "sum"},
        {"on": "surrogate", "level": 1},
    ],
)
def test_valid_noise_settings_are_accepted(settings: dict[str, Any]) -> None:
    assert GaussianNoise(**settings).on == settings["on"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"on": "gradient"}, "got none"),
        *[
            ({"on": "gradient", way: 0}, "greater than 0")
            for way in ("level", "sigma", "multiplier", "epsilon")
        ],
        ({"on": "data", "level": 1, "clip": 0}, "greater than 0"),
        ({"on": "gradient", "epsilon": 1, "sigma": 1}, "got sigma and epsilon"),
        ({"on": "gradient", "multiplier": 1, "delta": 1e-6}, "delta needs epsilon"),
        ({"on": "distances", "epsilon": 1}, "nothing bounds how far a record moves them"),
        ({"on": "embedding", "level": 1}, "level is not available for noise on embedding"),
        ({"on": "moments", "level": 1, "clip": 1}, "level is not available for noise on moments"),
        ({"on": "update", "level": 1, "clip": 1}, "level is not available for noise on update"),
        ({"on": "surrogate", "epsilon": 1}, "noise on surrogates alone cannot claim an epsilon"),
        ({"on": "data", **CLIPPED, "per": "sum"}, "set per: client"),
        ({"on": "distances", "level": 1, "per": "sum"}, "set per: client"),
        ({"on": "gradient", "level": 1, "per": "sum"}, "set per: client"),
        ({"on": "gradient", **CLIPPED}, "noise on gradient does not use clip"),
        ({"on": "distances", "level": 1, "clip": 1}, "noise on distances does not use clip"),
        ({"on": "data", "epsilon": 1}, "only with a clip norm"),
        ({"on": "data", "multiplier": 1}, "only with a clip norm"),
        ({"on": "moments", "epsilon": 1}, "noise on moments needs a clip norm"),
        ({"on": "update", "epsilon": 1}, "updates of any length"),
        ({"on": "moments", **CLIPPED, "unit": "client"}, "and this is noise on moments"),
        ({"on": "embedding", "epsilon": 1, "decay": "theorem-2"}, "noise on embedding is added once"),
        ({"on": "gradient", "epsilon": 1, "stage": "all"}, "and this is noise on gradient"),
    ],
)
def test_invalid_noise_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        GaussianNoise(**settings)


def _whole(direction: Float64Array) -> Float64Array:
    from raydr.methods.landmarks.kernel import landmark_term

    return np.asarray(direction + landmark_term(LANDMARKS, 0.5)[1])


class TestCharges:
    def test_call_is_charged_once(self) -> None:
        federation = federate(partitions())
        asked(federation, gradient_noise(multiplier=2.0))
        assert list(federation.ledger.charges.values()) == [1]
        with pytest.raises(TypeError, match="the same noise would cover both"):
            asked(federation, gradient_noise(multiplier=2.0))

    def test_objective_is_not_sent_next_to_claimed_noise(self) -> None:
        """The objective depends on the data and would not be covered by noise."""
        bare, covered = (
            federate(partitions()).ask(steps(noise))[0].objective
            for noise in (gradient_noise(level=1.0), gradient_noise(multiplier=2.0))
        )
        assert bare < covered == 0.0

    def test_uncovered_fields_are_not_sent_next_to_claimed_noise(self) -> None:
        with pytest.raises(ClientError, match="Step has objective that Gaussian noise of 2 times"):
            federate(partitions()).ask(steps(gradient_noise(multiplier=2.0), objective=True))

    def test_client_with_fewest_rows_determines_the_cost_of_sigma(self) -> None:
        federation = federate(partitions())
        asked(federation, gradient_noise(sigma=0.02))
        (charge,) = federation.ledger.charges
        assert charge.multiplier == pytest.approx(0.02 / gradient_sensitivity(25, 200, 0.5), rel=1e-6)

    def test_noise_level_has_no_claim(self) -> None:
        federation = federate(partitions())
        asked(federation, gradient_noise(level=1.0))
        assert not federation.ledger.charges
        assert statement(federation.ledger, Budget()).epsilon is None

    def test_shared_noise_depends_on_the_clients_that_answer(self) -> None:
        due = Due(
            Charge(kind="Step", deviation=6.0, sensitivity=1.0),
            Sharing(4, 1.0, colluding=2),
            6.0,
            secure=True,
        )
        sees = {"server": 9.0, "client": 6.0 * math.sqrt(8 / 4), "outsider": 9.0}
        assert due.if_answered(9) == Charge(
            kind="Step", deviation=6.0 * math.sqrt(7 / 4), sensitivity=1.0, **sees
        )
        # The last share is unknown to the owner of the record.
        alone = {"server": 3.0, "client": 3.0, "outsider": 3.0}
        for answered in (0, 1):
            assert due.if_answered(answered) == Charge(kind="Step", deviation=3.0, sensitivity=1.0, **alone)

    def test_visible_uploads_are_charged_with_one_share(self) -> None:
        upload = Charge(kind="Step", deviation=6.0, sensitivity=2.0)
        due = Due(upload, Sharing(4, 1.0, colluding=2), 6.0, secure=False)
        assert due.if_answered(9) == replace(upload, client=6.0 * math.sqrt(8 / 4), outsider=9.0)
        assert Due(upload, of_sum=6.0, secure=True).if_answered(9) is upload
        assert Due(sharing=Sharing(4, 1.0, 1)).if_answered(9) is None

    def test_noise_shares_cover_the_most_influential_record(self) -> None:
        request, sizes = steps(gradient_noise(multiplier=3.0, per="sum")), {3: 4, 5: 0, 8: 10}
        one = gradient_sensitivity(1, 200, 0.5)
        for weighting, moved in (("rows", one), ("clients", one / 4)):
            sharing = sharing_of(request, sizes, weighting, 0.2)  # type: ignore[arg-type]
            assert sharing is not None
            assert (sharing.clients, sharing.colluding) == (1, 1)
            assert sharing.sensitivity == pytest.approx(moved, rel=1e-9)
        assert sharing_of(steps(None), sizes, "rows", 0.2) is None
        assert sharing_of(steps(gradient_noise(multiplier=3.0)), sizes, "rows", 0.2) is None

    def test_noise_shares_suffice_without_lost_and_colluding_clients(self) -> None:
        request, sizes = steps(gradient_noise(multiplier=3.0, per="sum")), dict.fromkeys(range(10), 5)
        found = [sharing_of(request, sizes, "clients", 0.3, lost, start) for lost in (0, 2) for start in "ab"]
        assert sharing_of(request, sizes, "clients", 0.3) == sharing_of(
            request, sizes, "clients", 0.3, 0, "a"
        )
        assert [(each.clients, each.colluding) for each in found if each] == [(7, 3)] * 2 + [(5, 3)] * 2
        names = [each.among for each in found if each]
        assert names[0] == names[1] != names[2] != names[3], (
            "who may be lost, and in which start, names the sum"
        )
        assert names[1] != names[3]

    def test_round_over_budget_is_not_started(self) -> None:
        budget = Budget(epsilon_max=1.0, strict="sums")
        federation = federate(partitions(), budget=budget)
        noise = gradient_noise(multiplier=gaussian_multiplier(1.0, 1e-5, 3))

        def learn() -> None:
            for _ in federation.rounds(5):
                asked(federation, noise)

        with pytest.raises(BudgetError, match=r"Step in round 4 would raise the run's epsilon to 1\.1"):
            learn()
        assert list(federation.ledger.charges.values()) == [3]
        with pytest.raises(ScenarioError, match="The request was not sent"):
            asked(federate(partitions(), budget=budget), gradient_noise(multiplier=1.0))

    @pytest.mark.parametrize("strict", [True, "sums"])
    def test_strict_run_sends_no_unprotected_sum(self, strict: Any) -> None:
        with pytest.raises(ScenarioError, match=r"privacy\.strict allows only messages under noise"):
            federate(partitions(), budget=Budget(strict=strict)).mean(steps(None))

    def test_uncalibrated_noise_is_refused(self) -> None:
        with pytest.raises((ClientError, TypeError), match="was not calibrated"):
            asked(federate(partitions()), gradient_noise(epsilon=1.0))


SIZES = (4, 0, 10, 4)


def call_for(request: Any, clients: tuple[int, ...] = (0, 1, 2, 3), **of_sum: Any) -> Call:
    """Return a call of the first round; with a weighting, of a sum."""
    kind = SumCall if of_sum else Call
    return kind(request=request, number=1, round=1, attempt=0, clients=clients, in_rounds=True, **of_sum)


class TestAccounts:
    """Charges of a call at the boundary, before it is sent and after its reply."""

    def test_charge_is_for_the_least_protected_client_and_written_first(self) -> None:
        written: list[Released] = []
        ledger, accounts = Ledger(), Accounts(budget=Budget(), write_down=written.append)
        due = accounts.afford(call_for(steps(gradient_noise(sigma=0.5))), SIZES, ledger)
        (charge,) = ledger.charges
        assert charge.multiplier == pytest.approx(0.5 / gradient_sensitivity(4, 200, 0.5), rel=1e-6)
        assert (written, ledger.charges, accounts.charges) == (
            [Released(due.name, charge)],
            {charge: 1},
            {charge: 1},
        )
        assert not due.secure

    def test_earlier_releases_of_a_run_are_not_charged_again(self) -> None:
        call, before = call_for(steps(gradient_noise(sigma=0.5))), Accounts(budget=Budget())
        before.afford(call, SIZES, Ledger())
        ledger = Ledger()
        written: list[Released] = []
        due = Accounts(budget=Budget(), released=before.released, write_down=written.append).afford(
            call, SIZES, ledger
        )
        assert due.name in before.released
        assert not ledger.charges
        assert not written

    def test_equal_reply_is_charged_once_and_a_different_one_again(self) -> None:
        ledger, accounts = Ledger(), Accounts(budget=Budget())
        due = accounts.afford(call_for(steps(gradient_noise(sigma=0.5))), SIZES, ledger)
        assert accounts.settle(due, ledger, 0, lambda: "nothing") is None
        for answer, count in (("one", 1), ("one", 1), ("other", 2), ("one", 2)):
            assert accounts.settle(due, ledger, 3, lambda answer=answer: answer) == due.charge  # type: ignore[misc]
            assert ledger.charges == {due.charge: count}
        assert accounts.settle(Due(), ledger, 3, lambda: "one") is None

    def test_noisy_records_are_charged_once_per_run(self) -> None:
        noise = GaussianNoise(on="data", multiplier=2.0, clip=1.5)
        ledger, accounts = Ledger(), Accounts(budget=Budget())
        for turn, reported in ((1, True), (2, False), (3, False)):
            due = accounts.afford(replace(call_for(steps(noise)), round=turn), SIZES, ledger)
            assert accounts.settle(due, ledger, 4, lambda: "") == (due.charge if reported else None)
        (charge,) = ledger.charges
        assert (charge.kind, charge.relation, ledger.charges[charge]) == (RECORDS, "replace-one", 1)
        assert charge.multiplier == pytest.approx(2.0, rel=1e-6)

    def test_secure_sum_budget_assumes_the_least_remaining_noise(self) -> None:
        """Of ten clients, three may collude and two may be lost, so five shares make the whole noise."""
        request, sizes = steps(gradient_noise(multiplier=3.0, per="sum")), (5,) * 10
        sharing = sharing_of(request, dict(enumerate(sizes)), "clients", 0.3, 2)
        call = call_for(request, tuple(range(10)), weighting="clients", total_weight=10, sharing=sharing)
        budget = Budget(epsilon_max=gaussian_epsilon(3.0, 1e-5) * (1 + 1e-4), strict="sums")
        ledger = Ledger()
        due = Accounts(budget=budget, secure=True).afford(call, sizes, ledger)
        (charge,) = ledger.charges
        assert charge.multiplier == pytest.approx(3.0, rel=1e-5)
        assert charge.server == pytest.approx(3.0 * math.sqrt(8 / 5), rel=1e-5)
        assert (due.sharing, due.secure) == (sharing, True)

    @pytest.mark.parametrize(("strict", "refused"), [(False, False), ("sums", True), (True, True)])
    def test_strict_account_refuses_unprotected_sums(self, strict: Any, refused: bool) -> None:
        accounts = Accounts(budget=Budget(strict=strict))
        for call in (call_for(Enrol()), call_for(steps(None), ()), call_for(steps(None), (1,))):
            assert accounts.afford(call, SIZES, Ledger()) == Due(), "public, without clients, without rows"
        if refused:
            with pytest.raises(ScenarioError, match="allows only messages under noise"):
                accounts.afford(call_for(steps(None)), SIZES, Ledger())
        else:
            assert accounts.afford(call_for(steps(None)), SIZES, Ledger()) == Due()

    @pytest.mark.parametrize(("strict", "refused"), [(False, False), ("sums", False), (True, True)])
    def test_per_record_messages_are_refused_only_if_strict(self, strict: Any, refused: bool) -> None:
        accounts = Accounts(budget=Budget(strict=strict))
        if refused:
            with pytest.raises(ScenarioError, match="allows only messages under noise"):
                accounts.afford(call_for(LengthRequest()), SIZES, Ledger())
        else:
            assert accounts.afford(call_for(LengthRequest()), SIZES, Ledger()) == Due()

    def test_single_client_call_is_charged(self) -> None:
        ledger = Ledger()
        Accounts(budget=Budget()).afford(call_for(steps(gradient_noise(multiplier=2.0)), (2,)), SIZES, ledger)
        (charge,) = ledger.charges
        assert charge.multiplier == pytest.approx(2.0, rel=1e-6)

    def test_noisy_records_are_charged_again_after_class_dependent_changes(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        noise = GaussianNoise(on="data", multiplier=2.0, clip=1.5, stage="all")
        accounts = Accounts(budget=Budget(), records=noise)
        accounts.afford(call_for(Shift(1.0)), SIZES, Ledger())
        monkeypatch.setattr(StepRequest, "reads_classes", True)
        accounts.afford(call_for(steps(None)), SIZES, Ledger())
        assert accounts.records is noise
        monkeypatch.setattr(Shift, "reads_classes", True)
        accounts.afford(call_for(Shift(1.0)), SIZES, Ledger())
        assert accounts.records is None

    def test_clients_with_equal_requests_and_sizes_are_evaluated_once(self) -> None:
        one, own = Shift(1.0), OwnShift(np.arange(4.0))
        assert requests_with_rows(call_for(one), SIZES) == [(one, 0), (one, 4), (one, 10)]
        assert requests_with_rows(call_for(one, (2,)), SIZES) == [(one, 10)]
        parts = requests_with_rows(call_for(own, (2, 3)), SIZES)
        assert [(reported.by.tolist(), rows) for reported, rows in parts] == [([2.0], 10), ([3.0], 4)]  # type: ignore[attr-defined]

    def test_claim_is_the_same_for_replies_and_sums(self) -> None:
        request, moved = steps(gradient_noise(multiplier=3.0)), gradient_sensitivity(4, 200, 0.5)
        alone = claim_of(call_for(request), request, 4)
        summed = claim_of(call_for(request, weighting="rows", total_weight=18), request, 4)
        for claim in (alone, summed):
            assert claim is not None
            assert claim.deviation == pytest.approx(3.0 * moved, rel=1e-6)
        shared = steps(gradient_noise(multiplier=3.0, per="sum"))
        assert claim_of(call_for(shared, weighting="rows", total_weight=18), shared, 4) is None
        sharing = Sharing(4, 2.0, 1)
        share = claim_of(call_for(shared, weighting="rows", total_weight=18, sharing=sharing), shared, 4)
        assert share is not None
        assert share.deviation == pytest.approx(3.0 * 2.0 / (4 * math.sqrt(4)), rel=1e-6)
        assert share.sensitivity == pytest.approx(moved, rel=1e-6)


def _charged(noise: GaussianNoise) -> list[Charge]:
    federation = federate(partitions())
    asked(federation, noise)
    return list(federation.ledger.charges)


def noisy_scenario(**overrides: Any) -> Any:
    return tiny_scenario(privacy__noise={"on": "gradient", "epsilon": 1.0}, **overrides)


class TestRuns:
    def test_retries_and_resume_are_charged_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Draws are identified by their values: repeated draws are the same noise."""
        drawn: dict[tuple[int, int], set[bytes]] = {}
        cover = GaussianNoise.cover

        def counting(self: GaussianNoise, quantity: Any, stream: np.random.Generator) -> Float64Array:
            copied = np.random.Generator(type(stream.bit_generator)())
            copied.bit_generator.state = stream.bit_generator.state
            seen = copied.standard_normal(4).tobytes()
            key = current["client"], current["round"]
            drawn.setdefault(key, set()).add(seen)
            return cover(self, quantity, stream)

        current = {"client": -1, "round": -1}
        compute = ClientHost._compute

        def noting(self: ClientHost, client: Any, call: Any, reported: Any) -> Any:
            current.update(client=client.index, round=call.round)
            return compute(self, client, call, reported)

        # Different runs have different noise, but faults alone must change nothing.
        monkeypatch.setattr(Identity, "study", "the study")
        secret = tmp_path / "secret"
        secret.write_bytes(bytes(32))
        secret.chmod(0o600)
        monkeypatch.setattr(GaussianNoise, "cover", counting)
        monkeypatch.setattr(ClientHost, "_compute", noting)
        method = {"kind": "fed-tsne", "landmarks": 12, "rounds": 6, "early_iterations": 5, "iterations": 5}
        kept = {"method": method, "privacy__secret": str(secret)}
        plain = run(noisy_scenario(**kept), out=tmp_path / "plain")
        once = {key: set(values) for key, values in drawn.items()}
        assert len(once) == 6 * 3
        assert all(len(values) == 1 for values in once.values())
        crashes = [{"client": 1, "round": 2, "moment": when} for when in ("before", "during", "after")]
        shaken = run(
            noisy_scenario(**kept, faults__crashes=crashes, runtime__retries=3),
            out=tmp_path / "shaken",
        )
        assert drawn == once
        for name in ("embedding.parquet", "privacy.json"):
            assert (plain / name).read_bytes() == (shaken / name).read_bytes()
        from raydr.methods.landmarks import learning

        rounds = {"count": 0}

        def stopping(client: Any, request: StepRequest) -> Any:
            rounds["count"] += 1
            if rounds["count"] == 3 * 4 + 2:
                raise KeyboardInterrupt
            return learning.local_steps(client, request)

        monkeypatch.setattr(StepRequest, "client_part", staticmethod(stopping))
        with pytest.raises(KeyboardInterrupt):
            run(noisy_scenario(**kept, runtime__checkpoint_every=2), out=tmp_path / "cut")
        monkeypatch.setattr(StepRequest, "client_part", staticmethod(learning.local_steps))
        (left,) = [folder for folder in tmp_path.iterdir() if "incomplete" in folder.name]
        resumed = resume(left)
        assert drawn == once
        for name in ("embedding.parquet", "privacy.json"):
            assert (plain / name).read_bytes() == (resumed / name).read_bytes()

    def test_run_folder_records_the_cost(self, tmp_path: Path) -> None:
        folder = run(noisy_scenario(), out=tmp_path / "run")
        privacy = json.loads((folder / "privacy.json").read_text())
        assert privacy["epsilon"] is None
        assert "leaves the client without protection for each record" in " ".join(privacy["infinite"])
        assert privacy["epsilon_accounted"] == pytest.approx(1.0, rel=1e-6)
        kinds = {release["kind"] for release in privacy["releases"]}
        assert {"Enrolment", "Beyond", "Moment", "Histogram", "Step", "Distances"} <= kinds
        reported = {
            entry["kind"]: (entry["epsilon"], entry["delta"]) for entry in raydr.Result(folder).ledger
        }
        assert reported["Step"] == (pytest.approx(1.0, rel=1e-6), 1e-5)
        assert reported["Moment"] == reported["Distances"] == (None, None)
        (step,) = [release for release in privacy["releases"] if release["kind"] == "Step"]
        assert (step["releases"], step["share"]) == (2, 1.0)

    def test_permanent_noise_on_records_covers_every_message(self, tmp_path: Path) -> None:
        noise = {"on": "data", "stage": "all", "clip": 10.0, "epsilon": 8.0}
        folder = run(
            tiny_scenario(privacy={"noise": noise, "strict": True, "epsilon_max": 8.0}), out=tmp_path / "run"
        )
        privacy = json.loads((folder / "privacy.json").read_text())
        assert privacy["epsilon"] == pytest.approx(8.0, rel=1e-6)
        assert privacy["infinite"] == []

    @pytest.mark.parametrize(
        ("method", "noise", "kinds"),
        [
            ({"rounds": 3}, {"on": "gradient"}, {"Step": 3}),
            ({"rounds": 3, "share": "landmarks"}, {"on": "variable"}, {"Step": 3}),
            ({"rounds": 3}, {"on": "gradient", "per": "sum", "decay": "theorem-2"}, {"Step": 3}),
            (
                {"share": "embedding", "frequencies_in": "random", "random_features": 128},
                {"on": "embedding"},
                {"MeanEmbedding": 1},
            ),
            (
                {"share": "embedding", "random_features": 128, "frequency_axes": 2},
                {"on": "embedding", "clip": 5.0},
                {"MeanEmbedding": 1, "SecondMoments": 1},
            ),
            ({"rounds": None}, {"on": "moments", "clip": 5.0}, {"SecondMoments": 1}),
        ],
    )
    @pytest.mark.parametrize("kind", ["fed-tsne", "fed-spectral"])
    def test_every_sum_of_a_strict_run_is_charged(
        self, tmp_path: Path, kind: str, method: dict[str, Any], noise: dict[str, Any], kinds: dict[str, int]
    ) -> None:
        drawn = {"early_iterations": 5, "iterations": 5}
        content = {"kind": kind, "landmarks": 12, "bounds": [0, 8], **method}
        if kind == "fed-spectral":
            content |= {"clusters": 2, "embedder": {"kind": "tsne", **drawn}}
        else:
            content |= drawn
        if noise["on"] != "moments" or kind == "fed-spectral":
            content["gamma"] = 0.1
        budget = {"noise": {"epsilon": 1.0, **noise}, "strict": "sums", "epsilon_max": 8.0}
        folder = run(tiny_scenario(method=content, privacy=budget), out=tmp_path / "run")
        privacy = json.loads((folder / "privacy.json").read_text())
        assert privacy["epsilon_by_adversary"]["client"]["accounted"] == pytest.approx(1.0, rel=1e-6)
        assert (privacy["epsilon"], len(privacy["infinite"])) == (None, 1)
        found: Counter[str] = Counter()
        for release in privacy["releases"]:
            found[release["kind"]] += release["releases"]
        assert +found == kinds
        assert sum(release["share"] or 0.0 for release in privacy["releases"]) == pytest.approx(1.0)
        if noise.get("per") == "sum":
            upload = gaussian_epsilon(gaussian_multiplier(1.0, 1e-5) / math.sqrt(2), 1e-5)
            assert privacy["epsilon_accounted"] == pytest.approx(upload, rel=1e-6)
        else:
            assert privacy["epsilon_accounted"] == pytest.approx(1.0, rel=1e-6)

    def test_epsilon_below_the_cost_of_the_rounds_is_refused(self, tmp_path: Path) -> None:
        budget = {"noise": {"on": "gradient", "sigma": 1e-3}, "strict": "sums", "epsilon_max": 0.5}
        content = {"kind": "fed-tsne", "landmarks": 12, "bounds": [0, 8], "gamma": 0.1, "rounds": 3}
        with pytest.raises(
            ScenarioError,
            match=r"Step in round 1 would raise the run's epsilon to .* The request was not sent",
        ):
            run(tiny_scenario(method=content, privacy=budget), out=tmp_path / "run")
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("missing", ["gamma", "bounds", "scale"])
    def test_strict_run_names_unprotected_messages(self, tmp_path: Path, missing: str) -> None:
        content = {"kind": "fed-tsne", "landmarks": 12, "bounds": [0, 8], "gamma": 0.1, "rounds": 3}
        content.pop(missing, None)
        budget = {"noise": {"on": "gradient", "epsilon": 1.0}, "strict": "sums"}
        scale = "standard" if missing == "scale" else "none"
        with pytest.raises(
            ScenarioError,
            match=r"has none: .*(a histogram of the distances|whether a client has a value beyond)",
        ):
            run(tiny_scenario(method=content, privacy=budget, data__scale=scale), out=tmp_path / "run")
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("on", ["data", "gradient"])
    def test_noise_levels_change_landmarks_without_a_claim(self, tmp_path: Path, on: str) -> None:
        folder = run(tiny_scenario(privacy__noise={"on": on, "level": 1.0}), out=tmp_path / "run")
        privacy = json.loads((folder / "privacy.json").read_text())
        assert (privacy["epsilon"], privacy["epsilon_accounted"]) == (None, 0.0)
        assert any("under Gaussian noise of level 1" in reason for reason in privacy["infinite"])


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        ({"noise": {"on": "gradient"}}, "exactly one of level, sigma, multiplier and epsilon"),
        ({"noise": {"on": "gradient", "level": 1, "sigma": 1}}, "got level and sigma"),
        ({"noise": {"on": "gradient", "epsilon": 0}}, "greater than 0"),
        ({"noise": {"on": "gradient", "epsilon": -1}}, "greater than 0"),
        ({"noise": {"on": "gradient", "epsilon": 1, "delta": 1.0}}, "expected less than 0.1, got 1"),
        ({"delta": 0.5}, "got 0.5: delta is the probability that the claim fails"),
        ({"noise": {"on": "gradient", "epsilon": 1}, "delta": 0.0}, "greater than 0"),
        ({"noise": {"on": "gradient", "level": 1, "delta": 0.01}}, "delta needs epsilon"),
        ({"noise": {"on": "variable", "level": 1}}, "clients never upload that"),
        ({"noise": {"on": "data", "epsilon": 1}}, "only with a clip norm"),
        ({"noise": {"on": "gradient", "level": 1, "per": "sum"}}, "per: sum needs calibrated noise"),
        ({"noise": {"on": "gradient", "epsilon": 1, "clients": 0.5}}, "all clients add noise or none"),
        ({"noise": {"on": "gradient", "epsilon": 1}, "strict": True}, "set strict to sums"),
        ({"noise": {"on": "gradient", "level": 1}, "strict": "sums"}, "a level depends on the data"),
        ({"strict": True}, "strict requires noise, and there is none"),
        ({"noise": {"on": "gradient", "epsilon": 1}, "epsilon_max": 2}, "set strict to true, or to sums"),
        (
            {"noise": {"on": "gradient", "epsilon": 3}, "epsilon_max": 2, "strict": "sums"},
            "would cost epsilon 3 at delta 1e-5",
        ),
    ],
)
def test_contradictory_noise_is_refused_before_the_run(privacy: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        tiny_scenario(privacy=privacy)


def test_robust_rule_and_noise_per_sum_exclude_each_other() -> None:
    with pytest.raises(ScenarioError, match=r"a robust method\.aggregation looks at each upload"):
        tiny_scenario(
            privacy__noise={"on": "gradient", "epsilon": 1, "per": "sum"},
            method__aggregation={"kind": "coordinate-median"},
        )


def test_coverage_is_calibrated_for_the_rounds_of_the_method() -> None:
    found = noisy_scenario().coverage
    assert isinstance(found, Coverage)
    assert isinstance(found.mechanism, GaussianNoise)
    assert found.mechanism.multiplier == pytest.approx(gaussian_multiplier(1.0, 1e-5, 2), rel=1e-9)
