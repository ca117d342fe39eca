"""Where clients live: a host answers for one or many of them, whatever process it runs in."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import FloatArray, Int64Array, fingerprint
from raydr.errors import RunError
from raydr.federation.client import Client, Withheld
from raydr.federation.failures import Failure, Kind
from raydr.federation.messages import (
    Range,
    RefusedReplyError,
    RefusedRequestError,
    Reply,
    Request,
    declared_ranges,
)
from raydr.federation.noise_streams import digest, noise_name
from raydr.federation.pads import pad
from raydr.federation.ring import RingSum, fraction_bits, resolution, split_as
from raydr.federation.simulated.faults import Corruption, FaultPlan, Moment, SimulatedCrashError, corrupted
from raydr.federation.wire import Answer, Answered, Call, PartialSum, SumCall, by_protection, weight_of
from raydr.privacy.ledger import Tells
from raydr.privacy.mechanism import Mechanism, Quantity
from raydr.privacy.secrets import Secret
from raydr.threads import one_blas_thread


@dataclass(frozen=True)
class Seat:
    """What a host needs to bring a client into being: its rows, and their fingerprint to know them again."""

    index: int
    rows: FloatArray
    fingerprint: str


@dataclass(frozen=True)
class _Followed:
    """The last call that set a client's state, and what the client replied."""

    number: int
    reply: Reply


