"""Canaries: a lower bound on what a release under noise costs, beside what is claimed for it.

For each sort of release that the run's noise covers, clients made up of canaries answer the request that real clients
answered, through the same hosts, under the run's own mechanism. What is looked at is what the server saw: the sum alone
under secure aggregation, and one client's upload where sums are not secret, which of noise that covers a sum has a
share. Each canary is there or not by a coin, and moves the
release in a direction of its own, as far as a record may; how well they are found again bounds epsilon from below
(:mod:`raydr.privacy.canaries`). What is claimed is what the accountant charges for that same release. A bound above the
claim is a defect of raydr, whatever the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from raydr.arrays import BoolArray, Float64Array
from raydr.attacks.contract import Bounded, NotApplicableError, Side, View, attack
from raydr.federation import ClientHost, Context, Federation, InlineTransport, Seat, fingerprint
from raydr.federation.client import Withheld
from raydr.federation.messages import Reply, Request
from raydr.federation.secure import SecureSums
from raydr.federation.transcript import Transcript
from raydr.federation.wire import Weighting
from raydr.methods.landmarks.features import fourier_features
from raydr.methods.landmarks.learning import ON, Step, StepRequest
from raydr.methods.landmarks.mean_embedding import MeanEmbedding, MeanEmbeddingRequest
from raydr.methods.private_map.messages import (
    CellSums,
    CellSumsRequest,
    FirstMoments,
    FirstMomentsRequest,
    Frame,
    Scatter,
    ScatterRequest,
)
from raydr.methods.private_map.messages import View as Sight
from raydr.methods.private_map.settings import COUNT_WEIGHT
from raydr.privacy import Mechanism
from raydr.privacy.accounting import epsilon_of
from raydr.privacy.canaries import audited_epsilon, coins
from raydr.privacy.secrets import Secret
from raydr.statistics.second_moments import SecondMoments, SecondMomentsRequest, unpacked

CANARIES = 1_200
_GAMMA, _LANDMARKS, _WAVES = 0.5, 3, 8192
_THRESHOLD = 0.5  # half of what a canary adds: between there and not

_CLIENTS = 4
"""Among whom noise of a sum is divided."""

R = TypeVar("R", bound=Reply)
Released = tuple[Float64Array, float]
"""Scores (canaries,), and epsilon as the accountant charges it."""


@dataclass(frozen=True)
class Release:
    """How canaries are released.

    Attributes
    ----------
    mechanism : Mechanism
        Of the run.
    delta : float
        At which epsilon is told.
    secure : bool
        Whether the server sees the sum of clients alone.
    seed : int
        Of the noise: nobody is hidden by it, and an audit can be repeated.
    """

    mechanism: Mechanism
    delta: float
    secure: bool = False
    seed: int = 0

    def of(
        self, rows: Float64Array, nobody: Float64Array, request: Request[R], weights: Weighting
    ) -> tuple[R, float]:
        """What the server sees of canaries (canaries, features), and what the accountant charges for it.

        Where the sum alone is seen, the canaries are dealt to all clients. Else they are the first client's, whose
        upload is looked at; where noise covers a sum there are others, each with the record ``nobody`` (features,).
        """
        alone = nobody[None].astype(rows.dtype)
        if self.secure:
            parts = list(np.array_split(rows, _CLIENTS))
        else:
            parts = [rows, *[alone] * (_CLIENTS - 1 if self.mechanism.shared else 0)]
        root = Secret(bytes(32)).derived("canaries", self.seed)
        seats = [Seat(index, part, fingerprint(part)) for index, part in enumerate(parts)]
        hosts = [ClientHost([seat], seed=0, withheld=Withheld.derived(root, [seat.index])) for seat in seats]
        transcript = Transcript()
        secure = SecureSums(colluding=0.0) if self.secure else None
        federation = Federation(
            InlineTransport(hosts), len(parts), Context(seed=0, secure=secure), transcript=transcript
        )
        reply = federation.sum(request) if weights == "sum" else federation.mean(request, weights=weights)
        if not self.secure:
            reply = next(found for seen, found in transcript.of(type(reply)) if seen.client == 0)
        return reply, epsilon_of(federation.ledger.charges, self.delta, "server")


@attack("canary", "a lower bound on epsilon from records made up to be found again")
def canary(view: View, side: Side) -> Iterator[Bounded]:
    """One attempt for each sort of release that noise with a claim covers."""
    covered: dict[type[Reply], Mechanism] = {}
    for seen in view.transcript:
        if seen.protection is not None and (seen.client is not None or view.secure):
            covered.setdefault(type(seen.reply), seen.protection)
    if not covered:
        raise NotApplicableError("no noise covers anything, so nothing is claimed that could be wrong.")
    found = False
    for kind, mechanism in covered.items():
        score = SCORES.get(kind)
        if score is None or not _claims(mechanism):
            continue
        found = True
        yield bounded(kind, score, Release(mechanism, view.delta, view.secure, side.seed), side.seed)
    if not found:
        raise NotApplicableError(
            "noise covers "
            + ", ".join(sorted({mechanism.on for mechanism in covered.values()}))
            + ", for which it"
            " claims nothing, or for which no canaries have been made up."
        )


def bounded(
    kind: type[Reply],
    score: Callable[[Release, BoolArray], Released],
    release: Release,
    seed: int,
) -> Bounded:
    """What canaries say of one sort of release."""
    present = coins(CANARIES, seed)
    scores, claimed = score(release, present)
    found = audited_epsilon(scores, present, _THRESHOLD, release.delta)
    mechanism = release.mechanism
    seen_of = "the sum alone is seen" if release.secure else "a client's upload is seen"
    return Bounded(
        uses=(kind,),
        knows=f"{CANARIES:,} canaries, of which half are there, and the run's own {mechanism.words}; {seen_of}",
        variant=f"{mechanism.on}, {kind.__name__}",
        numbers={"canaries": CANARIES},
        epsilon=found.epsilon,
        claimed=claimed,
        delta=release.delta,
        confidence=found.confidence,
    )


def gradient_scores(release: Release, present: BoolArray) -> Released:
    """All landmarks on one point, each canary where it pulls them most, in a direction of its own."""
    count = len(present)
    there, away = np.eye(count) / math.sqrt(2.0 * _GAMMA), np.full(count, 1e4)
    rows, landmarks = np.where(present[:, None], there, away), np.zeros((_LANDMARKS, count))
    share = next(share for share, on in ON.items() if on == release.mechanism.on)
    request = StepRequest(landmarks, _GAMMA, 1.0, 1, share, mechanism=release.mechanism, objective=False)
    reply, claimed = release.of(rows, away, request, "rows")
    # What a canary adds, if it is there: its own direction, as long as the sensitivity.
    scores = -reply.direction.sum(axis=0) / math.sqrt(_LANDMARKS) / request.sensitivity(count)
    return scores, claimed


def embedding_scores(release: Release, present: BoolArray) -> Released:
    """Canaries so far apart that their random features are all but orthogonal; who is not there is one other point."""
    count = len(present)
    places = np.random.default_rng(7).normal(size=(count + 1, 8)) * 100.0
    waves = fourier_features(3, _WAVES, _GAMMA, np.zeros(8))
    request = MeanEmbeddingRequest(
        3, _WAVES, _GAMMA, np.zeros(8), None, waves.frequencies[-1, -4:], release.mechanism
    )
    rows = np.where(present[:, None], places[:-1], places[-1])
    reply, claimed = release.of(rows, places[-1], request, "rows")
    own = np.stack([waves.mean(place[None]) for place in places])
    directions = own[:-1] - np.outer(own[:-1] @ own[-1], own[-1])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    # What the other canaries leave in a canary's direction is taken off as if half of them were there.
    others = directions @ own[:-1].sum(axis=0) - np.einsum("ij,ij->i", directions, own[:-1])
    return np.asarray(directions @ (reply.embedding * count) - others / 2.0), claimed


def moment_scores(release: Release, present: BoolArray) -> Released:
    """Each canary along an axis of its own, as long as a record may be; who is not there is the centre."""
    count, clip = len(present), _clip(release.mechanism)
    rows, nobody = np.where(present[:, None], clip * np.eye(count), 0.0), np.zeros(count)
    request = SecondMomentsRequest(nobody, clip, release.mechanism)
    reply, claimed = release.of(rows, nobody, request, "rows")
    mean, square = unpacked(reply.packed * count, count)
    return (mean + np.diag(square)) / 2.0, claimed


def first_moment_scores(release: Release, present: BoolArray) -> Released:
    """As :func:`moment_scores`, of sums; the squared length, which all canaries share, tells none of them apart."""
    count, clip = len(present), _clip(release.mechanism)
    rows, nobody = np.where(present[:, None], clip * np.eye(count), 0.0), np.zeros(count)
    request = FirstMomentsRequest(_whole(count, clip), count, release.mechanism)
    reply, claimed = release.of(rows, nobody, request, "sum")
    return reply.packed[:-1], claimed


def scatter_scores(release: Release, present: BoolArray) -> Released:
    """Each canary along an axis of its own adds to that axis's variance, and to nothing else."""
    count, clip = len(present), _clip(release.mechanism)
    rows, nobody = np.where(present[:, None], clip * np.eye(count), 0.0), np.zeros(count)
    request = ScatterRequest(_whole(count, clip), nobody, clip, count, release.mechanism)
    reply, claimed = release.of(rows, nobody, request, "sum")
    return reply.triangle[np.cumsum([0, *range(count, 1, -1)])], claimed


