"""The discrete Gaussian: its probabilities to the claimed bits, decided exactly near boundaries."""

from __future__ import annotations

import hashlib
import math
from decimal import Decimal, localcontext
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from raydr.privacy import discrete_gaussian as sampler
from raydr.privacy.discrete_gaussian import LARGEST, accepted, discrete_gaussian, thresholds
from raydr.privacy.gaussian import step_of
from raydr.privacy.mechanism import Quantity
from raydr.privacy.secrets import Secret

STEPS = 2**40


def stream(name: str) -> np.random.Generator:
    return Secret(bytes(32)).stream(name)


@pytest.mark.parametrize("deviation", [1, 2, 3, 7])
def test_integer_frequencies_match_the_distribution(deviation: int) -> None:
    count, reach = 300_000, LARGEST * deviation
    drawn = discrete_gaussian(deviation, count, stream("often"))
    integers = np.arange(-reach, reach + 1)
    expected = np.exp(-(integers**2) / (2.0 * deviation**2))
    expected *= count / expected.sum()
    found = np.bincount(drawn + reach, minlength=len(integers))
    common = expected > 10
    rare = expected[~common].sum()
    statistic = (((found - expected) ** 2) / expected)[common].sum()
    statistic += (found[~common].sum() - rare) ** 2 / rare
    assert statistic < chi2.isf(1e-6, common.sum())


def test_low_digits_are_uniform_and_moments_match() -> None:
    drawn = discrete_gaussian(STEPS, 200_000, stream("digits"))
    parts = drawn / STEPS
    assert abs(parts.mean()) < 5 / math.sqrt(len(parts))
    assert parts.std() == pytest.approx(1.0, abs=5 / math.sqrt(2 * len(parts)))
    assert (parts**4).mean() == pytest.approx(3.0, abs=5 * math.sqrt(96 / len(parts)))
    for shift in (0, 12, 30):
        counts = np.bincount((drawn >> shift) & 63, minlength=64)
        assert (((counts - counts.mean()) ** 2) / counts.mean()).sum() < chi2.isf(1e-6, 63)


def test_truncation_error_is_below_2_to_the_minus_60() -> None:
    """The total variation between sampled and exact integer parts, with their tails."""
    with localcontext() as context:
        context.prec = 60
        word = Decimal(2**64)
        edges = [Decimal(0), *(Decimal(int(edge)) for edge in thresholds()), word]
        drawn = [(above - below) / word for below, above in pairwise(edges)]
        meant = [(-Decimal(k * k) / 2).exp() for k in range(LARGEST + 20)]
        # Of a whole part k, what is accepted, and twice 2^-64 that rounding an acceptance up can add.
        grid = [Decimal(2 * i + 1) / 400 for i in range(200)]
        share = [sum((-(x * (2 * k + x)) / 2).exp() for x in grid) / 200 for k in range(LARGEST + 20)]
        joint = [a * b for a, b in zip(drawn, share, strict=False)]
        ideal = [a * b for a, b in zip(meant, share, strict=False)]
        joint += [Decimal(0)] * (len(ideal) - len(joint))
        apart = sum(abs(a / sum(joint) - b / sum(ideal)) for a, b in zip(joint, ideal, strict=True)) / 2
        assert apart + 2 / word < Decimal(2) ** -60
        assert sum(ideal) / sum(meant) > Decimal("0.7")


def test_integer_parts_follow_their_rounded_probabilities() -> None:
    with localcontext() as context:
        context.prec = 60
        weights = [(-Decimal(k * k) / 2).exp() for k in range(10)]
        below = [2**64 * sum(weights[:k]) / sum(weights) for k in range(1, 10)]
        assert [int(edge) for edge in thresholds()] == [int(edge.to_integral_value()) for edge in below]


def test_word_at_a_boundary_belongs_to_the_upper_part() -> None:
    """Each part has as many of the 2^64 words as are between its boundaries."""

    class Edges:
        def integers(self, high: int, size: int, dtype: Any = np.int64, endpoint: bool = False) -> Any:
            if dtype is not np.uint64:
                return np.zeros(size, dtype)  # positive, with only the integer part
            assert (high, endpoint) == (2**64 - 1, True)
            return np.resize(np.array(thresholds()), size)

    assert discrete_gaussian(7, 9, Edges()).tolist() == [7 * k for k in range(1, 10)]  # type: ignore[arg-type]


@pytest.mark.parametrize("deviation", [5, STEPS, 2 * STEPS - 1])
def test_words_near_a_boundary_are_decided_exactly(deviation: int) -> None:
    rng = np.random.default_rng(0)
    whole, rest = rng.integers(LARGEST, size=40), rng.integers(1, deviation, size=40)
    with localcontext() as context:
        context.prec = 60
        for k, j in zip(whole.tolist(), rest.tolist(), strict=True):
            x = Decimal(j) / Decimal(deviation)
            least = int(2**64 * (-(x * (2 * k + x)) / 2).exp())  # words up to it are below
            words = np.array([max(0, least - 1), least, least + 1], np.uint64)
            found = accepted(np.full(3, k), np.full(3, j), deviation, words)
            assert found.tolist() == [True, True, False]


def test_double_error_is_below_the_exact_check_margin() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        k, j = int(rng.integers(LARGEST)), int(rng.integers(STEPS))
        exact = sampler._probability(k, j, STEPS)
        x = np.array([j]) / STEPS
        assert (
            abs(float(2.0**64 * np.exp(-0.5 * x * (2.0 * k + x))[0]) - float(exact)) < sampler._UNSURE / 100
        )


def test_stream_numbers_are_stable() -> None:
    """Numbers span several blocks: a repeated or audited run needs the same noise."""
    drawn = discrete_gaussian(STEPS, 150_000, stream("golden"))
    assert hashlib.sha256(drawn.astype("<i8").tobytes()).hexdigest()[:16] == "4454eb621e2ebe5d"


def test_samples_are_within_ten_deviations_and_repeatable() -> None:
    drawn = discrete_gaussian(STEPS, 50_000, stream("again"))
    assert np.abs(drawn).max() < LARGEST * STEPS
    np.testing.assert_array_equal(drawn, discrete_gaussian(STEPS, 50_000, stream("again")))


def test_released_values_are_on_the_grid_with_the_claimed_deviation() -> None:
    from raydr.privacy.gaussian import GaussianNoise

    noise = GaussianNoise(on="moments", multiplier=0.7, clip=1.0)
    values = np.full(100_000, 1.0 / 3.0)
    for resolution in (0.0, 2.0**-30, 2.0**-4):
        reported = noise.cover(Quantity(values, sensitivity=1.3, resolution=resolution), stream("grid"))
        claim = noise.claim(1.3, values=1, resolution=resolution)
        assert claim is not None
        step = max(step_of(claim.deviation), resolution)
        np.testing.assert_array_equal(reported / step, np.rint(reported / step))
        assert (reported - values).std() == pytest.approx(claim.deviation, rel=0.012)
