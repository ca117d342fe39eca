"""Landmark NE: one shared encoder, trained on neighbours among the records of all clients.

FedNE's clients train on neighbours within a client, and no such training finds the other neighbours
(docs/fedne.md). In Landmark NE, clients send their rows' distances to landmarks once, as in Fed-tSNE (P1,
Algorithm 2, steps 1 and 2). From these the server computes each row's coordinates within the span of the
landmarks. This is all that training needs, so the server trains by itself on the neighbours among all rows
(P2 (1)). Sending the encoder to clients would cost rounds and reveal more.

The encoder sees coordinates along the principal axes A of the rows within the span, A^T (x - m). Its first
layer, multiplied by A^T, takes features, so that any holder of the encoder can place new rows locally, as
with FedNE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from raydr.arrays import Float32Array, Float64Array, FloatArray
from raydr.federation import Federation, Rehearsal
from raydr.geometry.trilateration import Trilateration
from raydr.methods.fedne.model import model_of, weights_of_prior
from raydr.methods.fedne.pooled import SharedEncoder, rehearse_training, standard, trained_at_server
from raydr.methods.fedne.positions import positions_of
from raydr.methods.fedne.settings import SCHEDULE
from raydr.methods.landmarks.frames import frame, rehearse_frame
from raydr.methods.landmarks.maps import POSTED, DistanceRequest, landmarks_note, trilaterated
from raydr.methods.landmarks.settings import LandmarkSettings
from raydr.methods.method import method
from raydr.methods.outcome import Outcome
from raydr.methods.references import compared_groups
from raydr.privacy import Mechanism
from raydr.statistics.principal_axes import signed
from raydr.statistics.scaling import Scaling
from raydr.threads import one_blas_thread


class LandmarkNE(SharedEncoder):
    """One encoder, trained at the server on row coordinates recovered from distances to landmarks as in Fed-tSNE."""

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
        """Landmark settings of the frame."""
        return LandmarkSettings(landmarks=self.landmarks, landmarks_from=self.landmarks_from)

    @property
    def rounds_asked(self) -> int:
        """Return 0: distances are sent once."""
        return 0

    def releases(self, noise: Mechanism) -> int:
        """Return the releases of the frame."""
        return self.frame.releases(noise)

    def posts(self) -> str:
        """Return what is sent without noise: every distance."""
        return POSTED

    def why_dense(self, rows: int, features: int, *, pooled: bool) -> str | None:
        """Return why rows must be dense: the pooled-data map trains an encoder on the rows themselves."""
        return (
            "the pooled-data map of method.kind 'landmark-ne' takes dense rows: leave compare out"
            if pooled
            else None
        )

    def why_no_key(self) -> None:
        """Return None: the key may rotate rows, because all results depend on distances alone."""

    def rehearse(self, federation: Rehearsal) -> None:
        """Ask what :func:`serve` asks."""
        with federation.stage("landmarks"):
            landmarks = rehearse_frame(federation, self.frame)
        with federation.stage("distances"):
            federation.ask(DistanceRequest(landmarks))
            federation.add_operations(at_clients=2.0 * federation.rows * landmarks.size)
        with federation.stage("training"):
            rehearse_training(federation, self, min(landmarks.shape))


@method(LandmarkNE, "landmark NE")
def serve(federation: Federation, settings: LandmarkNE) -> Outcome:
    """Run the server part of landmark NE."""
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
    # The encoder of features decides, of which that of coordinates is a part.
    hidden = settings.widths(federation.features)
    settings = settings.model_copy(update={"hidden": hidden})
    narrow = Architecture(coordinates.shape[1], hidden)
    wide = Architecture(federation.features, hidden)
    factor = np.full(federation.features, scaling.factor[0])
    shift = axes.centre + axes.directions @ scaling.shift
    prior, first = federation.context.prior, None
    if prior is not None:
        earlier = wide.parts(weights_of_prior(prior.model, wide, wide=False))
        before = Scaling(
            *(np.asarray(prior.model[f"encoder.{name}"], np.float64) for name in ("shift", "factor"))
        )
        first = of_coordinates(earlier, axes.directions, before, Scaling(shift, factor))
    with federation.stage("training"):
        weights = trained_at_server(federation, coordinates, settings, first)
    with federation.stage("map"):
        places = positions_of(coordinates, weights, hidden)
    layers = wide.layers(of_features(narrow.parts(weights), axes.directions))
    model = model_of(layers, Scaling(shift, factor))
    if not federation.context.blurred:
        with federation.stage("references for new rows"):
            model |= compared_groups(places, found.coordinates, found.standing, found.squared_residuals)
    noise, keyed = federation.context.coverage, federation.context.isometry_key
    noisy = noise is not None and noise.mechanism.on == "data"
    note = landmarks_note(found, solver, settings.landmarks_from, keyed=keyed, noisy=noisy)
    return Outcome(embedding=places, geometry=found.geometry, model=model, notes=(note,))


@dataclass(frozen=True)
class Axes:
    """Principal axes of all rows within the span of the landmarks.

    Attributes
    ----------
    centre : (features,) float64
        Mean of the rows within the span.
    directions : (features, axes) float64
        Orthonormal columns, of largest variance first. Their signs are fixed by the features, as in `signed`.
        The solver's own coordinates rotate with rounding if landmarks lie equally far from their centre in
        all directions.
    coordinates : (rows, axes) float32
        Coordinates of the rows along the axes, relative to the centre.
    """

    centre: Float64Array
    directions: Float64Array
    coordinates: Float32Array


def axes_of(coordinates: FloatArray, solver: Trilateration) -> Axes:
    """Return the principal axes of rows with these solver coordinates (rows, rank)."""
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


def of_coordinates(
    layers: list[Float32Array], directions: Float64Array, before: Scaling, now: Scaling
) -> Float32Array:
    """Convert an encoder of features into one of coordinates along ``directions`` (features, axes).

    It reads features scaled by ``before``, and the new one coordinates that are those of features scaled by ``now``.
    Within the span of the directions, both give the same places.
    """
    first, offset = layers[0].astype(np.float64) * before.factor[:, None], layers[1].astype(np.float64)
    with one_blas_thread():
        turned = (directions / now.factor[:, None]).T @ first
        moved = offset + (now.shift - before.shift) @ first
    return np.concatenate([turned.ravel(), moved.ravel(), *(layer.ravel() for layer in layers[2:])]).astype(
        np.float32
    )


def of_features(layers: list[Float32Array], directions: Float64Array) -> Float32Array:
    """Convert an encoder of coordinates into one of features; return its weights (parameters,)."""
    with one_blas_thread():
        first = directions @ layers[0].astype(np.float64)
    return np.concatenate([first.ravel(), *(layer.ravel() for layer in layers[1:])]).astype(np.float32)
