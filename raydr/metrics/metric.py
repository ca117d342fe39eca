"""Metrics: their definition, their registry, and their evaluation on one map."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, KeysView, Set
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, TypeVar

from raydr.arrays import Float64Array, Int64Array
from raydr.errors import ScenarioError, did_you_mean
from raydr.geometry.points import Progress, unheard
from raydr.metrics.evidence import LARGEST_K, Evidence, Examination, UnmeasurableError
from raydr.metrics.sampling import EXACT_ROWS, SAMPLED_ROWS, MeanOverRows, SampledValue, ScoredRows
from raydr.metrics.site_scores import SiteScore, scores_by_site
from raydr.metrics.verdicts import Reliability
from raydr.registry import Registry

Need: TypeAlias = Literal["labels", "rows", "recovered", "clusters", "sites", "new", "lift"]
Measured: TypeAlias = float | SampledValue | MeanOverRows
Measure = TypeVar("Measure", bound=Callable[[Examination], Measured])
MeasureByK = TypeVar("MeasureByK", bound=Callable[[Examination, int], Measured])

_OF_A_METRIC = 0.9
"""Share of a metric's progress that its neighbour search takes."""
USUAL_NEIGHBORS = 10
"""Neighbours for the faithfulness of each row. The nearest number that a metric uses is taken."""
MOST_NEIGHBORS = 1_000
"""Maximum neighbours of a row for a metric. The graph of a million rows then takes 12 GB."""


@dataclass(kw_only=True, frozen=True)
class Metric:
    """One metric of a map: its name, meaning, inputs, and function.

    ``k`` is the number of neighbours that it uses, or None. ``perfect`` says what the server holds if the
    metric is perfect, or is "" if that implies nothing. ``by_default`` is whether ``metrics: default``
    includes it, or only scenarios that name it.
    """

    name: str
    title: str
    description: str
    higher_is_better: bool
    needs: frozenset[Need]
    measure: Callable[[Examination], Measured]
    k: int | None = None
    perfect: str = ""
    by_default: bool = True


@dataclass(kw_only=True, frozen=True)
class Family:
    """Metrics that differ only in the number of neighbours, which replaces ``{k}`` in the description."""

    name: str
    title: str
    description: str
    higher_is_better: bool
    needs: frozenset[Need]
    measure: Callable[[Examination, int], Measured]
    by_default: bool = True

    def member(self, k: int, name: str = "") -> Metric:
        """Return the metric of ``k`` neighbours, with the name ``FAMILY_K`` unless another is given."""
        nearest = "the nearest" if k == 1 else f"the {k} nearest"
        return Metric(
            name=name or f"{self.name}_{k}",
            title=self.title if name else f"{self.title}, k = {k}",
            description=self.description.replace("the {k} nearest", nearest).format(k=k),
            higher_is_better=self.higher_is_better,
            needs=self.needs,
            measure=lambda examination: self.measure(examination, k),
            k=k,
            by_default=self.by_default,
        )


METRICS: Registry[Metric] = Registry("metrics", "raydr.metrics")
"""Every metric by its name."""
DEFAULT_METRICS: KeysView[str] = METRICS.keys()
"""Names of the listed metrics, at the time of access."""
FAMILIES: Registry[Family] = Registry("metrics", "raydr.metrics")
"""Families of metrics, for numbers of neighbours other than the listed ones."""


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
    """Register a function of an :class:`Examination` as a metric. It raises `UnmeasurableError` if it has no value.

    Parameters
    ----------
    name : str
        The name in scenarios, run folders and ``raydr list metrics``.
    title, description : str
        The title in the report, and one line on what it measures.
    needs : set of {"labels", "rows", "recovered", "clusters", "sites", "new", "lift"}
        Inputs besides the map. They are classes, the true rows, the geometry that the server recovered, the
        method's own clusters and the owners of rows. "new" are held-out rows that were placed afterwards, and
        "lift" are places of the recovered rows in the features' own coordinates.
    higher_is_better : bool
        Whether a higher value is better.
    perfect : str
        For metrics of what the server recovered: what it holds if the metric is perfect. The report shows it
        next to the value.
    by_default : bool
        Whether ``metrics: default`` includes it. Set False if it takes long, or says little about most data.

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
    by_default: bool = True,
) -> Callable[[MeasureByK], MeasureByK]:
    """Register a function of an :class:`Examination` and a number ``k`` of neighbours as metrics ``NAME_K``.

    Parameters
    ----------
    name, title, description, needs, higher_is_better, by_default
        As in :func:`metric`. The number replaces ``{k}`` in the description.
    k : int or tuple of int
        The number for the metric ``NAME``, or the numbers for the listed metrics ``NAME_K``. Scenarios can
        name any other.

    Examples
    --------
    >>> @metric_by_k("near", "Near", "whether the {k} stay near", k=10, needs={"rows"})  # doctest: +SKIP
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
            by_default=by_default,
        )
        FAMILIES.add(name, family)
        for listed in (family.member(k, name),) if isinstance(k, int) else map(family.member, k):
            METRICS.add(listed.name, listed)
        return measure

    return register


