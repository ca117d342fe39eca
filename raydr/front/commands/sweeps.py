"""Commands that run many trials: sweep and reproduce."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from raydr.front import options
from raydr.front.commands.misplaced import suggesting_command
from raydr.front.streams import note_on_error

if TYPE_CHECKING:
    from raydr.tune.schema import Sweep
    from raydr.tune.trackers import Tracker

LOWEST_PRIORITY = 19
"""Change of the priority of a queue of tables, which runs next to other work."""


@click.command()
@click.argument("sweep_", metavar="SWEEP")
@options.swept
@click.option("--mlflow", metavar="URI", help="Also log every trial to MLflow. Needs raydr[mlflow].")
@click.option(
    "--tensorboard",
    type=click.Path(path_type=Path),
    help="Also log every trial to TensorBoard, in this folder.",
)
def sweep(
    sweep_: str,
    overrides: Mapping[str, Any],
    out: Path | None,
    address: str | None,
    data_dir: Path | None,
    quick: bool,
    resume: bool,
    retry_failed: bool,
    quiet: bool,
    mlflow: str | None,
    tensorboard: Path | None,
) -> None:
    """Run every trial of SWEEP, in parallel if resources allow, and write its folder with a page.

    SWEEP is a YAML file, or a name from `raydr list sweeps`. --set overrides keys of the base scenario.
    """
    from raydr.tune.reading import read_sweep
    from raydr.tune.trackers import trackers

    _whether_as_it_was(resume, retry_failed, {"--set": overrides, "--out": out is not None, "--quick": quick})
    with suggesting_command(sweep_, "sweep"):
        checked = None if resume else read_sweep(sweep_, overrides, quick=quick)
    name = Path(sweep_).name.split(".")[0] if checked is None else checked.name
    _swept(
        checked,
        Path(sweep_),
        out=out,
        address=address,
        data_dir=data_dir,
        retry_failed=retry_failed,
        quiet=quiet,
        trackers=trackers(name, mlflow, tensorboard),
    )


@click.command()
@click.argument("table", metavar="TABLE", required=False)
@click.option(
    "--all",
    "all_",
    is_flag=True,
    help="Run every table, the most useful first, at low priority. Repeat the command to continue.",
)
@click.option("--budget", type=options.Duration(), help="With --all: end after this time, such as 8h.")
@options.of_table
@options.swept
def reproduce(
    table: str | None,
    all_: bool,
    budget: float | None,
    only: tuple[str, ...],
    seeds: int | None,
    no_published: bool,
    overrides: Mapping[str, Any],
    out: Path | None,
    address: str | None,
    data_dir: Path | None,
    quick: bool,
    resume: bool,
    retry_failed: bool,
    quiet: bool,
) -> None:
    """Run a paper's TABLE and compare the results with the paper's numbers.

    Each cell runs as published and with raydr's defaults. TABLE is a name from `raydr list papers`, or a YAML file of
    the same form. --all runs every table instead: then --out has a folder for each, in runs by default.
    """
    from raydr.tune.reproducing import read_table

    if all_:
        refused = {"a TABLE": table, "--only": only, "--resume": resume, "--retry-failed": retry_failed}
        if found := [name for name, value in refused.items() if value]:
            raise click.UsageError(f"--all runs every table and resumes what it finds: leave out {found[0]}")
        _all_tables(
            out or Path("runs"),
            quiet,
            budget_s=budget,
            overrides=overrides,
            quick=quick,
            seeds=seeds,
            published=not no_published,
            address=address,
            data_dir=data_dir,
        )
        return
    if table is None:
        raise click.UsageError("Missing argument 'TABLE': name a table of `raydr list papers`, or pass --all")
    if budget is not None:
        raise click.UsageError("--budget ends a queue of tables: pass --all, or leave it out")
    given = {"--set": overrides, "--only": only, "--seeds": seeds, "--no-published": no_published}
    _whether_as_it_was(resume, retry_failed, {**given, "--out": out is not None, "--quick": quick})
    with suggesting_command(table, "reproduce"):
        checked = (
            None
            if resume
            else read_table(table, overrides, quick=quick, only=only, seeds=seeds, published=not no_published)
        )
    _swept(
        checked,
        Path(table),
        out=out,
        address=address,
        data_dir=data_dir,
        retry_failed=retry_failed,
        quiet=quiet,
    )


def _all_tables(out: Path, quiet: bool, **options: Any) -> None:
    """Run all published tables, print how each came out, and print the folder.

    Raises
    ------
    RunError
        If a table failed.
    """
    from raydr.errors import RunError
    from raydr.front.progress_bars import heard_on_terminal
    from raydr.front.terminal import print_queue
    from raydr.tune.queue import QueuedTable, by_usefulness, run_queue

    os.nice(LOWEST_PRIORITY)
    ended: list[QueuedTable] = []
    try:
        for table in run_queue(by_usefulness(), out, heard=lambda: heard_on_terminal(quiet=quiet), **options):
            ended.append(table)
    except KeyboardInterrupt as error:
        error.add_note(f"Complete tables are in {out}. Repeat the command to continue with the others.")
        raise
    finally:
        if ended and not quiet:
            print_queue(ended)
    failed = [table.name for table in ended if table.status == "failed"]
    click.echo(out)
    if failed:
        raise RunError(f"{len(failed)} of {len(ended)} tables failed: {', '.join(failed)}.")


def _whether_as_it_was(resume: bool, retry_failed: bool, changed: Mapping[str, object]) -> None:
    """Raise UsageError for options that --resume cannot change, and for --retry-failed without --resume."""
    *others, last = changed
    if resume and any(changed.values()):
        raise click.UsageError(f"--resume cannot change a sweep: leave out {', '.join(others)} and {last}")
    if retry_failed and not resume:
        raise click.UsageError("--retry-failed repeats failed trials of a sweep: give --resume as well")


def _swept(
    checked: Sweep | None,
    folder: Path,
    *,
    out: Path | None,
    address: str | None,
    data_dir: Path | None,
    retry_failed: bool,
    quiet: bool,
    trackers: Sequence[Tracker] = (),
) -> None:
    """Run a sweep, or resume the one in the folder, and print its results and the path of its page."""
    from raydr.front.progress_bars import heard_on_terminal
    from raydr.front.terminal import print_paper_table, print_sweep
    from raydr.runfolder.records import SWEEP_REPORT, TABLE, TABLE_REPORT
    from raydr.tune import sweeping

    with heard_on_terminal(quiet=quiet) as listener:
        where: dict[str, Any] = {
            "address": address,
            "data_dir": data_dir,
            "listener": listener,
            "trackers": trackers,
        }
        if checked is None:
            whole = sweeping.resume(folder, retry_failed=retry_failed, **where)
        else:
            whole = sweeping.sweep(checked, out=out, **where)
    table = (whole / TABLE).exists()
    if not quiet:
        (print_paper_table if table else print_sweep)(whole)
    with note_on_error(f"The {'table' if table else 'sweep'} is complete in {whole}."):
        click.echo(whole / (TABLE_REPORT if table else SWEEP_REPORT))
