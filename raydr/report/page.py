"""The report page: everything of a run in one HTML file that opens without a network."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raydr.files import write_whole
from raydr.report import joined, wording
from raydr.report.maps import map_of_run
from raydr.report.page_content import story
from raydr.runfolder.joined import read_joined
from raydr.runfolder.reading import ELSEWHERE, RunFolder, read_run
from raydr.runfolder.records import REPORT

if TYPE_CHECKING:
    from jinja2 import Environment


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
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":")}
    environment.globals["part"] = part
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
    sites = read_joined(run.path)
    later = joined.later_rows(run, sites)
    return story(run, later) | {
        "run": run,
        "style": part("report.css"),
        "story_script": part("story.js"),
        "atlas": map_of_run(run, later),
        "joined": joined.sections(sites),
    }
