"""Where the parts of a simulation run: the contract, and its plainest form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from raydr.arrays import FloatArray
from raydr.data import Census, Layout, Site, SiteFile, census
from raydr.data.site import laid_out
from raydr.device import Found, computing_on
from raydr.federation import ClientHost, InlineTransport, Seat, fingerprint
from raydr.federation.checkpoint import Checkpoint
from raydr.federation.client import Withheld
from raydr.federation.transcript import Transcript
from raydr.journal import Journal, Listener
from raydr.methods.serving import Plan, Served, serve
from raydr.privacy.secrets import Secret
from raydr.scenarios.running.client_data import Rows


class Backend(Protocol):
    """Where the parts of a simulation run; which one changes no bit of the outcome."""

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
        withheld: Withheld | None = None,
        checkpoint: bytes | None = None,
        released: Sequence[str] = (),
    ) -> Served:
        """Run clients and server; ``parts`` are each client's rows, or where they are.

        Each host is given what of ``withheld`` is its clients'; by default secrets are drawn. ``released`` has every
        line about a release that the run has charged before.
        """

    def lay_out_sites(self, files: Sequence[tuple[SiteFile, str | None]]) -> Layout:
        """Agree on which columns of clients' own files are mapped, and as what, where the files are."""

    def count_sites(self, files: Sequence[tuple[SiteFile, str | None]]) -> list[Census]:
        """Read clients' own files where they are, and say everything of them but the rows."""

    def pool(self, sites: Sequence[Site]) -> Callable[[], FloatArray]:
        """Bring the rows of clients' own files to whoever calls the result: the evaluation."""

    def evaluate(self, work: Callable[..., Any], *arguments: Any, listener: Listener) -> Any:
        """Call ``work(*arguments, listener=listener)`` where pooled rows may be seen."""


@dataclass(kw_only=True)
class InlineBackend:
    """Everything in this process, one part after the other, large products on ``device``.

    With a ``transcript``, what the server sees is written into it, and each client has a host of its own.
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
        withheld: Withheld | None = None,
        checkpoint: bytes | None = None,
        released: Sequence[str] = (),
    ) -> Served:
        """Run clients and server here; ``hosts`` are then those of the run."""
        withheld = withheld or Withheld.derived(Secret.drawn(), range(len(parts)))
        read = [part.file.read().rows if isinstance(part, Site) else part for part in parts]
        seats = [Seat(index, rows, fingerprint(rows)) for index, rows in enumerate(read)]
        # Hosts of one client each, where crashes are to strike one client and not all, or each summand is to be seen.
        apart = bool(plan.faults.crashes) or self.transcript is not None
        groups = [[seat] for seat in seats] if apart else [seats]
        hosts = [
            ClientHost(
                seats=group,
                seed=plan.seed,
                faults=plan.faults,
                run=plan.run,
                withheld=withheld.at(seat.index for seat in group),
            )
            for group in groups
        ]
        self.hosts, transport = hosts, InlineTransport(hosts)
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
        """Survey the files here."""
        return laid_out(files[0][0], [file.survey() for file, _ in files])

    def count_sites(self, files: Sequence[tuple[SiteFile, str | None]]) -> list[Census]:
        """Read the files here; nodes do not matter."""
        return [census(file) for file, _ in files]

    def pool(self, sites: Sequence[Site]) -> Callable[[], FloatArray]:
        """Read the files here once more."""
        return Rows(np.concatenate([site.file.read().rows for site in sites]))

    def evaluate(self, work: Callable[..., Any], *arguments: Any, listener: Listener) -> Any:
        """Call ``work`` here."""
        with computing_on(self.device):
            return work(*arguments, listener=listener)
