"""Islands of the map, and which are separate groups of rows, as the page and the terminal show them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from raydr.report import wording
from raydr.runfolder.reading import RunFolder
from raydr.runfolder.records import Island, IslandMeasures

_RATE = "at a false-discovery rate of 5 % (more if a cluster is bent)"


MOSTLY_OF_SITE = 0.8
"""Smallest share of one site in an island that the page mentions."""


@dataclass(frozen=True)
class IslandLine:
    """An island's number and centre, rows, content, columns, group, p-value and verdict, as text."""

    name: str
    rows: str
    mostly: str
    columns: str
    group: str
    p: str
    verdict: str


def sentence(run: RunFolder) -> str:
    """Count the islands, and those that are separate groups of rows; "" if they were not looked for."""
    measured = run.measures.islands
    if measured is None:
        return ""
    found = measured.found
    if not found:
        return _at_one_point(run) or "The map has no islands."
    separate = sum(island.separate for island in found)
    left, groups = len(found) - separate, len({island.group for island in found}) - separate
    if separate + groups == 1:
        return (
            f"The map has {len(found)} islands, but none is a separate group of rows {_RATE}."
            f" {_cause(measured, 'the gaps')}"
        )
    if not left:
        return f"All {len(found)} islands of the map are separate groups of rows {_RATE}."
    verb = "is" if separate == 1 else "are"
    noun = "a separate group" if separate == 1 else "separate groups"
    together = "one group" if groups == 1 else f"{groups} groups"
    return (
        f"Of {len(found)} islands of the map, {separate or 'none'} {verb} {noun} of rows {_RATE}."
        f" The other {left} may be {together}. {_cause(measured, 'the gaps between them')}"
    )


def _at_one_point(run: RunFolder) -> str:
    """Count the rows that lie at one point if these are most rows, as on a map whose method diverged; else ""."""
    _, counts = np.unique(run.federated, axis=0, return_counts=True)
    most, rows = int(counts.max(initial=0)), len(run.federated)
    if 2 * most <= rows:
        return ""
    return f"{most:,} of {rows:,} rows lie at one point of the map: it does not show how they differ."


def _cause(measured: IslandMeasures, gaps: str) -> str:
    """Say what may have made gaps that are none of the data."""
    if measured.left_out:
        few = "Columns of at most ten values may make them too: the test leaves these out."
        return f"The map may have drawn {gaps}. {few}"
    return f"The map may have drawn {gaps}."


def lines(run: RunFolder) -> list[IslandLine]:
    """Return one line for each island; none if there are none."""
    measured = run.measures.islands
    if measured is None:
        return []
    mostly = _mostly(run)
    return [
        IslandLine(
            name=f"{number} at {', '.join(f'{value:.3g}' for value in island.center)}",
            rows=wording.count(island.rows),
            mostly=mostly.get(str(number), ""),
            columns=_columns(island),
            group=str(island.group + 1),
            p=f"{island.p:.3f}",
            verdict="yes" if island.separate else "no",
        )
        for number, island in enumerate(measured.found, 1)
    ]


def _mostly(run: RunFolder) -> dict[str, str]:
    """Return the most frequent label of each island, by number, and the site that has most of its rows."""
    if run.islands is None:
        return {}
    sizes = Counter(run.islands)
    text: dict[str, list[str]] = {number: [] for number in sizes}
    for by, names, least in (("label", run.labels, 0.0), ("client", run.clients, MOSTLY_OF_SITE)):
        of_island: dict[str, Counter[str]] = {number: Counter() for number in sizes}
        for number, name in zip(run.islands, names or (), strict=bool(names)):
            of_island[number][name] += 1
        for number, found in of_island.items():
            for name, rows in found.most_common(1):
                if rows >= least * sizes[number] and len(set(names or ())) > 1:
                    text[number].append(f"{run.called(by)} {name} ({rows / sizes[number]:.0%})")
    return {number: ", ".join(parts) for number, parts in text.items()}


def _columns(island: Island) -> str:
    """Name the columns in which an island's group differs most, with the larger share of pairs of rows."""
    parts = []
    for each in island.largest:
        way, share = ("higher", each.auc) if each.auc > 0.5 else ("lower", 1 - each.auc)
        parts.append(f"{each.column} {way} ({share:.0%})")
    if island.differing > len(parts):
        parts.append(f"{island.differing - len(parts):,} more")
    return ", ".join(parts)
