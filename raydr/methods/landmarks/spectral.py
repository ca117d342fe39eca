"""Fed-SpeClust (P1, Algorithm 3): federated spectral clustering over landmarks.

1. All parties learn landmarks Y by Algorithm 1 (:mod:`raydr.methods.landmarks.learning`), or the server
places them along the axes of a frame (:mod:`raydr.methods.landmarks.frames`).
2. Each client sends the kernel of its rows with the landmarks, K_{X_p,Y}.
3. The server estimates the similarity of all rows, never as a full matrix. With ``estimator: trilateration``
(raydr's own, the default) it recovers coordinates from the distances, and uses nearest neighbours
(``affinity: nearest-neighbors``) or the same Gaussian kernel (``rbf``). With ``estimator: nystrom`` it uses P1's K_hat
= C W_k^+ C^T as the product of a thin factor with itself. C are the blocks received, and W = K_{Y,Y}.
4. The server clusters the leading eigenvectors of the normalised K_hat.

Step 2 is the privacy cost: a kernel value is a distance, d^2 = -ln K / gamma, without noise. The map is drawn
from these distances, with the geometry of Fed-tSNE from the same landmarks, and the clusters are shown on it.
(A map of the eigenvectors would show the clusters as islands and nothing else: distances within and between
them mean little.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.embedding import COSNE, TSNE
from raydr.errors import ScenarioError
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
from raydr.geometry.points import Points
from raydr.geometry.sparse_points import points_of
from raydr.geometry.trilateration import Trilateration, solver_of, trilaterate
from raydr.journal import IncidentEvent, Journal
from raydr.methods.embedders import AnyEmbedder
from raydr.methods.landmarks.clustering import (
    Spectrum,
    factor_spectrum,
    require_places,
    spectral_clusters,
    unknown_rows,
)
from raydr.methods.landmarks.frames import frame, known_spread, rehearse_frame
from raydr.methods.landmarks.kernel import KERNEL_OPERATIONS, gaussian_kernel
from raydr.methods.landmarks.kmeans import k_means, rehearse_k_means
from raydr.methods.landmarks.learning import (
    LearntLandmarks,
    bandwidth,
    learn_landmarks,
    rehearse_learning,
)
from raydr.methods.landmarks.maps import fixed_by
from raydr.methods.landmarks.neighbor_spectrum import neighbor_spectrum
from raydr.methods.landmarks.nystrom import SimilarityFactor, require_rank, similarity_factor
from raydr.methods.landmarks.pooled_kernel import pooled_spectrum
from raydr.methods.landmarks.settings import COVERING_PACE, LandmarkSettings, require_among_rows
from raydr.methods.method import MethodSettings, method
from raydr.methods.outcome import Note, Outcome, Placed, Pooled, draw_map
from raydr.methods.references import (
    clusters_of,
    novelty_by_rows,
    placed_by_rows,
    pooled_references,
    references,
)

_LEAST = float(np.finfo(np.float64).tiny)
"""Kernel value below which doubles lose their digits: a distance of 26.6 / sqrt(gamma)."""
_PASSES = 20
"""Approximate number of products with the kernel of all rows for its leading eigenvectors, for plans."""
NEIGHBORS = 15
"""Neighbours of a row, counting itself, as UMAP's default. *Measured* on pooled rows, NMI with 5, 10, 15 and
30 others: Mice-Protein 0.44, 0.50, 0.51, 0.39; COIL-20 0.88, 0.87, 0.88, 0.83; 4,000 rows of MNIST 0.70,
0.69, 0.68, 0.66. The Gaussian kernel of bandwidth 1 / median squared distance has 0.30, 0.79 and 0.49."""


class FedSpectral(LandmarkSettings, MethodSettings):
    """Federated spectral clustering over landmarks (P1)."""

    draws_from_prior: ClassVar[bool] = True
    frame_keys: ClassVar[frozenset[str]] = LandmarkSettings.frame_keys | {"gamma"}
    kind: Literal["fed-spectral"] = "fed-spectral"
    clusters: int = Field(ge=2, description="number of clusters")
    estimator: Literal["trilateration", "nystrom"] = Field(
        "trilateration",
        description="how the kernel between rows is computed: trilateration: from the positions that"
        " the distances give; nystrom: C W_k^+ C^T (19)",
    )
    affinity: Literal["nearest-neighbors", "rbf"] | None = Field(
        None,
        description="similarity to cluster: UMAP's fuzzy set of nearest neighbours, or the Gaussian"
        " kernel between all rows; default: nearest-neighbors, with nystrom rbf",
    )
    neighbors: int | None = Field(
        None, ge=2, description="nearest neighbours of a row, counting itself; default: 15, or all rows"
    )
    step: float | None = Field(None, gt=0, description="step eta; default: n_y / (2 gamma)")
    rank: int | None = Field(None, ge=1, description="rank k of W_k; default: by rank_tolerance")
    rank_tolerance: float = Field(1e-10, ge=0, lt=1, description="relative cutoff of W's eigenvalues")
    ridge: float = Field(0.0, ge=0, description="lambda of W + lambda I")
    dimensions: Literal[2, 3] = Field(2, description="dimensions of the map")
    embedder: AnyEmbedder = Field(
        TSNE(), description="method that draws the map: a kind alone, or with its settings"
    )

    @property
    def pace(self) -> float:
        """Factor of the default step: eigenvectors need landmarks that cover the rows."""
        return COVERING_PACE

    @model_validator(mode="after")
    def _landmarks_among_the_data(self) -> FedSpectral:
        require_among_rows(self.estimator, self.origin)
        return self

    @model_validator(mode="after")
    def _rank_and_embedder_fit(self) -> FedSpectral:
        if isinstance(self.embedder, COSNE):
            raise ValueError("embedder cosne draws hyperbolic records, which fed-spectral does not have")
        idle = [
            name
            for name in ("rank", "rank_tolerance", "ridge")
            if getattr(self, name) != type(self).model_fields[name].default
        ]
        if self.estimator != "nystrom" and idle:
            raise ValueError(
                f"{' and '.join(idle)} {'apply' if len(idle) > 1 else 'applies'} to the estimator"
                f" nystrom alone: set estimator: nystrom, or leave {' and '.join(idle)} out"
            )
        if self.estimator == "nystrom" and self.affinity == "nearest-neighbors":
            raise ValueError(
                "estimator nystrom estimates the whole kernel, which has no nearest neighbours: leave"
                " affinity out, or set estimator: trilateration"
            )
        if self.neighbors is not None and not self.by_neighbors:
            raise ValueError(
                "neighbors apply to affinity: nearest-neighbors alone: leave neighbors"
                " out, or set that affinity"
            )
        if self.rank is not None and self.rank < self.clusters:
            raise ValueError(
                f"rank is {self.rank}, but {self.clusters} clusters need {self.clusters} eigenvectors:"
                f" choose at least {self.clusters}, or leave rank out"
            )
        return self

    @property
    def by_neighbors(self) -> bool:
        """Whether nearest neighbours are clustered."""
        return self.estimator == "trilateration" and self.affinity != "rbf"

    def neighbors_of(self, rows: int) -> int:
        """Return the nearest neighbours of a row among this many rows, counting itself."""
        return min(rows, NEIGHBORS) if self.neighbors is None else self.neighbors

    def check(self, rows: int, features: int) -> None:
        """Check that there are enough rows for clusters, landmarks, rank and neighbours."""
        if self.neighbors is not None and self.neighbors > rows:
            raise ScenarioError(
                f"method.neighbors is {self.neighbors}, which counts the row itself, but the clients"
                f" hold only {rows} rows. Choose at most {rows}."
            )
        if self.clusters > rows:
            raise ScenarioError(
                f"method.clusters is {self.clusters}, but the clients hold only {rows} rows. Choose at"
                f" most {rows} clusters."
            )
        if self.origin in ("learnt", "k-means"):
            landmarks = self.landmark_count(rows, features)
            if self.clusters > landmarks:
                raise ScenarioError(
                    f"method.clusters is {self.clusters}, but {landmarks} landmarks separate at most"
                    f" {landmarks} clusters. Choose more method.landmarks, or fewer clusters."
                )
            require_rank(self.rank, landmarks)
        self.embedder.neighbors_needed(rows)

    def why_dense(self, rows: int, features: int, *, pooled: bool) -> str | None:
        """Return why rows must be dense; None unless the Gaussian kernel between all pooled rows is computed."""
        if not pooled or self.by_neighbors:
            return None
        return "the Gaussian kernel of the pooled-data map takes dense rows: leave compare out"

    def posts(self) -> str:
        """Return what is sent without noise: every kernel value."""
        return "the kernel value of every record with every landmark, which gives the distance,"

    def central(
        self, model: Mapping[str, FloatArray], rows: FloatArray, seed: int, journal: Journal
    ) -> Pooled:
        """Return the clusters and the map of pooled rows (rows, features), by the run's own affinity and bandwidth."""
        with journal.stage("clusters"):
            found = place_clusters(self, rows, float(model["gamma"][0]), seed, journal)
        drawn = draw_map(
            points_of(rows), rows, self.embedder, dimensions=self.dimensions, seed=seed, journal=journal
        )
        return Pooled(
            drawn.embedding,
            found.clusters,
            place=lambda new: placed_by_rows(pooled_references(model, drawn.embedding, rows), new),
        )

    def transform(self, model: Mapping[str, FloatArray], rows: FloatArray) -> FloatArray:
        """Return positions (rows, dimensions) of new rows, locally by :mod:`raydr.methods.references`."""
        return placed_by_rows(model, rows)

    def novelty(self, model: Mapping[str, FloatArray], rows: FloatArray) -> Float64Array | None:
        """Return p-values (rows,) by the distance to the nearest reference."""
        return novelty_by_rows(model, rows)

    def predict(self, model: Mapping[str, FloatArray], rows: FloatArray) -> Int64Array:
        """Return clusters (rows,) of new rows (rows, features), from nearby references."""
        return clusters_of(model, rows)

    def admit(self, federation: Federation, model: Mapping[str, FloatArray]) -> Placed:
        """Have a joining site send the kernel of its rows with the landmarks, as the others did (P3, A.16)."""
        learnt = LearntLandmarks(np.asarray(model["landmarks"], np.float64), float(model["gamma"][0]))
        kernels = federation.ask(KernelRequest(learnt.points, learnt.gamma))[0].values
        coordinates, solver = trilaterated([kernels], learnt)
        rows = solver.points(coordinates.astype(np.float64))
        heights = solver.squared_residuals(_squared(kernels, learnt), coordinates.astype(np.float64))
        return Placed(
            placed_by_rows(model, rows), clusters_of(model, rows), novelty_by_rows(model, rows, heights)
        )

    def rehearse(self, federation: Rehearsal) -> None:
        """Ask what :func:`serve` asks."""
        self.check(federation.rows, federation.features)
        with federation.stage("landmarks"):
            if self.origin == "learnt":
                learnt = rehearse_learning(federation, self)
            else:
                with federation.by_sample():
                    moments = known_spread(federation, self)
                    gamma = bandwidth(federation, self, moments)
                if self.origin == "k-means":
                    learnt = LearntLandmarks(rehearse_k_means(federation, self, moments), gamma)
                else:
                    learnt = LearntLandmarks(rehearse_frame(federation, self, moments), gamma)
        rows, features, landmarks = federation.rows, federation.features, learnt.points
        with federation.stage("kernels"):
            federation.ask(KernelRequest(landmarks, learnt.gamma))
            federation.add_operations(at_clients=2.0 * rows * landmarks.size)
            if self.origin == "k-means":
                federation.guess("no group was assumed to be dropped", KernelRequest, Kernels)
        with federation.stage("geometry"):
            federation.add_operations(at_server=2.0 * rows * len(landmarks) * min(landmarks.shape))
        with federation.stage("clusters"):
            if self.estimator == "nystrom":
                federation.add_operations(at_server=4.0 * rows * len(landmarks) ** 2)
            else:
                passes, each = (1, 0) if self.by_neighbors else (_PASSES, KERNEL_OPERATIONS)
                federation.add_operations(at_server=float(passes) * rows**2 * (2 * features + each))


