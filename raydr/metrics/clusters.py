"""Whether clusters match the classes: k-means on the map, with as many clusters, or the method's own (P1, A.2)."""

from __future__ import annotations

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.metrics.evidence import Examination, UnmeasurableError
from raydr.metrics.metric import metric
from raydr.threads import one_blas_thread

SILHOUETTE_ROWS = 10_000
"""Rows of the silhouette's sub-sample: it compares every row with every other one."""


@metric(
    "nmi",
    "Normalised mutual information",
    "agreement of the classes with k-means clusters of the map, by information",
    needs={"labels"},
)
def normalized_mutual_information(examination: Examination) -> float:
    """Mutual information of classes and clusters over the mean of their entropies; 0 to 1."""
    from sklearn.metrics import normalized_mutual_info_score

    return float(normalized_mutual_info_score(examination.labels, examination.clusters))


@metric(
    "sc",
    "Silhouette coefficient",
    "cohesion against separation of k-means clusters of the map, as many as classes",
    needs={"labels"},
)
def silhouette(examination: Examination) -> float:
    """Mean of (b - a) / max(a, b), a and b the mean distances to the own and the nearest other cluster; -1 to 1.

    Past `SILHOUETTE_ROWS` rows it is the mean over a seeded uniform sample of that many rows, each compared with
    the rows of the sample.
    """
    return float(np.mean(sampled_silhouettes(examination, examination.clusters)[0]))


def sampled_silhouettes(examination: Examination, groups: Int64Array) -> tuple[Float64Array, Int64Array]:
    """Silhouettes on the map of rows in ``groups`` (rows,), and the groups of those rows: a sample of many.

    Raises
    ------
    UnmeasurableError
        If there are fewer than two groups, or as many as rows.
    """
    embedding = examination.embedding
    if examination.count > SILHOUETTE_ROWS:
        random = np.random.default_rng(examination.evidence.seed)
        sample = np.sort(random.choice(examination.count, SILHOUETTE_ROWS, replace=False))
        groups, embedding = groups[sample], embedding[sample]
    return silhouettes(embedding, groups), groups


def silhouettes(rows: FloatArray, groups: Int64Array) -> Float64Array:
    """Silhouette of each of ``rows`` (rows, any), by their distances, in ``groups`` (rows,).

    Raises
    ------
    UnmeasurableError
        If there are fewer than two groups, or as many as rows.
    """
    from sklearn import config_context
    from sklearn.metrics import silhouette_samples

    found = len(np.unique(groups))
    if not 2 <= found < len(groups):
        raise UnmeasurableError(
            f"the silhouette needs from 2 to {len(groups) - 1} clusters in {len(groups)} rows; there are {found}"
        )
    with one_blas_thread(), config_context(working_memory=64):  # MiB of distances at a time
        return np.asarray(silhouette_samples(rows, groups), dtype=np.float64)


@metric(
    "ari",
    "Adjusted Rand index",
    "agreement of the classes with k-means clusters of the map, by pairs of rows",
    needs={"labels"},
)
def adjusted_rand_index(examination: Examination) -> float:
    """Share of pairs of rows on which classes and clusters agree, corrected for chance; -0.5 to 1."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(examination.labels, examination.clusters))


@metric(
    "clustering_nmi",
    "Clustering: normalised mutual information",
    "agreement of the classes with the clusters that the method itself makes, by information",
    needs={"labels", "clusters"},
)
def clustering_information(examination: Examination) -> float:
    """As :func:`normalized_mutual_information`, of the method's own clusters; P1, Table 5."""
    from sklearn.metrics import normalized_mutual_info_score

    return float(normalized_mutual_info_score(examination.labels, examination.own_clusters))


@metric(
    "clustering_ari",
    "Clustering: adjusted Rand index",
    "agreement of the classes with the clusters that the method itself makes, by pairs of rows",
    needs={"labels", "clusters"},
)
def clustering_rand_index(examination: Examination) -> float:
    """As :func:`adjusted_rand_index`, of the method's own clusters; P1, Table 5."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(examination.labels, examination.own_clusters))
