"""Do neighbours stay neighbours? Neighbour preservation, and classification by neighbours in the map."""

from __future__ import annotations

import warnings
from math import fsum

import numpy as np

from raydr.arrays import Float64Array, Int64Array, IntArray
from raydr.geometry.neighbors import NeighborGraph
from raydr.metrics.evidence import Examination, UnmeasurableError
from raydr.metrics.metric import metric_by_k
from raydr.metrics.ties import Rounded, shared_by_ties, tied_rows

NEIGHBORS = (1, 10, 50)
"""Numbers of neighbours for which each is listed, as in P1."""


def shared_neighbors(a: IntArray, b: IntArray) -> Int64Array:
    """Count of each row the neighbours in both of two neighbour tables (rows, k); no row repeats an index.

    >>> shared_neighbors(np.array([[1, 2], [0, 2]]), np.array([[2, 3], [2, 0]])).tolist()
    [1, 2]
    """
    both = np.sort(np.concatenate([a, b], axis=1), axis=1)
    return np.asarray((both[:, 1:] == both[:, :-1]).sum(axis=1), dtype=np.int64)


def kept_neighbors(
    true: NeighborGraph, truth: Rounded, found: NeighborGraph, geometry: Rounded, k: int, threads: int | None
) -> Float64Array:
    """Of each row, how many of its ``k`` nearest ``found`` neighbours are among its ``k`` nearest ``true`` ones.

    Of rows whose last neighbour is tied, the geometries decide, and the number may be a fraction.
    """
    tied = tied_rows(true, k) | tied_rows(found, k)
    kept = np.zeros(true.rows)
    kept[~tied] = shared_neighbors(true.nearest(k).indices[~tied], found.nearest(k).indices[~tied])
    kept[tied] = shared_by_ties(np.flatnonzero(tied), truth, geometry, k, threads)
    return kept


def share(kept: Float64Array, k: int) -> float:
    """Mean share of ``k`` neighbours that are kept, of how many each row (rows,) keeps; 0 to 1."""
    return fsum(kept) / (len(kept) * k)


@metric_by_k(
    "ca",
    "Classification accuracy",
    "{k}-nearest-neighbour classification in the map, 70:30 split",
    k=NEIGHBORS,
    needs={"labels"},
)
def classification_accuracy(examination: Examination, k: int) -> float:
    """Share of test rows (30%) whose class is the majority of their ``k`` nearest training rows (70%) in the map.

    From 0 to 1. P1, appendix A.2, CA.
    """
    from sklearn.neighbors import KNeighborsClassifier

    labels = examination.labels
    train, test = examination.split
    if train.size < k:
        raise UnmeasurableError(
            f"{k} training neighbours need at least {k} training rows; 70% of {examination.count} rows are "
            f"{train.size}"
        )
    classifier = KNeighborsClassifier(n_neighbors=k)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes is greater", UserWarning)
        classifier.fit(examination.embedding[train], labels[train])
    return float(np.mean(classifier.predict(examination.embedding[test]) == labels[test]))


@metric_by_k(
    "npa",
    "Neighbour preservation",
    "share of the {k} nearest neighbours in the data that are among the {k} nearest in the map",
    k=NEIGHBORS,
    needs={"rows"},
)
def neighbor_preservation(examination: Examination, k: int) -> float:
    """Mean share of a row's ``k`` nearest neighbours in the data that are among its ``k`` nearest in the map.

    From 0 to 1; ``k / (rows - 1)`` for a random map. P1, appendix A.2, NPA. Where several rows are equally near, as
    `raydr.metrics.ties` has it.
    """
    data, mapped = examination.true_neighbors(k), examination.map_neighbors(k)
    truth, places = examination.rounded_truth, examination.rounded_map
    kept = kept_neighbors(data, truth, mapped, places, k, examination.threads)
    examination.kept[f"npa_{k}"] = kept / k
    return share(kept, k)