@dataclass(frozen=True)
class Scores:
    """Values by metric name, and the reasons for metrics that could not be computed.

    ``faithfulness`` has, by the name of a metric, the values (rows,) from 0 to 1 whose mean it is. A value is
    the share of its nearest neighbours that the row keeps. The metric is the ``npa_K`` whose K is nearest to ten. It
    is empty without such a metric, or if rows were sampled. In that case ``sampled_rows`` is their number,
    and ``standard_errors`` are the standard errors of the values from sampling. ``sites`` has the neighbour
    preservation and trustworthiness of each site's rows. It is empty without these metrics, or if one site holds all
    rows. ``periods`` has the same of each period's rows. ``reliability`` has the verdict on each row, and
    ``row_scores`` (rows,) the scores of ``fracture`` and ``perturbation`` by column, if computed for all rows.
    """

    values: dict[str, float]
    not_computed: dict[str, str]
    faithfulness: dict[str, Float64Array] = field(default_factory=dict, compare=False)
    standard_errors: dict[str, float] = field(default_factory=dict)
    sampled_rows: int | None = None
    sites: tuple[SiteScore, ...] = field(default=(), compare=False)
    periods: tuple[SiteScore, ...] = field(default=(), compare=False)
    reliability: Reliability | None = field(default=None, compare=False)
    row_scores: dict[str, Float64Array] = field(default_factory=dict, compare=False)

    @property
    def by_row(self) -> dict[str, Float64Array | Int64Array]:
        """Columns (rows,) for the map's file: ``npa_K``, ``reliability``, ``verdict``, and scores, if computed."""
        columns: dict[str, Float64Array | Int64Array] = dict(self.faithfulness)
        if self.reliability is not None:
            columns["reliability"] = 1.0 - self.reliability.on_map
            columns["verdict"] = self.reliability.verdicts
        return columns | self.row_scores

    def joined(self, other: Scores) -> Scores:
        """Return these scores with the values, reasons and standard errors of other metrics too."""
        return replace(
            self,
            values=self.values | other.values,
            not_computed=self.not_computed | other.not_computed,
            standard_errors=self.standard_errors | other.standard_errors,
            sampled_rows=self.sampled_rows or other.sampled_rows,
        )


