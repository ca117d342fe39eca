"""Content of the interactive map: row positions and columns, packed to fit the page."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from raydr.arrays import Float64Array, Int64Array
from raydr.plain import listed
from raydr.report import wording
from raydr.report.charts import LARGEST, round_numbers
from raydr.report.colouring import (
    GREY,
    RAMP,
    Colouring,
    colouring,
    drawing_order,
    fracture_colouring,
    jump_colouring,
    point_alpha,
    point_size,
    stability_colouring,
    verdict_colouring,
    with_grey,
)
from raydr.report.map.later import Later, later_rows
from raydr.report.map.packing import (
    COARSE,
    FINEST,
    LETTERS,
    PackedCoordinates,
    as_text,
    by_place,
    codes,
    numbers,
    row_ids,
)
from raydr.report.picture import in_page
from raydr.report.projections import BOUNDARY, frame, in_plane, pairs_of_axes, panels
from raydr.runfolder.reading import RunFolder

BUDGET = 7_500_000
"""Bytes of text for the maps of a page, so that the page stays below 8 MB and can be mailed."""
ENOUGH_BITS = 10
"""Smallest acceptable number of bits of a coordinate: a thousandth of the map's width."""
MOST_LEVELS = 4_096
"""Largest number of different values that are sent as a list and codes; more are sent as float32."""
NO_LOSS_BITS = 12
"""With fewer bits the page has a notice: at a few times its size, a map would show the rounding."""
FAR_TOO_LARGE = 2**40
"""Size that is given to a column with more than ``MOST_LETTERS`` characters."""
MOST_LOST = 12
"""Largest number of columns that a notice names."""
MOST_LETTERS = 1_000_000
"""Largest number of characters of all names of a column."""
FALLBACK_INCHES, FALLBACK_ROWS = 6.0, 20_000
"""Width and number of rows of the picture for a page without JavaScript."""


@dataclass(frozen=True)
class MapColumn:
    """A column of the rows: names as a :class:`Colouring`, or numbers (rows,) with NaN for missing ones.

    ``share`` marks numbers in [0, 1] that are shown as percentages.
    """

    title: str
    values: Colouring | Float64Array
    share: bool = False


@dataclass(kw_only=True, frozen=True)
class Panel:
    """One map: its points (rows, 2 or 3), NaN for rows that are not on it, and its frame, a square or cube.

    ``shown`` is whether the page shows it at first. ``kept`` is the index of the column with the faithfulness of each
    row, or None.
    """

    key: str
    title: str
    points: Float64Array
    frame: tuple[tuple[float, float], ...]
    shown: bool = True
    kept: int | None = None
    in_disk: bool = False
    caption: str = ""


@dataclass(frozen=True)
class Way:
    """One way to colour the maps: the index of a column for each panel."""

    by: str
    columns: tuple[int | None, ...]


@dataclass(kw_only=True, frozen=True)
class Atlas:
    """Maps of the same rows, for the page's template.

    Attributes
    ----------
    header : dict
        The data that the script reads first.
    parts : list of str
        Columns and coordinates, as ``packing`` writes them.
    notices : list of str
        Notices on data that the page leaves out or rounds.
    fallback : str
        Address of a picture of the first map, for a page without JavaScript.
    pairs : tuple of pairs of int
        Pairs of axes that can be shown.
    """

    panels: Sequence[Panel]
    ways: Sequence[Way]
    header: dict[str, Any]
    parts: list[str]
    notices: list[str]
    fallback: str
    pairs: tuple[tuple[int, int], ...]


