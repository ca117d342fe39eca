"""Small maps of a sweep: one per point, aligned with the first and coloured alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raydr.arrays import Float64Array
from raydr.report.colouring import Colouring, drawing_order
from raydr.report.map.aligned import align, shared_colours
from raydr.report.picture import in_page
from raydr.runfolder.reading import RunFolder, read_run
from raydr.runfolder.sweep import SweepFolder

MOST_MAPS = 60
"""Largest number of small maps on a page: about 2 MB."""
MOST_ROWS = 2_000
"""Largest number of random rows in a small map: more would overlap, and all maps are in memory at once."""
INCHES = 2.4  # at 100 pixels per inch, 1.5 times the size on the page


@dataclass(frozen=True)
class Thumbnail:
    """A point's map: the index of the point, the repeat, and the address of the picture."""

    place: int
    repeat: int
    picture: str


@dataclass(kw_only=True, frozen=True)
class Thumbnails:
    """Small maps in order, their colours, and how many could not be aligned or were left out."""

    maps: tuple[Thumbnail, ...]
    key: Colouring
    in_disk: bool
    in_space: bool
    unturned: int
    left_out: int


def thumbnails(sweep: SweepFolder, order: Sequence[int]) -> Thumbnails | None:
    """Draw the map of each point's first finished repeat, at most ``MOST_MAPS``; None if there is none.

    Parameters
    ----------
    sweep : SweepFolder
        The sweep.
    order : sequence of int, (points,)
        Indices into ``sweep.points``, preferred ones first.

    Raises
    ------
    OutputError
        If the folder of a shown trial exists but is not a complete run folder.
    """
    first: RunFolder | None = None
    names: list[tuple[tuple[str, ...] | None, tuple[str, ...]]] = []
    drawn: list[tuple[int, int, Float64Array, bool]] = []
    unturned = in_space = 0
    repeats = _first_repeats(sweep)
    for place in (place for place in order if sweep.points[place].point in repeats):
        if len(drawn) == MOST_MAPS:
            break
        repeat, folder = repeats[sweep.points[place].point]
        run = read_run(sweep.path / folder)
        first = first or run
        points, turned = align(run, first)
        unturned += not turned
        in_space += run.dimensions == 3
        some = drawing_order(len(points))[:MOST_ROWS]
        labels = tuple(run.labels[row] for row in some) if run.labels is not None else None
        names.append((labels, tuple(run.clients[row] for row in some)))
        drawn.append((place, repeat, points[some], run.in_disk))
    if not drawn:
        return None
    key, colours = shared_colours(names)
    return Thumbnails(
        maps=tuple(
            Thumbnail(place, repeat, in_page(points, shades, INCHES, in_disk=in_disk))
            for (place, repeat, points, in_disk), shades in zip(drawn, colours, strict=True)
        ),
        key=key,
        in_disk=any(in_disk for *_, in_disk in drawn),
        in_space=in_space > 0,
        unturned=unturned,
        left_out=len(repeats) - len(drawn),
    )


def _first_repeats(sweep: SweepFolder) -> dict[int, tuple[int, str]]:
    """Return the repeat and folder of each point's first finished trial whose folder exists."""
    found: dict[int, tuple[int, str]] = {}
    for trial in sweep.trials:
        if trial.status != "done" or trial.folder is None or trial.point in found:
            continue
        if (sweep.path / trial.folder).is_dir():
            found[trial.point] = trial.repeat, trial.folder
    return found
