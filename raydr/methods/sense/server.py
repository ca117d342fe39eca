"""SENSE (P3, Algorithm 1): one exchange of distances to anchors, then everything at the server.

1. The server shows anchors to the clients: all the same, or some to each client alone.
2. Each client sends the squared distances of its records to the anchors that it sees (block F of (8)). If it has
several records, it also sends what the distances between them add (block G).
3. The server completes the geometry: in closed form, or by SMACOF (11).
4. It draws a map of that geometry.

Step 2 is the privacy cost. The notes of the outcome say how much of each record the server can reconstruct.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from raydr.arrays import Float64Array, FloatArray
from raydr.embedding import COSNE
from raydr.federation import Federation, Rehearsal
from raydr.federation.context import Prior
from raydr.geometry.blocks import in_blocks
from raydr.geometry.cells import Nodes
from raydr.geometry.expected_points import ExpectedPoints
from raydr.geometry.hyperbolic import Hyperboloid, from_ball
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import Geometry, Progress, unheard
from raydr.geometry.sparse_points import points_of
from raydr.journal import Journal
from raydr.methods.landmarks.learning import LearntLandmarks, rehearse_learning
from raydr.methods.landmarks.settings import DistributionLearning
from raydr.methods.method import method
from raydr.methods.novelty import MOMENTS, SCORED, SCORES, calibration, p_values
from raydr.methods.outcome import Drawn, Note, Outcome, Placed, Pooled, draw_map
from raydr.methods.references import label_columns, placed, references, without_labels
from raydr.methods.sense.algorithm_2 import require_small
from raydr.methods.sense.alignment import aligning_operations
from raydr.methods.sense.anchor_counts import open_spread
from raydr.methods.sense.anchors import Anchors, chosen_anchors
from raydr.methods.sense.clients import AnchorRequest, AnchorRequests
from raydr.methods.sense.completion import multisite_points, pointwise_points
from raydr.methods.sense.frames import AffineFrame
from raydr.methods.sense.lorentz_geometry import ExpectedHyperboloid
from raydr.methods.sense.new_rows import map_scale, place
from raydr.methods.sense.notes import notes
from raydr.methods.sense.observations import Observations
from raydr.methods.sense.reduced_basis import Lift, Narrow
from raydr.methods.sense.settings import SenseSettings
from raydr.methods.sense.smacof import smacof_operations
from raydr.methods.sense.spaces import EuclideanSpace, Space
from raydr.privacy.mechanism import Coverage, Mechanism
from raydr.statistics.moments import spread

NEIGHBORS = 3
"""Nearest references that place a new row in the disk; 2 to 5 are as good (digits: 0.93)."""


@dataclass(kw_only=True, frozen=True)
class Completed:
    """The geometry of all records, before any map.

    Attributes
    ----------
    anchors : Anchors
        Anchors that the clients saw.
    space : Space
        Space of the records.
    points : (records, dimensions) float64
        In client order, in narrow coordinates.
    narrow : Narrow
        Coordinate system of the points.
    geometry : Geometry
        Distances between them, or those expected.
    notes : tuple of Note
        What the server could find out.
    stress : (iterations + 1,) float64 or None
        Stress at the start and after each iteration, if the solver iterates.
    """

    anchors: Anchors
    space: Space
    points: Float64Array
    narrow: Narrow
    geometry: Geometry
    notes: tuple[Note, ...]
    stress: Float64Array | None = None

    @property
    def drawn_from(self) -> Geometry:
        """Distances that the map is drawn from: of points with residuals in one direction, not those expected.

        Expected distances are nearer to the true ones, but maps of them keep fewer of ten neighbours: up to 0.025 by
        t-SNE and UMAP on 1,000 rows of six data sets, with 5 to 50 anchors.
        """
        return self.geometry.points if isinstance(self.geometry, ExpectedPoints) else self.geometry

    @property
    def lift(self) -> Lift | None:
        """Map from points to features of the data; None if rows are not points of that space."""
        if not isinstance(self.space, EuclideanSpace):
            return None
        if self.narrow.spanned is None:
            return Lift(self.space.origin)
        return Lift(self.space.origin, (self.anchors.common, *self.anchors.local), self.narrow.spanned)


def completed(federation: Federation, settings: SenseSettings) -> Completed:
    """Run steps 1 to 3: anchors, distances, geometry."""
    with federation.stage("anchors"):
        anchors = chosen_anchors(federation, settings)
        space = settings.space.around(anchors.common)
        observations = _observed(federation, settings, anchors, space)
    with federation.stage("distances"):
        replies = federation.ask(_addressed(requests_for(federation, settings, anchors, space)))
    with federation.stage("geometry"):
        squared, levels = [reply.squared for reply in replies], [reply.noise for reply in replies]
        factors = [reply.inside for reply in replies]
        replies.clear()
        spread = None
        exact = settings.visibility == "full" and federation.context.coverage is None
        if exact and isinstance(space, EuclideanSpace):
            together = [np.concatenate(squared)] if settings.regime == "pointwise" else squared
            spread = open_spread(anchors.common, together)
        if settings.regime == "pointwise":
            points, known = pointwise_points(federation, settings, space, anchors, squared, levels)
        else:
            points, known = multisite_points(federation, settings, space, anchors, squared, factors, levels)
    source = settings.source(federation.public)
    server_notes = notes(settings, observations, known, source, federation.context.coverage, spread)
    geometry = known.geometry or space.geometry(points)
    return Completed(
        anchors=anchors,
        space=space,
        points=points,
        narrow=known.narrow,
        geometry=geometry,
        notes=server_notes,
        stress=known.stress,
    )


def rehearse_anchors(federation: Federation, settings: DistributionLearning) -> LearntLandmarks:
    """Ask what the learning of anchors asks."""
    if not isinstance(federation, Rehearsal):
        raise TypeError("anchors can be rehearsed in a Rehearsal alone")
    return rehearse_learning(federation, settings)


def _observed(
    federation: Federation, settings: SenseSettings, anchors: Anchors, space: Space
) -> Observations:
    """Return what the server will observe; refuse unusable settings before any request."""
    space.frame(space.points(anchors.seen_by(0)))
    if settings.solver == "smacof-dense":
        require_small(federation.rows + len(anchors.all))
    sizes = federation.sizes
    return Observations(
        settings.regime, settings.visibility, len(anchors.common), anchors.local.shape[1], sizes
    )


def _addressed(requests: AnchorRequests) -> AnchorRequests | AnchorRequest:
    """Return one request for each client, or the common one."""
    return requests if len(requests.own) > 1 else requests.own[0]


def new_rows_model(
    settings: SenseSettings, known: Completed, drawn: Drawn, rng: np.random.Generator
) -> dict[str, FloatArray]:
    """Return the model for new rows: the references of :mod:`raydr.methods.references`.

    In the disk also the scale for (23).
    """
    chart, space = known.space.chart(known.points), known.space

    def rows(means: Float64Array) -> Float64Array:
        return space.rows(known.narrow.widened(means, rng))

    return {"anchors": known.anchors.common} | _placing(settings, drawn, chart, rows)


def novelty_model(known: Completed, drawn: Drawn) -> dict[str, FloatArray]:
    """Return what new rows are compared with, along the anchors; empty if clients saw anchors of their own."""
    space = known.space
    if not isinstance(space, EuclideanSpace) or known.anchors.local.size or len(known.anchors.common) < 2:
        return {}
    hull = AffineFrame(known.narrow.of_anchors(space.points(known.anchors.common)))
    any_directions = np.random.default_rng(0)  # nothing lies outside the hull
    return calibration(
        drawn.embedding,
        hull.projected(known.points),
        hull.squared_heights(known.points),
        lambda within: space.rows(known.narrow.widened(hull.solver.points(within), any_directions)),
    )


def _placing(
    settings: SenseSettings, drawn: Drawn, chart: FloatArray, rows: Callable[[Float64Array], Float64Array]
) -> dict[str, FloatArray]:
    """Return references on a map; ``rows`` turns means of ``chart`` (rows, features) into rows of a table."""
    scale: dict[str, FloatArray] = {}
    if isinstance(settings.embedder, COSNE):
        nearest = drawn.graph.nearest(min(NEIGHBORS, drawn.graph.k))
        scale["map_scale"] = np.array([map_scale(nearest, drawn.embedding)])
    return scale | references(drawn.embedding, chart, rows)


def requests_for(
    federation: Federation, settings: SenseSettings, anchors: Anchors, space: Space
) -> AnchorRequests:
    """Return one request for all clients if they see the same anchors, else one for each."""
    mechanisms: tuple[Mechanism | None, ...] = (None,) * federation.clients
    deviation, coverage = 0.0, _added_here(federation)
    if coverage is not None:
        mechanisms = coverage.of_each(federation.clients, federation.stream("noisy clients"))
        if coverage.mechanism.on == "data":
            deviation = spread(federation).width
    alike = not anchors.local.size and len(set(mechanisms)) == 1
    return AnchorRequests(
        tuple(
            AnchorRequest(
                anchors.seen_by(client),
                space,
                settings.regime == "multisite",
                mechanism,
                deviation,
            )
            for client, mechanism in enumerate(mechanisms[:1] if alike else mechanisms)
        )
    )


def _added_here(federation: Federation) -> Coverage | None:
    """Return the noise still to add to distances or rows; records with permanent noise need none."""
    coverage = federation.context.coverage
    return None if coverage is not None and coverage.mechanism.for_good else coverage


@dataclass(frozen=True)
class ByDepth:
    """CO-SNE of records with known depth: it keeps their norms (rows,) in their own ball.

    CO-SNE's distances have curvature -1, and ``curvature`` is that of the graph's.
    """

    embedder: COSNE
    norms: Float64Array
    curvature: float

    @property
    def neighbor_recall(self) -> float:
        """As the embedder's own."""
        return self.embedder.neighbor_recall

    def neighbors_needed(self, rows: int) -> int:
        """As the embedder's own."""
        return self.embedder.neighbors_needed(rows)

    def embed(
        self,
        graph: NeighborGraph,
        initialization: FloatArray,
        *,
        seed: int,
        threads: int = 1,
        progress: Progress = unheard,
    ) -> FloatArray:
        """As the embedder's own, with the norms."""
        graph = NeighborGraph(graph.indices, graph.distances * np.float32(np.sqrt(self.curvature)))
        return self.embedder.embed(
            graph, initialization, seed=seed, threads=threads, progress=progress, norms=self.norms
        )


