"""Federated distribution learning (P1, Algorithm 1): landmarks that take on the distribution of all clients' rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array
from raydr.federation import Client, Federation, Granularity, Range, Reply, Request, answers, average
from raydr.methods.landmarks.descent import descend, starting
from raydr.methods.landmarks.kernel import cross_term, default_step, gradient_bound, landmark_term
from raydr.methods.landmarks.mean_embedding import learn_from_embedding
from raydr.methods.landmarks.settings import DistributionLearning
from raydr.methods.landmarks.similarity import SelfSimilarityRequest
from raydr.statistics.moments import Spread, median_squared_distance, wide_spread
from raydr.threads import one_blas_thread


@dataclass(frozen=True)
class Step(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="the direction in which a client would move each landmark, averaged over the client's rows",
):
    """What a client uploads in a round.

    Attributes
    ----------
    direction : (landmarks, features) float64
        A gradient, or the change of the client's landmarks divided by the step; without the gradient of K_yy at the
        landmarks received, which the server knows and adds.
    objective : float
        K_xy part of the client's objective (9) at the landmarks received.
    """

    direction: Float64Array
    objective: float

    @staticmethod
    def ranges(request: StepRequest, rows: int) -> dict[str, Range]:
        """From the kernel alone, whatever the data: each term of a gradient is at most ``gradient_bound``."""
        several = 2 * request.local_steps - 1 if request.share == "landmarks" else 3
        terms = 1 if request.local_steps == 1 else several
        largest = terms * gradient_bound(request.landmarks.shape[0], request.gamma)
        return {"direction": Range(request.landmarks.shape, largest), "objective": Range((), 2.001)}


@dataclass(frozen=True)
class StepRequest(Request[Step], what="the present landmarks"):
    """One round of Algorithm 1: Q = ``local_steps`` steps of size ``step`` from these landmarks."""

    landmarks: Float64Array
    gamma: float
    step: float
    local_steps: int
    share: str


@answers(StepRequest)
def local_steps(client: Client, request: StepRequest) -> Step:
    """Client part of Algorithm 1: gradient steps on (12) from the landmarks received.

    For Q > 1, line 14 can be read in two ways. What is uploaded here under ``share: gradient`` is the gradient of the
    last local step, the reading under which (15) and (16) are one for Q = 1.
    """
    gamma = request.gamma
    objective, gradient = cross_term(client.rows, request.landmarks, gamma)
    if request.local_steps == 1:
        return Step(gradient, objective)
    common = landmark_term(request.landmarks, gamma)[1]
    gradient = gradient + common
    total, local = gradient, request.landmarks
    for _ in range(request.local_steps - 1):
        local = local - request.step * gradient
        gradient = cross_term(client.rows, local, gamma)[1] + landmark_term(local, gamma)[1]
        total = total + gradient
    return Step((total if request.share == "landmarks" else gradient) - common, objective)


@dataclass(frozen=True)
class LearntLandmarks:
    """Outcome of Algorithm 1: ``points`` (landmarks, features) float64, and the kernel bandwidth that was used."""

    points: Float64Array
    gamma: float


def learn_landmarks(federation: Federation, settings: DistributionLearning) -> LearntLandmarks:
    """Server part of Algorithm 1.

    Raises
    ------
    ScenarioError
        If there are more landmarks than rows.
    DataError
        If all rows of all clients are equal.
    """
    count = settings.landmark_count(federation.rows, federation.features)
    moments = wide_spread(federation)
    gamma = settings.gamma or 1.0 / median_squared_distance(federation, moments)
    step = settings.step or default_step(count, gamma)
    start = initial_landmarks(federation, moments, count, settings.initial_spread)
    state = starting(start, settings.momentum)
    aggregation, weights = settings.aggregation, settings.weights
    if settings.share == "embedding":
        learn_from_embedding(federation, settings, moments, gamma, step, state)
        return LearntLandmarks(state["landmarks"], gamma)
    constant = average(federation, SelfSimilarityRequest(gamma), aggregation, weights=weights).similarity
    server_step = settings.server_step or step
    for _ in federation.rounds(settings.steps, state):
        landmarks = state["landmarks"]
        request = StepRequest(landmarks, gamma, step, settings.local_steps, settings.share)
        answer = average(federation, request, aggregation, weights=weights)
        with one_blas_thread():
            objective, gradient = landmark_term(landmarks, gamma)
        descend(state, answer.direction + gradient, server_step, settings.momentum)
        federation.report(objective=constant + answer.objective + objective)
    return LearntLandmarks(state["landmarks"], gamma)


def initial_landmarks(
    federation: Federation, moments: Spread, count: int, initial_spread: float
) -> Float64Array:
    """Gaussian cloud around the mean of all rows, (count, features): as wide in each feature as the data, shrunk."""
    noise = federation.stream("initial landmarks").standard_normal((count, federation.features))
    return np.asarray(moments.mean + initial_spread * moments.deviation * noise)
