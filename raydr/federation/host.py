"""Client hosts: a host answers for one or more clients, in any process."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import FloatArray, IntArray, fingerprint
from raydr.errors import RunError
from raydr.federation.client import Client, HostSecrets
from raydr.federation.failures import Failure, Kind
from raydr.federation.gate import Gate, RefusedByPolicyError
from raydr.federation.messages import (
    Range,
    RefusedReplyError,
    RefusedRequestError,
    Reply,
    Request,
    declared_ranges,
)
from raydr.federation.noise_streams import digest, noise_name
from raydr.federation.pads import blind, pad
from raydr.federation.peers import UntrustedKeyError
from raydr.federation.ring import RingSum, fraction_bits, in_ring, resolution, split_as
from raydr.federation.simulated.faults import (
    Corruption,
    CrashMoment,
    FaultPlan,
    SimulatedCrashError,
    corrupted,
)
from raydr.federation.wire import (
    Answer,
    Answered,
    Call,
    PartialSum,
    SumCall,
    by_protection,
    summand_bytes,
    weight_of,
)
from raydr.privacy.ledger import RecordContent
from raydr.privacy.mechanism import Mechanism, Quantity
from raydr.privacy.policy import SitePolicy
from raydr.privacy.secrets import Secret
from raydr.threads import one_blas_thread


@dataclass(frozen=True)
class HostedClient:
    """A client to be hosted: its rows, their fingerprint for a later check, and its site's policy."""

    index: int
    rows: FloatArray
    fingerprint: str
    policy: SitePolicy = field(default_factory=SitePolicy)


_MEASURES = RecordContent.DISTANCES, RecordContent.PROJECTIONS
"""Content of replies that measure records with points or axes of the server."""


@dataclass(frozen=True)
class _Followed:
    """The last call that set a client's state, and the client's reply."""

    number: int
    reply: Reply


@dataclass(kw_only=True)
class ClientHost:
    """Some clients of a federation and their client parts.

    Parameters
    ----------
    hosted : sequence of HostedClient
        The clients, in client order.
    seed : int
        The run's seed.
    faults : FaultPlan
        Simulated faults.
    run : str
        Name of the run, to which clients bind what they seal.
    host_secrets : HostSecrets, optional
        The secrets of its clients only; by default they are drawn.

    Raises
    ------
    RunError
        If a partition does not match its fingerprint.
    TypeError
        If the secret of a client on another host is given, or one is missing.
    """

    hosted: Sequence[HostedClient]
    seed: int
    faults: FaultPlan = field(default_factory=FaultPlan)
    run: str = ""
    host_secrets: InitVar[HostSecrets | None] = None
    _host_secrets: HostSecrets = field(init=False, repr=False)
    _clients: dict[int, Client] = field(default_factory=dict, repr=False)
    _followed: dict[int, _Followed] = field(default_factory=dict, repr=False)
    _joint: dict[int, Reply | Failure] = field(default_factory=dict, repr=False)
    _gates: dict[int, Gate] = field(default_factory=dict, repr=False)
    _dying: bool = field(init=False)
    _strikes: bool = field(init=False)

    def __post_init__(self, host_secrets: HostSecrets | None) -> None:
        self._strikes = self.faults.strikes
        here = {each.index for each in self.hosted}
        self._host_secrets = host_secrets or HostSecrets({client: Secret.drawn() for client in here})
        given = self._host_secrets.secrets.keys()
        if given != here or not self._host_secrets.classes.keys() <= here:
            raise TypeError(
                f"the host of clients {sorted(here)} was given the secrets of clients {sorted(given)}"
            )
        for each in self.hosted:
            if fingerprint(each.rows) != each.fingerprint:
                raise RunError(
                    f"client {each.index} was restarted with different rows: its file or partition has changed"
                    " since the run started."
                )
        self._gates = {each.index: Gate(each.policy) for each in self.hosted}
        self.restore(())

    def restore(self, history: Sequence[Call]) -> None:
        """Start again from the partitions, and repeat in order the calls that set the clients' state.

        What the policies' gates remember stays.
        """
        self._dying = False
        self._followed.clear()
        host_secrets = self._host_secrets
        self._clients = {
            each.index: Client(
                index=each.index,
                rows=each.rows,
                seed=self.seed,
                run=self.run,
                secret=host_secrets.secrets[each.index],
                reserve=host_secrets.reserve,
                peers=host_secrets.peers,
            )
            for each in self.hosted
        }
        with one_blas_thread():
            for call in history:
                for index in call.clients:
                    if index in self._clients:
                        self._compute(self._clients[index], call, call.request_for(index))

    def with_rows(self, rows: FloatArray) -> ClientHost:
        """Return a host of the same client with other initial rows, without simulated faults."""
        (own,) = self.hosted
        other = copy(self)
        other.hosted = [HostedClient(own.index, rows, fingerprint(rows), own.policy)]
        other.faults = FaultPlan()
        other._clients, other._followed, other._joint = {}, {}, {}
        other._gates = {own.index: Gate(own.policy, keeps_record=False)}
        other.restore(())
        return other

    def client(self, index: int) -> Client:
        """Return one of the clients in its present state."""
        return self._clients[index]

    def noted(self, index: int) -> dict[str, Any]:
        """Return what one client's host must not forget, as lists and mappings of text and numbers.

        Everything else follows from the client's rows, its secret and the calls that set its state.
        """
        return {"once": dict(self._clients[index].once), "gate": self._gates[index].noted()}

    def recall(self, index: int, notes: Mapping[str, Any]) -> None:
        """Remember what the host of an earlier process of this client and run has noted; call :meth:`restore` first."""
        self._clients[index].once.update(notes["once"])
        self._gates[index].recall(notes["gate"])

    @property
    def clients(self) -> tuple[int, ...]:
        """The clients of this host, in client order."""
        return tuple(self._clients)

    def ask(self, call: Call) -> list[Answer]:
        """Return one answer of each client asked; all must live here."""
        boundary = Boundary(call)
        answers: list[Answer] = []
        # BLAS results depend on the thread count, so every client part computes with one thread.
        with one_blas_thread():
            self._wait_for_stragglers(call)
            self._answer_jointly(call)
            for index in call.clients:
                reply = self._reply(self._clients[index], boundary)
                answers.append(
                    reply
                    if isinstance(reply, Failure)
                    else Answered(
                        index,
                        call.number,
                        call.round,
                        reply,
                        protection_of(self._clients[index], call.request_for(index)),
                    )
                )
        self._plan_crash_after(call)
        return answers

    def sum(self, call: SumCall) -> PartialSum:
        """Return the weighted sum of the replies of the clients asked; all must live here."""
        boundary = Boundary(call)
        sums: dict[str, RingSum] = {}
        ranges: Mapping[str, Range] = {}
        sealed: dict[str, dict[int, NDArray[Any]]] = {}
        summed: list[int] = []
        failures: list[Failure] = []
        protections: list[Mechanism | None] = []
        total_weight = 0
        padded, blinded = type(call.request).padded, call.is_blinded
        with one_blas_thread():
            self._wait_for_stragglers(call)
            self._answer_jointly(call)
            for index in call.clients:
                client = self._clients[index]
                weight = weight_of(client.rows.shape[0], call.weighting)
                reply = self._reply(client, boundary)
                if isinstance(reply, Failure):
                    failures.append(reply)
                    continue
                if not summed:
                    ranges = boundary.declared(type(reply), 0)
                    sealed = {name: {} for name, declared in ranges.items() if declared.sealed}
                    sums = {
                        name: RingSum(
                            declared.shape, fraction_bits(declared.largest, call.total_weight, declared.bits)
                        )
                        for name, declared in ranges.items()
                        if not declared.sealed
                    }
                for name, ring in sums.items():
                    if ranges[name].bits == 64:
                        ring.add(getattr(reply, name), weight)
                    else:
                        random = client.stream(f"rounding of {type(reply).__name__}.{name}")
                        ring.add_at_random(getattr(reply, name), weight, random)
                    if padded:
                        total = ring.total
                        total += pad(client.shared, call.number, index, name, total.shape)
                    if blinded:
                        total = ring.total
                        total += blind(client.secret, call.sum_digest, name, np.asarray(getattr(reply, name)))
                for name, kept in sealed.items():
                    kept[index] = getattr(reply, name)
                summed.append(index)
                protections.append(protection_of(client, call.request_for(index)))
                total_weight += weight
                del reply  # so that the next reply reuses its memory, which is in the cache
        self._plan_crash_after(call)
        totals: dict[str, IntArray] = {name: ring.total for name, ring in sums.items()}
        if call.masks is not None and summed:
            # Only this sum leaves the process. It is the sum of what each client would have masked by itself.
            vector = np.concatenate([total.reshape(-1) for total in totals.values()])
            totals = split_as(call.masks.on([self._clients[index] for index in summed], vector), totals)
        totals = {name: in_ring(total, ranges[name].bits) for name, total in totals.items()}
        each = summand_bytes(ranges)
        return PartialSum(
            number=call.number,
            round=call.round,
            reply=boundary.kind,
            totals=totals,
            sealed=sealed,
            clients=tuple(summed),
            weight=total_weight,
            sent=by_protection((protection, each) for protection in protections),
            failures=tuple(failures),
        )

    def _reply(self, client: Client, boundary: Boundary) -> Reply | Failure:
        """Return a client's reply, checked at the boundary."""
        call = boundary.call
        struck = self._strikes and call.in_rounds and call.attempt == 0
        if struck:
            if self.faults.crash(client.index, call.round) is CrashMoment.BEFORE:
                raise SimulatedCrashError
            if self.faults.drops_out(self.seed, client.index, call.round):
                return Failure(client.index, Kind.DROPPED_OUT, "simulated drop-out")
        try:
            request = call.request_for(client.index)
            if isinstance(call, SumCall) and call.masks is not None:
                call.masks.require_trusted(client)
            gate = self._gates[client.index]
            followed = self._followed.get(client.index)
            gate.admit(call, request, client, 0 if followed is None else followed.number)
            joint = self._joint.pop(client.index, None) if self._joint else None
            if isinstance(joint, Failure):
                return joint
            reply, round = joint if joint is not None else self._compute(client, call, request), call.round
            if self.faults.adversary is not None and call.in_rounds:
                reply = self.faults.adversary.forged(reply, request, client)
            if struck:
                if self.faults.crash(client.index, call.round) is CrashMoment.DURING:
                    raise SimulatedCrashError
                corruption = self.faults.corruption(self.seed, client.index, call.round)
                if corruption is not None:
                    reply = corrupted(reply, corruption)
                    round -= corruption is Corruption.ROUND
            boundary.check(reply, round, client.rows.shape[0], request)
            if type(reply).tells in _MEASURES:
                _measure_once(client, boundary, reply, request)
            reply = gate.release(reply, call, request, client)
        except RefusedByPolicyError as error:
            return Failure(client.index, Kind.POLICY, str(error))
        except UntrustedKeyError as error:
            return Failure(client.index, Kind.UNTRUSTED_KEY, str(error))
        except RefusedRequestError as error:
            return Failure(client.index, Kind.REQUEST_REFUSED, str(error))
        except RefusedReplyError as error:
            return Failure(client.index, Kind.REFUSED, str(error))
        except Exception as error:
            return _raised(client.index, error, traceback.format_exc())
        return reply

    def _answer_jointly(self, call: Call) -> None:
        """Let all clients answer at once, if the request has a joint part.

        If that fails, each client answers by itself, which shows which client caused the failure. If none did (memory,
        a GPU), no client has answered, because separate answers differ in their last bits.
        """
        self._joint.clear()
        part = type(call.request).joint_part
        if part is None or not call.request.jointly or len(call.clients) < 2:
            return
        clients = [self._clients[index] for index in call.clients]
        requests = [call.request_for(index) for index in call.clients]
        for client, request in zip(clients, requests, strict=True):
            self._ready(client, call, request)
        try:
            replies = part([shown(*each) for each in zip(clients, requests, strict=True)], requests)
            for client, request, reply in zip(clients, requests, replies, strict=True):
                self._joint[client.index] = covered(reply, client, request, call)
            return
        except Exception as error:
            together = error, traceback.format_exc()
        faulty = False
        for client, request in zip(clients, requests, strict=True):
            try:
                self._joint[client.index] = self._compute(client, call, request)
            except Exception as error:
                self._joint[client.index] = _raised(client.index, error, traceback.format_exc())
                faulty = True
        if not faulty:
            reason = "could not answer jointly with the other clients of its host, although each could alone"
            self._joint.update((index, _raised(index, *together, where=reason)) for index in call.clients)

    def _compute(self, client: Client, call: Call, request: Request[Any]) -> Reply:
        """Return a client part's reply; a client whose state this call already set repeats its reply."""
        self._ready(client, call, request)
        if not type(request).sets_state:
            return covered(type(request).client_part(shown(client, request), request), client, request, call)
        if request.mechanism is not None:
            raise TypeError(f"{type(request).__name__} sets clients' state, so it cannot have a mechanism")
        before = self._followed.get(client.index)
        if before is not None and call.number == before.number:
            return before.reply
        if before is not None and call.number < before.number:
            raise RunError(
                f"call {call.number} would set the state of client {client.index}, which has already followed the"
                f" later call {before.number}"
            )
        reply = follow(client, request)
        self._followed[client.index] = _Followed(call.number, reply)
        return reply

    def _ready(self, client: Client, call: Call, request: Request[Any]) -> None:
        """Set a client's round, and its records' labels if the request declares that it reads them."""
        client.round = call.round
        known, reads = self._host_secrets, request.reads_classes
        client.classes = known.classes.get(client.index) if reads else None
        client.targets = known.targets.get(client.index) if reads else None

    def _wait_for_stragglers(self, call: Call) -> None:
        """Wait for the slowest simulated straggler. A host that was to die does so first."""
        if self._dying:
            raise SimulatedCrashError
        if self.faults.stragglers and call.in_rounds and call.attempt == 0:
            time.sleep(max(self.faults.delay(self.seed, client, call.round) for client in call.clients))

    def _plan_crash_after(self, call: Call) -> None:
        """Let the next call find a dead host, if a simulated crash follows the answer."""
        if self.faults.crashes and call.in_rounds and call.attempt == 0:
            self._dying = any(
                self.faults.crash(client, call.round) is CrashMoment.AFTER for client in call.clients
            )


