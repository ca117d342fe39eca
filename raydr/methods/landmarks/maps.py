"""Fed-tSNE and Fed-UMAP (P1, Algorithm 2).

1. All parties learn landmarks Y by Algorithm 1 (:mod:`raydr.methods.landmarks.learning`), or the server
places them along the axes of a frame (:mod:`raydr.methods.landmarks.frames`).
2. Each client sends the distances from its rows to the landmarks, B of (21).
3. The server estimates the distances between all rows from B, in one of three ways.
4. The server draws a map of those distances by t-SNE or UMAP.

Step 2 is the privacy cost: a record's distances to known points leave its client without noise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from raydr.arrays import Float64Array, FloatArray
from raydr.embedding import TSNE, UMAP
from raydr.federation import (
    Client,
    DeterminedRecords,
    Federation,
    Granularity,
    Range,
    RecordContent,
    Rehearsal,
    Reply,
    Request,
    answers,
)
from raydr.geometry.blocks import in_blocks
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import Geometry, Points, Progress, squared_distances, unheard
from raydr.geometry.trilateration import EXACT_SHARE, Trilateration, fixed_rows, solver_of, trilaterate
from raydr.journal import Journal
from raydr.methods.landmarks.frames import frame, known_spread, rehearse_frame
from raydr.methods.landmarks.kmeans import k_means, rehearse_k_means
from raydr.methods.landmarks.learning import learn_landmarks, rehearse_learning
from raydr.methods.landmarks.nystrom import NystromGeometry, nystrom, require_rank
from raydr.methods.landmarks.settings import COVERING_PACE, LEAST_GROUP, LandmarkSettings, require_among_rows
from raydr.methods.method import MethodSettings, method
from raydr.methods.outcome import Note, Outcome, Placed, draw_map
from raydr.methods.references import novelty_by_rows, placed, placed_by_rows, references

POSTED = "the distance of every record to every landmark"
"""Data on each record that leave its client."""


class LandmarkMap(LandmarkSettings, MethodSettings, ABC):
    """Common settings of Fed-tSNE and Fed-UMAP, which are also the embedder of the map."""

    draws_from_prior: ClassVar[bool] = True
    estimator: Literal["trilateration", "nystrom", "nystrom-squared"] = Field(
        "trilateration",
        description="how geometry is recovered from distances: trilateration, or Nystrom (22) on"
        " distances or on squared distances",
    )
    step: float | None = Field(
        None,
        gt=0,
        description="step eta; default: n_y / (8 gamma), or n_y / (2 gamma) with a Nystrom estimator",
    )
    ridge: float = Field(0.0, ge=0, description="lambda of W + lambda I, for the Nystrom estimators")
    rank: int | None = Field(
        None, ge=1, description="rank k of W_k, for the Nystrom estimators; default: by rank_tolerance"
    )
    rank_tolerance: float = Field(
        1e-10, ge=0, lt=1, description="relative cutoff of W's eigenvalues, for the Nystrom estimators"
    )
    dimensions: Literal[2, 3] = Field(2, description="dimensions of the map")

    @model_validator(mode="after")
    def _rank_is_used(self) -> LandmarkMap:
        if self.rank is not None and self.estimator == "trilateration":
            raise ValueError(
                "rank applies to the Nystrom estimators, but estimator is trilateration: choose"
                " another estimator, or leave rank out"
            )
        return self

    @property
    def pace(self) -> float:
        """Factor of the default step: larger for Nystrom estimates."""
        return 1.0 if self.estimator == "trilateration" else COVERING_PACE

    @abstractmethod
    def neighbors_needed(self, rows: int) -> int:
        """See :meth:`raydr.embedding.Embedder.neighbors_needed`."""

    @abstractmethod
    def embed(
        self,
        graph: NeighborGraph,
        initialization: FloatArray,
        *,
        seed: int,
        threads: int = 1,
        progress: Progress = unheard,
    ) -> FloatArray:
        """See :meth:`raydr.embedding.Embedder.embed`."""

    def why_dense(self, rows: int, features: int, *, pooled: bool) -> None:
        """Return None: clients send distances to landmarks, which need one block of rows at a time."""

    def check(self, rows: int, features: int) -> None:
        """Check that there are enough rows for landmarks and neighbours, and enough landmarks for a rank."""
        if self.origin in ("learnt", "k-means"):
            require_rank(self.rank, self.landmark_count(rows, features))
        self.neighbors_needed(rows)

    @model_validator(mode="after")
    def _landmarks_among_the_data(self) -> LandmarkMap:
        require_among_rows(self.estimator, self.origin)
        return self

    def posts(self) -> str:
        """Return what is sent without noise: every distance."""
        return POSTED

    def redraw(
        self,
        snapshot: Mapping[str, FloatArray],
        parts: Sequence[FloatArray],
        seed: int,
        journal: Journal,
    ) -> Outcome:
        """Run steps 2 to 4 without clients, on each client's rows, for landmarks of an earlier round."""
        landmarks = np.asarray(snapshot["landmarks"], np.float64)
        found = recovered([_squared(rows, landmarks) for rows in parts], landmarks, self)
        drawn = draw_map(
            found.geometry, found.coordinates, self, dimensions=self.dimensions, seed=seed, journal=journal
        )
        return Outcome(embedding=drawn.embedding, geometry=found.geometry)

    def rehearse(self, federation: Rehearsal) -> None:
        """Ask what :func:`serve` asks."""
        self.check(federation.rows, federation.features)
        with federation.stage("landmarks"):
            if self.origin == "learnt":
                landmarks = rehearse_learning(federation, self).points
            elif self.origin == "k-means":
                with federation.by_sample():
                    moments = known_spread(federation, self)
                landmarks = rehearse_k_means(federation, self, moments)
            else:
                landmarks = rehearse_frame(federation, self)
        with federation.stage("distances"):
            federation.ask(DistanceRequest(landmarks))
            federation.add_operations(at_clients=2.0 * federation.rows * landmarks.size)
            if self.origin == "k-means":
                federation.guess("no group was assumed to be dropped", DistanceRequest, Distances)
        with federation.stage("geometry"):
            federation.add_operations(at_server=2.0 * federation.rows * len(landmarks) * min(landmarks.shape))

    def coordinate_bytes(self, rows: int, features: int) -> int:
        """Return the bytes of two copies of coordinates in the landmarks' span."""
        framed = self.origin in ("principal", "random")
        landmarks = (self.frame_count if framed else self.landmark_count)(rows, features)
        return super().coordinate_bytes(rows, min(landmarks, features))

    def why_no_label(self) -> str | None:
        """Return why a label cannot take part in distances: held-out digits had an accuracy of 0.10 (0.96 without)."""
        if self.estimator != "trilateration":
            return (
                f"estimator {self.estimator} gives the distances of new rows only to records with labels: set"
                " method.estimator to trilateration"
            )
        return super().why_no_label()

    def transform(self, model: Mapping[str, FloatArray], rows: FloatArray) -> FloatArray:
        """Return positions (rows, dimensions) of new rows, locally by :mod:`raydr.methods.references`."""
        if self.estimator == "trilateration":
            return placed_by_rows(model, rows)
        landmarks = np.asarray(model["landmarks"], np.float64)
        return self._placed_by_posted(model, in_blocks(lambda block: _squared(block, landmarks), rows))

    def novelty(self, model: Mapping[str, FloatArray], rows: FloatArray) -> Float64Array | None:
        """Return p-values (rows,) by the distance to the nearest reference; None for estimated distances."""
        return novelty_by_rows(model, rows) if self.estimator == "trilateration" else None

    def admit(self, federation: Federation, model: Mapping[str, FloatArray]) -> Placed:
        """Have a joining site send the distances of its rows to the landmarks, as the others did (P3, A.16)."""
        landmarks = np.asarray(model["landmarks"], np.float64)
        squared = federation.ask(DistanceRequest(landmarks))[0].squared
        if self.estimator == "trilateration":
            coordinates, solver = trilaterate(landmarks, [squared])
            rows, heights = solver.points(coordinates), solver.squared_residuals(squared, coordinates)
            return Placed(placed_by_rows(model, rows), novelty=novelty_by_rows(model, rows, heights))
        return Placed(self._placed_by_posted(model, squared))

    def _placed_by_posted(self, model: Mapping[str, FloatArray], posted: Float64Array) -> Float64Array:
        """Return positions of rows from squared distances (rows, landmarks), by Nystrom's estimate."""
        known, power = np.asarray(model["references"], np.float64), _power(self)

        def estimated(block: Float64Array) -> Float64Array:
            squared = NystromGeometry(block**power, known, power == 1.0).squared_distance_block(0, len(block))
            # An estimate is not a metric: a row's least may be below 0, and only differences from it count.
            return np.asarray(squared - squared.min(axis=1, keepdims=True))

        return placed(model, estimated, posted)


