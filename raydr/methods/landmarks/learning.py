"""Federated distribution learning (P1, Algorithm 1): landmarks that take on the distribution of all clients' rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from raydr.arrays import Float64Array
from raydr.errors import ScenarioError
from raydr.federation import Client, Federation, Granularity, Range, Reply, Request, answers, average
from raydr.methods.landmarks.kernel import cross_term, default_step, gradient_bound, landmark_term, row_term
from raydr.robust import Aggregation, Mean
from raydr.settings import Settings
from raydr.statistics.moments import Spread, median_squared_distance, wide_spread
from raydr.threads import one_blas_thread

_OBJECTIVE_SAMPLE = 500  # rows of each client in K_xx, which only the reported objective needs


class DistributionLearning(Settings):
    """Settings of Algorithm 1."""

    landmarks: int | None = Field(
        None,
        ge=2,
        description="number of landmarks n_y; default: twice the features, 50 to 500, at most half the rows",
    )
    rounds: int = Field(50, ge=0, description="rounds S")
    local_steps: int = Field(1, ge=1, description="gradient steps Q of each client in a round")
    share: Literal["gradient", "landmarks"] = Field(
        "gradient", description="what clients upload: gradients (16) or their landmarks (15)"
    )
    weights: Literal["clients", "rows"] = Field(
        "clients", description="omega_p: the same for each client, or by its number of rows"
    )
    gamma: float | None = Field(
        None, gt=0, description="kernel bandwidth; default: 1 / median squared distance"
    )
    step: float | None = Field(None, gt=0, description="step eta; default: n_y / (8 gamma)")
    initial_spread: float = Field(
        0.4,
        gt=0,
        description="standard deviation of the first landmarks around the mean, in those of the data",
    )
    aggregation: Aggregation = Field(
        Mean(), description="how the server combines what clients upload; robust rules see each upload"
    )

    def landmark_count(self, rows: int, features: int) -> int:
        """Number of landmarks for so many rows of so many features.

        Raises
        ------
        ScenarioError
            If more were asked for than there are rows.
        """
        count = self.landmarks or default_landmarks(rows, features)
        if count > rows:
            raise ScenarioError(
                f"method.landmarks is {count}, but the clients hold only {rows} rows:"
                f" choose at most {rows} landmarks, or leave it out."
            )
        return count

    @model_validator(mode="after")
    def _weigh_alike(self) -> DistributionLearning:
        if self.weights == "rows" and not isinstance(self.aggregation, Mean):
            raise ValueError(
                f"weights are 'rows', but an aggregation of kind {self.aggregation.kind!r} counts every client the"
                " same, since a liar could claim any number of rows: choose weights 'clients' or aggregation 'mean'"
            )
        return self


@dataclass(frozen=True)
class SelfSimilarity(
    Reply, granularity=Granularity.AGGREGATE, what="how alike a client's rows are on average (one number)"
):
    """K_xx of the objective (9), estimated on a sample."""

    similarity: float

    @staticmethod
    def ranges(request: SelfSimilarityRequest, rows: int) -> dict[str, Range]:
        """A mean of kernels, each at most 1."""
        return {"similarity": Range((), 1.001)}


@dataclass(frozen=True)
class SelfSimilarityRequest(Request[SelfSimilarity], what="the kernel bandwidth"):
    """Asked once: the part of the objective that no landmark changes."""

    gamma: float


@answers(SelfSimilarityRequest)
def self_similarity(client: Client, request: SelfSimilarityRequest) -> SelfSimilarity:
    """Client part: mean kernel between distinct rows of a sample."""
    count = client.rows.shape[0]
    sample = client.stream("objective").permutation(count)[:_OBJECTIVE_SAMPLE]
    return SelfSimilarity(row_term(client.rows[np.sort(sample)], request.gamma))


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


def learn_landmarks(
    federation: Federation, settings: DistributionLearning, *, pace: float = 1.0
) -> LearntLandmarks:
    """Server part of Algorithm 1; ``pace`` multiplies the default step.

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
    step = settings.step or pace * default_step(count, gamma)
    state = {"landmarks": initial_landmarks(federation, moments, count, settings.initial_spread)}
    aggregation, weights = settings.aggregation, settings.weights
    constant = average(federation, SelfSimilarityRequest(gamma), aggregation, weights=weights).similarity
    for _ in federation.rounds(settings.rounds, state):
        landmarks = state["landmarks"]
        request = StepRequest(landmarks, gamma, step, settings.local_steps, settings.share)
        answer = average(federation, request, aggregation, weights=weights)
        with one_blas_thread():
            objective, gradient = landmark_term(landmarks, gamma)
        state["landmarks"] = landmarks - step * (answer.direction + gradient)
        federation.report(objective=constant + answer.objective + objective)
    return LearntLandmarks(state["landmarks"], gamma)


def initial_landmarks(
    federation: Federation, moments: Spread, count: int, initial_spread: float
) -> Float64Array:
    """Gaussian cloud around the mean of all rows, (count, features): as wide in each feature as the data, shrunk."""
    noise = federation.stream("initial landmarks").standard_normal((count, federation.features))
    return np.asarray(moments.mean + initial_spread * moments.deviation * noise)


def default_landmarks(rows: int, features: int) -> int:
    """Twice the features, at least 50 and at most 500, never more than half the rows (but two)."""
    return max(2, min(max(50, 2 * features), 500, rows // 2))
