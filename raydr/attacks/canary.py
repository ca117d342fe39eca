"""Canaries: a lower bound on what a release under noise costs, beside what is claimed for it.

For each sort of release that the run's noise covers, a client made up of canaries answers the request that real clients
answered, through the same host, under the run's own mechanism. Each canary is there or not by a coin, and moves the
release in a direction of its own, as far as a record may; how well they are found again bounds epsilon from below
(:mod:`raydr.privacy.canaries`). What is claimed is what the accountant charges for that same release. A bound above the
claim is a defect of raydr, whatever the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from raydr.arrays import BoolArray, Float64Array
from raydr.attacks.contract import Bounded, NotApplicableError, Side, View, attack
from raydr.federation import ClientHost, Context, Federation, InlineTransport, Seat, fingerprint
from raydr.federation.messages import Reply, Request
from raydr.methods.landmarks.features import fourier_features
from raydr.methods.landmarks.learning import ON, Step, StepRequest
from raydr.methods.landmarks.mean_embedding import MeanEmbedding, MeanEmbeddingRequest
from raydr.privacy import Mechanism
from raydr.privacy.accounting import epsilon_of
from raydr.privacy.canaries import audited_epsilon, coins
from raydr.statistics.second_moments import SecondMoments, SecondMomentsRequest, unpacked

CANARIES = 1_200
_GAMMA, _LANDMARKS, _WAVES = 0.5, 3, 8192
_THRESHOLD = 0.5  # half of what a canary adds: between there and not

R = TypeVar("R", bound=Reply)
Released = tuple[Float64Array, float]
"""Scores (canaries,), and epsilon as the accountant charges it."""


@attack("canary", "a lower bound on epsilon from records made up to be found again")
def canary(view: View, side: Side) -> Iterator[Bounded]:
    """One attempt for each sort of release that noise with a claim covers."""
    covered: dict[type[Reply], Mechanism] = {}
    for seen in view.transcript:
        if seen.protection is not None and seen.client is not None:
            covered.setdefault(type(seen.reply), seen.protection)
    if not covered:
        raise NotApplicableError("no noise covers anything, so nothing is claimed that could be wrong.")
    found = False
    for kind, mechanism in covered.items():
        score = SCORES.get(kind)
        if score is None or not _claims(mechanism):
            continue
        found = True
        yield bounded(kind, score, mechanism, view.delta, side.seed)
    if not found:
        raise NotApplicableError(
            "noise covers "
            + ", ".join(sorted({mechanism.on for mechanism in covered.values()}))
            + ", for which it"
            " claims nothing, or for which no canaries have been made up."
        )


def bounded(
    kind: type[Reply],
    score: Callable[[Mechanism, BoolArray, float], Released],
    mechanism: Mechanism,
    delta: float,
    seed: int,
) -> Bounded:
    """What canaries say of one sort of release."""
    present = coins(CANARIES, seed)
    scores, claimed = score(mechanism, present, delta)
    found = audited_epsilon(scores, present, _THRESHOLD, delta)
    return Bounded(
        uses=(kind,),
        knows=f"{CANARIES:,} canaries, of which half are there, and the run's own {mechanism.words}",
        variant=f"{mechanism.on}",
        numbers={"canaries": CANARIES},
        epsilon=found.epsilon,
        claimed=claimed,
        delta=delta,
        confidence=found.confidence,
    )


def gradient_scores(mechanism: Mechanism, present: BoolArray, delta: float) -> Released:
    """All landmarks on one point, each canary where it pulls them most, in a direction of its own."""
    count = len(present)
    there, away = np.eye(count) / math.sqrt(2.0 * _GAMMA), np.full(count, 1e4)
    rows, landmarks = np.where(present[:, None], there, away), np.zeros((_LANDMARKS, count))
    share = next(share for share, on in ON.items() if on == mechanism.on)
    request = StepRequest(landmarks, _GAMMA, 1.0, 1, share, mechanism=mechanism, objective=False)
    reply, claimed = _released(rows, request, delta)
    # What a canary adds, if it is there: its own direction, as long as the sensitivity.
    scores = -reply.direction.sum(axis=0) / math.sqrt(_LANDMARKS) / request.sensitivity(count)
    return scores, claimed


def embedding_scores(mechanism: Mechanism, present: BoolArray, delta: float) -> Released:
    """Canaries so far apart that their random features are all but orthogonal; who is not there is one other point."""
    count = len(present)
    places = np.random.default_rng(7).normal(size=(count + 1, 8)) * 100.0
    waves = fourier_features(3, _WAVES, _GAMMA, np.zeros(8))
    request = MeanEmbeddingRequest(
        3, _WAVES, _GAMMA, np.zeros(8), None, waves.frequencies[-1, -4:], mechanism
    )
    reply, claimed = _released(np.where(present[:, None], places[:-1], places[-1]), request, delta)
    own = np.stack([waves.mean(place[None]) for place in places])
    directions = own[:-1] - np.outer(own[:-1] @ own[-1], own[-1])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    # What the other canaries leave in a canary's direction is taken off as if half of them were there.
    others = directions @ own[:-1].sum(axis=0) - np.einsum("ij,ij->i", directions, own[:-1])
    return np.asarray(directions @ (reply.embedding * count) - others / 2.0), claimed


def moment_scores(mechanism: Mechanism, present: BoolArray, delta: float) -> Released:
    """Each canary along an axis of its own, as long as a record may be; who is not there is the centre."""
    count, clip = len(present), float(getattr(mechanism, "clip", None) or 1.0)
    rows = np.where(present[:, None], clip * np.eye(count), 0.0)
    reply, claimed = _released(rows, SecondMomentsRequest(np.zeros(count), clip, mechanism), delta)
    mean, square = unpacked(reply.packed * count, count)
    return (mean + np.diag(square)) / 2.0, claimed


SCORES: dict[type[Reply], Callable[[Mechanism, BoolArray, float], Released]] = {
    Step: gradient_scores,
    MeanEmbedding: embedding_scores,
    SecondMoments: moment_scores,
}
"""How canaries are scored, by the message that they are in."""


def _claims(mechanism: Mechanism) -> bool:
    return mechanism.claim(1.0) is not None


def _released(rows: Float64Array, request: Request[R], delta: float) -> tuple[R, float]:
    """The reply of one client with these rows, through its host, and what the accountant charges for it."""
    host = ClientHost([Seat(0, rows, fingerprint(rows))], seed=0)
    federation = Federation(InlineTransport([host]), 1, Context(seed=0))
    reply = federation.mean(request, weights="rows")
    return reply, epsilon_of(federation.ledger.charges, delta)
