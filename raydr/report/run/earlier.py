"""Texts on the run that a run repeats with one site more or less, and on what remains of a site that left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raydr.plain import listed, short_number
from raydr.report import wording
from raydr.report.run.mapped import Fact
from raydr.runfolder.earlier import EarlierRun, HeldMessage

_MOST = 12


@dataclass(frozen=True)
class EarlierSection:
    """The page's section on the earlier run: a title, a description and facts."""

    title: str
    description: str
    facts: list[Fact]


def section(earlier: EarlierRun) -> EarlierSection:
    """Return the page's section."""
    title = f"What remains of {earlier.site}" if earlier.change == "left" else "Compared with the earlier map"
    return EarlierSection(title, description(earlier), facts(earlier))


def description(earlier: EarlierRun) -> str:
    """Describe which run this one repeats, and what is different."""
    rows = wording.plural(earlier.rows, "row")
    if earlier.change == "left":
        return (
            f"This run repeats {earlier.folder} without {earlier.site} and its {rows}. Its map, model and messages"
            " were computed without the rows of that site. The earlier folder is unchanged."
        )
    return f"This run repeats {earlier.folder} with the new site {earlier.site} and its {rows}."


def facts(earlier: EarlierRun) -> list[Fact]:
    """Return how far rows moved, what remains of a site that left, and what all runs cost together."""
    found = [Fact("Places of the other rows", _moved(earlier))]
    if earlier.change == "left":
        found += _remains(earlier)
    found.append(Fact("Privacy of the other sites", earlier.together.words))
    return found


def _moved(earlier: EarlierRun) -> str:
    moved = earlier.displacement
    if moved is None:
        return "too few rows to compare the maps"
    return (
        f"moved by {moved.median:.2f} of the earlier map's radius in the median, and 95 % of the"
        f" {wording.plural(moved.rows, 'row')} by at most {moved.upper:.2f}, after the best similarity. Of the"
        f" {moved.neighbors} nearest rows of each, {moved.shared:.0%} are the same (two unrelated maps:"
        f" {moved.expected:.1%})."
    )


def _remains(earlier: EarlierRun) -> list[Fact]:
    site, rows = earlier.site, wording.plural(earlier.rows, "row")
    by_record, alone, sums = (earlier.held(holding) for holding in ("record", "site", "sum"))
    found = [
        Fact(
            "Messages on each record",
            f"the server received these about each of its {rows} and can delete them: {_named(by_record)}."
            if by_record
            else f"no message was about single records of {site}.",
        )
    ]
    if alone:
        found.append(
            Fact(
                "Sums of the site alone",
                f"the server received these and can delete them: {_named(alone)}. Totals with the other sites, and"
                f" what was computed from them, keep the part of {site}.",
            )
        )
    if sums:
        found.append(Fact("Sums of all sites", f"{site} cannot be taken out of these again: {_named(sums)}."))
    if any(message.epsilon is None for message in (*alone, *sums)):
        found.append(
            Fact(
                "Difference of the two runs",
                "a server that keeps the sums of both runs can subtract them. Sums of rows alone, such as those for"
                f" scaling, then give the sums of {site}.",
            )
        )
    found.append(Fact("Earlier model", _model(earlier)))
    files = [f"{file} ({what})" for file, what in earlier.files.items()]
    found.append(Fact("Files of the earlier folder", f"delete {earlier.folder}: {listed(files, _MOST)}."))
    found.append(Fact(f"Privacy of {site}", _spent(earlier)))
    return found


def _model(earlier: EarlierRun) -> str:
    model = earlier.model
    if model is None or not (model.changed or model.unchanged):
        return "the run kept none."
    if not model.changed:
        return "it is the same without the site: nothing in it depends on the site's rows."
    depends = (
        f"{len(model.changed)} of its {len(model.changed) + len(model.unchanged)} arrays are different without the"
        f" site: {listed(model.changed, _MOST)}. They hold no row, and no part of them belongs to one site alone. Use"
        " the model of this run."
    )
    if not model.references:
        return depends
    return (
        f"{depends} {model.of_site:,} of its {model.references:,} references are means of groups with rows of"
        f" {earlier.site}."
    )


def _spent(earlier: EarlierRun) -> str:
    spent = earlier.costs[-2]
    at = f"at delta {short_number(spent.delta)} per {spent.unit}"
    if spent.epsilon is not None and spent.unit is not None:
        return f"the earlier run cost epsilon {spent.epsilon:.4g} {at}. Leaving gives none of it back."
    if spent.epsilon is not None:
        return "the earlier run cost nothing."
    some = f" Its releases under noise cost epsilon {spent.accounted:.4g} {at}." if spent.unit else ""
    return f"the earlier run has no epsilon: nothing bounds what its messages say about {earlier.site}.{some}"


def _named(messages: Sequence[HeldMessage]) -> str:
    return "; ".join(
        f"{message.what}"
        + ("" if message.epsilon is None else f" (with noise, epsilon {message.epsilon:.4g})")
        for message in messages
    )
