"""Whether clusters match the classes: k-means on the map, with as many clusters, or the method's own (P1, A.2)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from raydr.arrays import Float32Array, Float64Array, FloatArray, Int64Array
from raydr.geometry.points import row_blocks, run_threaded
from raydr.metrics.evidence import Examination, UnmeasurableError
from raydr.metrics.metric import metric
from raydr.metrics.sampling import Estimate
from raydr.threads import one_blas_thread

SILHOUETTE_ROWS = 10_000
"""Rows of the silhouette's sub-sample: it compares every row with every other one."""
BLOCK_ROWS = 64


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
def silhouette(examination: Examination) -> float | Estimate:
    """Mean of (b - a) / max(a, b), a and b the mean distances to the own and the nearest other cluster; -1 to 1.

    Past `SILHOUETTE_ROWS` rows it is the mean over a seeded uniform sample of that many rows, each compared with
    the rows of the sample. Where metrics look at a sample of rows (`raydr.metrics.sampling`), it is the mean over that,
    each compared with all rows.
    """
    if examination.sample is not None:
        return examination.sample.mean(
            silhouettes_among_all(examination, examination.clusters, examination.sampled)
        )
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

    _require_groups(len(np.unique(groups)), len(groups))
    with one_blas_thread(), config_context(working_memory=64):  # MiB of distances at a time
        return np.asarray(silhouette_samples(rows, groups), dtype=np.float64)


def silhouettes_among_all(examination: Examination, groups: Int64Array, own: Int64Array) -> Float64Array:
    """Silhouettes on the map, (own,), of some rows among all, which are in ``groups`` (rows,): 0, 1, ...

    Raises
    ------
    UnmeasurableError
        As `silhouettes`.
    """
    sizes = np.bincount(groups)
    _require_groups(int(np.count_nonzero(sizes)), len(groups))
    sizes = sizes[sizes > 0]
    by_group = np.argsort(groups, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)])
    group = np.searchsorted(starts, np.argsort(by_group)[own], side="right") - 1
    # Single precision: from the middle of the map, and sums of few distances at a time, so that it costs six digits.
    positions = (examination.embedding - examination.embedding.mean(axis=0)).astype(np.float32)
    columns = np.ascontiguousarray(positions[by_group].T)
    found = np.empty(own.size)

    def judge(block: tuple[int, int]) -> None:
        part = slice(*block)
        _compiled()(columns, starts, positions[own[part]], group[part], found[part])

    run_threaded(judge, row_blocks(own.size, BLOCK_ROWS), examination.threads)
    return found


def _require_groups(found: int, rows: int) -> None:
    if not 2 <= found < rows:
        raise UnmeasurableError(
            f"the silhouette needs from 2 to {rows - 1} clusters in {rows} rows; there are {found}"
        )


def _silhouettes(
    columns: Float32Array, starts: Int64Array, own: Float32Array, group: Int64Array, found: Float64Array
) -> None:
    """Of the positions ``own`` in their ``group``; ``columns`` (dimensions, rows) are of all rows, group by group."""
    dimensions = columns.shape[0]
    squared = np.empty(256, np.float32)  # one dimension after the other: else nothing is vectorised
    for row in range(own.shape[0]):
        inside, beyond = 0.0, np.inf
        for other in range(starts.size - 1):
            first, last = starts[other], starts[other + 1]
            total = 0.0
            for start in range(first, last, 256):
                size = min(256, last - start)
                for column in range(size):
                    difference = columns[0, start + column] - own[row, 0]
                    squared[column] = difference * difference
                for dimension in range(1, dimensions):
                    for column in range(size):
                        difference = columns[dimension, start + column] - own[row, dimension]
                        squared[column] += difference * difference
                part = np.float32(0.0)
                for column in range(size):
                    part += np.sqrt(squared[column])
                total += float(part)
            if other == group[row]:
                inside = total / max(1, last - first - 1)
            else:
                beyond = min(beyond, total / (last - first))
        alone = starts[group[row] + 1] - starts[group[row]] == 1
        largest = max(inside, beyond)
        found[row] = 0.0 if alone or largest == 0.0 else (beyond - inside) / largest


@cache
def _compiled() -> Callable[..., None]:
    import numba

    compiled: Callable[..., None] = numba.njit(
        nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"}
    )(_silhouettes)
    return compiled


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
