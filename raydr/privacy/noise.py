"""Noise that clients add on purpose: what, how much, and which of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from raydr.arrays import Float64Array
from raydr.errors import ScenarioError


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

    def noisy_clients(self, clients: int) -> int:
        """How many of so many clients add noise.

        Raises
        ------
        ScenarioError
            If that is none: noise that nobody adds is no noise.
        """
        noisy = round(self.clients * clients)
        if not noisy:
            raise ScenarioError(
                f"privacy.noise.clients is {self.clients:g}, which of {clients} clients is none, so no noise would be"
                f" added: choose at least {1 / clients:.2g}, or leave privacy.noise out."
            )
        return noisy

    def levels(self, clients: int, rng: np.random.Generator) -> Float64Array:
        """Level of each client, (clients,); ``rng`` draws who adds noise.

        >>> Noise("data", 0.5, clients=0.5).levels(4, np.random.default_rng(0)).tolist()
        [0.0, 0.0, 0.5, 0.5]
        """
        levels = np.zeros(clients)
        levels[rng.choice(clients, self.noisy_clients(clients), replace=False)] = self.level
        return levels
