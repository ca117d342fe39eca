"""Leading eigenvectors of a neighbour graph, for spectral clustering by nearest neighbours.

A kernel with one bandwidth for all rows is too narrow for sparse rows and too wide for dense ones. In UMAP's
fuzzy set, a row's similarity to its nearest neighbours falls at its own rate, and to all other rows it is 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydr.arrays import Float64Array
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Geometry, Progress, unheard
from raydr.methods.landmarks.clustering import Spectrum
from raydr.threads import cores, one_blas_thread

TOLERANCE = 1e-6
"""Relative residual of an eigenvector at which Lanczos iteration stops."""
RESTARTS = 3_000
"""Largest number of restarts of Lanczos iteration. 10 vectors of 40,000 rows take about 60."""
DENSE = 400
"""Largest number of rows for which all eigenvectors are computed."""


def neighbor_spectrum(
    geometry: Geometry, count: int, neighbors: int, *, seed: int, progress: Progress = unheard
) -> tuple[Spectrum, int, bool]:
    """Return the leading eigenvectors of D^-1/2 A D^-1/2, with A the fuzzy set of each row's nearest neighbours.

    If the graph has more parts than requested eigenvectors, the leading eigenspace is larger, and its
    computed basis would be arbitrary. So the number of neighbours is doubled until the graph has at most that
    many parts.

    Parameters
    ----------
    geometry : Geometry
        Distances between all rows.
    count : int
        Number of eigenvectors, less than the number of rows.
    neighbors : int
        Nearest neighbours of a row, counting itself.
    seed : int
        Seed of the first vector of the iteration.
    progress : callable
        Progress of the neighbour search.

    Returns
    -------
    spectrum : Spectrum
        ``count`` eigenvectors.
    neighbors : int
        Number of neighbours used.
    converged : bool
        Whether all residuals are within `TOLERANCE`.
    """
    from scipy.sparse import csc_array, diags_array
    from scipy.sparse.csgraph import connected_components

    from raydr.embedding.kernels.fuzzy_set import fuzzy_set

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
    """Return eigenpairs of a sparse symmetric matrix after known ones of eigenvalue 1, and whether they converged.

    Lanczos iteration reliably finds only one vector per eigenvalue, and eigenvalue 1 has one for each part of
    a graph.
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
