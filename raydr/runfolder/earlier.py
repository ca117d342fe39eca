"""The run that another run repeats with one site more or less, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from raydr.journal import Count
from raydr.metrics.displacement import Displacement
from raydr.privacy.composition import Composition, RunCost, composed
from raydr.runfolder.manifest import require_unchanged
from raydr.runfolder.reading import parsed
from raydr.runfolder.records import EARLIER

Change: TypeAlias = Literal["left", "joined"]
Holding: TypeAlias = Literal["record", "site", "sum"]
"""Content of a kind of message about a site: something of each record, sums of the site alone, or sums of all sites."""


@dataclass(kw_only=True, frozen=True)
class HeldMessage:
    """A kind of message of the earlier run that depends on the site's rows.

    Attributes
    ----------
    kind, what : str
        See :class:`raydr.privacy.ledger.Entry`.
    holding : {"record", "site", "sum"}
        What it says of the site.
    epsilon : float or None
        Differential privacy claimed for it; None without a claim.
    """

    kind: str
    what: str
    holding: Holding
    epsilon: float | None = None


@dataclass(kw_only=True, frozen=True)
class EarlierModel:
    """The earlier run's model for new rows, compared with that of the new run.

    Attributes
    ----------
    changed, unchanged : sequence of str
        Arrays that differ between the two runs, and arrays that do not.
    references : int
        Number of its references, which are means of small groups of rows; 0 if it has none.
    of_site : int
        Number of references whose groups have rows of the site.
    """

    changed: Sequence[str]
    unchanged: Sequence[str]
    references: Count = 0
    of_site: Count = 0


@dataclass(kw_only=True, frozen=True)
class EarlierRun:
    """Comparison with the run that this one repeats with one site more or less: ``earlier.json``.

    Attributes
    ----------
    change : {"left", "joined"}
        Whether the site left the earlier run or joined it.
    site : str
        Name of the site.
    rows : int
        Number of the site's mapped rows.
    folder, run : str
        Names of the earlier run's folder and of the run.
    map : str
        SHA-256 of the earlier map.
    messages : sequence of HeldMessage
        Messages of the earlier run that depend on the rows of a site that left.
    files : mapping of str to str
        Files of the earlier folder with something of a site that left, and what.
    model : EarlierModel or None
        The earlier model, if a site left; None if the run has no model.
    costs : sequence of RunCost
        Privacy costs of all runs of the sites so far, this run last.
    displacement : Displacement or None
        How far the rows that both runs map moved; None if they are too few.
    prior : bool
        Whether the map was drawn from the earlier one.
    """

    change: Change
    site: str
    rows: Count
    folder: str
    run: str
    map: str
    costs: Sequence[RunCost]
    messages: Sequence[HeldMessage] = ()
    files: dict[str, str] = field(default_factory=dict)
    model: EarlierModel | None = None
    displacement: Displacement | None = None
    prior: bool = False

    @property
    def together(self) -> Composition:
        """The cost of all runs together, for the rows of the sites that were in all of them."""
        return composed(self.costs, self.costs[-1].delta)

    def held(self, holding: Holding) -> list[HeldMessage]:
        """Return the messages that hold this much of a site that left."""
        return [message for message in self.messages if message.holding == holding]


def read_earlier(folder: Path) -> EarlierRun | None:
    """Return a run's comparison with the earlier run; None if it repeats none. Raises as `read_run`."""
    if not (folder / EARLIER).exists():
        return None
    require_unchanged(folder, EARLIER)
    return parsed(folder, EARLIER, EarlierRun)
