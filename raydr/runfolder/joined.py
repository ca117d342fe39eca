"""Sites that joined a finished run, read from its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from raydr.arrays import Float64Array, Int64Array
from raydr.data.provenance import Provenance, sha256_of_file
from raydr.errors import OutputError
from raydr.privacy.ledger import Entry
from raydr.privacy.statement import Statement
from raydr.runfolder import records
from raydr.runfolder.manifest import require_unchanged
from raydr.runfolder.maps import read_embedding, read_novelty
from raydr.runfolder.reading import parsed, read_data, read_ledger
from raydr.runfolder.records import Joining

MARK = ".incomplete-"
"""Prefix of the folder of a site that is still joining or whose join was interrupted."""


@dataclass(kw_only=True, frozen=True)
class Joined:
    """A site that joined a run.

    Attributes
    ----------
    path : Path
        Its folder.
    site : str
        Its name.
    rows : Int64Array or tuple of str, (rows,)
        Names of its rows.
    labels, clusters : tuple of str, (rows,)
        None if there are none.
    points : Float64Array, (rows, 2) or (rows, 3)
        Positions of the rows on the run's map.
    novelty : Float64Array, (rows,)
        p-value of each row for being like the mapped rows; None if the run's method cannot tell.
    ledger : tuple of Entry
        Every message between the site and the server.
    privacy : Statement
        Privacy cost of the messages.
    data : Provenance
        The data that were read.
    how : Joining
        The map, raydr version and time of the join.
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
    novelty: Float64Array | None = None

    @property
    def left(self) -> tuple[Entry, ...]:
        """Messages that left the site."""
        return tuple(entry for entry in self.ledger if entry.direction == "up")


def read_joined(folder: Path) -> tuple[Joined, ...]:
    """Return the sites that joined a run, in order.

    Raises
    ------
    OutputError
        If a site's folder is incomplete, or it joined another map than the one in the run folder.
    """
    home = Path(folder) / records.JOINED
    if not home.is_dir():
        return ()
    numbers = sorted(int(entry.name) for entry in home.iterdir() if entry.name.isdecimal())
    present = sha256_of_file(Path(folder) / records.EMBEDDING)
    return tuple(_read(home / str(number), present) for number in numbers)


def _read(folder: Path, present: str) -> Joined:
    require_unchanged(folder)
    how = parsed(folder, records.JOINING, Joining)
    if how.map != present:
        raise OutputError(
            f"{folder} belongs to a site that joined another map than the one in {folder.parent.parent}. Restore that"
            f" {records.EMBEDDING}, or delete {folder} and let the site join again."
        )
    found = read_embedding(folder)
    if set(found.clients) != {how.site} or len(found.rows) != how.rows:
        raise OutputError(
            f"{folder} is not complete: its {records.EMBEDDING} must have exactly the rows of {how.site!r}."
        )
    return Joined(
        path=folder,
        site=how.site,
        rows=found.rows,
        labels=found.labels,
        clusters=found.clusters,
        points=found.places,
        novelty=read_novelty(folder),
        ledger=read_ledger(folder),
        privacy=parsed(folder, records.PRIVACY, Statement),
        data=read_data(folder, len(found.rows)),
        how=how,
    )
