"""Metrics of neighbours: their preservation, and classification by neighbours in the map."""

from __future__ import annotations

import warnings
from math import fsum

import numpy as np

from raydr.arrays import Float64Array, Int64Array, IntArray
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import Geometry, map_threaded
from raydr.geometry.sample_neighbors import SampleNeighbors
from raydr.metrics.evidence import Examination, UnmeasurableError
from raydr.metrics.metric import metric_by_k
from raydr.metrics.sampling import MeanOverRows, SampledValue
from raydr.metrics.ties import Nearest, Rounded, expected_hits, shared_by_ties, tied_neighbors, tied_rows

NEIGHBORS = (1, 10, 50)
"""Numbers of neighbours of the listed metrics, as in P1."""


def shared_neighbors(a: IntArray, b: IntArray) -> Int64Array:
    """Count the neighbours of each row in both of two neighbour tables (rows, k). No row repeats an index.

    >>> shared_neighbors(np.array([[1, 2], [0, 2]]), np.array([[2, 3], [2, 0]])).tolist()
    [1, 2]
    """
    both = np.sort(np.concatenate([a, b], axis=1), axis=1)
    return np.asarray((both[:, 1:] == both[:, :-1]).sum(axis=1), dtype=np.int64)


def kept_neighbors(
    true: NeighborGraph, truth: Rounded, found: NeighborGraph, geometry: Rounded, k: int, threads: int | None
) -> Float64Array:
    """Count the ``k`` nearest ``found`` neighbours of each row that are among its ``k`` nearest ``true`` ones.

    For rows whose last neighbour is tied, the geometries decide, and the count can be a fraction.
    """
    tied = tied_rows(true, k) | tied_rows(found, k)
    kept = np.zeros(true.rows)
    kept[~tied] = shared_neighbors(true.nearest(k).indices[~tied], found.nearest(k).indices[~tied])
    kept[tied] = shared_by_ties(np.flatnonzero(tied), truth, geometry, k, threads)
    return kept


def kept_by_sample(
    true: SampleNeighbors,
    truth: Geometry,
    found: SampleNeighbors,
    geometry: Geometry,
    k: int,
    threads: int | None,
) -> Float64Array:
    """Return `kept_neighbors` (sampled,) for the rows of a sample alone: the same numbers."""
    tied = tied_neighbors(true, k) | tied_neighbors(found, k)
    kept = np.zeros(len(true.own))
    kept[~tied] = shared_neighbors(true.indices[~tied, :k], found.indices[~tied, :k])

    def hits(place: int) -> float:
        return expected_hits(Nearest.among(truth, true, place, k), Nearest.among(geometry, found, place, k))

    kept[tied] = list(map_threaded(hits, np.flatnonzero(tied).tolist(), threads))
    return kept


def share(kept: Float64Array, k: int) -> float:
    """Return the mean share of ``k`` neighbours that rows keep, from the number of each row (rows,): 0 to 1."""
    return fsum(kept) / (len(kept) * k)


@metric_by_k(
    "ca",
    "Classification accuracy",
    "{k}-nearest-neighbour classification in the map, 70:30 split",
    k=NEIGHBORS,
    needs={"labels"},
)
def classification_accuracy(examination: Examination, k: int) -> float | SampledValue:
    """Return the share of test rows (30%) with the majority class of their ``k`` nearest training rows on the map.

    From 0 to 1 (P1, appendix A.2, CA). Training rows are 70%. Of many rows, a sample of the test rows is
    classified by all training rows.
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
    if examination.sample is not None:
        sample = examination.sample_of(test)
        test = test[sample.rows]
        return sample.mean(
            (classifier.predict(examination.embedding[test]) == labels[test]).astype(np.float64)
        )
    return float(np.mean(classifier.predict(examination.embedding[test]) == labels[test]))


@metric_by_k(
    "npa",
    "Neighbour preservation",
    "share of the {k} nearest neighbours in the data that are among the {k} nearest in the map",
    k=NEIGHBORS,
    needs={"rows"},
)
def neighbor_preservation(examination: Examination, k: int) -> MeanOverRows:
    """Return the mean share of a row's ``k`` nearest in the data that are among its ``k`` nearest on the map.

    From 0 to 1, and ``k / (rows - 1)`` for a random map (P1, appendix A.2, NPA). For equally near rows, see
    `raydr.metrics.ties`.
    """
    if examination.sample is not None:
        examination.require_neighbors(k)
        neighbors, shown = examination.sample_row_neighbors, examination.sample_map_neighbors
        counts = kept_by_sample(
            neighbors, examination.truth, shown, examination.mapped, k, examination.threads
        )
        return MeanOverRows(examination.sample.mean(counts / k), counts / k)
    data, mapped = examination.true_neighbors(k), examination.map_neighbors(k)
    truth, places = examination.rounded_truth, examination.rounded_map
    kept = kept_neighbors(data, truth, mapped, places, k, examination.threads)
    return MeanOverRows(share(kept, k), kept / k)
