"""Commands for scenarios and tables: run, map, check, init, plan, submit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from raydr.front import options
from raydr.front.commands.misplaced import command_for, suggesting_command
from raydr.front.jobs import address_option, submit_file
from raydr.front.streams import note_on_error
from raydr.portable import require_portable


@click.command()
@click.argument("scenario")
@options.override()
@options.policy
@options.folder_out("The run folder")
@options.address
@options.inline
@options.data_dir
@click.option("--resume", is_flag=True, help="Resume an interrupted run. SCENARIO is its folder.")
@options.quiet()
@options.verbose
def run(
    scenario: str,
    overrides: Mapping[str, Any],
    policy: str | None,
    out: Path | None,
    address: str | None,
    inline: bool,
    data_dir: Path | None,
    resume: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Run SCENARIO and write its run folder with a report.

    SCENARIO is a YAML file, or a name from `raydr list scenarios`.
    """
    from raydr.front.progress_bars import heard_on_terminal
    from raydr.front.terminal import print_result, title_of
    from raydr.runfolder.records import REPORT
    from raydr.scenarios import runner
    from raydr.scenarios.schema.reading import read

    if resume and (overrides or policy or inline or out is not None):
        raise click.UsageError("--resume cannot change a run: leave out --set, --policy, --inline and --out")
    overrides = options.with_policy(overrides, policy)
    options.require_one_of(quiet, verbose)
    if overrides.get("runtime.portable"):
        require_portable()  # before the imports that take a second
    with suggesting_command(scenario, "run"):
        checked = None if resume else read(scenario, options.with_inline(overrides, inline, address))
    title = "" if checked is None else title_of(checked)
    with heard_on_terminal(quiet=quiet, title=title) as listener:
        if checked is None:
            folder = runner.resume(Path(scenario), address=address, data_dir=data_dir, listener=listener)
        else:
            folder = runner.run(checked, out=out, address=address, data_dir=data_dir, listener=listener)
    if not quiet:
        print_result(folder, verbose=verbose)
    with note_on_error(f"The run is complete in {folder}."):
        click.echo(folder / REPORT)


