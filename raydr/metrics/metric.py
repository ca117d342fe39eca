"""What a metric is, the registry of all of them, and their evaluation on one map."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, KeysView, Set
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, TypeVar

from raydr.arrays import Float64Array
from raydr.errors import ScenarioError, did_you_mean
from raydr.geometry.points import Progress, unheard
from raydr.metrics.evidence import LARGEST_K, Evidence, Examination, UnmeasurableError
from raydr.metrics.sampling import EXACT_ROWS, SAMPLED_ROWS, Estimate
from raydr.registry import Registry

Need: TypeAlias = Literal["labels", "rows", "recovered", "clusters", "sites", "new", "lift"]
Measure = TypeVar("Measure", bound=Callable[[Examination], float | Estimate])
MeasureByK = TypeVar("MeasureByK", bound=Callable[[Examination, int], float | Estimate])

_OF_A_METRIC = 0.9
"""How far through a metric its search of neighbours takes."""
USUAL_NEIGHBORS = 10
"""Of each row, that its own faithfulness is told of, or the nearest number to that which a metric asks for."""
MOST_NEIGHBORS = 1_000
"""Of a row, that a metric may look at: the graph of a million rows then takes 12 GB."""


@dataclass(kw_only=True, frozen=True)
class Metric:
    """One measure of a map: its name, how to read it, what it needs, and how it is computed.

    ``k`` is the number of neighbours that it looks at, None where it looks at none; ``perfect`` what the server holds
    where the metric is perfect, "" where that follows from it for nothing; ``by_default`` whether ``metrics: default``
    has it, or only scenarios that name it.
    """

    name: str
    title: str
    description: str
    higher_is_better: bool
    needs: frozenset[Need]
    measure: Callable[[Examination], float | Estimate]
    k: int | None = None
    perfect: str = ""
    by_default: bool = True


@dataclass(kw_only=True, frozen=True)
class Family:
    """Metrics that differ in the number of neighbours alone; ``{k}`` in the description stands for it."""

    name: str
    title: str
    description: str
    higher_is_better: bool
    needs: frozenset[Need]
    measure: Callable[[Examination, int], float | Estimate]

    def member(self, k: int, name: str = "") -> Metric:
        """Metric of ``k`` neighbours, by the name ``FAMILY_K`` unless it has one of its own."""
        return Metric(
            name=name or f"{self.name}_{k}",
            title=self.title if name else f"{self.title}, k = {k}",
            description=self.description.format(k=k),
            higher_is_better=self.higher_is_better,
            needs=self.needs,
            measure=lambda examination: self.measure(examination, k),
            k=k,
        )


METRICS: Registry[Metric] = Registry("metrics", "raydr.metrics")
"""Every metric by its name."""
DEFAULT_METRICS: KeysView[str] = METRICS.keys()
"""Names of the metrics that are listed: all that there are when they are asked for."""
FAMILIES: Registry[Family] = Registry("metrics", "raydr.metrics")
"""Those that take another number of neighbours than the metrics that are listed."""


def metric(
    name: str,
    title: str,
    description: str,
    *,
    needs: Set[Need],
    higher_is_better: bool = True,
    perfect: str = "",
    by_default: bool = True,
) -> Callable[[Measure], Measure]:
    """Register a function of an :class:`Examination` as a metric; it raises `UnmeasurableError` where it has no value.

    Parameters
    ----------
    name : str
        As scenarios, run folders and ``raydr list metrics`` have it.
    title, description : str
        What the report calls it, and one line on what it measures.
    needs : set of {"labels", "rows", "recovered", "clusters", "sites", "new", "lift"}
        What it looks at beside the map: classes, the true rows, the geometry that the server recovered, the clusters
        that the method makes itself, who holds which rows, rows that were held out and placed afterwards, and
        where in the features' own coordinates the recovered rows lie.
    higher_is_better : bool
        Which way it improves.
    perfect : str
        Of what the server recovered: what it holds where the metric is perfect, as the report says beside the value.
    by_default : bool
        Whether ``metrics: default`` has it; else only scenarios that name it, since it takes long, or says little of
        most data.

    Examples
    --------
    >>> @metric("rows", "Rows", "number of rows", needs={"rows"})  # doctest: +SKIP
    ... def rows(examination: Examination) -> float:
    ...     return examination.count
    """

    def register(measure: Measure) -> Measure:
        METRICS.add(
            name,
            Metric(
                name=name,
                title=title,
                description=description,
                higher_is_better=higher_is_better,
                needs=frozenset(needs),
                measure=measure,
                perfect=perfect,
                by_default=by_default,
            ),
        )
        return measure

    return register


def metric_by_k(
    name: str,
    title: str,
    description: str,
    *,
    k: int | tuple[int, ...],
    needs: Set[Need],
    higher_is_better: bool = True,
) -> Callable[[MeasureByK], MeasureByK]:
    """Register a function of an :class:`Examination` and a number ``k`` of neighbours as metrics ``NAME_K``.

    Parameters
    ----------
    name, title, description, needs, higher_is_better
        As of :func:`metric`; ``{k}`` in the description stands for the number.
    k : int or tuple of int
        That of the metric ``NAME``; or those of the metrics ``NAME_K`` that are listed. Scenarios may name any other.

    Examples
    --------
    >>> @metric_by_k("near", "Near", "whether the {k} nearest stay so", k=10, needs={"rows"})  # doctest: +SKIP
    ... def near(examination: Examination, k: int) -> float:
    ...     return float(examination.true_neighbors(k).k >= k)
    """

    def register(measure: MeasureByK) -> MeasureByK:
        family = Family(
            name=name,
            title=title,
            description=description,
            higher_is_better=higher_is_better,
            needs=frozenset(needs),
            measure=measure,
        )
        FAMILIES.add(name, family)
        for listed in (family.member(k, name),) if isinstance(k, int) else map(family.member, k):
            METRICS.add(listed.name, listed)
        return measure

    return register


@dataclass(frozen=True)
class Scores:
    """Values by metric name, and for the metrics that could not be computed the reason.

    ``faithfulness`` holds by the name of a metric what it is the mean of, (rows,) from 0 to 1: the share of its nearest
    neighbours that each row keeps. It comes of the metric ``npa_K`` whose K is nearest to ten; empty without any, and
    where not all rows were looked at: then ``sampled_rows`` says how many were, and ``standard_errors`` by how much,
    in standard deviations, the values of a sample may be off.
    """

    values: dict[str, float]
    not_computed: dict[str, str]
    faithfulness: dict[str, Float64Array] = field(default_factory=dict, compare=False)
    standard_errors: dict[str, float] = field(default_factory=dict)
    sampled_rows: int | None = None


def evaluate(
    names: Iterable[str],
    evidence: Evidence,
    *,
    threads: int | None = None,
    progress: Progress = unheard,
    exact_rows: int = EXACT_ROWS,
    sampled_rows: int = SAMPLED_ROWS,
) -> Scores:
    """Compute metrics on one map; neighbour searches are shared between them, bits do not depend on ``threads``.

    Past ``exact_rows`` rows, what grows faster than their number is estimated from ``sampled_rows`` of them, drawn by
    the evidence's seed, and its standard error stated (:mod:`raydr.metrics.sampling`).

    Parameters
    ----------
    names
        Of metrics, as :func:`metric_named` takes them; `DEFAULT_METRICS` for all.
    evidence
        The map and what it is judged against.
    threads
        Threads; None takes all cores.
    progress
        Called as ``progress(done, total)``, in metrics; a search of neighbours moves through its metric's own one.
    exact_rows, sampled_rows
        Up to how many rows all are looked at, and at how many of more.

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
    measured = 0

    def searched(blocks: float, total: int) -> None:
        progress(measured + _OF_A_METRIC * blocks / total, len(metrics))

    neighbors = graph_size(metric.name for metric in metrics)
    examination = Examination(
        evidence=evidence,
        threads=threads,
        neighbors=neighbors,
        progress=searched,
        exact_rows=exact_rows,
        sampled_rows=sampled_rows,
    )
    scores = Scores({}, {})
    for metric in metrics:
        try:
            found = metric.measure(examination)
            if isinstance(found, Estimate):
                scores.standard_errors[metric.name] = found.standard_error
                found = found.value
            scores.values[metric.name] = found
        except UnmeasurableError as reason:
            scores.not_computed[metric.name] = str(reason)
        measured += 1
        progress(measured, len(metrics))
    if examination.kept:
        nearest = min(examination.kept, key=lambda name: (abs(metric_named(name).k - USUAL_NEIGHBORS), name))  # type: ignore[operator]
        scores.faithfulness[nearest] = examination.kept[nearest]
    return (
        replace(scores, sampled_rows=min(sampled_rows, examination.count))
        if scores.standard_errors
        else scores
    )


