"""Leading eigenvectors of a neighbour graph: what spectral clustering by nearest neighbours clusters.

A kernel of one bandwidth for all rows is too narrow where rows are sparse and too wide where they are dense. A row's
similarity to its nearest neighbours falls at a rate of its own instead, UMAP's fuzzy set, and to all others it is 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydr.arrays import Float64Array
from raydr.embedding.umap import fuzzy_set
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Geometry, Progress, unheard
from raydr.methods.landmarks.clustering import Spectrum
from raydr.threads import cores, one_blas_thread

TOLERANCE = 1e-6
"""Of an eigenvector: relative residual at which Lanczos' iteration ends."""
RESTARTS = 3_000
"""Of Lanczos' iteration at most. 10 vectors of 40,000 rows take some 60."""
DENSE = 400
"""Rows up to which all eigenvectors are computed."""


def neighbor_spectrum(
    geometry: Geometry, count: int, neighbors: int, *, seed: int, progress: Progress = unheard
) -> tuple[Spectrum, int, bool]:
    """Leading eigenvectors of D^-1/2 A D^-1/2 with A the fuzzy set of each row's nearest neighbours.

    A graph of more parts than eigenvectors asked for has no leading eigenvectors, but a larger space of them: whatever
    basis of it comes out would be chance. Neighbours are doubled until it has as many parts at most.

    Parameters
    ----------
    geometry : Geometry
        Distances between all rows.
    count : int
        Eigenvectors; fewer than rows.
    neighbors : int
        Nearest neighbours of a row, itself among them.
    seed : int
        Of the first vector of the iteration.
    progress : callable
        Of the search for neighbours.

    Returns
    -------
    spectrum : Spectrum
        Of ``count`` eigenvectors.
    neighbors : int
        As many as were needed.
    converged : bool
        Whether all residuals are within `TOLERANCE`.
    """
    from scipy.sparse import csc_array, diags_array
    from scipy.sparse.csgraph import connected_components

    while True:
        graph = nearest_neighbors(geometry, neighbors - 1, threads=cores(), progress=progress)
        similar = fuzzy_set(graph)
        parts, part = connected_components(similar, directed=False)
        if parts <= count:
            break
        neighbors = min(2 * neighbors, geometry.rows)
    degrees = np.asarray(similar.sum(axis=1), np.float64).ravel()
    roots, own = np.sqrt(degrees), np.arange(geometry.rows)
    whole = csc_array(
        (roots / np.sqrt(np.bincount(part, degrees))[part], (own, part)), (geometry.rows, parts)
    )
    scaled = diags_array(1.0 / roots) @ similar.astype(np.float64) @ diags_array(1.0 / roots)
    values, vectors, converged = _leading(scaled, whole, count - parts, seed)
    vectors = np.hstack([whole.toarray(), vectors])
    return Spectrum(vectors, np.append(np.ones(parts), values), degrees, 0), neighbors, converged


def _leading(matrix: Any, known: Any, count: int, seed: int) -> tuple[Float64Array, Float64Array, bool]:
    """Eigenpairs of a sparse symmetric matrix that follow known ones of eigenvalue 1, and whether they converged.

    Lanczos' iteration finds one vector of each eigenvalue for certain, and that of 1 has one for each part of a graph.
    """
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    rows = matrix.shape[0]
    if not count:
        return np.zeros(0), np.zeros((rows, 0)), True
    with one_blas_thread():
        if rows <= max(DENSE, 2 * count):
            values, vectors = np.linalg.eigh((matrix - known @ known.T).toarray())
            return values[::-1][:count], vectors[:, ::-1][:, :count], True
        rest = LinearOperator(matrix.shape, lambda v: matrix @ v - known @ (known.T @ v), dtype=np.float64)
        first = np.random.default_rng(seed).standard_normal(rows)
        basis = min(max(2 * count + 1, 40), rows - 1)
        try:
            values, vectors = eigsh(
                rest, count, which="LA", v0=first, ncv=basis, tol=TOLERANCE, maxiter=RESTARTS
            )
        except ArpackNoConvergence as error:
            return error.eigenvalues[::-1], error.eigenvectors[:, ::-1], False
    return values[::-1], vectors[:, ::-1], True
