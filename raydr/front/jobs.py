"""``raydr submit`` and ``raydr jobs``: the same runs on a cluster elsewhere, followed from here and brought back."""

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
from raydr.front.streams import noting

if TYPE_CHECKING:
    from raydr.actors.job_log import Failed
    from raydr.actors.jobs import Head, Job
    from raydr.journal import Listener

logger = logging.getLogger(__name__)

_KILLED = 128


class JobError(RunError):
    """A job that ended without a whole run, with the exit status that the run would have had here."""

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
    """Check a scenario or a sweep here, have the cluster run it, and bring its folder back."""
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
    """Follow a job from its beginning to its end, and bring its folder back."""
    from raydr.runfolder.making import require_free

    if out is not None:
        require_free(out)
    head = _head(address)
    head.job(job)
    _followed(head, job, quiet)
    _brought_back(head, head.job(job), out, quiet)


def fetch_job(job: str, address: str, *, out: Path | None, quiet: bool) -> None:
    """Bring back the folder of a job that is over."""
    head = _head(address)
    there = head.job(job)
    if not there.over:
        raise OutputError(
            f"The job {job} is not over ({there.state.lower()}): `raydr jobs follow {job} --address {head.url}` waits"
            " for it and brings its folder back."
        )
    if there.state != "SUCCEEDED":
        raise OutputError(f"The job {job} left nothing to fetch: {_why(there, '')}")
    _brought_back(head, there, out, quiet)


def stop_job(job: str, address: str) -> None:
    """Stop a job; nothing of it is kept."""
    head = _head(address)
    there = head.job(job)
    if there.over:
        raise OutputError(f"The job {job} is over already ({there.state.lower()}).")
    there = head.stop(job)
    if not there.over:
        raise RunError(f"The job {job} was told to stop and has not ended yet: look again with `raydr jobs`.")
    click.echo(job)


def list_jobs(address: str) -> None:
    """Print raydr's jobs on a cluster, the latest first."""
    from raydr.front.terminal import print_jobs

    print_jobs(_head(address).jobs())


def _followed(head: Head, job: str, quiet: bool) -> None:
    """Hear a job until it is whole.

    Raises
    ------
    JobError
        If it ends otherwise.
    KeyboardInterrupt
        With a note on what became of the job.
    """
    from raydr.front.progress_bars import heard_on_terminal

    try:
        with heard_on_terminal(quiet=quiet) as listener:
            _hear_out(head, job, listener)
    except KeyboardInterrupt as error:
        _interrupted(head, job, error)  # with the bars gone, which have the terminal until then
        raise


def _hear_out(head: Head, job: str, listener: Listener) -> None:
    from raydr.actors.job_log import Failed, Kept, told_in

    failed: list[Failed] = []
    last = ""

    def hear(line: str) -> None:
        nonlocal last
        match told_in(line):
            case None:
                last = line.strip() or last
                logger.info("%s", line.replace("\t", " "))
            case Failed() as told:
                failed.append(told)
            case Kept():
                pass
            case told:
                listener(told)

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
            f"The job is whole: `raydr jobs fetch {job.id} --address {head.url} --out DIR` fetches it."
        )
        raise
    target = target.expanduser().absolute()
    printed, page = (print_sweep, SWEEP_REPORT) if job.kind == "sweep" else (print_result, REPORT)
    report = target / page
    if not quiet:
        printed(target)
    with noting(f"What the job left is whole in {target}."):
        click.echo(report if report.exists() else target)


def _interrupted(head: Head, job: str, error: KeyboardInterrupt) -> None:
    """Ask what shall become of a job that is followed no more, where there is anybody to ask, and note what does."""
    asked = not error.args or error.args[0] == signal.SIGINT
    if asked and _yes(f"\nStop the job {job}? It goes on otherwise. [y/N] "):
        head.stop(job)
        error.add_note(f"The job {job} is stopped, and nothing of it is kept.")
    else:
        error.add_note(
            f"The job goes on: `raydr jobs follow {job} --address {head.url}` follows it and brings it back."
        )


def _yes(question: str) -> bool:
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()):
        return False
    # A second Ctrl-C is an answer too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        print(question, end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except (KeyboardInterrupt, OSError):
        return False
    finally:
        signal.signal(signal.SIGINT, before)


def _why(job: Job, last: str) -> str:
    """What became of a job that did not say so itself."""
    if job.state == "STOPPED":
        return f"The job {job.id} was stopped, by `raydr jobs stop` or from the dashboard; nothing of it is kept."
    code = job.exit_code
    if code is None:
        return (
            f"The cluster could not start the job {job.id}, or lost it ({' '.join(job.message.split())[:500]}). Look"
            " for lack of memory or disk on the head, and into its logs; then send it again."
        )
    if code < 0 or code > _KILLED:
        number = -code if code < 0 else code - _KILLED
        return (
            f"The job {job.id} was killed on the cluster (signal {number}): for lack of memory there, or by somebody."
            " Send it again, with runtime.actors set to fewer or on a larger head."
        )
    said = last.removeprefix("raydr: ") or "it said nothing: is the disk of the head full?"
    return f"The job {job.id} ended with exit status {code} on the cluster: {said}"


def _status(job: Job) -> int:
    """Exit status for a job that did not say so itself: its own where it is one of raydr's."""
    return job.exit_code if job.exit_code in (2, 3) else 3


_ADDRESS = "http://HOST:PORT of the dashboard of the cluster's head. Default: $RAY_API_SERVER_ADDRESS."


def address_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --address."""
    return click.option("--address", required=True, envvar="RAY_API_SERVER_ADDRESS", help=_ADDRESS)(command)


def fetching_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command what all that bring a folder back have."""
    out = options.folder_out("The folder to fetch to")
    quiet = options.quiet("the path of what was fetched")
    return address_option(out(quiet(command)))


@click.group("jobs", invoke_without_command=True)
@click.option("--address", envvar="RAY_API_SERVER_ADDRESS", help=_ADDRESS)
@click.pass_context
def jobs(context: click.Context, address: str | None) -> None:
    """List raydr's jobs on a cluster, or follow, stop or fetch one."""
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
    """Follow JOB to its end, and bring its folder back."""
    follow_job(job, address, out=out, quiet=quiet)


@jobs.command()
@click.argument("job")
@address_option
def stop(job: str, address: str) -> None:
    """Stop JOB; nothing of it is kept."""
    stop_job(job, address)


@jobs.command()
@click.argument("job")
@fetching_options
def fetch(job: str, address: str, out: Path | None, quiet: bool) -> None:
    """Bring back the folder of JOB, which is over."""
    fetch_job(job, address, out=out, quiet=quiet)
