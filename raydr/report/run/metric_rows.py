"""Metrics and costs as the page and the terminal show them."""

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
"""Most informative metrics if the scenario does not choose; those of a method's clusters come first."""
MOST_FIGURES = 3
_SAME = 0.9995  # a larger ratio counts as 1
_SURELY = 2.0  # standard errors by which two estimates must differ
_MAPS = ("federated", "central")


@dataclass(kw_only=True, frozen=True)
class MetricLine:
    """A metric as text.

    ``arrow`` is the direction that is better, ``exact`` the value with all digits, and ``meaning`` a note on leakage
    or "".
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
    """Metrics that were not computed for the same reason."""

    titles: str
    reason: str


@dataclass(frozen=True)
class Cost:
    """A cost of a run: its name, figure and text."""

    name: str
    figure: str
    text: str


def main_metrics(run: RunFolder) -> list[str]:
    """Return the names of the most informative metrics: the named ones, and a choice of the default ones."""
    measured, asked = list(run.measures.federated), run.scenario.get("metrics")
    named = asked if isinstance(asked, list) else ["default"]
    if "default" not in named:
        return measured
    first = [name for name in FIRST if name in measured] or measured
    return [*first, *(name for name in measured if name in named and name not in first)]


def figures(run: RunFolder) -> list[MetricLine]:
    """Return the metrics that are shown first, at most three."""
    known = [name for name in main_metrics(run) if run.measures.federated.get(name) is not None]
    return [_line(run, name) for name in known[:MOST_FIGURES]]


def metric_lines(run: RunFolder) -> list[MetricLine]:
    """Return every metric of either map."""
    return [_line(run, name) for name in dict.fromkeys([*run.measures.federated, *run.measures.central])]


def _line(run: RunFolder, name: str) -> MetricLine:
    value, bound = run.measures.federated.get(name), run.measures.central.get(name)
    known = wording.metric(name)
    difference = ratio = ""
    if value is not None and bound is not None:
        difference = f"{value - bound:+z.4f}".replace("-", "−")
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
    """Explain the pooled-data map, and name the metrics in which the federated map is better."""
    central = run.measures.central
    if not central:
        return ""
    text = (
        "The pooled-data map is made by the same method from all rows in one place, which no federation would allow."
        " It is a reference, not a bound."
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
        text += (
            f" The federated map is better by {wording.plural(len(better), 'metric')} ({named}{more}). Either this is"
            " chance, or the messages left out noise in the data."
        )
    return text


def not_computed(run: RunFolder) -> list[Lacking]:
    """Return the metrics that were not computed, grouped by reason."""
    titles: dict[str, list[str]] = {}
    for name, reason in run.measures.not_computed.items():
        titles.setdefault(reason, []).append(wording.metric_title(name))
    return [Lacking(", ".join(some), reason) for reason, some in titles.items()]


def took(run: RunFolder) -> list[Cost]:
    """Return time, bytes both ways and memory; requests only if there were rounds."""
    environment = run.environment
    seconds = sum(environment.seconds.values())
    longest = max(environment.seconds.items(), key=lambda item: item[1], default=("", 0.0))
    found = [
        Cost(
            "Time",
            wording.duration(seconds),
            f"longest stage: {longest[0]}, {wording.duration(longest[1])}; "
            f"{wording.federation(environment.federation, environment.actors)}",
        )
    ]
    up, down = (sum(entry.bytes for entry in run.ledger if entry.direction == way) for way in ("up", "down"))
    found.append(Cost("Left the clients", wording.size(up), f"{wording.size(down)} were sent to them"))
    if environment.network_seconds is not None:
        found.append(
            Cost(
                "On the sites' lines",
                wording.duration(environment.network_seconds),
                "time of all messages on the lines of `network`, in addition to the time above",
            )
        )
    asked, failed = (sum(getattr(line, name) for line in run.rounds) for name in ("asked", "failed"))
    if asked:
        lost = f", {failed:,} failed" if failed else ", none failed"
        requests = f"{wording.plural(asked, 'request')} to clients{lost}"
        found.append(Cost("Rounds", wording.count(len(run.rounds)), requests))
    peaks: Mapping[str, int] = environment.peak_memory_bytes
    if peaks:
        largest = max(peaks.items(), key=lambda item: item[1])
        found.append(Cost("Peak memory", wording.size(largest[1]), f"in the largest process, {largest[0]}"))
    return found
