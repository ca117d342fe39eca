"""Values for the templates of the run page: the header, the printed map and five sections."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from raydr.data import IN_MEMORY
from raydr.report import charts, wording
from raydr.report.colouring import RAMP, colourings, drawing_order
from raydr.report.map.atlas import picture_of
from raydr.report.map.later import Later
from raydr.report.picture import in_page
from raydr.report.projections import in_plane, onto
from raydr.report.run import (
    audited,
    fidelity_rows,
    fracture_rows,
    island_rows,
    mapped,
    metric_rows,
    period_rows,
    privacy_summary,
    site_rows,
    stability_rows,
    verdict_rows,
)
from raydr.report.run.progress import curves, small_maps, stages
from raydr.report.run.server_knowledge import example, knowledge
from raydr.runfolder.reading import RunFolder

MOST_DRAWN, INCHES = 20_000, 4.4  # rows and side of the printed map
MOST_PROCESSES = 12  # bars of memory; of more processes, the largest are shown


def page_values(run: RunFolder, later: Later) -> dict[str, Any]:
    """Return the values for the header and all sections, by their names in the templates."""
    return _header(run, later) | _faithful(run) | _left(run) | _attacked(run) | _took(run) | _scenario(run)


def _header(run: RunFolder, later: Later) -> dict[str, Any]:
    known = knowledge(run)
    return {
        "known": known,
        "in_words": example(known),
        "summary": wording.summary(run),
        "method": wording.method_name(run.scenario),
        "mapped_line": mapped.line(run.data),
        "started": wording.moment(run.environment.started),
        "later": len(later.points),
        "paper": _on_paper(run, later),
    }


def _on_paper(run: RunFolder, later: Later) -> dict[str, Any]:
    """Return the maps as pictures, for print and without scripts; of many rows, a sample."""
    way = later.ways[0]
    pictures = [picture_of(run, later, MOST_DRAWN, INCHES)]
    if run.central is not None:
        some = drawing_order(len(run.clients))[:MOST_DRAWN]
        points = in_plane(run, onto(run, run.central, run.federated)(run.central))[some]
        colours = [way.colours[code] for code in way.codes[some]]
        pictures.append(in_page(points, colours, INCHES, in_disk=run.in_disk))
    return {
        "maps": list(zip(wording.map_titles(run.scenario), pictures, strict=False)),
        "way": way,
        "ramp": ", ".join(RAMP),
        "brief": wording.brief,
    }


def _faithful(run: RunFolder) -> dict[str, Any]:
    return {
        "figures": metric_rows.figures(run),
        "worst_site": site_rows.worst(run),
        "worse_site": site_rows.warning(run),
        "unlike_site": site_rows.unlike(run),
        "verdicts": verdict_rows.sentence(run),
        "fractures": fracture_rows.sentence(run),
        "jumps": fracture_rows.jumps(run),
        "site_table": site_rows.site_table(run),
        "moved": period_rows.sentence(run),
        "period_table": period_rows.table(run),
        "period_maps": period_rows.small_maps(run),
        "period_column": run.called("period"),
        "all_periods": len(run.measures.periods),
        "fidelity": fidelity_rows.sentence(run),
        "fidelity_lines": fidelity_rows.lines(run),
        "islands": island_rows.sentence(run),
        "island_lines": (found := island_rows.lines(run)),
        "island_columns": any(line.columns for line in found),
        "stability": stability_rows.sentences(run),
        "stability_lines": stability_rows.lines(run),
        "reference": metric_rows.reference(run),
        "of_sample": wording.of_sample(run),
        "metric_lines": metric_rows.metric_lines(run),
        "not_computed": metric_rows.not_computed(run),
        "small_maps": small_maps(run),
        "drawn_by": run.called(colourings(run)[0].by),
        "reached": len(stages(run)),
        "curves": curves(run),
    }


def _left(run: RunFolder) -> dict[str, Any]:
    up, down, simulated = (
        sorted((message for message in run.ledger if message.direction == way), key=wording.by_revelation)
        for way in ("up", "down", "simulation-only")
    )
    return {
        "privacy_summary": privacy_summary.points(run),
        "up": up,
        "down": down,
        "simulated": simulated,
        "promise": wording.promise,
        "protection": wording.protection,
        "cost": wording.cost(run),
        "adversary": wording.ADVERSARY,
        "charged": [release for release in run.privacy.releases if release.mechanism is not None],
        "epsilon": wording.epsilon,
    }


def _attacked(run: RunFolder) -> dict[str, Any]:
    audit = run.audit
    return {
        "attacked": privacy_summary.recovered(audit),
        "attacks": audited.lines(audit) if audit is not None else [],
        "galleries": audited.galleries(audit) if audit is not None else [],
        "enough_public_rows": audited.enough_public_rows(audit) if audit is not None else "",
        "curve": audited.curve(audit) if audit is not None else None,
        "folder": shlex.quote(run.path.name),
        "in_memory": run.section("data").get("source") == IN_MEMORY,
        "at_sites": bool(run.section("clients").get("deployed")),
    }


def _took(run: RunFolder) -> dict[str, Any]:
    seconds = run.environment.seconds
    course = [(line.round, line.objective) for line in run.rounds if line.objective is not None]
    rounds, values = [round for round, _ in course], [value for _, value in course]
    return {
        "took": metric_rows.took(run),
        "objective": charts.line_chart(rounds, values, "objective"),
        "objective_said": wording.objective(run.scenario, values),
        "stress": charts.line_chart(range(len(run.stress)), run.stress, "stress", step="iteration"),
        "stages": charts.bars(seconds, {name: wording.duration(spent) for name, spent in seconds.items()}),
        "memory": _memory(run.environment.peak_memory_bytes),
    }


def _repeats(run: RunFolder) -> bool:
    """Return whether the scenario repeats the run bit for bit.

    Keys and noise differ between runs, unless a file holds their secret and no client may fail.
    """
    privacy = run.section("privacy")
    drawn = privacy.get("isometry_key") or any(release.mechanism for release in run.privacy.releases)
    kept = privacy.get("secret") is not None and run.section("runtime").get("quorum", 1.0) == 1.0
    return kept or not drawn


def _memory(peaks: Mapping[str, int]) -> tuple[charts.Bar, ...]:
    largest = dict(sorted(peaks.items(), key=lambda item: -item[1])[:MOST_PROCESSES])
    return charts.bars(largest, {name: wording.size(peak) for name, peak in largest.items()})


def _scenario(run: RunFolder) -> dict[str, Any]:
    return {
        "facts": mapped.facts(run.data),
        "repeats": _repeats(run),
        "sources": run.data.everything_read,
        "dropped": mapped.line(run.data) if run.data.dropped else None,
    }
