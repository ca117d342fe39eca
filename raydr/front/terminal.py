"""Terminal output of commands: results of runs, plans, audits, comparisons and lists."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from raydr.front.console import console_on as _console
from raydr.front.console import one_line as _line
from raydr.front.console import table_of as _table
from raydr.front.policy_answers import answers_of_policies
from raydr.front.streams import BestEffortStream
from raydr.front.sweeps import paper_table, sweep_table
from raydr.plain import short, short_number
from raydr.report import RunComparison, wording
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
from raydr.report.run.server_knowledge import example, knowledge
from raydr.runfolder.reading import read_run

if TYPE_CHECKING:
    from rich.console import Console

    from raydr.actors.jobs import Job
    from raydr.attacks.verdicts import Audit
    from raydr.report.run.mapped import Fact
    from raydr.runfolder.reading import RunFolder
    from raydr.scenarios.afterwards.bounding import BoundRow
    from raydr.scenarios.planning.plan import PlannedPrivacy, RunPlan
    from raydr.scenarios.schema.scenario import Scenario
    from raydr.tune.planning import SweepPlan
    from raydr.tune.queue import QueuedTable

_FOUND_OUT = {mapped.NOTICE, "Sites harmonized"}
"""Facts about data that a result always has: some are known only after the run."""
_IN_RESULT = {mapped.NOTICE, "Rows read", "Rows mapped", "Columns mapped", "Scaling"}
"""Facts about data that a result has too, with ``--verbose``."""
_OBVIOUS = {"Text format", "Method"}
"""Facts about data that are shown before a run only with ``--verbose``."""
PAGE_WIDTH, ATTACK_WIDTH = 80, 43
"""Characters a line of an audit, and of its first column: three numbers fit next to it."""


def title_of(scenario: Scenario) -> str:
    """Return the title line of a run: its name, method, data and seed."""
    data = scenario.data
    source = data.source or data.path or data.graph or wording.plural(len(scenario.clients.sites), "file")
    method = wording.method_name({"method": {"kind": scenario.method.kind}})
    return f"{scenario.name}: {method} on {source}, seed {scenario.seed}"


def print_result(folder: Path, *, verbose: bool = False) -> None:
    """Print a finished run to standard error: metrics, what left the clients, epsilon, recovered records.

    ``verbose`` adds what the report also has: the data, their hashes, an example record, privacy notices.
    """
    run = read_run(folder)
    console = _console(BestEffortStream(sys.stderr))
    console.print()
    console.print(_line(wording.summary(run)))
    console.print(_line(mapped.line(run.data)))
    for fact in mapped.facts(run.data):
        if fact.name in _FOUND_OUT:
            console.print(_line(f"{fact.name}: {fact.text}"))
    console.print()
    _print_metrics(console, run, verbose)
    for line in _privacy_lines(run):
        console.print(_line(line))
    notices = run.privacy.notices
    if notices and not verbose:
        count = wording.plural(len(notices), "notice")
        console.print(_line(f"The report has {count} on privacy. --verbose prints them here too."))
    if verbose:
        console.print()
        _print_details(console, run)
    console.print()


def _print_metrics(console: Console, run: RunFolder, verbose: bool) -> None:
    """Print the table of metrics and its footnotes; nothing if no metric was computed."""
    shown, central = metric_rows.main_metrics(run), run.measures.central
    if shown:
        table = _table("", "federated", *["pooled data"] * bool(central))
        for name in shown:
            values = {"federated": run.measures.federated[name]}
            if central:
                values["central"] = central.get(name)
            table.add_row(
                _line(wording.metric_title(name)),
                *(
                    "" if value is None else wording.estimated(value, run.measures.error(which, name))
                    for which, value in values.items()
                ),
            )
        if (worst := site_rows.worst(run)) is not None:
            for name, *texts in zip(worst.names, worst.federated, worst.central, strict=True):
                title = f"Worst site, {worst.site}: {wording.short_title(name)}"
                table.add_row(_line(title), *texts[: 1 + bool(central)])
        console.print(table)
        for footnote in filter(
            None,
            (
                site_rows.warning(run),
                site_rows.unlike(run),
                verdict_rows.sentence(run),
                fracture_rows.sentence(run),
                fracture_rows.jumps(run),
                fidelity_rows.sentence(run),
                island_rows.sentence(run),
                period_rows.sentence(run),
                wording.of_sample(run),
                wording.leakage(shown),
            ),
        ):
            console.print(_line(footnote))
    if (periods := period_rows.table(run)) is not None:
        console.print()
        table = _table(run.called("period"), *periods.headings)
        for period in periods.lines:
            table.add_row(_line(period.period), *period.cells)
        console.print(table)
    are_listed = isinstance(run.scenario.get("metrics"), list)
    missing = metric_rows.not_computed(run) if are_listed or verbose else []
    for lacking in missing:
        console.print(_line(f"Not computed: {lacking.titles}: {lacking.reason}"))
    if shown or missing:
        console.print()


def _privacy_lines(run: RunFolder) -> Iterator[str]:
    """Yield a line each on what left the clients, epsilon, an isometry key if used, and attacks if audited."""
    left, _, *others = privacy_summary.points(run)
    yield f"{left.title}: {left.figure}. {knowledge(run).text}"
    yield f"Privacy cost: {wording.cost(run)}"
    *keys, attacks = others
    for point in (*keys, *[attacks] * (run.audit is not None)):
        yield f"{point.title}: {point.figure}. {point.text}"


def _print_details(console: Console, run: RunFolder) -> None:
    """Print what ``--verbose`` adds to a result."""
    known = knowledge(run)
    if known.examples:
        console.print(_line(f"Example: {example(known)}."))
    for fact in (*mapped.facts(run.data), *mapped.hashes(run.data)):
        if fact.name not in _FOUND_OUT:
            console.print(_line(f"{fact.name}: {fact.text}"))
    if run.privacy.relation is not None:
        console.print(
            _line(f"Epsilon by adversary: {wording.by_adversary(run.privacy.epsilon_by_adversary)}")
        )
    for notice in run.privacy.notices:
        console.print(_line(notice))


def print_joined(folder: Path) -> None:
    """Print where the rows of the site that joined last went, and what left it, to standard error."""
    from raydr.report.run.joined import description, left
    from raydr.runfolder.joined import read_joined

    site = read_joined(folder)[-1]
    console = _console(BestEffortStream(sys.stderr))
    console.print(_line(f"{site.site}: {description(site)}"))
    for entry in left(site):
        console.print(
            _line(f"left {site.site}: {entry.what} ({wording.size(entry.bytes)}; {wording.promise(entry)})")
        )


def print_earlier(folder: Path) -> None:
    """Print the comparison of a run with the run that it repeats, to standard error."""
    from raydr.report.run import earlier
    from raydr.runfolder.earlier import read_earlier

    found = read_earlier(folder)
    if found is None:
        return
    console = _console(BestEffortStream(sys.stderr))
    console.print(_line(earlier.description(found)))
    for fact in earlier.facts(found):
        console.print(_line(f"{fact.name}: {fact.text}"))


def print_stability(folder: Path) -> None:
    """Print which places of a run's map stay on other maps, and what that would cost, to standard error."""
    console = _console(BestEffortStream(sys.stderr))
    for sentence in stability_rows.sentences(read_run(folder)):
        console.print(_line(sentence))


