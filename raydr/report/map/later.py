"""Rows of sites that joined a finished run, on its map."""

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
    """Rows of sites that joined, as the run's maps show them.

    Attributes
    ----------
    rows : Int64Array or sequence of str, (rows + later,)
        Names of the run's rows, then of the later rows.
    points : Float64Array, (later, 2) or (later, 3)
        Positions of the later rows on the run's map.
    ways : tuple of Colouring
        Colourings of all rows; the run's rows keep their colours.
    novelty : Float64Array, (later,), or None
        p-values of the later rows, NaN for those of sites without; None if no site has any.
    """

    rows: Int64Array | Sequence[str]
    points: Float64Array
    ways: tuple[Colouring, ...]
    novelty: Float64Array | None = None


def later_rows(run: RunFolder, joined: Sequence[Joined]) -> Later:
    """Return the rows of the sites that joined a run."""
    if not joined:
        return Later(run.rows, np.empty((0, run.dimensions)), colourings(run))
    ways = []
    for way in colourings(run):
        called: list[str] = []
        for site in joined:
            own = {"label": site.labels, "cluster": site.clusters}.get(way.by)
            lacking = site.site if way.by == "client" else f"no {way.by}"
            called += own or [lacking] * len(site.points)
        ways.append(extended(way, called))
    told = [np.full(len(site.points), np.nan) if site.novelty is None else site.novelty for site in joined]
    novelty = None if all(site.novelty is None for site in joined) else np.concatenate(told)
    points = np.concatenate([site.points for site in joined])
    return Later(_named(run, joined), points, tuple(ways), novelty)


def _named(run: RunFolder, joined: Sequence[Joined]) -> Int64Array | list[str]:
    """Return the names of all rows; a site's rows get its name as a prefix if one of them is taken."""
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
