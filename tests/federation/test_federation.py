"""The contract of a federation: the same suite for every transport and packing."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inline_federations import federation_over
from requests_for_tests import (
    DeadlyShift,
    KeepRequest,
    Kept,
    LetterRequest,
    NestRequest,
    Noisy,
    NoisyRequest,
    OddRequest,
    OwnShift,
    ProductRequest,
    Shift,
    TogetherRequest,
    TurnByBLAS,
    WordRequest,
    gram,
)

from raydr.arrays import Float64Array, UInt8Array
from raydr.errors import DataError, RunError
from raydr.federation import (
    ClientError,
    ClientHost,
    Crash,
    FailurePolicy,
    FaultPlan,
    Federation,
    HostedClient,
    InlineTransport,
    Liars,
    Loop,
    QuorumError,
    answers_jointly,
    fingerprint,
)
from raydr.federation.checkpoint import Checkpoint
from raydr.federation.simulated import ADVERSARIES
from raydr.federation.streams import client_stream
from raydr.federation.wire import Call, Sent, by_protection, history_at, remember, weight_of
from raydr.journal import CheckpointTaken, Event, Journal, RoundEnded
from raydr.privacy.gaussian import GaussianNoise
from raydr.robust import CoordinateMedian, NormBound, RobustRule, TrimmedMean

CLIENTS, FEATURES = 5, 3
PACKINGS = {"inline": 0, "ray-2": 2, "ray-per-client": CLIENTS}
CARRIERS = [pytest.param(name, marks=pytest.mark.ray if actors else ()) for name, actors in PACKINGS.items()]

Make = Callable[..., Federation]


def partitions() -> list[Any]:
    rng = np.random.default_rng(7)
    sizes = (4, 9, 0, 1, 6)
    return [rng.normal(size=(size, FEATURES)) * 10.0**index for index, size in enumerate(sizes)]


def transport(actors: int, parts: Sequence[Any], seed: int, faults: FaultPlan, timeout_s: float) -> Any:
    if actors == 0:
        hosted = [HostedClient(index, rows, fingerprint(rows)) for index, rows in enumerate(parts)]
        return InlineTransport([ClientHost(hosted=[each], seed=seed, faults=faults) for each in hosted])
    from raydr.actors.placement import place
    from raydr.actors.resources import Room
    from raydr.actors.transport import RayTransport

    return RayTransport(
        placements=place(parts, actors, Room(cores=2)), seed=seed, faults=faults, timeout_s=timeout_s
    )


@pytest.fixture(params=CARRIERS[:2])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Federations of the same clients over one transport."""
    yield from federations(request)


@pytest.fixture(params=CARRIERS)
def make_packed(request: pytest.FixtureRequest) -> Iterator[Make]:
    """The same for every packing."""
    yield from federations(request)


def federations(request: pytest.FixtureRequest) -> Iterator[Make]:
    actors = PACKINGS[request.param]
    processes = request.getfixturevalue("client_processes") if actors else None
    made = []

    def build(
        *, seed: int = 0, faults: FaultPlan | None = None, timeout_s: float = 60.0, **options: Any
    ) -> Federation:
        carrier = transport(actors, partitions(), seed, faults or FaultPlan(), timeout_s)
        made.append(carrier)
        return federation_over(carrier, CLIENTS, seed=seed, **options)

    with pytest.MonkeyPatch.context() as patch:
        if processes is not None:
            patch.setattr("raydr.actors.transport.ClientActor", processes)
        yield build
        if processes is not None:
            for carrier in made:
                processes.take_back(carrier)


def inline(**options: Any) -> Federation:
    seed = options.pop("seed", 0)
    return federation_over(transport(0, partitions(), seed, FaultPlan(), 60.0), CLIENTS, seed=seed, **options)


def bits(reply: Any) -> list[bytes]:
    return [np.asarray(getattr(reply, field.name)).tobytes() for field in dataclasses.fields(reply)]


@dataclasses.dataclass(kw_only=True, frozen=True)
class Summed:
    """State of a loop: (features,) float64."""

    sum: Float64Array


@dataclasses.dataclass(kw_only=True, frozen=True)
class Sealed:
    """State of a loop: what each client sealed for itself, (clients, bytes)."""

    kept: UInt8Array


def trajectory(federation: Federation, rounds: int = 4) -> list[list[bytes]]:
    """Bits of every aggregate of some rounds that depend on state, noise and the aggregates before."""
    federation.ask(Shift(0.25))
    loop, seen = Loop(Summed(sum=np.zeros(FEATURES))), []
    for _ in federation.rounds(rounds, loop):
        answer = federation.mean(NoisyRequest(FEATURES), weights="rows")
        loop.state = Summed(sum=loop.state.sum * 0.5 + answer.values)
        seen.append(bits(answer))
    seen += [bits(federation.sum(NoisyRequest(FEATURES))), [loop.state.sum.tobytes()]]
    return seen


def test_replies_come_in_client_order_with_the_clients_own_bits(make_packed: Make) -> None:
    replies = make_packed().ask(ProductRequest(64))
    expected = inline().ask(ProductRequest(64))
    assert [bits(reply) for reply in replies] == [bits(reply) for reply in expected]
    assert len({reply.values.tobytes() for reply in replies}) == CLIENTS


