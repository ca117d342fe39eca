"""The ``raydr`` command: its parts, their options, and which room answers each.

The path of what was written is the only line on standard output; :mod:`raydr.front.process` has the exit status.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from functools import partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, NoReturn

import click

from raydr.front import process
from raydr.front.jobs import address_option, jobs, submit_file
from raydr.front.results import Results, noting


def _shipped() -> Mapping[str, str]:
    from raydr.scenarios.reading import shipped

    return shipped()


def _sweeps() -> Mapping[str, str]:
    from raydr.tune.reading import shipped

    return shipped()


def _papers() -> Mapping[str, str]:
    from raydr.tune.reproducing import catalogue

    return catalogue()


def _table(room: str, name: str, line: Callable[[Any], str] | None = None) -> Mapping[str, str]:
    """A room's table of things by name, each in a line, by default its docstring's first; imported when asked for."""
    from raydr.registry import summary

    return {key: (line or summary)(thing) for key, thing in getattr(import_module(room), name).items()}


CATALOGUES: Mapping[str, Callable[[], Mapping[str, str]]] = {
    "scenarios": _shipped,
    "sweeps": _sweeps,
    "papers": _papers,
    "methods": partial(_table, "raydr.methods", "METHODS", attrgetter("summary")),
    "embedders": partial(_table, "raydr.embedding", "EMBEDDERS"),
    "partitions": partial(_table, "raydr.partition", "PARTITIONS"),
    "adversaries": partial(_table, "raydr.federation.simulated", "ADVERSARIES"),
    "attacks": partial(_table, "raydr.attacks", "ATTACKS", attrgetter("description")),
    "mechanisms": partial(_table, "raydr.privacy", "MECHANISMS"),
    "metrics": partial(_table, "raydr.metrics", "METRICS", attrgetter("description")),
    "datasets": partial(_table, "raydr.data", "DATASETS", attrgetter("description")),
}
"""What ``raydr list`` can list: names, each with a line on what it is."""


class _InOrder(click.Group):
    """A group whose help lists commands in the order in which they are defined."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="raydr", message="raydr %(version)s")
def app() -> None:
    """Federated dimensionality reduction, simulated on Ray: one map of everybody's data, and its price in privacy."""


_SET = click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key, such as method.landmarks=200. Repeatable.",
)
_ADDRESS = click.option(
    "--address", help="A Ray cluster, such as auto or HOST:PORT. Default: $RAY_ADDRESS, or this machine."
)
_DATA_DIR = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Folder of built-in data sets as NAME.npz. Default: $RAYDR_DATA.",
)


@app.command()
@click.argument("scenario")
@_SET
@click.option("--out", type=click.Path(path_type=Path), help="The run folder. Default: runs/NAME-TIMESTAMP.")
@_ADDRESS
@_DATA_DIR
@click.option("--resume", is_flag=True, help="SCENARIO is the folder of an interrupted run: go on with it.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but the report's path.")
def run(
    scenario: str,
    assignments: tuple[str, ...],
    out: Path | None,
    address: str | None,
    data_dir: Path | None,
    resume: bool,
    quiet: bool,
) -> None:
    """Run SCENARIO and write its run folder, report included.

    SCENARIO is a YAML file, or a name from `raydr list scenarios`.
    """
    from raydr.front.terminal import heard_on_terminal, print_result
    from raydr.journal import unheard
    from raydr.records import REPORT
    from raydr.scenarios import runner
    from raydr.scenarios.reading import parse_override, read

    if resume and (assignments or out is not None):
        raise click.UsageError("--resume goes on with a run as it was: leave out --set and --out")
    checked = (
        None if resume else read(scenario, dict(parse_override(assignment) for assignment in assignments))
    )
    with nullcontext(unheard) if quiet else heard_on_terminal() as listener:
        if checked is None:
            folder = runner.resume(Path(scenario), address=address, data_dir=data_dir, listener=listener)
        else:
            folder = runner.run(checked, out=out, address=address, data_dir=data_dir, listener=listener)
    if not quiet:
        print_result(folder)
    with noting(f"The run is whole in {folder}."):
        click.echo(folder / REPORT)


