"""Sites that answer in this process as nodes of Flower do, each message by a fresh host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.runtime_systems import LoneHost
from raydr.arrays import FloatArray
from raydr.deployment.inline import InlineSites
from raydr.deployment.messages import StartRequest
from raydr.errors import RunError
from raydr.federation import ClientHost, HostedClient, Transport, fingerprint
from raydr.federation.client import HostSecrets
from raydr.federation.failures import Failure, Kind
from raydr.federation.wire import PartialSum, SumCall
from raydr.privacy.policy import SitePolicy
from raydr.runtimes.flower.errands import Failed
from raydr.runtimes.flower.site_node import SiteNode
from raydr.runtimes.flower.transport import FlowerTransport


def same(site: str, content: bytes) -> bytes | None:
    """Nothing happens to a message on its way."""
    return content


@dataclass
class Nodes:
    """Carries bytes to sites in this process; a hook changes a message or an answer on its way, or loses it."""

    nodes: Mapping[str, SiteNode]
    to_site: Callable[[str, bytes], bytes | None] = same
    to_server: Callable[[str, bytes], bytes | None] = same

    def exchange(self, messages: Mapping[str, bytes], timeout_s: float) -> dict[str, bytes | Failed]:
        answers: dict[str, bytes | Failed] = {}
        for site, message in messages.items():
            arrived = self.to_site(site, message)
            answer = None if arrived is None else self.to_server(site, self.nodes[site].answer(arrived))
            answers[site] = Failed(Kind.TIMED_OUT, "no answer") if answer is None else answer
        return answers


def host_of(
    client: int,
    rows: FloatArray,
    secrets: HostSecrets,
    *,
    seed: int,
    run: str = "",
    policy: SitePolicy | None = None,
) -> ClientHost:
    """A host of one client, which has only its own secret."""
    hosted = HostedClient(client, rows, fingerprint(rows), policy or SitePolicy())
    return ClientHost(hosted=[hosted], seed=seed, run=run, host_secrets=secrets.at([client]))


def over_nodes(
    parts: Sequence[FloatArray],
    secrets: HostSecrets,
    folder: Path,
    *,
    seed: int,
    run: str = "",
    policies: Sequence[SitePolicy] = (),
) -> FlowerTransport:
    """A transport to one node for each part, each with a folder of its own."""
    names = [f"site {client}" for client in range(len(parts))]

    def node(client: int) -> SiteNode:
        policy = policies[client] if policies else None

        def host(asked: int) -> LoneHost:
            if asked != client:
                raise RunError(f"site {client} was called {asked}")
            return LoneHost(host_of(client, parts[client], secrets, seed=seed, run=run, policy=policy))

        return SiteNode(folder / names[client], host)

    nodes = Nodes({name: node(client) for client, name in enumerate(names)})
    return FlowerTransport(courier=nodes, sites=names, run=run)


@dataclass
class Losing(InlineSites):
    """Sites of which some do not answer in some rounds."""

    lost: Mapping[int, set[int]] = field(default_factory=dict)

    def transport(self, start: StartRequest) -> Transport:
        transport = super().transport(start)
        honest = transport.sum

        def sums(call: SumCall) -> Iterator[PartialSum]:
            gone = self.lost.get(call.round, set()) & {*call.clients} if call.in_rounds else set()
            if gone:
                failures = tuple(Failure(client, Kind.TIMED_OUT, "lost") for client in sorted(gone))
                yield PartialSum(number=call.number, round=call.round, failures=failures)
            yield from honest(call.cut(tuple(client for client in call.clients if client not in gone)))

        transport.sum = sums  # type: ignore[method-assign]
        return transport