def test_sum_and_means_equal_numpy(make: Make) -> None:
    federation = make()
    parts = partitions()
    sums = np.array([part.sum(axis=0) for part in parts])
    sizes = np.array([len(part) for part in parts])
    request = NoisyRequest(FEATURES, noise=0.0)
    np.testing.assert_allclose(federation.sum(request).values, sums.sum(axis=0), rtol=1e-12)
    present = sizes > 0
    np.testing.assert_allclose(federation.mean(request).values, sums[present].mean(axis=0), rtol=1e-12)
    weighted = federation.mean(request, weights="rows")
    np.testing.assert_allclose(weighted.values, (sizes @ sums) / sizes.sum(), rtol=1e-12)
    assert federation.sum(request).rows == sizes.sum()


def test_the_same_bits_whatever_carries_the_calls(make_packed: Make) -> None:
    assert trajectory(make_packed()) == trajectory(inline())


def test_another_seed_gives_other_bits() -> None:
    assert trajectory(inline(seed=1)) != trajectory(inline())


MOMENTS = [
    pytest.param("before", marks=pytest.mark.slow),
    "during",
    pytest.param("after", marks=pytest.mark.slow),
]
"""When a process dies; each death takes the start of another."""


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_process_that_dies_in_every_round_changes_no_bit(make: Make, moment: Any) -> None:
    crashes = tuple(Crash(client=1, round=number, moment=moment) for number in (1, 2, 3, 4))
    journal = Journal()
    federation = make(faults=FaultPlan(crashes=crashes), journal=journal)
    assert trajectory(federation) == trajectory(inline())
    # Each death costs exactly one failed call, of every client of the process that died; each is retried once.
    # One that follows the answer is noticed by the next round's call, whose second attempt nothing strikes.
    incidents = [incident for record in journal.rounds for incident in record.incidents]
    deaths = [incident for incident in incidents if incident["client"] == 1]
    assert len(deaths) == (2 if moment == "after" else 4)
    assert {incident["decision"] for incident in deaths} == {"retry"}
    assert {incident["kind"] for incident in deaths} == {"process died"}
    summed = next(entry for entry in federation.ledger.entries.values() if entry.kind == Noisy.__name__)
    assert summed.count == 4 * 4 + CLIENTS, "every answer is counted once"


def test_resume_gives_the_bits_of_the_run_that_was_never_interrupted(make: Make) -> None:
    taken: list[CheckpointTaken] = []

    def hear(event: Event) -> None:
        if isinstance(event, CheckpointTaken):
            taken.append(event)

    whole_journal = Journal(hear)
    whole = inline(journal=whole_journal, checkpoint_every=2)
    expected = trajectory(whole)
    middle = Checkpoint.from_bytes(taken[0].content)
    assert middle.round == 2
    journal = Journal(rounds=whole_journal.rounds[:2])
    resumed = make(resume=middle, journal=journal)
    assert trajectory(resumed)[-2:] == expected[-2:]
    assert resumed.ledger.as_list() == whole.ledger.as_list()

    def timeless(records: list[RoundEnded]) -> list[RoundEnded]:
        return [dataclasses.replace(record, seconds=0.0) for record in records]

    assert timeless(journal.rounds) == timeless(whole_journal.rounds)


def test_what_is_not_as_declared_is_refused_and_named(make: Make) -> None:
    federation = make()
    for way, words in {
        "nan": "nan",
        "infinite": "inf",
        "range": "10.5",
        "shape": r"\(3,\)",
        "dtype": "float32",
        "raises": "ValueError: this client cannot",
    }.items():
        with pytest.raises(ClientError, match=rf"Client 3 .*{words}"):
            federation.sum(OddRequest(3, way))
        with pytest.raises(ClientError, match=rf"Client 3 .*{words}"):
            federation.ask(OddRequest(3, way))
        assert federation.sum(OddRequest(-1, way)).value[0] == CLIENTS, f"the federation goes on after {way}"  # type: ignore[index]


def test_a_lost_client_is_dropped_for_the_round_where_the_quorum_allows(make: Make) -> None:
    journal = Journal()
    federation = make(policy=FailurePolicy(quorum=0.7), journal=journal)
    for _ in federation.rounds(2):
        assert federation.mean(OddRequest(1, "nan")).value[0] == 1.0  # type: ignore[index]
    assert [record.answered for record in journal.rounds] == [3, 3]
    assert journal.rounds[0].incidents[0]["decision"] == "drop for this round"
    strict = make(policy=FailurePolicy(quorum=0.9))
    for _ in strict.rounds(1):
        with pytest.raises(QuorumError, match="only 3 of 4 clients"):
            strict.mean(OddRequest(1, "nan"))


def test_weights_after_a_drop_out_are_those_of_the_clients_that_answered(make: Make) -> None:
    faults = FaultPlan(dropout=0.5)
    federation = make(faults=faults, policy=FailurePolicy(quorum=0.01), seed=3)
    parts = partitions()
    seen = set()
    for number in federation.rounds(6):
        there = [
            index for index, rows in enumerate(parts) if len(rows) and not faults.drops_out(3, index, number)
        ]
        seen.add(tuple(there))
        if not there:
            continue
        answer = federation.mean(NoisyRequest(FEATURES, noise=0.0), weights="rows")
        sizes = np.array([len(parts[index]) for index in there])
        sums = np.array([parts[index].sum(axis=0) for index in there])
        np.testing.assert_allclose(answer.values, sizes @ sums / sizes.sum(), rtol=1e-9)
    assert len(seen) > 2