def print_facts(facts: Sequence[Fact]) -> None:
    """Print how raydr interprets data, one line for each fact, to standard output."""
    console = _console(sys.stdout)
    for fact in facts:
        console.print(_line(f"{fact.name}: {fact.text}"))


def print_interpretation(scenario: Scenario, facts: Sequence[Fact], *, verbose: bool) -> None:
    """Print the title of a run and how raydr interprets its data, to standard error, before the run.

    Facts that the result shows with ``--verbose`` are left out. The run prints notices itself.
    """
    console = _console(BestEffortStream(sys.stderr))
    console.print(_line(title_of(scenario)))
    for fact in facts:
        in_result = fact.name in _IN_RESULT or fact.name.startswith("SHA-256")
        if not in_result and (verbose or fact.name not in _OBVIOUS):
            console.print(_line(f"{fact.name}: {fact.text}"))


def print_sweep(folder: Path) -> None:
    """Print the points of a sweep with their results, best first, and errors, to standard error."""
    console = _console(BestEffortStream(sys.stderr))
    console.print()
    for part in sweep_table(folder):
        console.print(part)
    console.print()


def print_paper_table(folder: Path) -> None:
    """Print a paper's table, its numbers next to raydr's, to standard error."""
    console = _console(BestEffortStream(sys.stderr))
    console.print()
    for part in paper_table(folder):
        console.print(part)
    console.print()


