"""Picture of utility against leakage for a sweep of audited runs.

The x axis is what attacks recovered, the y axis how faithful the map is; the top left is best. The name of a point
comes from its run's method, protections and epsilon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from raydr.files import write_whole
from raydr.privacy.verdict import verdict
from raydr.report import wording
from raydr.report.colouring import CATEGORIES
from raydr.report.picture import png
from raydr.runfolder.reading import ELSEWHERE, RunFolder, read_run
from raydr.runfolder.records import FRONTIER
from raydr.runfolder.sweep import SweepFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UTILITIES = ("ca_10", "npa_10", "trustworthiness")
"""Utility metrics: each has a panel if any run has it."""
_LEAST_GAP = 0.036
"""Smallest distance between two names, relative to a panel's height."""
_LETTER = 0.019
"""Width of a character, in units of leakage."""


@dataclass(frozen=True)
class FrontierPoint:
    """A point of the sweep.

    Attributes
    ----------
    system, protection : str
        Method and protections.
    leakage : float
        0 if the best attack only guesses, 1 if it recovers everything.
    utilities : mapping of metric to float
        Metrics of the federated map.
    bounded : bool
        Whether the whole run has a finite epsilon.
    """

    system: str
    protection: str
    leakage: float
    utilities: dict[str, float]
    bounded: bool


def places(sweep: SweepFolder) -> list[FrontierPoint]:
    """Return the points with audited runs, each named by its first run."""
    found = []
    for point in sweep.points:
        leakage = point.means.get("leakage")
        trial = next(
            (trial for trial in sweep.trials if trial.point == point.point and trial.folder is not None), None
        )
        if leakage is None or trial is None or not (sweep.path / str(trial.folder)).is_dir():
            continue
        run = read_run(sweep.path / str(trial.folder))
        values = {name: point.means.get(f"federated.{name}") for name in UTILITIES}
        utilities = {name: value for name, value in values.items() if value is not None}
        if utilities:
            system, protection = wording.method_name(run.scenario), protections(run)
            found.append(
                FrontierPoint(system, protection, leakage, utilities, run.privacy.epsilon is not None)
            )
    return found


def protections(run: RunFolder) -> str:
    """Describe a run's protections in a few words, from its ledger and accountant."""
    found = verdict(run.ledger, run.privacy)
    noises = {entry.protection.on for entry in run.ledger if entry.protection is not None}
    if run.privacy.epsilon is not None and noises:
        return f"ε = {wording.epsilon(run.privacy.epsilon)}"
    parts = []
    if found.keyed:
        parts.append("isometry key")
    parts += [f"noise on {on}" for on in sorted(noises)]
    if run.privacy.secure_aggregation:
        parts.append("secure sums")
    return ", ".join(parts) or "no protection"


def frontier(sweep: SweepFolder) -> bytes | None:
    """Return the picture as PNG bytes, or None if no run was audited."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    shown = places(sweep)
    names = [name for name in UTILITIES if any(name in place.utilities for place in shown)]
    if not names:
        return None
    systems = list(dict.fromkeys(place.system for place in shown))
    colours = {system: CATEGORIES[index % len(CATEGORIES)] for index, system in enumerate(systems)}
    figure = Figure(figsize=(5.4 * len(names) + 0.6, 6.2), dpi=100, layout="constrained")
    for name, axes in zip(names, figure.subplots(1, len(names), squeeze=False)[0], strict=True):
        _panel(axes, name, shown, colours, _pooled(sweep, name))
    marks = [
        Line2D([], [], linestyle="", marker="o", markersize=8, color=colours[system], label=system)
        for system in systems
    ]
    marks.append(
        Line2D(
            [], [], linestyle="", marker="D", markersize=7, color="#5f6670", label="differentially private"
        )
    )
    if any(_pooled(sweep, name) is not None for name in names):
        marks.append(Line2D([], [], linestyle="--", color="#5f6670", label="pooled data"))
    columns = min(len(marks), 3 * len(names))
    figure.legend(handles=marks, loc="outside lower center", ncols=columns, frameon=False, fontsize=11)
    return png(figure)


def write_frontier(sweep: SweepFolder) -> Path | None:
    """Write ``frontier.png`` into a sweep folder; return None if no run was audited.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    content = frontier(sweep)
    return write_whole(sweep.path / FRONTIER, content, ELSEWHERE) if content is not None else None


def _pooled(sweep: SweepFolder, name: str) -> float | None:
    """Return the best value of a pooled-data map in the sweep."""
    found = [value for point in sweep.points if (value := point.means.get(f"central.{name}")) is not None]
    return max(found, default=None)


def _panel(
    axes: Axes, name: str, shown: Sequence[FrontierPoint], colours: dict[str, str], pooled: float | None
) -> None:
    """Draw one utility over leakage, with a name at each point."""
    here = [place for place in shown if name in place.utilities]
    for place in here:
        axes.plot(
            place.leakage,
            place.utilities[name],
            marker="D" if place.bounded else "o",
            markersize=9,
            color=colours[place.system],
            markeredgecolor="white",
            linestyle="",
            zorder=3,
        )
    values = [place.utilities[name] for place in here] + ([pooled] if pooled is not None else [])
    low, high = min(values), max(values)
    margin = 0.08 * (high - low or 1.0)
    axes.set(xlim=(-0.06, 1.32), ylim=(low - margin, high + margin), xticks=[0.0, 0.25, 0.5, 0.75, 1.0])
    if pooled is not None:
        axes.axhline(pooled, linestyle="--", color="#5f6670", linewidth=1.0, zorder=1)
    _name(axes, here, name, (high - low + 2 * margin) * _LEAST_GAP, colours)
    axes.set_title(wording.metric_title(name), fontsize=13)
    axes.set_xlabel("leakage to the best attack (0: a guess, 1: everything)", fontsize=10.5)
    axes.grid(color="#e2e4e8", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)


def _name(axes: Axes, here: Sequence[FrontierPoint], name: str, gap: float, colours: dict[str, str]) -> None:
    """Write names to the right of the points, each as near its point as earlier names allow."""
    from matplotlib.patheffects import withStroke

    taken: list[tuple[float, float, float]] = []  # left, right and height of each name
    lowest, highest = axes.get_ylim()
    for place in sorted(here, key=lambda place: (-place.utilities[name], place.leakage)):
        left = place.leakage + 0.035
        right = left + _LETTER * len(place.protection)
        steps = sorted(range(-40, 41), key=lambda step: (abs(step), step > 0))
        anywhere = (place.utilities[name] + step * gap / 2 for step in steps)
        heights = [height for height in anywhere if lowest <= height <= highest]
        height = next(
            (at for at in heights if all(right < a or left > b or abs(at - c) > gap for a, b, c in taken)),
            heights[0],
        )
        taken.append((left, right, height))
        axes.annotate(
            place.protection,
            (place.leakage, place.utilities[name]),
            (left, height),
            fontsize=8.5,
            va="center",
            color=colours[place.system],
            parse_math=False,
            zorder=4,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )
