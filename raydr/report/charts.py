"""Small charts as SVG lines and HTML bars, in the page's own colours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 460.0, 190.0  # in SVG units
LEFT, RIGHT, TOP, BOTTOM = 52.0, 8.0, 10.0, 34.0  # margins for the axis labels

LARGEST = (
    1e100  # largest value that is drawn; its inverse is the smallest difference: beyond, doubles overflow
)


@dataclass(frozen=True)
class Tick:
    """A number on an axis: its position in SVG units, and its text."""

    at: float
    text: str


@dataclass(kw_only=True, frozen=True)
class LineChart:
    """Layout of a line chart for the template.

    ``line`` is the path of the line, and ``points`` are positions with a tooltip each. ``level`` is the height of a
    value to compare with. ``description`` describes the line in words.
    """

    line: str
    points: tuple[tuple[float, float, str], ...]
    description: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    level: float | None = None
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = WIDTH - RIGHT
    bottom: float = HEIGHT - BOTTOM


@dataclass(frozen=True)
class Bar:
    """A bar: its name, its length relative to the longest in [0, 1], and its value as text."""

    name: str
    share: float
    text: str


def line_chart(
    xs: Sequence[float], ys: Sequence[float], name: str, level: float | None = None, step: str = "round"
) -> LineChart | None:
    """Lay out ``ys`` (values,) over ``xs`` (values,) and a horizontal level; None with fewer than two finite values.

    ``step`` names the unit of ``xs``.
    """
    pairs = [(x, y) for x, y in zip(xs, ys, strict=True) if abs(x) < LARGEST and abs(y) < LARGEST]
    if len(pairs) < 2:
        return None
    x_low, x_high = min(x for x, _ in pairs), max(x for x, _ in pairs)
    compared = [level] if level is not None and abs(level) < LARGEST else []
    shown = [*(y for _, y in pairs), *compared]
    y_marks = round_numbers(min(shown), max(shown), 4)
    y_low, y_high = min(y_marks[0], *shown), max(y_marks[-1], *shown)

    def across(x: float) -> float:
        return round(LEFT + (x - x_low) / ((x_high - x_low) or 1.0) * (WIDTH - LEFT - RIGHT), 1)

    def down(y: float) -> float:
        return round(TOP + (y_high - y) / ((y_high - y_low) or 1.0) * (HEIGHT - TOP - BOTTOM), 1)

    x_marks = [x for x in round_numbers(x_low, x_high, 5) if x_low <= x <= x_high and x == int(x)]
    return LineChart(
        line="M" + "L".join(f"{across(x)} {down(y)}" for x, y in pairs),
        points=tuple((across(x), down(y), f"{name} {y:.6g} in {step} {x:g}") for x, y in pairs),
        description=_description(pairs, level, step),
        x_ticks=tuple(Tick(across(x), f"{x:g}") for x in x_marks),
        y_ticks=tuple(Tick(down(y), f"{y:.12g}".replace("-", "−")) for y in y_marks),
        level=next(map(down, compared), None),
    )


def _description(pairs: Sequence[tuple[float, float]], level: float | None, step: str) -> str:
    """Describe where a line starts and ends, and its lowest and highest values if they are in between."""
    (first, begins), (last, ends) = pairs[0], pairs[-1]
    text = f"from {_short(begins)} in {step} {first:g} to {_short(ends)} in {step} {last:g}"
    for word, (x, y) in (
        ("lowest", min(pairs, key=lambda pair: pair[1])),
        ("highest", max(pairs, key=lambda pair: pair[1])),
    ):
        if x not in (first, last):
            text += f", {word} {_short(y)} in {step} {x:g}"
    return text + (f"; the dashed line is at {_short(level)}" if level is not None else "")


def _short(value: float) -> str:
    return f"{value:.4g}".replace("-", "−")


def round_numbers(low: float, high: float, wanted: int) -> list[float]:
    """Return about ``wanted`` multiples of 1, 2 or 5 times a power of ten that cover [low, high].

    Examples
    --------
    >>> round_numbers(0.03, 0.41, 4)
    [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    """
    span = next(width for width in (high - low, abs(high), 1.0) if width > 1.0 / LARGEST)
    power = 10.0 ** math.floor(math.log10(span / wanted))
    step = next((m * power for m in (1.0, 2.0, 5.0) if m * power * wanted >= span), 10.0 * power)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]


def bars(values: Mapping[str, float], text: Mapping[str, str]) -> tuple[Bar, ...]:
    """Lay out values >= 0 as bars, in their order."""
    longest = max(values.values(), default=0.0) or 1.0
    return tuple(Bar(name, value / longest, text[name]) for name, value in values.items())
