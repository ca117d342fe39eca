"""A coordinator that lies gets nothing that a site's policy forbids: each request goes directly to the site's host."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inline_federations import federation_over

from raydr.arrays import FloatArray
from raydr.federation import (
    Client,
    ClientHost,
    FailurePolicy,
    Granularity,
    HostedClient,
    InlineTransport,
    Range,
    RecordContent,
    Reply,
    Request,
    answers,
    fingerprint,
)
from raydr.federation.client import HostSecrets
from raydr.federation.enrolment import Enrol
from raydr.federation.failures import Decision, Failure, Kind
from raydr.federation.gate import message_of
from raydr.federation.masks import bits_of
from raydr.federation.secure import SecureSums
from raydr.federation.wire import Answer, Call, PartialSum, SumCall
from raydr.methods.fedne.clients import PrototypeRequest
from raydr.methods.fedne.surrogates import DensityRequest
from raydr.methods.landmarks.kmeans import GroupRequest
from raydr.methods.landmarks.maps import DistanceRequest
from raydr.methods.private_map.messages import CellSumsRequest
from raydr.methods.private_map.settings import PrivateMapSettings
from raydr.methods.requests import site_policy
from raydr.methods.serving import METHODS
from raydr.privacy import masking
from raydr.privacy.accounting import Budget
from raydr.privacy.mechanism import silent
from raydr.privacy.policy import Policy, PolicyError
from raydr.privacy.secrets import Secret, client_secret
from raydr.privacy.site_budget import SiteBudget
from raydr.statistics.filling import BelowRequest
from raydr.statistics.harmonizing import ConstantRequest
from raydr.statistics.moments import BeyondRequest, HistogramRequest, MomentRequest, ordered
from raydr.statistics.scaling import ScaleRows

FEATURES = 3
ROOT = Secret(bytes(range(32)))
ROWS = np.random.default_rng(3).normal(size=(24, FEATURES))


def host_of(rows: FloatArray, index: int = 0, run: str = "", **policy: Any) -> ClientHost:
    """Return the host of one site with this policy."""
    site = site_policy([Policy.model_validate(policy)], f"ward {index}")
    return ClientHost(
        hosted=[HostedClient(index, rows, fingerprint(rows), site)],
        seed=0,
        run=run,
        host_secrets=HostSecrets({index: client_secret(ROOT, index)}),
    )


def call_of(request: Request[Any], number: int = 1, **changes: Any) -> Call:
    known = {"request": request, "number": number, "round": 0, "attempt": 0, "clients": (0,)}
    return Call(**{**known, "in_rounds": False, **changes})


def sum_of(request: Request[Any], number: int = 1, **changes: Any) -> SumCall:
    """Return a call for a sum over one site."""
    known = {"request": request, "number": number, "round": 0, "attempt": 0, "clients": (0,)}
    return SumCall(**{**known, "in_rounds": False, "total_weight": 1, **changes})


def asked(host: ClientHost, request: Request[Any], **changes: Any) -> Answer:
    (answer,) = host.ask(call_of(request, **changes))
    return answer


def refusal(answer: Answer | PartialSum, rule: str) -> str:
    """Return the reason, after a check that nothing else came."""
    if isinstance(answer, PartialSum):
        assert not answer.totals
        assert not answer.clients
        (answer,) = answer.failures
    assert isinstance(answer, Failure)
    assert answer.kind is Kind.POLICY
    assert repr(rule) in answer.reason
    return answer.reason


def moments(power: int = 1) -> MomentRequest:
    return MomentRequest(np.zeros(FEATURES), np.full(FEATURES, 8.0), power)


# Another method's request, and a request that nobody defined.


def test_request_about_single_records_is_refused_by_name() -> None:
    host = host_of(ROWS, profile="datashield")
    reason = refusal(asked(host, DistanceRequest(np.eye(FEATURES))), "per_record: never")
    assert "'ward 0'" in reason
    assert "Distances" in reason
    assert "datashield" in reason


def test_other_method_is_refused_although_single_records_may_leave() -> None:
    host = host_of(ROWS, methods=["private-map", "fedne"])
    refusal(asked(host, DistanceRequest(np.eye(FEATURES))), "methods: [private-map, fedne]")
    assert not isinstance(asked(host, moments()), Failure)  # statistics that every method asks for
    same = host_of(ROWS, methods=["fed-umap"])
    assert not isinstance(asked(same, DistanceRequest(np.eye(FEATURES))), Failure)


@dataclass(frozen=True)
class Everything(Reply, granularity=Granularity.AGGREGATE, what="an innocent sum"):
    """Declared as an aggregate, and holds the records."""

    rows: FloatArray

    @staticmethod
    def ranges(request: EverythingRequest, rows: int) -> dict[str, Range]:
        return {"rows": Range((rows, FEATURES))}


@dataclass(frozen=True)
class EverythingRequest(Request[Everything], what="nothing"):
    pass


@answers(EverythingRequest)
def everything(client: Client, request: EverythingRequest) -> Everything:
    return Everything(np.asarray(client.rows))


def test_request_that_no_installed_package_defines_is_refused() -> None:
    assert not isinstance(asked(host_of(ROWS), EverythingRequest()), Failure)
    refusal(asked(host_of(ROWS, profile="datashield"), EverythingRequest()), "profile: datashield")


def test_request_that_names_a_module_of_raydr_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Everything, EverythingRequest):
        monkeypatch.setattr(kind, "__module__", "raydr.statistics.moments")
    refusal(asked(host_of(ROWS, profile="datashield"), EverythingRequest()), "profile: datashield")


def test_derived_request_with_its_own_client_part_is_refused() -> None:
    class Derived(MomentRequest, what="the usual"):  # type: ignore[misc]
        __orig_bases__ = (Request[Everything],)
        client_part = staticmethod(everything)

    lie = Derived(np.zeros(FEATURES), np.full(FEATURES, 8.0), 1)
    refusal(asked(host_of(ROWS, least_count=2), lie), "profile: open")


# Sums that are none.


def test_answer_to_a_single_request_is_no_aggregate() -> None:
    refusal(asked(host_of(ROWS, per_client="never"), moments()), "per_client: never")


@pytest.mark.parametrize("weighting", ["sum", "clients", "rows"])
def test_sum_over_one_site_is_no_aggregate_under_any_weighting(weighting: str) -> None:
    host = host_of(ROWS, profile="aggregate-only")
    call = sum_of(moments(), weighting=weighting, total_weight=10**6)
    refusal(host.sum(call), "aggregate: in-secure-sum")


class Recorder(InlineTransport):
    """A transport that keeps the calls for sums."""

    def __init__(self, hosts: list[ClientHost]) -> None:
        super().__init__(hosts)
        self.calls: list[SumCall] = []

    def sum(self, call: SumCall) -> Iterator[PartialSum]:
        self.calls.append(call)
        return super().sum(call)


@dataclass
class Run:
    """An honest run of private-map with secure sums: the hosts of its sites, and its calls."""

    policy: dict[str, Any]
    sites: int = 4
    hosts: list[ClientHost] = field(default_factory=list)
    calls: list[SumCall] = field(default_factory=list)
    epsilon: float = 4.0

    def __post_init__(self) -> None:
        rows = np.random.default_rng(5).normal(size=(200, FEATURES))
        parts = np.array_split(rows, self.sites)
        self.hosts = [host_of(part, index, **self.policy) for index, part in enumerate(parts)]
        transport = Recorder(self.hosts)
        federation = federation_over(
            transport, self.sites, seed=0, secure=SecureSums(), budget=Budget(strict=True)
        )
        settings = PrivateMapSettings(epsilon=self.epsilon, clip=4.0, rounds=2)
        METHODS["private-map"].serve(federation, settings)
        self.calls = transport.calls

    def last(self, kind: type[Request[Any]], client: int = 0) -> SumCall:
        """Return the last call of a kind, for one site."""
        found = [call for call in self.calls if isinstance(call.request, kind)][-1]
        return found.cut((client,))


def test_secure_sum_of_enough_sites_is_an_aggregate() -> None:
    run = Run({"profile": "aggregate-only"})
    assert {type(call.request).__name__ for call in run.calls} >= {"CellSumsRequest", "ScatterRequest"}


def masked_call(members: Sequence[int], keys_of: Sequence[int] | None = None) -> SumCall:
    """Return a call for a secure sum of these sites, with real public keys."""
    from raydr.federation.agreement import agreement_key
    from raydr.federation.masks import Circle, Masks, group_of

    clients = [Client(index=index, rows=ROWS, seed=0, secret=client_secret(ROOT, index)) for index in members]
    bits = bits_of(tuple(members))
    group = group_of(bits.tobytes(), 0.0, 0.0, "", 0)
    public = {each.index: masking.advertise(agreement_key(each), "", each.index) for each in clients}
    keys = np.stack([public[index] for index in keys_of or members])
    masks = Masks(Circle(bits, 0.0, 0.0, group.digest), masking.Label(masking.Batch("", 1, 1), 0), bits, keys)
    return sum_of(moments(), weighting="clients", total_weight=len(members), masks=masks)


def test_secure_sum_of_few_sites_is_no_aggregate() -> None:
    """Of three real sites, whose masks would hold, a site that wants four still sends nothing."""
    call = masked_call((0, 1, 2))
    assert host_of(ROWS, profile="aggregate-only").sum(call).clients == (0,)
    host = host_of(ROWS, profile="aggregate-only", least_sites=4)
    refusal(host.sum(call), "least_sites: 4")


def test_secure_sum_of_one_site_under_several_names_is_no_aggregate() -> None:
    call = masked_call((0, 1, 2), keys_of=(0, 1, 1))
    refusal(host_of(ROWS, profile="aggregate-only").sum(call), "least_sites: 3")


def test_secure_sum_of_a_cohort_of_one_is_no_aggregate() -> None:
    call = masked_call((0, 1, 2))
    assert call.masks is not None
    alone = replace(call, masks=replace(call.masks, shared=bits_of((0,))))
    refusal(host_of(ROWS, profile="aggregate-only").sum(alone), "least_sites: 3")


def test_mask_covers_one_sum_alone() -> None:
    """The difference of two sums under one mask has no mask: the second would open the first."""
    host, call = host_of(ROWS, profile="aggregate-only"), masked_call((0, 1, 2))
    first = host.sum(call)
    again = host.sum(replace(call, attempt=1))
    np.testing.assert_array_equal(first.totals["mean"], again.totals["mean"])
    zero = replace(moments(), centre=np.full(FEATURES, 1.0))
    refusal(host.sum(replace(call, request=zero)), "aggregate: in-secure-sum")
    refusal(host.sum(replace(call, weighting="rows")), "aggregate: in-secure-sum")


# Noise.


@pytest.fixture(scope="module")
def private() -> Run:
    return Run({"profile": "private"})


def fresh(run: Run, **policy: Any) -> ClientHost:
    """Return a host of the first site that has answered nothing yet."""
    return host_of(np.asarray(run.hosts[0].hosted[0].rows), **(policy or {"profile": "private"}))


def test_request_without_noise_is_refused(private: Run) -> None:
    call = private.last(CellSumsRequest)
    assert fresh(private).sum(call).clients == (0,)
    bare = replace(call, request=replace(call.request, mechanism=None), sharing=None)
    refusal(fresh(private).sum(bare), "aggregate: with-noise")


def test_noise_that_only_claims_to_be_noise_is_refused(private: Run) -> None:
    call = private.last(CellSumsRequest)
    assert call.request.mechanism is not None
    quiet = replace(call.request, mechanism=silent(call.request.mechanism))
    refusal(fresh(private).sum(replace(call, request=quiet)), "profile: private")


def test_weak_noise_is_refused(private: Run) -> None:
    call = private.last(CellSumsRequest)
    assert call.request.mechanism is not None
    weak = call.request.mechanism.model_copy(update={"multiplier": 1e-3})
    refusal(fresh(private).sum(replace(call, request=replace(call.request, mechanism=weak))), "epsilon: 8.0")


@pytest.mark.parametrize(
    "sharing",
    [
        {"clients": 10**8},  # a share of almost nothing
        {"sensitivity": 1e-6},  # noise for records that hardly move the sum
        {"sensitivity": 0.0},
        {"clients": 0},
    ],
)
def test_lies_about_shares_of_noise_are_refused(private: Run, sharing: dict[str, float]) -> None:
    call = private.last(CellSumsRequest)
    assert call.sharing is not None
    lie = replace(call, sharing=replace(call.sharing, **sharing))
    answer = fresh(private).sum(lie)
    assert not answer.totals
    assert {failure.kind for failure in answer.failures} == {Kind.POLICY}


def test_share_of_noise_counts_alone_without_a_secure_sum(private: Run) -> None:
    """Without masks the server reads the summand, which has only its own share of the noise."""
    call = replace(private.last(CellSumsRequest), masks=None)
    assert fresh(private, profile="private", epsilon=100.0).sum(call).clients == (0,)
    secure = fresh(private, profile="private", epsilon=4.0)
    assert secure.sum(private.last(CellSumsRequest)).clients == (0,)
    refusal(fresh(private, profile="private", epsilon=4.0).sum(call), "epsilon: 4.0")


def test_repeated_requests_cannot_average_the_noise_away(private: Run) -> None:
    """Each sum with other noise counts, and a new start of the coordinator forgets nothing."""
    host, call = fresh(private), private.last(CellSumsRequest)
    assert call.masks is not None
    assert call.sharing is not None
    for number in range(1000):
        if number == 2:
            host.restore(())
        label = replace(call.masks.label, batch=replace(call.masks.label.batch, number=number + 100))
        again = replace(
            call,
            masks=replace(call.masks, label=label),
            sharing=replace(call.sharing, among=str(number)),
        )
        answer = host.sum(again)
        if not answer.clients:
            break
    assert number > 2
    refusal(answer, "epsilon: 8.0")
    total = 1.0 / math.sqrt(number)  # of releases with the same multiplier
    assert total < 1.0
    refusal(host.sum(replace(again, number=5000)), "epsilon: 8.0")


def test_rows_that_changed_in_between_cost_again(private: Run) -> None:
    """The same call after another scaling has other noise."""
    host, call = fresh(private), private.last(CellSumsRequest)
    for number in range(1, 1000):
        scaled = asked(host, ScaleRows(np.zeros(FEATURES), np.full(FEATURES, 1.0 + 1e-3)), number=number)
        assert not isinstance(scaled, Failure)
        answer = host.sum(call)
        if not answer.clients:
            break
    refusal(answer, "epsilon: 8.0")


def test_same_noise_again_costs_nothing(private: Run) -> None:
    host, call = fresh(private), private.last(CellSumsRequest)
    first = host.sum(call)
    for attempt in range(50):
        again = host.sum(replace(call, attempt=attempt))
        np.testing.assert_array_equal(first.totals["counts"], again.totals["counts"])


def test_noise_above_the_policy_ends_the_run_and_names_the_rule() -> None:
    with pytest.raises(PolicyError, match=r"'ward 0' \(private, changed\) has the rule 'epsilon: 1.0'"):
        Run({"profile": "private", "epsilon": 1.0})


# Few records.


def test_site_with_few_rows_sends_nothing() -> None:
    refusal(asked(host_of(ROWS[:1], profile="private"), Enrol()), "least_rows: 5")
    refusal(asked(host_of(ROWS[:2], profile="datashield"), Enrol()), "least_rows: 3")
    assert not isinstance(asked(host_of(ROWS[:0], profile="private"), Enrol()), Failure)


def bound(value: float) -> BelowRequest:
    return BelowRequest(np.full((2, FEATURES), ordered(np.float64(value))), 100)


def test_median_where_two_records_differ_is_refused() -> None:
    """The search for a median ends between two neighbouring records."""
    rows = np.arange(24.0)[:, None] * np.ones(FEATURES)
    host = host_of(rows, profile="datashield")
    low, high, answered = -1.0, 24.0, 0
    while high - low > 1e-3:
        middle = (low + high) / 2.0
        answer = asked(host, bound(middle))
        if isinstance(answer, Failure):
            break
        answered += 1
        below = int(answer.reply.counts[0, 0])  # type: ignore[attr-defined]
        low, high = (middle, high) if below < 12 else (low, middle)
    refusal(answer, "least_count: 3")
    assert answered
    assert high - low >= 2.0  # at least three of the records may be the one in the middle


def test_bounds_of_several_requests_are_taken_together() -> None:
    rows = np.arange(24.0)[:, None] * np.ones(FEATURES)
    host = host_of(rows, least_count=3)
    assert not isinstance(asked(host, bound(11.5)), Failure)
    host.restore(())
    refusal(asked(host, bound(12.5)), "least_count: 3")  # one record lies between both bounds
    assert not isinstance(asked(host, bound(14.5)), Failure)


def test_median_of_many_equal_values_may_leave() -> None:
    host = host_of(np.repeat([[1.0], [2.0]], 12, axis=0) * np.ones(FEATURES), profile="datashield")
    assert not isinstance(asked(host, bound(1.0)), Failure)
    assert not isinstance(asked(host, bound(1.5)), Failure)


def test_extreme_of_a_column_is_refused_where_the_policy_says_so() -> None:
    keys = np.zeros(2 * FEATURES, np.int64)
    request = BeyondRequest(keys, keys + 7, 3, "extremes", np.zeros(FEATURES))
    refusal(asked(host_of(ROWS, extremes="never"), request), "extremes: never")
    assert not isinstance(asked(host_of(ROWS, profile="datashield"), request), Failure)


def test_extent_of_a_map_and_constant_columns_are_extremes() -> None:
    policy, call = Policy(extremes="never"), sum_of(ConstantRequest(2))
    density = DensityRequest(weights=np.zeros(4, np.float32), hidden=(), reach=1.0, nodes=4)
    for request in (ConstantRequest(2), density):
        message = message_of(replace(call, request=request), request, 90, None)
        found = policy.refusal(message)
        assert found is not None
        assert found.rule == "extremes: never"
        assert Policy().refusal(message) is None


def test_bins_with_few_records_are_merged() -> None:
    """A record has a pair with each point, so a bin of three records has at least three times the points."""
    points = np.random.default_rng(1).normal(size=(4, FEATURES))
    request = HistogramRequest(points, 100.0, 100)
    plain, bound = asked(host_of(ROWS), request), asked(host_of(ROWS, least_count=3), request)
    assert not isinstance(plain, Failure)
    assert not isinstance(bound, Failure)
    before, after = plain.reply.counts, bound.reply.counts  # type: ignore[attr-defined]
    assert before[before > 0].min() < 12 <= after[after > 0].min()
    assert before.sum() == after.sum()
    refusal(asked(host_of(ROWS[:4], least_count=5), request), "least_count: 5")


def test_group_with_few_records_is_refused() -> None:
    refusal(asked(host_of(ROWS, least_count=3), PrototypeRequest(2, FEATURES)), "least_count: 3")
    assert not isinstance(asked(host_of(ROWS, least_count=3), PrototypeRequest(3, FEATURES)), Failure)
    groups = GroupRequest(ROWS[:2].copy(), np.zeros(FEATURES), np.full(FEATURES, 8.0), 100)
    single = np.concatenate([np.repeat(ROWS[:1], 9, axis=0), ROWS[1:2]])
    refusal(asked(host_of(single, least_count=3), groups), "least_count: 3")


# The end of the run.


def test_refusal_is_never_retried_and_never_dropped() -> None:
    refused = Failure(0, Kind.POLICY, "no")
    assert FailurePolicy(retries=5, quorum=0.1).decide(refused, 0, droppable=True) is Decision.GIVE_UP


def test_run_ends_with_site_rule_and_message() -> None:
    hosts = [host_of(ROWS, 0), host_of(ROWS, 1, per_client="never")]
    federation = federation_over(InlineTransport(hosts), 2, seed=0)
    with pytest.raises(PolicyError) as raised:
        federation.ask(moments())
    assert all(
        word in str(raised.value) for word in ("'ward 1'", "per_client: never", "Moment", "raydr plan")
    )


def test_record_content_of_the_refused_message() -> None:
    """The distances that the first test refuses would have determined the records."""
    answer = asked(host_of(ROWS), DistanceRequest(np.eye(FEATURES)))
    assert not isinstance(answer, Failure)
    assert type(answer.reply).tells is RecordContent.DISTANCES


def test_an_audit_with_other_rows_is_no_release_of_the_site(tmp_path: Path) -> None:
    record = tmp_path / "releases.sqlite"
    host = host_of(ROWS, releases=str(record))
    budget = SiteBudget(record)
    asked(host, moments())
    assert len(budget.releases()) == 1
    asked(host.with_rows(ROWS + 1.0), moments())
    assert len(budget.releases()) == 1
    asked(host, moments(2), number=2)
    assert [each.release.kind for each in budget.releases()] == ["Moment", "Moment"]