@dataclass(kw_only=True)
class ClientHost:
    """Some clients of a federation and their client parts.

    Parameters
    ----------
    seats : sequence of Seat
        The clients, in client order.
    seed : int
        The run's seed.
    faults : FaultPlan
        What goes wrong on purpose.
    run : str
        Name of the run, to which clients bind what they seal.
    withheld : Withheld, optional
        Its clients' secrets, and no others; by default they are drawn.

    Raises
    ------
    RunError
        If a partition is not the one that its fingerprint is of.
    TypeError
        If it is given the secret of a client that lives elsewhere, or lacks one.
    """

    seats: Sequence[Seat]
    seed: int
    faults: FaultPlan = field(default_factory=FaultPlan)
    run: str = ""
    withheld: InitVar[Withheld | None] = None
    _withheld: Withheld = field(init=False, repr=False)
    _clients: dict[int, Client] = field(default_factory=dict, repr=False)
    _followed: dict[int, _Followed] = field(default_factory=dict, repr=False)
    _joint: dict[int, Reply | Failure] = field(default_factory=dict, repr=False)
    _measured: dict[int, str] = field(default_factory=dict, repr=False)
    _dying: bool = field(init=False)
    _strikes: bool = field(init=False)

    def __post_init__(self, withheld: Withheld | None) -> None:
        self._strikes = self.faults.strikes
        here = {seat.index for seat in self.seats}
        self._withheld = withheld or Withheld({client: Secret.drawn() for client in here})
        given = self._withheld.secrets.keys()
        if given != here or not self._withheld.classes.keys() <= here:
            raise TypeError(
                f"the host of clients {sorted(here)} was given secrets of clients {sorted(given)}"
            )
        for seat in self.seats:
            if fingerprint(seat.rows) != seat.fingerprint:
                raise RunError(
                    f"client {seat.index} was restarted with other rows than it had: its file or partition has"
                    " changed since the run started."
                )
        self.restore(())

    def restore(self, history: Sequence[Call]) -> None:
        """Begin again from the partitions, and repeat, in order, what set the state of those whom each call names."""
        self._dying = False
        self._followed.clear()
        self._measured.clear()
        withheld = self._withheld
        self._clients = {
            seat.index: Client(
                index=seat.index,
                rows=seat.rows,
                seed=self.seed,
                run=self.run,
                secret=withheld.secrets[seat.index],
                reserve=withheld.reserve,
            )
            for seat in self.seats
        }
        with one_blas_thread():
            for call in history:
                for index in call.clients:
                    if index in self._clients:
                        self._compute(self._clients[index], call, call.told(index))

    def with_rows(self, rows: FloatArray) -> ClientHost:
        """Return a host of the same client, had it begun with other rows; nothing goes wrong there on purpose."""
        (seat,) = self.seats
        other = copy(self)
        other.seats, other.faults = [Seat(seat.index, rows, fingerprint(rows))], FaultPlan()
        other._clients, other._followed, other._joint, other._measured = {}, {}, {}, {}
        other.restore(())
        return other

    def client(self, index: int) -> Client:
        """Return one of the clients, as it is now."""
        return self._clients[index]

    @property
    def clients(self) -> tuple[int, ...]:
        """Who lives here, in client order."""
        return tuple(self._clients)

    def ask(self, call: Call) -> list[Answer]:
        """One answer of each client asked, all of whom live here."""
        boundary = Boundary(call)
        answers: list[Answer] = []
        # BLAS changes bits with its thread count, so every client part computes with one.
        with one_blas_thread():
            self._dawdle(call)
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
                        protection_of(self._clients[index], call.told(index)),
                    )
                )
        self._die_later(call)
        return answers

    def sum(self, call: SumCall) -> PartialSum:
        """Weighted sum of the replies of the clients asked, all of whom live here."""
        boundary = Boundary(call)
        sums: dict[str, RingSum] = {}
        masked: Int64Array | None = None
        sealed: dict[str, dict[int, NDArray[Any]]] = {}
        summed: list[int] = []
        failures: list[Failure] = []
        protections: list[Mechanism | None] = []
        total_weight = 0
        padded = type(call.request).padded
        with one_blas_thread():
            self._dawdle(call)
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
                        name: RingSum(declared.shape, fraction_bits(declared.largest, call.total_weight))
                        for name, declared in ranges.items()
                        if not declared.sealed
                    }
                if call.masks is not None:
                    # Each client's summand is masked by itself, also beside others of its process.
                    for ring in sums.values():
                        ring.total[...] = 0
                for name, ring in sums.items():
                    ring.add(getattr(reply, name), weight)
                    if padded:
                        total = ring.total
                        total += pad(client.shared, call.number, index, name, total.shape)
                if call.masks is not None:
                    summand = np.concatenate([ring.total.reshape(-1) for ring in sums.values()])
                    summand = call.masks.on(client, summand)
                    masked = summand if masked is None else np.add(masked, summand, out=masked)
                for name, kept in sealed.items():
                    kept[index] = getattr(reply, name)
                summed.append(index)
                protections.append(protection_of(client, call.told(index)))
                total_weight += weight
                del reply  # so that the next one's arrays take its memory, which is in the cache
        self._die_later(call)
        totals = {name: ring.total for name, ring in sums.items()}
        if masked is not None:
            totals = split_as(masked, totals)
        each = sum(total.nbytes for total in totals.values())
        sizes = [each + sum(kept[index].nbytes for kept in sealed.values()) for index in summed]
        return PartialSum(
            number=call.number,
            round=call.round,
            reply=boundary.kind,
            totals=totals,
            sealed=sealed,
            clients=tuple(summed),
            weight=total_weight,
            sent=by_protection(zip(protections, sizes, strict=True)),
            failures=tuple(failures),
        )

    def _reply(self, client: Client, boundary: Boundary) -> Reply | Failure:
        """A client's reply, checked at the boundary."""
        call = boundary.call
        struck = self._strikes and call.in_rounds and call.attempt == 0
        if struck:
            if self.faults.crash(client.index, call.round) is Moment.BEFORE:
                raise SimulatedCrashError
            if self.faults.drops_out(self.seed, client.index, call.round):
                return Failure(client.index, Kind.DROPPED_OUT, "simulated drop-out")
        try:
            told = call.told(client.index)
            joint = self._joint.pop(client.index, None)
            if isinstance(joint, Failure):
                return joint
            reply, round = joint if joint is not None else self._compute(client, call, told), call.round
            if self.faults.adversary is not None and call.in_rounds:
                reply = self.faults.adversary.forged(reply, told, client)
            if struck:
                if self.faults.crash(client.index, call.round) is Moment.DURING:
                    raise SimulatedCrashError
                corruption = self.faults.corruption(self.seed, client.index, call.round)
                if corruption is not None:
                    reply = corrupted(reply, corruption)
                    round -= corruption is Corruption.ROUND
            boundary.check(reply, round, client.rows.shape[0], told)
            self._measure_once(client.index, boundary, reply, told)
        except RefusedRequestError as error:
            return Failure(client.index, Kind.REQUEST_REFUSED, str(error))
        except RefusedReplyError as error:
            return Failure(client.index, Kind.REFUSED, str(error))
        except Exception as error:
            return _raised(client.index, error, traceback.format_exc())
        return reply

    def _answer_jointly(self, call: Call) -> None:
        """Have all clients asked answer at once, where the request has a way to.

        If that fails, each answers for itself, which shows whose fault it was. Where it was nobody's (memory, a GPU),
        nobody has answered: answers of each for itself have other bits.
        """
        self._joint.clear()
        part = type(call.request).joint_part
        if part is None or not call.request.jointly or len(call.clients) < 2:
            return
        clients = [self._clients[index] for index in call.clients]
        told = [call.told(index) for index in call.clients]
        for client, request in zip(clients, told, strict=True):
            self._ready(client, call, request)
        try:
            replies = part([shown(*each) for each in zip(clients, told, strict=True)], told)
            for client, request, reply in zip(clients, told, replies, strict=True):
                self._joint[client.index] = covered(reply, client, request, call)
            return
        except Exception as error:
            together = error, traceback.format_exc()
        faulty = False
        for client, request in zip(clients, told, strict=True):
            try:
                self._joint[client.index] = self._compute(client, call, request)
            except Exception as error:
                self._joint[client.index] = _raised(client.index, error, traceback.format_exc())
                faulty = True
        if not faulty:
            reason = "could not answer together with the others of its host, though each could alone"
            self._joint.update((index, _raised(index, *together, where=reason)) for index in call.clients)

    def _compute(self, client: Client, call: Call, told: Request[Any]) -> Reply:
        """A client part's reply; a client that was asked before to change its state answers as it did then."""
        self._ready(client, call, told)
        if not type(told).sets_state:
            return covered(type(told).client_part(shown(client, told), told), client, told, call)
        if told.mechanism is not None:
            raise TypeError(f"{type(told).__name__} sets clients' state, so no mechanism can stand before it")
        before = self._followed.get(client.index)
        if before is not None and call.number == before.number:
            return before.reply
        if before is not None and call.number < before.number:
            raise RunError(
                f"call {call.number} would set the state of client {client.index}, which has followed call"
                f" {before.number} since"
            )
        reply = follow(client, told)
        self._followed[client.index] = _Followed(call.number, reply)
        return reply

    def _measure_once(self, client: int, boundary: Boundary, reply: Reply, told: Request[Any]) -> None:
        """Raise RefusedRequestError if a client has measured its records by other points or axes before.

        What k points tell of a record has k - 1 dimensions, wherever they lie: a server that may ask again with others
        learns the rest. The same request again, as after a time-out, has the same answer.
        """
        if type(reply).tells not in (Tells.DISTANCES, Tells.PROJECTIONS) or type(reply).stays:
            return
        asked = boundary.digest_of(told)
        if self._measured.setdefault(client, asked) != asked:
            raise RefusedRequestError(
                f"the server asks for {type(reply).what} a second time, with other points or axes than before"
                f" ({type(told).__name__}); a client answers for one set of them in a run, since several sets tell"
                " more of a record than the ledger says: ask for all points at once, or begin another run"
            )

    def _ready(self, client: Client, call: Call, told: Request[Any]) -> None:
        """Show a client the round, and its records' classes if what it is told declares that it reads them."""
        client.round = call.round
        client.classes = self._withheld.classes.get(client.index) if told.reads_classes else None

    def _dawdle(self, call: Call) -> None:
        """Clients dawdle side by side, so a host waits for its slowest. A host that was to die does so first."""
        if self._dying:
            raise SimulatedCrashError
        if self.faults.stragglers and call.in_rounds and call.attempt == 0:
            time.sleep(max(self.faults.delay(self.seed, client, call.round) for client in call.clients))

    def _die_later(self, call: Call) -> None:
        """After a crash that follows the answer, the next call finds nobody."""
        if self.faults.crashes and call.in_rounds and call.attempt == 0:
            self._dying = any(
                self.faults.crash(client, call.round) is Moment.AFTER for client in call.clients
            )


