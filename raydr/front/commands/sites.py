"""Commands for deployed runs: ``raydr export``, ``raydr site`` at a site, and ``raydr verify`` afterwards."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    help="The scenario of the run, as `raydr export` wrote it.",
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


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("more", metavar="[LEDGER]...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--ledgers",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    help="The signed ledgers of all sites, from the folder `ledgers` of each site.",
)
@click.option(
    "--nodes",
    required=True,
    type=click.Path(path_type=Path),
    help="The public keys of the sites' nodes, by name, as the sites' owners know them.",
)
@options.edited
def verify(run: Path, more: tuple[Path, ...], ledgers: tuple[Path, ...], nodes: Path) -> None:
    """Compare the ledger of a deployed run with the ledgers that its sites have signed.

    RUN is the server's run folder. For each exchange of messages, the server's account must be the sum of the sites'.
    The exit status is 3 if an account differs, or a ledger is missing or not signed by its site.
    """
    from raydr.deployment.verification import verify as verified
    from raydr.front.console import console_on
    from raydr.front.site_messages import print_verification
    from raydr.privacy.node_keys import read_nodes

    found = verified(run, [*ledgers, *more], read_nodes(nodes))
    print_verification(found, console_on(sys.stdout))
    if not found.agrees:
        click.get_current_context().exit(3)


@click.command()
@click.argument("scenario")
@click.option(
    "--runtime",
    type=click.Choice(["flower"]),
    required=True,
    help="flower: a Flower app, which `flwr run` starts.",
)
@options.override()
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The folder to write.")
def export(scenario: str, runtime: str, overrides: Mapping[str, Any], out: Path) -> None:
    """Write an app that runs SCENARIO at the sites, each of which reads its own file.

    SCENARIO names the sites in `clients.deployed`, or their files in `clients.sites`, of which the app has the names
    alone. The folder `site` in the app is for the owners of the data.
    """
    from raydr.front.flower_export import deployed_scenario, export_flower

    app = export_flower(deployed_scenario(scenario, overrides), out)
    click.echo(app.folder)