@dataclass
class Boundary:
    """Checks of the replies to one call: round, a common type, and the declared range of every field.

    Attributes
    ----------
    call : Call
        The call that is answered.
    kind : type of Reply or None
        Type of the accepted replies; None before the first.
    """

    call: Call
    kind: type[Reply] | None = None
    _declared: dict[tuple[type[Reply], int], Mapping[str, Range]] = field(default_factory=dict, repr=False)
    _digest: tuple[Request[Any], str] | None = field(default=None, repr=False)

    def digest_of(self, request: Request[Any]) -> str:
        """Return a digest of a request, computed once for clients with the same request."""
        if self._digest is None or self._digest[0] is not request:
            self._digest = request, digest(request)
        return self._digest[1]

    def check(self, reply: Reply, round: int, rows: int, request: Request[Any]) -> None:
        """Raise RefusedReplyError unless the reply of a client with ``rows`` rows to this request is valid."""
        kind = type(reply)
        if round != self.call.round:
            raise RefusedReplyError(
                f"the reply belongs to round {round}, but this is round {self.call.round}"
            )
        if self.kind is not None and kind is not self.kind:
            raise RefusedReplyError(
                f"the reply is a {kind.__name__}, but the others are {self.kind.__name__}"
            )
        ranges = (
            self.declared(kind, rows)
            if request is self.call.request
            else declared_ranges(kind, request, rows)
        )
        for name, declared in ranges.items():
            declared.check(name, getattr(reply, name))
        self.kind = kind

    def declared(self, kind: type[Reply], rows: int) -> Mapping[str, Range]:
        """Return the range of every field, computed once for clients with equal row counts; in a sum, for all."""
        key = kind, 0 if self._sums else rows
        ranges = self._declared.get(key)
        if ranges is None:
            ranges = self._declared[key] = declared_ranges(kind, self.call.request, key[1])
        return ranges

    @cached_property
    def _sums(self) -> bool:
        return isinstance(self.call, SumCall)