def test_participation_draws_a_seeded_cohort_in_rounds_only(make: Make) -> None:
    journal = Journal()
    federation = make(participation=0.5, journal=journal)
    for _ in federation.rounds(3):
        federation.mean(NoisyRequest(FEATURES))
    assert [record.asked for record in journal.rounds] == [2, 2, 2]
    assert federation.mean(NoisyRequest(FEATURES, noise=0.0)).rows == 20 / 4


def test_corrupted_replies_are_all_caught(make: Make) -> None:
    journal = Journal()
    faults = FaultPlan(corrupt=0.6)
    federation = make(faults=faults, policy=FailurePolicy(quorum=0.01), journal=journal, seed=5)
    expected = 0
    for number in federation.rounds(8):
        spoilt = [
            client
            for client in (0, 1, 3, 4)
            if faults.corruption(federation.seed, client, number) is not None
        ]
        expected += len(spoilt)
        if len(spoilt) == 4:
            continue
        value = federation.mean(OddRequest(-1, "none")).value
        assert np.array_equal(value, [1.0, 1.0])  # type: ignore[arg-type]
    refused = [incident for record in journal.rounds for incident in record.incidents]
    caught_rounds = sum(record.failed for record in journal.rounds)
    assert caught_rounds == len(refused) > 0
    assert {incident["kind"] for incident in refused} == {"reply refused"}


