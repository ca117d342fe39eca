"""What a metric is, the registry of all of them, and their evaluation on one map."""

from __future__ import annotations

from collections.abc import Callable, Iterable, KeysView, Set
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, TypeAlias, TypeVar

from raydr.errors import ScenarioError
from raydr.geometry.points import Progress, unheard
from raydr.metrics.evidence import Evidence, Examination, UnmeasurableError
from raydr.registry import Registry

Need: TypeAlias = Literal["labels", "rows", "recovered", "clusters"]
Measure = TypeVar("Measure", bound=Callable[[Examination], float])


@dataclass(frozen=True)
class Metric:
    """One measure of a map: its name, how to read it, what it needs, and how it is computed."""

    name: str
    title: str
    description: str
    higher_is_better: bool
    needs: frozenset[Need]
    measure: Callable[[Examination], float]


METRICS: Registry[Metric] = Registry("metrics", "raydr.metrics")
"""Every metric by its name."""
DEFAULT_METRICS: KeysView[str] = METRICS.keys()
"""Names of the metrics that ``metrics: default`` computes: all that there are when they are asked for."""


def metric(
    name: str, title: str, description: str, *, needs: Set[Need], higher_is_better: bool = True
) -> Callable[[Measure], Measure]:
    """Register a function of an :class:`Examination` as a metric; it raises `UnmeasurableError` where it has no value.

    Parameters
    ----------
    name : str
        As scenarios, run folders and ``raydr list metrics`` have it.
    title, description : str
        What the report calls it, and one line on what it measures.
    needs : set of {"labels", "rows", "recovered", "clusters"}
        What it looks at beside the map: classes, the true rows, the geometry that the server recovered, the clusters
        that the method makes itself.
    higher_is_better : bool
        Which way it improves.

    Examples
    --------
    >>> @metric("rows", "Rows", "number of rows", needs={"rows"})  # doctest: +SKIP
    ... def rows(examination: Examination) -> float:
    ...     return examination.count
    """

    def register(measure: Measure) -> Measure:
        METRICS.add(name, Metric(name, title, description, higher_is_better, frozenset(needs), measure))
        return measure

    return register


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
    progress: Progress = unheard,
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
