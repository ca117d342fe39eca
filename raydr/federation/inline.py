"""The federation in this process: for debugging, for tests, and as the reference that Ray must equal to the bit."""

from __future__ import annotations

from dataclasses import dataclass

from raydr.federation.host import Answer, Call, ClientHost, PartialSum, SumCall


@dataclass(frozen=True)
class InlineTransport:
    """One host of all clients, called directly."""

    host: ClientHost

    def ask(self, call: Call) -> list[Answer]:
        """One answer per client, in client order."""
        return self.host.ask(call)

    def sum(self, call: SumCall) -> list[PartialSum]:
        """The sum over all clients, as the one partial sum."""
        return [self.host.sum(call)]