@dataclass(frozen=True)
class Kernels(
    Reply,
    granularity=Granularity.PER_RECORD,
    what="the kernel value of every record with every landmark, which gives its distance to each (d²"
    " = −ln K / γ)",
    tells=RecordContent.DISTANCES,
):
    """K_{X_p,Y} of one client, (rows, landmarks) float64.

    In double precision, because the pseudo-inverse of W, and the logarithm of values near 1, magnify
    rounding.
    """

    values: Float64Array

    @staticmethod
    def ranges(request: KernelRequest, rows: int) -> dict[str, Range]:
        """Return the range: 0 to 1 for each row and landmark."""
        return {"values": Range((rows, request.landmarks.shape[0]), 1.0)}

    def fixed(self, request: KernelRequest) -> DeterminedRecords:
        """Return the coordinates in the landmarks' hull, for rows whose values all give a distance."""
        posted = self.values[(self.values >= _LEAST).all(axis=1)]
        found = fixed_by(request.solver, -np.log(posted) / request.gamma)
        return replace(found, records=len(self.values))


@dataclass(frozen=True)
class KernelRequest(Request[Kernels], what="the landmarks and the kernel bandwidth"):
    """Request for K_{X_p,Y}; ``landmarks`` is (landmarks, features) float64."""

    landmarks: Float64Array
    gamma: float

    @cached_property
    def solver(self) -> Trilateration | None:
        """Solver from distances to coordinates; None if the landmarks coincide."""
        return solver_of(self.landmarks)


