"""Colours of a map: one per category, or a ramp for many categories and for numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from raydr.arrays import Float64Array, Int64Array
from raydr.data.loading import NO_LABEL as NO_CLASS
from raydr.metrics.perturbation import JUMP
from raydr.metrics.singularity import NEAR
from raydr.plain import natural_order, number_in
from raydr.runfolder.maps import NO_LABEL
from raydr.runfolder.reading import RunFolder
from raydr.runfolder.records import STABILITIES, VERDICTS
from raydr.runfolder.stability import NOT_COMPARED

By: TypeAlias = Literal[
    "label", "cluster", "period", "client", "verdict", "fracture", "perturbation", "island", "stability"
]
"""Property of the rows that a colour shows."""
CATEGORIES = (
    "#065afc", "#d87800", "#18783c", "#d81200", "#0096c0", "#b406cc", "#fc3cb4", "#7e84fc", "#9c4e84", "#fc3066",
    "#3ca218", "#00a296", "#e46690", "#548a4e", "#cc0672", "#de4ed8", "#845aae", "#cc00a8", "#a25430", "#0c66cc",
    "#5484d8", "#007290", "#2a78fc", "#8a8472", "#8a84b4", "#8a48d2", "#d83c60", "#ba6cf0", "#cc48a2", "#6c7890",
    "#f65a54", "#b44254", "#7266e4", "#a2723c", "#6c9c72", "#fc1800", "#6c6c54", "#ba7e9c", "#cc6cc0", "#9c1ef0",
    "#cc6054", "#a85ac6", "#ae369c", "#a86678", "#2a7e6c", "#727800", "#a2903c", "#de06e4",
)  # fmt: skip
"""Colours with a contrast of at least 3 on a white and on a dark page, each far from the ones before it.

Distances are in OKLab, for the smallest of normal, deuteranope and protanope sight (Machado 2009). For normal sight the
smallest distance is 0.074 among the first 24 and 0.067 among all. For the smallest of the three it is 0.047 among the
first 24, compared with 0.007 for Matplotlib's ten tab10 colours."""
MOST_NUMBERS = 24
"""Largest number of different numbers that get a colour each; more are placed on a ramp."""

RAMP = ("#2f6ae0", "#8b54d4", "#c0429e", "#d9445d", "#d5601e", "#bb8017")
"""Stops of the ramp for numbers, and for more categories than colours. It runs from blue to yellow, which deuteranopes
and protanopes can distinguish, and gets slightly lighter within a contrast of 3 on both pages."""

UNLABELLED = (NO_CLASS, NO_LABEL, "no period")
"""Labels and periods of rows without: mapped rows, and rows that came later."""
VERDICT_COLOURS = ("#065afc", "#d81200", "#d87800")
"""Colours of `VERDICTS` and of `STABILITIES`: blue, red and orange, from `CATEGORIES`."""
GREY = "#858585"
"""Rows without a label, or without a value."""


