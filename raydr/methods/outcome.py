"""What every method brings back, and the one way from a geometry to a map."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.embedding import Embedder, principal_components
from raydr.geometry.cells import find_neighbors
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import Geometry
from raydr.journal import Journal
from raydr.threads import cores


@dataclass(frozen=True)
class Note:
    """What a data owner should know of this run, for the report: a title, and paragraphs parted by empty lines."""

    title: str
    text: str

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """The paragraphs of the text."""
        return tuple(part.strip() for part in re.split(r"\n\s*\n", self.text) if part.strip())


@dataclass(kw_only=True, frozen=True)
class Outcome:
    """A map, and what is behind it.

    Attributes
    ----------
    embedding : (rows, 2) or (rows, 3) float
        Rows in client order: all rows of client 0, then of client 1, and so on.
    geometry : Geometry or None
        The distances between all rows, as far as the server could tell them; None where it cannot.
    model : mapping of name to array
        What placing new rows on the map needs; never a training row.
    notes : tuple of Note
        For the report.
    clusters : (rows,) int64 or None
        Of each row, from 0; None where the method makes no clusters.
    snapshots : mapping of round to mapping of name to array
        Models along the way, where they were asked for, of which
        :meth:`raydr.methods.method.MethodSettings.redraw` draws maps.
    published : bool
        Whether the server has the map; where it has not, each client has its own rows' places, and the evaluation all.
    stress : (iterations + 1,) float64 or None
        Where the server found the geometry by iterations of its own, which are no rounds: the stress of the start and
        after each of them.
    lift : callable or None
        The rows of features (rows, features) that stand for coordinates (rows, dimensions) of a geometry of points;
        None where the server does not tell where in the features these lie.
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


@dataclass(frozen=True)
class Placed:
    """Where new rows lie on a map, ``places`` (rows, 2 or 3), and of a method that makes clusters which they are in."""

    places: FloatArray
    clusters: Int64Array | None = None


@dataclass(frozen=True)
class Pooled:
    """What a method's centralised counterpart makes of pooled rows, in their order.

    Attributes
    ----------
    embedding : (rows, 2) or (rows, 3) float
        The map.
    clusters : (rows,) int64 or None
        Of each row, from 0; None where the method makes no clusters.
    place : callable or None
        Positions of new rows (rows, features), scaled as the pooled ones, on the map; None where it takes none.
    """

    embedding: FloatArray
    clusters: Int64Array | None = None
    place: Callable[[FloatArray], FloatArray] | None = None


@dataclass(frozen=True)
class Drawn:
    """A map (rows, dimensions), the neighbour graph that it was drawn from, and what is to be said of that."""

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
) -> Drawn:
    """Neighbour graph, first layout, embedding: the same path for federated and for pooled rows.

    Parameters
    ----------
    geometry : Geometry
        Distances between all rows.
    coordinates : (rows, dimensions)
        Whose principal components are the first layout.
    embedder : Embedder
        Draws the map.
    dimensions : {2, 3}
        Of the map.
    seed : int
        The run's seed.
    journal : Journal
        Told of the stages ``neighbours`` and ``embedding``.

    Returns
    -------
    drawn : Drawn
        The map and the graph.
    """
    # The bits depend on neither thread count (docs/determinism.md), so take every core.
    with journal.stage("neighbours"):
        needed = embedder.neighbors_needed(geometry.rows)
        recall = getattr(embedder, "neighbor_recall", 1.0)
        found = find_neighbors(geometry, needed, recall=recall, threads=cores(), progress=journal.progress)
    with journal.stage("embedding"):
        start = principal_components(coordinates, dimensions)
        embedding = embedder.embed(found.graph, start, seed=seed, threads=cores(), progress=journal.progress)
    return Drawn(embedding, found.graph, (Note("Nearest neighbours", found.said),) if found.said else ())
