"""A host, called directly: its calls to clients, sums, refusals and noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from inline_federations import GROUP, KNOWN, known
from requests_for_tests import (
    KeepRequest,
    NoisyRequest,
    OddRequest,
    Shift,
    Shifted,
    TogetherRequest,
    WordRequest,
)

from raydr.arrays import Float64Array
from raydr.errors import RunError
from raydr.federation import (
    Client,
    ClientHost,
    Crash,
    FaultPlan,
    Granularity,
    HostedClient,
    Liars,
    Range,
    Reply,
    Request,
    answers,
    fingerprint,
)
from raydr.federation.codec import encode
from raydr.federation.failures import Failure, Kind
from raydr.federation.host import blurred
from raydr.federation.noise_streams import noise_name
from raydr.federation.pads import pad
from raydr.federation.ring import fraction_bits
from raydr.federation.simulated import ADVERSARIES
from raydr.federation.simulated.faults import Corruption, CrashMoment, SimulatedCrashError
from raydr.federation.wire import Answered, Call, Sent, Sharing, SumCall
from raydr.methods.landmarks.maps import DistanceRequest, Distances
from raydr.privacy import Mechanism, Quantity
from raydr.privacy.gaussian import GaussianNoise
from raydr.privacy.ledger import RecordContent
from raydr.privacy.secrets import client_secret

FEATURES = 3
SIZES = (4, 9, 0, 1, 6)
PARTS = [np.random.default_rng(client).normal(size=(rows, FEATURES)) for client, rows in enumerate(SIZES)]
EVERYBODY = tuple(range(len(SIZES)))


def hosted(faults: FaultPlan | None = None, clients: Sequence[int] = EVERYBODY, **options: Any) -> ClientHost:
    """All clients in one host."""
    hosted = [HostedClient(client, PARTS[client], fingerprint(PARTS[client])) for client in clients]
    return ClientHost(
        hosted=hosted, seed=0, faults=faults or FaultPlan(), host_secrets=known(hosted), **options
    )


def asking(request: Request[Any], clients: tuple[int, ...] = EVERYBODY, **options: Any) -> Call:
    given = {"number": 1, "round": 2, "attempt": 0, "in_rounds": True} | options
    return Call(request=request, clients=clients, **given)


def summing(request: Request[Any], clients: tuple[int, ...] = EVERYBODY, **options: Any) -> SumCall:
    given = {"number": 1, "round": 2, "attempt": 0, "in_rounds": True, "total_weight": sum(SIZES)} | options
    return SumCall(request=request, clients=clients, **given)


def replies(answers: Sequence[Any]) -> dict[int, Any]:
    return {answer.client: answer.reply for answer in answers if isinstance(answer, Answered)}


def failures(answers: Sequence[Any]) -> dict[int, Failure]:
    return {answer.client: answer for answer in answers if isinstance(answer, Failure)}


# ------------------------------------------------------------------------------------- faults strike first attempts


SPARED = [{"in_rounds": False}, {"attempt": 1}, {"round": 3}]
"""Calls outside rounds, again, and in another round."""


@pytest.mark.parametrize("how", ["ask", "sum"])
@pytest.mark.parametrize("moment", list(CrashMoment))
def test_crash_happens_only_in_the_first_attempt_of_its_round(moment: Any, how: str) -> None:
    host = hosted(FaultPlan(crashes=(Crash(client=1, round=2, moment=moment),)))
    call = (asking if how == "ask" else summing)(NoisyRequest(FEATURES))
    act = getattr(host, how)
    for spared in SPARED:
        act(replace(call, **spared))
        act(replace(call, **spared))
    if moment is CrashMoment.AFTER:
        act(call)
    for _ in range(2):
        with pytest.raises(SimulatedCrashError):
            act(call)
    host.restore(())
    act(replace(call, attempt=1))
    assert hosted(FaultPlan(crashes=(Crash(client=4, round=2, moment=moment),)), (0, 1)).ask(
        asking(NoisyRequest(FEATURES), (0, 1))
    )


def test_crash_during_the_reply_happens_after_computing_it() -> None:
    seen: list[int] = []

    class Watched(FaultPlan):
        def corruption(self, seed: int, client: int, round: int) -> None:
            raise AssertionError("a dead process sends nothing")

    part = NoisyRequest.client_part

    def watched(client: Client, request: Any) -> Any:
        seen.append(client.index)
        return part(client, request)

    for moment, expected in (("before", []), ("during", [0])):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(NoisyRequest, "client_part", staticmethod(watched))
            with pytest.raises(SimulatedCrashError):
                hosted(Watched(crashes=(Crash(client=0, round=2, moment=moment),))).ask(
                    asking(NoisyRequest(FEATURES))
                )
        assert seen == expected


def test_host_waits_for_its_slowest_client_in_first_attempts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("raydr.federation.host.time.sleep", slept.append)
    plan = FaultPlan(stragglers=0.6, delay_s=5.0)
    host, call = hosted(plan), asking(NoisyRequest(FEATURES), (1, 3, 4))
    for spared in ({"in_rounds": False}, {"attempt": 1}, {"in_rounds": False, "attempt": 1}):
        host.ask(replace(call, **spared))
    hosted(FaultPlan(dropout=0.1)).ask(call)
    assert not slept
    host.ask(call)
    host.sum(summing(NoisyRequest(FEATURES), round=7))
    assert slept == [
        max(plan.delay(0, client, 2) for client in (1, 3, 4)),
        max(plan.delay(0, client, 7) for client in EVERYBODY),
    ]
    assert slept[0] > 0.0


def test_dropouts_happen_in_first_attempts_and_others_are_summed() -> None:
    plan = FaultPlan(dropout=0.5)
    gone = {client for client in EVERYBODY if plan.drops_out(0, client, 2)}
    assert min(gone) < max(set(EVERYBODY) - gone)
    host, request = hosted(plan), NoisyRequest(FEATURES, noise=0.0)
    found = failures(host.ask(asking(request)))
    assert {client: failure.kind for client, failure in found.items()} == dict.fromkeys(
        gone, Kind.DROPPED_OUT
    )
    part = host.sum(summing(request, weighting="rows"))
    there = tuple(client for client in EVERYBODY if client not in gone)
    assert part.clients == there
    assert part.weight == sum(SIZES[client] for client in there)
    assert {failure.client for failure in part.failures} == gone
    for spared in ({"in_rounds": False}, {"attempt": 1}):
        assert not failures(host.ask(asking(request, **spared)))


def test_adversary_forges_every_attempt_in_rounds_only() -> None:
    lie = ADVERSARIES["sign-flip"].model_validate({"fraction": 0.4, "strength": 3.0})
    host, request = hosted(FaultPlan(adversary=Liars((1, 3), lie))), NoisyRequest(FEATURES, noise=0.0)

    def liars(**options: Any) -> list[int]:
        found = replies(host.ask(asking(request, **options)))
        return [
            client
            for client, reply in found.items()
            if not np.allclose(reply.values, PARTS[client].sum(axis=0))
        ]

    assert liars() == liars(attempt=1) == [1, 3]
    assert liars(in_rounds=False) == []


@pytest.mark.parametrize("kind", list(Corruption))
def test_corrupted_reply_is_refused_and_the_retry_is_valid(kind: Corruption) -> None:
    class Spoils(FaultPlan):
        def corruption(self, seed: int, client: int, round: int) -> Corruption | None:
            return kind if client == 3 else None

    host, call = hosted(Spoils(corrupt=0.5)), asking(NoisyRequest(FEATURES))
    found = failures(host.ask(call))
    assert {client: failure.kind for client, failure in found.items()} == {3: Kind.REFUSED}
    if kind is Corruption.ROUND:
        assert found[3].reason == "the reply belongs to round 1, but this is round 2"
    for spared in ({"in_rounds": False}, {"attempt": 1}):
        assert not failures(host.ask(replace(call, **spared)))


def test_replay_with_other_rows_has_no_faults_and_changes_no_client() -> None:
    lie = ADVERSARIES["sign-flip"].model_validate({"fraction": 0.4, "strength": 3.0})
    crashes = tuple(Crash(client=1, round=2, moment=moment) for moment in ("before", "after"))
    plan = FaultPlan(dropout=0.9, corrupt=0.9, stragglers=1.0, crashes=crashes, adversary=Liars((1,), lie))
    host = hosted(plan, (1,))
    host.ask(asking(Shift(1.0), (1,), in_rounds=False))
    rows = PARTS[1] + 5.0
    other = host.with_rows(rows)
    for attempt in (0, 0, 1):
        (answer,) = other.ask(asking(NoisyRequest(FEATURES, noise=0.0), (1,), attempt=attempt))
        np.testing.assert_allclose(answer.reply.values, rows.sum(axis=0))  # type: ignore[union-attr]
    other.ask(asking(Shift(2.0), (1,), in_rounds=False))
    np.testing.assert_array_equal(other.client(1).rows, rows + 2.0)
    np.testing.assert_array_equal(host.client(1).rows, PARTS[1] + 1.0)
    assert other.client(1).secret == host.client(1).secret
    with pytest.raises(SimulatedCrashError):
        host.ask(asking(NoisyRequest(FEATURES), (1,)))


def test_rows_with_a_wrong_fingerprint_are_refused() -> None:
    hosted = [
        HostedClient(1, PARTS[1], fingerprint(PARTS[1])),
        HostedClient(3, PARTS[3] + 1.0, fingerprint(PARTS[3])),
    ]
    with pytest.raises(RunError, match=r"client 3 was restarted with different rows: .* has changed since"):
        ClientHost(hosted=hosted, seed=0)


# ------------------------------------------------------------------------------------- sums


def test_partial_sum_names_clients_weights_and_bytes() -> None:
    """A client that fails is not in the sum; later clients are."""
    request = KeepRequest(FEATURES, np.zeros((len(SIZES), 24), np.uint8), noise=0.0, culprit=1)
    part = hosted().sum(summing(request, weighting="rows"))
    there = (0, 2, 3, 4)
    assert part.clients == there
    assert part.weight == sum(SIZES[client] for client in there)
    each = len(encode({"values": np.zeros(FEATURES, np.int64), "own": np.zeros(24, np.uint8)}))
    assert part.sent == (Sent(None, 4, 4 * each),)
    assert [failure.client for failure in part.failures] == [1]
    assert set(part.sealed["own"]) == set(there)
    scale = np.ldexp(1.0, fraction_bits(1e6, sum(SIZES)))
    whole = sum(SIZES[client] * np.rint(PARTS[client].sum(axis=0) * scale) for client in there)
    np.testing.assert_allclose(part.totals["values"], whole, rtol=1e-12)


@dataclass(frozen=True)
class Bare(Reply, granularity=Granularity.AGGREGATE, what="column sums"):
    values: Float64Array

    @staticmethod
    def ranges(request: PaddedRequest, rows: int) -> dict[str, Range]:
        return {"values": Range((FEATURES,), 100.0)}


@dataclass(frozen=True)
class PaddedRequest(Request[Bare], what="a question without content", padded=True):
    pass


@dataclass(frozen=True)
class UnpaddedRequest(Request[Bare], what="a question without content"):
    pass


@answers(UnpaddedRequest)
@answers(PaddedRequest)
def bare(client: Client, request: object) -> Bare:
    return Bare(client.rows.sum(axis=0))


def test_padded_sum_is_the_plain_sum_plus_pads() -> None:
    host = hosted()
    for client in EVERYBODY:
        host.client(client).agreed = GROUP
    plain, hidden = (host.sum(summing(request(), number=8)) for request in (UnpaddedRequest, PaddedRequest))
    pads = [pad(GROUP, 8, client, "values", (FEATURES,)) for client in EVERYBODY]
    np.testing.assert_array_equal(hidden.totals["values"] - plain.totals["values"], sum(pads))


# ------------------------------------------------------------------------------------- what is asked, of whom


def test_reply_is_checked_against_the_own_request_of_a_client() -> None:
    """A reply has as many numbers as the client's own request has words."""
    words = np.random.default_rng(0).normal(size=(len(SIZES), len(SIZES)))
    call = asking(WordRequest(words)).cut(EVERYBODY)
    assert call.request is call.request_for(0)
    found = replies(hosted().ask(call))
    assert {client: reply.values.shape for client, reply in found.items()} == {
        client: (client + 1,) for client in EVERYBODY
    }