def shown(client: Client, request: Request[Any]) -> Client:
    """Return the client that a client part sees: under a mechanism on data, with noisy rows and its own memory.

    The noisy rows are drawn once in a run for all requests (P1 5.1). Repeated draws would average out.
    """
    mechanism = request.mechanism
    if mechanism is None or mechanism.on != "data":
        return client
    if client.covered_by is not None:
        raise TypeError(
            f"{type(request).__name__} would add noise to records that already carry it: the draw would be the same,"
            " so the difference of two replies would have no noise"
        )
    kept = client.memory.get(_BLURRED)
    # An unset deviation is NaN, which equals nothing.
    made_of = mechanism, str(request.deviation) if mechanism.by_level else ""
    if kept is None or kept[0] is not client.rows or kept[1] != made_of:
        drawn = digest(fingerprint(client.rows), made_of)
        before = client.once.get(_BLURRED, drawn)
        if before != drawn and mechanism.claim(mechanism.record_sensitivity) is not None:
            raise TypeError(f"{mechanism.words} would be drawn twice, but is charged once")
        client.once[_BLURRED] = drawn
        rows = blurred(client, mechanism, request.deviation)
        kept = client.memory[_BLURRED] = client.rows, made_of, rows
    return replace(client, rows=kept[2], memory={})