def print_queue(tables: Sequence[QueuedTable]) -> None:
    """Print how the tables of a queue came out, and how many in each way, to standard error."""
    console = _console(BestEffortStream(sys.stderr))
    titles = ("table", "", "took", "result")
    shown = Table(*(Column(_line(title)) for title in titles), box=None, pad_edge=False, padding=(0, 3, 0, 0))
    counts: dict[str, int] = {}
    for table in tables:
        counts[table.status] = counts.get(table.status, 0) + 1
        took = wording.duration(table.seconds) if table.seconds else ""
        shown.add_row(*map(_line, (table.name, table.status, took, short(table.detail, 150))))
    console.print(shown)
    console.print(_line(", ".join(f"{count} {status}" for status, count in counts.items())))


def print_comparison(comparison: RunComparison) -> None:
    """Print runs as columns and measures as rows, to standard output; the best value of a row is bold."""
    table = _table("", *comparison.headings)
    for row in comparison.rows:
        cells = [Text(text, "bold" if best else "") for text, best in zip(row.texts, row.best, strict=True)]
        table.add_row(_line(row.title), *cells)
    console = _console(sys.stdout)
    for name, known in zip(comparison.runs, comparison.known, strict=True):
        console.print(_line(f"{name}: {known}"))
    console.print(table)
    for remark in filter(None, (wording.leakage(comparison.metrics), *comparison.remarks)):
        console.print(_line(remark))


