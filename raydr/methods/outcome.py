"""Results of methods, and the common path from a geometry to a map."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.embedding import Embedder, StartsFromPlaces, principal_components
from raydr.errors import DataError, ScenarioError
from raydr.federation.context import Prior
from raydr.geometry.cells import Nodes, find_neighbors
from raydr.geometry.equal_rows import EqualRows, equal_rows
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import Geometry, Points
from raydr.geometry.sparse_points import SparsePoints
from raydr.journal import Journal
from raydr.sparse_rows import rows_taken
from raydr.threads import cores

EQUAL_ROWS = (
    "{repeated:,} of {rows:,} rows equal an earlier row, up to rounding. Equal rows have one place on the map and count"
    " once in its layout."
)


@dataclass(frozen=True)
class Note:
    """Note to data owners about this run, for the report: a title, and paragraphs separated by empty lines."""

    title: str
    text: str

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """The paragraphs of the text."""
        return tuple(part.strip() for part in re.split(r"\n\s*\n", self.text) if part.strip())


@dataclass(kw_only=True, frozen=True)
class Outcome:
    """A map, and the data behind it.

    Attributes
    ----------
    embedding : (rows, 2) or (rows, 3) float
        Rows in client order: all rows of client 0, then of client 1, and so on.
    geometry : Geometry or None
        The distances between all rows that the server recovered; None if it cannot.
    model : mapping of name to array
        Model for new rows; never holds a training row.
    notes : tuple of Note
        Notes for the report.
    clusters : (rows,) int64 or None
        Cluster of each row, from 0; None if the method makes no clusters.
    snapshots : mapping of round to mapping of name to array
        Models of earlier rounds, if requested. :meth:`raydr.methods.method.MethodSettings.redraw` draws maps of them.
    published : bool
        Whether the server has the map. If not, each client has the positions of its own rows, and the
        evaluation has all.
    stress : (iterations + 1,) float64 or None
        Stress at the start and after each iteration, if the server found the geometry by iterations that are
        not rounds.
    lift : callable or None
        From coordinates (rows, dimensions) of a geometry of points to rows of features (rows, features); None
        if the server does not know their position among the features.
    own_models : tuple of mapping of name to array
        Model of each client, if each draws a map of its own. They stay at the clients, and the evaluation has all.
    """

    embedding: FloatArray
    geometry: Geometry | None
    model: Mapping[str, FloatArray] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    clusters: Int64Array | None = None
    snapshots: Mapping[int, Mapping[str, FloatArray]] = field(default_factory=dict)
    published: bool = True
    stress: Float64Array | None = None
    lift: Callable[[FloatArray], Float64Array] | None = None
    own_models: tuple[Mapping[str, FloatArray], ...] = ()


@dataclass(frozen=True)
class Placed:
    """Positions of new rows on a map, ``places`` (rows, 2 or 3), and their clusters if the method has any.

    ``novelty`` (rows,) has p-values (:mod:`raydr.methods.novelty`). It is None if the run kept nothing to compare with.
    """

    places: FloatArray
    clusters: Int64Array | None = None
    novelty: Float64Array | None = None


@dataclass(frozen=True)
class Pooled:
    """Result of a method's centralised counterpart on pooled rows, in their order.

    Attributes
    ----------
    embedding : (rows, 2) or (rows, 3) float
        The map.
    clusters : (rows,) int64 or None
        Cluster of each row, from 0; None if the method makes no clusters.
    place : callable or None
        Positions of new rows (rows, features), scaled as the pooled ones, on the map; None if it takes none.
    """

    embedding: FloatArray
    clusters: Int64Array | None = None
    place: Callable[[FloatArray], FloatArray] | None = None


@dataclass(frozen=True)
class Drawn:
    """A map (rows, dimensions), its neighbour graph, and notes on that."""

    embedding: FloatArray
    graph: NeighborGraph
    notes: tuple[Note, ...] = ()


def draw_map(
    geometry: Geometry,
    coordinates: FloatArray,
    embedder: Embedder,
    *,
    dimensions: int = 2,
    seed: int,
    journal: Journal,
    nodes: Nodes | None = None,
    prior: Prior | None = None,
) -> Drawn:
    """Compute neighbour graph, initial layout and embedding, for federated and pooled rows alike.

    Equal points have one position and count once in the layout, if enough points differ for the embedder. In the graph,
    they have the neighbours of their first row.

    Parameters
    ----------
    geometry : Geometry
        Distances between all rows.
    coordinates : (rows, dimensions)
        Their principal components are the initial layout.
    embedder : Embedder
        Draws the map.
    dimensions : {2, 3}
        Dimensions of the map.
    seed : int
        The run's seed.
    journal : Journal
        Receives the stages ``neighbours`` and ``embedding``.
    nodes : Nodes, optional
        Processes on several machines that search for neighbours.
    prior : Prior, optional
        An earlier map, to start from its places instead. The embedder must be a :class:`StartsFromPlaces`.

    Returns
    -------
    drawn : Drawn
        The map and the graph.
    """
    equal = _equal_rows(geometry, embedder)
    if equal is not None:
        geometry, coordinates = geometry.take(equal.first), rows_taken(coordinates, equal.first)
    # The bits depend on no thread count (docs/determinism.md), so use every core.
    with journal.stage("neighbours"):
        needed = embedder.neighbors_needed(geometry.rows)
        recall = getattr(embedder, "neighbor_recall", 1.0)
        found = find_neighbors(
            geometry, needed, recall=recall, threads=cores(), progress=journal.progress, nodes=nodes
        )
    with journal.stage("embedding"):
        if prior is not None and isinstance(embedder, StartsFromPlaces):
            places = prior.places if equal is None else equal.first_known(prior.places)
            embedding = embedder.embed_from(
                found.graph, places, seed=seed, threads=cores(), progress=journal.progress
            )
        else:
            start = principal_components(coordinates, dimensions)
            embedding = embedder.embed(
                found.graph, start, seed=seed, threads=cores(), progress=journal.progress
            )
    notes: tuple[Note, ...] = ()
    if found.description:
        notes += (Note("Nearest neighbours", found.description),)
    graph = found.graph
    if equal is not None:
        rows = equal.group_of_row
        embedding = embedding[rows]
        graph = NeighborGraph(equal.first[graph.indices][rows], graph.distances[rows])
        notes += (Note("Equal rows", EQUAL_ROWS.format(repeated=equal.repeated, rows=len(rows))),)
    return Drawn(embedding, graph, notes)


def _equal_rows(geometry: Geometry, embedder: Embedder) -> EqualRows | None:
    """Return the groups of equal rows; None if all differ or too few for the embedder do."""
    equal = equal_rows(geometry) if isinstance(geometry, Points | SparsePoints) else None
    if equal is None:
        return None
    try:
        embedder.neighbors_needed(len(equal.first))
    except (DataError, ScenarioError):
        return None
    return equal
