"""Steadiness and cohesiveness (Jeon et al. 2021; P3, 4.1): whether groups of rows stay together.

The scores have the bits of zadu's, the package by the authors of the paper. Random walks over shared nearest
neighbours pick groups of rows in one space, and HDBSCAN tests whether they stay together in the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import isqrt
from typing import Any

import numpy as np

from raydr.arrays import Float64Array, Int64Array
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import map_threaded
from raydr.metrics.evidence import Examination, UnmeasurableError
from raydr.metrics.metric import metric
from raydr.metrics.ties import Rounded, untied

SAMPLED_ROWS = 2_000
"""Rows in the sample. Shared neighbours are compared among all of them. On one core it takes 1 second for the 1,797
rows of digits and 2 to 4 for 2,000 of MNIST, neighbour searches included."""
_OF_A_SAMPLE = f"at most {SAMPLED_ROWS:,} rows, a sample stratified by class"
MOST_ROWS = 25_000
"""Maximum rows for comparing shared neighbours: 10,000 of MNIST take half a minute of a core and 0.9 GB, and
25,000 take four minutes and 2.3 GB."""
_OF_ALL = f"all rows, {MOST_ROWS:,} at most"
WALKS = 150
"""Groups of rows in each direction, as published. Over seeds, a score of 2,000 rows varies by 0.004 to 0.01 (standard
deviation), and by half of that with four times as many."""
STEPS = 0.3
"""Steps of a walk per row, as published."""
LEAST_ROWS = 34
"""With fewer rows, no group fits two of HDBSCAN's smallest clusters (5 rows)."""


@dataclass(frozen=True)
class _Structure:
    steadiness: float
    cohesiveness: float


@metric(
    "steadiness",
    "Steadiness",
    f"groups of rows in the map are groups in the data ({_OF_A_SAMPLE})",
    needs={"rows"},
)
def steadiness(examination: Examination) -> float:
    """Return the steadiness: whether groups of rows in the map are groups in the data.

    0 to 1, 1 without a false group.

    If there are more than `SAMPLED_ROWS` (`Evidence.grouped`) rows, it uses a seeded sample of that size,
    stratified by class if the rows have labels. With larger samples, steadiness falls and cohesiveness rises. One map
    of MNIST's 10,000 test rows has 0.757 and 0.799 on 2,000 of them, 0.722 and 0.850 on 5,000, 0.709 and 0.875 on all.
    Rows that are equally near in the data are neighbours in the order that they have in the map (`raydr.metrics.ties`).
    """
    return examination.once(_structure).steadiness


@metric(
    "cohesiveness",
    "Cohesiveness",
    f"groups of rows in the data stay groups in the map ({_OF_A_SAMPLE})",
    needs={"rows"},
)
def cohesiveness(examination: Examination) -> float:
    """Return the cohesiveness: whether groups of rows in the data stay groups in the map.

    0 to 1, 1 without a torn group.

    It uses the sample of `steadiness`.
    """
    return examination.once(_structure).cohesiveness


@metric(
    "steadiness_all",
    "Steadiness, all rows",
    f"groups of rows in the map are groups in the data ({_OF_ALL})",
    needs={"rows"},
    by_default=False,  # it takes minutes, but `steadiness` takes seconds
)
def steadiness_all(examination: Examination) -> float:
    """Return `steadiness` on all rows instead of a sample, as in published figures."""
    return examination.once(_structure_of_all).steadiness


@metric(
    "cohesiveness_all",
    "Cohesiveness, all rows",
    f"groups of rows in the data stay groups in the map ({_OF_ALL})",
    needs={"rows"},
    by_default=False,
)
def cohesiveness_all(examination: Examination) -> float:
    """Return `cohesiveness` on all rows instead of a sample."""
    return examination.once(_structure_of_all).cohesiveness