def map_of_run(run: RunFolder, later: Later | None = None) -> Atlas:
    """Return the federated and the pooled-data map of a run in one frame; the second is hidden at first.

    Rows of sites that joined later are appended, on the federated map only.
    """
    later = later or later_rows(run, ())
    more = len(later.points)
    columns = [MapColumn(run.called(way.by), way) for way in later.ways]
    by = [Way(column.title, (place, place)) for place, column in enumerate(columns)]

    def known(values: Float64Array) -> Float64Array:
        return np.concatenate([values, np.full(more, np.nan)]) if more else values

    kept: list[int | None] = []
    titles = wording.map_titles(run.scenario)
    for faithful, where in ((run.faithfulness, ""), (run.central_faithfulness, "pooled-data map")):
        kept.append(None if faithful is None else len(columns))
        columns += (
            [] if faithful is None else [kept_column(faithful.neighbors, known(faithful.shares), where)]
        )
    if kept[0] is not None:
        by.append(Way("faithfulness", tuple(kept)))
    if later.novelty is not None:
        by.append(Way("novelty", (len(columns), len(columns))))
        columns.append(
            MapColumn("novelty", np.concatenate([np.full(len(run.clients), np.nan), later.novelty]))
        )
    judged = [
        None if found is None else with_grey(verdict_colouring(found), more)
        for found in (run.verdicts, run.central_verdicts)
    ]
    if judged[0] is not None:
        by.append(
            Way(
                "verdict",
                tuple(None if one is None else len(columns) + place for place, one in enumerate(judged)),
            )
        )
        columns += [MapColumn("verdict", judged[0])]
        columns += [] if judged[1] is None else [MapColumn("verdict: pooled-data map", judged[1])]
    if run.singularities is not None:
        by.append(Way("fracture", (len(columns), None)))
        columns.append(MapColumn("fracture", with_grey(fracture_colouring(run.singularities), more)))
    if run.perturbations is not None:
        by.append(Way("perturbation", (len(columns), None)))
        columns.append(MapColumn("perturbation", with_grey(jump_colouring(run.perturbations), more)))
    if run.islands is not None:
        by.append(Way("island", (len(columns), None)))
        columns.append(MapColumn("island", with_grey(colouring("island", run.islands), more)))
    if run.stability is not None:
        by.append(Way("stability", (len(columns), None)))
        columns.append(MapColumn("stability", with_grey(stability_colouring(run.stability.verdicts), more)))
        for title, shares in (
            ("kept with other seeds", run.stability.over_seeds),
            ("kept without a site", run.stability.over_sites),
        ):
            if not np.isnan(shares).all():
                by.append(Way(title, (len(columns), None)))
                columns.append(MapColumn(title, known(shares), share=True))
    for name, values in run.shown.items():
        by.append(Way(name, (len(columns), len(columns))))
        columns.append(MapColumn(name, known(values)))
    shown = panels(run, later.points if more else None)
    around = frame(np.concatenate(list(shown.values())), in_disk=run.in_disk)
    maps = [
        Panel(
            key=key,
            title=title,
            points=points,
            frame=around,
            shown=key == "federated",
            kept=place,
            in_disk=run.in_disk,
        )
        for (key, points), title, place in zip(shown.items(), titles, kept, strict=False)
    ]
    fallback = picture_of(run, later, FALLBACK_ROWS, FALLBACK_INCHES)
    return atlas(run.name, later.rows, maps, columns, by, pairs_of_axes(run), fallback)


def picture_of(run: RunFolder, later: Later, most: int, inches: float) -> str:
    """Return the address of a picture of the federated map with at most ``most`` random rows and all later rows."""
    some = drawing_order(len(run.clients))[:most]
    shown = np.concatenate([some, np.arange(len(later.points)) + len(run.clients)])
    way = later.ways[0]
    points = in_plane(run, np.concatenate([run.federated[some], later.points]))
    return in_page(points, [way.colours[code] for code in way.codes[shown]], inches, in_disk=run.in_disk)


def kept_column(neighbors: int, shares: Float64Array, where: str = "") -> MapColumn:
    """Return the column of the share of nearest neighbours that each row (rows,) keeps, on the map ``where``."""
    title = f"{neighbors} nearest kept" if neighbors > 1 else "nearest kept"
    return MapColumn(f"{title}: {where}" if where else title, shares, share=True)


