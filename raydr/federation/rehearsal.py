"""Rehearsals: estimate what a run will send and release, with the run's own accounting, before it starts.

A rehearsal is a :class:`~raydr.federation.federation.Federation` whose clients have sizes and no rows. The code of a
run decides who takes part, who drops out and who is asked again. It also decides how large a message is and what it
costs in privacy. Replies have the shapes and types that their kinds declare, and take no memory.

Replies contain zeros, unless later steps depend on their content. One example is the number of requests needed to find
extremes. Then a sample of all rows answers for every client (:meth:`Rehearsal.by_sample`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn, TypeVar, cast

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array, IntArray, shaped
from raydr.federation.agreement import HandOutRequest, OpenRequests, TrustRequest
from raydr.federation.client import Client
from raydr.federation.context import Context
from raydr.federation.enrolment import Enrol, Enrolment
from raydr.federation.exchange import Exchange
from raydr.federation.failures import Failure, Kind
from raydr.federation.federation import Federation
from raydr.federation.gate import Gate, message_of
from raydr.federation.host import follow, protection_of
from raydr.federation.messages import Range, Reply, Request, declared_ranges
from raydr.federation.pads import pad
from raydr.federation.ring import RingSum, fraction_bits
from raydr.federation.secure import Prepared
from raydr.federation.simulated.faults import CrashMoment, FaultPlan
from raydr.federation.sums import Total
from raydr.federation.wire import (
    Answer,
    Answered,
    Call,
    PartialSum,
    SumCall,
    asked_at,
    by_protection,
    summand_bytes,
)
from raydr.journal import Journal
from raydr.privacy.ledger import Public
from raydr.privacy.policy import Message, Refusal, SitePolicy
from raydr.privacy.secrets import Secret
from raydr.robust import RobustRule

R = TypeVar("R", bound=Reply)
C = TypeVar("C", bound=Call)


@dataclass(kw_only=True)
class RehearsalClients:
    """Clients with given sizes that compute nothing.

    Attributes
    ----------
    sizes : tuple of int
        Rows of each client, in client order.
    sample : (rows, features) array
        At least one row; it stands for all clients' rows if a reply's content matters.
    homes : sequence of tuples of int
        Clients that share a process, and so its crashes.
    seed : int
        The run's seed.
    faults : FaultPlan
        Simulated faults.
    reserve : (rows, features) array or None
        Rows that clients know and the server does not.
    classes : (rows,) int64 or None
        Classes of the sample's rows, if a client part needs them.
    targets : (rows,) float64 or None
        Labels of the sample's rows as numbers, if labels steer.
    policies : sequence of SitePolicy
        Policy of each client's site; none if everything may leave.

    Attributes
    ----------
    asked : dict of site to Asked
        What the policy of each site means for the messages so far. A rehearsal continues after a refusal.
    """

    sizes: tuple[int, ...]
    sample: FloatArray
    homes: Sequence[tuple[int, ...]]
    seed: int = 0
    faults: FaultPlan = field(default_factory=FaultPlan)
    reserve: FloatArray | None = None
    classes: Int64Array | None = None
    targets: Float64Array | None = None
    policies: Sequence[SitePolicy] = ()
    asked: dict[str, Asked] = field(default_factory=dict, repr=False)
    _gates: dict[tuple[Any, ...], Gate] = field(default_factory=dict, repr=False)
    _dying: set[tuple[int, ...]] = field(default_factory=set, repr=False)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Restore the sample as it was read."""
        secret = Secret.drawn()
        self.everybody = Client(
            index=0,
            rows=self.sample,
            seed=self.seed,
            agreed=secret,
            reserve=self.reserve,
            classes=self.classes,
            targets=self.targets,
        )
        self._dying.clear()

    def ask(self, call: Call) -> list[Answer]:
        """Return a declared reply, or a failure, for each client asked."""
        self._ask_policies(call)
        failed = self._failures(call)
        # One client stands for all, so all have the same secret from the start.
        if type(call.request).sets_state and not isinstance(
            call.request, (HandOutRequest, OpenRequests, TrustRequest)
        ):
            follow(self.everybody, call.request_for(call.clients[0]))
        return [failed.get(client) or self._answered(client, call) for client in call.clients]

    def sum(self, call: SumCall) -> Iterator[PartialSum]:
        """Yield one partial sum with the clients that answer and no values."""
        self._ask_policies(call)
        failed = self._failures(call)
        clients = tuple(client for client in call.clients if client not in failed)
        first = call.request_for(call.clients[0])  # in a sum all declare the same
        size = summand_bytes(declared_ranges(type(first).reply, first, 0))
        requests = (first if first is call.request else call.request_for(client) for client in clients)
        sent = by_protection((protection_of(self.everybody, each), size) for each in requests)
        yield PartialSum(
            number=call.number,
            round=call.round,
            reply=type(call.request).reply if clients else None,
            clients=clients,
            weight=len(clients),
            sent=sent,
            failures=tuple(failed.values()),
        )

    def compute(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> NoReturn:
        """Raise TypeError: a rehearsal computes nothing."""
        raise TypeError("a rehearsal does not run the server's work")

    def share(self, values: Iterable[Any]) -> NoReturn:
        """Raise TypeError, because only the server's work reads shared values."""
        raise TypeError("a rehearsal does not run the server's work")

    def machines(self) -> int:
        """Return 1."""
        return 1

    def _ask_policies(self, call: Call) -> None:
        """Note what each site's policy says to a call, as its host will."""
        if not self.policies:
            return
        if isinstance(call, SumCall) and call.masks is not None:  # a rehearsal makes no keys
            keys = np.arange(call.masks.keys.shape[0], dtype=np.int64)[:, None].view(np.uint8)
            call = replace(call, masks=replace(call.masks, keys=keys))
        seen: dict[tuple[Any, ...], tuple[Message, Refusal | None]] = {}
        records = self.everybody.covered_by
        for client in call.clients:
            site, rows, request = self.policies[client], self.sizes[client], call.request_for(client)
            alike = site.policies, site.modules, rows, request.mechanism
            if alike not in seen:
                message = message_of(call, request, rows, records)
                gate = self._gate(site, rows, covered=request.mechanism is not None)
                seen[alike] = message, gate.asked(message, call, request, records)
            self.asked.setdefault(site.site, Asked()).add(site, *seen[alike])

    def ask_budgets(self) -> None:
        """Note whether the run so far fits the budget of all runs of each site."""
        for site, rows in zip(self.policies, self.sizes, strict=bool(self.policies)):
            for covered in (True, False) if site.budgets else ():
                refusal = self._gate(site, rows, covered=covered).refusal_of_all_runs(site)
                if refusal is not None:
                    sentence = site.sentence(refusal, "this run")
                    self.asked.setdefault(site.site, Asked()).refused.setdefault(refusal.rule, sentence)

    @property
    def cost(self) -> tuple[tuple[float, float], ...]:
        """Cost of the run so far for each client whose site has a policy, as the site's host will charge it."""
        return tuple(
            max((self._gate(site, rows, covered=covered).cost for covered in (True, False)), key=sum)
            for site, rows in zip(self.policies, self.sizes, strict=bool(self.policies))
        )

    def _gate(self, site: SitePolicy, rows: int, *, covered: bool) -> Gate:
        """Return the gate of all sites that are alike and have noise, or none."""
        return self._gates.setdefault((site.policies, site.modules, rows, covered), Gate(site))

    def _answered(self, client: int, call: Call) -> Answered:
        request = call.request_for(client)
        if isinstance(request, Enrol):
            reply: Reply = Enrolment(self.sizes[client], self.sample.shape[1])
        elif type(request).reply.public is Public.APART:
            # Rows that are set apart are known in advance, and later steps depend on them.
            reply = type(request).client_part(self.everybody, request)
        else:
            reply = as_declared(request, self.sizes[client])
        return Answered(client, call.number, call.round, reply, protection_of(self.everybody, request))

    def _failures(self, call: Call) -> dict[int, Failure]:
        """Return who does not answer: faults affect first attempts in rounds, a crash all clients of a process."""
        struck = self.faults.strikes and call.in_rounds and call.attempt == 0
        if not struck and not self._dying:
            return {}
        failed: dict[int, Failure] = {}
        for home, asked in zip(self.homes, asked_at(call, self.homes), strict=True):
            if not asked:
                continue
            dropped, crashes = set[int](), set[CrashMoment | None]()
            for client in asked if struck else ():
                moment = self.faults.crash(client, call.round)
                if moment is not CrashMoment.BEFORE and self.faults.drops_out(self.seed, client, call.round):
                    dropped.add(client)
                    moment = (
                        None if moment is CrashMoment.DURING else moment
                    )  # a client that dropped out does not reach that point
                crashes.add(moment)
            if home in self._dying or crashes & {CrashMoment.BEFORE, CrashMoment.DURING}:
                self._dying.discard(home)
                failed |= {client: Failure(client, Kind.PROCESS_DIED, "simulated crash") for client in asked}
                continue
            if CrashMoment.AFTER in crashes:
                self._dying.add(home)
            for client in asked if struck else ():
                if client in dropped:
                    failed[client] = Failure(client, Kind.DROPPED_OUT, "simulated drop-out")
                elif self.faults.corruption(self.seed, client, call.round) is not None:
                    failed[client] = Failure(client, Kind.REFUSED, "simulated corruption")
        return failed


@dataclass
class Asked:
    """The answers of one site's policy to the messages of a run.

    Attributes
    ----------
    refused : dict of rule to str
        The first message that each rule does not allow, as a sentence.
    counts : dict of message's name to None
        Messages that may leave only if their numbers of records are large enough, which a plan cannot know.
    sent : dict of message's name to list of (Message, Refusal or None)
        All messages, each with the rule that does not allow it.
    """

    refused: dict[str, str] = field(default_factory=dict)
    counts: dict[str, None] = field(default_factory=dict)
    sent: dict[str, list[tuple[Message, Refusal | None]]] = field(default_factory=dict)

    def add(self, site: SitePolicy, message: Message, refusal: Refusal | None) -> None:
        """Add one message."""
        self.sent.setdefault(message.kind, []).append((message, refusal))
        if refusal is not None:
            self.refused.setdefault(refusal.rule, site.sentence(refusal, message.described))
        elif (
            message.counts
            and message.rows
            and not (message.claimed or message.stays)
            and site.least_count > 1
        ):
            self.counts[message.kind] = None


@dataclass
class Effort:
    """The cost of one stage of a run.

    Attributes
    ----------
    calls, messages : int
        Calls, and the total number of clients asked.
    bytes : int
        Payload in both directions.
    at_clients : float
        Floating-point operations of all clients together, which share the cores.
    at_server : float
        Floating-point operations of the server, on one core.
    """

    calls: int = 0
    messages: int = 0
    bytes: int = 0
    at_clients: float = 0.0
    at_server: float = 0.0


class RehearsedExchange(Exchange):
    """Calls to :class:`RehearsalClients`: counted by stage, with replies that are not computed.

    Parameters
    ----------
    rehearsed_clients : RehearsalClients
        The clients, and the transport.
    **parts
        See :class:`~raydr.federation.exchange.Exchange`.

    Attributes
    ----------
    efforts : dict of stage to Effort
        Cost of each stage.
    by_sample : bool
        Whether the sample answers for all clients in sums and means.
    """

    def __init__(self, rehearsed_clients: RehearsalClients, **parts: Any) -> None:
        super().__init__(**parts)
        self._clients = rehearsed_clients
        self.efforts: dict[str, Effort] = {}
        self.by_sample = False

    @property
    def effort(self) -> Effort:
        """Cost of the current stage so far."""
        return self.efforts.setdefault(self.meter.journal.stage_name, Effort())

    def deliver(self, call: C, send: Callable[[C], list[Failure]], *, droppable: bool) -> None:
        """Send a call and count its cost."""
        ledger = self.meter.ledger
        before = ledger.bytes("up") + ledger.bytes("down")
        super().deliver(call, send, droppable=droppable)
        self.effort.calls += 1
        self.effort.messages += len(call.clients)
        self.effort.bytes += ledger.bytes("up") + ledger.bytes("down") - before

    def unmask(self, prepared: Prepared, total: Total, droppable: bool) -> None:
        """Ask as in a run, and compute nothing."""
        prepared.reveal(total, lambda request, asked: self.relayed(request, asked, droppable))

    def padded(self, total: Total, call: SumCall) -> dict[str, IntArray]:
        """Return the sample's own reply for all clients, under the pads that it will remove."""
        request, everybody = call.request_for(call.clients[0]), self._clients.everybody
        reply = type(request).client_part(everybody, request)
        padded: dict[str, IntArray] = {}
        for name, declared in declared_ranges(type(reply), request, 0).items():
            bits = fraction_bits(declared.largest, call.total_weight, declared.bits)
            ring = RingSum(declared.shape, bits)
            ring.add(getattr(reply, name), call.total_weight)
            for client in call.clients:
                into = ring.total
                into += pad(everybody.shared, call.number, client, name, declared.shape)
            padded[name] = ring.total
        return padded

    def decoded(self, total: Total, call: SumCall, mean: bool) -> Reply:
        """Return a sum of the declared shape, or of the sample's reply."""
        if not total.clients:
            return total.decoded(call)  # which raises
        if not self.by_sample:
            return as_declared(call.request_for(call.clients[0]), 0, len(total.clients))
        return self._sampled(call.request_for(call.clients[0]), 1 if mean else len(total.clients))

    def combined(self, replies: Sequence[R], rule: RobustRule, request: Request[R]) -> R:
        """Return a robust mean of the declared shape, or the sample's reply."""
        reply = self._sampled(request, 1) if self.by_sample else as_declared(request, 0, len(replies))
        return cast(R, reply)

    def _sampled(self, request: Request[Any], times: int) -> Reply:
        """Return the sample's own reply, multiplied by ``times``, in float64."""
        reply = type(request).client_part(self._clients.everybody, request)
        fields = {name: np.multiply(value, float(times)) for name, value in vars(reply).items()}
        return type(reply)(**fields)


class Rehearsal(Federation):
    """A federation with :class:`RehearsalClients`; see the module.

    Parameters
    ----------
    clients : RehearsalClients
        Its clients.
    context : Context
        Context of the run.
    journal : Journal, optional
        Its current stage is the one to which efforts are added.

    Attributes
    ----------
    guesses : dict of message type's name to str
        Messages whose size depends on results of the run, and what was assumed.
    """

    _exchange: RehearsedExchange

    def __init__(self, clients: RehearsalClients, context: Context, journal: Journal | None = None) -> None:
        self.guesses: dict[str, str] = {}
        super().__init__(
            clients,
            len(clients.sizes),
            context,
            journal=journal,
            exchange=partial(RehearsedExchange, clients),
        )

    @property
    def efforts(self) -> dict[str, Effort]:
        """Cost of each stage; operations only if the method states them (:meth:`add_operations`)."""
        return self._exchange.efforts

    def add_operations(self, *, at_clients: float = 0.0, at_server: float = 0.0) -> None:
        """Add floating-point operations to the current stage: of all clients together, and of the server."""
        self._exchange.effort.at_clients += at_clients
        self._exchange.effort.at_server += at_server

    def guess(self, why: str, *kinds: type[Reply] | type[Request[Any]]) -> None:
        """Note that the size of these messages is assumed, and why."""
        self.guesses |= {kind.__name__: why for kind in kinds}

    @contextmanager
    def by_sample(self) -> Iterator[None]:
        """Let the sample answer for all clients in sums and means inside a ``with`` block."""
        before, self._exchange.by_sample = self._exchange.by_sample, True
        try:
            yield
        finally:
            self._exchange.by_sample = before


def as_declared(request: Request[Any], rows: int, sealed_by: int | None = None) -> Reply:
    """Return zeros in the shape of a client's reply; sealed fields for ``sealed_by`` clients at once."""
    kind = type(request).reply
    ranges = declared_ranges(kind, request, rows)
    fields = {name: _zeros(declared, sealed_by) for name, declared in ranges.items()}
    return kind(**fields)


def _zeros(declared: Range, sealed_by: int | None) -> Any:
    if declared.sealed and sealed_by is not None:
        return shaped((sealed_by, *declared.shape), declared.dtype)
    return shaped(declared.shape, declared.dtype) if declared.shape else 0.0