def print_jobs(jobs: Sequence[Job]) -> None:
    """Print jobs of a cluster, one on each line, to standard output."""
    titles = ("job", "", "what", "state", "started", "took")
    table = Table(*(Column(_line(title)) for title in titles), box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for job in jobs:
        started = "" if job.started is None else f"{datetime.fromtimestamp(job.started):%Y-%m-%d %H:%M:%S}"
        took = "" if job.started is None else f"{(job.ended or time.time()) - job.started:.0f} s"
        table.add_row(*map(_line, (job.id, job.kind, job.name, job.state.lower(), started, took)))
    _console(sys.stdout).print(table)


def print_bounds(lines: Sequence[BoundRow]) -> None:
    """Print bounds and measured values to standard output; a broken bound is bold."""
    table = _table("theorem", "bounds", "bound", "measured", "factor")
    table.add_column(_line("note"))
    for line in lines:
        broken = line.bound is not None and line.measured is not None and line.bound < line.measured
        numbers = [
            Text("" if value is None else f"{value:.3g}", "bold" if broken else "")
            for value in (line.bound, line.measured, line.factor)
        ]
        table.add_row(_line(line.theorem), _line(line.what), *numbers, _line(line.note))
    _console(sys.stdout).print(table)


def print_audit(audit: Audit) -> None:
    """Print the results of attacks to standard output, 80 columns wide; results better than guessing are bold."""
    table = _table("attack", "error", "guess", "exact")
    table.columns[0].max_width = ATTACK_WIDTH
    lines = audited.lines(audit)
    for line in filter(lambda line: line.applies, lines):
        name = _line(f"{line.attack}: {line.variant}" if line.variant else line.attack)
        notes = [f"knows {line.knows}"] * bool(line.knows) + [line.details] * bool(line.details)
        numbers = [
            Text(value, "bold" if line.beats else "") for value in (line.error, line.guess, line.exact)
        ]
        table.add_row(Group(name, *(Padding(_line(note), (0, 0, 0, 2)) for note in notes)), *numbers)
    console = _console(sys.stdout)
    width = min(console.width, PAGE_WIDTH)
    if table.rows:
        console.print(table)
    for why in dict.fromkeys(line.details for line in lines if not line.applies):
        names = ", ".join(line.attack for line in lines if not line.applies and line.details == why)
        console.print(_line(f"Not applicable: {names}: {why}"), width=width)
    if enough := audited.enough_public_rows(audit):
        console.print(_line(enough), width=width)


def print_plan(plan: RunPlan) -> None:
    """Print the needs of a run to standard output: clients, messages, privacy, memory, time, and what does not fit."""
    console = _console(sys.stdout)
    console.print(_line(_planned_data(plan)))
    console.print(_line(plan.seating))
    console.print()
    if plan.messages:
        table = _table("messages", "to", "count", "bytes", "epsilon")
        for entry in plan.messages:
            about = "about " if entry.assumed else ""
            epsilon = "" if entry.epsilon is None else f"{entry.epsilon:.4g}"
            receiver = "clients" if entry.direction == "down" else "server"
            cells = (receiver, wording.count(entry.count), about + wording.size(entry.bytes), epsilon)
            table.add_row(_line(entry.kind), *cells)
        console.print(table)
        rounds = f" in {wording.plural(plan.rounds, 'round')}" if plan.rounds else ""
        total = f"{wording.size(plan.bytes_up)} to the server, {wording.size(plan.bytes_down)} to clients"
        console.print(_line(f"total: {total}{rounds}"))
    if plan.privacy is not None:
        console.print(_line(_planned_privacy(plan.privacy)))
        if plan.privacy.accounted is not None:
            console.print(_line(f"epsilon by adversary: {wording.by_adversary(plan.privacy.by_adversary)}"))
        for notice in plan.privacy.notices:
            console.print(_line(notice))
    for line in answers_of_policies(plan.policies):
        console.print(_line(line))
    console.print()
    if plan.memory:
        table = _table("memory", "processes", "peak of each")
        for process in plan.memory:
            table.add_row(_line(process.process), wording.count(process.count), wording.size(process.bytes))
        console.print(table)
    for node in plan.nodes:
        console.print(
            _line(
                f"{node.name} needs {wording.size(node.needed)} and has {wording.size(node.available)}:"
                f" {'fits' if node.fits else 'does not fit'}"
            ),
            style="" if node.fits else "bold",
        )
    for remedy in plan.remedies:
        keys = " ".join(f"--set {key}={value}" for key, value in remedy.keys)
        console.print(_line(f"fits with {keys} ({remedy.why})"))
    if not plan.fits and not plan.remedies:
        console.print(_line("No key of the scenario makes it fit: use a larger machine, or more machines."))
    if plan.stages:
        console.print()
        longest = sorted(plan.stages, key=lambda stage: -stage.seconds)[:5]
        parts = ", ".join(f"{stage.stage} {_roughly(stage.seconds)}" for stage in longest)
        console.print(_line(f"about {_roughly(plan.seconds)}: {parts}"))
    if plan.network_seconds is not None:
        lines = (
            f"about {_roughly(plan.network_seconds)} for the messages on the lines of network, in addition"
        )
        console.print(_line(lines))
    for note in plan.notes:
        console.print(_line(note))


def print_sweep_plan(plan: SweepPlan) -> None:
    """Print the needs of a sweep to standard output: trials, memory, messages, time, and points that fail."""
    console = _console(sys.stdout)
    trials, points = wording.plural(plan.trials, "trial"), wording.plural(plan.points, "point")
    console.print(_line(f"{plan.name}: {trials} of {points}, {plan.at_once} at once"))
    refused: dict[str, list[int]] = {}
    for each in plan.planned:
        if each.refused is not None:
            refused.setdefault(each.refused, []).append(each.point)
    if all(each.refused is not None for each in plan.planned):
        console.print(_line("no point can run, so nothing is known of memory, messages and time"))
    else:
        _print_needs(console, plan, partly=bool(refused))
    for reason, points_refused in refused.items():
        which = f"{'points' if len(points_refused) > 1 else 'point'} {', '.join(map(str, sorted(points_refused)))}"
        if len(points_refused) == plan.points > 1:
            which = "every point"
        console.print(_line(f"{which} will fail: {reason}"), style="bold")
    if len(plan.planned) < plan.points:
        console.print(_line(f"estimated from {wording.plural(len(plan.planned), 'point')} of {points}"))


def _print_needs(console: Console, plan: SweepPlan, *, partly: bool) -> None:
    room = f"{wording.size(plan.memory_bytes)} and has {wording.size(plan.room_bytes)}"
    console.print(
        _line(f"the largest trial needs {room}: {'fits' if plan.fits else 'does not fit'}"),
        style="" if plan.fits else "bold",
    )
    if not plan.fits:
        console.print(_line("fits with a larger trial.cpus or trial.memory_gib, on machines that have them"))
    without = ", without the points that will fail" if partly else ""
    sent = f"{wording.size(plan.bytes_up)} to servers, {wording.size(plan.bytes_down)} to clients"
    console.print(_line(f"total: {sent}; about {_roughly(plan.seconds)}{without}"))
    for part in plan.parts:
        trials = wording.plural(part.trials, "trial")
        console.print(_line(f"{part.name}: {trials}, about {_roughly(part.seconds)}"))


def _planned_data(plan: RunPlan) -> str:
    clients = wording.plural(plan.clients, "client")
    if not plan.rows:
        return f"{plan.scenario}: {plan.method}, {clients}"
    sizes = (
        f"{plan.smallest:,} rows each"
        if plan.smallest == plan.largest
        else f"{plan.smallest:,} to {plan.largest:,} rows each"
    )
    rows, features = wording.plural(plan.rows, "row"), wording.plural(plan.features, "feature")
    held_out = f"; {wording.plural(plan.held_out, 'row')} held out" if plan.held_out else ""
    return f"{plan.scenario}: {plan.method}, {rows} with {features}, {clients}, {sizes}{held_out}"


def _planned_privacy(privacy: PlannedPrivacy) -> str:
    if privacy.accounted is None:
        return (
            "epsilon: no message has a guarantee"
            if privacy.known
            else "epsilon: unknown: the method does not declare its messages in advance"
        )
    accounted = (
        f"epsilon of the noisy releases: {privacy.accounted:.4g} at delta {short_number(privacy.delta)}"
    )
    if privacy.epsilon is not None:
        return f"epsilon: {privacy.epsilon:.4g} at delta {short_number(privacy.delta)}"
    return f"{accounted}; of the whole run ∞: {privacy.infinite[0]}" if privacy.infinite else accounted


def _roughly(seconds: float) -> str:
    """Return seconds in words with two digits, the precision of a plan."""
    return wording.duration(float(f"{max(seconds, 0.1):.2g}"))


def print_catalogue(entries: Mapping[str, str]) -> None:
    """Print names with one line each."""
    width = max(map(len, entries))
    for name, description in entries.items():
        print(f"{name:<{width}}  {description}")
