"""The report page: everything of a run in one HTML file that opens without a network."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raydr.data import IN_MEMORY
from raydr.files import write_whole
from raydr.records import REPORT
from raydr.report import audited, charts, figures, gist, mapped, wording
from raydr.report.colouring import RAMP, colourings, drawing_order
from raydr.report.inline import in_page
from raydr.report.knowledge import example, knowledge
from raydr.report.maps import embedded_maps
from raydr.report.progress import curves, small_maps, stages
from raydr.report.runfolder import ELSEWHERE, RunFolder, read_run
from raydr.report.views import in_plane, onto, pairs_of_axes

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_DRAWN, INCHES = 20_000, 4.4  # rows, and inches of a side, of the map on paper
MOST_PROCESSES = 12  # bars of memory; past that the largest, and a line for the rest


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
        "commands": _commands,
    }
    return environment


def _commands(text: str) -> str:
    """Escaped text, in which what stands between backticks is code."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def part(file: str) -> str:
    """Text of a style sheet or script of this room, marked as safe to stand in the page."""
    from markupsafe import Markup

    return Markup((Path(__file__).parent / file).read_text(encoding="utf-8"))


def _content(run: RunFolder) -> dict[str, Any]:
    from bokeh.resources import Resources
    from markupsafe import Markup

    environment, known = run.environment, knowledge(run)
    course = [(line.round, line.objective) for line in run.rounds if line.objective is not None]
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
        "story_script": part("story.js"),
        "known": known,
        "in_words": example(known),
        "gist": gist.points(run),
        "attacked": gist.recovered(run.audit),
        "paper": _on_paper(run),
        "brief": wording.brief,
        "maps": embedded_maps(run),
        "colourings": colourings(run),
        "ramp": ", ".join(RAMP),
        "summary": wording.summary(run),
        "method": wording.method_name(run.scenario),
        "map_titles": wording.map_titles(run.scenario),
        "pairs": pairs_of_axes(run),
        "started": wording.moment(environment.started),
        "figures": figures.figures(run),
        "reference": figures.reference(run),
        "metric_lines": figures.metric_lines(run),
        "not_computed": figures.not_computed(run),
        "took": figures.took(run),
        "up": up,
        "down": down,
        "simulated": simulated,
        "promise": wording.promise,
        "protection": wording.protection,
        "cost": wording.cost(run),
        "against_whom": wording.against_whom(run),
        "charged": [release for release in run.privacy.releases if release.mechanism is not None],
        "epsilon": wording.epsilon,
        "attacks": audited.lines(run.audit) if run.audit is not None else [],
        "galleries": audited.galleries(run.audit) if run.audit is not None else [],
        "enough_public_rows": audited.enough_public_rows(run.audit) if run.audit is not None else "",
        "curve": audited.curve(run.audit) if run.audit is not None else None,
        "facts": mapped.facts(run.data),
        "sources": mapped.sources(run.data),
        "hashed": mapped.HASHED,
        "dropped": mapped.line(run.data) if run.data.dropped else None,
        "folder": shlex.quote(str(run.path)),
        "in_memory": run.section("data").get("source") == IN_MEMORY,
        "mapped_line": mapped.line(run.data),
        "objective": charts.line_chart(
            [round for round, _ in course], [value for _, value in course], "objective"
        ),
        "objective_said": wording.objective(run.scenario, [value for _, value in course]),
        "stress": charts.line_chart(range(len(run.stress)), run.stress, "stress", step="iteration"),
        "small_maps": small_maps(run),
        "reached": len(stages(run)),
        "curves": curves(run),
        "stages": charts.bars(
            environment.seconds,
            {name: wording.duration(seconds) for name, seconds in environment.seconds.items()},
        ),
        "memory": _memory(environment.peak_memory_bytes),
    }


def _on_paper(run: RunFolder) -> dict[str, str]:
    """The maps as pictures, for paper and for readers without scripts; of many rows, as many as can be told apart."""
    some, way = drawing_order(len(run.clients))[:MOST_DRAWN], colourings(run)[0]
    colours = [way.colours[code] for code in way.codes[some]]
    maps = {"federated": run.federated}
    if run.central is not None:
        maps["central"] = onto(run, run.central, run.federated)(run.central)
    return {
        name: in_page(in_plane(run, points)[some], colours, INCHES, in_disk=run.in_disk)
        for name, points in maps.items()
    }


def _memory(peaks: Mapping[str, int]) -> tuple[charts.Bar, ...]:
    largest = dict(sorted(peaks.items(), key=lambda item: -item[1])[:MOST_PROCESSES])
    return charts.bars(largest, {name: wording.size(peak) for name, peak in largest.items()})
