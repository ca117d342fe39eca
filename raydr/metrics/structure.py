"""Steadiness and cohesiveness (Jeon et al. 2021, P3, 4.1): whether groups of rows keep together.

The measure itself is zadu's, by the authors of the paper: random walks over shared nearest neighbours pick groups of
rows in one space, and HDBSCAN looks whether they hang together in the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import numpy as np

from raydr.arrays import Int64Array
from raydr.geometry.neighbors import nearest_neighbors
from raydr.metrics.evidence import Examination, UnmeasurableError
from raydr.metrics.metric import metric
from raydr.metrics.ties import Rounded, untied

SAMPLED_ROWS = 2_000
"""Rows that the measure looks at: shared neighbours are compared among all of them. On one core it takes 1 second for
the 1,797 rows of digits, 2 to 4 for 2,000 of MNIST, neighbour searches included."""
_OF_A_SAMPLE = f"at most {SAMPLED_ROWS:,} rows, a sample stratified by class"
MOST_ROWS = 20_000
"""Rows among which shared neighbours are compared at all. 10,000 of MNIST take a minute of a core and 1.7 GB."""
_OF_ALL = f"all rows, {MOST_ROWS:,} at most"
WALKS = 150
"""Groups of rows in each direction, as published. Over seeds a score of 2,000 rows varies by 0.004 to 0.01 (standard
deviation), half of that with four times as many."""
LEAST_ROWS = 34
"""Fewer make no group in which HDBSCAN's smallest cluster (5 rows) fits twice: a walk takes 0.3 steps for each row."""


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
    """Steadiness: whether groups of rows in the map are groups in the data; 0 to 1, 1 without a false group.

    On a seeded sample of `SAMPLED_ROWS` (`Evidence.grouped`) rows where there are more, stratified by class where the
    rows have labels. Over samples it falls with their size and cohesiveness rises: one map of MNIST's 10,000 test rows
    has 0.757 and 0.799 on 2,000 of them, 0.722 and 0.850 on 5,000, 0.709 and 0.875 on all. Rows that are equally near
    in the data are neighbours in the order that they have in the map (`raydr.metrics.ties`).
    """
    return examination.once(_structure).steadiness


@metric(
    "cohesiveness",
    "Cohesiveness",
    f"groups of rows in the data stay groups in the map ({_OF_A_SAMPLE})",
    needs={"rows"},
)
def cohesiveness(examination: Examination) -> float:
    """Cohesiveness: whether groups of rows in the data stay groups in the map; 0 to 1, 1 without a torn group.

    On the sample of `steadiness`.
    """
    return examination.once(_structure).cohesiveness


@metric(
    "steadiness_all",
    "Steadiness, all rows",
    f"groups of rows in the map are groups in the data ({_OF_ALL})",
    needs={"rows"},
    by_default=False,  # minutes where `steadiness` takes seconds
)
def steadiness_all(examination: Examination) -> float:
    """`steadiness` among all rows and not a sample, which is what a published figure of so many rows is of."""
    return examination.once(_structure_of_all).steadiness


@metric(
    "cohesiveness_all",
    "Cohesiveness, all rows",
    f"groups of rows in the data stay groups in the map ({_OF_ALL})",
    needs={"rows"},
    by_default=False,
)
def cohesiveness_all(examination: Examination) -> float:
    """`cohesiveness` among all rows and not a sample."""
    return examination.once(_structure_of_all).cohesiveness


def stratified_sample(rows: int, count: int, labels: Int64Array | None, seed: int) -> Int64Array:
    """Draw ``count`` of ``rows`` rows, (count,) in ascending order; all where there are no more.

    Uniformly without labels; with ``labels`` (rows,), each class has its share of the sample to within one row.

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
            f"shared neighbours are compared among at most {MOST_ROWS:,} rows; there are {examination.count:,}, of"
            " which steadiness and cohesiveness take a sample"
        )
    return _among(examination, examination.count)


def _among(examination: Examination, count: int) -> _Structure:
    if examination.count < LEAST_ROWS:
        raise UnmeasurableError(
            f"groups of rows need at least {LEAST_ROWS} rows; there are {examination.count}"
        )
    from zadu.measures.steadiness_cohesiveness import measure

    evidence = examination.evidence
    labels = None if evidence.labels is None else examination.labels
    sample = stratified_sample(examination.count, count, labels, evidence.seed)
    positions = examination.embedding[sample]
    k = isqrt(len(sample))  # zadu's own choice
    truth, mapped = examination.truth.take(sample), examination.mapped.take(sample)
    inside, shown = (
        nearest_neighbors(geometry, k + 1, threads=examination.threads, progress=examination.progress)
        for geometry in (truth, mapped)
    )
    true, drawn = Rounded(lambda: truth), Rounded(lambda: mapped)
    neighbors = (untied(inside, true, drawn, k), untied(shown, drawn, drawn, k))
    try:
        # zadu reads positions only to search neighbours, and is given them: the truth need not have positions. With
        # a seed it draws from its own stream and leaves numpy's global one alone.
        found = measure(
            positions, positions, iteration=WALKS, k=k, knn_info=neighbors, random_state=evidence.seed % 2**32
        )
    except RuntimeError as error:
        raise UnmeasurableError(f"zadu found no group of rows to judge ({error})") from error
    return _Structure(float(found["steadiness"]), float(found["cohesiveness"]))
