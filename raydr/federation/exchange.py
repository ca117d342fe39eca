"""The exchange of one call: send it, repeat it, add up the replies, charge and record them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any, TypeVar, cast

import numpy as np

from raydr.arrays import IntArray, UInt8Array
from raydr.federation.accounts import Accounts, sharing_of
from raydr.federation.agreement import AdvertiseRequest, SignedKeyRequest, TrustRequest, agree
from raydr.federation.codec import encoded_bytes
from raydr.federation.context import Context
from raydr.federation.failures import ClientError, Decision, Failure, Kind
from raydr.federation.messages import Reply, Request, declared_ranges
from raydr.federation.meter import Meter
from raydr.federation.noise_streams import digest
from raydr.federation.releases import by_name
from raydr.federation.rounds import Rounds
from raydr.federation.secure import Prepared, SecureSumServer
from raydr.federation.streams import server_stream
from raydr.federation.sums import Total
from raydr.federation.transcript import Seen, Transcript
from raydr.federation.transport import Transport
from raydr.federation.wire import Answered, Call, PartialSum, SumCall, Weighting, by_protection
from raydr.privacy.accounting import Charge
from raydr.privacy.ledger import Granularity
from raydr.privacy.mechanism import Mechanism
from raydr.privacy.policy import PolicyError
from raydr.robust import RobustRule, coordinate_median
from raydr.threads import one_blas_thread

R = TypeVar("R", bound=Reply)
C = TypeVar("C", bound=Call)


class Exchange:
    """The calls of one federation.

    Parameters
    ----------
    transport, clients, context, released, transcript
        See :class:`~raydr.federation.federation.Federation`.
    meter : Meter
        Counts what is sent and received.
    rounds : Rounds
        Number of the current round, if one is running.

    Attributes
    ----------
    sizes : tuple of int
        Rows of each client, in client order; 0 until they have enrolled.
    accounts : Accounts
        Releases so far, and the budget.
    answered : tuple of int
        Clients whose replies are in the last aggregate, ascending; empty after one that failed.
    """

    def __init__(
        self,
        *,
        transport: Transport,
        clients: int,
        context: Context,
        meter: Meter,
        rounds: Rounds,
        released: Sequence[str] = (),
        transcript: Transcript | None = None,
    ) -> None:
        self.transport, self.context, self.meter = transport, context, meter
        self.rounds, self.transcript = rounds, transcript
        self.sizes: tuple[int, ...] = (0,) * clients
        self.answered: tuple[int, ...] = ()
        secure = context.secure
        self.accounts = Accounts(
            budget=context.budget,
            secure=secure is not None,
            released=by_name(released),
            write_down=rounds.write_down,
        )
        meter.ledger.charges = self.accounts.charges
        self._secure_sums = SecureSumServer(secure, context.run, context.seed) if secure is not None else None
        self._public_keys: dict[int, UInt8Array] = {}
        self._calls = 0

    def replies(
        self,
        request: Request[R],
        asked: tuple[int, ...],
        seen_by: str = "server",
        finest: Granularity | None = None,
        *,
        droppable: bool = False,
    ) -> dict[int, R]:
        """Return replies by client; ``finest`` overrides the granularity that their type declares."""
        call = Call(
            request=request,
            number=self._number(),
            round=self.rounds.number,
            attempt=0,
            clients=asked,
            in_rounds=self.rounds.running,
        )
        replies: dict[int, Reply] = {}
        protections: dict[int, Mechanism | None] = {}

        def send(attempt: Call) -> list[Failure]:
            got = self.transport.ask(attempt)
            failures = [answer for answer in got if isinstance(answer, Failure)]
            fresh = [
                answer
                for answer in got
                if isinstance(answer, Answered)
                and (answer.number, answer.round) == (call.number, call.round)
                and answer.client not in replies
            ]
            replies.update((answer.client, answer.reply) for answer in fresh)
            protections.update((answer.client, answer.protection) for answer in fresh)
            if fresh:
                kind = type(fresh[0].reply)
                sizes = [encoded_bytes(answer.reply) for answer in fresh]
                sent = by_protection(
                    (answer.protection, size) for answer, size in zip(fresh, sizes, strict=True)
                )
                self.meter.received(kind, sent, seen_by, finest or kind.granularity)
                self.meter.arrived(
                    kind, ((answer.client, size) for answer, size in zip(fresh, sizes, strict=True))
                )
                for answer in fresh if not (kind.stays or kind.forwarded) else ():
                    own = call.request_for(answer.client)
                    self._record(call, own, answer.client, answer.reply, answer.protection)
            return failures + _missing(attempt, replies, failures)

        due = self.accounts.afford(call, self.sizes, self.meter.ledger)
        self.deliver(call, send, droppable=droppable)
        charge = self.accounts.settle(
            due, self.meter.ledger, len(replies), lambda: digest(dict(sorted(replies.items())))
        )
        self._note(call, charge, replies)
        self.meter.fixed(
            (reply, call.request_for(client), protections[client])
            for client, reply in sorted(replies.items())
        )
        return cast(dict[int, R], replies)

    def aggregate(self, request: Request[R], weighting: Weighting, *, mean: bool = False) -> R:
        """Return the sum of the replies, or their mean over the weight of those that answered."""
        if type(request).padded:
            raise TypeError(f"{type(request).__name__} is padded: the server cannot read its sum")
        call, total = self.total(request, weighting)
        learnt = self.decoded(total, call, mean)
        self._record(call, request, None, learnt, total.protection)
        return cast(R, learnt)

    def total(self, request: Request[R], weighting: Weighting) -> tuple[SumCall, Total]:
        """Return a call for a sum, and the sum of the replies."""
        self.answered = ()
        total_weight = sum(self.sizes) if weighting == "rows" else len(self._with_weight(weighting))
        cohort = self.cohort(weighting)
        droppable = self.rounds.running and weighting != "sum"
        lost = self.context.policy.most_lost(len(cohort)) if droppable else 0
        sizes = {client: self.sizes[client] for client in cohort}
        call = SumCall(
            request=request,
            number=self._number(),
            round=self.rounds.number,
            attempt=0,
            clients=cohort,
            in_rounds=self.rounds.running,
            weighting=weighting,
            total_weight=total_weight,
            sharing=sharing_of(
                request, sizes, weighting, self.context.budget.colluding, lost, self.context.start
            ),
        )
        due = self.accounts.afford(call, self.sizes, self.meter.ledger)
        prepared = self._prepared(call, droppable)
        if prepared is not None:
            call = replace(call, masks=prepared.masks, clients=tuple(sorted(prepared.shared)))
        total = Total()

        def send(attempt: SumCall) -> list[Failure]:
            failures: list[Failure] = []
            for part in self.transport.sum(attempt):
                failures += part.failures
                late = (part.number, part.round) != (call.number, call.round)
                if part.reply is None or late or not total.clients.isdisjoint(part.clients):
                    continue
                total.add(part)
                learns = "learns only the sum" if prepared is not None else "sums what each client sends"
                self.meter.received(
                    part.reply,
                    part.sent,
                    f"server, which {learns}",
                    part.reply.granularity,
                    secure=prepared is not None,
                )
                # In a sum, all clients send equally much.
                each = sum(sent.bytes for sent in part.sent) / max(1, len(part.clients))
                self.meter.arrived(part.reply, ((client, each) for client in part.clients))
                if prepared is None:
                    self._record_summand(call, part)
            return failures + _missing(attempt, total.clients, failures)

        self.deliver(call, send, droppable=droppable)
        self.context.policy.require_quorum(len(total.clients), len(cohort))
        if prepared is not None:
            self.unmask(prepared, total, droppable)
        charge = self.accounts.settle(
            due, self.meter.ledger, len(total.clients), lambda: digest(total.totals)
        )
        self._note(call, charge, total.clients)
        self.answered = tuple(sorted(total.clients))
        return call, total

    def agree(self, founder: int, clients: int) -> None:
        """Let the first ``clients`` clients agree on a secret; see :meth:`Federation.agree`."""
        agree(self._advertised(clients), founder, self.relayed)

    def _advertised(self, clients: int) -> dict[int, UInt8Array]:
        """Return the public keys of the first ``clients`` clients, requested once."""
        if len(self._public_keys) < clients:
            everyone = tuple(range(clients))
            request = SignedKeyRequest() if self.context.signed_keys else AdvertiseRequest()
            replies = self.relayed(request, everyone)
            self._public_keys = {client: reply.key for client, reply in replies.items()}
            if self.context.signed_keys:
                keys, signatures = (
                    np.stack([getattr(replies[client], name) for client in everyone])
                    for name in ("key", "signature")
                )
                self.relayed(TrustRequest(keys, signatures), everyone)
        return self._public_keys

    def _note(self, call: Call, charge: Charge | None, answered: Iterable[int]) -> None:
        """Record in the transcript what the clients that answered did."""
        if self.transcript is not None:
            self.transcript.note(replace(call, clients=tuple(sorted(answered))), charge, self.accounts)

    def _prepared(self, call: SumCall, droppable: bool) -> Prepared | None:
        """Let clients prepare a secure sum, if sums are secure."""
        if self._secure_sums is None:
            return None
        prepared = self._secure_sums.prepared(
            call.clients,
            self._advertised(len(self.sizes)),
            lambda request, asked: self.relayed(request, asked, droppable),
        )
        self.meter.sent(prepared.masks.for_ledger(), tuple(sorted(prepared.shared)))
        return prepared

    def relayed(
        self, request: Request[Any], asked: tuple[int, ...], droppable: bool = False
    ) -> dict[int, Any]:
        """Return replies that the server forwards between clients; simulated faults do not affect them."""
        in_rounds, self.rounds.running = self.rounds.running, False
        try:
            return self.replies(request, asked, "server, which forwards it", droppable=droppable)
        finally:
            self.rounds.running = in_rounds

    def unmask(self, prepared: Prepared, total: Total, droppable: bool) -> None:
        """Remove the masks from a secure sum."""
        prepared.unmask(total, lambda request, asked: self.relayed(request, asked, droppable))

    def padded(self, total: Total, call: SumCall) -> dict[str, IntArray]:
        """Return the padded sum as the clients receive it."""
        return total.totals

    def decoded(self, total: Total, call: SumCall, mean: bool) -> Reply:
        """Return what the method learns from a sum."""
        return total.decoded(call, total.weight if mean else 1)

    def combined(self, replies: Sequence[R], rule: RobustRule, request: Request[R]) -> R:
        """Return what the method learns from replies that a robust rule combines."""
        with one_blas_thread():
            return combined(replies, rule, request)

    def cohort(self, weighting: Weighting) -> tuple[int, ...]:
        """Return the clients with a non-zero weight; for a mean in a round, those that take part."""
        clients = self._with_weight(weighting)
        if not self.rounds.running or weighting == "sum" or self.context.participation == 1.0:
            return clients
        count = max(1, round(self.context.participation * len(clients)))
        drawn = server_stream(self.context.seed, self.rounds.number, "participation").choice(
            len(clients), count, replace=False
        )
        return tuple(clients[index] for index in np.sort(drawn))

    def deliver(self, call: C, send: Callable[[C], list[Failure]], *, droppable: bool) -> None:
        """Send a call, and send it again to the clients that the policy retries."""
        attempt = 0
        pending = call.clients
        while pending:
            self.meter.sent(call.request, pending)
            failures = send(replace(call, clients=pending, attempt=attempt))
            self.meter.end_call()
            decided = [
                (failure, self.context.policy.decide(failure, attempt, droppable=droppable))
                for failure in failures
            ]
            self.meter.decided(call, attempt, decided)
            lost = [failure for failure, decision in decided if decision is Decision.GIVE_UP]
            barred = next((failure for failure in lost if failure.kind is Kind.POLICY), None)
            if barred is not None:
                raise PolicyError(_policy_message(call, barred))
            if lost:
                raise ClientError(_failure_message(call, lost))
            pending = tuple(
                sorted(failure.client for failure, decision in decided if decision is Decision.RETRY)
            )
            attempt += 1

    def _with_weight(self, weighting: Weighting) -> tuple[int, ...]:
        """Return the clients with a non-zero weight."""
        clients = range(len(self.sizes))
        return tuple(clients if weighting == "sum" else compress(clients, self.sizes))

    def _record(
        self,
        call: Call,
        request: Request[Any],
        client: int | None,
        reply: Reply,
        protection: Mechanism | None,
    ) -> None:
        """Record in the transcript what the server sees of one client, or of a sum."""
        if self.transcript is not None:
            self.transcript.add(
                Seen(
                    number=call.number,
                    round=call.round,
                    request=request,
                    client=client,
                    reply=reply,
                    protection=protection,
                )
            )

    def _record_summand(self, call: SumCall, part: PartialSum) -> None:
        """Record one client's summand, which a deployed server receives if sums are not secure."""
        if self.transcript is None or len(part.clients) != 1 or type(call.request).padded:
            return
        client, alone = part.clients[0], Total()
        alone.add(part)
        reply = alone.decoded(call, max(1, part.weight))
        protection = part.sent[0].protection if part.sent else None
        self._record(call, call.request_for(client), client, reply, protection)

    def _number(self) -> int:
        self._calls += 1
        return self._calls


