"""Federations in this process, of given partitions, however packed: what tests of methods run on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.federation import ClientHost, Context, Federation, HostedClient, InlineTransport, fingerprint
from raydr.federation.checkpoint import Checkpoint
from raydr.federation.client import HostSecrets
from raydr.federation.transport import Transport
from raydr.journal import Journal
from raydr.privacy.secrets import FOUNDER, Secret, client_secret, group_secret

KNOWN = Secret(bytes(range(32)))
"""Of clients whose noise is the same whenever it is drawn for the same seed."""


GROUP = group_secret(client_secret(KNOWN, FOUNDER))
"""What they share, once they have agreed on it."""


def known(hosted: Sequence[HostedClient]) -> HostSecrets:
    """What the host of these clients is given of the known root."""
    return HostSecrets.derived(KNOWN, [each.index for each in hosted])


def federate(
    partitions: Sequence[FloatArray],
    *,
    seed: int = 0,
    packing: Sequence[int] | None = None,
    journal: Journal | None = None,
    resume: Checkpoint | None = None,
    released: Sequence[str] = (),
    root: Secret | None = None,
    reserve: FloatArray | None = None,
    classes: tuple[Int64Array, ...] = (),
    targets: tuple[Float64Array, ...] = (),
    **context: Any,
) -> Federation:
    """One client for each partition; ``packing`` gives the number of clients in each host (default: one host)."""
    hosted = [HostedClient(index, rows, fingerprint(rows)) for index, rows in enumerate(partitions)]
    ends = np.cumsum(packing if packing is not None else [len(hosted)])
    assert ends[-1] == len(hosted)
    groups = np.split(np.array(hosted, object), ends[:-1])
    host_secrets = HostSecrets.derived(root or KNOWN, range(len(hosted)), reserve, classes, targets)
    hosts = [
        ClientHost(hosted=list(group), seed=seed, host_secrets=host_secrets.at(each.index for each in group))
        for group in groups
    ]
    transport, said = InlineTransport(hosts), Context(seed=seed, **context)
    return Federation(transport, len(hosted), said, journal=journal, resume=resume, released=released)


def federation_over(
    transport: Transport,
    clients: int,
    *,
    journal: Journal | None = None,
    resume: Checkpoint | None = None,
    released: Sequence[str] = (),
    **context: Any,
) -> Federation:
    """Return the federation that a transport reaches, in the context of these keywords."""
    return Federation(
        transport, clients, Context(**context), journal=journal, resume=resume, released=released
    )


def cut(rows: FloatArray, clients: int, seed: int) -> list[FloatArray]:
    """Rows cut, in order, at random places: some clients get one row, some none."""
    ends = np.random.default_rng(seed).integers(0, len(rows) + 1, size=clients - 1)
    return [np.ascontiguousarray(part) for part in np.split(rows, np.sort(ends))]