_SITE = click.option(
    "--site",
    metavar="COLUMN",
    help="The column that says whose a row is. Default: one called site, hospital...",
)
_LABEL = click.option("--label", metavar="COLUMN", help="The column of classes, which colours the map.")
_METHOD = click.option("--method", metavar="KIND", help="One of `raydr list methods`. Default: fed-umap.")


@app.command("map")
@click.argument("data")
@_SITE
@_LABEL
@_METHOD
@_SET
@click.option("--out", type=click.Path(path_type=Path), help="The run folder. Default: runs/NAME-TIMESTAMP.")
@_ADDRESS
@click.option("--open", "open_", is_flag=True, help="Open the report in a browser.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but the report's path.")
def map_(
    data: str,
    site: str | None,
    label: str | None,
    method: str | None,
    assignments: tuple[str, ...],
    out: Path | None,
    address: str | None,
    open_: bool,
    quiet: bool,
) -> None:
    """Map DATA, a table of yours, without a scenario: say what it is taken for, and run.

    DATA is a file, .csv .tsv .parquet .npy .npz or .h5ad, or a folder or a 'pattern*.csv' of files, one for each site.
    The run folder's scenario.yaml is what was run.
    """
    from raydr.front.own_data import own_data
    from raydr.front.terminal import heard_on_terminal, print_facts, print_result
    from raydr.journal import unheard
    from raydr.records import REPORT
    from raydr.report.mapped import NOTICE
    from raydr.scenarios import runner
    from raydr.scenarios.reading import parse_override

    overrides = dict(parse_override(assignment) for assignment in assignments)
    taken = own_data(data, site=site, label=label, method=method, overrides=overrides)
    if not quiet:
        # What there is to look at, the run says itself.
        print_facts([fact for fact in taken.facts if fact.name != NOTICE], result=False)
    with nullcontext(unheard) if quiet else heard_on_terminal() as listener:
        folder = runner.run(taken.scenario, out=out, address=address, listener=listener)
    if not quiet:
        print_result(folder, told=True)
    with noting(f"The run is whole in {folder}."):
        click.echo(folder / REPORT)
    if open_:
        import webbrowser

        webbrowser.open((folder / REPORT).as_uri())


@app.command()
@click.argument("file")
@_SITE
@_LABEL
@_METHOD
@_SET
@_DATA_DIR
def check(
    file: str,
    site: str | None,
    label: str | None,
    method: str | None,
    assignments: tuple[str, ...],
    data_dir: Path | None,
) -> None:
    """Read everything that a run of FILE would read, say what it is, and start nothing.

    FILE is data as for `raydr map`, or a scenario as for `raydr run`.
    """
    from raydr.front.own_data import described, held, is_data, own_data
    from raydr.front.terminal import logged_on_terminal, print_facts
    from raydr.scenarios.reading import parse_override, read

    overrides = dict(parse_override(assignment) for assignment in assignments)
    with logged_on_terminal():
        if is_data(file):
            facts = own_data(
                file, site=site, label=label, method=method, overrides=overrides, site_needed=False
            ).facts
        elif site or label or method:
            raise click.UsageError(
                "--site, --label and --method are for data; a scenario says all three itself"
            )
        else:
            scenario = read(file, overrides)
            facts = described(scenario, held(scenario, data_dir))
    print_facts(facts, result=True)


@app.command()
@click.argument("data")
@_SITE
@_LABEL
@_METHOD
@_SET
@click.option("--out", type=click.Path(path_type=Path), help="The file to write. Default: NAME.yaml, here.")
def init(
    data: str,
    site: str | None,
    label: str | None,
    method: str | None,
    assignments: tuple[str, ...],
    out: Path | None,
) -> None:
    """Write a scenario for DATA, data as for `raydr map`, with comments on what it holds and what could be changed."""
    from raydr.front.own_data import commented, own_data, write_new
    from raydr.front.terminal import logged_on_terminal
    from raydr.scenarios.reading import parse_override

    overrides = dict(parse_override(assignment) for assignment in assignments)
    with logged_on_terminal():
        taken = own_data(data, site=site, label=label, method=method, overrides=overrides, site_needed=False)
    click.echo(write_new(out or Path(f"{taken.scenario.name}.yaml"), commented(taken)))


