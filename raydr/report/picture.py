"""Maps as PNG: the picture of a run, and maps that are embedded in a page."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from raydr.arrays import BoolArray, Float64Array
from raydr.files import write_whole
from raydr.plain import short
from raydr.report import wording
from raydr.report.colouring import RAMP, Colouring, colourings, drawing_order, point_alpha, point_size
from raydr.report.projections import BOUNDARY, frame, pairs_of_axes, panels
from raydr.runfolder.reading import ELSEWHERE, read_run
from raydr.runfolder.records import PICTURE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

DPI = 100
PANEL_INCHES = 7.6  # two panels and their margins are 1,600 pixels wide
PROJECTION_INCHES = 5.07  # three panels and their margins are as wide
POINTS_PER_INCH = 72.0
LONGEST_LABEL = 40  # characters of a label under the maps
LONGEST_NAME = 60  # characters of a run's name above the maps
BELOW = 0.35  # opacity of the rows below others, as a share
SIZED_FOR = 600.0  # panel width in pixels for which point sizes are chosen


def write_picture(folder: Path) -> Path:
    """Write a run folder's ``embedding.png``: the federated and the central map, coloured by label, else by client.

    2-D maps are side by side. Each 3-D map is a line of three panels, one for each pair of its principal axes.

    Raises
    ------
    OutputError
        If the folder is not a complete run folder, or the picture cannot be written.
    """
    from matplotlib.figure import Figure

    run = read_run(Path(folder))
    maps = panels(run)
    way = colourings(run)[0]
    colours = [way.colours[code] for code in way.codes]
    pairs = pairs_of_axes(run)
    in_space = len(pairs) > 1
    inches = PROJECTION_INCHES if in_space else PANEL_INCHES
    lines, across = (len(maps), len(pairs)) if in_space else (1, len(maps))
    figure = Figure(
        figsize=(0.8 + across * inches, lines * (inches + 0.45 * in_space) + 1.35),
        dpi=DPI,
        layout="constrained",
    )
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)  # type: ignore[union-attr, call-arg]
    heading = f"{short(run.name, LONGEST_NAME)}: {short(wording.method_name(run.scenario), LONGEST_NAME)}"
    _to_the_letter(figure.suptitle("", fontsize=17, fontweight="bold"), heading)
    places = iter(np.atleast_1d(figure.subplots(lines, across)).flat)
    for title, points in zip(wording.map_titles(run.scenario), maps.values(), strict=False):
        for pair in pairs:
            place = next(places)
            draw_map(place, points, colours, inches, pair=pair, in_disk=run.in_disk)
            if pair == pairs[len(pairs) // 2]:
                place.set_title(title, fontsize=13)
            if in_space:
                place.set_xlabel(f"axis {pair[0] + 1}", fontsize=11)
                place.set_ylabel(f"axis {pair[1] + 1}", fontsize=11)
    draw_key(figure, way)
    return write_whole(run.path / PICTURE, png(figure), ELSEWHERE)


def draw_map(
    axes: Axes,
    points: Float64Array,
    colours: Sequence[str],
    inches: float,
    *,
    pair: tuple[int, int] = (0, 1),
    in_disk: bool = False,
    above: BoolArray | None = None,
) -> None:
    """Draw points (rows, 2 or 3) in their ``colours`` (rows,) on square axes, ``inches`` wide, with equal scales.

    ``pair`` selects the axes to show. If ``in_disk``, the boundary of the Poincaré disk is drawn. The rows ``above``
    (rows,) are drawn last, and the others are pale.
    """
    from matplotlib.patches import Circle

    x, y = pair
    order = drawing_order(len(points))
    alpha: Any = point_alpha(len(points))
    if above is not None:
        order = order[np.argsort(above[order], kind="stable")]
        alpha = np.where(above, 1.0, BELOW * alpha)[order]
    diameter = point_size(len(points)) / SIZED_FOR * inches * POINTS_PER_INCH
    axes.scatter(
        points[order, x],
        points[order, y],
        c=[colours[row] for row in order],
        s=diameter**2,
        alpha=alpha,
        linewidths=0,
    )
    if in_disk:
        axes.add_patch(Circle((0.0, 0.0), 1.0, fill=False, edgecolor=BOUNDARY, linewidth=1.2, zorder=0))
    ranges = frame(points, in_disk=in_disk)
    axes.set(xlim=ranges[x], ylim=ranges[y], aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_color("#c4c8cf")


def draw_key(figure: Figure, way: Colouring) -> None:
    """Draw the colour key under the maps: a legend of the names, or the ramp with its two ends."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.lines import Line2D

    if way.kind == "categories":
        marks = [
            # Matplotlib drops entries whose label is empty or begins with "_"; the real names are set below.
            Line2D([], [], linestyle="", marker="o", markersize=8, color=colour, markeredgewidth=0, label="?")
            for colour in way.colours
        ]
        names = [short(wording.brief(name), LONGEST_LABEL) for name in way.names]
        longest = max(map(len, names))
        legend = figure.legend(
            handles=marks,
            loc="outside lower center",
            ncols=max(1, min(len(marks), int(150 / (longest + 5)))),
            frameon=False,
            fontsize=12,
            handletextpad=0.1,
            columnspacing=1.2,
        )
        for text, name in zip(legend.get_texts(), names, strict=True):
            _to_the_letter(text, name)
        return
    shades = ScalarMappable(cmap=LinearSegmentedColormap.from_list("ramp", RAMP))
    bar = figure.colorbar(
        shades, ax=figure.axes, orientation="horizontal", shrink=0.25, aspect=30, pad=0.02, ticks=[0, 1]
    )
    bar.outline.set_visible(False)
    ends = [short(wording.brief(name), LONGEST_LABEL) for name in (way.names[0], way.last_coloured)]
    for text, name in zip(bar.ax.set_xticklabels(ends, parse_math=False), ends, strict=True):
        _to_the_letter(text, name)
    how = "by value" if way.kind == "values" else "in name order"
    bar.set_label(f"{len(way.names):,} {way.by}s, {how}")


def _to_the_letter(text: Text, content: str) -> None:
    """Show a text literally: Matplotlib would read text between two $ as mathematics."""
    text.set(text=content, parse_math=False, usetex=False)


def png(figure: Figure, *, transparent: bool = False) -> bytes:
    """Return a figure as PNG bytes."""
    content = io.BytesIO()
    with warnings.catch_warnings():
        # A character that the font lacks is drawn as a box; the page uses the browser's fonts and shows it.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(content, format="png", dpi=DPI, transparent=transparent)
    return content.getvalue()


def in_page(
    points: Float64Array,
    colours: Sequence[str],
    inches: float,
    *,
    in_disk: bool,
    above: BoolArray | None = None,
) -> str:
    """Return a map (rows, 2) as the data address of a PNG, with the rows ``above`` (rows,) drawn last."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(inches, inches))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    draw_map(axes, points, colours, inches, in_disk=in_disk, above=above)
    axes.axis("off")
    return "data:image/png;base64," + base64.b64encode(png(figure, transparent=True)).decode("ascii")
