"""The federation as a method sees it: ask every client, or learn only a sum.

``ask`` returns one reply of each client, in client order. ``sum`` and ``mean`` return only the aggregate, added up in
the ring (:mod:`raydr.federation.ring`). So results are identical bit for bit, however clients are packed into
processes. ``robust_mean`` returns only an aggregate too, but the server must see each reply. A
:class:`~raydr.federation.transport.Transport` carries the calls: in this process (:mod:`raydr.federation.inline`) or
through Ray actors.

``ask`` and ``sum`` need every client. Means inside rounds can continue without some clients, down to the policy's
quorum. The weights of the clients that answered are renormalised. If clients are lost at random and have equal
weights, the mean is unbiased. Weighted by rows it is a ratio of two unbiased sums, whose bias vanishes as the number
of clients grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import Float64Array, FloatArray, IntArray
from raydr.federation.checkpoint import Checkpoint
from raydr.federation.context import Context
from raydr.federation.enrolment import Enrol
from raydr.federation.exchange import Exchange
from raydr.federation.failures import ClientError, QuorumError
from raydr.federation.loop import Loop
from raydr.federation.messages import Reply, Request
from raydr.federation.meter import Meter
from raydr.federation.network import Clock
from raydr.federation.rounds import Rounds
from raydr.federation.streams import server_stream
from raydr.federation.transcript import Transcript
from raydr.federation.transport import Transport
from raydr.federation.wire import SumCall
from raydr.journal import Journal
from raydr.privacy.ledger import Granularity, Ledger
from raydr.privacy.mechanism import Mechanism
from raydr.privacy.secrets import FOUNDER
from raydr.robust import RobustRule

R = TypeVar("R", bound=Reply)
Task = TypeVar("Task")
Result = TypeVar("Result")
Value = TypeVar("Value")


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
    exchange : callable
        Returns the :class:`~raydr.federation.exchange.Exchange` of the calls, from its keyword arguments.

    Attributes
    ----------
    features : int
        Features of every row.
    label_columns : int
        Number of last features that are a label's, which new rows do not have.
    deviation : (features,) float64 or None
        Standard deviation of each feature, if sums have revealed it.
    surveyed : int or None
        Number of columns that a noisy survey covered before the method; None without a survey.
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
        exchange: Callable[..., Exchange] = Exchange,
    ) -> None:
        clock = Clock(context.network) if context.network is not None else None
        self._meter = Meter(journal or Journal(), clock=clock)
        self._rounds = Rounds(context, self._meter, resume, released)
        self._exchange = exchange(
            transport=transport,
            clients=clients,
            context=context,
            meter=self._meter,
            rounds=self._rounds,
            released=released,
            transcript=transcript,
        )
        self._public = context.public
        self.context = context
        self.clients = clients
        self.deviation: Float64Array | None = None
        self.surveyed: int | None = None
        transport.reset()
        enrolments = self.ask(Enrol(context.declared))
        self._exchange.sizes = tuple(enrolment.rows for enrolment in enrolments)
        widths = sorted({enrolment.features for enrolment in enrolments})
        if len(widths) > 1:
            raise ClientError(f"clients have different numbers of features: {widths}")
        if not sum(self.sizes):
            raise ClientError("no client has any rows")
        self.features, self.label_columns = widths[0], 0

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.context.seed

    @property
    def round(self) -> int:
        """Number of rounds started so far."""
        return self._rounds.number

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each client, in client order."""
        return self._exchange.sizes

    @property
    def answered(self) -> tuple[int, ...]:
        """Clients whose replies are in the last sum, mean or robust mean, ascending; empty after one that failed."""
        return self._exchange.answered

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
        return self._exchange.transcript is not None

    @property
    def network_seconds(self) -> float | None:
        """Seconds of all messages so far on the clients' lines; None if the lines are unknown."""
        return self._meter.clock.seconds if self._meter.clock is not None else None

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
        self._exchange.accounts.records = mechanism

    def stream(self, purpose: str) -> np.random.Generator:
        """Return the server's random numbers for this round and purpose."""
        return server_stream(self.seed, self.round, purpose)

    def stage(self, name: str) -> AbstractContextManager[None]:
        """Time a stage of the method."""
        return self.journal.stage(name)

    def rounds(self, count: int, loop: Loop[Any] | None = None) -> Iterator[int]:
        """Yield the numbers of ``count`` rounds, counted through the whole run, and journal each.

        Parameters
        ----------
        count : int
            Rounds of this loop.
        loop : Loop, optional
            State that one round passes to the next. The loop body replaces it and checkpoints save it. A resumed run
            restores it before the first round, and yields only the remaining rounds.
        """
        return self._rounds.run(count, loop)

    def keep(self, loop: Loop[Any], value: NDArray[Any]) -> None:
        """Keep a snapshot under the current round's number, if the context requests one now.

        Call it before the loop of rounds, for the initial state, and at the end of each round. Checkpoints hold
        snapshots, so a resumed run has them.
        """
        every = self.context.evaluate_every
        if every and self.round % every == 0:
            loop.snapshots[self.round] = value

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
        replies = self._exchange.replies(request, tuple(range(self.clients)))
        return [replies[client] for client in range(self.clients)]

    def gather(self, request: Request[R]) -> dict[int, R]:
        """Return replies by client, in client order; in rounds, of clients with rows that take part and answer.

        Raises
        ------
        ClientError, QuorumError
            If a required client is lost, or too many clients are.
        """
        cohort = self._exchange.cohort("clients")
        replies = self._exchange.replies(request, cohort, droppable=self._rounds.running)
        self.context.policy.require_quorum(len(replies), len(cohort))
        return {client: replies[client] for client in sorted(replies)}

    def sum(self, request: Request[R]) -> R:
        """Return the sum of all clients' replies, field by field; exact in the ring, rounded once to float64."""
        return self._exchange.aggregate(request, "sum")

    def padded_sum(
        self, request: Request[R], *, weights: Literal["clients", "rows"] = "clients"
    ) -> tuple[SumCall, dict[str, IntArray]]:
        """Return the call for a padded sum and the sum in the ring, under the pads of all clients.

        The sum is over the clients with rows. The server cannot read it and returns it to the clients. Every client
        must answer.
        """
        if not type(request).padded:
            raise TypeError(f"{type(request).__name__} is not padded: ask for its sum")
        if self._rounds.running:
            raise TypeError(f"{type(request).__name__} is padded, and rounds may lose clients and their pads")
        call, total = self._exchange.total(request, weights)
        return call, self._exchange.padded(total, call)

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
        return self._exchange.aggregate(request, weights, mean=True)

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
        cohort = self._exchange.cohort("clients")
        rule.require(len(cohort))
        replies = self._exchange.replies(
            request,
            cohort,
            "server, one client at a time",
            Granularity.PER_CLIENT,
            droppable=self._rounds.running,
        )
        self.context.policy.require_quorum(len(replies), len(cohort))
        if len(replies) < rule.least_clients:
            raise QuorumError(
                f"only {len(replies)} of {len(cohort)} clients answered, and method.aggregation {rule.kind} needs"
                f" {rule.least_clients}: raise runtime.quorum, or look at why the others failed."
            )
        self._exchange.answered = tuple(sorted(replies))
        return self._exchange.combined([replies[client] for client in self.answered], rule, request)

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
        for done, result in enumerate(self._exchange.transport.compute(work, tasks), 1):
            self.journal.progress(done, len(tasks))
            yield result

    def share(self, values: Iterable[Value]) -> Sequence[Value]:
        """Store large values once, and return a sequence that tasks of :meth:`compute` may hold.

        A task fetches a value when it indexes the sequence.
        """
        return self._exchange.transport.share(values)

    @property
    def nodes(self) -> Federation | None:
        """The federation itself if :meth:`compute` runs on several machines. Else None, because threads are faster."""
        return self if self._exchange.transport.machines() > 1 else None

    def agree(self, *, founder: int = FOUNDER, clients: int | None = None) -> None:
        """Let clients agree on a secret that the server forwards and cannot read.

        Parameters
        ----------
        founder : int
            The client that draws the secret and seals it for the others.
        clients : int, optional
            Number of clients that take part, from client 0; by default all. The transport must reach them.
        """
        self._exchange.agree(founder, self.clients if clients is None else clients)
