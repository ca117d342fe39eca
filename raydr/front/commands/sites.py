"""The commands ``raydr site``: what a data owner does at the site."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from raydr.front import options


@click.group()
def site() -> None:
    """Work at a site of a deployed run: see what would leave it."""


@site.command("dry-run")
@click.argument("settings", metavar="SITE", type=click.Path(path_type=Path))
@click.option(
    "--scenario",
    required=True,
    type=click.Path(path_type=Path),
    help="The scenario of the run, whose clients.deployed names the sites.",
)
@options.json_out("all messages")
def dry_run(settings: Path, scenario: Path, out: Path | None) -> None:
    """Say what would leave the site in a run, message by message. Send nothing.

    SITE is the site's own settings, such as site.yaml. The site's file is read; its policy decides. The exit status is
    3 if the policy does not allow the run.
    """
    from raydr.deployment.site_settings import read_site
    from raydr.front.console import console_on, logged_on_terminal
    from raydr.front.site_messages import print_dry_run
    from raydr.scenarios.planning.dry_run import dry_run as rehearsed
    from raydr.scenarios.schema.reading import read

    with logged_on_terminal():
        found = rehearsed(read_site(settings), read(scenario))
    if out is not None:
        options.write_json(out, found.to_json())
    print_dry_run(found, console_on(sys.stdout))
    if not found.allowed:
        click.get_current_context().exit(3)