class FedTSNE(TSNE, LandmarkMap):
    """Federated t-SNE over landmarks (P1)."""

    kind: Literal["fed-tsne"] = "fed-tsne"  # type: ignore[assignment]


class FedUMAP(UMAP, LandmarkMap):
    """Federated UMAP over landmarks (P1)."""

    kind: Literal["fed-umap"] = "fed-umap"  # type: ignore[assignment]


@dataclass(frozen=True)
class Distances(
    Reply,
    granularity=Granularity.PER_RECORD,
    what=POSTED,
    tells=RecordContent.DISTANCES,
):
    """Squared distances of one client's rows to the landmarks, (rows, landmarks) float64.

    In double precision, because coordinates come from differences of these: in single precision, data whose
    features have very different scales lose their geometry.
    """

    squared: Float64Array

    @staticmethod
    def ranges(request: DistanceRequest, rows: int) -> dict[str, Range]:
        """Return the range: one number for each row and landmark."""
        return {"squared": Range((rows, request.landmarks.shape[0]))}

    def fixed(self, request: DistanceRequest) -> DeterminedRecords:
        """Return the coordinates in the landmarks' hull that the distances determine."""
        return fixed_by(request.solver, self.squared)


@dataclass(frozen=True)
class DistanceRequest(Request[Distances], what="the landmarks"):
    """Request for B of (21); ``landmarks`` is (landmarks, features) float64."""

    landmarks: Float64Array

    @cached_property
    def solver(self) -> Trilateration | None:
        """Solver from distances to coordinates; None if the landmarks coincide."""
        return solver_of(self.landmarks)