@dataclass
class Boundary:
    """What replies to one call must be: of its round, all of one type, every field as that type declares.

    Attributes
    ----------
    call : Call
        What is answered.
    kind : type of Reply or None
        Type of the replies that passed; None before the first.
    """

    call: Call
    kind: type[Reply] | None = None
    _declared: dict[tuple[type[Reply], int], Mapping[str, Range]] = field(default_factory=dict, repr=False)
    _digest: tuple[Request[Any], str] | None = field(default=None, repr=False)

    def digest_of(self, told: Request[Any]) -> str:
        """Return a digest of what a client is told, computed once for clients that are told the same."""
        if self._digest is None or self._digest[0] is not told:
            self._digest = told, digest(told)
        return self._digest[1]

    def check(self, reply: Reply, round: int, rows: int, told: Request[Any]) -> None:
        """Raise RefusedReplyError unless the reply of a client with so many rows, told this, is as it must be."""
        kind = type(reply)
        if round != self.call.round:
            raise RefusedReplyError(f"the reply is of round {round}, and this is round {self.call.round}")
        if self.kind is not None and kind is not self.kind:
            raise RefusedReplyError(f"the reply is a {kind.__name__}, and others are {self.kind.__name__}")
        ranges = self.declared(kind, rows) if told is self.call.request else declared_ranges(kind, told, rows)
        for name, declared in ranges.items():
            declared.check(name, getattr(reply, name))
        self.kind = kind

    def declared(self, kind: type[Reply], rows: int) -> Mapping[str, Range]:
        """Range of every field, asked of the type once for all clients with so many rows; in a sum, once for all."""
        key = kind, 0 if isinstance(self.call, SumCall) else rows
        ranges = self._declared.get(key)
        if ranges is None:
            ranges = self._declared[key] = declared_ranges(kind, self.call.request, key[1])
        return ranges