@app.command()
@click.argument("sweep_", metavar="SWEEP")
@_SET
@click.option(
    "--out", type=click.Path(path_type=Path), help="The sweep's folder. Default: runs/NAME-TIMESTAMP."
)
@_ADDRESS
@_DATA_DIR
@click.option("--quick", is_flag=True, help="Take what the sweep's section `quick` says: a minute or so.")
@click.option("--resume", is_flag=True, help="SWEEP is the folder of an interrupted sweep: go on with it.")
@click.option("--retry-failed", is_flag=True, help="With --resume: run trials again that failed.")
@click.option("--mlflow", metavar="URI", help="Also log every trial to MLflow: needs raydr[mlflow].")
@click.option(
    "--tensorboard",
    type=click.Path(path_type=Path),
    help="Also log every trial to TensorBoard, into this folder.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but the page's path.")
def sweep(
    sweep_: str,
    assignments: tuple[str, ...],
    out: Path | None,
    address: str | None,
    data_dir: Path | None,
    quick: bool,
    resume: bool,
    retry_failed: bool,
    mlflow: str | None,
    tensorboard: Path | None,
    quiet: bool,
) -> None:
    """Run every trial of SWEEP, side by side where there is room, and write its folder, page included.

    SWEEP is a YAML file, or a name from `raydr list sweeps`. --set overrides keys of the base scenario.
    """
    from raydr.front.terminal import heard_on_terminal
    from raydr.journal import unheard
    from raydr.scenarios.reading import parse_override
    from raydr.tune import sweeping
    from raydr.tune.reading import read_sweep
    from raydr.tune.trackers import trackers

    if resume and (assignments or out is not None or quick):
        raise click.UsageError("--resume goes on with a sweep as it was: leave out --set, --out and --quick")
    if retry_failed and not resume:
        raise click.UsageError("--retry-failed is of --resume: it runs trials again that failed before")
    overrides = dict(parse_override(assignment) for assignment in assignments)
    checked = None if resume else read_sweep(sweep_, overrides, quick=quick)
    name = Path(sweep_).name.split(".")[0] if checked is None else checked.name
    told = trackers(name, mlflow, tensorboard)
    with nullcontext(unheard) if quiet else heard_on_terminal() as listener:
        if checked is None:
            folder = sweeping.resume(
                Path(sweep_),
                address=address,
                data_dir=data_dir,
                listener=listener,
                retry_failed=retry_failed,
                trackers=told,
            )
        else:
            folder = sweeping.sweep(
                checked, out=out, address=address, data_dir=data_dir, listener=listener, trackers=told
            )
    _shown(folder, quiet)


@app.command()
@click.argument("table", metavar="TABLE")
@click.option("--only", multiple=True, metavar="ROW", help="Only this row, or group of rows. Repeatable.")
@click.option(
    "--seeds", type=click.IntRange(min=1), help="How many seeds. Default: as the table says, mostly 3."
)
@click.option("--no-published", is_flag=True, help="Run no cell as published, by raydr's defaults alone.")
@_SET
@click.option(
    "--out", type=click.Path(path_type=Path), help="The table's folder. Default: runs/NAME-TIMESTAMP."
)
@_ADDRESS
@_DATA_DIR
@click.option("--quick", is_flag=True, help="Fewer rows and one seed, as the table's section `quick` says.")
@click.option("--resume", is_flag=True, help="TABLE is the folder of an interrupted one: go on with it.")
@click.option("--retry-failed", is_flag=True, help="With --resume: run again what failed.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but the page's path.")
def reproduce(
    table: str,
    only: tuple[str, ...],
    seeds: int | None,
    no_published: bool,
    assignments: tuple[str, ...],
    out: Path | None,
    address: str | None,
    data_dir: Path | None,
    quick: bool,
    resume: bool,
    retry_failed: bool,
    quiet: bool,
) -> None:
    """Run a paper's TABLE, each cell as published and by raydr's defaults, and print ours beside theirs.

    TABLE is a name from `raydr list papers`, or a YAML file of the same form.
    """
    from raydr.front.terminal import heard_on_terminal
    from raydr.journal import unheard
    from raydr.scenarios.reading import parse_override
    from raydr.tune import reproducing, sweeping

    if resume and (assignments or out is not None or quick or only or seeds or no_published):
        raise click.UsageError(
            "--resume goes on as it was: leave out --set, --only, --seeds, --no-published, --out and --quick"
        )
    if retry_failed and not resume:
        raise click.UsageError("--retry-failed is of --resume: it runs again what failed before")
    overrides = dict(parse_override(assignment) for assignment in assignments)
    asked = (
        None
        if resume
        else reproducing.read_table(
            table, overrides, quick=quick, only=only, seeds=seeds, published=not no_published
        )
    )
    with nullcontext(unheard) if quiet else heard_on_terminal() as listener:
        if asked is None:
            folder = sweeping.resume(
                Path(table), address=address, data_dir=data_dir, listener=listener, retry_failed=retry_failed
            )
        else:
            folder = sweeping.sweep(asked, out=out, address=address, data_dir=data_dir, listener=listener)
    _shown(folder, quiet)


