"""``raydr submit`` and ``raydr jobs``: run on a remote Ray cluster, follow the job and fetch its folder."""

from __future__ import annotations

import logging
import secrets
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from raydr.errors import OutputError, RunError
from raydr.front import options
from raydr.front.streams import note_on_error

if TYPE_CHECKING:
    from raydr.actors.job_log import Failed
    from raydr.actors.jobs import Head, Job
    from raydr.journal import Listener

logger = logging.getLogger(__name__)

_KILLED = 128


class JobError(RunError):
    """A job that ended without a complete run, with the exit status of the run."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.exit_code = code


def _head(address: str) -> Head:
    from raydr.actors.jobs import Head

    return Head(address)


def submit_file(
    file: str,
    address: str,
    *,
    overrides: Mapping[str, Any],
    out: Path | None,
    data_dir: Path | None,
    detach: bool,
    quiet: bool,
) -> None:
    """Check a scenario or a sweep here, run it on the cluster, and fetch its folder."""
    from raydr.actors.shipping import packed
    from raydr.front.console import logged_on_terminal
    from raydr.front.submission import submission
    from raydr.runfolder.making import require_free

    job = submission(file, overrides, data_dir)
    if out is not None:
        require_free(out)
    head = _head(address)
    package = packed(job.work)
    named = f"raydr-{job.name[:40]}-{secrets.token_hex(4)}"
    with nullcontext() if quiet else logged_on_terminal():
        for remark in job.remarks:
            logger.info("%s", remark)
        head.send(named, package, name=job.name, kind=job.kind, version=version("raydr"))
        logger.info("job %s: %.1f MB sent to %s", named, len(package.content) / 1e6, head.url)
    if detach:
        click.echo(named)
        return
    _followed(head, named, quiet)
    _brought_back(head, head.job(named), out, quiet)


def follow_job(job: str, address: str, *, out: Path | None, quiet: bool) -> None:
    """Follow a job from its start to its end, and fetch its folder."""
    from raydr.runfolder.making import require_free

    if out is not None:
        require_free(out)
    head = _head(address)
    head.job(job)
    _followed(head, job, quiet)
    _brought_back(head, head.job(job), out, quiet)


def fetch_job(job: str, address: str, *, out: Path | None, quiet: bool) -> None:
    """Fetch the folder of a job that has ended."""
    head = _head(address)
    there = head.job(job)
    if not there.over:
        raise OutputError(
            f"The job {job} has not ended ({there.state.lower()}): to wait for it and fetch its folder, run"
            f" `raydr jobs follow {job} --address {head.url}`."
        )
    if there.state != "SUCCEEDED":
        raise OutputError(f"The job {job} has no folder to fetch: {_why(there, '')}")
    _brought_back(head, there, out, quiet)


def stop_job(job: str, address: str) -> None:
    """Stop a job. Nothing is kept of it."""
    head = _head(address)
    there = head.job(job)
    if there.over:
        raise OutputError(f"The job {job} has already ended ({there.state.lower()}).")
    there = head.stop(job)
    if not there.over:
        raise RunError(f"The job {job} is stopping and has not ended yet: check again with `raydr jobs`.")
    click.echo(job)


def list_jobs(address: str) -> None:
    """Print raydr's jobs on a cluster, newest first."""
    from raydr.front.terminal import print_jobs

    print_jobs(_head(address).jobs())


def _followed(head: Head, job: str, quiet: bool) -> None:
    """Follow a job until its run is complete.

    Raises
    ------
    JobError
        If it ends without a complete run.
    KeyboardInterrupt
        With a note on the state of the job.
    """
    from raydr.front.progress_bars import heard_on_terminal

    try:
        with heard_on_terminal(quiet=quiet) as listener:
            _hear_out(head, job, listener)
    except KeyboardInterrupt as error:
        _interrupted(head, job, error)  # after the bars, which use the terminal until then
        raise


def _hear_out(head: Head, job: str, listener: Listener) -> None:
    from raydr.actors.job_log import Failed, Kept, message_in

    failed: list[Failed] = []
    last = ""

    def hear(line: str) -> None:
        nonlocal last
        match message_in(line):
            case None:
                last = line.strip() or last
                logger.info("%s", line.replace("\t", " "))
            case Failed() as failure:
                failed.append(failure)
            case Kept():
                pass
            case event:
                listener(event)

    there = head.follow(job, hear)
    if failed:
        raise JobError(f"On the cluster: {failed[-1].text}", failed[-1].code)
    if there.state != "SUCCEEDED":
        raise JobError(_why(there, last), _status(there))


