"""Secure sums in a federation: bit-identical to plain sums with any losses, without visible summands."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast import fast_only
from inline_federations import federate, known
from tiny import tiny_run, tiny_scenario

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.errors import RaydrError, ScenarioError
from raydr.federation import (
    Client,
    ClientHost,
    Context,
    FailurePolicy,
    FaultPlan,
    Federation,
    Granularity,
    HostedClient,
    InlineTransport,
    QuorumError,
    Range,
    Reply,
    Request,
    answers,
    fingerprint,
)
from raydr.federation.failures import Failure, Kind
from raydr.federation.masks import bits_of, named
from raydr.federation.secure import RecoverRequest, RecoverRequests, RevealRequest, SecureSums, ShareRequest
from raydr.federation.wire import Answer, Call, PartialSum, SumCall
from raydr.privacy import masking
from raydr.privacy.accounting import gaussian_epsilon, gaussian_multiplier
from raydr.privacy.masking import MaskingError, TooFewError
from raydr.runfolder.reading import read_run


@dataclass(frozen=True)
class Vectors(Reply, granularity=Granularity.AGGREGATE, what="two arrays and a number"):
    wide: Float64Array
    tall: Float64Array
    number: float

    @staticmethod
    def ranges(request: VectorsRequest, rows: int) -> dict[str, Range]:
        return {
            "wide": Range((3, 4), 1e3, bits=32),
            "tall": Range((5,), 1e-3, bits=16),
            "number": Range((), 7.0),
        }


@dataclass(frozen=True)
class VectorsRequest(Request[Vectors], what="a question"):
    pass


@answers(VectorsRequest)
def vectors_of(client: Client, request: VectorsRequest) -> Vectors:
    rng = np.random.default_rng([client.index, client.round])
    return Vectors(rng.uniform(-1e3, 1e3, (3, 4)), rng.uniform(-1e-3, 1e-3, 5), float(rng.uniform(-7, 7)))


def parts(count: int) -> list[FloatArray]:
    return [np.full((1 + index % 3, 2), float(index)) for index in range(count)]


def secure(count: int, dropping: float = 0.0, **context: Any) -> Federation:
    return federate(parts(count), secure=SecureSums(dropping=dropping), **context)


def as_arrays(reply: Any) -> list[Any]:
    return [np.asarray(value).tolist() for value in vars(reply).values()]


@dataclass
class Losing(InlineTransport):
    """Lose clients permanently at the named stages."""

    at: dict[str, frozenset[int]] = field(default_factory=dict)
    seen: list[tuple[tuple[int, ...], dict[str, Int64Array]]] = field(default_factory=list)

    def ask(self, call: Call) -> list[Answer]:
        return self._without(call, type(call.request_for(call.clients[0])).__name__, super().ask)

    def sum(self, call: SumCall) -> Iterator[PartialSum]:
        gone = self.at.get("sum", frozenset()).intersection(call.clients) if call.in_rounds else frozenset()
        left = tuple(client for client in call.clients if client not in gone)
        failures = tuple(Failure(client, Kind.CLIENT_RAISED, "lost") for client in sorted(gone))
        for part in super().sum(replace(call, clients=left)):
            self.seen.append((part.clients, {name: total.copy() for name, total in part.totals.items()}))
            yield part
        if failures:
            yield PartialSum(number=call.number, round=call.round, failures=failures)

    def _without(self, call: Call, stage: str, ask: Any) -> list[Answer]:
        gone = self.at.get(stage, frozenset()).intersection(call.clients)
        left = tuple(client for client in call.clients if client not in gone)
        answered = ask(call.cut(left)) if left else []
        return [*answered, *(Failure(client, Kind.CLIENT_RAISED, "lost") for client in sorted(gone))]


def losing(
    count: int, quorum: float, at: dict[str, frozenset[int]], *, apart: bool = False
) -> tuple[Federation, Losing]:
    hosted = [HostedClient(index, rows, fingerprint(rows)) for index, rows in enumerate(parts(count))]
    groups = [[each] for each in hosted] if apart else [hosted]
    transport = Losing(
        [ClientHost(hosted=group, seed=0, host_secrets=known(group)) for group in groups], at=at
    )
    context = Context(
        seed=0, policy=FailurePolicy(quorum=quorum), secure=SecureSums(dropping=round(1.0 - quorum, 9))
    )
    return Federation(transport, count, context), transport


def test_simulated_faults_do_not_affect_secure_sum_preparation() -> None:
    """Faults affect calls in rounds only; keys and shares are exchanged outside rounds."""

    class Noting(InlineTransport):
        def ask(self, call: Call) -> list[Answer]:
            asked.append((type(call.request_for(call.clients[0])).__name__, call.in_rounds))
            return super().ask(call)

    asked: list[tuple[str, bool]] = []
    hosted = [HostedClient(index, rows, fingerprint(rows)) for index, rows in enumerate(parts(4))]
    host = ClientHost(hosted=hosted, seed=0, host_secrets=known(hosted))
    federation = Federation(Noting([host]), 4, Context(seed=0, secure=SecureSums()))
    for _ in federation.rounds(1):
        federation.mean(VectorsRequest())
        federation.gather(VectorsRequest())
    assert {name for name, in_rounds in asked if in_rounds} == {"VectorsRequest"}
    assert {"AdvertiseRequest", "ShareRequest"} <= {name for name, in_rounds in asked if not in_rounds}


@pytest.mark.parametrize("count", [3, 5, 20])
@pytest.mark.parametrize("packing", ["together", "apart"])
def test_secure_sum_is_bit_identical_to_the_plain_sum(count: int, packing: str) -> None:
    where = None if packing == "together" else [1] * count
    plain, hidden = federate(parts(count), packing=where), secure(count, packing=where)
    for federation in (plain, hidden):
        federation._rounds.number = 3
    assert as_arrays(plain.sum(VectorsRequest())) == as_arrays(hidden.sum(VectorsRequest()))
    assert as_arrays(plain.mean(VectorsRequest(), weights="rows")) == as_arrays(
        hidden.mean(VectorsRequest(), weights="rows")
    )


def test_secure_sums_of_changing_cohorts_match_plain_sums() -> None:
    """Half of the clients take part in each round, so agreements with absent clients cannot be used."""
    found, cohorts = [], set()
    for sums in (None, SecureSums()):
        federation = federate(parts(10), participation=0.5, secure=sums)
        found.append([])
        for _ in federation.rounds(4):
            found[-1].append(as_arrays(federation.mean(VectorsRequest())))
            cohorts.add(federation.answered)
    assert found[0] == found[1]
    assert len(cohorts) > 2


def one_round(federation: Federation) -> list[Any]:
    """Return the mean of one round."""
    (found,) = [as_arrays(federation.mean(VectorsRequest())) for _ in federation.rounds(1)]
    return found


STAGES = ("ShareRequest", "sum", "RevealRequest")


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("lost", range(5))
def test_secure_sum_survives_losses_at_every_stage(stage: str, lost: int) -> None:
    """Of 20 clients, 4 may be lost; the sum is that of the others."""
    gone = frozenset(range(3, 3 + lost))
    hidden, _ = losing(20, 0.8, {stage: gone})
    plain, _ = losing(20, 0.8, {"sum": frozenset() if stage == "RevealRequest" else gone})
    assert one_round(hidden) == one_round(plain)


@pytest.mark.parametrize("stage", ["ShareRequest", "sum"])
def test_one_loss_too_many_is_refused(stage: str) -> None:
    hidden, _ = losing(20, 0.8, {stage: frozenset(range(5))})
    with pytest.raises((TooFewError, QuorumError), match="only 15 of 20 clients"):
        one_round(hidden)


@pytest.mark.parametrize("stages", [("RevealRequest",), ("RecoverRequest", "sum")])
def test_too_few_shares_are_refused(stages: tuple[str, ...]) -> None:
    gone = {
        "sum": frozenset({19}),
        "RevealRequest": frozenset(range(12)),
        "RecoverRequest": frozenset(range(12)),
    }
    hidden, _ = losing(20, 0.8, {stage: gone[stage] for stage in stages})
    with pytest.raises(TooFewError, match="have revealed a share"):
        one_round(hidden)


def noting(federation: Federation, transport: Losing) -> list[tuple[str, Request[Any]]]:
    """Return a list that will hold each request outside of sums, of the first client asked, with its name."""
    asked: list[tuple[str, Request[Any]]] = []
    ask = transport.ask

    def keeping(call: Call) -> list[Answer]:
        request = call.request_for(call.clients[0])
        asked.append((type(request).__name__, request))
        return ask(call)

    transport.ask = keeping  # type: ignore[method-assign]
    return asked


def test_shares_are_for_batches_that_grow_and_no_label_occurs_twice() -> None:
    """The first sum has a batch of its own; then a batch has as many sums as went before, 16 at most."""
    hidden, transport = losing(6, 1.0, {})
    asked, plain = noting(hidden, transport), federate(parts(6))
    found = [[as_arrays(each.mean(VectorsRequest())) for _ in each.rounds(40)] for each in (hidden, plain)]
    assert found[0] == found[1]
    batches = [request.batch for _, request in asked if isinstance(request, ShareRequest)]
    assert [batch.sums for batch in batches] == [1, 2, 4, 8, 16, 16]
    assert [batch.number for batch in batches] == [1, 2, 3, 4, 5, 6]
    labels = [request.label for _, request in asked if isinstance(request, RevealRequest)]
    assert len(set(labels)) == len(labels) == 40
    assert all(0 <= label.place < label.batch.sums for label in labels)
    assert "RecoverRequest" not in {name for name, _ in asked}, "nothing to recover without a loss"


def test_batch_that_a_client_missed_serves_one_sum() -> None:
    """So a client that was late once is in the next sum."""
    hidden, transport = losing(20, 0.8, {})
    asked, cohorts = noting(hidden, transport), []
    for number in hidden.rounds(7):
        transport.at = {"ShareRequest": frozenset({4})} if number == 4 else {}
        hidden.mean(VectorsRequest())
        cohorts.append(hidden.answered)
    without = tuple(client for client in range(20) if client != 4)
    assert [cohort == without for cohort in cohorts] == [number == 4 for number in range(1, 8)]
    sums = [request.batch.sums for _, request in asked if isinstance(request, ShareRequest)]
    assert sums == [1, 2, 4, 1, 2]


def test_only_holders_of_lost_clients_shares_are_asked_for_them() -> None:
    hidden, transport = losing(60, 0.8, {"sum": frozenset({7}), "RevealRequest": frozenset({9})})
    calls: list[Call] = []
    ask = transport.ask

    def keeping(call: Call) -> list[Answer]:
        calls.append(call)
        return ask(call)

    transport.ask = keeping  # type: ignore[method-assign]
    one_round(hidden)
    (call,) = (call for call in calls if isinstance(call.request, RecoverRequests))
    ahead = hidden._exchange._secure_sums._ahead  # type: ignore[union-attr]
    assert ahead is not None
    near = {*ahead.group.neighbours(7), *ahead.group.neighbours(9)} - {7, 9}
    assert set(call.clients) == near < set(range(60)) - {7, 9}


def test_secure_sum_survives_losses_at_all_stages_at_once() -> None:
    at = {"ShareRequest": frozenset({1}), "sum": frozenset({5, 6}), "RevealRequest": frozenset({9})}
    hidden, _ = losing(20, 0.8, at)
    plain, _ = losing(20, 0.8, {"sum": frozenset({1, 5, 6})})
    assert one_round(hidden) == one_round(plain)
    assert hidden.answered == tuple(client for client in range(20) if client not in (1, 5, 6))


@pytest.mark.parametrize("apart", [True, False])
def test_secure_uploads_are_uniform(apart: bool) -> None:
    """The bytes of uploads pass a chi-squared test (false alarm 1 in 10^10); without masks they fail it."""

    def statistic(federation: Federation, transport: Losing) -> float:
        for _ in range(150):
            federation.sum(VectorsRequest())
        chosen = [totals for clients, totals in transport.seen if not apart or clients == (1,)]
        sent = b"".join(part.tobytes() for totals in chosen for part in totals.values())
        content = np.frombuffer(sent, np.uint8)
        counts = np.bincount(content, minlength=256)
        return float(((counts - content.nbytes / 256) ** 2 / (content.nbytes / 256)).sum())

    hidden, transport = losing(5, 1.0, {}, apart=apart)
    assert statistic(hidden, transport) < 430
    transport.seen.clear()
    hidden._exchange._secure_sums = None
    assert statistic(hidden, transport) > 430


def test_two_sums_have_different_masks() -> None:
    """Replies are equal, so with equal masks the difference of two uploads would be zero."""
    hidden, transport = losing(5, 1.0, {}, apart=True)
    for _ in range(2):
        hidden.sum(VectorsRequest())
    uploads = [totals["wide"] for clients, totals in transport.seen if clients == (2,)]
    assert len(uploads) == 2
    assert (uploads[0] != uploads[1]).all()
    again, others = losing(5, 1.0, {}, apart=True)
    again.sum(VectorsRequest())
    (later,) = [totals["wide"] for clients, totals in others.seen if clients == (2,)]
    assert (later != uploads[0]).all(), "nor in another start of the same run"


def test_client_reveals_shares_once() -> None:
    """Shares of one sum for two sets of survivors could reveal a vector."""
    hidden, transport = losing(5, 0.5, {})
    asked: list[RevealRequest] = []
    ask = transport.ask

    def keeping(call: Call) -> list[Answer]:
        reported = call.request_for(call.clients[0])
        if isinstance(reported, RevealRequest):
            asked.append(reported)
        return ask(call)

    transport.ask = keeping  # type: ignore[method-assign]
    hidden.sum(VectorsRequest())
    client = transport.hosts[0]._clients[0]
    first = asked[0]
    part = RevealRequest.client_part
    part(client, first)
    with pytest.raises(MaskingError, match="asked twice to reveal"):
        part(client, replace(first, survivors=first.dropped, dropped=first.survivors))
    masks = hidden._exchange._secure_sums._ahead.next().masks  # type: ignore[union-attr]
    later = RecoverRequest(
        circle=first.circle,
        label=first.label,
        keys=masking.keys_for(first.circle.group(client), 0, dict(enumerate(masks.keys))),
        shares=np.zeros((4, 82), np.uint8),
        survivors=bits_of((0, 1, 2, 3)),
        dropped=bits_of((4,)),
        silent=bits_of(()),
    )
    with pytest.raises(MaskingError, match="asked twice to reveal"):
        RecoverRequest.client_part(client, later)


def test_restarted_client_masks_and_reveals_what_it_would_have() -> None:
    """Nothing that a process keeps is needed: each stage works after a restart in between."""
    found = []
    for restarts in (False, True):
        hidden, transport = losing(6, 0.8, {"RevealRequest": frozenset({3})}, apart=True)
        ask, add = transport.ask, transport.sum

        def again(transport: Losing = transport, restarts: bool = restarts) -> None:
            for host in transport.hosts if restarts else ():
                host.restore(())

        def asking(call: Call, ask: Any = ask, again: Any = again) -> list[Answer]:
            again()
            return list(ask(call))

        def adding(call: SumCall, add: Any = add, again: Any = again) -> Iterator[PartialSum]:
            again()
            yield from add(call)

        transport.ask, transport.sum = asking, adding  # type: ignore[method-assign]
        found.append([as_arrays(hidden.mean(VectorsRequest())) for _ in hidden.rounds(3)])
    assert found[0] == found[1]


@pytest.mark.parametrize(("clients", "size"), [((), 0), ((7,), 1), ((8,), 2), ((0, 3, 17), 3)])
def test_clients_are_encoded_as_one_bit_each(clients: tuple[int, ...], size: int) -> None:
    assert bits_of(clients).size == bits_of(frozenset(clients)).size == size
    assert named(bits_of(clients)) == clients


def test_secure_sums_default_to_a_fifth_colluding_and_no_losses() -> None:
    assert SecureSums() == SecureSums(colluding=0.2, dropping=0.0)


def test_server_of_another_run_is_refused() -> None:
    hosted = [HostedClient(index, rows, fingerprint(rows)) for index, rows in enumerate(parts(3))]
    transport = InlineTransport([ClientHost(hosted=hosted, seed=0, run="one run")])
    federation = Federation(transport, 3, Context(seed=0, run="another", secure=SecureSums()))
    with pytest.raises(RaydrError, match="have different runs or seeds"):
        federation.sum(VectorsRequest())


def test_crashes_and_retries_do_not_change_secure_sums() -> None:
    """A restarted host derives its agreements again."""
    found = []
    for plan, hidden in ((FaultPlan(), False), (crashing(), True)):
        hosted = [HostedClient(index, rows, fingerprint(rows)) for index, rows in enumerate(parts(6))]
        hosts = [
            ClientHost(hosted=[each], seed=0, faults=plan, host_secrets=known([each])) for each in hosted
        ]
        context = Context(seed=0, secure=SecureSums() if hidden else None)
        federation = Federation(InlineTransport(hosts), 6, context)
        found.append([as_arrays(federation.mean(VectorsRequest())) for _ in federation.rounds(3)])
    assert found[0] == found[1]


def crashing() -> FaultPlan:
    from raydr.federation import Crash

    return FaultPlan(
        crashes=tuple(
            Crash(client=client, round=round, moment=moment)
            for client, round, moment in ((1, 1, "before"), (2, 2, "during"), (3, 2, "after"))
        )
    )


METHODS: dict[str, dict[str, Any]] = {
    "learnt landmarks": {},
    "principal axes": {"method": {"kind": "fed-tsne", "early_iterations": 5, "iterations": 5}},
    "random features": {"method__share": "embedding"},
    "spectral": {
        "method": {
            "kind": "fed-spectral",
            "clusters": 3,
            "landmarks": 12,
            "rounds": 2,
            "embedder": {"kind": "tsne", "early_iterations": 5, "iterations": 5},
        }
    },
    "fedne": {"method": {"kind": "fedne", "rounds": 3, "hidden": [8], "local_steps": 2}},
    "minmax": {"data__scale": "minmax"},
    "sense, minmax": {
        "method": {
            "kind": "sense",
            "anchors": 3,
            "embedder": {"kind": "tsne", "early_iterations": 5, "iterations": 5},
        },
        "data__scale": "minmax",
    },
    "drop-outs": {"faults__dropout": 0.1, "runtime__quorum": 0.5, "clients__count": 12},
    "some take part": {"clients__participation": 0.5, "clients__count": 10},
    "keyed": {"privacy__isometry_key": True, "data__scale": "standard"},
}


FAST = ("learnt landmarks", "random features", "minmax", "drop-outs", "some take part", "keyed")


@pytest.mark.parametrize("name", fast_only(lambda name: name in FAST, METHODS))
def test_every_method_gives_the_same_map_under_secure_aggregation(name: str, tmp_path: Path) -> None:
    """The map is the same, and the server sees no summands."""
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(32))
    secret.chmod(0o600)
    sections: dict[str, Any] = {"clients__count": 5, "privacy__secret": str(secret), "metrics": []}
    sections |= METHODS[name]
    plain = tiny_run(tmp_path / "plain", **sections)
    hidden = tiny_run(tmp_path / "hidden", **sections, privacy__secure_aggregation=True)
    if "isometry_key" not in str(sections):
        assert (plain / "embedding.parquet").read_bytes() == (hidden / "embedding.parquet").read_bytes()
    run = read_run(hidden)
    assert run.privacy.secure_aggregation
    summed = [entry for entry in run.ledger if "sums what each client sends" in entry.seen_by]
    assert not summed
    assert {entry.kind for entry in run.ledger if entry.secure}


def test_noise_shares_meet_the_claim_against_server_and_colluders(tmp_path: Path) -> None:
    """They see one noisy sum, so epsilon is not that of a single upload."""
    noise = {"on": "gradient", "epsilon": 1.0, "per": "sum"}
    sections: dict[str, Any] = {"clients__count": 10, "privacy__noise": noise, "metrics": []}
    plain = read_run(tiny_run(tmp_path / "plain", **sections)).privacy
    hidden = read_run(tiny_run(tmp_path / "hidden", **sections, privacy__secure_aggregation=True)).privacy
    assert plain.epsilon_accounted == plain.epsilon_by_adversary["server"].accounted > 2.0
    assert hidden.epsilon_accounted == pytest.approx(1.0, rel=1e-6)
    against = {name: reported.accounted for name, reported in hidden.epsilon_by_adversary.items()}
    whole = gaussian_multiplier(1.0, 1e-5)
    assert against == {
        "server": pytest.approx(gaussian_epsilon(whole * math.sqrt(10 / 8), 1e-5), rel=1e-6),
        "client": pytest.approx(gaussian_epsilon(whole * math.sqrt(9 / 8), 1e-5), rel=1e-6),
        "colluders": pytest.approx(1.0, rel=1e-6),
        "outsider": against["server"],
    }


def test_noise_suffices_after_the_worst_allowed_drop_out(tmp_path: Path) -> None:
    """An unnecessary quorum adds noise, so epsilon is below the requested one."""
    noise = {"on": "gradient", "epsilon": 1.0, "per": "sum"}
    sections: dict[str, Any] = {
        "clients__count": 12,
        "privacy__noise": noise,
        "privacy__secure_aggregation": True,
        "runtime__quorum": 0.5,
        "metrics": [],
    }
    whole = read_run(tiny_run(tmp_path / "whole", **sections)).privacy
    lossy = read_run(tiny_run(tmp_path / "lossy", **sections, faults__dropout=0.1)).privacy
    assert whole.epsilon_accounted < lossy.epsilon_accounted <= 1.0 + 1e-9


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"clients__count": 2}, "needs at least 3 clients"),
        ({"clients__count": 4, "runtime__quorum": 0.5}, "Fewer than 2 are left"),
        ({"clients__count": 10, "clients__participation": 0.2}, "needs at least 3 clients"),
        ({"privacy__colluding": 0.9}, "Fewer than 2 are left"),
    ],
)
def test_too_few_clients_for_secure_aggregation_are_refused(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        tiny_scenario(privacy__secure_aggregation=True, **sections)


@pytest.mark.ray
def test_secure_sums_on_ray_match_inline(cluster: None) -> None:
    from raydr.actors.backend import RayBackend
    from raydr.methods.landmarks.maps import FedTSNE
    from raydr.methods.serving import Plan
    from raydr.scenarios.running.backend import InlineBackend

    settings = FedTSNE(landmarks=5, rounds=2, early_iterations=5, iterations=5)
    plan = Plan(
        method="fed-tsne", settings=settings, scale="standard", seed=0, secure=SecureSums(), run="a run"
    )
    rows = [np.random.default_rng(index).normal(size=(9, 3)) for index in range(4)]
    served = [
        backend.serve(rows, plan, listener=lambda event: None)
        for backend in (InlineBackend(), RayBackend(packing=2))
    ]
    assert served[0].outcome.embedding.tobytes() == served[1].outcome.embedding.tobytes()
    assert served[0].ledger.as_list() == served[1].ledger.as_list()
