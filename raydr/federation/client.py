"""One client: its partition and its random streams. The client part of a method sees nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.errors import RunError
from raydr.federation.peers import Peers
from raydr.federation.streams import client_stream
from raydr.privacy.mechanism import Mechanism
from raydr.privacy.secrets import Secret, client_secret

Array = TypeVar("Array", bound=np.ndarray[Any, Any])


@dataclass(frozen=True)
class HostSecrets:
    """Secrets and classes for the host of some clients, which neither the server nor another host has.

    Attributes
    ----------
    secrets : mapping of client to Secret
        Each client's own secret, which reveals nothing about the others.
    reserve : (rows, features) array or None
        Rows that all clients know and that are not mapped: anchors hidden from the server.
    classes : mapping of client to (rows,) int64
        Class of each row of each client, if a client part needs it.
    targets : mapping of client to (rows,) float64
        Label of each row of each client as a number (:class:`raydr.statistics.steering.Target`), if labels steer.
    peers : Peers or None
        Names and keys of all sites of a deployed run; None in a simulation, whose driver hosts all clients.
    """

    secrets: Mapping[int, Secret]
    reserve: FloatArray | None = None
    classes: Mapping[int, Int64Array] = field(default_factory=dict)
    targets: Mapping[int, Float64Array] = field(default_factory=dict)
    peers: Peers | None = None

    @classmethod
    def derived(
        cls,
        root: Secret,
        clients: Iterable[int],
        reserve: FloatArray | None = None,
        classes: Sequence[Int64Array] = (),
        targets: Sequence[Float64Array] = (),
    ) -> HostSecrets:
        """Return what the host of these clients receives in a run with this root.

        Parameters
        ----------
        root : Secret
            Root of all clients' secrets. It is not kept.
        clients : iterable of int
            Clients of the host.
        reserve : (rows, features) array or None
            See the class.
        classes, targets : sequence of (rows,) array
            One array for each client of the run, in client order, or none.
        """
        secrets = {client: client_secret(root, client) for client in clients}
        return cls(secrets, reserve, _of_clients(classes, secrets), _of_clients(targets, secrets))

    def at(self, clients: Iterable[int]) -> HostSecrets:
        """Return the part for the host of these clients."""
        secrets = {client: self.secrets[client] for client in clients}
        classes = {client: own for client, own in self.classes.items() if client in secrets}
        targets = {client: own for client, own in self.targets.items() if client in secrets}
        return HostSecrets(secrets, self.reserve, classes, targets, self.peers)


def _of_clients(arrays: Sequence[Array], clients: Iterable[int]) -> dict[int, Array]:
    return {client: arrays[client] for client in clients} if arrays else {}


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
        The run's seed, from which :meth:`stream` derives this client's random numbers. The server knows it too.
    round : int
        Round of the call that is being answered; 0 before the first.
    memory : dict of name to anything
        Results that a client part keeps to avoid repeated work. A restarted client loses them, so they must be
        computable again from rows and streams, bit for bit.
    once : dict of name to str
        Digests of what the client answered once and must not answer in another way, because two answers together would
        reveal more. They cannot be computed again, so they must outlive the process.
    secret : Secret
        The client's own secret for its noise and sealed state. The server does not have it.
    agreed : Secret or None
        Secret that all clients share, once it is distributed. The server does not have it either.
    reserve : (rows, features) array or None
        Rows that all clients know and the server does not.
    classes : (rows,) int64 or None
        Class of each row, if the request declares that it reads them (:attr:`raydr.federation.Request.reads_classes`).
    targets : (rows,) float64 or None
        Label of each row as a number, for the same requests; None if labels do not steer.
    peers : Peers or None
        Names and keys of all sites of a deployed run; None in a simulation.
    trusted : mapping of client to bytes
        Public keys of all clients of a deployed run, once this client has checked who signed them.
    """

    index: int
    rows: FloatArray
    seed: int
    round: int = 0
    memory: dict[str, Any] = field(default_factory=dict, repr=False)
    once: dict[str, str] = field(default_factory=dict, repr=False)
    run: str = ""
    covered_by: Mechanism | None = None
    secret: Secret = field(default_factory=Secret.drawn)
    agreed: Secret | None = field(default=None, repr=False)
    reserve: FloatArray | None = None
    classes: Int64Array | None = None
    targets: Float64Array | None = None
    peers: Peers | None = field(default=None, repr=False)
    trusted: Mapping[int, bytes] = field(default_factory=dict, repr=False)

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
                f"client {self.index} needs the secret that all clients share, but they have not agreed on one yet:"
                " call Federation.agree first."
            )
        return self.agreed

    def stream(self, purpose: str) -> np.random.Generator:
        """Return independent random numbers for ``(seed, client, round, purpose)``, the same on every call."""
        return client_stream(self.seed, self.index, self.round, purpose)