def atlas(
    name: str,
    rows: Int64Array | Sequence[str],
    maps: Sequence[Panel],
    columns: Sequence[MapColumn],
    ways: Sequence[Way],
    pairs: tuple[tuple[int, int], ...],
    fallback: str,
) -> Atlas:
    """Pack maps of the same rows; content that does not fit is left out, with a notice.

    Parameters
    ----------
    name : str
        File name stem of pictures and tables that a reader saves.
    rows : Int64Array or sequence of str, (rows,)
        Names of the rows.
    maps, columns, ways : sequence
        Most important first; a way names columns by index, for each map.
    pairs : tuple of pairs of int
        Pairs of axes to offer; the first is shown at first.
    fallback : str
        Address of the picture for a page without JavaScript.
    """
    ids = row_ids(rows)
    packed = [_packed(column) for column in columns]
    grouped = next((place for place, column in enumerate(columns) if _named(column)), None)
    along = _places(maps, None if grouped is None else columns[grouped])
    sizes = [
        len(content) + sum(map(len, entry.get("names", ())))
        if _named(column) or "names" not in entry
        else FAR_TOO_LARGE
        for column, (entry, content) in zip(columns, packed, strict=True)
    ]
    needed = {grouped, *(way.columns[0] for way in ways)}
    fit = _fit(len(rows), 0 if isinstance(ids, dict) else len(ids[1]), sizes, needed, along)
    notices = _notices(fit, maps, columns, has_ids=not isinstance(ids, dict))
    parts: list[str] = []

    def put(content: bytes) -> int:
        parts.append(as_text(content))
        return len(parts) - 1

    moved: dict[int | None, int] = {place: new for new, place in enumerate(fit.columns)}
    ways = [Way(way.by, tuple(map(moved.get, way.columns))) for way in ways if way.columns[0] in moved]
    columns = [columns[place] for place in fit.columns]
    header = {
        "name": name,
        "rows": len(rows),
        "bits": fit.bits,
        "sorted": moved.get(grouped),
        "ramp": RAMP,
        "grey": GREY,
        "boundary": BOUNDARY,
        "size": point_size(len(rows)),
        "alpha": point_alpha(len(rows)),
        "panels": [
            {
                "key": panel.key,
                "title": panel.title,
                "axes": [put(places.rounded(fit.bits)) for places in axes],
                "there": put(codes(_there(panel))[1]) if np.isnan(panel.points).any() else None,
                "kept": moved.get(panel.kept),
                "disk": _disk(panel),
            }
            for panel, axes in zip(maps[: fit.maps], along, strict=False)
        ],
        "ids": ids
        if isinstance(ids, dict)
        else {"kind": ids[0], "part": put(ids[1])}
        if fit.ids
        else {"kind": "none"},
        "columns": [packed[place][0] | {"part": put(packed[place][1])} for place in fit.columns],
        "ways": [_way(way, columns) for way in ways],
    }
    return Atlas(
        panels=maps[: fit.maps],
        ways=ways,
        header=header,
        parts=parts,
        notices=notices,
        fallback=fallback,
        pairs=pairs,
    )


@dataclass(frozen=True)
class _Fit:
    """Content that fits the page: bits of a coordinate, number of maps, column indices, whether row names fit."""

    bits: int
    maps: int
    columns: tuple[int, ...]
    ids: bool


