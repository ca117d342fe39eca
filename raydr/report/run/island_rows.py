"""Islands of the map, and which are separate groups of rows, as the page and the terminal show them."""

from __future__ import annotations

from dataclasses import dataclass

from raydr.report import wording
from raydr.runfolder.reading import RunFolder
from raydr.runfolder.records import IslandMeasures

_RATE = "at a false-discovery rate of 5 % (more if a cluster is bent)"


@dataclass(frozen=True)
class IslandLine:
    """An island's centre, rows, group, p-value and verdict, as text."""

    center: str
    rows: str
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
        return "The map has no islands."
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


def _cause(measured: IslandMeasures, gaps: str) -> str:
    """Say what may have made gaps that are none of the data."""
    if measured.left_out:
        return f"The map may have drawn {gaps}, or columns of at most ten values make them."
    return f"The map may have drawn {gaps}."


def lines(run: RunFolder) -> list[IslandLine]:
    """Return one line for each island; none if there are none."""
    measured = run.measures.islands
    if measured is None:
        return []
    return [
        IslandLine(
            center=", ".join(f"{value:.3g}" for value in island.center),
            rows=wording.count(island.rows),
            group=str(island.group + 1),
            p=f"{island.p:.3f}",
            verdict="yes" if island.separate else "no",
        )
        for island in measured.found
    ]