@click.command("map")
@click.argument("data")
@options.own_data
@options.private
@options.policy
@options.folder_out("The run folder")
@options.address
@options.inline
@click.option(
    "--tune",
    is_flag=True,
    help="Try five neighbourhood sizes first, with five runs each, and keep the one with the most reliable places.",
)
@click.option("--open", "open_", is_flag=True, help="Open the report in a browser.")
@options.quiet()
@options.verbose
def map_(
    data: str,
    site: str | None,
    label: str | None,
    time: str | None,
    codebook: Path | None,
    method: str | None,
    epsilon: float | None,
    delta: float | None,
    overrides: Mapping[str, Any],
    policy: str | None,
    out: Path | None,
    address: str | None,
    inline: bool,
    tune: bool,
    open_: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Map DATA, a table of yours, without a scenario.

    DATA is a .csv, .tsv, .parquet, .npy, .npz, .h5ad or .mtx file. For one file per site, give a folder or a quoted
    pattern such as 'data/*.csv'. The run folder keeps the scenario of the run as scenario.yaml.
    """
    from raydr.front.own_data import own_rows, tuned
    from raydr.front.progress_bars import heard_on_terminal, reading_on_terminal
    from raydr.front.terminal import print_interpretation, print_result, print_sweep
    from raydr.report.run.mapped import hashes
    from raydr.runfolder import read_run
    from raydr.runfolder.records import REPORT, SWEEP_REPORT
    from raydr.scenarios import runner

    options.require_one_of(quiet, verbose)
    overrides = options.with_inline(options.with_policy(overrides, policy), inline, address)
    if overrides.get("runtime.portable"):
        require_portable()  # before all data are read
    with suggesting_command(data, "map"), reading_on_terminal(quiet=quiet, logs=False) as progress:
        own, client_data = own_rows(
            data,
            site=site,
            label=label,
            time=time,
            codebook=codebook,
            method=method,
            epsilon=epsilon,
            delta=delta,
            overrides=overrides,
            progress=progress,
        )
    rows = client_data.rows
    del client_data
    if not quiet:
        print_interpretation(own.scenario, own.facts, verbose=verbose)
    if tune:
        with heard_on_terminal(quiet=quiet) as listener:
            own, reason, tried = tuned(own, rows, out=out, address=address, listener=listener)
        if not quiet:
            print_sweep(tried)
            click.echo(f"{reason} All runs: {tried / SWEEP_REPORT}", err=True)
    with heard_on_terminal(quiet=quiet) as listener:
        folder = runner.run(own.scenario, out=out, address=address, listener=listener)
    if not quiet:
        print_result(folder, verbose=verbose)
    if not set(hashes(read_run(folder).data)) <= set(own.facts):
        changed = (
            f"raydr: {data} changed during the run. {folder} describes the mapped data, with their SHA-256"
        )
        click.echo(changed + ("." if quiet else "; the description before the run is out of date."), err=True)
    with note_on_error(f"The run is complete in {folder}."):
        click.echo(folder / REPORT)
    if open_:
        import webbrowser

        webbrowser.open((folder / REPORT).as_uri())


@click.command()
@click.argument("file")
@options.own_data
@options.data_dir
@options.json_out("rows, sites and how each column is read")
def check(
    file: str,
    site: str | None,
    label: str | None,
    time: str | None,
    codebook: Path | None,
    method: str | None,
    overrides: Mapping[str, Any],
    data_dir: Path | None,
    out: Path | None,
) -> None:
    """Read the data that a run of FILE would read, and describe them. Start nothing.

    FILE is a table as for `raydr map`, or a scenario as for `raydr run`.
    """
    from raydr.errors import DataError
    from raydr.front.columns import shares_of_columns, survey_as_json
    from raydr.front.own_data import described, held, is_data, own_rows
    from raydr.front.progress_bars import reading_on_terminal
    from raydr.front.terminal import print_facts
    from raydr.scenarios.schema.reading import read

    with reading_on_terminal() as progress:
        if is_data(file):
            own, client_data = own_rows(
                file,
                site=site,
                label=label,
                time=time,
                codebook=codebook,
                method=method,
                overrides=overrides,
                site_needed=False,
                progress=progress,
            )
            scenario, facts = own.scenario, own.facts
        elif (site or label or time or codebook or method) and not Path(file).expanduser().exists():
            raise DataError(
                f"{file} does not exist: expected a file, a folder or a pattern. Paths are relative to {Path.cwd()}."
            )
        elif site or label or time or codebook or method:
            raise click.UsageError(
                "--site, --label, --time, --codebook and --method are for tables: a scenario names all of them itself"
            )
        else:
            scenario = read(file, overrides)
            client_data = held(scenario, data_dir, progress=progress)
            facts = described(scenario, client_data)
    if out is not None:
        options.write_json(out, survey_as_json(scenario, client_data))
    print_facts((*facts, shares_of_columns(scenario, client_data)))


@click.command()
@click.argument("data")
@options.own_data
@options.private
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The file to write. Default: NAME.yaml in the current folder.",
)
def init(
    data: str,
    site: str | None,
    label: str | None,
    time: str | None,
    codebook: Path | None,
    method: str | None,
    epsilon: float | None,
    delta: float | None,
    overrides: Mapping[str, Any],
    out: Path | None,
) -> None:
    """Write a scenario for DATA, with comments on the data and on what you can change.

    DATA is a table as for `raydr map`. If the file of --codebook does not exist, it is written too: correct it, and run
    the scenario.
    """
    from raydr.front.columns import written_codebook
    from raydr.front.own_data import commented, own_rows, with_codebook, write_new
    from raydr.front.progress_bars import reading_on_terminal

    new = codebook is not None and not codebook.expanduser().exists()
    if new and epsilon is not None:
        raise click.UsageError(
            f"{codebook} does not exist. A new codebook is written from exact values: write it without --epsilon, check"
            " that you may publish it, and pass both then"
        )
    with reading_on_terminal() as progress:
        own, client_data = own_rows(
            data,
            site=site,
            label=label,
            time=time,
            codebook=None if new else codebook,
            method=method,
            epsilon=epsilon,
            delta=delta,
            overrides=overrides,
            site_needed=False,
            progress=progress,
        )
    if new and codebook is not None:
        own = with_codebook(own, codebook)
        click.echo(
            write_new(
                codebook, written_codebook(own.scenario, client_data), option="--codebook", suffixes=(".csv",)
            )
        )
    click.echo(write_new(out or Path(f"{own.scenario.name}.yaml"), commented(own)))


@click.command()
@click.argument("scenario", metavar="FILE")
@options.override()
@options.policy
@options.address
@options.data_dir
@click.option("--rows", type=click.IntRange(min=1), help="Plan for this many rows of the same kind.")
@click.option(
    "--machines",
    type=options.Machines(),
    help="Plan for these machines: count, cores and GiB of memory of each, such as 4x16x64.",
)
@options.of_table
@options.quick
@options.json_out("the plan")
def plan(
    scenario: str,
    overrides: Mapping[str, Any],
    policy: str | None,
    address: str | None,
    data_dir: Path | None,
    rows: int | None,
    machines: tuple[int, int, float] | None,
    only: tuple[str, ...],
    seeds: int | None,
    no_published: bool,
    quick: bool,
    out: Path | None,
) -> None:
    """Estimate what a run of FILE needs: processes, memory, messages, epsilon and time. Start nothing.

    FILE is a scenario as for `raydr run`, a sweep as for `raydr sweep`, or a table as for `raydr reproduce`, of which
    --only, --seeds and --no-published take a part. The plan also says what does not fit. The exit status is 0 even if
    the run does not fit.
    """
    from raydr.actors.capacity import capacity_at, imagined
    from raydr.front.console import logged_on_terminal
    from raydr.front.terminal import print_plan, print_sweep_plan
    from raydr.scenarios.planning.plan import RunPlan, plan_of_scenario
    from raydr.scenarios.schema.reading import read
    from raydr.tune.planning import SweepPlan, plan_of_sweep
    from raydr.tune.reading import read_sweep
    from raydr.tune.reproducing import read_table

    if machines is not None and address is not None:
        raise click.UsageError(
            "--machines and --address both say which machines to plan for: leave one of them out."
        )
    takes, part = command_for(scenario), bool(only or seeds or no_published)
    if part and takes not in ("reproduce", None):
        raise click.UsageError(
            f"--only, --seeds and --no-published take a part of a paper's table, and {scenario} is none."
        )
    planned: RunPlan | SweepPlan
    overrides = options.with_policy(overrides, policy)
    with logged_on_terminal():
        capacity = capacity_at(address) if machines is None else imagined(*machines)
        if takes in ("sweep", "reproduce") or part:
            if rows is not None:
                raise click.UsageError("--rows needs a scenario, and FILE is a sweep: plan its base instead.")
            sweep = (
                read_sweep(scenario, overrides, quick=quick)
                if takes == "sweep"
                else read_table(
                    scenario, overrides, quick=quick, only=only, seeds=seeds, published=not no_published
                )
            )
            planned = plan_of_sweep(sweep, capacity=capacity, data_dir=data_dir)
        else:
            checked = read(scenario, overrides)
            if quick:
                raise click.UsageError(
                    f"--quick needs a sweep or a paper's table, and {scenario} is a scenario."
                )
            planned = plan_of_scenario(checked, capacity=capacity, data_dir=data_dir, rows=rows)
    if out is not None:
        options.write_json(out, planned.to_json())
    if isinstance(planned, SweepPlan):
        print_sweep_plan(planned)
    else:
        print_plan(planned)


@click.command()
@click.argument("file")
@address_option
@options.override("a key of the scenario, or of a sweep's base")
@options.folder_out("The folder to fetch to")
@options.data_dir
@click.option(
    "--detach", is_flag=True, help="Print the job's id and return. Follow it later: `raydr jobs follow ID`."
)
@options.quiet()
def submit(
    file: str,
    address: str,
    overrides: Mapping[str, Any],
    out: Path | None,
    data_dir: Path | None,
    detach: bool,
    quiet: bool,
) -> None:
    """Run FILE, a scenario or a sweep, as a job on a Ray cluster. Follow it and fetch its folder."""
    submit_file(file, address, overrides=overrides, out=out, data_dir=data_dir, detach=detach, quiet=quiet)
