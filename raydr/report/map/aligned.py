"""Maps of several runs: aligned by shared rows, coloured alike and joined row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from raydr.arrays import Float64Array, Int64Array
from raydr.report.colouring import Colouring, colouring, drawing_order
from raydr.report.map.atlas import (
    FALLBACK_INCHES,
    FALLBACK_ROWS,
    Atlas,
    MapColumn,
    Panel,
    Way,
    atlas,
    kept_column,
)
from raydr.report.picture import in_page
from raydr.report.projections import frame, in_plane, onto
from raydr.runfolder.maps import NO_LABEL
from raydr.runfolder.reading import RunFolder

ENOUGH_ROWS = 3
"""Smallest number of rows that determines a similarity of the plane with reflection."""
ELSEWHERE = "not in this run"
"""Client name of a row in a run that does not map it."""


def map_of_runs(runs: Sequence[RunFolder], names: Sequence[str], captions: Sequence[str]) -> Atlas:
    """Return the federated maps of several runs as one atlas over all of their rows.

    Rows are the same if they have the same table and name. Maps that can be aligned with the first share its frame;
    others have their own.
    """
    ids, places = _joined(runs)
    count = len(ids)
    columns, ways = _known(runs, names, places, count)
    shown = [align(run, runs[0]) for run in runs]
    turned = [points for points, is_turned in shown if is_turned]
    in_disk = any(run.in_disk for run in runs)
    common = frame(np.concatenate(turned), in_disk=in_disk)
    panels = []
    for number, (run, (points, is_turned)) in enumerate(zip(runs, shown, strict=True)):
        whole = np.full((count, 2), np.nan)
        whole[places[number]] = points
        around = common if is_turned else frame(points, in_disk=run.in_disk)
        kept = None
        if run.faithfulness is not None:
            kept = len(columns)
            shares = np.full(count, np.nan)
            shares[places[number]] = run.faithfulness.shares
            columns.append(kept_column(run.faithfulness.neighbors, shares, names[number]))
        panels.append(
            Panel(
                key=str(number),
                title=names[number],
                points=whole,
                frame=around,
                shown=True,
                kept=kept,
                in_disk=run.in_disk,
                caption=captions[number],
            )
        )
    if any(panel.kept is not None for panel in panels):
        ways.append(Way("faithfulness", tuple(panel.kept for panel in panels)))
    some = drawing_order(len(shown[0][0]))[:FALLBACK_ROWS]
    _, colours = shared_colours([(run.labels, run.clients) for run in runs])
    shades = [colours[0][row] for row in some]
    fallback = in_page(shown[0][0][some], shades, FALLBACK_INCHES, in_disk=runs[0].in_disk)
    return atlas(" and ".join(names), ids, panels, columns, ways, ((0, 1),), fallback)


def _joined(runs: Sequence[RunFolder]) -> tuple[Int64Array | list[str], list[Int64Array]]:
    """Return the names of all rows of all runs, and the positions (rows,) of each run's rows among them."""
    tables: list[object] = []
    groups: list[int] = []
    for number, run in enumerate(runs):
        # Rows with duplicate names cannot be matched with other runs.
        alone = len(set(row_names(run))) < len(run.clients)
        table: object = ("run", number) if alone else (_table_of(run), isinstance(run.rows, tuple))
        if table not in tables:
            tables.append(table)
        groups.append(tables.index(table))
    ids: list[Int64Array | Sequence[str]] = []
    places: list[Int64Array] = [np.empty(0, np.int64)] * len(runs)
    begun = 0
    for group in range(len(tables)):
        members = [number for number, of in enumerate(groups) if of == group]
        if tables[group] == ("run", members[0]):
            found, where = np.asarray(runs[members[0]].rows), np.arange(len(runs[members[0]].clients))
        else:
            found, where = np.unique(
                np.concatenate([np.asarray(runs[number].rows) for number in members]), return_inverse=True
            )
        ends = np.cumsum([len(runs[number].clients) for number in members])[:-1]
        for number, part in zip(members, np.split(where, ends), strict=True):
            places[number] = part + begun
        ids.append(found)
        begun += len(found)
    if all(isinstance(run.rows, np.ndarray) for run in runs):
        return np.concatenate(ids).astype(np.int64), places
    return [str(name) for part in ids for name in part], places


