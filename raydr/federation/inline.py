"""The federation in this process: for debugging, for tests, and as the reference that Ray must equal to the bit."""

from __future__ import annotations

from dataclasses import dataclass, field

from raydr.federation.failures import Failure, Kind
from raydr.federation.faults import SimulatedCrashError
from raydr.federation.host import Answer, Call, ClientHost, PartialSum, SumCall


@dataclass
class InlineTransport:
    """Hosts in this process, called one after the other.

    One host for each client isolates simulated crashes as far as separate processes do; one host for all is faster.
    """

    hosts: list[ClientHost]
    history: list[Call] = field(default_factory=list)

    def reset(self) -> None:
        """Return every client to its partition as it was read."""
        self.history.clear()
        for host in self.hosts:
            host.restore(())

    def ask(self, call: Call) -> list[Answer]:
        """One answer for each client asked."""
        answers: list[Answer] = []
        for host in self.hosts:
            asked = _asked(host, call)
            try:
                answers += host.ask(call) if asked else []
            except SimulatedCrashError:
                answers += self._restart(host, asked)
        if type(call.request).sets_state:
            self.history.append(call)
        return answers

    def sum(self, call: SumCall) -> list[PartialSum]:
        """Partial sums that together hold every client asked once."""
        parts = []
        for host in self.hosts:
            asked = _asked(host, call)
            try:
                parts += [host.sum(call)] if asked else []
            except SimulatedCrashError:
                failures = tuple(self._restart(host, asked))
                parts.append(PartialSum(call.number, call.round, None, {}, (), 0, 0, failures))
        return parts

    def _restart(self, host: ClientHost, asked: list[int]) -> list[Failure]:
        host.restore(self.history)
        return [Failure(client, Kind.PROCESS_DIED, "simulated crash") for client in asked]


def _asked(host: ClientHost, call: Call) -> list[int]:
    here = {seat.index for seat in host.seats}
    return [client for client in call.clients if client in here]
