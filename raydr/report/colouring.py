"""Colours of a map: one per category while the eye can tell them apart, a ramp beyond."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from raydr.arrays import Float64Array, Int64Array
from raydr.report.runfolder import NO_LABEL, RunFolder

CATEGORIES = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#784b4b", "#87e1a5", "#8778ff", "#b42d87",
    "#e1d200", "#b40f00", "#b4d2f0", "#a5b487", "#2d4bc3", "#f05a69", "#5a87d2", "#006978", "#a55a4b", "#695ae1",
)  # fmt: skip
"""Okabe and Ito's colours less black and yellow, then the colours farthest from those before: in OKLab, for the
least of normal, deuteranope and protanope sight (Machado 2009), among colours that show on a white and on a dark
page (contrast at least 1.5 and 2.3); strong ones first. The smallest distance under any of the three is 0.076 among
the first ten and 0.069 among all twenty; Matplotlib's ten tab10 colours come as near as 0.007."""

RAMP = ("#5a3c96", "#3c6eb4", "#1e9baa", "#5abe82", "#b4d250", "#f0c83c")
"""Stops of the ramp for more categories than colours: lightness rises along it, so it reads without hue, and it
starts light enough to show on a dark page."""

GREY = "#9a9a9a"
"""Rows without a label."""


@dataclass(frozen=True)
class Colouring:
    """One way to colour the rows of a run.

    Attributes
    ----------
    by : {"label", "cluster", "client"}
        What the colour tells.
    kind : {"categories", "order", "values"}
        One colour each; or a ramp along the order of too many names; or a ramp along numbers.
    names : tuple of str
        Each name once, in natural order (numbers by size).
    colours : tuple of str
        The hexadecimal colour of each name.
    codes : Int64Array, (rows,)
        Position in ``names`` of each row's name.
    """

    by: Literal["label", "cluster", "client"]
    kind: Literal["categories", "order", "values"]
    names: tuple[str, ...]
    colours: tuple[str, ...]
    codes: Int64Array

    @property
    def last_coloured(self) -> str:
        """The name at the upper end of a ramp: the last that is not the missing label."""
        return next(
            name for name, colour in zip(self.names[::-1], self.colours[::-1], strict=True) if colour != GREY
        )

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of rows of each name."""
        return tuple(np.bincount(self.codes, minlength=len(self.names)).tolist())


def colourings(run: RunFolder) -> tuple[Colouring, ...]:
    """Every way to colour a run: by label first when it has labels, by cluster when it has clusters, and by client."""
    ways = [colouring("label", run.labels)] if run.labels is not None else []
    ways += [colouring("cluster", run.clusters)] if run.clusters is not None else []
    return (*ways, colouring("client", run.clients))


def colouring(by: Literal["label", "cluster", "client"], values: Sequence[str]) -> Colouring:
    """Choose the colours of one name per row.

    Up to twenty names get a colour each. Beyond that, names that are all numbers are placed on a ramp by value,
    others by their natural order.

    Examples
    --------
    >>> colouring("client", ["site 10", "site 9", "site 9"]).names
    ('site 9', 'site 10')
    """
    names = tuple(sorted(set(values), key=_natural))
    position = {name: code for code, name in enumerate(names)}
    codes = np.fromiter((position[value] for value in values), dtype=np.int64, count=len(values))
    labelled = [name for name in names if by != "label" or name != NO_LABEL]
    numbers = [_number(name) for name in labelled]
    kind: Literal["categories", "order", "values"]
    if len(labelled) <= len(CATEGORIES):
        kind, shades = "categories", dict(zip(labelled, CATEGORIES, strict=False))
    else:
        finite = [number for number in numbers if number is not None]
        kind = "values" if len(finite) == len(labelled) else "order"
        along = np.array(finite) if kind == "values" else np.arange(len(labelled), dtype=np.float64)
        along = along / max(1.0, float(np.abs(along).max()))  # so that no difference overflows
        shades = dict(zip(labelled, ramp((along - along.min()) / (np.ptp(along) or 1.0)), strict=True))
    return Colouring(by, kind, names, tuple(shades.get(name, GREY) for name in names), codes)


def ramp(positions: Float64Array) -> list[str]:
    """Hexadecimal colours at positions (names,) in [0, 1] along the ramp."""
    stops = np.array([[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in RAMP], dtype=np.float64)
    at = np.linspace(0.0, 1.0, len(stops))
    channels = np.column_stack([np.interp(positions, at, channel) for channel in stops.T])
    return [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in channels.round().astype(int)]


def point_size(rows: int) -> float:
    """Diameter of a point in pixels on a map about 600 pixels wide: 9 for 100 rows, 5 for 1,800, 2.4 for 40,000."""
    return float(np.clip(26.0 * rows**-0.225, 2.0, 9.0))


def point_alpha(rows: int) -> float:
    """Opacity of a point: nearly opaque for few, so that crowds still show their density for many."""
    return float(np.clip(2.4 * rows**-0.15, 0.35, 0.9))


def drawing_order(rows: int) -> Int64Array:
    """Give a fixed random order of the rows: drawn by client or by label, the last would hide the others."""
    return np.random.default_rng(0).permutation(rows).astype(np.int64)


def _number(name: str) -> float | None:
    try:
        number = float(name)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _natural(name: str) -> tuple[bool, float, list[tuple[bool, int, str]]]:
    """Numbers by size, then text with its digits read as numbers: site 9 before site 10; no label last."""
    number = _number(name)
    if number is not None:
        return (False, number, [])
    parts = [(part.isdecimal(), part.lstrip("0")) for part in re.split(r"(\d+)", name)]
    # Of two numbers the one with more digits is larger, however many there are.
    return (
        True,
        float(name == NO_LABEL),
        [(digits, len(part) if digits else 0, part) for digits, part in parts],
    )
