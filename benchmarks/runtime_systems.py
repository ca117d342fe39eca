"""The exchanges of :mod:`benchmarks.runtimes`, in one process and over Ray.

Run ``python -m benchmarks.runtime_systems SYSTEM NODES``, with SYSTEM ``inline`` or ``ray``: it prints a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from raydr.actors.cluster import connected
from raydr.actors.placement import place
from raydr.actors.resources import Room
from raydr.actors.transport import RayTransport
from raydr.arrays import Float64Array, fingerprint
from raydr.federation import (
    ClientHost,
    Context,
    FaultPlan,
    Federation,
    HostedClient,
    InlineTransport,
    Transport,
)
from raydr.federation.client import HostSecrets
from raydr.federation.secure import SecureSums
from raydr.federation.wire import Answer, Call, PartialSum, SumCall
from raydr.methods.landmarks.learning import StepRequest
from raydr.privacy.secrets import Secret
from raydr.statistics.moments import spread
from raydr.threads import cores

ROWS, FEATURES, LANDMARKS, ROUNDS = 40, 6, 12, 3


def rows_of(node: int) -> Float64Array:
    """Return the rows of a site, (40, 6)."""
    return np.random.default_rng(node).normal(size=(ROWS, FEATURES))


@dataclass
class LoneHost:
    """The host of a site's client as its node sees it."""

    host: ClientHost
    before: list[Call] = field(default_factory=list)

    def ask(self, call: Call) -> list[Answer]:
        """Return the answer to a call."""
        return self.host.ask(call)

    def sum(self, call: SumCall) -> PartialSum:
        """Return the summand for a call."""
        return self.host.sum(call)

    def repeat(self, calls: Sequence[Call]) -> None:
        """Do nothing: there are no calls around the run."""

    def restore(self, history: Sequence[Call]) -> None:
        """Repeat the calls that set the client's state."""
        self.host.restore(history)

    def written_down(self) -> dict[str, Any]:
        """Return what the host must not forget."""
        return self.host.noted(self.host.clients[0])

    def read_again(self, notes: dict[str, Any]) -> None:
        """Remember what an earlier host has written down."""
        self.host.recall(self.host.clients[0], notes)


def host_of(*nodes: int) -> ClientHost:
    """Return a host of sites, with secrets that a later host of the same sites has too."""
    rows = {node: rows_of(node) for node in nodes}
    return ClientHost(
        hosted=[HostedClient(node, own, fingerprint(own)) for node, own in rows.items()],
        seed=0,
        run="runtimes",
        host_secrets=HostSecrets({node: Secret(node.to_bytes(32)) for node in nodes}),
    )


@dataclass
class Timed:
    """A transport that notes the seconds of each exchange."""

    transport: Transport
    seconds: list[float] = field(default_factory=list)

    def reset(self) -> None:
        """Let every site start again from its rows."""
        self.transport.reset()

    def ask(self, call: Call) -> list[Answer]:
        """Return one answer for each client asked."""
        began = time.perf_counter()
        answers = list(self.transport.ask(call))
        self.seconds.append(time.perf_counter() - began)
        return answers

    def sum(self, call: SumCall) -> Iterator[PartialSum]:
        """Yield partial sums of the clients asked."""
        began = time.perf_counter()
        parts = list(self.transport.sum(call))
        self.seconds.append(time.perf_counter() - began)
        yield from parts

    def compute(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        """Yield the results of the server's own work."""
        yield from self.transport.compute(work, tasks)

    def share(self, values: Iterable[Any]) -> Sequence[Any]:
        """Return the values."""
        return self.transport.share(values)

    def machines(self) -> int:
        """Return 1."""
        return 1


def measured(transport: Transport, nodes: int) -> dict[str, float]:
    """Return the figures of the exchanges over a transport."""
    timed = Timed(transport)
    federation = Federation(timed, nodes, Context(seed=0, run="runtimes", secure=SecureSums()))
    spread(federation)
    landmarks = np.random.default_rng(0).normal(size=(LANDMARKS, FEATURES))
    for _ in federation.rounds(ROUNDS):
        federation.mean(
            StepRequest(
                landmarks=landmarks, gamma=0.1, step=0.1, local_steps=1, share="gradient", objective=False
            ),
            weights="rows",
        )
    entries = federation.ledger.entries.values()
    sent = sum(entry.bytes for entry in entries if entry.direction in ("up", "down"))
    count = len(timed.seconds)
    return {
        "exchanges": count,
        "ms": 1e3 * statistics.median(timed.seconds),
        "s": sum(timed.seconds),
        "kB": sent / 1e3 / nodes / count,
    }


def main() -> None:
    """Run one system."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.runtime_systems", description=__doc__)
    parser.add_argument("system", choices=["inline", "ray"])
    parser.add_argument("nodes", type=int)
    arguments = parser.parse_args()
    nodes = arguments.nodes
    if arguments.system == "inline":
        found = measured(InlineTransport([host_of(*range(nodes))]), nodes)
    else:
        with connected():
            placements = place([rows_of(node) for node in range(nodes)], min(nodes, cores()), Room.here())
            transport = RayTransport(
                placements=placements, seed=0, faults=FaultPlan(), timeout_s=600.0, run="runtimes"
            )
            found = measured(transport, nodes)
            transport.close()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
