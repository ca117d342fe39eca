"""Names of sites that are spelt in several ways, such as north and North."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from raydr.data.survey.columns import Columns, Key, letters


def spelling_of(name: str) -> str:
    """Return what all spellings of a name have in common: Unicode NFKC, lower case, single spaces.

    >>> spelling_of("  North\u00a0 EAST ") == spelling_of("north east")
    True
    """
    folded = unicodedata.normalize("NFKC", name).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())


def as_named(name: str, sites: Collection[str]) -> str:
    """Return the one of the ``sites`` that has the spelling of a name, or the name itself if none or several have.

    >>> as_named("North ", ["north", "south"]), as_named("east", ["north", "south"])
    ('north', 'east')
    """
    alike = {name} if name in sites else {site for site in sites if spelling_of(site) == spelling_of(name)}
    return alike.pop() if len(alike) == 1 else name


def join_spellings(key: Key) -> Key:
    """Return a column of sites with one name for all spellings of a site, for any order of rows.

    The name is the spelling of most rows. If several have as many, it is the first of these in sorted order.
    """
    spellings: dict[str, list[int]] = defaultdict(list)
    for code, name in enumerate(key.names):
        spellings[spelling_of(name)].append(code)
    if len(spellings) == len(key.names):
        return key
    rows = np.bincount(key.codes[key.codes >= 0], minlength=len(key.names))
    kept = {
        code: max(alike, key=lambda each: (rows[each], -each))
        for alike in spellings.values()
        for code in alike
    }
    names, places = np.unique([key.names[kept[code]] for code in range(len(key.names))], return_inverse=True)
    return Key(key.column, np.where(key.codes < 0, -1, places[key.codes]), tuple(names.tolist()))


def with_joined_sites(columns: Columns) -> Columns:
    """Return the columns with :func:`join_spellings` of the sites, and a sentence that says which are joined."""
    before = columns.client
    if before is None or (joined := join_spellings(before)) is before:
        return columns
    name_of = {spelling_of(name): name for name in joined.names}
    others = [
        f"{name!r} is {name_of[spelling_of(name)]!r}" for name in before.names if name not in joined.names
    ]
    doubt = (
        f"Sites in several spellings are joined (clients.join_spellings): {'; '.join(others)}. If they are different"
        " sites, set it to false."
    )
    return replace(columns, client=joined, doubts=(*columns.doubts, doubt))


def of_sites(names: Sequence[str]) -> tuple[str, ...]:
    """Return a warning if names of sites differ only in case, blanks or punctuation.

    >>> len(of_sites(["North", "south", "north "])), len(of_sites(["north", "south"]))
    (1, 0)
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[letters(unicodedata.normalize("NFKC", name))].append(name)
    alike = [each for spelt, each in groups.items() if spelt and len(each) > 1]
    if not alike:
        return ()
    listed = "; ".join(" and ".join(map(repr, each)) for each in alike)
    joinable = any(len(set(map(spelling_of, each))) < len(each) for each in alike)
    remedy = (
        "set clients.join_spellings: true, which joins names that differ only in case and blanks, or "
        if joinable
        else ""
    )
    return (
        f"Sites that differ only in case, blanks or punctuation: {listed}. Each is a site of its own. If they are one,"
        f" {remedy}write the name in one way.",
    )


def of_site_files(names: Sequence[str]) -> tuple[str, ...]:
    """Return :func:`of_sites` for sites that have a file each."""
    return tuple(
        warning.partition(" If they are one,")[0] + " If they are one, write their rows in one file."
        for warning in of_sites(names)
    )