_BLURRED = "rows under a mechanism"


def blurred(client: Client, mechanism: Mechanism, unit: float) -> FloatArray:
    """Return a client's rows under a mechanism on data, in their own precision; every draw is the same."""
    records = Quantity(
        mechanism.limited(client.rows), unit if mechanism.by_level else 1.0, mechanism.record_sensitivity
    )
    stream = client.secret.stream(*noise_name(mechanism, {"rows": records}, kind="records"))
    return np.asarray(mechanism.cover(records, stream).astype(client.rows.dtype))


def follow(client: Client, request: Request[Any]) -> Reply:
    """Run a client part that sets state. Rows that it changes by class no longer count as noisy rows."""
    reply = type(request).client_part(client, request)
    if request.reads_classes:
        client.covered_by = None
    return reply


def protection_of(client: Client, request: Request[Any]) -> Mechanism | None:
    """Return the mechanism that covers a reply: applied to it, or carried by its records from the start."""
    return request.covering(client.covered_by)


def covered(reply: Reply, client: Client, request: Request[Any], call: Call) -> Reply:
    """Return the reply as it may leave: changed by a mechanism not on data, and clipped to its range."""
    if request.mechanism is None or request.mechanism.on == "data":
        return reply
    return Cover.of(request.mechanism, reply, client, request, call).noisy(client.secret)


