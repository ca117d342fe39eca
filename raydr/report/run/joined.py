"""Texts on sites that joined a finished run: when, what was read, and what left them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raydr.methods.novelty import NOVEL
from raydr.privacy.ledger import Entry
from raydr.report import wording
from raydr.report.run import mapped
from raydr.report.run.mapped import Fact
from raydr.runfolder.joined import Joined


@dataclass(frozen=True)
class SiteSection:
    """The page's section on one site: its name, a sentence, facts and messages."""

    site: str
    description: str
    facts: list[Fact]
    left: tuple[Entry, ...]


def sections(joined: Sequence[Joined]) -> list[SiteSection]:
    """Return a section for each site that joined."""
    return [SiteSection(site.site, description(site), mapped.facts(site.data), left(site)) for site in joined]


def left(site: Joined) -> tuple[Entry, ...]:
    """Return the messages that left the site, most revealing first."""
    return tuple(sorted(site.left, key=wording.by_revelation))


def description(site: Joined) -> str:
    """Describe when the site joined, and that no other site took part."""
    novel = ""
    if site.novelty is not None:
        found = int((site.novelty <= NOVEL).sum())
        novel = (
            f" {found} of them {'is' if found == 1 else 'are'} unlike the mapped rows (novelty at most {NOVEL:g}; about"
            f" {round(NOVEL * len(site.points))} would be by chance)."
        )
    return (
        f"{wording.plural(len(site.points), 'row')}, placed on the existing map on {wording.moment(site.how.started)}."
        f" No other site took part, and no other row moved.{novel}"
    )