def fixed_by(solver: Trilateration | None, squared: Float64Array) -> DeterminedRecords:
    """Return what squared distances (rows, landmarks) determine about rows."""
    rows, landmarks = squared.shape
    if solver is None:
        return DeterminedRecords(records=rows, exact=0, dimensions=0, features=0, points=landmarks)
    return DeterminedRecords(
        records=rows,
        exact=fixed_rows(solver, squared),
        dimensions=solver.rank,
        features=solver.centre.size,
        points=landmarks,
    )


@answers(DistanceRequest)
def distances_to_landmarks(client: Client, request: DistanceRequest) -> Distances:
    """Run the client part of step 2."""
    return Distances(_squared(client.rows, request.landmarks))


def _squared(rows: FloatArray, landmarks: Float64Array) -> Float64Array:
    if rows.shape[0] == 0:
        return np.zeros((0, landmarks.shape[0]))
    return np.asarray(squared_distances(rows.astype(np.float64), landmarks))


@method(FedUMAP, "Fed-UMAP")
@method(FedTSNE, "Fed-tSNE")
def serve(federation: Federation, settings: LandmarkMap) -> Outcome:
    """Run the server part of Algorithm 2."""
    settings.check(federation.rows, federation.features)
    with federation.stage("landmarks"):
        landmarks, model, snapshots = _landmarks(federation, settings)
    with federation.stage("distances"):
        messages = [reply.squared for reply in federation.ask(DistanceRequest(landmarks))]
    with federation.stage("geometry"):
        found = recovered(messages, landmarks, settings)
        messages.clear()
    drawn = draw_map(
        found.geometry,
        found.coordinates,
        settings,
        dimensions=settings.dimensions,
        seed=federation.seed,
        journal=federation.journal,
        nodes=federation.nodes,
        prior=federation.context.prior,
    )
    with federation.stage("references for new rows"):
        model = dict(model) | references(
            drawn.embedding,
            found.coordinates,
            found.standing,
            squared_heights=None
            if found.solver is None or federation.context.blurred
            else found.squared_residuals,
        )
    notes = drawn.notes + _notes(len(landmarks), settings)
    if found.solver is not None:
        noise, keyed = federation.context.coverage, federation.context.isometry_key
        noisy = noise is not None and noise.mechanism.on == "data"
        notes += (landmarks_note(found, found.solver, settings.origin, keyed=keyed, noisy=noisy),)
    return Outcome(
        embedding=drawn.embedding, geometry=found.geometry, model=model, notes=notes, snapshots=snapshots
    )


def _landmarks(
    federation: Federation, settings: LandmarkMap
) -> tuple[Float64Array, Mapping[str, FloatArray], Mapping[int, Mapping[str, FloatArray]]]:
    """Return the landmarks, what the run keeps of them, and those of earlier rounds."""
    if settings.origin == "k-means":
        groups = k_means(federation, settings, known_spread(federation, settings))
        along = {round: {"landmarks": points} for round, points in groups.snapshots.items()}
        return groups.points, {"landmarks": groups.points}, along
    if settings.origin != "learnt":
        points = frame(federation, settings)
        return points, {"landmarks": points}, {}
    learnt = learn_landmarks(federation, settings)
    return learnt.points, learnt.model, learnt.snapshots


