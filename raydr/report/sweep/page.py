"""The page of a sweep: one HTML file that opens without a network."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from raydr.files import write_whole
from raydr.plain import listed, short
from raydr.privacy.composition import OUTSIDE
from raydr.report import wording
from raydr.report.colouring import CATEGORIES, GREY, RAMP
from raydr.report.sweep.axes import ParallelAxis, axes, measures_of_interest, ranking
from raydr.report.sweep.frontier import write_frontier
from raydr.report.sweep.round_curves import RoundCurve, courses
from raydr.report.sweep.thumbnails import thumbnails
from raydr.report.templates import part, templates
from raydr.runfolder.records import REPORT, SWEEP_REPORT, TrialRow
from raydr.runfolder.sweep import SweepFolder, read_sweep

ELSEWHERE = (
    "free disk space there, or copy the sweep folder to a writable place and run `raydr report` on the copy"
)
MOST_AXES = 4  # measures that the parallel axes show at first
MOST_VALUES = 12  # values of a swept key that are listed
MOST_FAILURES = 300  # rows of the table of trials that are not done
LONGEST_ERROR = 600  # characters of an error in that table
LONGEST_SETTINGS = 160  # characters of a point's settings under its map


@dataclass(frozen=True)
class Swept:
    """A swept key, its values as text, and the number of points to which it does not apply."""

    key: str
    values: str
    absent: int


@dataclass(frozen=True)
class FailedTrial:
    """A trial that is not done: its point and repeat, how and why it ended, and its settings."""

    point: int
    repeat: int
    status: str
    error: str
    settings: str


def write_sweep_report(folder: Path) -> Path:
    """Write a sweep folder's ``sweep.html`` from its files and those of its trials' run folders.

    Raises
    ------
    OutputError
        If the folder is not a complete sweep folder, a trial's folder is not a complete run folder, or the page cannot
        be written.
    """
    sweep = read_sweep(Path(folder))
    picture = write_frontier(sweep)
    page = templates().get_template("sweep/sweep.html").render(**_content(sweep), frontier=_address(picture))
    return write_whole(sweep.path / SWEEP_REPORT, page.encode("utf-8"), ELSEWHERE)


def _address(picture: Path | None) -> str | None:
    """Return a picture as a data address for the page."""
    if picture is None:
        return None
    return "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode("ascii")


def _content(sweep: SweepFolder) -> dict[str, Any]:
    known = axes(sweep)
    wanted = measures_of_interest(sweep, known)
    order = ranking(wanted[0] if wanted else None, len(sweep.points))
    along, runs = courses(sweep), _runs(sweep)
    maps = thumbnails(sweep, order)
    style = part("report.css") + part("sweep/sweep.css")
    script = part("sweep/scales.js") + part("sweep/sweep.js")
    keys = [axis for axis in known if axis.swept]
    measures = [*wanted, *(axis for axis in known if not axis.swept and axis not in wanted)]
    unfinished = [trial for trial in sweep.trials if trial.status != "done"]
    settings = {point.point: _settings(keys, place) for place, point in enumerate(sweep.points)}
    return {
        "sweep": sweep,
        "policy": _policy(style, script),
        "style": style,
        "script": script,
        "summary": _summary(sweep, [axis for axis in keys if axis.varies] or keys),
        "outside": OUTSIDE,
        "best": _best(sweep, wanted[:1], order, settings),
        "swept": [_swept(axis) for axis in keys],
        "brief": {
            point.point: _in_brief([axis for axis in keys if axis.varies] or keys, place)
            for place, point in enumerate(sweep.points)
        },
        "keys": keys,
        "measures": measures,
        "wanted": {axis.name for axis in wanted},
        "places": {axis.name: place for place, axis in enumerate(known)},
        "order": order,
        "runs": runs,
        "data": _data(sweep, known, wanted, along, runs),
        "courses": along,
        "maps": maps,
        "rank": wanted[0] if wanted else None,
        "ramp": RAMP,
        "failures": [_failure(trial, settings[trial.point]) for trial in unfinished[:MOST_FAILURES]],
        "unfinished": len(unfinished),
        "shortened": short,
        "longest_settings": LONGEST_SETTINGS,
        "missing": _missing(sweep),
    }


def _policy(style: str, script: str) -> str:
    """Return the page's content security policy: its own style and script by hash, and embedded pictures."""
    hashes = [
        base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode() for text in (style, script)
    ]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


def _summary(sweep: SweepFolder, keys: Sequence[ParallelAxis]) -> str:
    """Describe what was swept, and how the trials ended."""
    names = [axis.title for axis in keys]
    over = f" over {listed(names, 6)}" if names else ""
    ended = [f"{wording.count(sweep.count('done'))} of {wording.plural(len(sweep.trials), 'trial')} done"]
    ended += [
        f"{wording.count(number)} {status}"
        for status in ("failed", "stopped")
        if (number := sweep.count(status))
    ]
    each = f", {wording.plural(sweep.repeats, 'repeat')} each" if sweep.repeats > 1 else ""
    return f"{wording.plural(len(sweep.points), 'point')}{over}{each}: {', '.join(ended)}."