def test_a_client_is_told_its_own_part_alone(make_packed: Make) -> None:
    federation = make_packed()
    words = np.random.default_rng(0).normal(size=(CLIENTS, CLIENTS))
    replies = federation.ask(WordRequest(words))
    for client, (reply, part) in enumerate(zip(replies, partitions(), strict=True)):
        np.testing.assert_array_equal(reply.values, words[client, : client + 1] * len(part))
    entry = next(entry for entry in federation.ledger.entries.values() if entry.kind == "WordRequest")
    assert entry.seen_by == "each client its own part"
    assert entry.bytes == 8 * (CLIENTS * (CLIENTS + 1) // 2 + CLIENTS)


def test_the_server_computes_with_the_same_bits_in_order(make_packed: Make) -> None:
    matrices = [np.random.default_rng(index).normal(size=(index + 1, 300)) for index in range(7)]
    federation = make_packed()
    results = list(federation.compute(gram, matrices))
    assert [result.tobytes() for result in results] == [
        result.tobytes() for result in inline().compute(gram, matrices)
    ]
    np.testing.assert_allclose(results[3], matrices[3] @ matrices[3].T)
    with pytest.raises(DataError, match="not finite"):
        list(federation.compute(gram, [np.eye(2), np.full((1, 1), np.nan), np.eye(3)]))


def test_a_checkpoint_of_another_run_is_refused() -> None:
    taken: list[bytes] = []
    journal = Journal(
        lambda event: taken.append(event.content) if isinstance(event, CheckpointTaken) else None
    )
    trajectory(inline(journal=journal, checkpoint_every=4))
    for other in ({"seed": 1}, {"run": "of something else"}):
        with pytest.raises(RunError, match="belongs to another run"):
            inline(**other, resume=Checkpoint.from_bytes(taken[0]))
    resumed = inline(resume=Checkpoint.from_bytes(taken[0]))
    with pytest.raises(RunError, match="holds sum of this loop, but the method expects kept"):
        keeping(resumed)
    with pytest.raises(RunError, match="holds sum of this loop, but the method expects no state"):
        next(inline(resume=Checkpoint.from_bytes(taken[0])).rounds(4))


def test_ledger_meters_every_message(make: Make) -> None:
    federation = make()
    federation.sum(NoisyRequest(FEATURES))
    federation.ask(ProductRequest(4))
    entries = {entry["kind"]: entry for entry in federation.ledger.as_list()}
    assert entries["Noisy"]["count"] == CLIENTS
    assert entries["Noisy"]["bytes"] == CLIENTS * 8 * (FEATURES + 1)
    assert entries["Noisy"]["granularity"] == "aggregate"
    assert entries["Product"]["bytes"] == CLIENTS * 4 * 4 * 8
    assert entries["ProductRequest"]["direction"] == "down"
    assert entries["ProductRequest"]["bytes"] == CLIENTS * 8


class TestRayOnly:
    """What only processes can do."""

    @pytest.fixture(autouse=True)
    def _cluster(self, cluster: None) -> None:
        pass

    def federation(self, **options: Any) -> tuple[Federation, Any]:
        timeout_s = options.pop("timeout_s", 60.0)
        carrier = transport(2, partitions(), 0, FaultPlan(), timeout_s)
        return federation_over(carrier, CLIENTS, seed=0, **options), carrier

    def test_a_process_that_always_dies_is_given_up_with_its_client_named(self) -> None:
        federation, carrier = self.federation()
        with pytest.raises(ClientError, match="process died"):
            federation.sum(OddRequest(3, "exits"))
        assert federation.sum(OddRequest(-1, "none")).value[0] == CLIENTS  # type: ignore[index]
        carrier.close()

    def test_a_process_that_is_killed_while_state_is_set_sets_it_once(self, tmp_path: Path) -> None:
        """Outside rounds too, as in the scaling of rows."""
        federation, carrier = self.federation()
        before = row_sums(federation)
        federation.ask(DeadlyShift(1.0, str(tmp_path / "dead")))
        assert (tmp_path / "dead").exists()
        np.testing.assert_allclose(row_sums(federation), np.add(before, 1.0), rtol=1e-9, atol=1e-9)
        federation.ask(Shift(1.0))
        np.testing.assert_allclose(row_sums(federation), np.add(before, 2.0), rtol=1e-9, atol=1e-9)
        carrier.close()

    def test_a_client_that_hangs_is_killed_after_the_time_out(self) -> None:
        federation, carrier = self.federation(policy=FailurePolicy(retries=0), timeout_s=6.0)
        with pytest.raises(ClientError, match="timed out, no answer within 6 s"):
            federation.sum(OddRequest(3, "hangs"))
        assert federation.sum(OddRequest(-1, "none")).value[0] == CLIENTS  # type: ignore[index]
        carrier.close()

    def test_a_partition_that_changed_is_refused(self) -> None:
        import ray

        carrier = transport(1, partitions(), 0, FaultPlan(), 60.0)
        placement = carrier.placements[0]
        *secrets, known = placement.host_secrets
        others = ray.put(("0" * 32, *ray.get(known)[1:]))
        carrier.placements = [dataclasses.replace(placement, host_secrets=(*secrets, others))]
        with pytest.raises(Exception, match="client 0 was restarted with different rows"):
            federation_over(carrier, CLIENTS, seed=0)
        carrier.close()


class Disorderly(InlineTransport):
    """Brings what comes back in a seeded disorder, twice, and with what was left over from calls before."""

    def __init__(self, hosts: list[ClientHost]) -> None:
        super().__init__(hosts)
        self.rng = np.random.default_rng(11)
        self.stale: dict[str, list[Any]] = {}

    def disorder(self, kind: str, results: list[Any]) -> list[Any]:
        late, self.stale[kind] = self.stale.get(kind, []), list(results)
        results = [*results, *results, *late]
        return [results[index] for index in self.rng.permutation(len(results))]

    def ask(self, call: Any) -> Any:
        return self.disorder("ask", super().ask(call))

    def sum(self, call: Any) -> Any:
        return self.disorder("sum", list(super().sum(call)))


def test_late_and_repeated_replies_in_any_order_are_counted_once() -> None:
    ordinary = transport(0, partitions(), 0, FaultPlan(), 60.0)
    federation = federation_over(Disorderly(ordinary.hosts), CLIENTS, seed=0)
    assert trajectory(federation) == trajectory(inline())
    entry = next(entry for entry in federation.ledger.entries.values() if entry.kind == Noisy.__name__)
    assert entry.count == 4 * 4 + CLIENTS


def test_late_replies_to_a_question_are_not_taken_for_replies_to_the_next() -> None:
    ordinary = transport(0, partitions(), 0, FaultPlan(), 60.0)
    disorderly = federation_over(Disorderly(ordinary.hosts), CLIENTS, seed=0)
    orderly = inline()
    for size in (3, 4, 5):
        asked = [federation.ask(ProductRequest(size)) for federation in (disorderly, orderly)]
        assert [bits(reply) for reply in asked[0]] == [bits(reply) for reply in asked[1]]


# -------------------------------------------------------------------------------------------- sealed fields

SEALED = 24
PRESENT = (0, 1, 3, 4)


def keep_request(**options: Any) -> KeepRequest:
    return KeepRequest(FEATURES, np.zeros((CLIENTS, SEALED), np.uint8), **options)


def own_bytes(client: int, round: int, seed: int = 0) -> UInt8Array:
    """What a client that has kept nothing yet seals in a round."""
    return client_stream(seed, client, round, "own").integers(256, size=SEALED, dtype=np.uint8)


def keeping(federation: Federation, rounds: int = 4) -> list[Any]:
    """Bits of every aggregate of some rounds in which each client goes on from what it kept, and who answered."""
    loop = Loop(Sealed(kept=np.zeros((CLIENTS, SEALED), np.uint8)))
    seen: list[Any] = []
    for _ in federation.rounds(rounds, loop):
        answer = federation.mean(KeepRequest(FEATURES, loop.state.kept), weights="rows")
        kept = loop.state.kept.copy()
        kept[list(federation.answered)] = answer.own
        loop.state = Sealed(kept=kept)
        seen.append((federation.answered, *bits(answer)))
    return [*seen, loop.state.kept.tobytes()]


def test_a_sealed_field_has_a_row_for_each_client_and_leaves_the_others_as_they_are(
    make_packed: Make,
) -> None:
    federation = make_packed()
    plain = inline()
    for number, _ in zip(federation.rounds(2), plain.rounds(2), strict=False):
        answer = federation.mean(keep_request(), weights="rows")
        expected = plain.mean(NoisyRequest(FEATURES), weights="rows")
        assert answer.values.tobytes() == expected.values.tobytes()
        assert federation.answered == PRESENT, "a client without rows has no part in a mean"
        assert answer.own.dtype == np.uint8
        assert answer.own.shape == (len(PRESENT), SEALED)
        np.testing.assert_array_equal(answer.own, [own_bytes(client, number) for client in PRESENT])
    total = federation.sum(keep_request())
    assert total.values.tobytes() == plain.sum(NoisyRequest(FEATURES)).values.tobytes()
    assert federation.answered == tuple(range(CLIENTS))
    np.testing.assert_array_equal(total.own, [own_bytes(client, 2) for client in range(CLIENTS)])


def test_what_clients_keep_goes_round_with_the_same_bits_whatever_carries_it(make_packed: Make) -> None:
    seen = keeping(make_packed())
    assert seen == keeping(inline())
    whole = [
        np.bitwise_xor.reduce([own_bytes(client, number) for number in range(1, 5)]) for client in PRESENT
    ]
    kept = np.frombuffer(seen[-1], np.uint8).reshape(CLIENTS, SEALED)
    np.testing.assert_array_equal(kept[list(PRESENT)], whole)
    assert not kept[2].any()


def test_those_who_take_part_are_named_beside_what_they_sealed(make: Make) -> None:
    parts = partitions()
    federation = make(participation=0.5)
    cohorts = []
    for number in federation.rounds(6):
        answer = federation.mean(keep_request(noise=0.0), weights="rows")
        known = {own_bytes(client, number).tobytes(): client for client in range(CLIENTS)}
        cohorts.append(tuple(known[row.tobytes()] for row in answer.own))
        assert federation.answered == cohorts[-1]
        sizes = np.array([len(parts[client]) for client in cohorts[-1]])
        sums = np.array([parts[client].sum(axis=0) for client in cohorts[-1]])
        np.testing.assert_allclose(answer.values, sizes @ sums / sizes.sum(), rtol=1e-9)
    assert {len(cohort) for cohort in cohorts} == {2}
    assert len(set(cohorts)) > 2
    federation.mean(keep_request())
    assert federation.answered == PRESENT, "outside rounds all take part"


def test_those_who_drop_out_are_not_named(make: Make) -> None:
    faults = FaultPlan(dropout=0.5)
    federation = make(faults=faults, policy=FailurePolicy(quorum=0.01), seed=3)
    seen = set()
    for number in federation.rounds(6):
        there = tuple(client for client in PRESENT if not faults.drops_out(3, client, number))
        seen.add(there)
        if not there:
            continue
        answer = federation.mean(keep_request(), weights="rows")
        assert federation.answered == there
        np.testing.assert_array_equal(answer.own, [own_bytes(client, number, seed=3) for client in there])
    assert len(seen) > 2


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_process_that_dies_in_every_second_round_changes_no_sealed_bit(make: Make, moment: Any) -> None:
    crashes = tuple(Crash(client=1, round=number, moment=moment) for number in (1, 3))
    journal = Journal()
    federation = make(faults=FaultPlan(crashes=crashes), journal=journal)
    assert keeping(federation) == keeping(inline())
    assert sum(record.failed for record in journal.rounds) > 0
    (entry,) = [entry for entry in federation.ledger.as_list() if entry["kind"] == Kept.__name__]
    assert entry["count"] == 4 * len(PRESENT), "every answer is counted once"


def test_sealed_fields_that_come_late_or_twice_are_taken_once() -> None:
    ordinary = transport(0, partitions(), 0, FaultPlan(), 60.0)
    assert keeping(federation_over(Disorderly(ordinary.hosts), CLIENTS, seed=0)) == keeping(inline())


def test_the_ledger_counts_sealed_bytes(make: Make) -> None:
    journal = Journal()
    federation = make(journal=journal)
    for _ in federation.rounds(1):
        federation.mean(keep_request(), weights="rows")
    federation.sum(keep_request())
    each = 8 * FEATURES + SEALED
    (entry,) = [entry for entry in federation.ledger.as_list() if entry["kind"] == Kept.__name__]
    assert entry["count"] == len(PRESENT) + CLIENTS
    assert entry["bytes"] == entry["count"] * each
    assert journal.rounds[0].bytes_up == len(PRESENT) * each


@pytest.mark.parametrize("kind", ["sign-flip", "scaling", "collusion"])
def test_an_adversary_leaves_what_is_sealed_for_itself_as_it_is(make: Make, kind: Any) -> None:
    faults = FaultPlan(
        adversary=Liars((1, 3), ADVERSARIES[kind].model_validate({"fraction": 0.4, "strength": 3.0}))
    )
    federation, honest = make(faults=faults), inline()
    lying = federation_over(transport(0, partitions(), 0, faults, 60.0), CLIENTS, seed=0)
    together = zip(*(one.rounds(2) for one in (federation, honest, lying)), strict=False)
    for number, *_ in together:
        answer = federation.mean(keep_request())
        assert federation.answered == PRESENT
        np.testing.assert_array_equal(answer.own, [own_bytes(client, number) for client in PRESENT])
        others = [plain.mean(NoisyRequest(FEATURES)).values.tobytes() for plain in (lying, honest)]
        assert others[0] != others[1]
        assert answer.values.tobytes() == others[0], "about the rest it lies as ever"


def test_a_sealed_field_of_another_size_is_refused_by_name(make: Make) -> None:
    federation = make()
    with pytest.raises(ClientError, match=r"Client 3 .*own has shape \(23,\) instead of \(24,\)"):
        federation.mean(keep_request(culprit=3))
    lenient = make(policy=FailurePolicy(quorum=0.7))
    for number in lenient.rounds(1):
        answer = lenient.mean(keep_request(culprit=3))
        assert lenient.answered == (0, 1, 4)
        np.testing.assert_array_equal(answer.own, [own_bytes(client, number) for client in (0, 1, 4)])


def test_fields_may_be_empty_in_means(make: Make) -> None:
    request = KeepRequest(FEATURES, np.zeros((CLIENTS, 0), np.uint8))
    federation = make()
    answer = federation.mean(request, weights="rows")
    assert answer.values.tobytes() == inline().mean(NoisyRequest(FEATURES), weights="rows").values.tobytes()
    assert answer.own.shape == (len(PRESENT), 0)


def test_a_robust_rule_leaves_what_is_sealed_alone(make: Make) -> None:
    federation = make()
    rules: list[RobustRule] = [CoordinateMedian(), TrimmedMean(trim=0.25), NormBound()]
    for rule, size in itertools.product(rules, (0, 6)):
        request = KeepRequest(FEATURES, np.zeros((CLIENTS, size), np.uint8))
        answer = federation.robust_mean(request, rule)
        expected = inline().robust_mean(NoisyRequest(FEATURES), rule)
        assert answer.values.tobytes() == expected.values.tobytes(), rule.kind
        assert answer.own.dtype == np.uint8
        assert answer.own.shape == (len(federation.answered), size)
        assert answer.own.tobytes() == inline().mean(request).own.tobytes(), rule.kind


# -------------------------------------------------------------------------------------------- state, set once


def row_sums(federation: Federation) -> list[float]:
    """Sum of the rows of each client that has any, over its number of rows and features."""
    replies = federation.ask(NoisyRequest(FEATURES, noise=0.0))
    return [float(reply.values.sum()) / (FEATURES * reply.rows) for reply in replies if reply.rows]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_process_that_dies_sets_no_state_twice(make: Make, moment: Any) -> None:
    crashes = tuple(Crash(client=1, round=number, moment=moment) for number in (1, 2, 3))
    federation, plain = make(faults=FaultPlan(crashes=crashes)), inline()
    before = row_sums(plain)
    for number in federation.rounds(3):
        federation.ask(Shift(1.0) if number == 2 else OwnShift(np.ones(CLIENTS)))
        np.testing.assert_allclose(row_sums(federation), np.add(before, number), rtol=1e-9, atol=1e-9)


def test_a_client_that_is_asked_twice_follows_once() -> None:
    rows = np.arange(6.0).reshape(2, 3)
    host = ClientHost(
        hosted=[HostedClient(0, rows, fingerprint(rows)), HostedClient(1, rows, fingerprint(rows))], seed=0
    )

    def shifted(client: int) -> float:
        (answer,) = host.ask(
            Call(
                request=NoisyRequest(FEATURES, 0.0),
                number=99,
                round=0,
                attempt=0,
                clients=(client,),
                in_rounds=False,
            )
        )
        return float((answer.reply.values - rows.sum(axis=0))[0] / 2)  # type: ignore[union-attr]

    call = Call(request=Shift(1.0), number=1, round=0, attempt=0, clients=(0, 1), in_rounds=False)
    assert host.ask(call) == host.ask(dataclasses.replace(call, attempt=1))
    assert [shifted(0), shifted(1)] == [1.0, 1.0]
    host.ask(Call(request=Shift(1.0), number=2, round=0, attempt=0, clients=(0,), in_rounds=False))
    assert [shifted(0), shifted(1)] == [2.0, 1.0]
    late = host.ask(Call(request=Shift(1.0), number=1, round=0, attempt=0, clients=(0,), in_rounds=False))[0]
    assert "has already followed the later call 2" in late.reason  # type: ignore[union-attr]
    host.restore(
        [call, Call(request=Shift(5.0), number=2, round=0, attempt=0, clients=(1,), in_rounds=False)]
    )
    assert [shifted(0), shifted(1)] == [1.0, 6.0], "of each call, the clients that it names"
    host.ask(Call(request=Shift(5.0), number=2, round=0, attempt=1, clients=(1,), in_rounds=False))
    assert shifted(1) == 6.0, "what was repeated is not followed again"


class Forgetful(InlineTransport):
    """Loses the first answers to everything."""

    def ask(self, call: Any) -> Any:
        answers = super().ask(call)
        return answers if call.attempt else []


def test_answers_that_were_lost_set_no_state_twice() -> None:
    ordinary = transport(0, partitions(), 0, FaultPlan(), 60.0)
    forgetful = federation_over(Forgetful(ordinary.hosts), CLIENTS, seed=0)
    forgetful.ask(Shift(1.0))
    np.testing.assert_allclose(row_sums(forgetful), np.add(row_sums(inline()), 1.0))


def test_state_is_set_again_with_one_blas_thread(make: Make) -> None:
    """Of a matrix so large that BLAS would share it among threads, which changes bits."""
    federation = make(faults=FaultPlan(crashes=(Crash(client=1, round=1, moment="during"),)))
    bits_of = []
    for each in (federation, inline()):
        each.ask(TurnByBLAS(600))
        for _ in each.rounds(1):
            each.ask(NoisyRequest(FEATURES, noise=0.0))
        bits_of.append([bits(reply) for reply in each.ask(NoisyRequest(FEATURES, noise=0.0))])
    assert bits_of[0] == bits_of[1]


def test_replay_computes_with_one_blas_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    from threadpoolctl import threadpool_info, threadpool_limits

    rows, seen = np.ones((2, FEATURES)), []
    part = Shift.client_part

    def watched(client: Any, request: Any) -> Any:
        seen.extend(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        return part(client, request)

    host = ClientHost(hosted=[HostedClient(0, rows, fingerprint(rows))], seed=0)
    monkeypatch.setattr(Shift, "client_part", staticmethod(watched))
    with threadpool_limits(2, user_api="blas"):
        host.restore([Call(request=Shift(1.0), number=1, round=0, attempt=0, clients=(0,), in_rounds=False)])
    assert seen
    assert set(seen) == {1}


# -------------------------------------------------------------------------------------------- parts


def test_no_process_receives_the_part_of_anothers_client(cluster: None, tmp_path: Path) -> None:
    """Neither with the question nor, where it is started again, with what set its clients' state before."""
    faults = FaultPlan(crashes=(Crash(client=1, round=2, moment="during"),))
    carrier = transport(2, partitions(), 0, faults, 60.0)
    federation = federation_over(carrier, CLIENTS, seed=0)
    log = tmp_path / "opened"
    for _ in federation.rounds(3):
        federation.ask(LetterRequest(tuple(map(str, range(CLIENTS))), str(log)))
    carrier.close()
    homes = [set(map(str, placement.clients)) for placement in carrier.placements]
    opened: dict[str, set[str]] = {}
    for line in log.read_text().splitlines():
        process, _, client = line.partition(" ")
        opened.setdefault(process, set()).add(client)
    assert len(opened) == 3, "two processes, one of which died and was started again"
    assert all(clients in homes for clients in opened.values())


def test_hosts_in_this_process_get_their_clients_parts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[tuple[int, ...], Any]] = []
    methods = {"ask": ClientHost.ask, "restore": ClientHost.restore}

    def noted(name: str) -> Callable[..., Any]:
        def method(host: ClientHost, what: Any) -> Any:
            told.append((host.clients, what))
            return methods[name](host, what)

        return method

    for name in methods:
        monkeypatch.setattr(ClientHost, name, noted(name))
    shifts = np.arange(1.0, CLIENTS + 1.0)
    crashes = (Crash(client=1, round=2, moment="during"),)
    federation = federation_over(
        transport(0, partitions(), 0, FaultPlan(crashes=crashes), 60.0), CLIENTS, seed=0
    )
    for _ in federation.rounds(2):
        federation.ask(OwnShift(shifts))
    shifted = [
        (clients, call)
        for clients, what in told
        for call in ([what] if isinstance(what, Call) else what)
        if isinstance(call.request, OwnShift)
    ]
    assert len(shifted) == 2 * CLIENTS + 1 + 1, (
        "one died, was told again what it had followed, and asked again"
    )
    for clients, call in shifted:
        assert set(call.parts) == set(clients)
        assert [part.by.tolist() for part in call.parts.values()] == [[shifts[client]] for client in clients]


def test_what_goes_down_is_counted_however_deep_it_lies(make: Make) -> None:
    federation = make()
    federation.ask(NestRequest(tuple(WordRequest(np.ones((client + 1, 2))) for client in range(CLIENTS))))
    entry = next(entry for entry in federation.ledger.entries.values() if entry.kind == "NestRequest")
    assert entry.bytes == sum(16 * (client + 1) + 8 for client in range(CLIENTS))
    assert entry.count == CLIENTS


def test_what_cannot_be_counted_cannot_travel() -> None:
    with pytest.raises(TypeError, match=r"contains a set; expected arrays, numbers, text"):
        inline().ask(ProductRequest({3}))  # type: ignore[arg-type]


def test_a_client_weighs_one_or_its_rows() -> None:
    found = {name: [weight_of(rows, name) for rows in (0, 1, 5)] for name in ("sum", "clients", "rows")}  # type: ignore[arg-type]
    assert found == {"sum": [1, 1, 1], "clients": [0, 1, 1], "rows": [0, 1, 5]}


def test_messages_are_counted_by_what_protects_them() -> None:
    noise = GaussianNoise(on="data", level=0.5)
    assert by_protection([(None, 3), (noise, 5), (None, 4)]) == (Sent(None, 2, 7), Sent(noise, 1, 5))


def test_only_calls_that_set_state_are_remembered_and_only_for_those_who_followed() -> None:
    history: list[Call] = []
    asked = Call(
        request=OwnShift(np.arange(4.0)), number=1, round=0, attempt=0, clients=(0, 1, 3), in_rounds=False
    )
    for call, followed in (
        (asked, (1, 3)),
        (dataclasses.replace(asked, number=2), ()),
        (
            Call(
                request=NoisyRequest(FEATURES), number=3, round=0, attempt=0, clients=(0, 1), in_rounds=False
            ),
            (0, 1),
        ),
        (Call(request=Shift(2.0), number=4, round=0, attempt=0, clients=(0, 1), in_rounds=False), (0, 1)),
    ):
        remember(history, call, followed)
    assert [(call.number, call.clients) for call in history] == [(1, (1, 3)), (4, (0, 1))]
    (own,) = history_at(history, (2, 3))
    assert (own.number, own.clients, own.request_for(3)) == (1, (3,), OwnShift(np.array([3.0])))
    first, second = history_at(history, (1, 2))
    assert (first.request_for(1), second.request_for(1)) == (OwnShift(np.array([1.0])), Shift(2.0))
    assert (list(first.parts), second.parts) == ([1], {}), (
        "the part of client 3 stays away from the host of 1"
    )


# -------------------------------------------------------------------------------------------- as one


def hosted(**options: Any) -> Federation:
    hosted = [HostedClient(index, rows, fingerprint(rows)) for index, rows in enumerate(partitions())]
    return federation_over(InlineTransport([ClientHost(hosted=hosted, seed=0)]), CLIENTS, seed=0, **options)


def test_clients_that_answer_as_one_are_asked_as_one() -> None:
    together, alone = (made.ask(TogetherRequest(FEATURES)) for made in (hosted(), inline()))
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one.values, other.values + 1.0)


