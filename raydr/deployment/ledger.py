"""A site's own ledger: every message that it received and sent, and what they cost, as its host sees them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from raydr.federation import ClientHost, Reply
from raydr.federation.codec import encoded_bytes
from raydr.federation.gate import Gate, message_of
from raydr.federation.meter import Meter
from raydr.federation.wire import Answered, Call, PartialSum, Sent, SumCall
from raydr.journal import Journal
from raydr.privacy.accounting import Charge, Charges
from raydr.privacy.ledger import Entry, Granularity, Ledger, read_entries
from raydr.privacy.mechanism import mechanism_of
from raydr.privacy.policy import Policy, SitePolicy

_NO_LIMIT = 1e300
"""An epsilon that no run reaches, so that the gate that counts the cost refuses nothing."""


def _counting(delta: float) -> Gate:
    """Return a gate that counts the cost of a run and refuses nothing."""
    return Gate(SitePolicy((Policy(epsilon=_NO_LIMIT, delta=delta),)), keeps_record=False)


@dataclass
class SiteLedger:
    """Messages of one site, number ``client`` among the sites, in one run: in all its starts, if it was resumed."""

    client: int
    run: str = ""
    _meter: Meter = field(default_factory=lambda: Meter(Journal()))
    _cost: Gate = field(default_factory=lambda: _counting(Policy().delta))
    _earlier: dict[str, Any] = field(default_factory=dict)

    def begin(self, policy: SitePolicy) -> None:
        """Begin with the messages before a start, and count the cost at the delta of the site's policy."""
        if self.run:
            self._earlier = self.written_down()
        self.run, self._meter = "", Meter(Journal())
        self._cost = _counting(min((each.delta for each in policy.policies), default=Policy().delta))

    def start(self, run: str) -> None:
        """Go on with the messages of a run, after those of its earlier starts."""
        earlier, self._earlier, self.run = self._earlier, {}, run
        if earlier and earlier["run"] == run:
            before = self._meter.ledger
            self.read_again(earlier)
            for entry in before.entries.values():
                self._meter.ledger.record(entry)

    def written_down(self) -> dict[str, Any]:
        """Return the ledger as mappings of text and numbers."""
        ledger = self._meter.ledger
        return {
            "run": self.run,
            "entries": json.dumps(ledger.as_list()),
            "charges": json.dumps(charges_as_list(ledger.charges)),
            "delta": self.delta,
            "cost": self._cost.noted(),
            "earlier": self._earlier,
        }

    def read_again(self, notes: Mapping[str, Any]) -> None:
        """Go on from a ledger that an earlier process has written down."""
        self.run, self._earlier = notes["run"], dict(notes["earlier"])
        self._meter, self._cost = Meter(Journal()), _counting(notes["delta"])
        for entry in read_entries(json.loads(notes["entries"])):
            self._meter.ledger.record(entry)
        self._meter.ledger.charges = read_charges(json.loads(notes["charges"]))
        self._cost.recall(notes["cost"])

    @property
    def delta(self) -> float:
        """Delta at which the cost is counted."""
        return self._cost.site.policies[0].delta

    @property
    def content(self) -> Ledger:
        """The messages so far, with the epsilon of those that noise covers."""
        return self._meter.ledger.settled(self.delta)

    def received(self, call: Call) -> None:
        """Add the request of a call, and the masks that come with it."""
        seen_by = "each client its own part" if call.parts else "every client"
        masks = call.masks if isinstance(call, SumCall) else None
        for request in (call.request_for(self.client), *([] if masks is None else [masks.for_ledger()])):
            kind = type(request)
            self._meter.ledger.record(
                Entry(
                    kind=kind.__name__,
                    what=kind.what,
                    direction="down",
                    granularity=Granularity.AGGREGATE,
                    seen_by=seen_by if kind is type(call.request) else "every client",
                    count=1,
                    bytes=encoded_bytes(request),
                )
            )

    def sent(self, reply: Reply, seen_by: str, protection: Any = None) -> None:
        """Add a reply that the server reads."""
        kind = type(reply)
        self._meter.received(kind, (Sent(protection, 1, encoded_bytes(reply)),), seen_by, kind.granularity)

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
        """Add what the site's gate charges for an answer, which knows no mechanism."""
        client, request = host.client(self.client), call.request_for(self.client)
        message, before = (
            message_of(call, request, client.rows.shape[0], client.covered_by),
            self._cost.charges,
        )
        self._cost.asked(message, call, request, client.covered_by)
        for charge, count in self._cost.charges.items():
            if count != before.get(charge, 0):
                mechanism = request.covering(client.covered_by)
                self._meter.ledger.charge(replace(charge, mechanism=mechanism), count - before.get(charge, 0))


def charges_as_list(charges: Charges) -> list[dict[str, Any]]:
    """Return charges as plain values; :func:`read_charges` reads them back."""
    return [
        vars(charge)
        | {
            "mechanism": None if charge.mechanism is None else charge.mechanism.model_dump(mode="json"),
            "count": count,
        }
        for charge, count in charges.items()
    ]


def read_charges(described: Sequence[Mapping[str, Any]]) -> dict[Charge, int]:
    """Return the charges that :func:`charges_as_list` wrote."""
    found = {}
    for each in described:
        fields, mechanism = dict(each), each["mechanism"]
        count = fields.pop("count")
        fields["mechanism"] = None if mechanism is None else mechanism_of(mechanism)
        found[Charge(**fields)] = count
    return found