def _known(
    runs: Sequence[RunFolder], names: Sequence[str], places: Sequence[Int64Array], count: int
) -> tuple[list[MapColumn], list[Way]]:
    """Return columns and colourings for labels, if any run has them, and for clients."""
    columns: list[MapColumn] = []
    ways: list[Way] = []
    if any(run.labels is not None for run in runs):
        labels = np.full(count, NO_LABEL, dtype=object)
        for run, where in zip(runs[::-1], places[::-1], strict=True):
            if run.labels is not None:
                labels[where] = run.labels
        columns.append(MapColumn(_called(runs, "label"), colouring("label", labels.tolist())))
        ways.append(Way(columns[0].title, (0,) * len(runs)))
    held = []
    for run, where in zip(runs, places, strict=True):
        clients = np.full(count, ELSEWHERE, dtype=object)
        clients[where] = run.clients
        held.append(clients)
    alike = all((held[0] == clients).all() for clients in held[1:])
    client = _called(runs, "client")
    shared = colouring("client", [name for clients in (held[:1] if alike else held) for name in clients])
    for number, codes in enumerate(np.split(shared.codes, 1 if alike else len(runs))):
        title = client if alike else f"{client}: {names[number]}"
        columns.append(
            MapColumn(title, Colouring("client", shared.kind, shared.names, shared.colours, codes))
        )
    first = len(columns) - (1 if alike else len(runs))
    ways.append(Way(client, tuple(first if alike else first + number for number in range(len(runs)))))
    everywhere = all(run.labels is not None for run in runs)
    return columns, ways if everywhere else ways[::-1]


def _called(runs: Sequence[RunFolder], by: str) -> str:
    """Return the tables' name for the "label" or the "client" if all use the same one, else ``by``."""
    names = {run.called(by) for run in runs}
    return names.pop() if len(names) == 1 else by


def align(run: RunFolder, first: RunFolder) -> tuple[Float64Array, bool]:
    """Return a run's federated map (rows, 2), aligned with the first run's by the rows that both map.

    Returns
    -------
    tuple
        The map, and whether it is aligned; it is unchanged if the two share too few rows.
    """
    points = in_plane(run, run.federated)
    if run is first:
        return points, True
    place = {row: position for position, row in enumerate(row_names(first))}
    shared = [(here, place[row]) for here, row in enumerate(row_names(run)) if row in place]
    if len(shared) < ENOUGH_ROWS or _table_of(run) != _table_of(first):
        return points, False
    here, there = np.array(shared).T
    fixed = in_plane(first, first.federated)
    return onto(run, points[here], fixed[there])(points), True


def _table_of(run: RunFolder) -> list[object]:
    """Return the identity of the source table; equal row numbers of different tables are different rows."""
    data, clients = (run.section(key) for key in ("data", "clients"))
    return [data.get("source"), data.get("path"), clients.get("sites") or None]


def row_names(run: RunFolder) -> Sequence[str | int]:
    """Return the names of a run's rows, in table order."""
    return run.rows if isinstance(run.rows, tuple) else run.rows.tolist()


def shared_colours(
    runs: Sequence[tuple[Sequence[str] | None, Sequence[str]]],
) -> tuple[Colouring, list[list[str]]]:
    """Return one colouring for runs with the given labels (rows,) and clients (rows,), and the colours of their rows.

    The colouring is by label if all runs have labels, else by client.
    """
    by: Literal["label", "client"] = "label" if all(labels is not None for labels, _ in runs) else "client"
    names = [labels if by == "label" and labels is not None else clients for labels, clients in runs]
    key = colouring(by, [name for some in names for name in some])
    colour = dict(zip(key.names, key.colours, strict=True))
    return key, [[colour[name] for name in some] for some in names]