@pytest.mark.parametrize("asked", [(3,), (1, 3)])
def test_two_are_asked_as_one_and_one_is_not(asked: tuple[int, ...]) -> None:
    hosted = [HostedClient(index, rows, fingerprint(rows)) for index, rows in enumerate(partitions())]
    together = ClientHost(hosted=hosted, seed=0).ask(
        Call(request=TogetherRequest(FEATURES), number=1, round=0, attempt=0, clients=asked, in_rounds=False)
    )
    for answer in together:
        moved = answer.reply.values - partitions()[answer.client].sum(axis=0)  # type: ignore[union-attr]
        np.testing.assert_allclose(moved, len(asked) - 1.0, rtol=1e-9)


def test_where_they_cannot_and_each_could_nobody_has_answered() -> None:
    """Answers of each for itself have other bits: they do not come without a word."""
    for asked in (lambda made: made.ask, lambda made: made.sum):
        with pytest.raises(
            ClientError, match=r"Client 0 .* jointly .*each could alone: MemoryError: no room"
        ):
            asked(hosted())(TogetherRequest(FEATURES, "memory"))
    journal = Journal()
    lenient = hosted(policy=FailurePolicy(quorum=0.1), journal=journal)
    for _ in lenient.rounds(1):
        with pytest.raises(QuorumError):
            lenient.mean(TogetherRequest(FEATURES, "memory"))
    assert len(journal.rounds[0].incidents) == len(PRESENT)


