"""Spectral clustering (Ng, Jordan & Weiss 2002) of a similarity matrix that is known by a thin factor, K = F F^T.

The matrix itself is never formed: its row sums are F (F^T 1), and the leading eigenvectors of D^-1/2 K D^-1/2 are the
left singular vectors of D^-1/2 F, which a matrix of rank x rank gives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.arrays import BoolArray, Float64Array, FloatArray, Int64Array, fingerprint
from raydr.errors import DataError

STARTS = 10
"""Of k-means."""
_DIGITS = 5
"""Directions that agree to so many digits are one place."""


@dataclass(frozen=True)
class Spectrum:
    """Leading eigenvectors of D^-1/2 K D^-1/2.

    Attributes
    ----------
    vectors : (rows, count) float64
        Orthonormal, by falling eigenvalue.
    values : (count,) float64
        Eigenvalues, from 1 down.
    degrees : (rows,) float64
        Row sums of K, raised to 1 where they are lower.
    raised : int
        How many were.
    """

    vectors: Float64Array
    values: Float64Array
    degrees: Float64Array
    raised: int


def factor_spectrum(factor: Float64Array, count: int) -> Spectrum:
    """Return at most ``count`` leading eigenvectors, fewer where the factor's rank is lower.

    A row's similarity to itself is 1 and to others at least 0, so its true degree is 1 or more. The estimate of a row
    that is like no landmark can be near 0, or negative; divided by its root, such a row would be a cluster of its own.

    Parameters
    ----------
    factor : (rows, rank) float64
        F.
    count : int
        Eigenvectors asked for.
    """
    sums = factor @ factor.sum(axis=0)
    degrees = np.maximum(sums, 1.0)
    scaled = factor / np.sqrt(degrees)[:, None]
    values, right = np.linalg.eigh(scaled.T @ scaled)
    values, right = values[::-1][:count], right[:, ::-1][:, :count]
    kept = values > np.finfo(np.float64).eps * max(factor.shape) * values[0]
    return Spectrum(
        scaled @ (right[:, kept] / np.sqrt(values[kept])),
        values[kept],
        degrees,
        int((sums < 1.0).sum()),
    )


def unknown_rows(vectors: Float64Array) -> BoolArray:
    """Which rows (rows,) have no part in any eigenvector, since they are like nothing that is known."""
    return np.asarray(~np.any(vectors, axis=1))


def require_places(rows: FloatArray, clusters: int, of: int | None = None) -> None:
    """Raise DataError if rows (rows, dimensions) fall into fewer distinct places than clusters; ``of`` are all rows."""
    places: set[str] = set()
    if len(rows):  # row by row, since wide rows are many numbers
        mean = rows.mean(axis=0)
        extent = float(max((rows.max(axis=0) - mean).max(), (mean - rows.min(axis=0)).max())) or 1.0
        for row in rows:
            places.add(fingerprint(np.round((row - mean) / extent, _DIGITS) + 0.0))  # no zero is negative
            if len(places) == clusters:
                return
    if len(places) < clusters:
        raise DataError(
            f"The kernel separates only {len(places)} of the {of or len(rows)} rows, too few for"
            f" {clusters} clusters. Ask for fewer method.clusters. If the rows do differ, the kernel is"
            " too narrow or too wide for them: leave method.gamma out."
        )


def spectral_clusters(vectors: Float64Array, clusters: int, seed: int) -> Int64Array:
    """K-means of the eigenvectors' rows, each scaled to length 1; the clusters are numbered from 0 by falling size.

    Scaled rows are the better choice (*measured*, NMI of pooled rows, 1 / median squared distance as bandwidth):
    0.30 on Mice-Protein and 0.79 on COIL-20, against 0.19 and 0.76 of eigenvectors divided by the roots of the degrees,
    as scikit-learn has them, and 0.30 and 0.77 of plain ones. And what is divided out of a row is its own degree, the
    one number that a factor estimates badly.

    Parameters
    ----------
    vectors : (rows, count) float64
        Leading eigenvectors of D^-1/2 K D^-1/2. Rows of zeros (:func:`unknown_rows`) have no direction: they do not
        move a cluster's centre, and are counted to the largest cluster.
    clusters : int
        How many.
    seed : int
        Of the starts of k-means.

    Returns
    -------
    (rows,) int64

    Raises
    ------
    DataError
        If the rows fall into fewer distinct places than clusters.
    """
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    known = ~unknown_rows(vectors)
    directions = vectors[known] / np.linalg.norm(vectors[known], axis=1, keepdims=True)
    require_places(directions, clusters, len(vectors))
    with threadpool_limits(1):  # scikit-learn adds up centres in an order that depends on their number
        found = KMeans(n_clusters=clusters, n_init=STARTS, random_state=seed).fit_predict(directions)
    by_size = np.argsort(-np.bincount(found, minlength=clusters), kind="stable")
    labels = np.zeros(len(vectors), np.int64)
    labels[known] = np.argsort(by_size)[found]
    return labels
