"""The map on the released page: landmarks and density, both noisy, as shapes of an SVG."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from raydr.array_files import ArrayArchive
from raydr.arrays import Float64Array, FloatArray
from raydr.plain import short_number

WIDTH = 640.0
_MARGIN = 0.1
_LARGEST = 0.02
"""Radius of the largest landmark, as a part of the width."""
_DRAWN = 0.004
"""Radius of a drawn landmark."""


@dataclass(frozen=True)
class Square:
    """A square of the density: its place in the picture, how dark it is (0 to 1), and its count in words."""

    x: float
    y: float
    width: float
    height: float
    part: float
    count: str


@dataclass(frozen=True)
class Circle:
    """A landmark: its place in the picture, and its count in words. Its area is proportional to the count."""

    x: float
    y: float
    radius: float
    count: str


@dataclass(frozen=True)
class ReleasedMap:
    """Shapes of the picture.

    ``squares`` is empty without a density. ``cells`` is the number of cells from which landmarks were drawn, or 0.
    """

    height: float
    cells: int
    squares: tuple[Square, ...]
    circles: tuple[Circle, ...]


def released_map(arrays_file: Path) -> ReleasedMap | None:
    """Return the map of a run's model file; None if the model has no landmarks with places and counts."""
    if not arrays_file.exists():
        return None
    with ArrayArchive(arrays_file) as arrays:
        if not {"places", "counts"} <= set(arrays):
            return None
        names = {"places", "counts", "cells", "density", "density_corners"} & set(arrays)
        return _drawn({name: arrays[name] for name in names})


def _drawn(arrays: Mapping[str, FloatArray]) -> ReleasedMap:
    places = np.asarray(arrays["places"], np.float64)
    counts = np.asarray(arrays["counts"], np.float64)
    if "density" in arrays:
        low, high = np.asarray(arrays["density_corners"], np.float64)
    else:
        margin = _MARGIN * np.ptp(places, axis=0) + 1e-9
        low, high = places.min(axis=0) - margin, places.max(axis=0) + margin
    scale = WIDTH / float(high[0] - low[0])
    height = min(2.0 * WIDTH, max(0.25 * WIDTH, scale * float(high[1] - low[1])))
    stretch = np.array([scale, height / float(high[1] - low[1])])

    def picture(points: Float64Array) -> Float64Array:
        return np.asarray([0.0, height] + (points - low) * stretch * [1.0, -1.0])

    squares: tuple[Square, ...] = ()
    if "density" in arrays:
        density = np.asarray(arrays["density"], np.float64)
        side = len(density)
        most = float(density.max(initial=0.0)) or 1.0
        squares = tuple(
            Square(
                round(column * WIDTH / side, 2),
                round(height - (row + 1) * height / side, 2),
                round(WIDTH / side, 2),
                round(height / side, 2),
                round(float(density[column, row]) / most, 3),
                short_number(round(float(density[column, row]))),
            )
            for column, row in np.argwhere(density > 0.0)
        )
    cells = int(arrays["cells"].item()) if "cells" in arrays else 0
    radii = (_DRAWN if cells else _LARGEST) * WIDTH * np.sqrt(counts / counts.max())
    circles = tuple(
        Circle(
            round(float(x), 2), round(float(y), 2), round(float(radius), 2), short_number(round(float(count)))
        )
        for (x, y), radius, count in zip(picture(places), radii, counts, strict=True)
    )
    return ReleasedMap(round(height, 2), cells, squares, circles)
