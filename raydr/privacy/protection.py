"""What a client did to what it sent: a value that its host writes into the ledger, never prose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Protection:
    """Gaussian noise of a client's own making.

    Attributes
    ----------
    on : {"data", "distances"}
        Every feature of every record, or every distance that is sent.
    level : float
        Standard deviation, above 0: on data in units of the features' root mean square deviation, on distances in
        units of the record's mean distance.
    kind : {"gaussian-noise"}
        The mechanism.
    """

    on: Literal["data", "distances"]
    level: float
    kind: Literal["gaussian-noise"] = "gaussian-noise"

    @property
    def words(self) -> str:
        """A phrase for people; what it is worth is the accountant's to say, and noise alone promises nothing.

        >>> Protection("distances", 0.1).words
        'Gaussian noise of level 0.1 on distances'
        """
        return f"Gaussian noise of level {self.level:g} on {self.on}"