def _shown(folder: Path, quiet: bool) -> None:
    """What a sweep came to, and its page; of one that is a published table, that."""
    from raydr.front.terminal import print_paper_table, print_sweep
    from raydr.records import SWEEP_REPORT, TABLE, TABLE_REPORT

    table = (folder / TABLE).exists()
    if not quiet:
        (print_paper_table if table else print_sweep)(folder)
    with noting(f"The {'table' if table else 'sweep'} is whole in {folder}."):
        click.echo(folder / (TABLE_REPORT if table else SWEEP_REPORT))


@app.command()
@click.argument("scenario", metavar="FILE")
@_SET
@_ADDRESS
@_DATA_DIR
@click.option(
    "--json", "out", metavar="FILE", type=click.Path(path_type=Path), help="Also write the plan here as JSON."
)
def plan(
    scenario: str,
    assignments: tuple[str, ...],
    address: str | None,
    data_dir: Path | None,
    out: Path | None,
) -> None:
    """Say what a run of FILE will need: processes, memory, messages, epsilon, time, and what will not fit.

    FILE is a scenario as for `raydr run`, or a sweep as for `raydr sweep`. Nothing is started; a plan that does not fit
    is still a plan, with status 0.
    """
    import json

    from raydr.actors.capacity import capacity_at
    from raydr.files import write_whole
    from raydr.front.terminal import logged_on_terminal, print_plan, print_sweep_plan
    from raydr.scenarios.planning import Plan, plan_of_scenario
    from raydr.scenarios.reading import parse_override, read
    from raydr.tune.planning import SweepPlan, plan_of_sweep
    from raydr.tune.reading import names_sweep, read_sweep

    overrides = dict(parse_override(assignment) for assignment in assignments)
    planned: Plan | SweepPlan
    with logged_on_terminal():
        if names_sweep(scenario):
            swept = read_sweep(scenario, overrides)
            planned = plan_of_sweep(swept, capacity=capacity_at(address), data_dir=data_dir)
        else:
            checked = read(scenario, overrides)
            planned = plan_of_scenario(checked, capacity=capacity_at(address), data_dir=data_dir)
    if out is not None:
        content = json.dumps(planned.to_json(), indent=2, allow_nan=False) + "\n"
        write_whole(out, content.encode(), "free the place, or name another with --json")
    if isinstance(planned, SweepPlan):
        print_sweep_plan(planned)
    else:
        print_plan(planned)


@app.command()
@click.argument("file")
@address_option
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key of the scenario, or of a sweep's base. Repeatable.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="The folder to fetch to. Default: runs/NAME-TIMESTAMP."
)
@_DATA_DIR
@click.option(
    "--detach", is_flag=True, help="Print the job's id and leave it: `raydr jobs follow ID` goes on."
)
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but the report's path.")
def submit(
    file: str,
    address: str,
    assignments: tuple[str, ...],
    out: Path | None,
    data_dir: Path | None,
    detach: bool,
    quiet: bool,
) -> None:
    """Run FILE, a scenario or a sweep, as a job on a Ray cluster, follow it and bring its folder back."""
    from raydr.scenarios.reading import parse_override

    overrides = dict(parse_override(assignment) for assignment in assignments)
    submit_file(file, address, overrides=overrides, out=out, data_dir=data_dir, detach=detach, quiet=quiet)


app.add_command(jobs)


@app.command()
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
def report(folder: Path) -> None:
    """Make the report and picture of a run folder, or the page of a sweep folder, again from its files."""
    from raydr.records import TABLE
    from raydr.report import is_sweep, write_paper_report, write_picture, write_report, write_sweep_report

    if is_sweep(folder):
        page = write_sweep_report(folder)
        click.echo(write_paper_report(folder) if (folder / TABLE).exists() else page)
        return
    write_picture(folder)
    click.echo(write_report(folder))