def test_where_one_of_them_is_at_fault_it_is_named() -> None:
    with pytest.raises(ClientError, match=r"Client 3 .*ValueError: this client cannot"):
        hosted().ask(TogetherRequest(FEATURES, culprit=3))
    lenient = hosted(policy=FailurePolicy(quorum=0.7))
    for _ in lenient.rounds(1):
        lenient.mean(TogetherRequest(FEATURES, culprit=3))
        assert lenient.answered == (0, 1, 4)


def test_a_request_that_sets_state_has_no_joint_part() -> None:
    with pytest.raises(TypeError, match="Shift sets clients' state"):
        answers_jointly(Shift)


# -------------------------------------------------------------------------------------------- loops of rounds


def two_loops(federation: Federation, leave: int = 10**9) -> list[list[bytes]]:
    """What is learnt in two loops of rounds, before, between and after them; the first may be left early."""
    seen: list[list[bytes]] = []

    def learn(when: str = "between") -> Any:
        answer = federation.mean(NoisyRequest(FEATURES))
        seen.append([f"{when} {federation.round}".encode(), *bits(answer)])
        return answer

    learn()
    for index in range(2):
        loop = Loop(Summed(sum=np.zeros(FEATURES)))
        for number in federation.rounds(4, loop):
            loop.state = Summed(sum=loop.state.sum * 0.5 + learn("in round").values)
            if number == leave:
                break
        learn()
        seen.append([loop.state.sum.tobytes(), federation.stream(f"server {index}").bytes(8)])
    return seen


