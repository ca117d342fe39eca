"""Messages that would leave a site, and the accounts of those that left, for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raydr.front.console import one_line, table_of
from raydr.plain import listed
from raydr.report.wording import size

if TYPE_CHECKING:
    from rich.console import Console

    from raydr.deployment.verification import Verification
    from raydr.scenarios.planning.dry_run import DryRun, SiteMessages

_NAMED = 12
"""Maximum number of columns that the heading names."""


def print_dry_run(found: DryRun, console: Console) -> None:
    """Print what would leave the site: a table, one sentence for each message, and the answer."""
    console.print(
        one_line(
            f"site {found.site}, policy {found.policy}: {found.scenario}, {found.method}, {found.sites} sites,"
            f" {found.rows:,} rows of this one"
        )
    )
    if found.columns:
        console.print(one_line(f"columns: {listed(list(found.columns), _NAMED)}"))
    table = table_of("message", "about", "messages", "bytes", "noise", "epsilon", "may leave")
    for message in found.messages:
        cells = (
            message.kind,
            message.granularity,
            f"{message.count:,}",
            size(message.bytes),
            message.noise or "none",
            _epsilon(message),
            message.decision,
        )
        table.add_row(*map(one_line, cells))
    console.print(table)
    for message in found.messages:
        why = f" Refused by {message.why}." if message.why else ""
        console.print(one_line(f"{message.kind}: {message.what}. Read by: {message.readers}.{why}"))
    for note in found.notes:
        console.print(one_line(note))
    console.print(one_line(_answer(found)))


def print_verification(found: Verification, console: Console) -> None:
    """Print the comparison of a server's ledger with the sites': a table, each difference, and the answer."""
    for problem in found.problems:
        console.print(one_line(problem))
    if found.problems:
        console.print("Nothing is compared.")
        return
    table = table_of("exchange", "direction", "messages", "bytes", "epsilon", "accounts")
    for each in found.exchanges:
        server, epsilon = each.server, each.server.epsilon
        cells = (
            each.kind,
            "from sites" if each.direction == "up" else "to sites",
            f"{server.count:,}",
            size(server.bytes),
            "none" if epsilon is None else f"{epsilon:.4g}",
            "differ" if each.differences else "agree",
        )
        table.add_row(*map(one_line, cells))
    console.print(table)
    differing = [each for each in found.exchanges if each.differences]
    for each in differing:
        console.print(one_line(f"{each.kind}, {each.direction}: {'; '.join(each.differences)}."))
    count = f"{len(found.exchanges)} exchanges"
    console.print(
        one_line(
            f"The accounts differ in {len(differing)} of {count}."
            if differing
            else f"The accounts of the server and of all sites agree in all {count}."
        )
    )


def _epsilon(message: SiteMessages) -> str:
    return "infinite" if message.epsilon is None else f"{message.epsilon:.4g}"


def _answer(found: DryRun) -> str:
    if not found.allowed:
        return "The policy does not allow this run: the site would send nothing that is refused, and the run would end."
    cost = "without an epsilon" if found.epsilon is None else f"at epsilon {found.epsilon:.4g}"
    return f"The policy allows this run, {cost}. Nothing has left the site."
