"""Rows, metrics and movement of each period, and a small map of each, as the page and the terminal show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from raydr.metrics.drift import LEAST_FIRST, UNLIKE
from raydr.plain import listed
from raydr.report import wording
from raydr.report.colouring import GREY, colouring
from raydr.report.picture import in_page
from raydr.report.projections import in_plane
from raydr.report.run.progress import INCHES, SmallMap
from raydr.runfolder.reading import RunFolder
from raydr.runfolder.records import PeriodMeasures

MOST_MAPS = 24
"""Largest number of small maps; of more periods, an even selection is shown."""
_MOST_NAMED = 6
_MAPS: tuple[Literal["federated", "central"], ...] = ("federated", "central")


@dataclass(frozen=True)
class PeriodLine:
    """A period and its cells, as text."""

    period: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class PeriodTable:
    """The periods in their order, and the headings of their cells."""

    headings: tuple[str, ...]
    lines: tuple[PeriodLine, ...]


def sentence(run: RunFolder) -> str:
    """Say which share of each period is unlike the first one; "" if the run has no periods or no metrics."""
    periods = run.measures.periods
    if not any(period.federated for period in periods):
        return ""
    first, *others = periods
    name, compared = wording.brief(first.period), [period for period in others if period.compared]
    if not compared:
        return (
            f"The first period, {name}, has {wording.plural(first.rows, 'row')}. The others are compared with it if it"
            f" has at least {LEAST_FIRST}."
        )
    shares = [f"{_share(period)} of {wording.brief(period.period)}" for period in compared]
    return (
        f"Rows unlike those of the first period, {name}: {listed(shares, _MOST_NAMED)}. Without any change it would be"
        f" about {100.0 * UNLIKE:.0f}{wording.NARROW}%, or less."
    )


def table(run: RunFolder) -> PeriodTable | None:
    """Return the table of the periods; None without periods."""
    periods = run.measures.periods
    if not periods:
        return None
    names = tuple(next((period.federated for period in periods if period.federated), ()))
    maps = _MAPS if any(period.central for period in periods) else _MAPS[:1]
    columns = [(which, name) for name in names for which in maps]
    moved = any(period.compared for period in periods)
    headings = [wording.short_title(name) + ", pooled data" * (which == "central") for which, name in columns]
    lines = []
    for period in periods:
        cells = [wording.count(period.rows), wording.count(period.sites)]
        cells += [_text(period, which, name) or "–" for which, name in columns]
        cells += [_share(period) if period.compared else "–"] * moved
        lines.append(PeriodLine(wording.brief(period.period), tuple(cells)))
    return PeriodTable(
        ("Rows", "Sites", *headings, *["Unlike the first period"] * moved),
        tuple(lines),
    )


def small_maps(run: RunFolder) -> list[SmallMap]:
    """Return a map of each period on common axes, with the rows of all others in grey."""
    if run.periods is None:
        return []
    way = colouring("period", run.periods)
    points = in_plane(run, run.federated)
    chosen = np.unique(
        np.linspace(0, len(way.names) - 1, min(MOST_MAPS, len(way.names))).round().astype(np.int64)
    )
    return [
        SmallMap(
            f"{wording.brief(way.names[place])}: {wording.plural(way.counts[place], 'row')}",
            in_page(
                points,
                np.where(way.codes == place, way.colours[place], GREY).tolist(),
                INCHES,
                in_disk=run.in_disk,
                above=way.codes == place,
            ),
        )
        for place in chosen.tolist()
    ]


def _share(period: PeriodMeasures) -> str:
    share = period.unlike / period.compared
    return f"{100.0 * share:.0f}{wording.NARROW}%"


def _text(period: PeriodMeasures, which: Literal["federated", "central"], name: str) -> str:
    means = period.federated if which == "federated" else period.central
    return wording.estimated(means[name].mean, period.error(which, name)) if name in means else ""
