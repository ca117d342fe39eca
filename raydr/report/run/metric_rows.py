"""Metrics and costs as the page and the terminal show them: three figures first, all of them in a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import hypot

from raydr.report import wording
from raydr.runfolder.reading import RunFolder

FIRST = (
    "clustering_nmi", "clustering_ari",
    "npa_10", "ca_10", "trustworthiness", "continuity", "f_score", "distance_error",
    "knn_accuracy", "new_trustworthiness", "new_continuity",
)  # fmt: skip
"""Metrics that say most, where a scenario leaves it to raydr which are computed: those of clusters a method makes."""
MOST_FIGURES = 3
_SAME = 0.9995  # ratios that are said to be one
_SURELY = 2.0  # standard errors by which values of a sample differ that are said to
_MAPS = ("federated", "central")


@dataclass(kw_only=True, frozen=True)
class MetricLine:
    """A metric in words; ``arrow`` points where better is.

    ``exact`` is the value with all its digits, ``meaning`` what it says of privacy, "" where it says nothing.
    """

    title: str
    description: str
    arrow: str
    federated: str
    central: str
    difference: str
    ratio: str
    exact: str = ""
    meaning: str = ""
    central_known: bool = False


@dataclass(frozen=True)
class Lacking:
    """Metrics that were not computed for one reason."""

    titles: str
    reason: str


@dataclass(frozen=True)
class Cost:
    """Something that a run took: its name, the figure, and what there is to say of it."""

    name: str
    figure: str
    text: str


def telling(run: RunFolder) -> list[str]:
    """Names of the metrics that say most of a run: those that its scenario names, or raydr's choice of them."""
    measured = list(run.measures.federated)
    if isinstance(run.scenario.get("metrics"), list):
        return measured
    return [name for name in FIRST if name in measured] or measured


def figures(run: RunFolder) -> list[MetricLine]:
    """The three metrics that stand first: a method that makes clusters, by these; with classes or not, as computed."""
    known = [name for name in telling(run) if run.measures.federated.get(name) is not None]
    return [_line(run, name) for name in known[:MOST_FIGURES]]


def metric_lines(run: RunFolder) -> list[MetricLine]:
    """Every metric of either map."""
    return [_line(run, name) for name in dict.fromkeys([*run.measures.federated, *run.measures.central])]


def _line(run: RunFolder, name: str) -> MetricLine:
    value, bound = run.measures.federated.get(name), run.measures.central.get(name)
    known = wording.metric(name)
    difference = ratio = ""
    if value is not None and bound is not None:
        difference = f"{value - bound:+.4f}".replace("-", "−")
        ratio = wording.percent(value / bound) if bound > 0 else ""
    return MetricLine(
        title=wording.metric_title(name),
        description=known.description if known is not None else "",
        arrow=wording.arrow(name),
        federated=wording.estimated(value, run.measures.error("federated", name)),
        central=wording.estimated(bound, run.measures.error("central", name)),
        difference=difference,
        ratio=ratio,
        exact="" if value is None else repr(value),
        meaning=wording.meaning(name) if value is not None else "",
        central_known=bound is not None,
    )


def reference(run: RunFolder) -> str:
    """What the pooled-data map is to the federated one, and which of its figures the other betters."""
    central = run.measures.central
    if not central:
        return ""
    said = (
        "The pooled-data map is drawn by the same means from all rows in one place, which no federation would allow: a"
        " reference, and no bound."
    )
    better = [
        wording.metric_title(name)
        for name, value in run.measures.federated.items()
        if value is not None
        and (bound := central.get(name)) is not None
        and bound > 0
        and (
            value * _SAME > bound
            if wording.higher_is_better(name)
            else value < bound * _SAME and wording.higher_is_better(name) is False
        )
        and abs(value - bound) > _SURELY * hypot(*(run.measures.error(which, name) or 0.0 for which in _MAPS))
    ]
    if better:
        more = f"; {len(better) - MOST_FIGURES} more" if len(better) > MOST_FIGURES else ""
        named = "; ".join(f"{title[0].lower()}{title[1:]}" for title in better[:MOST_FIGURES])
        said += (
            f" By {wording.plural(len(better), 'metric')} ({named}{more}) the federated map is the better of the two:"
            " by chance of the drawing, or because what messages leave out was noise."
        )
    return said


def not_computed(run: RunFolder) -> list[Lacking]:
    """What was not computed, together where the reason is the same."""
    titles: dict[str, list[str]] = {}
    for name, reason in run.measures.not_computed.items():
        titles.setdefault(reason, []).append(wording.metric_title(name))
    return [Lacking(", ".join(some), reason) for reason, some in titles.items()]


def took(run: RunFolder) -> list[Cost]:
    """Seconds, bytes both ways, and memory; requests only where there were rounds."""
    environment = run.environment
    seconds = sum(environment.seconds.values())
    longest = max(environment.seconds.items(), key=lambda item: item[1], default=("", 0.0))
    found = [
        Cost(
            "Time",
            wording.duration(seconds),
            f"{longest[0]} took most, {wording.duration(longest[1])}; "
            f"{wording.federation(environment.federation, environment.actors)}",
        )
    ]
    up, down = (sum(entry.bytes for entry in run.ledger if entry.direction == way) for way in ("up", "down"))
    found.append(Cost("Left the clients", wording.size(up), f"{wording.size(down)} went to them"))
    asked, failed = (sum(getattr(line, name) for line in run.rounds) for name in ("asked", "failed"))
    if asked:
        lost = f", {failed:,} failed" if failed else ", none failed"
        requests = f"{wording.plural(asked, 'request')} to clients{lost}"
        found.append(Cost("Rounds", wording.count(len(run.rounds)), requests))
    peaks: Mapping[str, int] = environment.peak_memory_bytes
    if peaks:
        largest = max(peaks.items(), key=lambda item: item[1])
        found.append(Cost("Peak memory", wording.size(largest[1]), f"of the largest process, {largest[0]}"))
    return found
