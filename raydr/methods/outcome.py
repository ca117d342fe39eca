"""What every method brings back, and the one way from a geometry to a map."""

from __future__ import annotations

from dataclasses import dataclass, field

from raydr.arrays import Float64Array, FloatArray
from raydr.embedding import Embedder, principal_components
from raydr.geometry import Geometry
from raydr.journal import Journal
from raydr.neighbors import nearest_neighbors
from raydr.threads import cores


@dataclass(frozen=True)
class Outcome:
    """A map, and what is behind it.

    Attributes
    ----------
    embedding : (rows, 2) float
        Rows in client order: all rows of client 0, then of client 1, and so on.
    geometry : Geometry
        The distances between all rows, as far as the server could tell them.
    model : mapping of name to array
        What placing new rows on the map needs; never a training row.
    """

    embedding: FloatArray
    geometry: Geometry
    model: dict[str, Float64Array] = field(default_factory=dict)


def draw_map(
    geometry: Geometry, coordinates: FloatArray, embedder: Embedder, *, seed: int, journal: Journal
) -> FloatArray:
    """Neighbour graph, first layout, embedding: the same path for federated and for pooled rows.

    Parameters
    ----------
    geometry : Geometry
        Distances between all rows.
    coordinates : (rows, dimensions)
        Whose two principal components are the first layout.
    embedder : Embedder
        Draws the map.
    seed : int
        The run's seed.
    journal : Journal
        Told of the stages ``neighbours`` and ``embedding``.

    Returns
    -------
    embedding : (rows, 2)
    """
    # The bits depend on neither thread count (docs/determinism.md), so take every core.
    with journal.stage("neighbours"):
        needed = embedder.neighbors_needed(geometry.rows)
        graph = nearest_neighbors(geometry, needed, threads=cores(), progress=journal.progress)
    with journal.stage("embedding"):
        start = principal_components(coordinates)
        return embedder.embed(graph, start, seed=seed, threads=cores(), progress=journal.progress)