@dataclass(frozen=True)
class Either(Reply, granularity=Granularity.PER_CLIENT, what="a number"):
    number: float

    @staticmethod
    def ranges(request: object, rows: int) -> dict[str, Range]:
        return {"number": Range((), 1.0)}


@dataclass(frozen=True)
class Other(Either, granularity=Granularity.PER_CLIENT, what="another number"):
    pass


@dataclass(frozen=True)
class EitherRequest(Request[Either], what="a question without content"):
    pass


@answers(EitherRequest)
def either(client: Client, request: EitherRequest) -> Either:
    return (Other if client.index == 3 else Either)(1.0)


def test_reply_of_another_type_is_refused() -> None:
    found = failures(hosted().ask(asking(EitherRequest())))
    assert {client: failure.reason for client, failure in found.items()} == {
        3: "the reply is a Other, but the others are Either"
    }


@dataclass(frozen=True)
class OwnPointsRequest(Request[Distances], what="landmarks for each client"):
    landmarks: Float64Array

    def addressed_to(self, client: int) -> DistanceRequest:  # type: ignore[override]
        return DistanceRequest(self.landmarks[client])


def test_client_is_measured_once_by_its_own_points() -> None:
    """In one call two clients receive new points; each is compared with its own earlier points."""
    points = np.random.default_rng(3).normal(size=(len(SIZES), 2, FEATURES))
    host = hosted()
    assert not failures(host.ask(asking(OwnPointsRequest(points))))
    assert not failures(host.ask(asking(OwnPointsRequest(points.copy()), attempt=1)))
    points[3] += 1e-9
    found = failures(host.ask(asking(OwnPointsRequest(points), number=2)))
    assert {client: failure.kind for client, failure in found.items()} == {3: Kind.REQUEST_REFUSED}