def default_metrics(lacking: Set[Need] = frozenset()) -> tuple[str, ...]:
    """Names of the metrics of ``metrics: default``, where so much of what metrics look at is not there.

    >>> "npa_10" in default_metrics(), "anchored_cosine" in default_metrics()
    (True, False)
    >>> "npa_10" in default_metrics({"rows"})
    False
    """
    return tuple(name for name, metric in METRICS.items() if metric.by_default and not lacking & metric.needs)


def graph_size(names: Iterable[str]) -> int:
    """Neighbours of a row that metrics of these names look at in the graphs that they share, and one more.

    >>> graph_size(["npa_10", "sc"]), graph_size(["trustworthiness_100"])
    (51, 101)
    """
    return max([LARGEST_K, *(metric.k + 1 for name in names if (metric := metric_named(name)).k is not None)])


def metric_named(name: str) -> Metric:
    """Return the metric of that name, or of another number of neighbours: ``FAMILY_K``.

    Raises
    ------
    ScenarioError
        If there is none, with the nearest valid name; or if the number is out of range.

    Examples
    --------
    >>> metric_named("trustworthiness").k, metric_named("trustworthiness_7").title
    (5, 'Trustworthiness, k = 7')
    """
    if name in METRICS:
        return METRICS[name]
    family, _, k = name.rpartition("_")
    if family in FAMILIES and re.fullmatch("[0-9]{1,9}", k):
        if 1 <= int(k) <= MOST_NEIGHBORS and k[0] != "0":
            return FAMILIES[family].member(int(k))
        raise ScenarioError(
            f"The metric {name!r} has no number of neighbours that can be looked at: end it in _1 to"
            f" _{MOST_NEIGHBORS}, as in {family}_7."
        )
    raise ScenarioError(
        f"There is no metric {name!r}{did_you_mean(name, METRICS)}. Metrics are {', '.join(METRICS)}, and those of"
        f" neighbours ({', '.join(FAMILIES)}) with any number of them, as trustworthiness_7. Correct the name under"
        " metrics, or write `metrics: default` for all."
    )