def _best(
    sweep: SweepFolder, ranked_by: Sequence[ParallelAxis], order: Sequence[int], settings: Mapping[int, str]
) -> str | None:
    """Describe the best point; None if no point has the first objective, or it has no better direction."""
    if not ranked_by or ranked_by[0].better is None or ranked_by[0].values[order[0]] is None:
        return None
    (axis,), first = ranked_by, sweep.points[order[0]]
    which = f" ({settings[first.point]})" if settings[first.point] else ""
    extreme = "highest" if axis.better == "max" else "lowest"
    over = f", over {wording.plural(first.repeats, 'repeat')}" if first.repeats > 1 else ""
    return f"Best by {axis.title}: point {first.point}{which}, with the {extreme} value, {axis.text(order[0])}{over}."


def _settings(keys: Sequence[ParallelAxis], place: int) -> str:
    """Write a point's settings, without keys that do not apply to it."""
    return ", ".join(f"{axis.title} {axis.text(place)}" for axis in keys if axis.values[place] is not None)


def _in_brief(keys: Sequence[ParallelAxis], place: int) -> str:
    """Write a point's settings with short keys: only the last part if it is unique, and no ``kind``."""
    parts = Counter(axis.title.rpartition(".")[2] for axis in keys)
    words = []
    for axis in keys:
        last = axis.title.rpartition(".")[2]
        name = axis.title if parts[last] > 1 else last
        if axis.values[place] is not None:
            words.append(axis.text(place) if name == "kind" else f"{name} {axis.text(place)}")
    return ", ".join(words)


def _swept(axis: ParallelAxis) -> Swept:
    texts = list(
        dict.fromkeys(
            axis.text(place)
            for place in (range(len(axis.values)) if axis.kind == "category" else _by_value(axis))
            if axis.values[place] is not None
        )
    )
    if axis.kind == "number" and len(texts) > MOST_VALUES:
        values = f"{wording.count(len(texts))} values from {texts[0]} to {texts[-1]}"
    else:
        values = listed(texts, MOST_VALUES)
    return Swept(axis.title, values or "no value at any point", sum(value is None for value in axis.values))


def _by_value(axis: ParallelAxis) -> list[int]:
    known = [(value, place) for place, value in enumerate(axis.values) if value is not None]
    return [place for _, place in sorted(known)]


def _runs(sweep: SweepFolder) -> dict[int, list[tuple[int, str]]]:
    """Return, by point, the repeat and relative address of every trial's report that exists."""
    found: dict[int, list[tuple[int, str]]] = {point.point: [] for point in sweep.points}
    for trial in sweep.trials:
        if trial.folder is not None and (sweep.path / trial.folder / REPORT).is_file():
            found[trial.point].append((trial.repeat, quote(f"{trial.folder}/{REPORT}")))
    return found


def _missing(sweep: SweepFolder) -> int:
    """Return the number of trials that are done but whose folder is missing."""
    return sum(
        trial.status == "done" and not (sweep.path / str(trial.folder)).is_dir() for trial in sweep.trials
    )


def _failure(trial: TrialRow, settings: str) -> FailedTrial:
    return FailedTrial(
        trial.point, trial.repeat, trial.status, short(trial.error or "", LONGEST_ERROR), settings
    )


def _data(
    sweep: SweepFolder,
    known: Sequence[ParallelAxis],
    wanted: Sequence[ParallelAxis],
    along: Sequence[RoundCurve],
    runs: Mapping[int, Sequence[tuple[int, str]]],
) -> dict[str, Any]:
    """Return the data for ``sweep.js``; points are referred to by their index in the sweep."""
    place = {point.point: at for at, point in enumerate(sweep.points)}
    tried = Counter(trial.point for trial in sweep.trials)
    return {
        "points": [
            {
                "point": point.point,
                "done": point.repeats,
                "lost": tried[point.point] - point.repeats,
                "runs": runs[point.point],
            }
            for point in sweep.points
        ],
        "axes": [
            {
                "name": axis.name,
                "title": axis.title,
                "kind": axis.kind,
                "unit": axis.unit,
                "swept": axis.swept,
                "better": axis.better,
                "log": axis.logarithmic,
                "absent": axis.absent,
                "categories": axis.categories,
                "values": axis.values if axis.swept else [_brief(value) for value in axis.values],
                "deviations": [] if axis.swept else [_brief(value) for value in axis.deviations],
            }
            for axis in known
        ],
        "wanted": [known.index(axis) for axis in wanted[:MOST_AXES]],
        "courses": [
            {
                "title": course.title,
                "arrow": course.arrow,
                "shared": course.shared,
                "bands": [
                    {
                        "place": place[band.point],
                        "rounds": band.rounds,
                        "means": [_brief(value) for value in band.means],
                        "deviations": [_brief(value) for value in band.deviations],
                    }
                    for band in course.bands
                ],
            }
            for course in along
        ],
        "ramp": RAMP,
        "colours": CATEGORIES,
        "grey": GREY,
    }


def _brief(value: float | None) -> float | None:
    """Round a value to six digits, which is more than a page can show."""
    return None if value is None else float(f"{value:.6g}")
