"""Backends of a simulation: the protocol, and the inline backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from raydr.arrays import FloatArray
from raydr.data import Census, Layout, Site, SiteFile, census
from raydr.data.site import laid_out
from raydr.device import Found, computing_on
from raydr.federation import ClientHost, HostedClient, InlineTransport, fingerprint
from raydr.federation.checkpoint import Checkpoint
from raydr.federation.client import HostSecrets
from raydr.federation.transcript import Transcript
from raydr.journal import Journal, Listener
from raydr.methods.serving import Plan, Served, serve
from raydr.privacy.policy import SitePolicy
from raydr.privacy.secrets import Secret
from raydr.scenarios.running.pooling import PooledRows
from raydr.sparse_rows import stacked


class Backend(Protocol):
    """Runs the parts of a simulation. All backends have identical results."""

    name: str
    device: Found
    actors: int
    peak_memory_bytes: dict[str, int]

    def serve(
        self,
        parts: Sequence[FloatArray | Site],
        plan: Plan,
        *,
        listener: Listener,
        host_secrets: HostSecrets | None = None,
        policies: Sequence[SitePolicy] = (),
        checkpoint: bytes | None = None,
        released: Sequence[str] = (),
    ) -> Served:
        """Run clients and server; ``parts`` has each client's rows, or the place of its file.

        Each host gets the part of ``host_secrets`` for its clients; by default secrets are drawn. ``policies`` has the
        policy of each client's site; by default everything may leave. ``released`` has the
        lines about releases that the run has already charged.
        """

    def lay_out_sites(self, files: Sequence[tuple[SiteFile, str | None]]) -> Layout:
        """Let clients agree on the columns of their own files to map, and how, on the nodes of the files."""

    def count_sites(self, files: Sequence[tuple[SiteFile, str | None]]) -> list[Census]:
        """Read clients' own files on their nodes, and return everything about them except the rows."""

    def pool(self, sites: Sequence[Site]) -> Callable[[], FloatArray]:
        """Return a callable that brings the rows of clients' own files to its caller, the evaluation."""

    def prepare_evaluation(self, libraries: Callable[[], object], values: int) -> None:
        """Announce an evaluation of this number of values, for which ``libraries`` imports what it needs."""

    def evaluate(self, work: Callable[..., Any], *arguments: Any, listener: Listener) -> Any:
        """Call ``work(*arguments, listener=listener)`` in the process that may see pooled rows."""


@dataclass(kw_only=True)
class InlineBackend:
    """Runs everything in this process, one part after the other, with large products on ``device``.

    A ``transcript`` records what the server sees; each client then has its own host, and ``hosts`` are kept. Without
    one, they are released with their rows before the evaluation needs its own.
    """

    name: str = "inline"
    actors: int = 0
    peak_memory_bytes: dict[str, int] = field(default_factory=dict)
    transcript: Transcript | None = None
    device: Found = "cpu"
    hosts: Sequence[ClientHost] = ()

    def serve(
        self,
        parts: Sequence[FloatArray | Site],
        plan: Plan,
        *,
        listener: Listener,
        host_secrets: HostSecrets | None = None,
        policies: Sequence[SitePolicy] = (),
        checkpoint: bytes | None = None,
        released: Sequence[str] = (),
    ) -> Served:
        """Run clients and server in this process."""
        host_secrets = host_secrets or HostSecrets.derived(Secret.drawn(), range(len(parts)))
        read = [part.file.read().rows if isinstance(part, Site) else part for part in parts]
        applied = policies or [SitePolicy()] * len(parts)
        hosted = [
            HostedClient(index, rows, fingerprint(rows), policy)
            for index, (rows, policy) in enumerate(zip(read, applied, strict=True))
        ]
        # One host for each client if a crash must affect only one, or if the transcript must have each summand.
        apart = bool(plan.faults.crashes) or self.transcript is not None
        groups = [[each] for each in hosted] if apart else [hosted]
        hosts = [
            ClientHost(
                hosted=group,
                seed=plan.seed,
                faults=plan.faults,
                run=plan.run,
                host_secrets=host_secrets.at(each.index for each in group),
            )
            for group in groups
        ]
        self.hosts, transport = hosts if self.transcript is not None else (), InlineTransport(hosts)
        resume = Checkpoint.from_bytes(checkpoint) if checkpoint is not None else None
        with computing_on(self.device):
            return serve(
                transport,
                len(parts),
                plan,
                journal=Journal(listener),
                resume=resume,
                released=released,
                transcript=self.transcript,
            )

    def lay_out_sites(self, files: Sequence[tuple[SiteFile, str | None]]) -> Layout:
        """Survey the files in this process."""
        return laid_out(files[0][0], [file.survey() for file, _ in files])

    def count_sites(self, files: Sequence[tuple[SiteFile, str | None]]) -> list[Census]:
        """Read the files in this process; nodes are ignored."""
        return [census(file) for file, _ in files]

    def pool(self, sites: Sequence[Site]) -> Callable[[], FloatArray]:
        """Read the files again in this process."""
        return PooledRows(stacked([site.file.read().rows for site in sites]))

    def prepare_evaluation(self, libraries: Callable[[], object], values: int) -> None:
        """Do nothing: this process is busy until then."""

    def evaluate(self, work: Callable[..., Any], *arguments: Any, listener: Listener) -> Any:
        """Call ``work`` in this process."""
        with computing_on(self.device):
            return work(*arguments, listener=listener)