@pytest.mark.parametrize("leave", [10**9, 2, 6])
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_two_loops_go_on_to_the_same_bits_wherever_they_stopped(leave: int, participation: float) -> None:
    taken: list[bytes] = []

    def hear(event: Event) -> None:
        if isinstance(event, CheckpointTaken):
            taken.append(event.content)

    journal = Journal(hear)
    options = {"participation": participation, "checkpoint_every": 1}
    whole = inline(journal=journal, **options)
    expected = two_loops(whole, leave)
    rounds = [record.round for record in journal.rounds]
    assert rounds == list(range(1, len(rounds) + 1)), "a loop that is left has had its last round"
    for content in list(taken):
        checkpoint = Checkpoint.from_bytes(content)
        resumed_journal = Journal(rounds=journal.rounds[: checkpoint.round])
        resumed = inline(resume=checkpoint, journal=resumed_journal, **options)
        seen = two_loops(resumed, leave)
        # What is learnt outside rounds is learnt again; of rounds, those that were not done.
        assert [entry for entry in expected if entry in seen] == seen
        assert seen[-1] == expected[-1]
        assert resumed.ledger.as_list() == whole.ledger.as_list()
        assert [record.round for record in resumed_journal.rounds] == rounds


def test_a_loop_that_is_left_has_ended(make: Make) -> None:
    """Faults and drop-outs are of rounds: what comes after a loop needs every client."""
    federation = make(faults=FaultPlan(dropout=0.99), policy=FailurePolicy(quorum=0.01))
    for _ in federation.rounds(3):
        break
    assert federation.mean(NoisyRequest(FEATURES, noise=0.0)).rows == 20 / 4
    assert federation.answered == PRESENT