@answers(KernelRequest)
def kernels_with_landmarks(client: Client, request: KernelRequest) -> Kernels:
    """Run the client part of step 2."""
    if client.rows.shape[0] == 0:
        return Kernels(np.zeros((0, request.landmarks.shape[0])))
    rows = client.rows.astype(np.float64)
    return Kernels(np.asarray(gaussian_kernel(rows, request.landmarks, request.gamma)))


@method(FedSpectral, "Fed-SpeClust")
def serve(federation: Federation, settings: FedSpectral) -> Outcome:
    """Run the server part of Algorithm 3."""
    settings.check(federation.rows, federation.features)
    with federation.stage("landmarks"):
        learnt = landmarks_of(federation, settings)
    with federation.stage("kernels"):
        request = KernelRequest(learnt.points, learnt.gamma)
        kernels = [reply.values for reply in federation.ask(request)]
    with federation.stage("geometry"):
        vanished = sum(int((block < _LEAST).sum()) for block in kernels)
        coordinates, solver = trilaterated(kernels, learnt)
        geometry = Points(coordinates)
        heights = None
        if not vanished and not federation.context.blurred:
            ends = np.cumsum([len(block) for block in kernels])[:-1]
            each = zip(kernels, np.split(coordinates.astype(np.float64), ends), strict=True)
            heights = np.concatenate(
                [solver.squared_residuals(_squared(block, learnt), places) for block, places in each]
            )
    with federation.stage("clusters"):
        if settings.estimator == "nystrom":
            of_all = clustered(kernels, learnt, settings, federation.seed)
            clusters, note = of_all.clusters, estimate_note(of_all, vanished)
        else:
            known = np.concatenate([(block >= _LEAST).any(axis=1) for block in kernels])
            of_known = place_clusters(
                settings, coordinates[known], learnt.gamma, federation.seed, federation.journal, len(known)
            )
            clusters = np.zeros(
                len(known), np.int64
            )  # the largest cluster, for rows of which nothing is known
            clusters[known] = of_known.clusters
            note = places_note(coordinates, int((~known).sum()), vanished, of_known)
        kernels.clear()
    drawn = draw_map(
        geometry,
        coordinates,
        settings.embedder,
        dimensions=settings.dimensions,
        seed=federation.seed,
        journal=federation.journal,
        nodes=federation.nodes,
        prior=federation.context.prior,
    )
    with federation.stage("references for new rows"):
        placing = references(drawn.embedding, coordinates, solver.points, clusters, squared_heights=heights)
    model = {"landmarks": learnt.points, "gamma": np.array([learnt.gamma])} | placing
    return Outcome(
        embedding=drawn.embedding,
        geometry=geometry,
        model=model,
        notes=(note, *drawn.notes),
        clusters=clusters,
    )


