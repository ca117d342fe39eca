"""The interactive maps: one Bokeh document whose maps share their rows, so a selection in one shows in both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from raydr.arrays import Float64Array, Int64Array
from raydr.report.alignment import procrustes
from raydr.report.colouring import Colouring, colourings, drawing_order, point_alpha, point_size
from raydr.report.runfolder import RunFolder

MARGIN = 0.03  # of the map's extent, so that no point touches the frame


def panels(run: RunFolder) -> dict[str, Float64Array]:
    """Maps of a run by the identifier of their panel, the central one turned onto the federated."""
    if run.central is None:
        return {"federated": run.federated}
    return {"federated": run.federated, "central": procrustes(run.central, run.federated)(run.central)}


def square_around(points: Float64Array) -> tuple[tuple[float, float], tuple[float, float]]:
    """Ranges of x and y of equal length around all points: a square panel then has equal scales."""
    low, high = points.min(axis=0), points.max(axis=0)
    half = max(float((high - low).max()) * (0.5 + MARGIN), 1e-9)
    x, y = ((low + high) / 2.0).tolist()
    return (x - half, x + half), (y - half, y + half)


def embedded_maps(run: RunFolder) -> dict[str, Any]:
    """Everything that ``report.js`` needs to draw the maps.

    Returns
    -------
    dict
        ``docs`` and ``items`` for ``Bokeh.embed.embed_items``: one figure for each panel, to be placed in the
        element named ``map-PANEL``; ``colourings``, their names and colours. The rows' names travel as small
        codes, which the page turns into text and, when the switch is turned, into colours.
    """
    from bokeh.document import Document

    order = drawing_order(len(run.federated))
    ways = colourings(run)
    source = _source(run, order, ways)
    maps = panels(run)
    figures = {
        panel: _figure(panel, points, source, f"{run.name}-{panel}", labelled=run.labels is not None)
        for panel, points in maps.items()
    }
    document = Document()
    for plot in figures.values():
        document.add_root(plot)
    return {
        "docs": {"maps": document.to_json(deferred=False)},
        "items": [
            {
                "docid": "maps",
                "roots": {plot.id: f"map-{panel}" for panel, plot in figures.items()},
                "root_ids": [plot.id for plot in figures.values()],
            }
        ],
        "colourings": [{"by": way.by, "names": way.names, "colours": way.colours} for way in ways],
    }


def _source(run: RunFolder, order: Int64Array, ways: Sequence[Colouring]) -> Any:
    from bokeh.models import ColumnDataSource

    rows: Any
    if isinstance(run.rows, tuple):
        rows = [run.rows[place] for place in order]
    else:
        rows = run.rows[order]
        # JavaScript's numbers are exact up to 2^53, Bokeh's integer columns up to 2^31.
        rows = rows.astype(np.int32) if np.abs(rows).max() < 2**31 else [str(row) for row in rows]
    columns: dict[str, Any] = {"row": rows}
    for panel, points in panels(run).items():
        columns[f"{panel}_x"], columns[f"{panel}_y"] = points[order].astype(np.float32).T.copy()
    for way in ways:
        small = np.uint16 if len(way.names) < 2**16 else np.int32
        columns[f"{way.by}_code"] = way.codes[order].astype(small)
    opaque = [int(colour[1:] + "ff", 16) for colour in ways[0].colours]
    columns["colour"] = np.array(opaque, dtype=np.uint32)[ways[0].codes[order]]  # 0xRRGGBBAA
    return ColumnDataSource(columns, name="rows")


def _figure(panel: str, points: Float64Array, source: Any, filename: str, *, labelled: bool) -> Any:
    from bokeh.models import (
        BoxZoomTool,
        HoverTool,
        LassoSelectTool,
        PanTool,
        Range1d,
        ResetTool,
        SaveTool,
        TapTool,
        WheelZoomTool,
    )
    from bokeh.plotting import figure

    x_range, y_range = square_around(points)
    hover = HoverTool(
        tooltips=[("row", "@row"), ("client", "@client")] + [("label", "@label")] * labelled, limit=4
    )
    plot = figure(
        width=600,
        height=600,
        aspect_ratio=1,
        sizing_mode="scale_width",
        x_range=Range1d(*x_range),
        y_range=Range1d(*y_range),
        tools=[
            LassoSelectTool(),
            PanTool(),
            BoxZoomTool(match_aspect=True),
            # With a key held (or a pinch), so that scrolling the page over a map scrolls the page.
            WheelZoomTool(modifiers="ctrl"),
            TapTool(),
            hover,
            ResetTool(),
            SaveTool(filename=filename),
        ],
        toolbar_location=None,  # the page has one set of buttons for all maps
        output_backend="canvas",
        min_border=0,
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        name=panel,
    )
    plot.axis.visible = False
    plot.grid.visible = False
    alpha, diameter = point_alpha(len(points)), point_size(len(points))
    plot.scatter(
        f"{panel}_x",
        f"{panel}_y",
        source=source,
        size=diameter,
        fill_color="colour",
        fill_alpha=alpha,
        line_color=None,
        selection_fill_alpha=max(alpha, 0.9),
        # An outline brings small points to a size at which a few stand out among many.
        selection_line_color="colour",
        selection_line_width=max(0.0, 4.5 - diameter),
        nonselection_fill_alpha=0.07,
    )
    return plot