@dataclass(frozen=True)
class Located(Reply, granularity=Granularity.PER_RECORD, what="distances", tells=RecordContent.PROJECTIONS):
    distances: Float64Array

    @staticmethod
    def ranges(request: LocateRequest, rows: int) -> dict[str, Range]:
        return {"distances": Range((rows,))}


@dataclass(frozen=True)
class Kept(
    Located, granularity=Granularity.PER_RECORD, what="distances", tells=RecordContent.DISTANCES, stays=True
):
    pass


@dataclass(frozen=True)
class Placed(Located, granularity=Granularity.PER_RECORD, what="places", tells=RecordContent.PLACES):
    pass


@dataclass(frozen=True)
class LocateRequest(Request[Located], what="a number"):
    by: float
    kind: ClassVar[type[Located]] = Located


@answers(LocateRequest)
def located(client: Client, request: LocateRequest) -> Located:
    return request.kind(client.rows[:, 0] * request.by)


@pytest.mark.parametrize(("kind", "once"), [(Located, True), (Kept, False), (Placed, False)])
def test_only_per_record_measurements_are_answered_once(
    kind: Any, once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocateRequest, "kind", kind)
    host = hosted()
    host.ask(asking(LocateRequest(1.0)))
    assert len(failures(host.ask(asking(LocateRequest(2.0))))) == (len(SIZES) if once else 0)


