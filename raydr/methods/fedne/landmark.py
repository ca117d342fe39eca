"""Landmark NE: an encoder for everybody that knows every record's neighbours, wherever they are.

FedNE's clients train on neighbours at home, and no training on these finds the others again (docs/fedne.md). Here
clients post, once, their rows' distances to landmarks, as for Fed-tSNE (P1, Algorithm 2, steps 1 and 2): from these the
server tells each row's coordinates in what the landmarks span. It has then all that training wants, and trains by
itself on the neighbours among all rows (P2 (1)); to send the encoder round would cost rounds, and tell more.

The encoder sees coordinates along the rows' principal axes A within the span, A^T (x - m). Its first layer behind A^T
is one that sees features, so that whoever has it places new rows at home, as by FedNE's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from raydr.arrays import Float32Array, Float64Array, FloatArray
from raydr.federation import Federation, Rehearsal
from raydr.geometry.trilateration import Trilateration
from raydr.methods.fedne.model import model_of
from raydr.methods.fedne.pooled import SharedEncoder, rehearse_training, standard, trained_at_server
from raydr.methods.fedne.positions import positions_of
from raydr.methods.fedne.settings import SCHEDULE
from raydr.methods.landmarks.frames import frame, rehearse_frame
from raydr.methods.landmarks.maps import POSTED, DistanceRequest, told_note, trilaterated
from raydr.methods.landmarks.settings import LandmarkSettings
from raydr.methods.method import method
from raydr.methods.outcome import Outcome
from raydr.privacy import Mechanism
from raydr.statistics.principal_axes import signed
from raydr.statistics.scaling import Scaling
from raydr.threads import one_blas_thread


class LandmarkNE(SharedEncoder):
    """One encoder on rows' coordinates among landmarks, which the server tells from distances as Fed-tSNE's does."""

    kind: Literal["landmark-ne"] = "landmark-ne"
    learning_rate: float = Field(3e-3, gt=0, le=1, description="Adam's learning rate in the first rounds")
    schedule: Literal["steps", "cosine"] = Field("cosine", description=SCHEDULE)
    landmarks: int | None = Field(
        None,
        ge=2,
        description="number of landmarks: one more than the directions that they span; features + 1"
        " span all; default: at most 500",
    )
    landmarks_from: Literal["principal", "random"] = Field(
        "principal",
        description="position of the landmarks: along the principal axes of all rows, or along random"
        " directions",
    )
    noise_on: ClassVar[frozenset[str]] = frozenset({"data", "moments"})

    @property
    def frame(self) -> LandmarkSettings:
        """The landmarks, as what makes them is told of them."""
        return LandmarkSettings(landmarks=self.landmarks, landmarks_from=self.landmarks_from)

    @property
    def rounds_asked(self) -> int:
        """None: distances are posted once."""
        return 0

    def releases(self, noise: Mechanism) -> int:
        """The frame's."""
        return self.frame.releases(noise)

    def posts(self) -> str:
        """Every distance, as it is."""
        return POSTED

    def unkeyable(self) -> None:
        """They can be turned: all depends on distances."""

    def rehearse(self, federation: Rehearsal) -> None:
        """Ask what :func:`serve` asks."""
        with federation.stage("landmarks"):
            landmarks = rehearse_frame(federation, self.frame)
        with federation.stage("distances"):
            federation.ask(DistanceRequest(landmarks))
            federation.reckon(at_clients=2.0 * federation.rows * landmarks.size)
        with federation.stage("training"):
            rehearse_training(federation, self, min(landmarks.shape))


@method(LandmarkNE, "landmark NE")
def serve(federation: Federation, settings: LandmarkNE) -> Outcome:
    """Server part of landmark NE."""
    from raydr.methods.fedne.encoder import Architecture

    with federation.stage("landmarks"):
        landmarks = frame(federation, settings.frame)
    with federation.stage("distances"):
        messages = [reply.squared for reply in federation.ask(DistanceRequest(landmarks))]
    with federation.stage("geometry"):
        found, solver = trilaterated(messages, landmarks)
        messages.clear()
    axes = axes_of(found.coordinates, solver)
    coordinates, scaling = standard(axes.coordinates, settings)
    with federation.stage("training"):
        weights = trained_at_server(federation, coordinates, settings)
    with federation.stage("map"):
        places = positions_of(coordinates, weights, settings.hidden)
    narrow = Architecture(coordinates.shape[1], settings.hidden)
    wide = Architecture(federation.features, settings.hidden)
    factor = np.full(federation.features, scaling.factor[0])
    shift = axes.centre + axes.directions @ scaling.shift
    layers = wide.layers(of_features(narrow.parts(weights), axes.directions))
    model = model_of(layers, Scaling(shift, factor, False))
    noise, keyed = federation.context.coverage, federation.context.isometry_key
    noisy = noise is not None and noise.mechanism.on == "data"
    note = told_note(found, solver, settings.landmarks_from, keyed=keyed, noisy=noisy)
    return Outcome(embedding=places, geometry=found.geometry, model=model, notes=(note,))


@dataclass(frozen=True)
class Axes:
    """Principal axes of all rows within what landmarks span.

    Attributes
    ----------
    centre : (features,) float64
        Mean of the rows, as far as it lies there.
    directions : (features, axes) float64
        Orthonormal columns, of largest variance first. Their signs are of the features, as `signed` has them: what
        solves for coordinates turns with any rounding, where landmarks lie as far from their centre in all directions.
    coordinates : (rows, axes) float32
        Of the rows along them, seen from the centre.
    """

    centre: Float64Array
    directions: Float64Array
    coordinates: Float32Array


def axes_of(coordinates: FloatArray, solver: Trilateration) -> Axes:
    """Principal axes of rows with these coordinates (rows, rank) by a solver."""
    exact = coordinates.astype(np.float64)
    mean = exact.mean(axis=0)
    exact -= mean
    with one_blas_thread():
        turn = np.linalg.eigh(exact.T @ exact)[1][:, ::-1]
        along = solver.basis.T @ turn
        directions = signed(along)
        flipped = np.sign((directions * along).sum(axis=0))
        turned = (exact @ turn) * flipped
    return Axes(solver.points(mean[None])[0], directions, turned.astype(np.float32))


def of_features(layers: list[Float32Array], directions: Float64Array) -> Float32Array:
    """Weights (parameters,) of the encoder that sees features where the one of these layers sees coordinates."""
    with one_blas_thread():
        first = directions @ layers[0].astype(np.float64)
    return np.concatenate([first.ravel(), *(layer.ravel() for layer in layers[1:])]).astype(np.float32)
