"""One client: its partition and its random streams. The client part of a method works on this and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from raydr.arrays import FloatArray, Int64Array
from raydr.errors import RunError
from raydr.federation.streams import client_stream
from raydr.privacy.mechanism import Mechanism
from raydr.privacy.secrets import Secret, client_secret


@dataclass(frozen=True)
class Withheld:
    """Secrets and classes for the host of some clients; neither the server nor another host has them.

    Attributes
    ----------
    secrets : mapping of client to Secret
        Each client's own, from which nothing follows of another's.
    reserve : (rows, features) array or None
        Rows that nobody is mapped by, and that all clients know: anchors that are hidden from the server.
    classes : mapping of client to (rows,) int64
        Of each client's rows the class, where a client part needs it.
    """

    secrets: Mapping[int, Secret]
    reserve: FloatArray | None = None
    classes: Mapping[int, Int64Array] = field(default_factory=dict)

    @classmethod
    def derived(
        cls,
        root: Secret,
        clients: Iterable[int],
        reserve: FloatArray | None = None,
        classes: Sequence[Int64Array] = (),
    ) -> Withheld:
        """Return what the host of these clients is given in a run of that root.

        Parameters
        ----------
        root : Secret
            From which the secrets of all clients follow. It is not kept.
        clients : iterable of int
            Who lives there.
        reserve : (rows, features) array or None
            See the class.
        classes : sequence of (rows,) int64
            One for each client of the run, in client order, or none.
        """
        secrets = {client: client_secret(root, client) for client in clients}
        return cls(secrets, reserve, {client: classes[client] for client in secrets} if classes else {})

    def at(self, clients: Iterable[int]) -> Withheld:
        """Return what the host of these clients is given of it."""
        secrets = {client: self.secrets[client] for client in clients}
        own = {client: classes for client, classes in self.classes.items() if client in secrets}
        return Withheld(secrets, self.reserve, own)


@dataclass(kw_only=True)
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
    agreed : Secret or None
        What all clients share, once one of them has handed it out; the server does not have it either.
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
    agreed: Secret | None = field(default=None, repr=False)
    reserve: FloatArray | None = None
    classes: Int64Array | None = None

    @property
    def shared(self) -> Secret:
        """The secret that all clients share.

        Raises
        ------
        RunError
            If they have not agreed on it yet.
        """
        if self.agreed is None:
            raise RunError(
                f"client {self.index} was asked for what takes a secret of all clients, before they agreed on one: have"
                " them do so (Federation.agree)."
            )
        return self.agreed

    def stream(self, purpose: str) -> np.random.Generator:
        """Independent random numbers for ``(seed, client, round, purpose)``, whoever asks, however often."""
        return client_stream(self.seed, self.index, self.round, purpose)