def _brought_back(head: Head, job: Job, out: Path | None, quiet: bool) -> None:
    from raydr.front.terminal import print_result, print_sweep
    from raydr.runfolder.making import default_folder, incomplete
    from raydr.runfolder.manifest import require_unchanged
    from raydr.runfolder.records import REPORT, SWEEP_REPORT
    from raydr.scenarios.running.checkpoints import Checkpoints

    target = out or default_folder(job.name, datetime.now())
    try:
        with incomplete(target, Checkpoints) as folder:
            head.fetch(job, folder)
            require_unchanged(folder)
    except OutputError as error:
        error.add_note(
            f"The job is complete: to fetch it, run `raydr jobs fetch {job.id} --address {head.url} --out DIR`."
        )
        raise
    target = target.expanduser().absolute()
    printed, page = (print_sweep, SWEEP_REPORT) if job.kind == "sweep" else (print_result, REPORT)
    report = target / page
    if not quiet:
        printed(target)
    with note_on_error(f"The folder of the job is complete in {target}."):
        click.echo(report if report.exists() else target)


def _interrupted(head: Head, job: str, error: KeyboardInterrupt) -> None:
    """Ask in a terminal whether to stop the job, and add a note on its state to the error."""
    by_user = not error.args or error.args[0] == signal.SIGINT
    if by_user and _yes(f"\nStop the job {job}? Otherwise it continues. [y/N] "):
        head.stop(job)
        error.add_note(f"The job {job} is stopped. Nothing was kept of it.")
    else:
        error.add_note(
            f"The job continues: to follow and fetch it, run `raydr jobs follow {job} --address {head.url}`."
        )


def _yes(question: str) -> bool:
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()):
        return False
    # A second Ctrl-C means no.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        print(question, end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except (KeyboardInterrupt, OSError):
        return False
    finally:
        signal.signal(signal.SIGINT, before)


def _why(job: Job, last: str) -> str:
    """Return why a job ended, if its log does not say so."""
    if job.state == "STOPPED":
        return f"The job {job.id} was stopped, by `raydr jobs stop` or from the dashboard. Nothing was kept of it."
    code = job.exit_code
    if code is None:
        return (
            f"The cluster could not start the job {job.id}, or lost it ({' '.join(job.message.split())[:500]}). Check"
            " memory, disk and logs of the head, then submit it again."
        )
    if code < 0 or code > _KILLED:
        number = -code if code < 0 else code - _KILLED
        return (
            f"The job {job.id} was killed on the cluster (signal {number}): out of memory, or by a person. Submit it"
            " again with a smaller runtime.actors, or use a larger head."
        )
    reason = last.removeprefix("raydr: ") or "its log is empty. Check whether the disk of the head is full."
    return f"The job {job.id} ended with exit status {code} on the cluster: {reason}"


def _status(job: Job) -> int:
    """Return the exit status of a job: its own if it is one of raydr's, otherwise 3."""
    return job.exit_code if job.exit_code in (2, 3) else 3


_ADDRESS = "Dashboard of the cluster's head, http://HOST:PORT. Default: $RAY_API_SERVER_ADDRESS."


def address_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --address."""
    return click.option("--address", required=True, envvar="RAY_API_SERVER_ADDRESS", help=_ADDRESS)(command)


def fetching_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of commands that fetch a folder."""
    out = options.folder_out("The folder to fetch to")
    quiet = options.quiet("the path of the fetched folder or its page")
    return address_option(out(quiet(command)))


@click.group("jobs", invoke_without_command=True)
@click.option("--address", envvar="RAY_API_SERVER_ADDRESS", help=_ADDRESS)
@click.pass_context
def jobs(context: click.Context, address: str | None) -> None:
    """List raydr's jobs on a Ray cluster, or follow, stop or fetch one."""
    if context.invoked_subcommand is not None:
        if address is not None:
            context.default_map = {name: {"address": address} for name in jobs.commands}
    elif address is None:
        raise click.UsageError("Missing option '--address'.")
    else:
        list_jobs(address)


@jobs.command()
@click.argument("job")
@fetching_options
def follow(job: str, address: str, out: Path | None, quiet: bool) -> None:
    """Follow JOB to its end and fetch its folder."""
    follow_job(job, address, out=out, quiet=quiet)


@jobs.command()
@click.argument("job")
@address_option
def stop(job: str, address: str) -> None:
    """Stop JOB. Nothing is kept of it."""
    stop_job(job, address)


@jobs.command()
@click.argument("job")
@fetching_options
def fetch(job: str, address: str, out: Path | None, quiet: bool) -> None:
    """Fetch the folder of JOB, which has ended."""
    fetch_job(job, address, out=out, quiet=quiet)