def landmarks_of(federation: Federation, settings: FedSpectral) -> LearntLandmarks:
    """Run step 1: return landmarks, learnt or of a frame, and the bandwidth."""
    if settings.origin == "learnt":
        return learn_landmarks(federation, settings)
    moments = known_spread(federation, settings)
    gamma = bandwidth(federation, settings, moments)
    if settings.origin == "k-means":
        return LearntLandmarks(k_means(federation, settings, moments).points, gamma)
    return LearntLandmarks(frame(federation, settings, moments), gamma)


def places(kernels: Sequence[Float64Array], learnt: LearntLandmarks) -> FloatArray:
    """Return coordinates (rows, dimensions) float32 of all rows, from each client's kernel block."""
    return trilaterated(kernels, learnt)[0]


def trilaterated(
    kernels: Sequence[Float64Array], learnt: LearntLandmarks
) -> tuple[FloatArray, Trilateration]:
    """Return the same, by ``d^2 = -ln K / gamma``, and the solver."""
    coordinates, solver = trilaterate(learnt.points, (_squared(block, learnt) for block in kernels))
    return np.asarray(coordinates, np.float32), solver


def _squared(kernels: Float64Array, learnt: LearntLandmarks) -> Float64Array:
    """Return squared distances (rows, landmarks) from kernel values; the largest known one for values of 0."""
    return np.asarray(-np.log(np.maximum(kernels, _LEAST)) / learnt.gamma)


