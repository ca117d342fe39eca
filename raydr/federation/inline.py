"""The federation in this process: for debugging and tests, and the reference for Ray, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from raydr.federation.failures import Failure, Kind
from raydr.federation.host import ClientHost
from raydr.federation.simulated.faults import SimulatedCrashError
from raydr.federation.transport import WorkHere
from raydr.federation.wire import Answer, Answered, Call, PartialSum, SumCall, asked_at, history_at, remember

C = TypeVar("C", bound=Call)


@dataclass
class InlineTransport(WorkHere):
    """Hosts in this process, called one after the other.

    One host for each client isolates simulated crashes like separate processes; one host for all is faster.
    """

    hosts: list[ClientHost]
    history: list[Call] = field(default_factory=list)

    def reset(self) -> None:
        """Restore every client's partition as it was read."""
        self.history.clear()
        for host in self.hosts:
            host.restore(())

    def ask(self, call: Call) -> list[Answer]:
        """Return one answer for each client asked."""
        answers: list[Answer] = []
        for host, part in self._parts(call):
            try:
                answers += host.ask(part)
            except SimulatedCrashError:
                answers += self._restart(host, part)
        remember(self.history, call, (answer.client for answer in answers if isinstance(answer, Answered)))
        return answers

    def sum(self, call: SumCall) -> Iterator[PartialSum]:
        """Yield partial sums that together contain every client asked once."""
        for host, part in self._parts(call):
            try:
                partial = host.sum(part)
            except SimulatedCrashError:
                partial = PartialSum(
                    number=call.number, round=call.round, failures=tuple(self._restart(host, part))
                )
            remember(self.history, call, partial.clients)
            yield partial

    def _parts(self, call: C) -> list[tuple[ClientHost, C]]:
        """Return the hosts that a call concerns, each with the call to its own clients."""
        asked = asked_at(call, (host.clients for host in self.hosts))
        return [(host, call.cut(clients)) for host, clients in zip(self.hosts, asked, strict=True) if clients]

    def _restart(self, host: ClientHost, call: Call) -> list[Failure]:
        host.restore(history_at(self.history, host.clients))
        return [Failure(client, Kind.PROCESS_DIED, "simulated crash") for client in call.clients]
