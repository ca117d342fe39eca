"""The report page of a run: one HTML file that opens without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raydr.files import write_whole
from raydr.report.map.atlas import map_of_run
from raydr.report.map.later import later_rows
from raydr.report.run import earlier, joined
from raydr.report.run.page_content import page_values
from raydr.report.run.unplaced import unplaced_page
from raydr.report.templates import part, templates
from raydr.runfolder.earlier import read_earlier
from raydr.runfolder.joined import read_joined
from raydr.runfolder.reading import ELSEWHERE, RunFolder, read_run, read_unplaced
from raydr.runfolder.records import REPORT


def write_report(folder: Path) -> Path:
    """Write a run folder's ``report.html`` from the files in the folder.

    A deployed run whose places stay at the sites has a page without rows (:mod:`raydr.report.run.unplaced`).

    Raises
    ------
    OutputError
        If the folder is not a complete run folder, or the page cannot be written.
    """
    unplaced = read_unplaced(Path(folder))
    if unplaced is not None:
        return write_whole(unplaced.path / REPORT, unplaced_page(unplaced).encode("utf-8"), ELSEWHERE)
    run = read_run(Path(folder))
    page = templates().get_template("run/report.html").render(**_content(run))
    return write_whole(run.path / REPORT, page.encode("utf-8"), ELSEWHERE)


def _content(run: RunFolder) -> dict[str, Any]:
    sites = read_joined(run.path)
    later, repeats = later_rows(run, sites), read_earlier(run.path)
    return page_values(run, later) | {
        "run": run,
        "style": part("report.css"),
        "sections_script": part("run/sections.js"),
        "atlas": map_of_run(run, later),
        "joined": joined.sections(sites),
        "earlier": None if repeats is None else earlier.section(repeats),
    }
