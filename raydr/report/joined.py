"""Sites that joined a run after it had ended: read from its folder, and shown on its map as it stood."""

from __future__ import annotations

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
from raydr.report.colouring import CATEGORIES, GREY, drawing_order
from raydr.report.inline import in_page
from raydr.report.mapfiles import read_embedding
from raydr.report.mapped import Fact
from raydr.report.runfolder import RunFolder, parsed, read_data, read_ledger
from raydr.report.views import in_plane

MARK = ".incomplete-"
"""Begins the name of a folder of a site that is still joining, or never came to the end."""
MOST_ROWS = 20_000
"""Rows of the run that are drawn, by chance, around those of a site."""
INCHES = 4.2


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
class Section:
    """What the page shows of a site: its name, a sentence, a picture's address, facts and messages."""

    site: str
    said: str
    picture: str
    facts: list[Fact]
    left: tuple[Entry, ...]


def sections(run: RunFolder) -> list[Section]:
    """One for each site that joined, its rows in colour on the map of the others."""
    some = drawing_order(len(run.federated))[:MOST_ROWS]
    before = in_plane(run, run.federated[some])
    return [
        Section(
            site.site,
            said(site),
            in_page(
                np.concatenate([before, in_plane_of(run, site.points)]),
                [GREY] * len(before) + [CATEGORIES[0]] * len(site.points),
                INCHES,
                in_disk=run.in_disk,
            ),
            mapped.facts(site.data),
            site.left,
        )
        for site in read_joined(run.path)
    ]


def in_plane_of(run: RunFolder, points: Float64Array) -> Float64Array:
    """Points of the run's map, turned as it is."""
    return in_plane(run, points)


def said(site: Joined) -> str:
    """When it joined, and that nobody else took part."""
    return (
        f"{wording.plural(len(site.points), 'row')}, placed on {wording.moment(site.how.started)} on the map as it"
        " stood: no other site was asked, and no other row moved."
    )