def shown(client: Client, told: Request[Any]) -> Client:
    """The client as its client part may see it: under a mechanism on data with other rows, and a memory of its own.

    The other rows are drawn once in a run, whatever is asked of them (P1 5.1): what is drawn again would average out.
    """
    mechanism = told.mechanism
    if mechanism is None or mechanism.on != "data":
        return client
    if client.covered_by is not None:
        raise TypeError(
            f"{type(told).__name__} would add noise to records that carry it for good: the same draw again, and a"
            " difference of two replies would be without any"
        )
    kept = client.memory.get(_BLURRED)
    # A deviation that was not told is NaN, which equals nothing.
    made_of = mechanism, str(told.deviation) if mechanism.by_level else ""
    if kept is None or kept[0] is not client.rows or kept[1] != made_of:
        if kept is not None and mechanism.claim(mechanism.record_sensitivity) is not None:
            raise TypeError(f"{mechanism.words} would be drawn twice, and is charged once")
        rows = blurred(client, mechanism, told.deviation)
        kept = client.memory[_BLURRED] = client.rows, made_of, rows
    return replace(client, rows=kept[2], memory={})


_BLURRED = "rows under a mechanism"


def blurred(client: Client, mechanism: Mechanism, unit: float) -> FloatArray:
    """A client's rows under a mechanism on data, in their own precision; the same whenever they are drawn."""
    records = Quantity(
        mechanism.limited(client.rows), unit if mechanism.by_level else 1.0, mechanism.record_sensitivity
    )
    stream = client.secret.stream(*noise_name(mechanism, {"rows": records}, kind="records"))
    return np.asarray(mechanism.cover(records, stream).astype(client.rows.dtype))