def draw(
    geometry: Geometry,
    chart: FloatArray,
    settings: SenseSettings,
    seed: int,
    journal: Journal,
    nodes: Nodes | None = None,
    prior: Prior | None = None,
) -> Drawn:
    """Draw a map of a geometry by the embedder of the settings, starting from ``chart`` (rows, features)."""
    embedder = settings.embedder
    if isinstance(embedder, COSNE) and isinstance(geometry, Hyperboloid | ExpectedHyperboloid):
        embedder = ByDepth(embedder, np.linalg.norm(geometry.ball, axis=1), settings.curvature)
    return draw_map(
        geometry,
        chart,
        embedder,
        dimensions=settings.dimensions,
        seed=seed,
        journal=journal,
        nodes=nodes,
        prior=prior,
    )


class SENSE(SenseSettings):
    """SENSE: geometry from the distances to anchors, in one exchange (P3)."""

    noise_on: ClassVar[frozenset[str]] = frozenset({"data", "distances"})
    some_noisy: ClassVar[bool] = True
    draws_from_prior: ClassVar[bool] = True

    @property
    def rounds_asked(self) -> int:
        """Number of rounds in which anchors are learnt."""
        return self.learning.rounds_asked if self.anchor_source == "learnt" else 0

    @property
    def public_file(self) -> str | None:
        """Path of the file of anchors."""
        return self.anchor_path

    def why_no_key(self) -> str | None:
        """Return why rows may not be keyed: a key also shifts them."""
        if self.geometry == "euclidean":
            return None
        return "hyperbolic points depend on their distance to the origin, which the key's shift changes: leave it out"

    def why_dense(self, rows: int, features: int, *, pooled: bool) -> str | None:
        """Return why rows must be dense; None in Euclidean space."""
        if self.geometry == "euclidean":
            return None
        return "points of hyperbolic space are dense: set method.geometry to euclidean"

    def why_no_label(self) -> str | None:
        """Return why a label cannot take part in distances; None if it can."""
        if self.geometry != "euclidean":
            return "hyperbolic distances have no part of a label: set method.geometry to euclidean"
        return super().why_no_label()

    @property
    def is_euclidean(self) -> bool:
        """Whether distances in the data and on the map are Euclidean."""
        return self.geometry == "euclidean" and not isinstance(self.embedder, COSNE)

    def truth(self, rows: FloatArray) -> Geometry | None:
        """Return the true distances between pooled rows (rows, features), if not their Euclidean ones."""
        if self.geometry == "euclidean":
            return None
        return self.space.geometry(self.space.points(rows))

    def mapped(self, embedding: FloatArray) -> Geometry | None:
        """Return distances on a map in the Poincare disk or ball; None for Euclidean maps."""
        if not isinstance(self.embedder, COSNE):
            return None
        return Hyperboloid(from_ball(embedding))

    def central(
        self, model: Mapping[str, FloatArray], rows: FloatArray, seed: int, journal: Journal
    ) -> Pooled:
        """Return the map of pooled rows by the same embedder."""
        space, known = self.space, self.truth(rows)
        chart = rows if known is None else space.chart(space.points(rows))
        drawn = draw(points_of(rows) if known is None else known, chart, self, seed, journal)
        return Pooled(
            drawn.embedding,
            place=lambda new: self.transform(
                without_labels(_placing(self, drawn, chart, space.rows), label_columns(model)), new
            ),
        )

    def transform(self, model: Mapping[str, FloatArray], rows: FloatArray) -> FloatArray:
        """Return positions (rows, dimensions) of new rows (rows, features) on the map, without a server.

        By :mod:`raydr.methods.references`; in the disk, whose distances are not those of positions, by P3
        (23).
        """
        space = self.space
        points, known = space.points(rows), space.points(model["references"])
        if not isinstance(self.embedder, COSNE):
            return placed(model, lambda block: space.squared_distances(block, known), points)
        neighbors = min(NEIGHBORS, len(known))
        return in_blocks(
            lambda block: place(
                np.sqrt(space.squared_distances(block, known)),
                model["reference_positions"],
                neighbors=neighbors if neighbors > 1 else None,
                scale=float(model["map_scale"][0]),
            ),
            points,
        )

    def novelty(self, model: Mapping[str, FloatArray], rows: FloatArray) -> Float64Array | None:
        """Return p-values (rows,) by distances along the anchors, and from their hull; None in hyperbolic space."""
        space = self.space
        if not {SCORES, SCORED, MOMENTS} & set(model) or not isinstance(space, EuclideanSpace):
            return None
        hull = AffineFrame(space.points(model["anchors"]))
        known = hull.projected(space.points(model["references"]))

        def squared_distances(block: Float64Array) -> Float64Array:
            points = space.points(block)
            within = space.squared_distances(hull.projected(points), known)
            return within + hull.squared_heights(points)[:, None]

        return p_values(model, squared_distances, np.asarray(rows, np.float64))

    def admit(self, federation: Federation, model: Mapping[str, FloatArray]) -> Placed | None:
        """Have a joining site send the distances of its rows to the anchors that all clients saw, and complete them.

        Residuals are laid along one direction, as for pointwise records. If no anchor was seen by all
        clients, the site places its rows locally.
        """
        common = np.asarray(model["anchors"], np.float64)
        if len(common) < 2:
            return None
        anchors = Anchors(common, np.zeros((0, 0, common.shape[1])))
        space, coverage = self.space.around(common), _added_here(federation)
        request = AnchorRequest(common, space, False, coverage.mechanism if coverage is not None else None)
        reply = federation.ask(request)[0]
        closed = self.model_copy(update={"solver": "closed-form"})
        each, levels = [row[None] for row in reply.squared], [reply.noise] * len(reply.squared)
        points, known = pointwise_points(federation, closed, space, anchors, each, levels)
        rows = space.rows(known.narrow.widened(space.chart(points), federation.stream("references")))
        return Placed(self.transform(model, rows), novelty=self.novelty(model, rows))

    def rehearse(self, federation: Rehearsal) -> None:
        """Ask what :func:`completed` asks; the width of the clients' factors follows from the anchors themselves."""
        self.check(federation.rows, federation.features)
        with federation.by_sample(), federation.stage("anchors"):
            anchors = chosen_anchors(federation, self, learn=rehearse_anchors)
            space = self.space.around(anchors.common)
            _observed(federation, self, anchors, space)
            requests = requests_for(federation, self, anchors, space)
        features, seen = federation.features, anchors.seen_by_each
        with federation.stage("distances"):
            federation.ask(_addressed(requests))
            federation.add_operations(at_clients=4.0 * federation.rows * seen * features)
        with federation.stage("geometry"):
            blocks = federation.clients if anchors.local.size or self.regime == "multisite" else 1
            federation.add_operations(at_clients=20.0 * blocks * seen * features * min(seen, features))
            federation.add_operations(at_clients=4.0 * federation.rows * seen * features)
            if self.regime == "multisite" and self.alignment == "likeness" and seen <= features:
                federation.add_operations(at_server=aligning_operations(federation.sizes, seen, features))
            if self.solver == "smacof":
                pairs = sum(size * (size + seen) for size in federation.sizes)
                federation.add_operations(at_clients=smacof_operations(pairs, features, self.iterations))
            if self.solver == "smacof-dense":
                points = federation.rows + len(anchors.all)
                federation.add_operations(at_server=10.0 * federation.rows**3)
                federation.add_operations(at_server=4.0 * self.iterations * points**2 * features)

    def coordinate_bytes(self, rows: int, features: int) -> int:
        """Return the bytes of four copies of each feature, or of the anchors' span and one more direction."""
        common, local = self.per_client(features, rows)
        alike = self.regime == "pointwise" and not local and self.solver == "closed-form"
        return 4 * 8 * rows * (min(features, common + 1) if alike else features)

    def server_bytes(self, rows: int, features: int, clients: int) -> int:
        """Return bytes for frames of the anchors, and with ``smacof-dense`` for six matrices over all anchors and rows.

        Each client has its own frame if it is a separate problem.
        """
        common, local = self.per_client(features, rows)
        problems = clients if local or self.regime == "multisite" else 1
        frames = 3 * 8 * problems * (common + local) * features
        if self.solver != "smacof-dense":
            return frames
        return frames + 6 * 8 * (rows + common + local * clients) ** 2


@method(SENSE, "SENSE")
def serve(federation: Federation, settings: SENSE) -> Outcome:
    """Run the server part of Algorithm 1."""
    settings.check(federation.rows, federation.features)
    known = completed(federation, settings)
    chart = known.space.chart(known.points)
    drawn = draw(
        known.drawn_from,
        chart,
        settings,
        federation.seed,
        federation.journal,
        federation.nodes,
        federation.context.prior,
    )
    with federation.stage("references for new rows"):
        model = new_rows_model(settings, known, drawn, federation.stream("references"))
        if not federation.context.blurred:
            model |= novelty_model(known, drawn)
    return Outcome(
        embedding=drawn.embedding,
        geometry=known.geometry,
        model=model,
        notes=known.notes + drawn.notes,
        stress=known.stress,
        lift=known.lift,
    )