@dataclass(frozen=True)
class ClassShift(Request[Shifted], what="a shift by classes", sets_state=True):
    by: float
    reads: bool

    @property
    def reads_classes(self) -> bool:
        return self.reads


SHOWN: list[Any] = []


@answers(ClassShift)
def shift_by_class(client: Client, request: ClassShift) -> Shifted:
    SHOWN.append(client.classes)
    client.rows = client.rows + request.by
    return Shifted()


def test_client_part_receives_classes_only_if_declared() -> None:
    SHOWN.clear()
    hosted = [HostedClient(client, PARTS[client], fingerprint(PARTS[client])) for client in (1, 4)]
    classes = {client: np.full(SIZES[client], client) for client in (1, 4)}
    host = ClientHost(hosted=hosted, seed=0, host_secrets=replace(known(hosted), classes=classes))
    host.ask(asking(ClassShift(1.0, reads=True), (1, 4)))
    host.ask(asking(ClassShift(1.0, reads=False), (1, 4), number=2))
    assert SHOWN[0] is classes[1]
    assert SHOWN[1] is classes[4]
    assert SHOWN[2:] == [None, None]


# ------------------------------------------------------------------------------------- all at once


@pytest.mark.parametrize(
    ("jointly", "asked", "as_one"),
    [
        (True, (1, 3), True),
        (True, (3,), False),
        (False, (1, 3), False),
        (True, EVERYBODY, True),
    ],
)
def test_several_clients_answer_joint_requests_together(
    jointly: bool, asked: tuple[int, ...], as_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A joint answer adds 1 to each number here."""
    monkeypatch.setattr(TogetherRequest, "jointly", jointly)
    found = replies(hosted().ask(asking(TogetherRequest(FEATURES), asked)))
    assert tuple(found) == asked
    for client, reply in found.items():
        np.testing.assert_allclose(reply.values, PARTS[client].sum(axis=0) + as_one, rtol=1e-12)


def test_joint_answer_names_the_faulty_client_and_keeps_the_others() -> None:
    answers = hosted().ask(asking(TogetherRequest(FEATURES, culprit=3)))
    assert {client: failure.reason for client, failure in failures(answers).items()} == {
        3: "ValueError: this client cannot"
    }
    assert set(replies(answers)) == {0, 1, 2, 4}
    spent = hosted().ask(asking(TogetherRequest(FEATURES, "memory")))
    words = "could not answer jointly with the other clients of its host, although each could alone: MemoryError: no "
    assert [failure.reason.startswith(words) for failure in failures(spent).values()] == [True] * len(SIZES)


def test_joint_clients_know_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of joint clients is of that round."""
    rounds: list[int] = []
    part = TogetherRequest.joint_part
    assert part is not None

    def watched(clients: Sequence[Client], requests: Sequence[Any]) -> Any:
        rounds.extend(client.round for client in clients)
        return part(clients, requests)

    monkeypatch.setattr(TogetherRequest, "joint_part", staticmethod(watched))
    hosted().ask(asking(TogetherRequest(FEATURES), round=5))
    assert rounds == [5] * len(SIZES)


def test_too_few_joint_replies_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    part = TogetherRequest.joint_part
    assert part is not None
    monkeypatch.setattr(
        TogetherRequest,
        "joint_part",
        staticmethod(lambda *asked: part(*asked)[:-1]),  # type: ignore[misc]
    )
    found = failures(hosted().ask(asking(TogetherRequest(FEATURES))))
    assert set(found) == set(EVERYBODY)
    for failure in found.values():
        assert failure.kind is Kind.CLIENT_RAISED
        assert failure.reason.startswith("could not answer jointly with the other clients of its host")


def test_client_error_hides_its_traceback() -> None:
    found = failures(hosted().ask(asking(OddRequest(3, "raises"))))
    assert {client: failure.reason for client, failure in found.items()} == {
        3: "ValueError: this client cannot"
    }


# ------------------------------------------------------------------------------------- noise


@dataclass(frozen=True)
class Sums(Reply, granularity=Granularity.AGGREGATE, what="two numbers", covers=("total",)):
    total: Float64Array
    count: int

    @staticmethod
    def ranges(request: SumsRequest, rows: int) -> dict[str, Range]:
        largest = request.largest * (rows if request.by_rows else 1)
        return {"total": Range((2,), largest), "count": Range((), 100.0)}

    def quantities(self, on: str, request: object) -> Mapping[str, Quantity]:
        return {"total": Quantity(self.total)}


@dataclass(frozen=True)
class SumsRequest(Request[Sums], what="how far one record moves it"):
    """``moved`` is the sensitivity for a client with one row; it is smaller with more rows."""

    mechanism: Mechanism | None
    counted: bool = False
    by_rows: bool = False
    largest: float = 10.0
    moved: float = 1.0

    def sensitivity(self, rows: int) -> float:
        return self.moved / rows


@answers(SumsRequest)
def sums(client: Client, request: SumsRequest) -> Sums:
    return Sums(client.rows[:, :2].sum(axis=0), len(client.rows) if request.counted else 0)


class Louder(Mechanism):
    """Add a given number, so that input and output of the mechanism are visible."""

    kind: Literal["louder"] = "louder"
    on: str = "update"
    by: float = 0.0
    claims: bool = True
    per: str = "client"

    @property
    def words(self) -> str:
        return "a louder word"

    @property
    def deviation(self) -> float:
        return math.nan

    @property
    def shared(self) -> bool:
        return self.per == "sum"

    def cover(self, quantity: Quantity, stream: np.random.Generator) -> Float64Array:
        SEEN.append(quantity)
        return np.asarray(quantity.values + self.by)

    def claim(self, sensitivity: float, share: float = 1.0, **rounding: Any) -> Any:
        return (sensitivity, share) if self.claims else None

    def reach(self, largest: Any, sensitivity: float) -> Any:
        return largest + 5.0 * sensitivity


SEEN: list[Quantity] = []


@pytest.fixture
def seen() -> list[Quantity]:
    """Return the quantities that the mechanism of this file received."""
    SEEN.clear()
    return SEEN


@pytest.mark.parametrize("by", [1e3, -1e3])
def test_noisy_values_are_clipped_to_the_declared_range(by: float) -> None:
    """The range is the declared one plus the reach of the noise of a client with one row."""
    host, request, end = hosted(), SumsRequest(Louder(by=by)), math.copysign(15.0, by)
    for reply in replies(host.ask(asking(request))).values():
        np.testing.assert_array_equal(reply.total, end)
    for client, reply in replies(host.ask(asking(replace(request, by_rows=True)))).items():
        np.testing.assert_array_equal(reply.total, math.copysign(10.0 * SIZES[client] + 5.0, by))
    part = host.sum(summing(request))
    step = 2.0 ** -int(fraction_bits(15.0, sum(SIZES)))
    np.testing.assert_array_equal(part.totals["total"] * step, len(SIZES) * end)


def test_sensitivity_depends_on_the_number_of_rows(seen: list[Quantity]) -> None:
    """A client without rows counts as one with one row."""
    hosted().ask(asking(SumsRequest(Louder())))
    assert [quantity.sensitivity for quantity in seen] == [1.0 / max(1, rows) for rows in SIZES]
    assert {(quantity.share, quantity.resolution) for quantity in seen} == {(1.0, 0.0)}


@pytest.mark.parametrize("weighting", ["sum", "clients", "rows"])
def test_weighted_noise_shares_add_up_to_the_whole(weighting: Any, seen: list[Quantity]) -> None:
    """The squares of weight times share add up to 1 over the clients that make the whole noise."""
    clients = (0, 1, 3, 4)
    call = summing(
        SumsRequest(Louder(per="sum")),
        clients,
        weighting=weighting,
        sharing=Sharing(clients=4, sensitivity=7.0, colluding=1, among="these"),
    )
    assert not hosted().sum(call).failures
    weights = [SIZES[client] if weighting == "rows" else 1 for client in clients]
    parts = [weight * quantity.share for weight, quantity in zip(weights, seen, strict=True)]
    np.testing.assert_allclose(parts, 0.5, rtol=1e-12)
    assert {quantity.sensitivity for quantity in seen} == {7.0}
    step = 2.0 ** -int(fraction_bits(15.0, sum(SIZES)))
    assert {quantity.resolution for quantity in seen} == {step}


def test_noise_shares_without_weight_are_refused() -> None:
    request, sharing = SumsRequest(Louder(per="sum")), Sharing(4, 7.0, 1)
    alone = hosted().ask(asking(request))
    assert {failure.reason for failure in failures(alone).values()} == {
        "TypeError: SumsRequest is not summed, but a louder word covers only a sum"
    }
    words = "TypeError: the call does not say how clients share a louder word"
    undivided = hosted().sum(summing(request, weighting="rows")).failures
    assert [(failure.client, failure.reason) for failure in undivided] == [
        (client, words) for client in EVERYBODY
    ]
    weightless = hosted().sum(summing(request, weighting="rows", sharing=sharing)).failures
    assert [(failure.client, failure.reason) for failure in weightless] == [(2, words)]


def test_claim_on_a_partly_covered_reply_is_refused() -> None:
    """A field that is 0 reveals nothing, and noise without a claim is not restricted."""
    refused = failures(hosted().ask(asking(SumsRequest(Louder(), counted=True))))
    assert set(refused) == {0, 1, 3, 4}
    for failure in refused.values():
        assert failure.reason == "TypeError: Sums has count that a louder word does not cover"
    for request in (SumsRequest(Louder()), SumsRequest(Louder(claims=False), counted=True)):
        assert not failures(hosted().ask(asking(request)))


@dataclass(frozen=True)
class RowsSum(Reply, granularity=Granularity.PER_CLIENT, what="column sums of the rows as they are shown"):
    values: Float64Array

    @staticmethod
    def ranges(request: RowsRequest, rows: int) -> dict[str, Range]:
        return {"values": Range((FEATURES,))}


@dataclass(frozen=True)
class RowsRequest(Request[RowsSum], what="a question without content"):
    mechanism: Mechanism | None = None
    deviation: float = math.nan


@answers(RowsRequest)
def rows_sum(client: Client, request: RowsRequest) -> RowsSum:
    return RowsSum(client.rows.sum(axis=0, dtype=np.float64))


@pytest.mark.parametrize("strength", [{"level": 0.5}, {"multiplier": 2.0, "clip": 1.0}])
def test_noise_on_rows_is_named_by_rows_and_uses_the_server_unit(strength: Any) -> None:
    """A level is in units of the features' deviation; other noise has no unit and stays the same."""
    noise = GaussianNoise(on="data", **strength)
    client = Client(index=1, rows=PARTS[1].astype(np.float32), seed=0, secret=client_secret(KNOWN, 1))
    for unit in (2.0, 3.0):
        limited = noise.limited(client.rows)
        quantity = Quantity(limited, sensitivity=noise.record_sensitivity)
        if "level" in strength:
            quantity = replace(quantity, unit=unit)
        stream = client.secret.stream(*noise_name(noise, {"rows": quantity}, kind="records"))
        expected = noise.cover(quantity, stream).astype(np.float32)
        found = blurred(client, noise, unit)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected)


