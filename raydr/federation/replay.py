"""Replay of a run's charged releases with other data of one client and other noise.

The server's requests are held fixed. The accountant charges a release before it is sent, whatever was answered before.
So its claim for a run holds for the product of the releases of any fixed requests, including those of this run. That
product is one Gaussian release, of which noise can be drawn repeatedly (:mod:`raydr.attacks.canary`).

Client parts, mechanisms and the host's boundary are those of the run. Two things are left out: masks of secure
aggregation, which cancel exactly, and the ring, because values and noise are already multiples of its resolution.
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
    """The releases of a run, each of which can be repeated.

    Parameters
    ----------
    hosts : sequence of ClientHost
        One for each client, in client order; they are not changed.
    steps : sequence of Call or Release
        Calls that set clients' state, and charged releases, in order.
    """

    hosts: Sequence[ClientHost]
    steps: Sequence[Call | Release]

    @cached_property
    def releases(self) -> tuple[Release, ...]:
        """Charged releases, in order."""
        return tuple(step for step in self.steps if isinstance(step, Release))

    def rows(self, client: int) -> FloatArray:
        """Return a client's rows as they were read."""
        return self.hosts[client].hosted[0].rows

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each client."""
        return tuple(len(host.hosted[0].rows) for host in self.hosts)

    def clients(self, client: int, rows: FloatArray) -> Iterator[Client]:
        """Yield a client's state at each release, if its rows had been ``rows``; before noise on data, for that."""
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
                        raise RunError(f"cannot restore the state of client {client}: {answer.reason}")

    def deviation(self, release: Release, client: int) -> float:
        """Return the claimed deviation of the noise on what is charged: the sum, or this client's upload."""
        if release.of_sum or release.charge.kind == RECORDS:
            return release.charge.deviation
        return self._claim(release, client).deviation

    def weight(self, release: Release, client: int) -> int:
        """Return the weight of a client's summand in a charged sum; 1 if its upload is charged."""
        call = release.call
        if not release.of_sum or not isinstance(call, SumCall):
            return 1
        return weight_of(self.sizes[client], call.weighting)

    def least_protected(self, release: Release) -> int:
        """Return the client, among those with rows, whose upload has the weakest noise."""
        there = [client for client in release.call.clients if self.sizes[client]]
        if release.charge.kind == RECORDS:
            return there[0]
        return min(there, key=lambda client: self._claim(release, client).multiplier)

    def _claim(self, release: Release, client: int) -> Claim:
        found = claim_of(release.call, release.call.request_for(client), self.sizes[client])
        if found is None:
            raise RunError(f"{release.charge.kind} was charged, but client {client} claims no epsilon for it")
        return found


Fields: TypeAlias = "dict[str, Float64Array]"
"""Arrays by the name of a reply's field."""


@dataclass(frozen=True)
class Part:
    """One client's part of a release: its reply without and with noise."""

    release: Release
    client: Client

    @cached_property
    def request(self) -> Request[Any]:
        """The request as the client received it."""
        return self.release.call.request_for(self.client.index)

    @cached_property
    def _reply(self) -> Reply:
        request = self.request
        return type(request).client_part(shown(self.client, request), request)

    @cached_property
    def clean(self) -> Fields:
        """Covered fields of the reply without noise."""
        return self._under(silent(self.release.mechanism))(self.client.secret)

    @cached_property
    def sent(self) -> Fields:
        """Covered fields as the client sent them in the run."""
        return self._noisy(self.client.secret)

    def noise(self, *names: str | int) -> Fields:
        """Return the noise of each field, with a secret derived from the client's own by these names."""
        noisy = self._noisy(self.client.secret.derived(*names))
        return {name: values - self.clean[name] for name, values in noisy.items()}

    @cached_property
    def _noisy(self) -> Callable[[Secret], Fields]:
        return self._under(self.release.mechanism)

    def _under(self, mechanism: Mechanism) -> Callable[[Secret], Fields]:
        """Return the covered fields under a mechanism, as a function of the noise's secret."""

        def records(secret: Secret) -> Fields:
            noisy = blurred(replace(self.client, secret=secret), mechanism, math.nan)
            return {"records": np.asarray(noisy, np.float64)}

        def fields(secret: Secret) -> Fields:
            reply = cover.noisy(secret)
            return {name: np.asarray(getattr(reply, name), np.float64) for name in cover.quantities}

        if self.release.charge.kind == RECORDS:
            return records
        request = replace(self.request, mechanism=mechanism)  # type: ignore[type-var]
        cover = Cover.of(mechanism, self._reply, self.client, request, self.release.call)
        return fields