@dataclass(frozen=True)
class PlaceClusters:
    """Clusters of rows with coordinates.

    Attributes
    ----------
    clusters : (rows,) int64
        Numbered from 0 by falling size.
    neighbors : int or None
        Nearest neighbours of each row in its similarity, counting itself; None for the Gaussian kernel.
    converged : bool
        Whether the eigenvectors converged.
    """

    clusters: Int64Array
    neighbors: int | None
    converged: bool


def place_clusters(
    settings: FedSpectral,
    rows: FloatArray,
    gamma: float,
    seed: int,
    journal: Journal,
    count: int | None = None,
) -> PlaceClusters:
    """Cluster rows (rows, dimensions) by nearest neighbours or Gaussian kernel; ``count`` is the number of all rows."""
    require_places(rows, settings.clusters, count)
    if settings.by_neighbors:
        spectrum, neighbors, converged = neighbor_spectrum(
            points_of(rows),
            settings.clusters,
            settings.neighbors_of(len(rows)),
            seed=seed,
            progress=journal.progress,
        )
    else:
        neighbors = None
        spectrum, converged = pooled_spectrum(
            rows, gamma, settings.clusters, seed=seed, progress=journal.progress
        )
    if not converged:
        journal.tell(
            IncidentEvent("the eigenvectors for the clusters are not exact: they did not converge in time")
        )
    return PlaceClusters(spectral_clusters(spectrum.vectors, settings.clusters, seed), neighbors, converged)


