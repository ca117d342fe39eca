"""The maps of a sweep side by side: one of each point, small, turned onto the first and coloured alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raydr.arrays import Float64Array
from raydr.report.colouring import Colouring, drawing_order
from raydr.report.map.aligned import beside, shared_colours
from raydr.report.picture import in_page
from raydr.runfolder.reading import RunFolder, read_run
from raydr.runfolder.sweep import SweepFolder

MOST_MAPS = 60
"""Small maps on a page: about 2 MB."""
MOST_ROWS = 2_000
"""Rows of a small map that are drawn, by chance: more only blacken it, and all maps are in memory at once."""
INCHES = 2.4  # at 100 pixels to the inch, half as many again as they are shown at


@dataclass(frozen=True)
class Thumbnail:
    """A point's map: the place of the point, which repeat it is of, and the address of its picture."""

    place: int
    repeat: int
    picture: str


@dataclass(kw_only=True, frozen=True)
class Thumbnails:
    """Small maps in order, their colours, and how many could not be turned onto the first or were left out."""

    maps: tuple[Thumbnail, ...]
    key: Colouring
    in_disk: bool
    in_space: bool
    unturned: int
    left_out: int


def thumbnails(sweep: SweepFolder, order: Sequence[int]) -> Thumbnails | None:
    """Draw the map of each point's first repeat that is done, at most ``MOST_MAPS`` of them; None where there is none.

    Parameters
    ----------
    sweep : SweepFolder
        The sweep.
    order : sequence of int, (points,)
        Places of the points in ``sweep.points``, those to prefer first.

    Raises
    ------
    OutputError
        The folder of a trial that is shown is there, and is not a whole run folder.
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
        points, turned = beside(run, first)
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
    """Repeat and folder of each point's first trial that is done and whose folder is there."""
    found: dict[int, tuple[int, str]] = {}
    for trial in sweep.trials:
        if trial.status != "done" or trial.folder is None or trial.point in found:
            continue
        if (sweep.path / trial.folder).is_dir():
            found[trial.point] = trial.repeat, trial.folder
    return found