@dataclass(frozen=True)
class Colouring:
    """One way to colour the rows of a run.

    Attributes
    ----------
    by : {"label", "cluster", "period", "client", "verdict", "fracture", "perturbation", "island", "stability"}
        What the colour shows.
    kind : {"categories", "order", "values"}
        One colour per name, a ramp by the order of many names, or a ramp by numeric value.
    names : tuple of str
        Each name once, in natural order (numbers by size).
    colours : tuple of str
        The hexadecimal colour of each name.
    codes : Int64Array, (rows,)
        Position in ``names`` of each row's name.
    """

    by: By
    kind: Literal["categories", "order", "values"]
    names: tuple[str, ...]
    colours: tuple[str, ...]
    codes: Int64Array

    @property
    def last_coloured(self) -> str:
        """Name at the upper end of a ramp: the last one that is not the missing label."""
        return next(
            name for name, colour in zip(self.names[::-1], self.colours[::-1], strict=True) if colour != GREY
        )

    @property
    def ends(self) -> tuple[float, float]:
        """Smallest and largest number of a ramp by value."""
        return float(self.names[0]), float(self.last_coloured)

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of rows of each name."""
        return tuple(np.bincount(self.codes, minlength=len(self.names)).tolist())


def colourings(run: RunFolder) -> tuple[Colouring, ...]:
    """Return the ways to colour a run: by label, cluster and period if it has them, and by client."""
    ways = [colouring("label", run.labels)] if run.labels is not None else []
    ways += [colouring("cluster", run.clusters)] if run.clusters is not None else []
    ways += [colouring("period", run.periods)] if run.periods is not None else []
    return (*ways, colouring("client", run.clients))


def colouring(
    by: By,
    values: Sequence[str],
) -> Colouring:
    """Choose colours for rows with one name each.

    Up to 48 names, or 24 if all are numbers, get a colour each. More numbers are placed on a ramp by value, more names
    by their natural order.

    Examples
    --------
    >>> colouring("client", ["site 10", "site 9", "site 9"]).names
    ('site 9', 'site 10')
    """
    names = tuple(sorted(set(values), key=_natural))
    position = {name: code for code, name in enumerate(names)}
    codes = np.fromiter(map(position.__getitem__, values), dtype=np.int64, count=len(values))
    labelled = [name for name in names if by not in ("label", "period") or name not in UNLABELLED]
    kind: Literal["categories", "order", "values"]
    finite = [number for number in map(number_in, labelled) if number is not None]
    numeric = len(finite) == len(labelled)
    if by == "period" and len(labelled) <= MOST_NUMBERS:  # time has a direction, so its colours have one
        kind, shades = (
            "categories",
            dict(zip(labelled, ramp(np.linspace(0.0, 1.0, len(labelled))), strict=True)),
        )
    elif len(labelled) <= (MOST_NUMBERS if numeric else len(CATEGORIES)):
        kind, shades = "categories", dict(zip(labelled, CATEGORIES, strict=False))
    else:
        kind = "values" if numeric else "order"
        along = np.array(finite) if kind == "values" else np.arange(len(labelled), dtype=np.float64)
        along = along / max(1.0, float(np.abs(along).max()))  # so that no difference overflows
        shades = dict(zip(labelled, ramp((along - along.min()) / (np.ptp(along) or 1.0)), strict=True))
    return Colouring(by, kind, names, tuple(shades.get(name, GREY) for name in names), codes)


def extended(way: Colouring, later: Sequence[str]) -> Colouring:
    """Extend a colouring to further rows, by the name of each; known names keep their colours.

    If there are then too many names for a colour each, all are placed on a ramp.

    Examples
    --------
    >>> extended(colouring("client", ["b", "c"]), ["a", "c"]).names
    ('b', 'c', 'a')
    """
    both = colouring(way.by, [*(way.names[code] for code in way.codes), *later])
    if both.kind != "categories" or way.kind != "categories":
        return both
    known = dict(zip(way.names, way.colours, strict=True))
    free = iter([colour for colour in CATEGORIES if colour not in way.colours])
    for name in both.names:
        if name not in known:
            known[name] = GREY if name in UNLABELLED else next(free)
    places = {name: code for code, name in enumerate(known)}
    codes = np.array([*way.codes.tolist(), *(places[name] for name in later)], dtype=np.int64)
    return Colouring(way.by, way.kind, tuple(known), tuple(known.values()), codes)


def verdict_colouring(verdicts: Int64Array) -> Colouring:
    """Return the colours of verdicts (rows,), as places in `VERDICTS`."""
    return Colouring("verdict", "categories", VERDICTS, VERDICT_COLOURS, verdicts)


def fracture_colouring(singularities: Float64Array) -> Colouring:
    """Return the colours of rows (rows,): near a fracture of the map, or not."""
    near = (singularities >= NEAR).astype(np.int64)
    return Colouring("fracture", "categories", ("elsewhere", "near a fracture"), VERDICT_COLOURS[:2], near)


def jump_colouring(perturbations: Float64Array) -> Colouring:
    """Return the colours of rows (rows,): those that would jump on the map, or not."""
    jumps = (perturbations >= JUMP).astype(np.int64)
    return Colouring("perturbation", "categories", ("stays", "would jump"), VERDICT_COLOURS[:2], jumps)


def with_grey(way: Colouring, later: int) -> Colouring:
    """Extend a colouring to ``later`` rows, which are grey because it does not apply to them."""
    if not later:
        return way
    codes = np.concatenate([way.codes, np.full(later, len(way.names), np.int64)])
    return Colouring(way.by, way.kind, (*way.names, f"no {way.by}"), (*way.colours, GREY), codes)


def stability_colouring(verdicts: Int64Array) -> Colouring:
    """Return the colours of verdicts (rows,), as places in `STABILITIES`, and -1 for rows that were not compared."""
    shown = 3 + bool((verdicts < 0).any())
    names, colours = (*STABILITIES, NOT_COMPARED)[:shown], (*VERDICT_COLOURS, GREY)[:shown]
    codes = np.where(verdicts < 0, len(STABILITIES), verdicts)
    return Colouring("stability", "categories", names, colours, codes)


def ramp(positions: Float64Array) -> list[str]:
    """Return hexadecimal colours at positions (names,) in [0, 1] along the ramp."""
    stops = np.array([[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in RAMP], dtype=np.float64)
    at = np.linspace(0.0, 1.0, len(stops))
    channels = np.column_stack([np.interp(positions, at, channel) for channel in stops.T])
    return [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in channels.round().astype(int)]


def point_size(rows: int) -> float:
    """Return the point diameter in pixels on a map 600 pixels wide: 9 for 100 rows, 5 for 1,800, 2.4 for 40,000."""
    return float(np.clip(26.0 * rows**-0.225, 2.0, 9.0))


def point_alpha(rows: int) -> float:
    """Return the opacity of a point: lower for many rows, so that overlapping points show density."""
    return float(np.clip(2.4 * rows**-0.15, 0.35, 0.9))


def drawing_order(rows: int) -> Int64Array:
    """Return a fixed random order of the rows, so that no client or label hides the others."""
    return np.random.default_rng(0).permutation(rows).astype(np.int64)


def _natural(name: str) -> tuple[bool, tuple[bool, float, list[tuple[bool, int, str]]]]:
    """Return a natural sort key, the missing label last."""
    return name in UNLABELLED, natural_order(name)