def _fit(
    rows: int,
    ids: int,
    sizes: Sequence[int],
    needed: Collection[int | None],
    along: Sequence[Sequence[PackedCoordinates]],
) -> _Fit:
    """Leave out the least important content until coordinates have enough bits: last columns, row names, maps."""
    columns = [place for place, size in enumerate(sizes) if size < FAR_TOO_LARGE]
    spare = [place for place in columns if place not in needed]
    maps, has_ids = len(along), ids > 0

    def bits() -> int:
        axes = [places for panel in along[:maps] for places in panel]
        left = BUDGET / LETTERS - sum(sizes[place] for place in columns) - ids * has_ids
        left -= sum(len(places.coarse) for places in axes)
        return COARSE + int(np.clip(8 * left // (rows * len(axes)), 0, FINEST - COARSE))

    while bits() < ENOUGH_BITS:
        if spare:
            columns.remove(spare.pop())
        elif has_ids:
            has_ids = False
        elif maps > 1:
            maps -= 1
        elif len(columns) > 1:  # coordinates are sorted by the first column
            columns.pop()
        else:
            break
    return _Fit(bits(), maps, tuple(columns), has_ids)


def _notices(fit: _Fit, maps: Sequence[Panel], columns: Sequence[MapColumn], *, has_ids: bool) -> list[str]:
    """Return sentences on content that the page leaves out or rounds."""
    lost = [panel.title for panel in maps[fit.maps :]]
    lost += [column.title for place, column in enumerate(columns) if place not in fit.columns]
    lost += ["the rows' own names (they are counted from 0)"] * (has_ids and not fit.ids)
    notices = [f"Left out to keep the page below 8 MB: {listed(lost, MOST_LOST)}."] if lost else []
    if fit.bits < NO_LOSS_BITS:
        notices.append(
            f"To keep the page below 8 MB, positions are rounded to 1/{2**fit.bits:,} of the map's width and drawn at"
            " random within this distance. The run folder has the exact positions."
        )
    return notices


def _named(column: MapColumn) -> bool:
    """Return whether a column has names that fit the page, so that rows can be sorted by it."""
    return isinstance(column.values, Colouring) and sum(map(len, column.values.names)) <= MOST_LETTERS


def _places(maps: Sequence[Panel], names: MapColumn | None) -> list[list[PackedCoordinates]]:
    """Return the coordinates of each map: the first sorted by row names, others by positions on the first map.

    Sorted this way, a million deflated positions take a quarter to two fifths less space than in table order.
    """
    rows = len(maps[0].points)
    order: Int64Array = np.arange(rows)
    if names is not None and isinstance(names.values, Colouring):
        order = np.argsort(names.values.codes, kind="stable").astype(np.int64)
    found = []
    for panel in maps:
        if panel is not maps[0]:
            order = by_place(_framed(maps[0], 0), _framed(maps[0], 1))
        found.append(
            [PackedCoordinates.of(_framed(panel, axis), order) for axis in range(panel.points.shape[1])]
        )
    return found


def _framed(panel: Panel, axis: int) -> Float64Array:
    low, high = panel.frame[axis]
    return (panel.points[:, axis] - low) / (high - low)


def _there(panel: Panel) -> Int64Array:
    return (~np.isnan(panel.points[:, 0])).astype(np.int64)


def _disk(panel: Panel) -> dict[str, float] | None:
    """Return the centre and radius of the Poincaré disk in its frame, whose sides are 1."""
    if not panel.in_disk:
        return None
    low, high = panel.frame[0]
    return {"middle": -low / (high - low), "radius": 1.0 / (high - low)}


def _packed(column: MapColumn) -> tuple[dict[str, Any], bytes]:
    """Return a column's entry in the header, and its content."""
    values = column.values
    if isinstance(values, Colouring):
        width, content = codes(values.codes)
        return {"title": column.title, "names": values.names, "bytes": width}, content
    levels, places = np.unique(values, return_inverse=True)
    if len(levels) > MOST_LEVELS:
        return {"title": column.title, "share": column.share}, numbers(values)
    width, content = codes(places.astype(np.int64))
    known = [None if np.isnan(level) else level for level in levels.tolist()]
    return {"title": column.title, "share": column.share, "levels": known, "bytes": width}, content


def _way(way: Way, columns: Sequence[MapColumn]) -> dict[str, Any]:
    found = [columns[place] for place in way.columns if place is not None]
    entry: dict[str, Any] = {"by": way.by, "columns": way.columns}
    if isinstance(names := found[0].values, Colouring):
        entry |= {"kind": names.kind, "colours": names.colours}
        if names.kind != "categories":
            entry["last"] = names.last_coloured
        return entry | (_scale(*names.ends) if names.kind == "values" else {})
    if found[0].share:
        return entry | {"kind": "scale"} | _scale(0.0, 1.0)
    some = np.concatenate([column.values for column in found if isinstance(column.values, np.ndarray)])
    some = some[np.isfinite(some)]
    return (
        entry
        | {"kind": "scale"}
        | (_scale(float(some.min()), float(some.max())) if len(some) else _scale(0.0, 1.0))
    )


def _scale(low: float, high: float) -> dict[str, Any]:
    """Return the ends of a ramp by value, and its ticks: a number and its position on the ramp, from 0 to 1."""
    if max(abs(low), abs(high)) < LARGEST:
        round_ones = [mark for mark in round_numbers(low, high, 4) if low <= mark <= high]
        if len(round_ones) > 1:
            return {
                "low": low,
                "high": high,
                "ticks": [(mark, (mark - low) / (high - low)) for mark in round_ones],
            }
    return {"low": low, "high": high, "ticks": [(low, 0.0), (high, 1.0)]}
