"""Messages that would leave a site, for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raydr.front.console import one_line, table_of
from raydr.plain import listed
from raydr.report.wording import size

if TYPE_CHECKING:
    from rich.console import Console

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


def _epsilon(message: SiteMessages) -> str:
    return "infinite" if message.epsilon is None else f"{message.epsilon:.4g}"


def _answer(found: DryRun) -> str:
    if not found.allowed:
        return "The policy does not allow this run: the site would send nothing that is refused, and the run would end."
    cost = "without an epsilon" if found.epsilon is None else f"at epsilon {found.epsilon:.4g}"
    return f"The policy allows this run, {cost}. Nothing has left the site."
