"""The interactive maps: one Bokeh document whose maps share their rows, so a selection in one shows in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from raydr.arrays import Float64Array, Int64Array
from raydr.records import AXES
from raydr.report.colouring import Colouring, colourings, drawing_order, point_alpha, point_size
from raydr.report.runfolder import RunFolder
from raydr.report.views import BOUNDARY, frame, panels


def embedded_maps(run: RunFolder) -> dict[str, Any]:
    """Everything that ``report.js`` needs to draw the maps.

    Returns
    -------
    dict
        ``docs`` and ``items`` for ``Bokeh.embed.embed_items``: one figure for each panel, to be placed in the
        element named ``map-PANEL``; ``colourings``, their names and colours. The rows' names travel as small
        codes, which the page turns into text and, when the switch is turned, into colours. Of maps in 3-D the
        page shows two axes at a time; ``panels`` tells it whose columns to exchange.
    """
    from bokeh.document import Document

    order = drawing_order(len(run.federated))
    ways = colourings(run)
    maps = panels(run)
    source = _source(run, maps, order, ways)
    figures = {panel: _figure(run, panel, points, source) for panel, points in maps.items()}
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
        "panels": list(maps),
    }


def _source(
    run: RunFolder, maps: Mapping[str, Float64Array], order: Int64Array, ways: Sequence[Colouring]
) -> Any:
    from bokeh.models import ColumnDataSource

    rows: Any
    if isinstance(run.rows, tuple):
        rows = [run.rows[place] for place in order]
    else:
        rows = run.rows[order]
        # JavaScript's numbers are exact up to 2^53, Bokeh's integer columns up to 2^31.
        small = rows.min() >= -(2**31) and rows.max() < 2**31
        rows = rows.astype(np.int32) if small else [str(row) for row in rows]
    columns: dict[str, Any] = {"row": rows}
    for panel, points in maps.items():
        for axis, places in zip(AXES, points[order].astype(np.float32).T, strict=False):
            columns[f"{panel}_{axis}"] = places.copy()
    for way in ways:
        small = np.uint16 if len(way.names) < 2**16 else np.int32
        columns[f"{way.by}_code"] = way.codes[order].astype(small)
    opaque = [int(colour[1:] + "ff", 16) for colour in ways[0].colours]
    columns["colour"] = np.array(opaque, dtype=np.uint32)[ways[0].codes[order]]  # 0xRRGGBBAA
    return ColumnDataSource(columns, name="rows")


def _figure(run: RunFolder, panel: str, points: Float64Array, source: Any) -> Any:
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

    x_range, y_range, *_ = frame(points, in_disk=run.in_disk)
    told = ["row", "client"]
    told += ["label"] * (run.labels is not None) + ["cluster"] * (run.clusters is not None)
    hover = HoverTool(tooltips=[(name, f"@{name}") for name in told], limit=4)
    lasso, tap = LassoSelectTool(), TapTool()
    plot = figure(
        width=600,
        height=600,
        aspect_ratio=1,
        sizing_mode="scale_width",
        x_range=Range1d(*x_range),
        y_range=Range1d(*y_range),
        tools=[
            lasso,
            PanTool(),
            BoxZoomTool(match_aspect=True),
            # With a key held (or a pinch), so that scrolling the page over a map scrolls the page.
            WheelZoomTool(modifiers="ctrl"),
            tap,
            hover,
            ResetTool(),
            SaveTool(filename=f"{run.name}-{panel}"),
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
    if run.in_disk:
        plot.circle(
            x=0, y=0, radius=1, fill_color=None, line_color=BOUNDARY, line_width=1.2, level="underlay"
        )
    rows = plot.scatter(
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
    hover.renderers = lasso.renderers = tap.renderers = [rows]  # and not the circle
    return plot
