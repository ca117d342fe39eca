"""The server's page of a deployed run whose places stay at the sites: counts, messages and cost, and no rows."""

from __future__ import annotations

from raydr.report import wording
from raydr.report.run.released_map import WIDTH, released_map
from raydr.report.templates import part, templates
from raydr.runfolder import records
from raydr.runfolder.reading import RunFolder


def unplaced_page(run: RunFolder) -> str:
    """Return the page as HTML."""
    return (
        templates()
        .get_template("run/unplaced.html")
        .render(
            run=run,
            style=part("report.css"),
            cost=wording.cost(run),
            map=released_map(run.path / records.ARRAYS),
            width=WIDTH,
            up=sorted((entry for entry in run.ledger if entry.direction == "up"), key=wording.by_revelation),
            promise=wording.promise,
            protection=wording.protection,
        )
    )