def cell_scores(release: Release, present: BoolArray) -> Released:
    """Each canary in a cell of its own, as far from its centre as counts; who is not there is in another cell."""
    count, clip = len(present), _clip(release.mechanism)
    centres = (4.0 * clip * np.arange(count + 1.0))[:, None]
    places = centres + clip
    rows, nobody = np.where(present[:, None], places[:-1], places[-1]), places[-1]
    whole = Sight(0.0, 2.0 * float(places[-1, 0]), None, None, 1)
    frame = Frame(whole, np.zeros(1), np.eye(1))
    request = CellSumsRequest(frame, centres, clip, count, release.mechanism)
    reply, claimed = release.of(rows, nobody, request, "sum")
    signal = reply.residuals[:-1, 0] + COUNT_WEIGHT * reply.counts[:-1]
    return signal / (1.0 + COUNT_WEIGHT**2), claimed


SCORES: dict[type[Reply], Callable[[Release, BoolArray], Released]] = {
    Step: gradient_scores,
    MeanEmbedding: embedding_scores,
    SecondMoments: moment_scores,
    FirstMoments: first_moment_scores,
    Scatter: scatter_scores,
    CellSums: cell_scores,
}
"""How canaries are scored, by the message that they are in."""


def _claims(mechanism: Mechanism) -> bool:
    return mechanism.claim(1.0) is not None


def _clip(mechanism: Mechanism) -> float:
    return float(getattr(mechanism, "clip", None) or 1.0)


def _whole(features: int, clip: float) -> Sight:
    """Rows as they are, which no canary is too long for."""
    return Sight(0.0, clip * (1.0 + 1e-9), None, None, features)