def follow(client: Client, told: Request[Any]) -> Reply:
    """Have a client do what sets its state; rows that it changes by their classes are noisy rows no longer."""
    reply = type(told).client_part(client, told)
    if told.reads_classes:
        client.covered_by = None
    return reply


def protection_of(client: Client, told: Request[Any]) -> Mechanism | None:
    """What covers a reply: what was applied to it, or what its records carry for good."""
    return told.covering(client.covered_by)


def covered(reply: Reply, client: Client, told: Request[Any], call: Call) -> Reply:
    """The reply as it may leave: under a mechanism on anything but data, changed by it, and cut to its range."""
    if told.mechanism is None or told.mechanism.on == "data":
        return reply
    return Cover.of(told.mechanism, reply, client, told, call).noisy(client.secret)


@dataclass(frozen=True)
class Cover:
    """A reply, what of it a mechanism changes, and the name of the noise for that.

    Attributes
    ----------
    mechanism : Mechanism
    reply : Reply
        Without noise.
    quantities : mapping of field name to Quantity
        What the mechanism changes.
    ranges : mapping of field name to Range
        To which noisy values are cut.
    name : tuple of str
        See :func:`raydr.federation.noise_streams.noise_name`.
    """

    mechanism: Mechanism
    reply: Reply
    quantities: Mapping[str, Quantity]
    ranges: Mapping[str, Range]
    name: tuple[str, str]

    @classmethod
    def of(cls, mechanism: Mechanism, reply: Reply, client: Client, told: Request[Any], call: Call) -> Cover:
        """Find what a mechanism changes of a client's reply.

        Raises
        ------
        TypeError
            If it leaves a part of the reply bare, or nothing says how clients divide it.
        """
        ranges = declared_ranges(type(reply), told, client.rows.shape[0])
        sensitivity, share, finest, among = (
            told.claimed_sensitivity(max(1, client.rows.shape[0])),
            1.0,
            0.0,
            "",
        )
        if isinstance(call, SumCall):
            widest = [ranges[name].largest for name in type(reply).covers]
            finest = max((resolution(largest, call.total_weight) for largest in widest), default=0.0)
            weight = weight_of(client.rows.shape[0], call.weighting)
            if mechanism.shared:
                if call.sharing is None or not weight:
                    raise TypeError(f"nothing says how clients divide {mechanism.words}")
                sensitivity, share = (
                    call.sharing.sensitivity,
                    1.0 / (weight * math.sqrt(call.sharing.clients)),
                )
                among = call.sharing.among
        elif mechanism.shared:
            raise TypeError(
                f"{type(told).__name__} is not added up, and {mechanism.words} covers a sum alone"
            )
        quantities = {
            name: replace(quantity, sensitivity=sensitivity, share=share, resolution=finest)
            for name, quantity in reply.quantities(mechanism.on, told).items()
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
        """Return the reply under the noise that follows from a secret."""
        stream = secret.stream(*self.name)
        values = {}
        for name, quantity in self.quantities.items():
            noisy = self.mechanism.cover(quantity, stream)
            largest = self.ranges[name].largest if name in self.ranges else math.inf
            values[name] = np.clip(noisy, np.negative(largest), largest)
        return self.reply.covered(values, self.mechanism)


def _raised(client: int, error: Exception, trace: str, *, where: str = "") -> Failure:
    reason = f"{type(error).__name__}: {error}"
    return Failure(client, Kind.CLIENT_RAISED, f"{where}: {reason}" if where else reason, trace)
