"""The federation as a method sees it: ask every client, or learn only a sum.

``ask`` returns one reply of each client, in client order. ``sum`` and ``mean`` return only the aggregate, added up in
the ring (:mod:`raydr.federation.ring`), so that results are identical bit for bit, however clients are packed into
processes. ``robust_mean`` returns only an aggregate too, but the server must see each reply. A
:class:`~raydr.federation.transport.Transport` carries the calls: in this process (:mod:`raydr.federation.inline`) or
through Ray actors.

``ask`` and ``sum`` need every client. Means inside rounds can continue without some clients, down to the policy's
quorum. The weights of the clients that answered are renormalised. If clients are lost at random and have equal
weights, the mean is unbiased. Weighted by rows it is a ratio of two unbiased sums, whose bias vanishes as the number
of clients grows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import Float64Array, FloatArray, Int64Array, UInt8Array
from raydr.errors import RunError
from raydr.federation.accounts import Accounts, sharing_of
from raydr.federation.agreement import AdvertiseRequest, agree
from raydr.federation.checkpoint import Checkpoint, History, LoopState
from raydr.federation.context import Context
from raydr.federation.enrolment import Enrol
from raydr.federation.failures import ClientError, Decision, Failure, Kind, QuorumError
from raydr.federation.messages import Reply, Request, declared_ranges, payload_bytes
from raydr.federation.meter import Meter
from raydr.federation.noise_streams import digest
from raydr.federation.releases import Released, by_name
from raydr.federation.secure import Prepared, Secretariat
from raydr.federation.streams import server_stream
from raydr.federation.sums import Total
from raydr.federation.transcript import Seen, Transcript
from raydr.federation.transport import Transport
from raydr.federation.wire import Answered, Call, PartialSum, SumCall, Weighting, by_protection
from raydr.journal import Charged, CheckpointTaken, Journal
from raydr.privacy.accounting import Charge
from raydr.privacy.ledger import Granularity, Ledger
from raydr.privacy.mechanism import Mechanism
from raydr.privacy.secrets import FOUNDER
from raydr.robust import RobustRule, coordinate_median
from raydr.threads import one_blas_thread

R = TypeVar("R", bound=Reply)
C = TypeVar("C", bound=Call)
Task = TypeVar("Task")
Result = TypeVar("Result")
State = dict[str, NDArray[Any]]

MASKED = "server, which learns only the sum"


class Federation:
    """All clients of a run.

    Parameters
    ----------
    transport : Transport
        Carries the calls.
    clients : int
        Number of clients, including those without rows.
    context : Context
        Settings that no round changes: seed, policy, participation, mechanism, public rows.
    journal : Journal, optional
        Receives stages, rounds, incidents and checkpoints.
    resume : Checkpoint, optional
        Checkpoint to continue from: loops of rounds restore their state and skip completed rounds.
    released : sequence of str, optional
        Lines of all charged releases before this start of the run.
    transcript : Transcript, optional
        Records what the server sees.

    Attributes
    ----------
    sizes : tuple of int
        Rows of each client, in client order.
    features : int
        Features of every row.
    round : int
        Rounds started so far.
    answered : tuple of int
        Clients whose replies are in the last sum, mean or robust mean, ascending; empty after one that failed.
    deviation : (features,) float64 or None
        Standard deviation of each feature, if sums have revealed it.
    """

    def __init__(
        self,
        transport: Transport,
        clients: int,
        context: Context,
        *,
        journal: Journal | None = None,
        resume: Checkpoint | None = None,
        released: Sequence[str] = (),
        transcript: Transcript | None = None,
    ) -> None:
        if resume is not None and (resume.run, resume.seed) != (context.run, context.seed):
            raise RunError(
                "the checkpoint belongs to another run: its scenario, seed, data or raydr version differs. Start"
                " the run again."
            )
        self._transport = transport
        self._meter = Meter(journal or Journal())
        self._public = context.public
        self._resume = resume
        self._transcript = transcript
        self._history = resume.history if resume is not None else History()
        self._loops: list[LoopState] = []
        self._calls = 0
        self._in_rounds = False
        secure = context.secure
        self._released = History.of(released)
        self._accounts = Accounts(
            budget=context.budget,
            secure=secure is not None,
            released=by_name(released),
            write_down=self._write_down_release,
        )
        self._meter.ledger.charges = self._accounts.charges
        self._secretariat = Secretariat(secure, context.run, context.seed) if secure is not None else None
        self._public_keys: dict[int, UInt8Array] = {}
        self.context = context
        self.clients = clients
        self.round = 0
        self.answered: tuple[int, ...] = ()
        self.deviation: Float64Array | None = None
        self.sizes: tuple[int, ...] = (0,) * clients
        transport.reset()
        enrolments = self.ask(Enrol())
        self.sizes = tuple(enrolment.rows for enrolment in enrolments)
        widths = sorted({enrolment.features for enrolment in enrolments})
        if len(widths) > 1:
            raise ClientError(f"clients have different numbers of features: {widths}")
        if not sum(self.sizes):
            raise ClientError("no client has any rows")
        self.features = widths[0]

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.context.seed

    @property
    def public(self) -> FloatArray | None:
        """Public rows (rows, features), in the scale of the clients' rows."""
        return self._public

    def rescale_public(self, rescaled: Callable[[FloatArray], FloatArray]) -> None:
        """Apply to the public rows what the clients applied to theirs."""
        if self._public is not None:
            self._public = rescaled(self._public)

    @property
    def rows(self) -> int:
        """Rows of all clients together."""
        return sum(self.sizes)

    @property
    def journal(self) -> Journal:
        """Receives stages, rounds, incidents and checkpoints."""
        return self._meter.journal

    @property
    def recorded(self) -> bool:
        """Whether requests are recorded, so that their arrays must not be changed afterwards."""
        return self._transcript is not None

    @property
    def ledger(self) -> Ledger:
        """Every message that crossed the boundary."""
        return self._meter.ledger

    def disclose_public(self, rows: FloatArray) -> None:
        """Use rows that clients disclosed as the public rows."""
        self._public = rows

    def keyed(self) -> None:
        """Note that all later replies describe rows under an isometry key."""
        self._meter.keyed = True

    def cover_records(self, mechanism: Mechanism) -> None:
        """Note that all clients' records carry noise from the start, so that the accountant charges it once."""
        self._accounts.records = mechanism

    def stream(self, purpose: str) -> np.random.Generator:
        """Return the server's random numbers for this round and purpose."""
        return server_stream(self.seed, self.round, purpose)

    def stage(self, name: str) -> AbstractContextManager[None]:
        """Time a stage of the method."""
        return self.journal.stage(name)

    def rounds(self, count: int, state: State) -> Iterator[int]:
        """Yield the numbers of ``count`` rounds, counted through the whole run, and journal each.

        Parameters
        ----------
        count : int
            Rounds of this loop.
        state : dict of name to array
            State that one round passes to the next. The loop body replaces its values and checkpoints save it. A
            resumed run restores it before the first round, and yields only the remaining rounds.
        """
        index, loop = len(self._loops), LoopState(0, self.round, dict(state))
        if self._resume is not None and index < len(self._resume.loops):
            loop = self._resume.loops[index]
            state.clear()
            state.update(loop.state)
            self.round = loop.round
            if index == len(self._resume.loops) - 1:
                charges = self.ledger.charges
                self._meter.ledger = self._resume.restored_ledger()
                self.ledger.charges = charges
        self._loops.append(loop)
        while not loop.ended and loop.done < count:
            self.round += 1
            self._meter.begin_round()
            self._in_rounds = True
            started = time.perf_counter()
            left = True
            try:
                yield self.round
                left = False
            finally:
                # This also runs if the method breaks out of its loop: that round is its last.
                self._in_rounds = False
                ended = self._meter.end_round(self.round, time.perf_counter() - started)
                self._history = self._history.then(ended.line)
                loop = LoopState(loop.done + 1, self.round, dict(state), left or loop.done + 1 == count)
                self._loops[index] = loop
            self.journal.progress(loop.done, count)
            if self.context.checkpoint_every and (
                loop.done % self.context.checkpoint_every == 0 or loop.ended
            ):
                self.journal.tell(CheckpointTaken(self.round, self._checkpoint().to_bytes()))

    def report(self, *, objective: float | None, moved: float | None = None) -> None:
        """Record the objective of this round, and the squared length of the method's step if it has one."""
        self._meter.note(objective, moved)

    def ask(self, request: Request[R]) -> list[R]:
        """Return one reply of each client, in client order.

        Raises
        ------
        ClientError
            If a client does not answer after all retries.
        """
        replies = self._replies(request, tuple(range(self.clients)), "server")
        return [replies[client] for client in range(self.clients)]

    def gather(self, request: Request[R]) -> dict[int, R]:
        """Return replies by client, in client order; in rounds, of clients with rows that take part and answer.

        Raises
        ------
        ClientError, QuorumError
            If a required client is lost, or too many clients are.
        """
        cohort = self._cohort("clients")
        replies = self._replies(request, cohort, "server", droppable=self._in_rounds)
        self.context.policy.require_quorum(len(replies), len(cohort))
        return {client: replies[client] for client in sorted(replies)}

    def sum(self, request: Request[R]) -> R:
        """Return the sum of all clients' replies, field by field; exact in the ring, rounded once to float64."""
        return self._aggregate(request, "sum")

    def padded_sum(
        self, request: Request[R], *, weights: Literal["clients", "rows"] = "clients"
    ) -> tuple[SumCall, dict[str, Int64Array]]:
        """Return the call for a padded sum and the sum in the ring, under the pads of all clients.

        The sum is over the clients with rows. The server cannot read it and returns it to the clients. Every client
        must answer.
        """
        if not type(request).padded:
            raise TypeError(f"{type(request).__name__} is not padded: ask for its sum")
        if self._in_rounds:
            raise TypeError(f"{type(request).__name__} is padded, and rounds may lose clients and their pads")
        call, total = self._total(request, weights)
        return call, self._padded(total, call)

    def mean(self, request: Request[R], *, weights: Literal["clients", "rows"] = "clients") -> R:
        """Return the mean reply of clients with rows; in rounds, of those that take part and answer.

        Parameters
        ----------
        request : Request
            Request to send.
        weights : {"clients", "rows"}
            Equal weights (P1's omega_p = 1/P), or weights by number of rows.

        Raises
        ------
        ClientError, QuorumError
            If a required client is lost, or too many clients are.
        """
        return self._aggregate(request, weights, mean=True)

    def robust_mean(self, request: Request[R], rule: RobustRule) -> R:
        """Return a mean that lying clients cannot move far, over the same clients as :meth:`mean`.

        The rule combines each array separately. Numbers, and arrays whose entries are independent numbers, are
        combined by their median under every rule. No rule bounds a single number better, and a norm over such an array
        has no meaning. All clients have the same weight, because a weight is itself a claim: a client that claims the
        most rows would outweigh the others.

        Parameters
        ----------
        request : Request
            Request to send. The server sees each reply on its own, and the ledger states this.
        rule : RobustRule
            How to combine the replies.

        Raises
        ------
        ScenarioError
            If fewer clients take part than the rule needs.
        ClientError, QuorumError
            If a required client is lost, or too many clients are for the policy or the rule.
        """
        cohort = self._cohort("clients")
        rule.require(len(cohort))
        replies = self._replies(
            request, cohort, "server, one client at a time", Granularity.PER_CLIENT, droppable=self._in_rounds
        )
        self.context.policy.require_quorum(len(replies), len(cohort))
        if len(replies) < rule.least_clients:
            raise QuorumError(
                f"only {len(replies)} of {len(cohort)} clients answered, and method.aggregation {rule.kind} needs"
                f" {rule.least_clients}: raise runtime.quorum, or look at why the others failed."
            )
        self.answered = tuple(sorted(replies))
        return self._combined([replies[client] for client in self.answered], rule, request)

    def compute(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Yield the results of ``work`` on each task, in order: the server's own work, on all cores.

        Parameters
        ----------
        work : callable
            A module-level function with one argument. It computes with one BLAS thread, so its results are identical
            bit for bit everywhere.
        tasks : sequence
            Its arguments.

        Raises
        ------
        RaydrError
            Any error that ``work`` raised.
        """
        self.journal.progress(0, len(tasks))
        for done, result in enumerate(self._transport.compute(work, tasks), 1):
            self.journal.progress(done, len(tasks))
            yield result

    def _replies(
        self,
        request: Request[R],
        asked: tuple[int, ...],
        seen_by: str,
        finest: Granularity | None = None,
        *,
        droppable: bool = False,
    ) -> dict[int, R]:
        """Return replies by client; ``finest`` overrides the granularity that their type declares."""
        call = Call(
            request=request,
            number=self._number(),
            round=self.round,
            attempt=0,
            clients=asked,
            in_rounds=self._in_rounds,
        )
        replies: dict[int, Reply] = {}
        protections: dict[int, Mechanism | None] = {}

        def send(attempt: Call) -> list[Failure]:
            got = self._transport.ask(attempt)
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
                sent = by_protection((answer.protection, payload_bytes(answer.reply)) for answer in fresh)
                self._meter.received(kind, sent, seen_by, finest or kind.granularity)
                if self._transcript is not None and not kind.stays:
                    for answer in fresh:
                        told = call.told(answer.client)
                        self._transcript.add(
                            Seen(
                                number=call.number,
                                round=call.round,
                                request=told,
                                client=answer.client,
                                reply=answer.reply,
                                protection=answer.protection,
                            )
                        )
            return failures + _missing(attempt, replies, failures)

        due = self._accounts.afford(call, self.sizes, self.ledger)
        self._deliver(call, send, droppable=droppable)
        charge = self._accounts.settle(
            due, self.ledger, len(replies), lambda: digest(dict(sorted(replies.items())))
        )
        self._note(call, charge, replies)
        self._meter.fixed(
            (reply, call.told(client), protections[client]) for client, reply in sorted(replies.items())
        )
        return cast(dict[int, R], replies)

    def _aggregate(self, request: Request[R], weighting: Weighting, *, mean: bool = False) -> R:
        if type(request).padded:
            raise TypeError(f"{type(request).__name__} is padded: the server cannot read its sum")
        call, total = self._total(request, weighting)
        learnt = self._decoded(total, call, mean)
        if self._transcript is not None:
            self._transcript.add(
                Seen(
                    number=call.number,
                    round=call.round,
                    request=request,
                    client=None,
                    reply=learnt,
                    protection=total.protection,
                )
            )
        return cast(R, learnt)

    def _total(self, request: Request[R], weighting: Weighting) -> tuple[SumCall, Total]:
        """Return a call for a sum, and the sum of the replies."""
        self.answered = ()
        total_weight = self.rows if weighting == "rows" else len(self._with_weight(weighting))
        cohort = self._cohort(weighting)
        droppable = self._in_rounds and weighting != "sum"
        lost = self.context.policy.most_lost(len(cohort)) if droppable else 0
        sizes = {client: self.sizes[client] for client in cohort}
        call = SumCall(
            request=request,
            number=self._number(),
            round=self.round,
            attempt=0,
            clients=cohort,
            in_rounds=self._in_rounds,
            weighting=weighting,
            total_weight=total_weight,
            sharing=sharing_of(
                request, sizes, weighting, self.context.budget.colluding, lost, self.context.start
            ),
        )
        due = self._accounts.afford(call, self.sizes, self.ledger)
        prepared = self._prepared(call, droppable)
        if prepared is not None:
            call = replace(call, masks=prepared.masks, clients=tuple(sorted(prepared.shared)))
        total = Total()

        def send(attempt: SumCall) -> list[Failure]:
            failures: list[Failure] = []
            for part in self._transport.sum(attempt):
                failures += part.failures
                late = (part.number, part.round) != (call.number, call.round)
                if part.reply is None or late or not total.clients.isdisjoint(part.clients):
                    continue
                total.add(part)
                seen_by = MASKED if prepared is not None else "server, which sums what each client sends"
                self._meter.received(
                    part.reply, part.sent, seen_by, part.reply.granularity, secure=prepared is not None
                )
                if self._transcript is not None and prepared is None:
                    self._write_down(self._transcript, call, part)
            return failures + _missing(attempt, total.clients, failures)

        self._deliver(call, send, droppable=droppable)
        self.context.policy.require_quorum(len(total.clients), len(cohort))
        if prepared is not None:
            self._unmask(prepared, total, droppable)
        charge = self._accounts.settle(due, self.ledger, len(total.clients), lambda: digest(total.totals))
        self._note(call, charge, total.clients)
        self.answered = tuple(sorted(total.clients))
        return call, total

    def agree(self, *, founder: int = FOUNDER, clients: int | None = None) -> None:
        """Let clients agree on a secret that the server forwards and cannot read.

        Parameters
        ----------
        founder : int
            The client that draws the secret and seals it for the others.
        clients : int, optional
            Number of clients that take part, from client 0; by default all. The transport must reach them.
        """
        keys = self._advertised(self.clients if clients is None else clients)
        agree(keys, founder, lambda request, asked: self._relayed(request, asked, droppable=False))

    def _advertised(self, clients: int) -> dict[int, UInt8Array]:
        """Return the public keys of the first ``clients`` clients, requested once."""
        if len(self._public_keys) < clients:
            replies = self._relayed(AdvertiseRequest(), tuple(range(clients)), droppable=False)
            self._public_keys = {client: reply.key for client, reply in replies.items()}
        return self._public_keys

    def _note(self, call: Call, charge: Charge | None, answered: Iterable[int]) -> None:
        """Record in the transcript what the clients that answered did."""
        if self._transcript is not None:
            self._transcript.note(replace(call, clients=tuple(sorted(answered))), charge, self._accounts)

    def _prepared(self, call: SumCall, droppable: bool) -> Prepared | None:
        """Let clients prepare a secure sum, if sums are secure."""
        if self._secretariat is None:
            return None
        prepared = self._secretariat.prepared(
            call.clients,
            call.number,
            call.round,
            self._advertised(self.clients),
            lambda request, asked: self._relayed(request, asked, droppable),
        )
        self._meter.sent(prepared.masks.told(), tuple(sorted(prepared.shared)))
        return prepared

    def _unmask(self, prepared: Prepared, total: Total, droppable: bool) -> None:
        prepared.unmask(total, lambda request, asked: self._relayed(request, asked, droppable))

    def _relayed(self, request: Request[Any], asked: tuple[int, ...], droppable: bool) -> dict[int, Any]:
        """Return replies that the server forwards between clients; simulated faults do not affect them."""
        in_rounds, self._in_rounds = self._in_rounds, False
        try:
            return self._replies(request, asked, "server, which forwards it", droppable=droppable)
        finally:
            self._in_rounds = in_rounds

    def _padded(self, total: Total, call: SumCall) -> dict[str, Int64Array]:
        """Return the padded sum as the clients receive it."""
        return total.totals

    def _write_down(self, transcript: Transcript, call: SumCall, part: PartialSum) -> None:
        """Record one client's summand, which a deployed server receives if sums are not secure."""
        if len(part.clients) != 1 or type(call.request).padded:
            return
        client, alone = part.clients[0], Total()
        alone.add(part)
        reply = alone.decoded(call, max(1, part.weight))
        protection = part.sent[0].protection if part.sent else None
        transcript.add(
            Seen(
                number=call.number,
                round=call.round,
                request=call.told(client),
                client=client,
                reply=reply,
                protection=protection,
            )
        )

    def _decoded(self, total: Total, call: SumCall, mean: bool) -> Reply:
        """Return what the method learns from a sum."""
        return total.decoded(call, total.weight if mean else 1)

    def _combined(self, replies: Sequence[R], rule: RobustRule, request: Request[R]) -> R:
        """Return what the method learns from replies that a robust rule combines."""
        with one_blas_thread():
            return _combined(replies, rule, request)

    def _with_weight(self, weighting: Weighting) -> tuple[int, ...]:
        """Return the clients with a non-zero weight."""
        return tuple(client for client, rows in enumerate(self.sizes) if rows or weighting == "sum")

    def _cohort(self, weighting: Weighting) -> tuple[int, ...]:
        """Return the clients with a non-zero weight; for a mean in a round, those that take part."""
        clients = self._with_weight(weighting)
        if not self._in_rounds or weighting == "sum" or self.context.participation == 1.0:
            return clients
        count = max(1, round(self.context.participation * len(clients)))
        drawn = self.stream("participation").choice(len(clients), count, replace=False)
        return tuple(clients[index] for index in np.sort(drawn))

    def _deliver(self, call: C, send: Callable[[C], list[Failure]], *, droppable: bool) -> None:
        """Send a call, and send it again to the clients that the policy retries."""
        attempt = 0
        pending = call.clients
        while pending:
            self._meter.sent(call.request, pending)
            failures = send(replace(call, clients=pending, attempt=attempt))
            decided = [
                (failure, self.context.policy.decide(failure, attempt, droppable=droppable))
                for failure in failures
            ]
            self._meter.decided(call, attempt, decided)
            lost = [failure for failure, decision in decided if decision is Decision.GIVE_UP]
            if lost:
                raise ClientError(_failure_message(call, lost))
            pending = tuple(
                sorted(failure.client for failure, decision in decided if decision is Decision.RETRY)
            )
            attempt += 1

    def _write_down_release(self, release: Released) -> None:
        self._released = self._released.then(release.line)
        self.journal.tell(Charged(release.line))

    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(
            run=self.context.run,
            seed=self.seed,
            loops=tuple(self._loops),
            ledger=tuple(self.ledger.entries.values()),
            history=self._history,
            released=self._released,
        )

    def _number(self) -> int:
        self._calls += 1
        return self._calls


def _combined(replies: Sequence[R], rule: RobustRule, request: Request[R]) -> R:
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


def _failure_message(call: Call, lost: Sequence[Failure]) -> str:
    first = lost[0]
    others = f" {len(lost) - 1} more clients failed too." if len(lost) > 1 else ""
    reason = first.reason.rstrip(".")
    return (
        f"Client {first.client} did not answer {type(call.request).__name__} in round {call.round}: {first.kind},"
        f" {reason}.{others} Fix the cause, or set runtime.quorum below 1 if rounds can continue without some"
        " clients."
    )