def test_noise_level_in_other_units_gives_other_rows() -> None:
    host, noise = hosted(), GaussianNoise(on="data", level=0.5)

    def asked(deviation: float) -> Float64Array:
        (answer,) = host.ask(asking(RowsRequest(noise, deviation), (1,)))
        return np.asarray(answer.reply.values)  # type: ignore[union-attr]

    one, other = asked(1.0), asked(2.0)
    assert (one != other).all()
    np.testing.assert_array_equal(asked(1.0), one)


def test_claimed_noise_on_rows_is_not_redrawn_for_another_strength() -> None:
    host = hosted()

    def asked(multiplier: float, deviation: float = math.nan) -> Any:
        noise = GaussianNoise(on="data", multiplier=multiplier, clip=1.0)
        return host.ask(asking(RowsRequest(noise, deviation), (1,)))[0]

    first = asked(2.0)
    np.testing.assert_array_equal(asked(2.0, 9.0).reply.values, first.reply.values)
    refused = asked(3.0)
    assert isinstance(refused, Failure)
    assert "would be drawn twice, but is charged once" in refused.reason


def test_permanently_noisy_records_get_no_more_noise() -> None:
    noise = GaussianNoise(on="data", level=0.5)
    host = hosted()
    host.client(1).covered_by = noise
    (answer,) = host.ask(asking(RowsRequest(noise, 1.0), (1,)))
    assert isinstance(answer, Failure)
    assert answer.reason.startswith("TypeError: RowsRequest would add noise to records that already carry it")


