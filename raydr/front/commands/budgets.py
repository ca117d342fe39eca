"""The command ``raydr budget``: what sites released in all runs together."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from raydr.front import options


@click.command()
@click.argument("policies", metavar="POLICY...", nargs=-1, required=True)
@options.json_out("all releases")
def budget(policies: tuple[str, ...], out: Path | None) -> None:
    """Show what a site released in all runs together, and what is left of its budget.

    POLICY is the site's policy file, whose key `releases` names the record. Each row of the record is checked against
    the site's signature. Several policies are several sites.
    """
    from raydr.front.console import console_on, one_line, table_of
    from raydr.front.site_budgets import spending_of, together

    console = console_on(sys.stdout)
    sites = [spending for source in policies for spending in spending_of(source)]
    if out is not None:
        options.write_json(out, [site.to_json() for site in sites])
    for site in sites:
        if site.releases:
            table = table_of("run", "asked by", "first release", "releases", "epsilon", "so far")
            for run in site.runs():
                epsilons = (
                    f"{value:.4g}" if value < float("inf") else "none" for value in (run.epsilon, run.so_far)
                )
                cells = (run.run, run.asked_by, run.charged_at, f"{run.count:,}", *epsilons)
                table.add_row(*map(one_line, cells))
            console.print(table)
        console.print(one_line(site.words))
    if not sites:
        console.print("No site has a record yet.")
    total = together(sites)
    if total is not None:
        console.print(one_line(total))
