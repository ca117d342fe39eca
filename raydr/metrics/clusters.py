"""Agreement of clusters with the classes: k-means on the map, or the method's own clusters (P1, A.2)."""

from __future__ import annotations

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.geometry.points import row_blocks, run_threaded
from raydr.metrics.evidence import Examination, UnmeasurableError
from raydr.metrics.metric import metric
from raydr.metrics.sampling import SampledValue
from raydr.threads import one_blas_thread

SILHOUETTE_ROWS = 10_000
"""Rows in the silhouette's sub-sample, because it compares all pairs of rows."""
BLOCK_ROWS = 64


@metric(
    "nmi",
    "Normalised mutual information",
    "agreement of the classes with k-means clusters of the map, by information",
    needs={"labels"},
)
def normalized_mutual_information(examination: Examination) -> float:
    """Return the mutual information of classes and clusters, divided by the mean of their entropies: 0 to 1."""
    from sklearn.metrics import normalized_mutual_info_score

    return float(normalized_mutual_info_score(examination.labels, examination.clusters))


@metric(
    "sc",
    "Silhouette coefficient",
    "cohesion against separation of k-means clusters of the map, as many as classes",
    needs={"labels"},
)
def silhouette(examination: Examination) -> float | SampledValue:
    """Return the mean of (b - a) / max(a, b): -1 to 1.

    Here a and b are a row's mean distances to its own and to the nearest other cluster. Above
    `SILHOUETTE_ROWS` rows, it is the mean over a seeded uniform sample of that size, compared within the
    sample. If metrics use a sample of rows (`raydr.metrics.sampling`), it is the mean over that sample,
    compared with all rows.
    """
    if examination.sample is not None:
        return examination.sample.mean(
            silhouettes_among_all(examination, examination.clusters, examination.sampled)
        )
    return float(np.mean(sampled_silhouettes(examination, examination.clusters)[0]))


def sampled_silhouettes(examination: Examination, groups: Int64Array) -> tuple[Float64Array, Int64Array]:
    """Return the map silhouettes and groups of rows in ``groups`` (rows,), or of a sample if there are many.

    Raises
    ------
    UnmeasurableError
        If there are fewer than two groups, or each row has its own group.
    """
    embedding = examination.embedding
    if examination.count > SILHOUETTE_ROWS:
        random = np.random.default_rng(examination.evidence.seed)
        sample = np.sort(random.choice(examination.count, SILHOUETTE_ROWS, replace=False))
        groups, embedding = groups[sample], embedding[sample]
    return silhouettes(embedding, groups), groups


def silhouettes(rows: FloatArray, groups: Int64Array) -> Float64Array:
    """Return the silhouette of each of ``rows`` (rows, any) in ``groups`` (rows,), by their distances.

    Raises
    ------
    UnmeasurableError
        If there are fewer than two groups, or each row has its own group.
    """
    from sklearn import config_context
    from sklearn.metrics import silhouette_samples

    _require_groups(len(np.unique(groups)), len(groups))
    with one_blas_thread(), config_context(working_memory=64):  # MiB of distances at a time
        return np.asarray(silhouette_samples(rows, groups), dtype=np.float64)


def silhouettes_among_all(examination: Examination, groups: Int64Array, own: Int64Array) -> Float64Array:
    """Return the map silhouettes (own,) of some rows among all rows, which are in ``groups`` (rows,): 0, 1, ...

    Raises
    ------
    UnmeasurableError
        As in `silhouettes`.
    """
    from raydr.metrics.kernels.silhouettes import fill_silhouettes

    sizes = np.bincount(groups)
    _require_groups(int(np.count_nonzero(sizes)), len(groups))
    sizes = sizes[sizes > 0]
    by_group = np.argsort(groups, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)])
    group = np.searchsorted(starts, np.argsort(by_group)[own], side="right") - 1
    # Single precision keeps six digits here: positions are centred, and sums have few distances at a time.
    positions = (examination.embedding - examination.embedding.mean(axis=0)).astype(np.float32)
    columns = np.ascontiguousarray(positions[by_group].T)
    found = np.empty(own.size)

    def judge(block: tuple[int, int]) -> None:
        part = slice(*block)
        fill_silhouettes(columns, starts, positions[own[part]], group[part], found[part])

    run_threaded(judge, row_blocks(own.size, BLOCK_ROWS), examination.threads)
    return found


def _require_groups(found: int, rows: int) -> None:
    if not 2 <= found < rows:
        raise UnmeasurableError(
            f"the silhouette needs from 2 to {rows - 1} clusters in {rows} rows, but there are {found}"
        )


@metric(
    "ari",
    "Adjusted Rand index",
    "agreement of the classes with k-means clusters of the map, by pairs of rows",
    needs={"labels"},
)
def adjusted_rand_index(examination: Examination) -> float:
    """Return the share of pairs of rows on which classes and clusters agree, corrected for chance: -0.5 to 1."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(examination.labels, examination.clusters))


@metric(
    "clustering_nmi",
    "Clustering: normalised mutual information",
    "agreement of the classes with the method's own clusters, by information",
    needs={"labels", "clusters"},
)
def clustering_information(examination: Examination) -> float:
    """Return :func:`normalized_mutual_information` of the method's own clusters (P1, Table 5)."""
    from sklearn.metrics import normalized_mutual_info_score

    return float(normalized_mutual_info_score(examination.labels, examination.own_clusters))


@metric(
    "clustering_ari",
    "Clustering: adjusted Rand index",
    "agreement of the classes with the method's own clusters, by pairs of rows",
    needs={"labels", "clusters"},
)
def clustering_rand_index(examination: Examination) -> float:
    """Return :func:`adjusted_rand_index` of the method's own clusters (P1, Table 5)."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(examination.labels, examination.own_clusters))