@dataclass(frozen=True)
class NoisyShift(Request[Shifted], what="a shift under a mechanism", sets_state=True):
    by: float
    mechanism: Mechanism | None = None


@answers(NoisyShift)
def noisy_shift(client: Client, request: NoisyShift) -> Shifted:
    client.rows = client.rows + request.by
    return Shifted()


def test_requests_that_set_state_take_no_mechanism() -> None:
    host = hosted()
    (answer,) = host.ask(asking(NoisyShift(1.0, GaussianNoise(on="data", level=0.5)), (1,)))
    assert isinstance(answer, Failure)
    assert answer.reason == ("TypeError: NoisyShift sets clients' state, so it cannot have a mechanism")
    np.testing.assert_array_equal(host.client(1).rows, PARTS[1])


@pytest.mark.parametrize("reads", [True, False])
def test_rows_changed_by_classes_lose_their_noise_claim(reads: bool) -> None:
    host, noise = hosted(), GaussianNoise(on="data", level=0.5)
    host.client(1).covered_by = noise
    host.ask(asking(ClassShift(1.0, reads), (1,)))
    assert host.client(1).covered_by == (None if reads else noise)
    (answer,) = host.ask(asking(NoisyRequest(FEATURES), (1,)))
    assert answer.protection == (None if reads else noise)  # type: ignore[union-attr]