@dataclass(frozen=True)
class Cover:
    """A reply, the quantities that a mechanism changes, and the name of the noise.

    Attributes
    ----------
    mechanism : Mechanism
    reply : Reply
        The reply without noise.
    quantities : mapping of field name to Quantity
        The quantities that the mechanism changes.
    ranges : mapping of field name to Range
        Ranges to which noisy values are clipped.
    name : tuple of str
        See :func:`raydr.federation.noise_streams.noise_name`.
    """

    mechanism: Mechanism
    reply: Reply
    quantities: Mapping[str, Quantity]
    ranges: Mapping[str, Range]
    name: tuple[str, str]

    @classmethod
    def of(
        cls, mechanism: Mechanism, reply: Reply, client: Client, request: Request[Any], call: Call
    ) -> Cover:
        """Return what a mechanism changes in a client's reply.

        Raises
        ------
        TypeError
            If a part of the reply stays uncovered, or the call does not say how clients share the noise.
        """
        ranges = declared_ranges(type(reply), request, client.rows.shape[0])
        sensitivity, share, finest, among = (
            request.claimed_sensitivity(max(1, client.rows.shape[0])),
            1.0,
            0.0,
            "",
        )
        if isinstance(call, SumCall):
            declared = [ranges[name] for name in type(reply).covers]
            finest = max(
                (resolution(each.largest, call.total_weight, each.bits) for each in declared), default=0.0
            )
            weight = weight_of(client.rows.shape[0], call.weighting)
            if mechanism.shared:
                if call.sharing is None or not weight:
                    raise TypeError(f"the call does not say how clients share {mechanism.words}")
                sensitivity, share = (
                    call.sharing.sensitivity,
                    1.0 / (weight * math.sqrt(call.sharing.clients)),
                )
                among = call.sharing.among
        elif mechanism.shared:
            raise TypeError(
                f"{type(request).__name__} is not summed, but {mechanism.words} covers only a sum"
            )
        quantities = {
            name: replace(quantity, sensitivity=sensitivity, share=share, resolution=finest)
            for name, quantity in reply.quantities(mechanism.on, request).items()
        }
        if mechanism.claim(sensitivity, share) is not None:
            bare = [name for name, value in vars(reply).items() if name not in quantities and np.any(value)]
            if bare:
                raise TypeError(
                    f"{type(reply).__name__} has {', '.join(bare)} that {mechanism.words} does not cover"
                )
        named = noise_name(mechanism, quantities, kind=type(reply).__name__, round=client.round, among=among)
        return cls(mechanism, reply, quantities, ranges, named)

    def noisy(self, secret: Secret) -> Reply:
        """Return the reply with the noise that follows from a secret."""
        stream = secret.stream(*self.name)
        values = {}
        for name, quantity in self.quantities.items():
            noisy = self.mechanism.cover(quantity, stream)
            largest = self.ranges[name].largest if name in self.ranges else math.inf
            values[name] = np.clip(noisy, np.negative(largest), largest)
        return self.reply.covered(values, self.mechanism)


def _measure_once(client: Client, boundary: Boundary, reply: Reply, request: Request[Any]) -> None:
    """Raise RefusedRequestError if a client measured its records with other points or axes before.

    The distances of a record to k points determine k - 1 dimensions, wherever the points lie. A server that asks
    again with other points learns the rest. A repeated identical request, such as after a time-out, gets the same
    answer.
    """
    if type(reply).stays:
        return
    asked = boundary.digest_of(request)
    if client.once.setdefault("measured", asked) != asked:
        raise RefusedRequestError(
            f"the server asks a second time for {type(reply).what}, with other points or axes"
            f" ({type(request).__name__}). A client answers for one set of points or axes in a run, because"
            " several sets reveal more of a record than the ledger states. Ask for all points at once, or"
            " start another run"
        )


def _raised(client: int, error: Exception, trace: str, *, where: str = "") -> Failure:
    reason = f"{type(error).__name__}: {error}"
    return Failure(client, Kind.CLIENT_RAISED, f"{where}: {reason}" if where else reason, trace)
