"""A site's own ledger: every message that it received and sent, and what they cost, as its host sees them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raydr.federation import ClientHost, Reply, Request
from raydr.federation.gate import Gate, message_of
from raydr.federation.messages import payload_bytes
from raydr.federation.meter import Meter
from raydr.federation.wire import Answered, Call, PartialSum, Sent, SumCall
from raydr.journal import Journal
from raydr.privacy.ledger import Granularity, Ledger, read_entries
from raydr.privacy.policy import Policy, SitePolicy

_NO_LIMIT = 1e300
"""An epsilon that no run reaches, so that the gate that counts the cost refuses nothing."""


def _counting(delta: float) -> Gate:
    """Return a gate that counts the cost of a run and refuses nothing."""
    return Gate(SitePolicy((Policy(epsilon=_NO_LIMIT, delta=delta),)), keeps_record=False)


@dataclass
class SiteLedger:
    """Messages of one site, number ``client`` among the sites, in one run."""

    client: int
    _meter: Meter = field(default_factory=lambda: Meter(Journal()))
    _cost: Gate = field(default_factory=lambda: _counting(Policy().delta))

    def begin(self, policy: SitePolicy) -> None:
        """Count the cost at the delta of the site's policy, from now on."""
        delta = min((each.delta for each in policy.policies), default=Policy().delta)
        before, self._cost = self._cost, _counting(delta)
        self._cost.recall(before.noted())

    def written_down(self) -> dict[str, Any]:
        """Return the ledger as lists and mappings of text and numbers."""
        return {
            "entries": json.dumps(self._meter.ledger.as_list()),
            "delta": self._delta,
            "cost": self._cost.noted(),
        }

    def read_again(self, notes: Mapping[str, Any]) -> None:
        """Go on from a ledger that an earlier process has written down."""
        self._meter, self._cost = Meter(Journal()), _counting(notes["delta"])
        for entry in read_entries(json.loads(notes["entries"])):
            self._meter.ledger.record(entry)
        self._cost.recall(notes["cost"])

    @property
    def _delta(self) -> float:
        return self._cost.site.policies[0].delta

    @property
    def content(self) -> Ledger:
        """The messages so far, with the epsilon of those that noise covers."""
        ledger = self._meter.ledger
        ledger.charges = self._cost.charges
        return ledger.settled(self._delta)

    def received(self, request: Request[Any]) -> None:
        """Add a request."""
        self._meter.sent(request, (self.client,))

    def sent(self, reply: Reply, seen_by: str, protection: Any = None) -> None:
        """Add a reply that the server reads."""
        kind = type(reply)
        self._meter.received(kind, (Sent(protection, 1, payload_bytes(reply)),), seen_by, kind.granularity)

    def answered(self, answer: Answered, call: Call, host: ClientHost) -> None:
        """Add an answer of a client part."""
        self.sent(answer.reply, "server", answer.protection)
        self._meter.fixed([(answer.reply, call.request_for(self.client), answer.protection)])
        self._charge(call, host)

    def added(self, part: PartialSum, call: SumCall, host: ClientHost) -> None:
        """Add a summand."""
        assert part.reply is not None
        learns = "sums what each client sends" if call.masks is None else "learns only the sum"
        self._meter.received(
            part.reply,
            part.sent,
            f"server, which {learns}",
            Granularity.AGGREGATE,
            secure=call.masks is not None,
        )
        self._charge(call, host)

    def _charge(self, call: Call, host: ClientHost) -> None:
        client, request = host.client(self.client), call.request_for(self.client)
        message = message_of(call, request, client.rows.shape[0], client.covered_by)
        self._cost.asked(message, call, request, client.covered_by)
