"""Fed-tSNE and Fed-UMAP (P1, Algorithm 2).

1. All learn landmarks Y by Algorithm 1 (:mod:`raydr.methods.landmarks.learning`).
2. Each client posts the distances from its rows to the landmarks, B of (21).
3. The server estimates the distances between all rows from B, in one of three ways.
4. The server draws a map of those distances by t-SNE or UMAP.

Step 2 is what the method costs: a record's distances to known points leave its client in the clear.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from raydr.arrays import Float64Array, FloatArray
from raydr.embedding import TSNE, UMAP
from raydr.federation import Client, Federation, Granularity, Range, Reply, Request, answers
from raydr.geometry.points import Geometry, Points, squared_distances
from raydr.geometry.trilateration import trilaterate
from raydr.journal import Journal
from raydr.methods.landmarks.learning import DistributionLearning, learn_landmarks
from raydr.methods.landmarks.nystrom import nystrom
from raydr.methods.method import MethodSettings, method
from raydr.methods.outcome import Outcome, draw_map


class LandmarkMap(DistributionLearning, MethodSettings, ABC):
    """Settings that Fed-tSNE and Fed-UMAP share, which are also the embedder that draws the map."""

    estimator: Literal["trilateration", "nystrom", "nystrom-squared"] = Field(
        "trilateration",
        description="geometry from distances: trilateration, or Nystrom (22) on distances or on squared distances",
    )
    ridge: float = Field(0.0, ge=0, description="lambda of W + lambda I, for the Nystrom estimators")
    rank_tolerance: float = Field(
        1e-10, ge=0, lt=1, description="relative cut of W's eigenvalues, for the Nystrom estimators"
    )

    @abstractmethod
    def neighbors_needed(self, rows: int) -> int:
        """See :meth:`raydr.embedding.Embedder.neighbors_needed`."""

    def check(self, rows: int, features: int) -> None:
        """Landmarks and neighbours must be there for so many rows."""
        self.landmark_count(rows, features)
        self.neighbors_needed(rows)


class FedTSNE(TSNE, LandmarkMap):
    """Federated t-SNE over learnt landmarks (P1)."""

    kind: Literal["fed-tsne"] = "fed-tsne"  # type: ignore[assignment]


class FedUMAP(UMAP, LandmarkMap):
    """Federated UMAP over learnt landmarks (P1)."""

    kind: Literal["fed-umap"] = "fed-umap"  # type: ignore[assignment]


@dataclass(frozen=True)
class Distances(
    Reply, granularity=Granularity.PER_RECORD, what="the distance of every record to every landmark"
):
    """Squared distances of one client's rows to the landmarks, (rows, landmarks) float64.

    In double precision: coordinates come out of differences of these, and in single precision data whose features
    are far from each other in scale lose their geometry.
    """

    squared: Float64Array

    @staticmethod
    def ranges(request: DistanceRequest, rows: int) -> dict[str, Range]:
        """One number for each row and landmark."""
        return {"squared": Range((rows, request.landmarks.shape[0]))}


@dataclass(frozen=True)
class DistanceRequest(Request[Distances], what="the learnt landmarks"):
    """Ask for B of (21); ``landmarks`` is (landmarks, features) float64."""

    landmarks: Float64Array


@answers(DistanceRequest)
def distances_to_landmarks(client: Client, request: DistanceRequest) -> Distances:
    """Client part of step 2."""
    return Distances(_squared(client.rows, request.landmarks))


def _squared(rows: FloatArray, landmarks: Float64Array) -> Float64Array:
    if rows.shape[0] == 0:
        return np.zeros((0, landmarks.shape[0]))
    return np.asarray(squared_distances(rows.astype(np.float64), landmarks))


def redraw(
    settings: FedTSNE | FedUMAP,
    snapshot: Mapping[str, Float64Array],
    parts: Sequence[FloatArray],
    seed: int,
    journal: Journal,
) -> Outcome:
    """Steps 2 to 4 without clients, on each client's rows: what the evaluation draws of landmarks along the way."""
    landmarks = snapshot["landmarks"]
    squared = [_squared(rows, landmarks) for rows in parts]
    geometry, coordinates = recovered_geometry(squared, landmarks, settings)
    drawn = draw_map(geometry, coordinates, settings, seed=seed, journal=journal)
    return Outcome(drawn.embedding, geometry)


@method(FedUMAP, "Fed-UMAP", redraw=redraw)
@method(FedTSNE, "Fed-tSNE", redraw=redraw)
def serve(federation: Federation, settings: FedTSNE | FedUMAP) -> Outcome:
    """Server part of Algorithm 2."""
    settings.check(federation.rows, federation.features)
    with federation.stage("landmarks"):
        learnt = learn_landmarks(federation, settings)
    with federation.stage("distances"):
        messages = [reply.squared for reply in federation.ask(DistanceRequest(learnt.points))]
    with federation.stage("geometry"):
        geometry, coordinates = recovered_geometry(messages, learnt.points, settings)
        messages.clear()
    drawn = draw_map(geometry, coordinates, settings, seed=federation.seed, journal=federation.journal)
    return Outcome(drawn.embedding, geometry, learnt.model, snapshots=learnt.snapshots)


def recovered_geometry(
    squared: Sequence[Float64Array], landmarks: Float64Array, settings: LandmarkMap
) -> tuple[Geometry, FloatArray]:
    """Distances between all rows, estimated from each client's squared distances (rows, landmarks).

    Returns
    -------
    geometry : Geometry
        Of all rows, in client order.
    coordinates : (rows, rank)
        Whose principal components start the map: the rows' coordinates, or for Nystrom their rows of B.
    """
    match settings.estimator:
        case "trilateration":
            coordinates = trilaterate(landmarks, squared)[0].astype(np.float32)
            return Points(coordinates), coordinates
        case "nystrom" | "nystrom-squared":
            power = 1.0 if settings.estimator == "nystrom-squared" else 0.5
            estimate = nystrom(
                (block**power for block in squared),
                Points(landmarks).squared_distance_block(0, landmarks.shape[0]).astype(np.float64) ** power,
                squared=power == 1.0,
                ridge=settings.ridge,
                rank_tolerance=settings.rank_tolerance,
            )
            return estimate, estimate.right
