"""Sites that joined a run after it had ended: read from its folder, and shown on its map as it stood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from raydr import records
from raydr.arrays import Float64Array, Int64Array
from raydr.data.provenance import Provenance, sha256_of_file
from raydr.errors import OutputError
from raydr.privacy.ledger import Entry
from raydr.privacy.statement import Statement
from raydr.records import Joining
from raydr.report import mapped, wording
from raydr.report.colouring import Colouring, colourings, extended
from raydr.report.mapfiles import read_embedding
from raydr.report.mapped import Fact
from raydr.report.runfolder import RunFolder, parsed, read_data, read_ledger

MARK = ".incomplete-"
"""Begins the name of a folder of a site that is still joining, or never came to the end."""


@dataclass(frozen=True)
class Joined:
    """A site that joined, as far as its folder tells.

    Attributes
    ----------
    path : Path
        Its folder.
    site : str
        Its name.
    rows : Int64Array or tuple of str, (rows,)
        Identities of its rows.
    labels, clusters : tuple of str, (rows,)
        None where there are none.
    points : Float64Array, (rows, 2) or (rows, 3)
        Where they lie on the run's map.
    ledger : tuple of Entry
        Every message between the site and the server.
    privacy : Statement
        What they cost.
    data : Provenance
        What was read.
    how : Joining
        Since when.
    """

    path: Path
    site: str
    rows: Int64Array | tuple[str, ...]
    labels: tuple[str, ...] | None
    clusters: tuple[str, ...] | None
    points: Float64Array
    ledger: tuple[Entry, ...]
    privacy: Statement
    data: Provenance
    how: Joining

    @property
    def left(self) -> tuple[Entry, ...]:
        """What left the site, the most revealing first."""
        return tuple(
            sorted((entry for entry in self.ledger if entry.direction == "up"), key=wording.by_revelation)
        )


def read_joined(folder: Path) -> tuple[Joined, ...]:
    """Sites that joined a run, in their order; none where none has.

    Raises
    ------
    OutputError
        If one is not whole, or joined another map than the one that stands in the folder.
    """
    home = Path(folder) / records.JOINED
    if not home.is_dir():
        return ()
    numbers = sorted(int(entry.name) for entry in home.iterdir() if entry.name.isdecimal())
    present = sha256_of_file(Path(folder) / records.EMBEDDING)
    return tuple(_read(home / str(number), present) for number in numbers)


def _read(folder: Path, present: str) -> Joined:
    how = parsed(folder, records.JOINING, Joining)
    if how.map != present:
        raise OutputError(
            f"{folder} is of a site that joined another map than the one in {folder.parent.parent}: bring that"
            f" {records.EMBEDDING} back, or delete {folder} and have the site join again."
        )
    rows, clients, labels, clusters, points, _ = read_embedding(folder)
    if set(clients) != {how.site} or len(rows) != how.rows:
        raise OutputError(
            f"{folder} is not whole: its {records.EMBEDDING} has not the rows of {how.site!r} alone."
        )
    return Joined(
        path=folder,
        site=how.site,
        rows=rows,
        labels=labels,
        clusters=clusters,
        points=points,
        ledger=read_ledger(folder),
        privacy=parsed(folder, records.PRIVACY, Statement),
        data=read_data(folder, len(rows)),
        how=how,
    )


@dataclass(frozen=True)
class Later:
    """Rows of sites that joined, as the maps of their run show them.

    Attributes
    ----------
    rows : Int64Array or sequence of str, (rows + later,)
        Names of the run's rows, and of these.
    points : Float64Array, (later, 2) or (later, 3)
        Where they lie on the run's map.
    ways : tuple of Colouring
        How the run and they are coloured: the run's own colours stay.
    """

    rows: Int64Array | Sequence[str]
    points: Float64Array
    ways: tuple[Colouring, ...]


def later_rows(run: RunFolder, joined: Sequence[Joined]) -> Later:
    """Rows of the sites that joined a run; none where none has."""
    if not joined:
        return Later(run.rows, np.empty((0, run.dimensions)), colourings(run))
    ways = []
    for way in colourings(run):
        called: list[str] = []
        for site in joined:
            own = {"label": site.labels, "cluster": site.clusters, "client": None}[way.by]
            lacking = site.site if way.by == "client" else f"no {way.by}"
            called += own or [lacking] * len(site.points)
        ways.append(extended(way, called))
    return Later(_named(run, joined), np.concatenate([site.points for site in joined]), tuple(ways))


def _named(run: RunFolder, joined: Sequence[Joined]) -> Int64Array | list[str]:
    """Names of all rows; of a site's, where one stands for a row already, with the site's before it."""
    every = [run.rows, *(site.rows for site in joined)]
    numbers = [rows for rows in every if isinstance(rows, np.ndarray)]
    if len(numbers) == len(every) and len(set(np.concatenate(numbers).tolist())) == sum(map(len, every)):
        return np.concatenate(numbers)
    names = [str(row) for row in run.rows]
    taken = set(names)
    for site in joined:
        own = [str(row) for row in site.rows]
        names += own if taken.isdisjoint(own) else [f"{site.site}: {row}" for row in own]
        taken.update(own)
    return names


@dataclass(frozen=True)
class Section:
    """What the page shows of a site: its name, a sentence, facts and messages."""

    site: str
    said: str
    facts: list[Fact]
    left: tuple[Entry, ...]


def sections(joined: Sequence[Joined]) -> list[Section]:
    """One for each site that joined."""
    return [Section(site.site, said(site), mapped.facts(site.data), site.left) for site in joined]


def said(site: Joined) -> str:
    """When it joined, and that nobody else took part."""
    return (
        f"{wording.plural(len(site.points), 'row')}, placed on {wording.moment(site.how.started)} on the map as it"
        " stood: no other site was asked, and no other row moved."
    )
