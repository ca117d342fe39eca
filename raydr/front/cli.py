"""The ``raydr`` command: its parts, and which room answers each.

The path of what was written is the only line on standard output; :mod:`raydr.front.process` has the exit status.
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
from raydr.front.commands import folders, lists, runs, sweeps
from raydr.front.jobs import jobs
from raydr.front.streams import Results


class _InOrder(click.Group):
    """A group whose help lists commands in the order in which they are added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def _version(context: click.Context, option: click.Parameter, asked: bool) -> None:
    if asked:
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
    help="Show the versions of raydr and of what it stands on, and exit.",
)
def app() -> None:
    """Federated dimensionality reduction, simulated on Ray: one map of everybody's data, and its price in privacy."""
    try:
        os.getcwd()
    except OSError as error:
        raise OutputError(
            f"the current directory does not exist any more ({error.strerror}), and paths start from it: change to one"
            " that does, such as with `cd ~`."
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
    folders.transform,
    folders.join,
    folders.bounds,
    lists.list_,
):
    app.add_command(_command)


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