def _notes(count: int, settings: LandmarkMap) -> tuple[Note, ...]:
    """Return a note if fewer landmarks were placed than requested."""
    if settings.landmarks is None or count == settings.landmarks:
        return ()
    if settings.origin == "k-means":
        return (
            Note(
                "Fewer landmarks than asked for",
                f"method.landmarks is {settings.landmarks}, and {count} were kept. The others had fewer"
                f" than {LEAST_GROUP} records, and the run does not keep means of fewer.",
            ),
        )
    return (
        Note(
            "Fewer landmarks than asked for",
            f"method.landmarks is {settings.landmarks}, and {count} were placed: {count - 1}"
            f" {settings.origin} directions already span everything that the distances depend on, and"
            " more landmarks would give the server no more information.",
        ),
    )


@dataclass(frozen=True)
class Recovered:
    """Geometry that the server recovers from the distances.

    Attributes
    ----------
    geometry : Geometry
        Distances between all rows, in client order.
    coordinates : (rows, rank)
        Their principal components start the map: the rows' coordinates, or for Nystrom their rows of B V.
    solver : Trilateration or None
        Solver of the coordinates; None for Nystrom, whose coordinates are not positions.
    standing : callable
        From mean coordinates to references for new rows. These are rows of features, or for Nystrom the factor
        by which distances of a row to the landmarks are multiplied.
    squared_residuals : (rows,) float64
        Squared lengths of what the coordinates leave out; empty without a solver.
    """

    geometry: Geometry
    coordinates: FloatArray
    solver: Trilateration | None = None
    standing: Callable[[Float64Array], Float64Array] = lambda means: means
    squared_residuals: Float64Array = field(default_factory=lambda: np.zeros(0))


def recovered(squared: Sequence[Float64Array], landmarks: Float64Array, settings: LandmarkMap) -> Recovered:
    """Estimate the distances between all rows from each client's squared distances (rows, landmarks)."""
    match settings.estimator:
        case "trilateration":
            return trilaterated(squared, landmarks)[0]
        case "nystrom" | "nystrom-squared":
            power = _power(settings)
            estimate = nystrom(
                (block**power for block in squared),
                Points(landmarks).squared_distance_block(0, landmarks.shape[0]).astype(np.float64) ** power,
                squared=power == 1.0,
                ridge=settings.ridge,
                rank=settings.rank,
                rank_tolerance=settings.rank_tolerance,
            )
            return Recovered(estimate, estimate.right, standing=estimate.factor)


def _power(settings: LandmarkMap) -> float:
    """Return the power of squared distances that the estimator uses."""
    return 1.0 if settings.estimator == "nystrom-squared" else 0.5


def trilaterated(squared: Sequence[Float64Array], landmarks: Float64Array) -> tuple[Recovered, Trilateration]:
    """Return coordinates of all rows within the landmarks' span, their distances from it, and the solver."""
    coordinates, solver = trilaterate(landmarks, squared)
    near = coordinates.astype(np.float32)
    ends = np.cumsum([len(block) for block in squared])[:-1]
    outside = map(solver.squared_residuals, squared, np.split(coordinates, ends))
    return Recovered(Points(near), near, solver, solver.points, np.concatenate(list(outside))), solver


def landmarks_note(found: Recovered, solver: Trilateration, origin: str, *, keyed: bool, noisy: bool) -> Note:
    """Return a note on how much of each record its distances reveal."""
    squared = (found.coordinates.astype(np.float64) ** 2).sum(axis=1) + found.squared_residuals
    outside = np.sqrt(found.squared_residuals / np.where(squared > 0.0, squared, 1.0))
    within, (span, features) = int((outside < EXACT_SHARE).sum()), solver.basis.shape
    written = (
        "knows which, but not how the clients' key rotated them"
        if keyed
        else "knows which, and can reconstruct them, feature by feature"
        + (", including their noise" if noisy else "")
    )
    return Note(
        "What the landmarks reveal, and what the map leaves out",
        f"Each client sent the server the distance of every record to {len(solver.squared_norms)}"
        f" landmarks ({origin}), which span {span} of {features} dimensions. Within the span, the"
        f" server can compute each record's coordinates by solving linear equations. Here {within:,} of"
        f" {len(outside):,} records ({within / len(outside):.0%}) lie within {EXACT_SHARE:.1%} of the span: the"
        f" server {written}. The part of a record outside the span is not in the map's distances. For"
        f" the median record it is {np.median(outside):.2%} of its distance from the landmarks' mean. If"
        " that share is large, more landmarks make the map more faithful, and reveal more.",
    )
