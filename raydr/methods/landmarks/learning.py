"""Federated distribution learning (P1, Algorithm 1): landmarks with the distribution of all clients' rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from raydr.arrays import Float64Array
from raydr.federation import (
    Client,
    Federation,
    Granularity,
    Loop,
    Range,
    Rehearsal,
    Reply,
    Request,
    answers,
    average,
)
from raydr.methods.landmarks.descent import Descent
from raydr.methods.landmarks.frames import known_spread
from raydr.methods.landmarks.kernel import (
    KERNEL_OPERATIONS,
    cross_term,
    default_step,
    gradient_bound,
    gradient_rounding,
    gradient_sensitivity,
    landmark_term,
    lipschitz_constant,
    within_reach,
)
from raydr.methods.landmarks.mean_embedding import learn_from_embedding, rehearse_embedding
from raydr.methods.landmarks.settings import ON, DistributionLearning
from raydr.methods.landmarks.similarity import SelfSimilarityRequest
from raydr.privacy import Mechanism, Quantity
from raydr.statistics.moments import Spread, median_squared_distance
from raydr.threads import one_blas_thread

_STEP = 1.0 / 15.0
"""Cost of an operation of a gradient's products, compared with others, for plans. *Measured* on one core, operations
for each pair of a row and a landmark, at 6e9 in a second: 194 with 784 features (plan: 211), 30 with 50 (15)."""


@dataclass(frozen=True)
class Step(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="the direction in which a client would move each landmark, averaged over its rows",
    covers=("direction",),
):
    """Upload of a client in a round.

    Attributes
    ----------
    direction : (landmarks, features) float64
        A gradient, or the change of the client's landmarks divided by the step. The gradient of K_yy at the landmarks
        received is left out: the server knows it and adds it.
    objective : float
        K_xy part of the client's objective (9) at the landmarks received.
    """

    direction: Float64Array
    objective: float

    @staticmethod
    def ranges(request: StepRequest, rows: int) -> dict[str, Range]:
        """Return the range for any data: each term of a gradient is at most ``gradient_bound``."""
        several = 2 * request.local_steps - 1 if request.share == "landmarks" else 3
        terms = 1 if request.local_steps == 1 else several
        largest = terms * gradient_bound(request.landmarks.shape[0], request.gamma)
        return {"direction": Range(request.landmarks.shape, largest), "objective": Range((), 2.001)}

    def quantities(self, on: str, request: StepRequest) -> dict[str, Quantity]:
        """Return the direction, in units of the deviation of all entries of the whole gradient (13)."""
        if on != ON[request.share]:
            raise TypeError(f"a step with share {request.share!r} holds no {on} for a mechanism to change")
        if not request.objective:  # noise with a claim is not in units of the gradient
            return {"direction": Quantity(self.direction)}
        return {"direction": Quantity(self.direction, float((self.direction + request.common).std()))}


@dataclass(kw_only=True, frozen=True)
class StepRequest(Request[Step], what="the current landmarks"):
    """Request of one round of Algorithm 1: Q = ``local_steps`` steps of size ``step`` from these landmarks."""

    landmarks: Float64Array
    gamma: float
    step: float
    local_steps: int
    share: str
    mechanism: Mechanism | None = None
    deviation: float = math.nan
    objective: bool = True

    @cached_property
    def common(self) -> Float64Array:
        """Gradient of K_yy at the landmarks, equal for all clients that receive this request."""
        return landmark_term(self.landmarks, self.gamma)[1]

    def sensitivity(self, rows: int) -> float:
        """Return the sensitivity after Q steps, by :func:`step_sensitivity`, with rounding."""
        count = self.landmarks.shape[0]
        drift = 2.0 * (self.local_steps - 1) * self.step * gradient_bound(count, self.gamma)
        rounding = gradient_rounding(rows, self.landmarks, self.gamma, drift)
        exact = step_sensitivity(rows, count, self.gamma, self.step, self.local_steps, self.share)
        return (1.0 + rounding) * exact


def step_sensitivity(
    rows: int, landmarks: int, gamma: float, step: float, local_steps: int, share: str
) -> float:
    """Return how far one record, present or absent, moves its client's upload, in L2.

    For Q = 1 this is :func:`gradient_sensitivity`, d. Two clients that differ in one record diverge by step * d in the
    first local step. Each further step adds as much, and multiplies their distance by at most 1 + step * L. Here L is
    the Lipschitz constant of the whole gradient. After t steps their distance is e_t; the last gradients differ by
    d + L e_(Q-1), and the mean directions by e_Q / step. With step * L = 1, these are 2^(Q-1) d and (2^Q - 1) d. No
    bound is more than twice the largest norm of an upload.
    """
    one = gradient_sensitivity(rows, landmarks, gamma)
    lipschitz = lipschitz_constant(landmarks, gamma)
    apart = 0.0
    for _ in range(local_steps - 1 if share == "gradient" else local_steps):
        apart = (1.0 + step * lipschitz) * apart + step * one
    moved = one + lipschitz * apart if share == "gradient" else apart / step
    terms = (1 if local_steps == 1 else 2) * (1 if share == "gradient" else local_steps)
    return min(moved, 2.0 * terms * gradient_sensitivity(1, landmarks, gamma))


@answers(StepRequest)
def local_steps(client: Client, request: StepRequest) -> Step:
    """Run the client part of Algorithm 1: gradient steps on (12) from the landmarks received.

    For Q > 1, line 14 has two readings. With ``share: gradient`` the upload is the gradient of the last local
    step; under this reading (15) and (16) are equal for Q = 1.
    """
    gamma = request.gamma
    rows = client.rows
    if not request.objective:
        rows = within_reach(rows, request.landmarks, gamma)
    objective, gradient = cross_term(rows, request.landmarks, gamma)
    objective *= request.objective
    if request.local_steps == 1:
        return Step(gradient, objective)
    common = request.common
    gradient = gradient + common
    total, local = gradient, request.landmarks
    for _ in range(request.local_steps - 1):
        local = local - request.step * gradient
        gradient = cross_term(rows, local, gamma)[1] + landmark_term(local, gamma)[1]
        total = total + gradient
    return Step((total if request.share == "landmarks" else gradient) - common, objective)


@dataclass(frozen=True)
class LearntLandmarks:
    """Result of Algorithm 1 or a substitute: ``points`` (landmarks, features) float64, and the kernel bandwidth.

    ``along`` are the points after some rounds, if the evaluation requested them.
    """

    points: Float64Array
    gamma: float
    along: Mapping[int, Float64Array] = field(default_factory=dict)

    @property
    def model(self) -> dict[str, Float64Array]:
        """The landmarks and the bandwidth by name."""
        return self._model(self.points)

    @property
    def snapshots(self) -> dict[int, dict[str, Float64Array]]:
        """The same after some rounds."""
        return {round: self._model(points) for round, points in self.along.items()}

    def _model(self, points: Float64Array) -> dict[str, Float64Array]:
        return {"landmarks": points, "gamma": np.array([self.gamma])}


def learn_landmarks(federation: Federation, settings: DistributionLearning) -> LearntLandmarks:
    """Run the server part of Algorithm 1.

    Raises
    ------
    ScenarioError
        If there are more landmarks than rows.
    DataError
        If all rows of all clients are equal.
    """
    course = course_of(federation, settings)
    gamma = course.gamma
    loop = Loop(Descent.at(course.start, settings.momentum))
    federation.keep(loop, course.start)
    aggregation, weights = settings.aggregation, settings.weights
    if settings.share == "embedding":
        learn_from_embedding(federation, settings, course.moments, gamma, course.step, loop)
        return LearntLandmarks(loop.state.landmarks, gamma, loop.snapshots)
    constant = None
    if course.similarity is not None:
        constant = average(federation, course.similarity, aggregation, weights=weights).similarity
    server_step = settings.server_step or course.step
    for number in federation.rounds(settings.steps, loop):
        landmarks = loop.state.landmarks
        request = course.request(settings, landmarks, number)
        answer = average(federation, request, aggregation, weights=weights)
        with one_blas_thread():
            objective, gradient = landmark_term(landmarks, gamma)
        loop.state = loop.state.stepped(answer.direction + gradient, server_step, settings.momentum)
        federation.keep(loop, loop.state.landmarks)
        moved = float(((loop.state.landmarks - landmarks) ** 2).sum())
        reported = constant + answer.objective + objective if constant is not None else None
        federation.report(objective=reported, moved=moved)
    return LearntLandmarks(loop.state.landmarks, gamma, loop.snapshots)


def rehearse_learning(federation: Rehearsal, settings: DistributionLearning) -> LearntLandmarks:
    """Ask what :func:`learn_landmarks` asks; return its initial landmarks."""
    with federation.by_sample():
        course = course_of(federation, settings)
    if settings.share == "embedding":
        rehearse_embedding(federation, settings, course.moments, course.gamma)
        return LearntLandmarks(course.start, course.gamma)
    aggregation, weights = settings.aggregation, settings.weights
    if course.similarity is not None:
        average(federation, course.similarity, aggregation, weights=weights)
    for number in federation.rounds(settings.steps):
        request = course.request(settings, course.start, number)
        average(federation, request, aggregation, weights=weights)
        present = sum(federation.sizes[client] for client in federation.answered)
        of_each = _STEP * (4 * federation.features + KERNEL_OPERATIONS)
        federation.add_operations(
            at_clients=float(settings.local_steps) * present * len(course.start) * of_each,
            at_server=float(len(course.start)) ** 2 * of_each,
        )
    return LearntLandmarks(course.start, course.gamma)


@dataclass(kw_only=True, frozen=True)
class Course:
    """Initial state of learning, and settings that all its rounds share.

    Attributes
    ----------
    moments : Spread
        Mean and spread of the rows.
    gamma, step : float
        Kernel bandwidth, and step of the clients.
    start : (landmarks, features) float64
        Initial landmarks.
    noise : Mechanism or None
        Mechanism for each round's uploads, before any decay over rounds.
    similarity : SelfSimilarityRequest or None
        Request for the constant of the objective. None under noise with a privacy claim, because the constant
        is one more release.
    """

    moments: Spread
    gamma: float
    step: float
    start: Float64Array
    noise: Mechanism | None
    similarity: SelfSimilarityRequest | None

    def request(self, settings: DistributionLearning, landmarks: Float64Array, round: int) -> StepRequest:
        """Return the request of a round, from 1 on."""
        return StepRequest(
            landmarks=landmarks,
            gamma=self.gamma,
            step=self.step,
            local_steps=settings.local_steps,
            share=settings.share,
            mechanism=self.noise.in_round(round - 1) if self.noise is not None else None,
            deviation=self.moments.width,
            objective=self.similarity is not None,
        )


def course_of(federation: Federation, settings: DistributionLearning) -> Course:
    """Learn the mean and spread of the rows, and return the start of :func:`learn_landmarks`."""
    count = settings.landmark_count(federation.rows, federation.features)
    moments = known_spread(federation, settings)
    gamma = bandwidth(federation, settings, moments)
    step = settings.step or settings.pace * default_step(count, gamma)
    start = initial_landmarks(federation, moments, count, settings.initial_spread)
    similarity, noise = None, None
    if settings.share != "embedding":
        noise = federation.context.covering(ON[settings.share])
        if noise is None or noise.on == "data" or noise.by_level:
            blur = federation.context.covering("data")
            similarity = SelfSimilarityRequest(gamma, mechanism=blur, deviation=moments.width)
    return Course(moments=moments, gamma=gamma, step=step, start=start, noise=noise, similarity=similarity)


def bandwidth(federation: Federation, settings: DistributionLearning, moments: Spread) -> float:
    """Return gamma, as given or by the median squared distance between rows."""
    return settings.gamma or 1.0 / median_squared_distance(federation, moments)


def initial_landmarks(
    federation: Federation, moments: Spread, count: int, initial_spread: float
) -> Float64Array:
    """Draw a Gaussian cloud around the mean of all rows, (count, features), as wide as the data, but shrunk."""
    noise = federation.stream("initial landmarks").standard_normal((count, federation.features))
    return np.asarray(moments.mean + initial_spread * moments.deviation * noise)