def combined(replies: Sequence[R], rule: RobustRule, request: Request[R]) -> R:
    """Return the reply with arrays combined by the rule, and numbers or separate entries by their median."""
    fields: dict[str, Any] = {}
    declared = declared_ranges(type(replies[0]), request, 0)
    for name in vars(replies[0]):
        if declared[name].sealed:
            fields[name] = np.stack([getattr(reply, name) for reply in replies])
            continue
        values = np.stack([np.asarray(getattr(reply, name), np.float64) for reply in replies])
        if not values.size:
            fields[name] = getattr(replies[0], name)
            continue
        if values.ndim > 1 and not declared[name].separate:
            fields[name] = rule.combine(values)
        else:
            median = coordinate_median(values)
            fields[name] = median if median.ndim else float(median)
    return type(replies[0])(**fields)


def _missing(call: Call, answered: Any, failures: Sequence[Failure]) -> list[Failure]:
    """Return failures for clients from which the transport returned nothing for this call."""
    failed = {failure.client for failure in failures}
    return [
        Failure(client, Kind.TIMED_OUT, "no answer to this call")
        for client in call.clients
        if client not in answered and client not in failed
    ]


def _policy_message(call: Call, failure: Failure) -> str:
    when = f"in round {call.round}" if call.round else "before the first round"
    return (
        f"{failure.reason.rstrip('.')}. The site sent nothing, and the run ended {when}. Change the scenario"
        " (`raydr plan` shows what each site allows), or ask the site to change its policy."
    )


def _failure_message(call: Call, lost: Sequence[Failure]) -> str:
    first = lost[0]
    others = f" {len(lost) - 1} more clients failed too." if len(lost) > 1 else ""
    reason = first.reason.rstrip(".")
    advice = "or set runtime.quorum below 1 if rounds can continue without some clients"
    if first.kind is Kind.UNTRUSTED_KEY:
        advice = "and start the run again"
    return (
        f"Client {first.client} did not answer {type(call.request).__name__} in round {call.round}: {first.kind},"
        f" {reason}.{others} Fix the cause, {advice}."
    )
