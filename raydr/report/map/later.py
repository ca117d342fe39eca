"""Rows of sites that joined a run after it had ended, on its map as it stood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array, Int64Array
from raydr.report.colouring import Colouring, colourings, extended
from raydr.runfolder.joined import Joined
from raydr.runfolder.reading import RunFolder


@dataclass(frozen=True)
class Later:
    """Rows of sites that joined, as the maps of their run show them.

    Attributes
    ----------
    rows : Int64Array or sequence of str, (rows + later,)
        Names of the run's rows, and of these.
    points : Float64Array, (later, 2) or (later, 3)
        Where they lie on the run's map.
    ways : tuple of Colouring
        How the run and they are coloured: the run's own colours stay.
    """

    rows: Int64Array | Sequence[str]
    points: Float64Array
    ways: tuple[Colouring, ...]


def later_rows(run: RunFolder, joined: Sequence[Joined]) -> Later:
    """Rows of the sites that joined a run; none where none has."""
    if not joined:
        return Later(run.rows, np.empty((0, run.dimensions)), colourings(run))
    ways = []
    for way in colourings(run):
        called: list[str] = []
        for site in joined:
            own = {"label": site.labels, "cluster": site.clusters, "client": None}[way.by]
            lacking = site.site if way.by == "client" else f"no {way.by}"
            called += own or [lacking] * len(site.points)
        ways.append(extended(way, called))
    return Later(_named(run, joined), np.concatenate([site.points for site in joined]), tuple(ways))


def _named(run: RunFolder, joined: Sequence[Joined]) -> Int64Array | list[str]:
    """Names of all rows; of a site's, where one stands for a row already, with the site's before it."""
    every = [run.rows, *(site.rows for site in joined)]
    numbers = [rows for rows in every if isinstance(rows, np.ndarray)]
    if len(numbers) == len(every) and len(set(np.concatenate(numbers).tolist())) == sum(map(len, every)):
        return np.concatenate(numbers)
    names = [str(row) for row in run.rows]
    taken = set(names)
    for site in joined:
        own = [str(row) for row in site.rows]
        names += own if taken.isdisjoint(own) else [f"{site.site}: {row}" for row in own]
        taken.update(own)
    return names
