"""Canaries: a lower bound on the epsilon of a release from a thousand synthetic records in one run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from half_noise import HalfTheNoise
from inline_federations import federate
from one_run import Audited, audited_epsilon, coins

from raydr.arrays import BoolArray, Float64Array
from raydr.methods.landmarks.features import fourier_features
from raydr.methods.landmarks.learning import StepRequest
from raydr.methods.landmarks.mean_embedding import MeanEmbeddingRequest
from raydr.privacy.accounting import gaussian_epsilon
from raydr.privacy.gaussian import GaussianNoise
from raydr.statistics.second_moments import SecondMomentsRequest, unpacked

CANARIES, DELTA, MULTIPLIER = 1_200, 1e-5, 0.5
GAMMA, LANDMARKS = 0.5, 3


def noise(kind: type[GaussianNoise], on: Any, **more: Any) -> GaussianNoise:
    return kind(on=on, multiplier=MULTIPLIER, **more)


def gradient_scores(kind: type[GaussianNoise], present: BoolArray) -> Float64Array:
    """All landmarks are on one point; each canary pulls them most in its own direction."""
    canaries = np.eye(CANARIES) / math.sqrt(2.0 * GAMMA)
    away = np.full(CANARIES, 1e4)
    rows = np.where(present[:, None], canaries, away)
    landmarks = np.zeros((LANDMARKS, CANARIES))
    request = StepRequest(
        landmarks=landmarks,
        gamma=GAMMA,
        step=1.0,
        local_steps=1,
        share="gradient",
        mechanism=noise(kind, "gradient"),
        objective=False,
    )
    direction = federate([rows]).ask(request)[0].direction
    # A present canary adds its own direction with the length of the sensitivity.
    return -direction.sum(axis=0) / math.sqrt(LANDMARKS) / request.sensitivity(CANARIES)


def embedding_scores(kind: type[GaussianNoise], present: BoolArray) -> Float64Array:
    """Canaries have nearly orthogonal random features; an absent canary is one other point."""
    places = np.random.default_rng(7).normal(size=(CANARIES + 1, 8)) * 100.0
    centre, count = np.zeros(8), 8192
    waves = fourier_features(3, count, GAMMA, centre)
    request = MeanEmbeddingRequest(
        seed=3,
        count=count,
        gamma=GAMMA,
        centre=centre,
        axes=None,
        witnesses=waves.frequencies[-1, -4:],
        mechanism=noise(kind, "embedding"),
    )
    rows = np.where(present[:, None], places[:-1], places[-1])
    found = federate([rows]).ask(request)[0].embedding * CANARIES
    own = np.stack([waves.mean(place[None]) for place in places])
    directions = own[:-1] - np.outer(own[:-1] @ own[-1], own[-1])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    # The part of other canaries in this direction is subtracted as if half of them were present.
    others = directions @ own[:-1].sum(axis=0) - np.einsum("ij,ij->i", directions, own[:-1])
    return np.asarray(directions @ found - others / 2.0)


def moment_scores(kind: type[GaussianNoise], present: BoolArray) -> Float64Array:
    """Each canary is a record of maximal length along its own axis; an absent canary is the centre."""
    rows, clip = np.where(present[:, None], 3.0 * np.eye(CANARIES), 0.0), 3.0
    request = SecondMomentsRequest(np.zeros(CANARIES), clip, noise(kind, "moments", clip=clip))
    mean, square = unpacked(federate([rows]).ask(request)[0].packed * CANARIES, CANARIES)
    return (mean + np.diag(square)) / 2.0


SCORES = {"gradient": gradient_scores, "embedding": embedding_scores, "moments": moment_scores}


def audit(name: str, kind: type[GaussianNoise]) -> Audited:
    present = coins(CANARIES, 5)
    return audited_epsilon(SCORES[name](kind, present), present, 0.5, DELTA)


@pytest.mark.parametrize("name", SCORES)
def test_thousand_canaries_stay_just_below_the_claim(name: str) -> None:
    claim = gaussian_epsilon(MULTIPLIER, DELTA)
    assert 0.6 * claim < audit(name, GaussianNoise).epsilon <= claim


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "embedding" else name for name in SCORES]
)
def test_half_the_noise_breaks_the_claim(name: str) -> None:
    assert audit(name, HalfTheNoise).epsilon > gaussian_epsilon(MULTIPLIER, DELTA)


def test_uninformative_scores_give_no_bound() -> None:
    present = coins(1000, 0)
    scores = np.random.default_rng(1).random(1000)
    assert audited_epsilon(scores, present, 0.5, DELTA).epsilon == 0.0


def test_bound_holds_at_its_confidence() -> None:
    """At confidence 0.95, at most 20 + 4 standard deviations of 400 honest audits exceed the bound."""
    rng, wrong = np.random.default_rng(2), 0
    for seed in range(400):
        present = coins(1000, seed)
        scores = present + rng.standard_normal(1000) * MULTIPLIER
        found = audited_epsilon(scores, present, 0.5, DELTA, confidence=0.95)
        wrong += found.epsilon > gaussian_epsilon(MULTIPLIER, DELTA)
    assert wrong <= 20 + 4 * math.sqrt(400 * 0.05 * 0.95)