# -------------------------------------------------------------------------------------------- how many are enough


@pytest.mark.parametrize("asked", [*range(1, 30), 100, 1000])
def test_a_quorum_is_the_decimal_that_was_written(asked: int) -> None:
    """Against whole numbers: 14 of 25 are 0.56, though the product of floats is a little more than 14."""
    for hundredths in range(1, 101):
        policy = FailurePolicy(quorum=hundredths / 100)
        enough = -(-hundredths * asked // 100)
        policy.require_quorum(enough, asked)
        with pytest.raises(QuorumError, match=f"only {enough - 1} of {asked}"):
            policy.require_quorum(enough - 1, asked)


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_call_is_repeated_as_often_as_the_policy_says(retries: int) -> None:
    attempts = []

    class Deaf(InlineTransport):
        def ask(self, call: Any) -> Any:
            if isinstance(call.request, NoisyRequest):
                attempts.append(call.attempt)
                return []
            return super().ask(call)

    ordinary = transport(0, partitions(), 0, FaultPlan(), 60.0)
    federation = federation_over(Deaf(ordinary.hosts), CLIENTS, seed=0, policy=FailurePolicy(retries=retries))
    with pytest.raises(ClientError, match="no answer to this call"):
        federation.ask(NoisyRequest(FEATURES))
    assert attempts == list(range(retries + 1))