def stratified_sample(rows: int, count: int, labels: Int64Array | None, seed: int) -> Int64Array:
    """Draw ``count`` of ``rows`` rows, (count,) in ascending order, or all if there are no more.

    Without labels, the draw is uniform. With ``labels`` (rows,), each class has its share of the sample to
    within one row.

    Examples
    --------
    >>> sample = stratified_sample(1000, 100, np.arange(1000) // 900, seed=0)
    >>> np.bincount(sample // 900).tolist()
    [90, 10]
    """
    if rows <= count:
        return np.arange(rows)
    order = np.random.default_rng(seed).permutation(rows)
    if labels is not None:
        order = order[np.argsort(labels[order], kind="stable")]
    return np.sort(order[np.arange(count) * rows // count])  # evenly through the classes


def _structure(examination: Examination) -> _Structure:
    grouped = examination.evidence.grouped
    return _among(examination, SAMPLED_ROWS if grouped is None else grouped)


def _structure_of_all(examination: Examination) -> _Structure:
    if examination.count > MOST_ROWS:
        raise UnmeasurableError(
            f"shared neighbours are compared among at most {MOST_ROWS:,} rows, but there are {examination.count:,}. Use"
            " steadiness and cohesiveness, which take a sample"
        )
    return _among(examination, examination.count)


def _among(examination: Examination, count: int) -> _Structure:
    if examination.count < LEAST_ROWS:
        raise UnmeasurableError(
            f"groups of rows need at least {LEAST_ROWS} rows, but there are {examination.count}"
        )
    evidence = examination.evidence
    labels = None if evidence.labels is None else examination.labels
    sample = stratified_sample(examination.count, count, labels, evidence.seed)
    k = isqrt(len(sample))  # zadu's own choice
    truth, mapped = examination.truth.take(sample), examination.mapped.take(sample)
    inside, shown = (
        nearest_neighbors(geometry, k + 1, threads=examination.threads, progress=examination.progress)
        for geometry in (truth, mapped)
    )
    true, drawn = Rounded(lambda: truth), Rounded(lambda: mapped)
    neighbors = (untied(inside, true, drawn, k), untied(shown, drawn, drawn, k))
    random = np.random.RandomState(evidence.seed % 2**32)  # zadu's stream
    data, drawn_map = (_Shared.among(nearest) for nearest in neighbors)
    return _Structure(
        *(
            _kept_together(walked, tested, random, examination.threads)
            for walked, tested in ((drawn_map, data), (data, drawn_map))
        )
    )


@dataclass(frozen=True, eq=False)
class _Shared:
    """Similarities of rows by shared nearest neighbours, 0 to 1.

    Attributes
    ----------
    neighbors : (rows, k) int64
        The nearest neighbours, nearest first.
    similarities : (rows, k)
        The similarity to each.
    entries : tuple of arrays
        All similarities as a sparse matrix, as :mod:`raydr.metrics.kernels.groups` reads it.
    """

    neighbors: Int64Array
    similarities: Float64Array
    entries: tuple[Any, Any, Float64Array]

    @classmethod
    def among(cls, neighbors: Int64Array) -> _Shared:
        """Compare neighbours (rows, k): the nearest weighs k + 1, the last 2, and a shared one the product."""
        from scipy.sparse import csr_matrix

        rows, k = neighbors.shape
        weights = np.tile(np.arange(k + 1, 1, -1, dtype=np.float64), rows)
        own = np.repeat(np.arange(rows), k)
        graph = csr_matrix((weights, (own, neighbors.reshape(-1))), shape=(rows, rows))
        shared = (graph @ graph.T).tocsr()
        shared.setdiag(0.0)
        shared.eliminate_zeros()
        shared.sort_indices()
        if shared.nnz:
            shared.data /= shared.data.max()
        similarities = np.asarray(shared[own, neighbors.reshape(-1)]).reshape(rows, k)
        return cls(neighbors, similarities, (shared.indptr, shared.indices, shared.data))


def _kept_together(
    walked: _Shared, tested: _Shared, random: np.random.RandomState, threads: int | None
) -> float:
    """Return whether groups of rows in one space stay together in another: 1 minus the mean distortion."""
    from raydr.metrics.kernels.groups import largest_difference

    groups = [_drawn_group(walked, random) for _ in range(WALKS)]
    largest = largest_difference(*tested.entries, *walked.entries)
    if largest <= 0.0:
        return 1.0
    parts = list(
        map_threaded(partial(_distortion, walked=walked, tested=tested, largest=largest), groups, threads)
    )
    distortion, weight = sum(part for part, _ in parts), sum(pairs for _, pairs in parts)
    return float(1.0 - distortion / weight) if weight else 1.0


def _drawn_group(walked: _Shared, random: np.random.RandomState) -> Int64Array:
    """Draw a group of rows by a random walk: their indices, in the order in which zadu compares them."""
    from raydr.metrics.kernels.groups import walk

    rows, k = walked.neighbors.shape
    visited = np.empty(max(1, int(rows * STEPS)) + k + 1, np.int64)
    steps = np.random.Generator(random._bit_generator)  # the same stream
    for _ in range(max(100, 10 * rows)):
        first = random.randint(rows)
        if not np.any(walked.similarities[first] > 0.0):
            continue
        for _ in range(1_000):
            count = walk(steps, first, walked.neighbors, walked.similarities, visited)
            members = set(visited[:count].tolist())
            if len(members) > 1:
                return np.fromiter(members, np.int64, len(members))
    raise UnmeasurableError(
        "found no group of rows, because no row shares neighbours with its own neighbours"
    )


def _distortion(members: Int64Array, walked: _Shared, tested: _Shared, largest: float) -> tuple[float, int]:
    """Return the distortion of a group in the tested space, and its weight in pairs of rows."""
    from raydr.metrics.kernels.groups import cluster_group, distort, spanning_tree

    ends, lengths = np.empty((members.size - 1, 2), np.int64), np.empty(members.size - 1)
    spanning_tree(members, *tested.entries, ends, lengths)
    order = np.argsort(lengths)
    labels = np.empty(members.size, np.int64)
    clusters = cluster_group(ends[order], lengths[order], labels)
    ascending = np.argsort(members)
    return distort(members[ascending], labels[ascending], clusters, *tested.entries, *walked.entries, largest)
