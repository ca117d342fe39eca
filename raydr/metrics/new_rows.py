"""Metrics of how well a map serves new rows that are placed on it afterwards (P2, 5.1).

``knn_accuracy`` compares each new row with the map. The others evaluate the map of the new rows alone, in the
same way as that of the mapped rows.
"""

from __future__ import annotations

import numpy as np

from raydr.metrics.evidence import Examination, UnmeasurableError
from raydr.metrics.metric import metric, metric_by_k
from raydr.metrics.neighborhood import neighbor_preservation
from raydr.metrics.ranks import NEIGHBORS, continuity, trustworthiness
from raydr.metrics.sampling import MeanOverRows, SampledValue
from raydr.metrics.structure import cohesiveness, cohesiveness_all, steadiness, steadiness_all


@metric_by_k(
    "knn_accuracy",
    "New rows: accuracy",
    "share of new rows on the map that have the class of most of their {k} nearest mapped rows",
    k=7,
    needs={"labels", "new"},
)
def knn_accuracy(examination: Examination, k: int) -> float | SampledValue:
    """Return the share of new rows with the majority class of their ``k`` nearest mapped rows: 0 to 1 (P2, 5.1)."""
    from sklearn.neighbors import KNeighborsClassifier

    new, labels = examination.new, examination.evidence.labels
    new_labels = new.evidence.labels
    if labels is None or new_labels is None:
        raise UnmeasurableError("the data have no labels")
    if examination.count < k:
        raise UnmeasurableError(
            f"{k} neighbours need at least {k} rows on the map, but there are {examination.count}"
        )
    classifier = KNeighborsClassifier(k).fit(examination.embedding, labels)
    if new.sample is not None:
        own = new.sampled
        right = classifier.predict(new.embedding[own]) == np.asarray(new_labels)[own]
        return new.sample.mean(right.astype(np.float64))
    return float(classifier.score(new.embedding, new_labels))


@metric_by_k(
    "new_npa",
    "New rows: neighbour preservation",
    "share of the {k} nearest new rows in the data that are among the {k} nearest new rows in the map",
    k=(10,),
    needs={"rows", "new"},
)
def new_neighbor_preservation(examination: Examination, k: int) -> MeanOverRows:
    """Return :func:`raydr.metrics.neighborhood.neighbor_preservation` of the new rows' map."""
    return neighbor_preservation(examination.new, k)


@metric_by_k(
    "new_trustworthiness",
    "New rows: trustworthiness",
    "neighbours among new rows in the map are neighbours in the data ({k} neighbours, by rank)",
    k=NEIGHBORS,
    needs={"rows", "new"},
)
def new_trustworthiness(examination: Examination, k: int) -> MeanOverRows:
    """Return :func:`raydr.metrics.ranks.trustworthiness` of the new rows' map."""
    return trustworthiness(examination.new, k)


@metric_by_k(
    "new_continuity",
    "New rows: continuity",
    "neighbours among new rows in the data are neighbours in the map ({k} neighbours, by rank)",
    k=NEIGHBORS,
    needs={"rows", "new"},
)
def new_continuity(examination: Examination, k: int) -> MeanOverRows:
    """Return :func:`raydr.metrics.ranks.continuity` of the new rows' map."""
    return continuity(examination.new, k)


@metric(
    "new_steadiness",
    "New rows: steadiness",
    "groups of new rows in the map are groups in the data",
    needs={"rows", "new"},
)
def new_steadiness(examination: Examination) -> float:
    """Return :func:`raydr.metrics.structure.steadiness` of the new rows' map."""
    return steadiness(examination.new)


@metric(
    "new_cohesiveness",
    "New rows: cohesiveness",
    "groups of new rows in the data stay groups in the map",
    needs={"rows", "new"},
)
def new_cohesiveness(examination: Examination) -> float:
    """Return :func:`raydr.metrics.structure.cohesiveness` of the new rows' map."""
    return cohesiveness(examination.new)


@metric(
    "new_steadiness_all",
    "New rows: steadiness, all of them",
    "groups of new rows in the map are groups in the data (all new rows, as in P2)",
    needs={"rows", "new"},
    by_default=False,
)
def new_steadiness_all(examination: Examination) -> float:
    """Return :func:`raydr.metrics.structure.steadiness_all` of the new rows' map."""
    return steadiness_all(examination.new)


@metric(
    "new_cohesiveness_all",
    "New rows: cohesiveness, all of them",
    "groups of new rows in the data stay groups in the map (all new rows, as in P2)",
    needs={"rows", "new"},
    by_default=False,
)
def new_cohesiveness_all(examination: Examination) -> float:
    """Return :func:`raydr.metrics.structure.cohesiveness_all` of the new rows' map."""
    return cohesiveness_all(examination.new)