@app.command()
@click.argument("folders", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), help="Also write a page with the maps side by side here."
)
def compare(folders: tuple[Path, ...], out: Path | None) -> None:
    """Compare run folders: metrics, seconds, bytes, memory."""
    from raydr.front.terminal import print_comparison
    from raydr.report import compare as compare_runs
    from raydr.report import write_comparison

    page = write_comparison(folders, out) if out is not None else None
    print_comparison(compare_runs(folders))
    if page is not None:
        click.echo(page)


@app.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--attack",
    "attacks",
    multiple=True,
    metavar="NAME",
    help="Only this one: raydr list attacks. Repeatable.",
)
@click.option(
    "--public", type=click.Path(path_type=Path), help="A file of rows of like data that the server is given."
)
@click.option(
    "--public-rows", type=click.IntRange(min=0), help="How many rows of like data, at most. Default: 10000."
)
@_DATA_DIR
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but the report's path.")
def audit(
    folder: Path,
    attacks: tuple[str, ...],
    public: Path | None,
    public_rows: int | None,
    data_dir: Path | None,
    quiet: bool,
) -> None:
    """Attack RUN, a run folder, with what its server saw: what could be recovered, beside what one could guess.

    Repeats the run in this process, to the bit, as only a simulation can; writes audit.json and makes the report again.
    """
    from raydr.front.terminal import heard_on_terminal, print_audit
    from raydr.journal import unheard
    from raydr.records import REPORT
    from raydr.report import read_audit
    from raydr.scenarios import auditing

    settings = auditing.asked(folder, attacks, public_rows)
    with nullcontext(unheard) if quiet else heard_on_terminal() as listener:
        written = auditing.audit(folder, settings, public=public, data_dir=data_dir, listener=listener)
    found = read_audit(written)
    if not quiet and found is not None:
        print_audit(found)
    click.echo(written / REPORT)


@app.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("data", type=click.Path(path_type=Path))
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="The .csv or .parquet file to write: row, x, y.",
)
@click.option(
    "--site",
    metavar="NAME|COLUMN",
    help="Of a run that adjusted sites to each other: the rows' site, or the column that says so. Default: its own.",
)
def transform(folder: Path, data: Path, out: Path, site: str | None) -> None:
    """Place the rows of DATA on the map of RUN, a run folder, without any server: columns are found by name."""
    from raydr.front.terminal import logged_on_terminal
    from raydr.scenarios.transforming import transform as place

    with logged_on_terminal():
        written = place(folder, data, out, site=site)
    click.echo(written)


@app.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--json",
    "out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Also write the table here as JSON.",
)
@_DATA_DIR
def bounds(folder: Path, out: Path | None, data_dir: Path | None) -> None:
    """Compare what P1's theorems promise of RUN, a run folder with learnt landmarks, with what came of it.

    Loads the run's data anew, as only a simulation can.
    """
    import json

    from raydr.files import write_whole
    from raydr.front.terminal import print_bounds
    from raydr.scenarios.bounding import bounds_of

    lines = bounds_of(folder, data_dir)
    if out is not None:
        content = json.dumps([line.as_dict() for line in lines], indent=2, allow_nan=False) + "\n"
        write_whole(out, content.encode(), "free the place, or name another with --json")
    print_bounds(lines)


@app.command("list")
@click.argument("what", metavar="|".join(CATALOGUES), type=click.Choice(list(CATALOGUES)))
def list_(what: str) -> None:
    """List what there is, one line each."""
    from raydr.front.terminal import print_catalogue

    print_catalogue(CATALOGUES[what]())


def main() -> NoReturn:
    """Do what the command line says, and end with its exit status: :mod:`raydr.__main__` is how one comes here."""
    process.main(lambda: status(sys.argv[1:]))


def status(arguments: Sequence[str]) -> int:
    """Do what the arguments say, put what went wrong in one paragraph on standard error, return the exit status."""

    def command() -> None:
        # click's own main would turn some errors into others, in each version differently.
        with redirect_stdout(Results(sys.stdout)), app.make_context("raydr", list(arguments)) as context:
            app.invoke(context)
            sys.stdout.flush()

    return process.status(command)