def evaluate(
    names: Iterable[str],
    evidence: Evidence,
    *,
    threads: int | None = None,
    progress: Progress = unheard,
    exact_rows: int = EXACT_ROWS,
    sampled_rows: int = SAMPLED_ROWS,
) -> Scores:
    """Compute metrics on one map. They share neighbour searches. Results do not depend on ``threads``, bit for bit.

    Above ``exact_rows`` rows, metrics whose work grows faster than the number of rows are estimated from
    ``sampled_rows`` rows, with a standard error (:mod:`raydr.metrics.sampling`). The rows are drawn with the evidence's
    seed.

    Parameters
    ----------
    names
        Names of metrics, as in :func:`metric_named`. `DEFAULT_METRICS` for all.
    evidence
        The map and everything to compare it with.
    threads
        Number of threads. None uses all cores.
    progress
        Called as ``progress(done, total)``, in metrics. A neighbour search advances within its metric.
    exact_rows, sampled_rows
        Maximum number of rows to use all of them, and sample size above that.

    Raises
    ------
    ScenarioError
        If a name is not a metric.

    Examples
    --------
    >>> import numpy as np
    >>> points = np.random.default_rng(0).normal(size=(40, 2))
    >>> scores = evaluate(["npa_10", "npa_50"], Evidence(rows=points, embedding=points))
    >>> scores.values
    {'npa_10': 1.0}
    >>> scores.not_computed
    {'npa_50': '50 neighbours need at least 51 rows, but there are 40'}
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
    by_row: dict[str, Float64Array] = {}
    for metric in metrics:
        try:
            found = metric.measure(examination)
            if isinstance(found, MeanOverRows):
                by_row[metric.name] = found.by_row
                if examination.sample is None:
                    if isinstance(found, Reliability):
                        scores = replace(scores, reliability=found)
                    elif isinstance(found, ScoredRows):
                        scores.row_scores[found.column] = found.scores
                found = found.value
            if isinstance(found, SampledValue):
                scores.standard_errors[metric.name] = found.standard_error
                found = found.value
            scores.values[metric.name] = found
        except UnmeasurableError as reason:
            scores.not_computed[metric.name] = str(reason)
        measured += 1
        progress(measured, len(metrics))
    judging = {name: by_row[name] for family in _OF_SITES if (name := _usual(by_row, family))}
    if (preservation := _usual(by_row, "npa")) and examination.sample is None:
        scores.faithfulness[preservation] = by_row[preservation]
    if judging and evidence.sites is not None:
        scores = replace(scores, sites=scores_by_site(judging, examination.sampled, evidence.sites))
    if judging and evidence.periods is not None:
        scores = replace(scores, periods=scores_by_site(judging, examination.sampled, evidence.periods))
    return (
        replace(scores, sampled_rows=min(sampled_rows, examination.count))
        if scores.standard_errors
        else scores
    )


_OF_SITES = ("npa", "trustworthiness")
"""Families of metrics that are computed for each site too, the first before the others."""


def _usual(names: Iterable[str], family: str) -> str:
    """Return the metric of a family whose number of neighbours is nearest to `USUAL_NEIGHBORS`, or ""."""
    members = {
        name: metric_named(name).k or 0
        for name in names
        if name == family or name.rpartition("_")[0] == family
    }
    return min(members, key=lambda name: (abs(members[name] - USUAL_NEIGHBORS), name), default="")


def default_metrics(lacking: Set[Need] = frozenset()) -> tuple[str, ...]:
    """Return the names of the metrics of ``metrics: default`` that work without the ``lacking`` inputs.

    >>> "npa_10" in default_metrics(), "anchored_cosine" in default_metrics()
    (True, False)
    >>> "npa_10" in default_metrics({"rows"})
    False
    """
    return tuple(name for name, metric in METRICS.items() if metric.by_default and not lacking & metric.needs)


def graph_size(names: Iterable[str]) -> int:
    """Return the size of the shared graphs for these metrics: one more neighbour than they use.

    >>> graph_size(["npa_10", "sc"]), graph_size(["trustworthiness_100"])
    (51, 101)
    """
    return max([LARGEST_K, *(metric.k + 1 for name in names if (metric := metric_named(name)).k is not None)])


def metric_named(name: str) -> Metric:
    """Return the metric of that name, or of another number of neighbours: ``FAMILY_K``.

    Raises
    ------
    ScenarioError
        If there is none (with the nearest valid name), or if the number is out of range.

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
            f"The metric {name!r} has an invalid number of neighbours. End the name in _1 to"
            f" _{MOST_NEIGHBORS}, for example {family}_7."
        )
    raise ScenarioError(
        f"There is no metric {name!r}{did_you_mean(name, METRICS)}. The metrics are {', '.join(METRICS)}, and those of"
        f" neighbours ({', '.join(FAMILIES)}) with any number of them, for example trustworthiness_7. Correct the name"
        " under metrics, or write `metrics: default` for all."
    )
