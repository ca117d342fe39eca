"""The map during training: small maps, and metrics by round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.report import wording
from raydr.report.charts import LineChart, line_chart
from raydr.report.colouring import colourings
from raydr.report.picture import in_page
from raydr.report.projections import in_plane, onto
from raydr.runfolder.reading import RoundMap, RunFolder

MOST_MAPS = 12
"""Largest number of small maps on a page; of more, an even selection is shown."""
INCHES = 3.2  # at 100 pixels per inch, twice the size on the page


@dataclass(frozen=True)
class SmallMap:
    """A map during training: its title and the address of its picture."""

    title: str
    picture: str


@dataclass(frozen=True)
class Curve:
    """A metric by round; ``arrow`` is the direction that is better."""

    title: str
    arrow: str
    chart: LineChart


def stages(run: RunFolder) -> list[RoundMap]:
    """Return the maps during training, and the final map after the last round."""
    reached = list(run.along)
    last = max((line.round for line in run.rounds), default=0)
    if reached and reached[-1].round < last:
        reached.append(RoundMap(last, run.measures.federated, run.federated))
    return reached


def small_maps(run: RunFolder) -> list[SmallMap]:
    """Return pictures of the maps during training and the final map, aligned with it and coloured alike."""
    reached = stages(run)
    way = colourings(run)[0]
    colours = [way.colours[code] for code in way.codes]
    chosen = np.unique(np.linspace(0, len(reached) - 1, min(MOST_MAPS, len(reached))).round().astype(int))
    maps = []
    for stage in (reached[place] for place in chosen):
        points = in_plane(run, onto(run, stage.points, run.federated)(stage.points))
        title = "Before the first round" if stage.round == 0 else f"After round {stage.round:,}"
        maps.append(SmallMap(title, in_page(points, colours, INCHES, in_disk=run.in_disk)))
    return maps


def curves(run: RunFolder) -> list[Curve]:
    """Return a curve for each metric of the maps, with the pooled-data map's value as a level."""
    reached = stages(run)
    found = []
    for name in dict.fromkeys(name for stage in reached for name in stage.measures):
        known = [
            (stage.round, value)
            for stage in reached
            if (value := stage.measures.get(name)) is not None  # None if it could not be computed
        ]
        chart = line_chart(
            [round for round, _ in known],
            [value for _, value in known],
            wording.metric_title(name),
            run.measures.central.get(name),
        )
        if chart is not None:
            found.append(Curve(wording.metric_title(name), wording.arrow(name), chart))
    return found
