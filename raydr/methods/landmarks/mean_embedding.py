"""Landmarks from one release: clients send the mean of random features of their rows, and the server learns alone.

The objective (9) depends on a client's rows only through their mean embedding. Once it is known, any number
of landmarks and steps needs no further message and reveals nothing more (Balog et al. 2018; Harder et al.
2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array
from raydr.errors import RunError
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
from raydr.methods.landmarks.features import FourierFeatures, fourier_features
from raydr.methods.landmarks.frames import principal_directions, random_directions, rehearse_directions
from raydr.methods.landmarks.kernel import KERNEL_OPERATIONS
from raydr.methods.landmarks.settings import DistributionLearning
from raydr.methods.landmarks.similarity import SelfSimilarityRequest
from raydr.privacy import Mechanism, Quantity
from raydr.privacy.mechanism import moved_mean
from raydr.statistics.moments import Spread
from raydr.threads import one_blas_thread

_WITNESSES = 4


@dataclass(frozen=True)
class MeanEmbedding(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="the distribution of a client's rows, as the mean of random features",
    covers=("embedding",),
):
    """``embedding`` (D,) float64: the mean of z over the client's rows. Each z has norm 1."""

    embedding: Float64Array

    @staticmethod
    def ranges(request: MeanEmbeddingRequest, rows: int) -> dict[str, Range]:
        """Return the range: a cosine is at most 1, plus a millionth for rounding."""
        return {"embedding": Range((2 * request.count,), request.count**-0.5 * (1.0 + 1e-6))}

    def quantities(self, on: str, request: object) -> dict[str, Quantity]:
        """Return the whole reply as one quantity."""
        return {"embedding": Quantity(self.embedding)}


@dataclass(kw_only=True, frozen=True)
class MeanEmbeddingRequest(
    Request[MeanEmbedding], what="the seed of the random features, and the point from which rows are measured"
):
    """Request for the mean of the random features of :func:`fourier_features`; see there for the fields.

    It holds the seed, not the frequencies: these would be 13 MB per client on MNIST, four times a round of
    learning. ``witnesses`` are the last frequencies, by which a client checks that its numpy draws the same.
    """

    seed: int
    count: int
    gamma: float
    centre: Float64Array
    axes: Float64Array | None
    witnesses: Float64Array
    mechanism: Mechanism | None = None
    deviation: float = math.nan

    def sensitivity(self, rows: int) -> float:
        """Return the sensitivity: the features of any row have norm 1, plus a millionth for rounding."""
        return moved_mean(self.mechanism, 1.0 + 1e-6, rows)

    @property
    def features(self) -> FourierFeatures:
        """The requested features."""
        return fourier_features(self.seed, self.count, self.gamma, self.centre, self.axes)


@answers(MeanEmbeddingRequest)
def mean_embedding(client: Client, request: MeanEmbeddingRequest) -> MeanEmbedding:
    """Run the client part.

    Raises
    ------
    RunError
        If the seed gives other frequencies here than at the server.
    """
    features = request.features
    own = _witnesses(features)
    if not np.allclose(own, request.witnesses, rtol=1e-6, atol=1e-9 * float(np.abs(own).max())):
        raise RunError(
            "This client's numpy draws other random frequencies from the server's seed than the"
            " server's numpy. Use the same version of numpy on both."
        )
    return MeanEmbedding(features.mean(client.rows))


def learn_from_embedding(
    federation: Federation,
    settings: DistributionLearning,
    moments: Spread,
    gamma: float,
    step: float,
    loop: Loop[Descent],
) -> None:
    """Run the server part: one release, then gradient descent on the landmarks of the loop.

    Each step is a round without requests, so that the journal, checkpoints and the evaluation treat it as a
    round. The reported objective is (9), for rows and landmarks projected on the frequencies' axes if there
    are any. Under noise with a privacy claim, K_xx is not requested; the squared norm of the mean embedding,
    noise included, replaces it.
    """
    aggregation, weights = settings.aggregation, settings.weights
    request = _request(federation, settings, moments, gamma, _axes(federation, settings, moments))
    reply = average(federation, request, aggregation, weights=weights)
    features = request.features
    if federation.context.mechanism("embedding") is None:
        similarity = _similarity_request(federation, request)
        constant = average(federation, similarity, aggregation, weights=weights).similarity
    else:
        constant = float(reply.embedding @ reply.embedding)
    for _ in federation.rounds(settings.steps, loop):
        landmarks = loop.state.landmarks
        with one_blas_thread():
            objective, gradient = features.objective(reply.embedding, landmarks)
        loop.state = loop.state.stepped(gradient, step, settings.momentum)
        federation.keep(loop, loop.state.landmarks)
        moved = float(((loop.state.landmarks - landmarks) ** 2).sum())
        federation.report(objective=constant + objective, moved=moved)


def rehearse_embedding(
    federation: Rehearsal, settings: DistributionLearning, moments: Spread, gamma: float
) -> None:
    """Ask what :func:`learn_from_embedding` asks, and count its rounds."""
    wanted = settings.axes_of_frequencies(federation.features)
    if settings.frequencies_in == "principal":
        axes: Float64Array | None = rehearse_directions(federation, moments, wanted)
    else:
        axes = _axes(federation, settings, moments)
    request = _request(federation, settings, moments, gamma, axes)
    average(federation, request, settings.aggregation, weights=settings.weights)
    if federation.context.mechanism("embedding") is None:
        similarity = _similarity_request(federation, request)
        average(federation, similarity, settings.aggregation, weights=settings.weights)
    waves = float(request.count) * (federation.features + KERNEL_OPERATIONS)
    federation.add_operations(at_clients=2.0 * federation.rows * waves)
    landmarks = settings.landmark_count(federation.rows, federation.features)
    for _ in federation.rounds(settings.steps):
        federation.add_operations(at_server=4.0 * landmarks * waves)


def _similarity_request(federation: Federation, request: MeanEmbeddingRequest) -> SelfSimilarityRequest:
    blur = federation.context.covering("data")
    return SelfSimilarityRequest(request.gamma, request.axes, blur, request.deviation)


def _axes(federation: Federation, settings: DistributionLearning, moments: Spread) -> Float64Array | None:
    """Return the axes of the frequencies; None for any direction."""
    wanted = settings.axes_of_frequencies(federation.features)
    match settings.frequencies_in:
        case "full":
            return None
        case "principal":
            return principal_directions(federation, moments, wanted)
        case "random":
            return random_directions(federation.stream("frequency directions"), federation.features, wanted)


def _request(
    federation: Federation,
    settings: DistributionLearning,
    moments: Spread,
    gamma: float,
    axes: Float64Array | None,
) -> MeanEmbeddingRequest:
    seed = int(federation.stream("random features").integers(2**53))
    count = settings.random_features // 2
    features = fourier_features(seed, count, gamma, moments.mean, axes)
    noise = federation.context.covering("embedding")
    return MeanEmbeddingRequest(
        seed=seed,
        count=count,
        gamma=gamma,
        centre=moments.mean,
        axes=axes,
        witnesses=_witnesses(features),
        mechanism=noise,
        deviation=moments.width,
    )


def _witnesses(features: FourierFeatures) -> Float64Array:
    """Return the last frequencies, which differ if any earlier draw differs."""
    return np.asarray(features.frequencies[-1, -_WITNESSES:])
