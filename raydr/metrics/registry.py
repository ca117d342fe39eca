"""The metrics by name, and their evaluation on one map."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from types import MappingProxyType
from typing import Literal, TypeAlias

from raydr.errors import ScenarioError
from raydr.geometry.points import Progress
from raydr.metrics.clusters import adjusted_rand_index, normalized_mutual_information, silhouette
from raydr.metrics.coordinates import cosine, frobenius
from raydr.metrics.evidence import Evidence, Examination, UnmeasurableError
from raydr.metrics.neighborhood import classification_accuracy, neighbor_preservation
from raydr.metrics.ranks import continuity, trustworthiness
from raydr.metrics.recovery import distance_error, f_score, pearson
from raydr.metrics.structure import SAMPLED_ROWS, cohesiveness, steadiness

Need: TypeAlias = Literal["labels", "rows", "recovered"]


@dataclass(frozen=True)
class Metric:
    """One measure of a map: its name, how to read it, what it needs, and how it is computed."""

    name: str
    title: str
    description: str
    higher_is_better: bool
    needs: frozenset[Need]
    measure: Callable[[Examination], float]


@dataclass(frozen=True)
class Scores:
    """Values by metric name, and for the metrics that could not be computed the reason."""

    values: dict[str, float]
    not_computed: dict[str, str]


def evaluate(
    names: Iterable[str],
    evidence: Evidence,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Scores:
    """Compute metrics on one map; neighbour searches are shared between them, bits do not depend on ``threads``.

    Parameters
    ----------
    names
        Keys of `METRICS`; `DEFAULT_METRICS` for all.
    evidence
        The map and what it is judged against.
    threads
        Threads; None takes all cores.
    progress
        Called as ``progress(done, total)``, in metrics.

    Raises
    ------
    ScenarioError
        If a name is not a metric.

    Examples
    --------
    >>> import numpy as np
    >>> points = np.random.default_rng(0).normal(size=(40, 2))
    >>> scores = evaluate(["npa_10", "npa_50"], Evidence(points, points))
    >>> scores.values
    {'npa_10': 1.0}
    >>> scores.not_computed
    {'npa_50': '50 neighbours need at least 51 rows; there are 40'}
    """
    metrics = [metric_named(name) for name in names]
    examination = Examination(evidence, threads)
    scores = Scores({}, {})
    for done, metric in enumerate(metrics, 1):
        try:
            scores.values[metric.name] = metric.measure(examination)
        except UnmeasurableError as reason:
            scores.not_computed[metric.name] = str(reason)
        if progress is not None:
            progress(done, len(metrics))
    return scores


def metric_named(name: str) -> Metric:
    """Return the metric of that name; `ScenarioError` with the nearest valid name if there is none."""
    if name in METRICS:
        return METRICS[name]
    near = get_close_matches(name, METRICS, n=1, cutoff=0.0)[0]
    raise ScenarioError(
        f"There is no metric {name!r}; did you mean {near!r}? Metrics are {', '.join(METRICS)}: correct the name "
        "under metrics, or write `metrics: default` for all."
    )


def _accuracy(k: int) -> Metric:
    return Metric(
        f"ca_{k}",
        f"Classification accuracy, k = {k}",
        f"{k}-nearest-neighbour classification in the map, 70:30 split",
        True,
        frozenset({"labels"}),
        partial(classification_accuracy, k=k),
    )


def _preservation(k: int) -> Metric:
    return Metric(
        f"npa_{k}",
        f"Neighbour preservation, k = {k}",
        f"share of the {k} nearest neighbours in the data that are among the {k} nearest in the map",
        True,
        frozenset({"rows"}),
        partial(neighbor_preservation, k=k),
    )


_OF_A_SAMPLE = f"at most {SAMPLED_ROWS:,} rows, a sample stratified by class"
_ALL = (
    *(_accuracy(k) for k in (1, 10, 50)),
    *(_preservation(k) for k in (1, 10, 50)),
    Metric(
        "nmi",
        "Normalised mutual information",
        "agreement of the classes with k-means clusters of the map, by information",
        True,
        frozenset({"labels"}),
        normalized_mutual_information,
    ),
    Metric(
        "sc",
        "Silhouette coefficient",
        "cohesion against separation of k-means clusters of the map, as many as classes",
        True,
        frozenset({"labels"}),
        silhouette,
    ),
    Metric(
        "ari",
        "Adjusted Rand index",
        "agreement of the classes with k-means clusters of the map, by pairs of rows",
        True,
        frozenset({"labels"}),
        adjusted_rand_index,
    ),
    Metric(
        "trustworthiness",
        "Trustworthiness",
        "neighbours in the map are neighbours in the data (5 neighbours, by rank)",
        True,
        frozenset({"rows"}),
        trustworthiness,
    ),
    Metric(
        "continuity",
        "Continuity",
        "neighbours in the data are neighbours in the map (5 neighbours, by rank)",
        True,
        frozenset({"rows"}),
        continuity,
    ),
    Metric(
        "steadiness",
        "Steadiness",
        f"groups of rows in the map are groups in the data ({_OF_A_SAMPLE})",
        True,
        frozenset({"rows"}),
        steadiness,
    ),
    Metric(
        "cohesiveness",
        "Cohesiveness",
        f"groups of rows in the data stay groups in the map ({_OF_A_SAMPLE})",
        True,
        frozenset({"rows"}),
        cohesiveness,
    ),
    Metric(
        "distance_error",
        "Relative distance error",
        "error of the recovered distances over the true ones, in Frobenius norm",
        False,
        frozenset({"rows", "recovered"}),
        distance_error,
    ),
    Metric(
        "f_score",
        "Neighbour F-score",
        "F-score of the 10 nearest neighbours in the recovered geometry",
        True,
        frozenset({"rows", "recovered"}),
        f_score,
    ),
    Metric(
        "pearson",
        "Correlation of distances",
        "Pearson's correlation of the recovered distances with the true ones, over all pairs of rows",
        True,
        frozenset({"rows", "recovered"}),
        pearson,
    ),
    Metric(
        "cosine",
        "Cosine of coordinates",
        "mean cosine between recovered and true coordinates, seen from their means, after the best rotation",
        True,
        frozenset({"rows", "recovered"}),
        cosine,
    ),
    Metric(
        "frobenius",
        "Relative coordinate error",
        "error of the recovered coordinates over the true ones, in Frobenius norm, after the best rotation and shift",
        False,
        frozenset({"rows", "recovered"}),
        frobenius,
    ),
)

METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _ALL})
"""Every metric by its name."""
DEFAULT_METRICS: tuple[str, ...] = tuple(METRICS)
"""Names of the metrics that ``metrics: default`` computes: all of them."""