def places_note(coordinates: FloatArray, unknown: int, vanished: int, found: PlaceClusters) -> Note:
    """Return a note on the similarity of all rows."""
    rows, dimensions = coordinates.shape
    if found.neighbors is None:
        paragraphs = [
            f"The kernel between all {rows:,} rows was computed from their positions in {dimensions:,}"
            " dimensions. A row's kernel values with the landmarks give its distances to them, and these"
            " determine its position."
        ]
    else:
        paragraphs = [
            f"Each of the {rows:,} rows is similar to its {found.neighbors - 1:,} nearest neighbours,"
            f" by positions in {dimensions:,} dimensions. A row's kernel values with the landmarks"
            " give its distances to them, and these determine its position."
        ]
    if unknown:
        paragraphs.append(_unknown(unknown))
    if vanished:
        paragraphs.append(_vanished(vanished))
    if not found.converged:
        paragraphs.append(
            "The leading eigenvectors did not converge in time: clusters that only a few rows connect"
            " may be split differently in another run."
        )
    return Note("What was clustered", "\n\n".join(paragraphs))


def _unknown(count: int) -> str:
    return (
        f"{count:,} rows are so far from every landmark that their kernel with all of them is 0."
        " Nothing is known about these rows, and they were assigned to the largest cluster."
    )


def _vanished(count: int) -> str:
    return (
        f"{count:,} kernel values are too small to be represented. For the map, those distances were"
        " set to the largest that can be represented. A smaller method.gamma reaches farther."
    )


@dataclass(frozen=True)
class Clustered:
    """Steps 3 and 4: the factor of K_hat, its leading eigenvectors, and the clusters (rows,) int64."""

    factor: SimilarityFactor
    spectrum: Spectrum
    clusters: Int64Array


def clustered(
    kernels: Sequence[Float64Array], learnt: LearntLandmarks, settings: FedSpectral, seed: int
) -> Clustered:
    """Cluster all rows, in client order, by each client's kernel block (rows, landmarks)."""
    factor = similarity_factor(
        kernels,
        np.asarray(gaussian_kernel(learnt.points, learnt.points, learnt.gamma)),
        ridge=settings.ridge,
        rank=settings.rank,
        rank_tolerance=settings.rank_tolerance,
    )
    spectrum = factor_spectrum(factor.rows, settings.clusters)
    return Clustered(factor, spectrum, spectral_clusters(spectrum.vectors, settings.clusters, seed))


def estimate_note(found: Clustered, vanished: int) -> Note:
    """Return a note on the estimated kernel between all rows; ``vanished`` counts received values that are 0."""
    factor, spectrum = found.factor, found.spectrum
    rows, rank = factor.rows.shape
    paragraphs = [
        f"The kernel between all {rows:,} rows was estimated from their kernel with the landmarks, at rank"
        f" {rank:,} of {rank + factor.left_out:,}."
    ]
    if factor.left_out:
        paragraphs.append(
            f"{factor.left_out:,} eigenvalues of the landmarks' own kernel were left out, because they"
            f" are no larger than rounding or because of method.rank; {factor.negative:,} of them were"
            " negative and counted as 0."
        )
    if spectrum.raised:
        paragraphs.append(
            f"{spectrum.raised:,} rows are similar to hardly any landmark: their estimated similarities"
            " to all rows add up to less than 1, the similarity of a row to itself, so 1 was used"
            " instead."
        )
    unknown = int(unknown_rows(spectrum.vectors).sum())
    if unknown:
        paragraphs.append(_unknown(unknown))
    if vanished:
        paragraphs.append(_vanished(vanished))
    return Note("What was clustered", "\n\n".join(paragraphs))
