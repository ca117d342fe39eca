"""One client: its partition and its random streams. The client part of a method works on this and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from raydr.arrays import FloatArray, Int64Array
from raydr.federation.streams import client_stream
from raydr.privacy.mechanism import Mechanism
from raydr.privacy.secrets import Secret


@dataclass(frozen=True)
class Withheld:
    """What the hosts of clients are given and the server is not.

    Attributes
    ----------
    root : Secret
        Of all clients' secrets, the same at all hosts of a run.
    reserve : (rows, features) array or None
        Rows that nobody is mapped by, and that all clients know: anchors that are hidden from the server.
    classes : tuple of (rows,) int64
        Of each client's rows the class, where a client part needs it; a client is given its own alone.
    """

    root: Secret = field(default_factory=Secret.drawn)
    reserve: FloatArray | None = None
    classes: tuple[Int64Array, ...] = ()


@dataclass
class Client:
    """A client as its own code sees it.

    Attributes
    ----------
    index : int
        Position among the clients, from 0.
    rows : (rows, features) float32 or float64
        The partition. Requests that scale or perturb the data replace it; it is never changed in place.
    seed : int
        The run's seed, from which :meth:`stream` derives this client's randomness. The server knows it too.
    round : int
        The round of the call that is being answered; 0 before the first.
    memory : dict of name to anything
        What a client part keeps to spare itself work. A restarted client has forgotten it, so whatever is in it must
        be such that it can be computed again, to the same bits, from rows and streams.
    secret : Secret
        The client's own, in all rounds: of its noise, and of what it seals. The server does not have it.
    shared : Secret
        What all clients share, and the server does not have either.
    reserve : (rows, features) array or None
        Rows that all clients know, and the server does not.
    classes : (rows,) int64 or None
        Of its own rows the class, where what it is asked declares that it reads them
        (:attr:`raydr.federation.Request.reads_classes`).
    """

    index: int
    rows: FloatArray
    seed: int
    round: int = 0
    memory: dict[str, Any] = field(default_factory=dict, repr=False)
    run: str = ""
    covered_by: Mechanism | None = None
    secret: Secret = field(default_factory=Secret.drawn)
    shared: Secret = field(default_factory=Secret.drawn)
    reserve: FloatArray | None = None
    classes: Int64Array | None = None

    def stream(self, purpose: str) -> np.random.Generator:
        """Independent random numbers for ``(seed, client, round, purpose)``, whoever asks, however often."""
        return client_stream(self.seed, self.index, self.round, purpose)
