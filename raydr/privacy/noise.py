"""Noise that clients add on purpose: what, how much, and which of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from raydr.arrays import Float64Array


@dataclass(frozen=True)
class Noise:
    """Gaussian noise of a client's own making; nothing is claimed about differential privacy.

    Attributes
    ----------
    on : {"data", "distances"}
        Every feature of every record, or every distance that is sent.
    level : float
        Standard deviation: on data in units of the features' root mean square deviation, on distances in units of
        the record's mean distance.
    clients : float
        Part of the clients that add it, drawn by the seed; the others add none.
    """

    on: Literal["data", "distances"]
    level: float
    clients: float = 1.0

    def levels(self, clients: int, rng: np.random.Generator) -> Float64Array:
        """Level of each client, (clients,); ``rng`` draws who adds noise.

        >>> Noise("data", 0.5, clients=0.5).levels(4, np.random.default_rng(0)).tolist()
        [0.0, 0.0, 0.5, 0.5]
        """
        levels = np.zeros(clients)
        levels[rng.choice(clients, round(self.clients * clients), replace=False)] = self.level
        return levels

    @property
    def protection(self) -> str:
        """Words for the ledger."""
        whom = "" if self.clients == 1.0 else f" by {self.clients:.0%} of the clients"
        return (
            f"Gaussian noise of level {self.level:g} on {self.on}{whom}; no differential privacy is claimed"
        )
