"""Rows near a fracture of the map: where the loss is nearly flat, so that other places are almost as good.

The singularity score of a row is the inverse of the smallest curvature of its loss around its place, as in LOO-map
(:mod:`raydr.metrics.curvature`). If it were infinite, the place would jump under the smallest change of the row.
"""

from __future__ import annotations

import numpy as np

from raydr.arrays import Float64Array, Int64Array
from raydr.embedding.tsne import TSNE
from raydr.embedding.umap import UMAP, similarity_curve
from raydr.geometry.cells import find_neighbors
from raydr.geometry.equal_rows import equal_rows
from raydr.geometry.points import Geometry, Points
from raydr.metrics.curvature import Pulls, least_curvatures, tsne_terms, umap_terms
from raydr.metrics.evidence import UnmeasurableError
from raydr.threads import cores

NEAR = 3.0
"""Singularity, in medians of the map, from which a row counts as near a fracture."""


def singularities(
    geometry: Geometry,
    embedding: Float64Array,
    embedder: TSNE | UMAP,
    own: Int64Array | None = None,
    threads: int | None = None,
) -> Float64Array:
    """Return singularity scores (rows,) or (own,) of a map, in units of their median.

    A score is infinite if the place is no minimum of the row's loss.

    Parameters
    ----------
    geometry : Geometry
        True distances of the rows, from which the affinities follow.
    embedding : (rows, 2) or (rows, 3) float64
        The map.
    embedder : TSNE or UMAP
        What drew it.
    own : (own,) int64, optional
        Rows of a sample. None for all. A row's affinities need the neighbours of all rows, which are found as for the
        embedder: for very many rows, in near cells. Its repulsion is of all rows. Only the median is of the sample.
    threads : int, optional
        Number of threads. The result does not depend on it.

    Raises
    ------
    UnmeasurableError
        If at least half of the places are no minimum of their loss.
    DataError, ScenarioError
        If there are too few rows for the embedder.
    """
    some = np.arange(geometry.rows) if own is None else own
    equal = equal_rows(geometry) if isinstance(geometry, Points) else None
    if equal is not None:  # they count once in the layout
        geometry, embedding = geometry.take(equal.first), embedding[equal.first]
        some, place = np.unique(equal.group_of_row[some], return_inverse=True)
    rows = geometry.rows
    needed, recall = embedder.neighbors_needed(rows), embedder.neighbor_recall
    graph = find_neighbors(geometry, needed, recall=recall, threads=threads).graph
    if isinstance(embedder, TSNE):
        from raydr.embedding.kernels.affinities import joint_affinities

        found = joint_affinities(graph, embedder.effective_perplexity(rows), threads or cores())
        pulls = Pulls.of(some, found.ends, found.tails, np.float64(embedder.exaggeration) * found.weights)
        terms = tsne_terms(embedding, some, pulls, threads)
    else:
        from raydr.embedding.kernels.fuzzy_set import fuzzy_set

        similar = fuzzy_set(graph)
        a, b = similarity_curve(embedder.spread, embedder.min_dist)
        terms = umap_terms(
            embedding,
            some,
            Pulls.of(some, similar.indptr.astype(np.int64), similar.indices, similar.data),
            a=a,
            b=b,
            negative_samples=embedder.negative_samples,
            threads=threads,
        )
    curvatures = least_curvatures(terms)
    middle = float(np.median(curvatures))
    if middle <= 0.0:
        raise UnmeasurableError(
            "half of the places are no minimum of the loss: give the embedder more iterations"
        )
    relative = np.full(len(some), np.inf)
    relative[curvatures > 0.0] = middle / curvatures[curvatures > 0.0]
    return relative if equal is None else relative[place]
