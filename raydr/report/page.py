"""The report page: everything of a run in one HTML file that opens without a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raydr.files import write_whole
from raydr.records import REPORT
from raydr.report import audited, charts, gist, joined, mapped, wording
from raydr.report.colouring import RAMP, colourings
from raydr.report.maps import embedded_maps
from raydr.report.progress import curves, small_maps, stages
from raydr.report.runfolder import ELSEWHERE, RunFolder, read_run
from raydr.report.views import pairs_of_axes

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_PROCESSES = 12  # bars of memory; past that the largest, and a line for the rest


@dataclass(frozen=True)
class MetricLine:
    """A line of the metric table, in words; ``arrow`` points where better is."""

    title: str
    description: str
    arrow: str
    federated: str
    central: str
    difference: str
    ratio: str


def write_report(folder: Path) -> Path:
    """Write a run folder's ``report.html`` from its files alone.

    Raises
    ------
    OutputError
        The folder is not a whole run folder, or the page cannot be written.
    """
    run = read_run(Path(folder))
    page = templates().get_template("report.html").render(**_content(run))
    return write_whole(run.path / REPORT, page.encode("utf-8"), ELSEWHERE)


@cache
def templates() -> Environment:
    """Templates of this room: every value is escaped, and a name that is not given is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("raydr.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Bokeh defines a model where it first names it: sorted keys would name models before they are defined.
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":")}
    environment.filters |= {
        "count": wording.count,
        "size": wording.size,
        "duration": wording.duration,
    }
    return environment


def part(file: str) -> str:
    """Text of a style sheet or script of this room, marked as safe to stand in the page."""
    from markupsafe import Markup

    return Markup((Path(__file__).parent / file).read_text(encoding="utf-8"))


def _content(run: RunFolder) -> dict[str, Any]:
    from bokeh.resources import Resources
    from markupsafe import Markup

    environment = run.environment
    up, down, simulated = (
        sorted((message for message in run.ledger if message.direction == way), key=wording.by_revelation)
        for way in ("up", "down", "simulation-only")
    )
    return {
        "run": run,
        "style": part("report.css"),
        "script": part("report.js"),
        # Only Bokeh's core: the page's own controls are plain HTML.
        "bokeh": [Markup(raw) for raw in Resources(mode="inline", components=["bokeh"]).js_raw],
        "gist": gist.points(run),
        "maps": embedded_maps(run),
        "colourings": colourings(run),
        "ramp": ", ".join(RAMP),
        "summary": wording.summary(run),
        "method": wording.method_name(run.scenario),
        "map_titles": wording.map_titles(run.scenario),
        "pairs": pairs_of_axes(run),
        "started": wording.moment(environment.started),
        "federation": wording.federation(environment.federation, environment.actors),
        "metric_lines": _metric_lines(run),
        "not_computed": {
            wording.metric_title(name): reason for name, reason in run.measures.not_computed.items()
        },
        "up": up,
        "down": down,
        "simulated": simulated,
        "promise": wording.promise,
        "protection": wording.protection,
        "warning": wording.warning(run),
        "cost": wording.cost(run),
        "against_whom": wording.against_whom(run),
        "charged": [release for release in run.privacy.releases if release.mechanism is not None],
        "epsilon": wording.epsilon,
        "attacks": audited.lines(run.audit) if run.audit is not None else [],
        "galleries": audited.galleries(run.audit) if run.audit is not None else [],
        "enough_public_rows": audited.enough_public_rows(run.audit) if run.audit is not None else "",
        "curve": audited.curve(run.audit) if run.audit is not None else None,
        "joined": joined.sections(run),
        "facts": mapped.facts(run.data),
        "sources": mapped.sources(run.data),
        "hashed": mapped.HASHED,
        "dropped": mapped.line(run.data) if run.data.dropped else None,
        "objective": charts.line_chart(
            [line.round for line in run.rounds if line.objective is not None],
            [line.objective for line in run.rounds if line.objective is not None],
            "objective",
        ),
        "stress": charts.line_chart(range(len(run.stress)), run.stress, "stress", step="iteration"),
        "small_maps": small_maps(run),
        "reached": len(stages(run)),
        "curves": curves(run),
        "failed": sum(line.failed for line in run.rounds),
        "asked": sum(line.asked for line in run.rounds),
        "stages": charts.bars(
            environment.seconds,
            {name: wording.duration(seconds) for name, seconds in environment.seconds.items()},
        ),
        "memory": _memory(environment.peak_memory_bytes),
    }


def _metric_lines(run: RunFolder) -> list[MetricLine]:
    central = run.measures.central
    return [
        _metric_line(name, run.measures.federated.get(name), central.get(name))
        for name in dict.fromkeys([*run.measures.federated, *central])
    ]


def _metric_line(name: str, value: float | None, bound: float | None) -> MetricLine:
    known = wording.metric(name)
    difference = ratio = ""
    if value is not None and bound is not None:
        difference = f"{value - bound:+.4f}".replace("-", "−")
        ratio = wording.percent(value / bound) if bound > 0 else ""
    return MetricLine(
        title=wording.metric_title(name),
        description=known.description if known is not None else "",
        arrow=wording.arrow(name),
        federated=wording.measure(value),
        central=wording.measure(bound),
        difference=difference,
        ratio=ratio,
    )


def _memory(peaks: Mapping[str, int]) -> tuple[charts.Bar, ...]:
    largest = dict(sorted(peaks.items(), key=lambda item: -item[1])[:MOST_PROCESSES])
    return charts.bars(largest, {name: wording.size(peak) for name, peak in largest.items()})
