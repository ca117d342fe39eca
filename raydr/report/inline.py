"""A map as a picture that stands in the page itself."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from raydr.arrays import Float64Array
from raydr.report.picture import draw_map, png


def in_page(points: Float64Array, colours: Sequence[str], inches: float, *, in_disk: bool) -> str:
    """A map (rows, 2) as the address of a PNG that stands in the page itself."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(inches, inches))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    draw_map(axes, points, colours, inches, in_disk=in_disk)
    axes.axis("off")
    return "data:image/png;base64," + base64.b64encode(png(figure, transparent=True)).decode("ascii")
