"""The ``raydr`` command and its subcommands.

Standard output has only the path of the result, or the result itself. :mod:`raydr.front.process` has the exit status.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import NoReturn

import click

from raydr.errors import OutputError
from raydr.front import process
from raydr.front.commands import budgets, folders, lists, runs, sites, sweeps
from raydr.front.jobs import jobs
from raydr.front.streams import StrictStream


class _InOrder(click.Group):
    """A click group whose help lists commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def _version(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value:
        from raydr.scenarios.running.environment import described

        click.echo(described())
        context.exit()


@click.group(cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the versions of raydr, Python and main packages, and exit.",
)
def app() -> None:
    """Simulate federated dimensionality reduction on Ray: one map of all sites' data, and its privacy cost.

    Start with `raydr run digits-fed-tsne`, or with `raydr map FILE` for your own table.
    """
    try:
        os.getcwd()
    except OSError as error:
        raise OutputError(
            f"the current folder no longer exists ({error.strerror}), and paths are relative to it: change to another"
            " one, for example with `cd ~`."
        ) from error


for _command in (
    runs.run,
    runs.map_,
    runs.check,
    runs.init,
    sweeps.sweep,
    sweeps.reproduce,
    runs.plan,
    runs.submit,
    jobs,
    folders.report,
    folders.compare,
    folders.audit,
    folders.stability,
    folders.transform,
    folders.join,
    folders.leave,
    folders.bounds,
    budgets.budget,
    sites.export,
    sites.site,
    sites.verify,
    lists.list_,
):
    app.add_command(_command)


def main() -> NoReturn:
    """Run the command line and end the process with its exit status; called by :mod:`raydr.__main__`."""
    process.main(lambda: status(sys.argv[1:]))


def status(arguments: Sequence[str]) -> int:
    """Run the arguments, print an error as one paragraph on standard error, and return the exit status."""

    def command() -> None:
        # click's own main converts some errors, differently in each version.
        with redirect_stdout(StrictStream(sys.stdout)), app.make_context("raydr", list(arguments)) as context:
            app.invoke(context)
            sys.stdout.flush()

    return process.status(command)
