"""The charged releases of a run, made again: of other data of one client, and under other noise.

What the server asked is held fixed. The accountant charges a release before it is sent, whatever was answered before;
so what it claims for a run holds for the product of the releases of any fixed requests, those of this run among them.
That product is one Gaussian release, of which noise can be drawn again and again
(:mod:`raydr.attacks.canary`).

Client parts, mechanisms and the host's boundary are those of the run. Two things are left out: masks of secure
aggregation, which cancel to the bit, and the ring, of whose resolution values and noise are multiples already.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from raydr.arrays import Float64Array, FloatArray
from raydr.errors import RunError
from raydr.federation.accounts import claim_of
from raydr.federation.blurring import BlurRecords
from raydr.federation.client import Client
from raydr.federation.failures import Failure
from raydr.federation.host import ClientHost, Cover, blurred, shown
from raydr.federation.messages import Reply, Request
from raydr.federation.transcript import Release
from raydr.federation.wire import Call, SumCall, weight_of
from raydr.privacy.ledger import RECORDS
from raydr.privacy.mechanism import Claim, Mechanism, silent
from raydr.privacy.secrets import Secret


@dataclass(frozen=True)
class Replay:
    """The releases of a run, of which each can be made again.

    Parameters
    ----------
    hosts : sequence of ClientHost
        One for each client, in client order; they are not changed.
    steps : sequence of Call or Release
        What set clients' state, and what was charged, in order.
    """

    hosts: Sequence[ClientHost]
    steps: Sequence[Call | Release]

    @cached_property
    def releases(self) -> tuple[Release, ...]:
        """Charged releases, in order."""
        return tuple(step for step in self.steps if isinstance(step, Release))

    def rows(self, client: int) -> FloatArray:
        """A client's rows as they were read."""
        return self.hosts[client].seats[0].rows

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each client."""
        return tuple(len(host.seats[0].rows) for host in self.hosts)

    def clients(self, client: int, rows: FloatArray) -> Iterator[Client]:
        """A client as it was at each release, had its rows been these; of noise on data as it was before that."""
        host = self.hosts[client].with_rows(rows)
        bare: Client | None = None
        for step in self.steps:
            (now,) = (host.client(index) for index in host.clients)
            if isinstance(step, Release):
                found = bare if step.charge.kind == RECORDS and bare is not None else now
                yield replace(found, round=step.call.round, memory={})
            elif client in step.clients:
                if isinstance(step.request, BlurRecords):
                    bare = replace(now)
                for answer in host.ask(step.cut((client,))):
                    if isinstance(answer, Failure):
                        raise RunError(f"client {client} cannot be brought to where it was: {answer.reason}")

    def deviation(self, release: Release, client: int) -> float:
        """Deviation that is claimed of the noise on what is charged: the sum, or what this client uploads."""
        if release.of_sum or release.charge.kind == RECORDS:
            return release.charge.deviation
        return self._claim(release, client).deviation

    def weight(self, release: Release, client: int) -> int:
        """Weight of what a client adds to a sum that is charged; 1 where its upload is."""
        call = release.call
        if not release.of_sum or not isinstance(call, SumCall):
            return 1
        return weight_of(self.sizes[client], call.weighting)

    def least_protected(self, release: Release) -> int:
        """Client of whose upload the noise is worth least, among those with rows."""
        there = [client for client in release.call.clients if self.sizes[client]]
        if release.charge.kind == RECORDS:
            return there[0]
        return min(there, key=lambda client: self._claim(release, client).multiplier)

    def _claim(self, release: Release, client: int) -> Claim:
        found = claim_of(release.call, release.call.told(client), self.sizes[client])
        if found is None:
            raise RunError(f"{release.charge.kind} was charged, and client {client} claims nothing for it")
        return found


Fields: TypeAlias = "dict[str, Float64Array]"
"""Arrays by the name of a reply's field."""


@dataclass(frozen=True)
class Part:
    """One client's part of a release: its reply, without and with noise."""

    release: Release
    client: Client

    @cached_property
    def told(self) -> Request[Any]:
        """The request as the client got it."""
        return self.release.call.told(self.client.index)

    @cached_property
    def _said(self) -> Reply:
        told = self.told
        return type(told).client_part(shown(self.client, told), told)

    @cached_property
    def clean(self) -> Fields:
        """Covered fields of the reply without noise."""
        return self._under(silent(self.release.mechanism))(self.client.secret)

    @cached_property
    def sent(self) -> Fields:
        """Covered fields as the client sent them in the run."""
        return self._noisy(self.client.secret)

    def noise(self, *names: str | int) -> Fields:
        """Noise of each field, under a secret that these names derive from the client's own."""
        noisy = self._noisy(self.client.secret.derived(*names))
        return {name: values - self.clean[name] for name, values in noisy.items()}

    @cached_property
    def _noisy(self) -> Callable[[Secret], Fields]:
        return self._under(self.release.mechanism)

    def _under(self, mechanism: Mechanism) -> Callable[[Secret], Fields]:
        """Return the covered fields under a mechanism, as a function of the secret that its noise follows from."""

        def records(secret: Secret) -> Fields:
            noisy = blurred(replace(self.client, secret=secret), mechanism, math.nan)
            return {"records": np.asarray(noisy, np.float64)}

        def fields(secret: Secret) -> Fields:
            reply = cover.noisy(secret)
            return {name: np.asarray(getattr(reply, name), np.float64) for name in cover.quantities}

        if self.release.charge.kind == RECORDS:
            return records
        told = replace(self.told, mechanism=mechanism)  # type: ignore[type-var]
        cover = Cover.of(mechanism, self._said, self.client, told, self.release.call)
        return fields
