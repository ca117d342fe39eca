"""The federation as a method sees it: ask every client, or learn only a sum.

``ask`` brings one reply per client, in client order; ``sum`` and ``mean`` bring the aggregate alone, added up in the
ring (:mod:`raydr.federation.ring`), so the same bits come back however clients are packed into processes.
``robust_mean`` stands between them: the method learns an aggregate alone, but the server had to look at each reply.
What carries the calls is a :class:`~raydr.federation.transport.Transport`: in this process
(:mod:`raydr.federation.inline`) or Ray's actors.

``ask`` and ``sum`` need every client. The means inside rounds can do without some, down to the policy's quorum; the
weights of those that answered are renormalised. Where clients are lost at random and weigh the same, that is unbiased;
weighted by rows it is a ratio of two unbiased sums, whose bias vanishes with the number of clients.
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

MASKED = "server, which learns the sum alone"


class Federation:
    """All clients of a run.

    Parameters
    ----------
    transport : Transport
        Carries the calls.
    clients : int
        Number of clients, those without rows included.
    context : Context
        What no round changes: seed, policy, participation, mechanism, public rows.
    journal : Journal, optional
        Told of stages, rounds, incidents and checkpoints.
    resume : Checkpoint, optional
        Where to go on: loops of rounds take up their saved state and skip what was done.
    released : sequence of str, optional
        What was written down of all charged releases before this start of the run.
    transcript : Transcript, optional
        Where to write down what the server sees.

    Attributes
    ----------
    sizes : tuple of int
        Rows of each client, in client order.
    features : int
        Features of every row.
    round : int
        Rounds begun so far.
    answered : tuple of int
        Clients whose replies are in the last sum, mean or robust mean, ascending; none after one that failed.
    deviation : (features,) float64 or None
        Standard deviation of each feature, if sums have told it.
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
                "the checkpoint is of another run: of another scenario, seed, data or version of raydr. Start the run"
                " anew."
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
            raise ClientError(f"clients hold rows of different width: {widths} features")
        if not sum(self.sizes):
            raise ClientError("no client holds a row")
        self.features = widths[0]

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.context.seed

    @property
    def public(self) -> FloatArray | None:
        """Rows (rows, features) that are nobody's secret, in the scale of the clients' own."""
        return self._public

    def rescale_public(self, rescaled: Callable[[FloatArray], FloatArray]) -> None:
        """Do to the public rows what the clients have been asked to do to their own."""
        if self._public is not None:
            self._public = rescaled(self._public)

    @property
    def rows(self) -> int:
        """Rows of all clients together."""
        return sum(self.sizes)

    @property
    def journal(self) -> Journal:
        """Told of stages, rounds, incidents and checkpoints."""
        return self._meter.journal

    @property
    def recorded(self) -> bool:
        """Whether what is asked is written down, so that nobody may write over it afterwards."""
        return self._transcript is not None

    @property
    def ledger(self) -> Ledger:
        """Every message that crossed the boundary."""
        return self._meter.ledger

    def disclose_public(self, rows: FloatArray) -> None:
        """Take rows that clients have told, and that are nobody's secret, for the public ones."""
        self._public = rows

    def keyed(self) -> None:
        """Take note that whatever clients tell from now on is of rows under an isometry key."""
        self._meter.keyed = True

    def cover_records(self, mechanism: Mechanism) -> None:
        """Take note that all clients' records carry noise for good, so that the accountant charges it once."""
        self._accounts.records = mechanism

    def stream(self, purpose: str) -> np.random.Generator:
        """Random numbers of the server for this round and purpose."""
        return server_stream(self.seed, self.round, purpose)

    def stage(self, name: str) -> AbstractContextManager[None]:
        """Time a stage of the method."""
        return self.journal.stage(name)

    def rounds(self, count: int, state: State) -> Iterator[int]:
        """Number ``count`` rounds, from 1 on through the whole run, and journal each.

        Parameters
        ----------
        count : int
            Rounds of this loop.
        state : dict of name to array
            What one round hands to the next. The loop body replaces its values; checkpoints save it; a resumed run
            fills it, before the first round, with what was saved, and yields only the rounds that remain.
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
                # Also where the method breaks out of its loop: that round is its last.
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
        """Note the method's objective for the present round, and the squared length of its step where it has one."""
        self._meter.note(objective, moved)

    def ask(self, request: Request[R]) -> list[R]:
        """One reply of each client, in client order.

        Raises
        ------
        ClientError
            If a client does not answer, whatever is tried.
        """
        replies = self._replies(request, tuple(range(self.clients)), "server")
        return [replies[client] for client in range(self.clients)]

    def gather(self, request: Request[R]) -> dict[int, R]:
        """Replies by client, in client order; in rounds, of those that have rows, take part and answer.

        Raises
        ------
        ClientError, QuorumError
            If a client is lost that cannot be done without, or too many are.
        """
        cohort = self._cohort("clients")
        replies = self._replies(request, cohort, "server", droppable=self._in_rounds)
        self.context.policy.require_quorum(len(replies), len(cohort))
        return {client: replies[client] for client in sorted(replies)}

    def sum(self, request: Request[R]) -> R:
        """Sum of all clients' replies, field by field; exact in the ring, rounded once to double precision."""
        return self._aggregate(request, "sum")

    def padded_sum(
        self, request: Request[R], *, weights: Literal["clients", "rows"] = "clients"
    ) -> tuple[SumCall, dict[str, Int64Array]]:
        """Call for a sum of the replies of clients that have rows, and what it is in the ring, under the pads of all.

        The server cannot read it: it hands it back to the clients. No client can be done without.
        """
        if not type(request).padded:
            raise TypeError(f"{type(request).__name__} is not padded: ask for its sum")
        if self._in_rounds:
            raise TypeError(f"{type(request).__name__} is padded, and rounds may lose clients and their pads")
        call, total = self._total(request, weights)
        return call, self._padded(total, call)

    def mean(self, request: Request[R], *, weights: Literal["clients", "rows"] = "clients") -> R:
        """Mean of the replies of clients that have rows; in rounds, of those that take part and answer.

        Parameters
        ----------
        request : Request
            What to ask.
        weights : {"clients", "rows"}
            Every client counts the same (P1's omega_p = 1/P), or as its number of rows.

        Raises
        ------
        ClientError, QuorumError
            If a client is lost that cannot be done without, or too many are.
        """
        return self._aggregate(request, weights, mean=True)

    def robust_mean(self, request: Request[R], rule: RobustRule) -> R:
        """Mean that some clients that lie cannot move far; of the same clients as :meth:`mean` with equal weights.

        Arrays are combined by the rule, each for itself. Numbers, and arrays whose entries stand for themselves, are
        combined by their median, whatever the rule: no rule bounds a single number better, and a norm in the units of
        an array would mean nothing for it. Clients weigh the same, because a weight is itself a claim: whoever claims
        the most rows would outweigh the others.

        Parameters
        ----------
        request : Request
            What to ask. The server sees each reply on its own, and the ledger says so.
        rule : RobustRule
            How to combine the replies.

        Raises
        ------
        ScenarioError
            If fewer clients take part than the rule needs.
        ClientError, QuorumError
            If a client is lost that cannot be done without, or too many are for the policy or for the rule.
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
        """Results of ``work`` on each task, in order: the server's own work, on as many cores as there are.

        Parameters
        ----------
        work : callable
            A function of a module, with one argument; it computes with one BLAS thread, so its bits are the same
            wherever it runs.
        tasks : sequence
            Its arguments.

        Raises
        ------
        RaydrError
            What ``work`` raised.
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
        """Replies by client; ``finest`` is how finely they are read where that is not what their type declares."""
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
        """A call for a sum, and what clients answered to it, added up."""
        self.answered = ()
        total_weight = self.rows if weighting == "rows" else len(self._weighty(weighting))
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
                seen_by = MASKED if prepared is not None else "server, which adds up what each client sends"
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
        """Have clients agree on a secret that the server hands on and cannot read.

        Parameters
        ----------
        founder : int
            Who draws it, and seals it for the others.
        clients : int, optional
            How many take part, from client 0 on; by default all of the federation. The transport must reach them.
        """
        keys = self._advertised(self.clients if clients is None else clients)
        agree(keys, founder, lambda request, asked: self._beside(request, asked, droppable=False))

    def _advertised(self, clients: int) -> dict[int, UInt8Array]:
        """Return public keys of the first ``clients`` clients, which are asked for them once."""
        if len(self._public_keys) < clients:
            replies = self._beside(AdvertiseRequest(), tuple(range(clients)), droppable=False)
            self._public_keys = {client: reply.key for client, reply in replies.items()}
        return self._public_keys

    def _note(self, call: Call, charge: Charge | None, answered: Iterable[int]) -> None:
        """Write down what those who answered have done: set their state, or released what is charged."""
        if self._transcript is not None:
            self._transcript.note(replace(call, clients=tuple(sorted(answered))), charge, self._accounts)

    def _prepared(self, call: SumCall, droppable: bool) -> Prepared | None:
        """Have clients prepare for a secure sum, where sums are secure."""
        if self._secretariat is None:
            return None
        prepared = self._secretariat.prepared(
            call.clients,
            call.number,
            call.round,
            self._advertised(self.clients),
            lambda request, asked: self._beside(request, asked, droppable),
        )
        self._meter.sent(prepared.masks.told(), tuple(sorted(prepared.shared)))
        return prepared

    def _unmask(self, prepared: Prepared, total: Total, droppable: bool) -> None:
        prepared.unmask(total, lambda request, asked: self._beside(request, asked, droppable))

    def _beside(self, request: Request[Any], asked: tuple[int, ...], droppable: bool) -> dict[int, Any]:
        """Replies that the server hands on from client to client; simulated faults strike sums alone."""
        in_rounds, self._in_rounds = self._in_rounds, False
        try:
            return self._replies(request, asked, "server, to hand on", droppable=droppable)
        finally:
            self._in_rounds = in_rounds

    def _padded(self, total: Total, call: SumCall) -> dict[str, Int64Array]:
        """What the clients get back of a padded sum."""
        return total.totals

    def _write_down(self, transcript: Transcript, call: SumCall, part: PartialSum) -> None:
        """Note one client's summand: what the server of a deployment receives where sums are not secret."""
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
        """What the method learns of a sum."""
        return total.decoded(call, total.weight if mean else 1)

    def _combined(self, replies: Sequence[R], rule: RobustRule, request: Request[R]) -> R:
        """What the method learns of replies that a robust rule combines."""
        with one_blas_thread():
            return _combined(replies, rule, request)

    def _weighty(self, weighting: Weighting) -> tuple[int, ...]:
        """Clients whose weight is not zero."""
        return tuple(client for client, rows in enumerate(self.sizes) if rows or weighting == "sum")

    def _cohort(self, weighting: Weighting) -> tuple[int, ...]:
        """Clients whose weight is not zero; of a mean in a round, those of them that take part."""
        clients = self._weighty(weighting)
        if not self._in_rounds or weighting == "sum" or self.context.participation == 1.0:
            return clients
        count = max(1, round(self.context.participation * len(clients)))
        drawn = self.stream("participation").choice(len(clients), count, replace=False)
        return tuple(clients[index] for index in np.sort(drawn))

    def _deliver(self, call: C, send: Callable[[C], list[Failure]], *, droppable: bool) -> None:
        """Send a call, and send it again to those of whom the policy says so."""
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
                raise ClientError(_lament(call, lost))
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
    """Reply of which each array is the rule's of the replies', and each number or separate entry their median."""
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
    """Failures of clients of whom the transport said nothing that belongs to this call."""
    failed = {failure.client for failure in failures}
    return [
        Failure(client, Kind.TIMED_OUT, "no answer to this call")
        for client in call.clients
        if client not in answered and client not in failed
    ]


def _lament(call: Call, lost: Sequence[Failure]) -> str:
    first = lost[0]
    others = f" {len(lost) - 1} more clients failed too." if len(lost) > 1 else ""
    reason = first.reason.rstrip(".")
    return (
        f"Client {first.client} did not answer {type(call.request).__name__} in round {call.round}: {first.kind},"
        f" {reason}.{others} Mend the cause, or set runtime.quorum below 1 where rounds can do without some"
        " clients."
    )
