"""Metrics of each site's own rows as the page and the terminal show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from typing import Literal

from raydr.methods.novelty import NOVEL
from raydr.report import wording
from raydr.runfolder.reading import RunFolder
from raydr.runfolder.records import SiteMeasures

MOST_SITES = 10
"""Sites in the table of the page."""
CLEARLY_WORSE = 0.8
"""A site is called worse if its value is at most this share of the other sites' value, beyond chance."""
CHANCE = 0.01
"""Probability of the warning if all sites are mapped equally well."""
_NO_VARIANCE = 1e-30
_MAPS: tuple[Literal["federated", "central"], ...] = ("federated", "central")


@dataclass(frozen=True)
class SiteLine:
    """A site's number of rows and its metrics on both maps, as text."""

    site: str
    rows: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class SiteTable:
    """The worst sites, the headings of their metrics, and a note on sites that are not shown, or ""."""

    headings: tuple[str, ...]
    lines: tuple[SiteLine, ...]
    more: str


@dataclass(frozen=True)
class WorstSite:
    """The worst site's metrics: ``names``, and by map their values as text; "" if there are none."""

    site: str
    rows: int
    names: tuple[str, ...]
    federated: tuple[str, ...]
    central: tuple[str, ...]

    @property
    def note(self) -> str:
        """The metric of the first value, its rows, and the other metrics with their values."""
        title, *titles = map(wording.short_title, self.names)
        others = "".join(
            f"; {other.lower()} {value}" for other, value in zip(titles, self.federated[1:], strict=True)
        )
        return f"{title} of the {wording.plural(self.rows, 'row')} of this site{others}"


def worst(run: RunFolder) -> WorstSite | None:
    """Return the worst site; None if fewer than two sites have values."""
    sites, names = _scored(run)
    if len(sites) < 2:
        return None
    site = sites[0]
    federated, central = (tuple(_text(site, which, name) for name in names) for which in _MAPS)
    return WorstSite(wording.brief(site.site), site.rows, names, federated, central)


def site_table(run: RunFolder) -> SiteTable | None:
    """Return the table of the worst sites; None if fewer than two sites have values."""
    sites, names = _scored(run)
    if len(sites) < 2:
        return None
    maps = _MAPS if any(site.central for site in sites) else _MAPS[:1]
    columns = [(which, name) for name in names for which in maps]
    headings = [wording.short_title(name) + ", pooled data" * (which == "central") for which, name in columns]
    left, placed = len(sites) - MOST_SITES, any(site.held_out for site in sites)
    lines = []
    for site in sites[:MOST_SITES]:
        cells = [_text(site, which, name) or "–" for which, name in columns]
        cells += [f"{site.unlike:,} of {site.held_out:,}"] * placed
        lines.append(SiteLine(wording.brief(site.site), wording.count(site.rows), tuple(cells)))
    return SiteTable(
        headings=(*headings, *["Held-out rows that are unlike the others"] * placed),
        lines=tuple(lines),
        more=f"{wording.plural(left, 'more site')} {'is' if left == 1 else 'are'} in metrics.json."
        if left > 0
        else "",
    )


def warning(run: RunFolder) -> str:
    """Name the worst site if it is mapped clearly worse than the others, and count further ones; else ""."""
    sites, names = _scored(run)
    worse = [site for site in sites if len(sites) > 1 and _clearly_worse(site, sites, names[0])]
    if not worse:
        return ""
    site, name = worse[0], names[0]
    text = (
        f"Site {wording.brief(site.site)} is mapped worse than the others: {wording.short_title(name)}"
        f" {site.federated[name].mean:.2f}"
    )
    whole = run.measures.federated.get(name)
    text += "." if whole is None else f", all rows {whole:.2f}."
    if name in site.central:
        text += f" On the pooled-data map it has {site.central[name].mean:.2f}."
    if len(worse) > 1:
        more = f"{wording.plural(len(worse) - 1, 'more site')} {'is' if len(worse) == 2 else 'are'}"
        text += f" {more} mapped worse too."
    return text


def unlike(run: RunFolder) -> str:
    """Name the site with more unlike held-out rows than chance gives, and count further ones; else ""."""
    from scipy.special import bdtrc

    sites = [site for site in run.measures.sites if site.held_out]
    chance = {site.site: float(bdtrc(site.unlike - 1, site.held_out, NOVEL)) for site in sites if site.unlike}
    found = [site for site in sites if chance.get(site.site, 1.0) < CHANCE / len(sites)]
    if not found:
        return ""
    site = max(found, key=lambda site: site.unlike / site.held_out)
    text = (
        f"Site {wording.brief(site.site)} has rows that are unlike those of the map: {site.unlike:,} of"
        f" {wording.plural(site.held_out, 'held-out row')}, and chance gives {NOVEL * site.held_out:.1f}."
    )
    if len(found) > 1:
        more = wording.plural(len(found) - 1, "more site")
        text += f" So {'has' if len(found) == 2 else 'have'} {more}."
    return text


def _scored(run: RunFolder) -> tuple[Sequence[SiteMeasures], tuple[str, ...]]:
    """Return the sites with a value of the first metric, the worst first, and the names of the metrics."""
    names = tuple(run.measures.sites[0].federated) if run.measures.sites else ()
    return [site for site in run.measures.sites if names and names[0] in site.federated], names


def _clearly_worse(site: SiteMeasures, sites: Sequence[SiteMeasures], name: str) -> bool:
    """Return whether the mean of a site's rows is clearly below that of the other sites' rows.

    Welch's t-test takes the rows of each side as a sample, so a site of few rows needs a larger difference. Its
    level is divided by the number of sites (Bonferroni).
    """
    own, measured = site.federated[name], site.measured
    others = [(other.measured, other.federated[name]) for other in sites if other is not site]
    rows = sum(count for count, _ in others)
    mean = fsum(count * found.mean for count, found in others) / rows
    if own.mean > CLEARLY_WORSE * mean or own.mean == mean:
        return False
    squares = fsum(
        (count - 1) * found.deviation**2 + count * (found.mean - mean) ** 2 for count, found in others
    )
    variance, rest = own.deviation**2 / measured, squares / (rows - 1) / rows
    if variance + rest < _NO_VARIANCE:
        return True
    from scipy.special import stdtr

    freedom = (variance + rest) ** 2 / (variance**2 / (measured - 1) + rest**2 / (rows - 1))
    return bool(stdtr(freedom, (own.mean - mean) / sqrt(variance + rest)) < CHANCE / len(sites))


def _text(site: SiteMeasures, which: Literal["federated", "central"], name: str) -> str:
    means = site.federated if which == "federated" else site.central
    return wording.estimated(means[name].mean, site.error(which, name)) if name in means else ""
