"""The contract of a federation: one suite for every transport and packing."""

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
    Product,
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
from raydr.federation.codec import CodecError, encode
from raydr.federation.simulated import ADVERSARIES
from raydr.federation.streams import client_stream
from raydr.federation.wire import Call, Sent, by_protection, history_at, remember, weight_of
from raydr.geometry.cells import neighbors_by_cells
from raydr.geometry.points import Points
from raydr.journal import CheckpointTaken, Event, Journal, RoundEnded
from raydr.privacy.gaussian import GaussianNoise
from raydr.privacy.policy import Policy, PolicyError, SitePolicy
from raydr.robust import CoordinateMedian, NormBound, RobustRule, TrimmedMean

CLIENTS, FEATURES = 5, 3
PACKINGS = {"inline": 0, "ray-2": 2, "ray-per-client": CLIENTS}
MARKS = {"inline": (), "ray-2": pytest.mark.ray, "ray-per-client": (pytest.mark.ray, pytest.mark.slow)}
CARRIERS = [pytest.param(name, marks=MARKS[name]) for name in PACKINGS]

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
    """Build federations of the same clients over one transport."""
    yield from federations(request)


@pytest.fixture(params=CARRIERS)
def make_packed(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Build federations of the same clients, for every packing."""
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
    """State of a loop: the sealed bytes of each client, (clients, bytes)."""

    kept: UInt8Array


def trajectory(federation: Federation, rounds: int = 4) -> list[list[bytes]]:
    """Return the bits of all aggregates of some rounds, which depend on state, noise and earlier aggregates."""
    federation.ask(Shift(0.25))
    loop, seen = Loop(Summed(sum=np.zeros(FEATURES))), []
    for _ in federation.rounds(rounds, loop):
        answer = federation.mean(NoisyRequest(FEATURES), weights="rows")
        loop.state = Summed(sum=loop.state.sum * 0.5 + answer.values)
        seen.append(bits(answer))
    seen += [bits(federation.sum(NoisyRequest(FEATURES))), [loop.state.sum.tobytes()]]
    return seen


def test_replies_are_in_client_order_and_match_inline(make_packed: Make) -> None:
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


def test_every_transport_matches_inline(make_packed: Make) -> None:
    assert trajectory(make_packed()) == trajectory(inline())


def test_another_seed_changes_the_bits() -> None:
    assert trajectory(inline(seed=1)) != trajectory(inline())


MOMENTS = [
    pytest.param("before", marks=pytest.mark.slow),
    "during",
    pytest.param("after", marks=pytest.mark.slow),
]
"""When a process dies. Each death costs the start of a process."""


@pytest.mark.parametrize("moment", MOMENTS)
def test_process_deaths_in_consecutive_rounds_change_no_bit(make: Make, moment: Any) -> None:
    crashes = tuple(Crash(client=1, round=number, moment=moment) for number in (2, 3))
    journal = Journal()
    federation = make(faults=FaultPlan(crashes=crashes), journal=journal)
    assert trajectory(federation) == trajectory(inline())
    # Each death fails one call of every client of that process; each of these calls is retried once.
    # A death after the answer is noticed at the next round's call, and no crash hits that call's second attempt.
    incidents = [incident for record in journal.rounds for incident in record.incidents]
    deaths = [incident for incident in incidents if incident["client"] == 1]
    assert len(deaths) == (1 if moment == "after" else 2)
    assert {incident["decision"] for incident in deaths} == {"retry"}
    assert {incident["kind"] for incident in deaths} == {"process died"}
    summed = next(entry for entry in federation.ledger.entries.values() if entry.kind == Noisy.__name__)
    assert summed.count == 4 * 4 + CLIENTS, "every answer is counted once"


def test_resumed_loop_matches_the_uninterrupted_one(make: Make) -> None:
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


def test_replies_that_break_their_declaration_are_refused(make: Make) -> None:
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
        assert federation.sum(OddRequest(-1, way)).value[0] == CLIENTS, (
            f"the federation continues after {way}"
        )  # type: ignore[index]


def test_failed_client_is_dropped_for_the_round_within_quorum(make: Make) -> None:
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


def test_weights_after_drop_out_are_of_clients_that_answered(make: Make) -> None:
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


def test_participation_draws_a_cohort_in_rounds_only(make: Make) -> None:
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


def test_client_receives_only_its_own_part(make_packed: Make) -> None:
    federation = make_packed()
    words = np.random.default_rng(0).normal(size=(CLIENTS, CLIENTS))
    replies = federation.ask(WordRequest(words))
    for client, (reply, part) in enumerate(zip(replies, partitions(), strict=True)):
        np.testing.assert_array_equal(reply.values, words[client, : client + 1] * len(part))
    entry = next(entry for entry in federation.ledger.entries.values() if entry.kind == "WordRequest")
    assert entry.seen_by == "each client its own part"
    assert entry.bytes == sum(
        len(encode(WordRequest(words).addressed_to(client))) for client in range(CLIENTS)
    )
    assert 8 * CLIENTS * (CLIENTS + 1) // 2 < entry.bytes < 8 * CLIENTS * CLIENTS + 80 * CLIENTS


def test_server_compute_returns_ordered_identical_results(make_packed: Make) -> None:
    matrices = [np.random.default_rng(index).normal(size=(index + 1, 300)) for index in range(7)]
    federation = make_packed()
    results = list(federation.compute(gram, matrices))
    assert [result.tobytes() for result in results] == [
        result.tobytes() for result in inline().compute(gram, matrices)
    ]
    np.testing.assert_allclose(results[3], matrices[3] @ matrices[3].T)
    with pytest.raises(DataError, match="not finite"):
        list(federation.compute(gram, [np.eye(2), np.full((1, 1), np.nan), np.eye(3)]))


def test_server_tasks_search_neighbours_of_shared_rows_like_threads(make_packed: Make) -> None:
    random = np.random.default_rng(0)
    whole = np.round(8.0 * random.normal(size=(40, 6)))  # equal distances abound
    points = Points(whole[random.integers(0, 40, 40_000)] + np.round(random.normal(size=(40_000, 6))))
    federation = make_packed()
    assert federation.nodes is None  # of one machine, where threads are faster
    expected = neighbors_by_cells(points, 8, recall=0.9)
    found = neighbors_by_cells(points, 8, recall=0.9, nodes=federation)
    assert found.looked_at == expected.looked_at < 0.5
    assert found.recall == expected.recall
    np.testing.assert_array_equal(found.graph.indices, expected.graph.indices)
    np.testing.assert_array_equal(found.graph.distances, expected.graph.distances)


def test_checkpoint_of_another_run_is_refused() -> None:
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


def test_ledger_counts_every_message(make: Make) -> None:
    federation = make()
    federation.sum(NoisyRequest(FEATURES))
    federation.ask(ProductRequest(4))
    entries = {entry["kind"]: entry for entry in federation.ledger.as_list()}
    assert entries["Noisy"]["count"] == CLIENTS
    assert entries["Noisy"]["bytes"] == CLIENTS * len(
        encode({"values": np.zeros(FEATURES, np.int64), "size": np.zeros((), np.int64)})
    )
    assert entries["Noisy"]["granularity"] == "aggregate"
    assert entries["Product"]["bytes"] == CLIENTS * len(encode(Product(np.zeros((4, 4)))))
    assert entries["ProductRequest"]["direction"] == "down"
    assert entries["ProductRequest"]["bytes"] == CLIENTS * len(encode(ProductRequest(4)))


class TestProcessFailures:
    """Failures that only processes have."""

    @pytest.fixture(autouse=True)
    def _cluster(self, cluster: None) -> None:
        pass

    def federation(self, **options: Any) -> tuple[Federation, Any]:
        timeout_s = options.pop("timeout_s", 60.0)
        carrier = transport(2, partitions(), 0, FaultPlan(), timeout_s)
        return federation_over(carrier, CLIENTS, seed=0, **options), carrier

    def test_client_whose_process_always_dies_is_an_error(self) -> None:
        federation, carrier = self.federation(policy=FailurePolicy(retries=0))
        with pytest.raises(ClientError, match="process died"):
            federation.sum(OddRequest(3, "exits"))
        assert federation.sum(OddRequest(-1, "none")).value[0] == CLIENTS  # type: ignore[index]
        carrier.close()

    def test_process_killed_while_setting_state_sets_it_once(self, tmp_path: Path) -> None:
        """State is set outside rounds too, as when rows are scaled."""
        federation, carrier = self.federation()
        before = row_sums(federation)
        federation.ask(DeadlyShift(1.0, str(tmp_path / "dead")))
        assert (tmp_path / "dead").exists()
        np.testing.assert_allclose(row_sums(federation), np.add(before, 1.0), rtol=1e-9, atol=1e-9)
        federation.ask(Shift(1.0))
        np.testing.assert_allclose(row_sums(federation), np.add(before, 2.0), rtol=1e-9, atol=1e-9)
        carrier.close()

    def test_hanging_client_is_killed_after_the_timeout(self) -> None:
        federation, carrier = self.federation(policy=FailurePolicy(retries=0), timeout_s=6.0)
        with pytest.raises(ClientError, match="timed out, no answer within 6 s"):
            federation.sum(OddRequest(3, "hangs"))
        assert federation.sum(OddRequest(-1, "none")).value[0] == CLIENTS  # type: ignore[index]
        carrier.close()

    @pytest.mark.parametrize("actors", [0, 1])
    def test_policy_of_a_site_reaches_its_host(self, actors: int) -> None:
        from raydr.actors.placement import place
        from raydr.actors.resources import Room

        carrier = transport(actors, partitions(), 0, FaultPlan(), 60.0)
        site = SitePolicy((Policy(least_rows=10**6),), "north")
        if actors:
            policies = [site, *[SitePolicy()] * (CLIENTS - 1)]
            carrier.placements = place(partitions(), actors, Room(cores=2), policies=policies)
        else:
            carrier.hosts[0] = ClientHost(
                hosted=[dataclasses.replace(carrier.hosts[0].hosted[0], policy=site)], seed=0
            )
        with pytest.raises(
            PolicyError, match=r"site 'north' \(open, changed\) has the rule 'least_rows: 1000000'"
        ):
            federation_over(carrier, CLIENTS, seed=0)
        if actors:
            carrier.close()

    def test_changed_partition_is_refused(self) -> None:
        import ray

        carrier = transport(1, partitions(), 0, FaultPlan(), 60.0)
        placement = carrier.placements[0]
        *secrets, known = placement.host_secrets
        (_, policy), *rest = ray.get(known)
        others = ray.put((("0" * 32, policy), *rest))
        carrier.placements = [dataclasses.replace(placement, host_secrets=(*secrets, others))]
        with pytest.raises(Exception, match="client 0 was restarted with different rows"):
            federation_over(carrier, CLIENTS, seed=0)
        carrier.close()


class Disorderly(InlineTransport):
    """Return results in a seeded random order, twice, together with the results of earlier calls."""

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


def test_late_and_repeated_replies_are_counted_once() -> None:
    ordinary = transport(0, partitions(), 0, FaultPlan(), 60.0)
    federation = federation_over(Disorderly(ordinary.hosts), CLIENTS, seed=0)
    assert trajectory(federation) == trajectory(inline())
    entry = next(entry for entry in federation.ledger.entries.values() if entry.kind == Noisy.__name__)
    assert entry.count == 4 * 4 + CLIENTS


def test_late_replies_do_not_answer_the_next_call() -> None:
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
    """Return the bytes that a client without kept state seals in a round."""
    return client_stream(seed, client, round, "own").integers(256, size=SEALED, dtype=np.uint8)


def keeping(federation: Federation, rounds: int = 4) -> list[Any]:
    """Return who answered and the bits of all aggregates of some rounds in which clients keep state."""
    loop = Loop(Sealed(kept=np.zeros((CLIENTS, SEALED), np.uint8)))
    seen: list[Any] = []
    for _ in federation.rounds(rounds, loop):
        answer = federation.mean(KeepRequest(FEATURES, loop.state.kept), weights="rows")
        kept = loop.state.kept.copy()
        kept[list(federation.answered)] = answer.own
        loop.state = Sealed(kept=kept)
        seen.append((federation.answered, *bits(answer)))
    return [*seen, loop.state.kept.tobytes()]


def test_sealed_field_has_a_row_per_client_and_changes_no_other_field(
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


def test_sealed_state_matches_inline_on_every_transport(make_packed: Make) -> None:
    seen = keeping(make_packed())
    assert seen == keeping(inline())
    whole = [
        np.bitwise_xor.reduce([own_bytes(client, number) for number in range(1, 5)]) for client in PRESENT
    ]
    kept = np.frombuffer(seen[-1], np.uint8).reshape(CLIENTS, SEALED)
    np.testing.assert_array_equal(kept[list(PRESENT)], whole)
    assert not kept[2].any()


def test_answered_names_the_clients_of_sealed_rows(make: Make) -> None:
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


def test_answered_omits_clients_that_dropped_out(make: Make) -> None:
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
def test_process_deaths_in_alternate_rounds_change_no_sealed_bit(make: Make, moment: Any) -> None:
    crashes = tuple(Crash(client=1, round=number, moment=moment) for number in (1, 3))
    journal = Journal()
    federation = make(faults=FaultPlan(crashes=crashes), journal=journal)
    assert keeping(federation) == keeping(inline())
    assert sum(record.failed for record in journal.rounds) > 0
    (entry,) = [entry for entry in federation.ledger.as_list() if entry["kind"] == Kept.__name__]
    assert entry["count"] == 4 * len(PRESENT), "every answer is counted once"


def test_late_and_repeated_sealed_fields_are_used_once() -> None:
    ordinary = transport(0, partitions(), 0, FaultPlan(), 60.0)
    assert keeping(federation_over(Disorderly(ordinary.hosts), CLIENTS, seed=0)) == keeping(inline())


def test_ledger_counts_sealed_bytes(make: Make) -> None:
    journal = Journal()
    federation = make(journal=journal)
    for _ in federation.rounds(1):
        federation.mean(keep_request(), weights="rows")
    federation.sum(keep_request())
    each = len(encode({"values": np.zeros(FEATURES, np.int64), "own": np.zeros(SEALED, np.uint8)}))
    (entry,) = [entry for entry in federation.ledger.as_list() if entry["kind"] == Kept.__name__]
    assert entry["count"] == len(PRESENT) + CLIENTS
    assert entry["bytes"] == entry["count"] * each
    assert journal.rounds[0].bytes_up == len(PRESENT) * each


@pytest.mark.parametrize("kind", ["sign-flip", "scaling", "collusion"])
def test_adversary_does_not_change_its_sealed_field(make: Make, kind: Any) -> None:
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
        assert answer.values.tobytes() == others[0], "it forges the other fields as usual"


def test_sealed_field_of_another_size_is_refused(make: Make) -> None:
    federation = make()
    with pytest.raises(ClientError, match=r"Client 3 .*own has shape \(23,\) instead of \(24,\)"):
        federation.mean(keep_request(culprit=3))
    lenient = make(policy=FailurePolicy(quorum=0.7))
    for number in lenient.rounds(1):
        answer = lenient.mean(keep_request(culprit=3))
        assert lenient.answered == (0, 1, 4)
        np.testing.assert_array_equal(answer.own, [own_bytes(client, number) for client in (0, 1, 4)])


def test_mean_accepts_empty_sealed_fields(make: Make) -> None:
    request = KeepRequest(FEATURES, np.zeros((CLIENTS, 0), np.uint8))
    federation = make()
    answer = federation.mean(request, weights="rows")
    assert answer.values.tobytes() == inline().mean(NoisyRequest(FEATURES), weights="rows").values.tobytes()
    assert answer.own.shape == (len(PRESENT), 0)


def test_robust_rules_do_not_change_sealed_fields(make: Make) -> None:
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
    """Return the mean of the entries of each client that has rows."""
    replies = federation.ask(NoisyRequest(FEATURES, noise=0.0))
    return [float(reply.values.sum()) / (FEATURES * reply.rows) for reply in replies if reply.rows]


@pytest.mark.parametrize("moment", MOMENTS)
def test_process_that_dies_does_not_set_state_twice(make: Make, moment: Any) -> None:
    crashes = tuple(Crash(client=1, round=number, moment=moment) for number in (2, 3))
    federation, plain = make(faults=FaultPlan(crashes=crashes)), inline()
    before = row_sums(plain)
    for number in federation.rounds(3):
        federation.ask(Shift(1.0) if number == 2 else OwnShift(np.ones(CLIENTS)))
        np.testing.assert_allclose(row_sums(federation), np.add(before, number), rtol=1e-9, atol=1e-9)


def test_repeated_call_sets_state_once() -> None:
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
    assert [shifted(0), shifted(1)] == [1.0, 6.0], "each call applies to the clients that it names"
    host.ask(Call(request=Shift(5.0), number=2, round=0, attempt=1, clients=(1,), in_rounds=False))
    assert shifted(1) == 6.0, "a repeated call is not applied again"


class Forgetful(InlineTransport):
    """Lose the first answers to every call."""

    def ask(self, call: Any) -> Any:
        answers = super().ask(call)
        return answers if call.attempt else []


def test_lost_answers_do_not_set_state_twice() -> None:
    ordinary = transport(0, partitions(), 0, FaultPlan(), 60.0)
    forgetful = federation_over(Forgetful(ordinary.hosts), CLIENTS, seed=0)
    forgetful.ask(Shift(1.0))
    np.testing.assert_allclose(row_sums(forgetful), np.add(row_sums(inline()), 1.0))


def test_state_is_restored_with_one_blas_thread(make: Make) -> None:
    """The matrix is so large that BLAS would use several threads, which changes bits."""
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


def test_no_process_receives_parts_of_other_clients(cluster: None, tmp_path: Path) -> None:
    """Neither calls nor the history that a restarted process receives have these parts."""
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


def test_inline_hosts_receive_only_the_parts_of_their_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[tuple[tuple[int, ...], Any]] = []
    methods = {"ask": ClientHost.ask, "restore": ClientHost.restore}

    def noted(name: str) -> Callable[..., Any]:
        def method(host: ClientHost, what: Any) -> Any:
            received.append((host.clients, what))
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
        for clients, what in received
        for call in ([what] if isinstance(what, Call) else what)
        if isinstance(call.request, OwnShift)
    ]
    assert len(shifted) == 2 * CLIENTS + 1 + 1, (
        "one host died, received its history again, and was asked again"
    )
    for clients, call in shifted:
        assert set(call.parts) == set(clients)
        assert [part.by.tolist() for part in call.parts.values()] == [[shifts[client]] for client in clients]


def test_ledger_counts_nested_parts_of_requests(make: Make) -> None:
    federation = make()
    request = NestRequest(tuple(WordRequest(np.ones((client + 1, 2))) for client in range(CLIENTS)))
    federation.ask(request)
    entry = next(entry for entry in federation.ledger.entries.values() if entry.kind == "NestRequest")
    assert entry.bytes == sum(len(encode(request.addressed_to(client))) for client in range(CLIENTS))
    assert entry.count == CLIENTS


def test_requests_that_the_wire_format_does_not_know_are_refused() -> None:
    with pytest.raises(CodecError, match=r"contains builtins\.set; expected arrays, numbers, text"):
        inline().ask(ProductRequest({3}))  # type: ignore[arg-type]


def test_client_weights_are_one_or_the_number_of_rows() -> None:
    found = {name: [weight_of(rows, name) for rows in (0, 1, 5)] for name in ("sum", "clients", "rows")}  # type: ignore[arg-type]
    assert found == {"sum": [1, 1, 1], "clients": [0, 1, 1], "rows": [0, 1, 5]}


def test_messages_are_counted_by_protection() -> None:
    noise = GaussianNoise(on="data", level=0.5)
    assert by_protection([(None, 3), (noise, 5), (None, 4)]) == (Sent(None, 2, 7), Sent(noise, 1, 5))


def test_history_keeps_only_applied_calls_that_set_state() -> None:
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
        "the host of client 1 does not receive the part of client 3"
    )


# -------------------------------------------------------------------------------------------- as one


def hosted(**options: Any) -> Federation:
    hosted = [HostedClient(index, rows, fingerprint(rows)) for index, rows in enumerate(partitions())]
    return federation_over(InlineTransport([ClientHost(hosted=hosted, seed=0)]), CLIENTS, seed=0, **options)


def test_joint_requests_are_answered_jointly() -> None:
    together, alone = (made.ask(TogetherRequest(FEATURES)) for made in (hosted(), inline()))
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one.values, other.values + 1.0)


@pytest.mark.parametrize("asked", [(3,), (1, 3)])
def test_single_client_is_not_asked_jointly(asked: tuple[int, ...]) -> None:
    hosted = [HostedClient(index, rows, fingerprint(rows)) for index, rows in enumerate(partitions())]
    together = ClientHost(hosted=hosted, seed=0).ask(
        Call(request=TogetherRequest(FEATURES), number=1, round=0, attempt=0, clients=asked, in_rounds=False)
    )
    for answer in together:
        moved = answer.reply.values - partitions()[answer.client].sum(axis=0)  # type: ignore[union-attr]
        np.testing.assert_allclose(moved, len(asked) - 1.0, rtol=1e-9)


def test_failed_joint_answer_is_not_replaced_by_single_answers() -> None:
    """Single answers have other bits, so they are not used silently."""
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


def test_failed_joint_answer_names_the_faulty_client() -> None:
    with pytest.raises(ClientError, match=r"Client 3 .*ValueError: this client cannot"):
        hosted().ask(TogetherRequest(FEATURES, culprit=3))
    lenient = hosted(policy=FailurePolicy(quorum=0.7))
    for _ in lenient.rounds(1):
        lenient.mean(TogetherRequest(FEATURES, culprit=3))
        assert lenient.answered == (0, 1, 4)


def test_requests_that_set_state_cannot_be_joint() -> None:
    with pytest.raises(TypeError, match="Shift sets clients' state"):
        answers_jointly(Shift)


# -------------------------------------------------------------------------------------------- loops of rounds


def two_loops(federation: Federation, leave: int = 10**9) -> list[list[bytes]]:
    """Return the aggregates before, in, between and after two loops of rounds; the first may end early."""
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
def test_two_loops_resume_bit_identically_from_any_checkpoint(leave: int, participation: float) -> None:
    taken: list[bytes] = []

    def hear(event: Event) -> None:
        if isinstance(event, CheckpointTaken):
            taken.append(event.content)

    journal = Journal(hear)
    options = {"participation": participation, "checkpoint_every": 1}
    whole = inline(journal=journal, **options)
    expected = two_loops(whole, leave)
    rounds = [record.round for record in journal.rounds]
    assert rounds == list(range(1, len(rounds) + 1)), "an abandoned loop has no more rounds"
    for content in list(taken):
        checkpoint = Checkpoint.from_bytes(content)
        resumed_journal = Journal(rounds=journal.rounds[: checkpoint.round])
        resumed = inline(resume=checkpoint, journal=resumed_journal, **options)
        seen = two_loops(resumed, leave)
        # Aggregates outside rounds are computed again; finished rounds are not.
        assert [entry for entry in expected if entry in seen] == seen
        assert seen[-1] == expected[-1]
        assert resumed.ledger.as_list() == whole.ledger.as_list()
        assert [record.round for record in resumed_journal.rounds] == rounds


def test_abandoned_loop_has_ended(make: Make) -> None:
    """Faults and drop-outs happen in rounds only, so calls after a loop reach every client."""
    federation = make(faults=FaultPlan(dropout=0.99), policy=FailurePolicy(quorum=0.01))
    for _ in federation.rounds(3):
        break
    assert federation.mean(NoisyRequest(FEATURES, noise=0.0)).rows == 20 / 4
    assert federation.answered == PRESENT


# -------------------------------------------------------------------------------------------- how many are enough


@pytest.mark.parametrize("asked", [*range(1, 30), 100, 1000])
def test_quorum_is_compared_as_an_exact_decimal(asked: int) -> None:
    """14 of 25 is exactly 0.56, although the product of the floats is slightly above 14."""
    for hundredths in range(1, 101):
        policy = FailurePolicy(quorum=hundredths / 100)
        enough = -(-hundredths * asked // 100)
        policy.require_quorum(enough, asked)
        with pytest.raises(QuorumError, match=f"only {enough - 1} of {asked}"):
            policy.require_quorum(enough - 1, asked)


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_call_is_retried_as_often_as_the_policy_allows(retries: int) -> None:
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
