"""A run over nodes that keep nothing in memory is bit-identical with one over hosts that live as long as the run."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_sites import Nodes, host_of, over_nodes
from inline_federations import KNOWN
from requests_for_tests import Noisy, NoisyRequest, Shift

from raydr.errors import RaydrError
from raydr.federation import Client, ClientError, Federation, InlineTransport, Request, answers
from raydr.federation.agreement import OpenRequest, OpenRequests
from raydr.federation.client import HostSecrets
from raydr.federation.codec import decode, encode, encoded_bytes
from raydr.federation.context import Context
from raydr.federation.enrolment import Enrol
from raydr.federation.failures import Failure, FailurePolicy, Kind
from raydr.federation.secure import RevealRequest
from raydr.federation.transport import Transport
from raydr.federation.wire import Answered, Call, PartialSum
from raydr.journal import Journal
from raydr.methods.landmarks.maps import DistanceRequest
from raydr.methods.requests import site_policy
from raydr.methods.serving import Served, serve
from raydr.privacy.policy import Policy
from raydr.runtimes.flower.errands import Begin, Carry, Failed, packed, unpacked
from raydr.runtimes.flower.transport import FlowerTransport
from raydr.scenarios.running.federation_plan import plan_of, with_public
from raydr.scenarios.schema.scenario import Scenario

CLIENTS, SEED, RUN = 3, 5, "a run over nodes"
GROUP = np.arange(30) % 2
PARTS = [
    np.random.default_rng(client).normal(size=(30, 4)) + 3.0 * GROUP[:, None] + 0.2 * client
    for client in range(CLIENTS)
]
SECRETS = HostSecrets.derived(KNOWN, range(CLIENTS))

CASES: dict[str, dict[str, Any]] = {
    "Fed-UMAP, secure sums": {"method": {"kind": "fed-umap"}, "privacy": {"secure_aggregation": True}},
    "Fed-t-SNE under a key": {"method": {"kind": "fed-tsne"}, "privacy": {"isometry_key": True}},
    "FedNE": {"method": {"kind": "fedne", "rounds": 2}},
    "private map": {"method": {"kind": "private-map", "epsilon": 4.0, "clip": 4.0, "rounds": 2}},
    "SENSE": {"method": {"kind": "sense"}},
}


def served(transport: Transport, case: dict[str, Any]) -> Served:
    scenario = Scenario.model_validate(
        {"name": "nodes", "data": {"source": "iris"}, "clients": {"count": CLIENTS}, "seed": SEED, **case}
    )
    plan, _ = with_public(plan_of(scenario, CLIENTS), None)
    return serve(transport, CLIENTS, replace(plan, run=RUN), journal=Journal())


def bits(found: Served) -> list[Any]:
    outcome = found.outcome
    return [outcome.embedding.tobytes(), *((name, array.tobytes()) for name, array in outcome.model.items())]


@pytest.mark.parametrize("case", CASES)
def test_nodes_give_the_same_bits_as_lasting_hosts(case: str, tmp_path: Path) -> None:
    hosts = [host_of(client, rows, SECRETS, seed=SEED, run=RUN) for client, rows in enumerate(PARTS)]
    lasting = served(InlineTransport(hosts), CASES[case])
    nodes = served(over_nodes(PARTS, SECRETS, tmp_path, seed=SEED, run=RUN), CASES[case])
    assert bits(nodes) == bits(lasting)
    assert nodes.ledger.entries == lasting.ledger.entries


def test_a_clients_part_is_in_its_message_once() -> None:
    own = {
        client: OpenRequest(0, np.zeros(32, np.uint8), np.full(50_000, client, np.uint8)) for client in (1, 2)
    }
    for client, part in own.items():
        call = replace(call_of(OpenRequests(own)), clients=(1, 2)).cut((client,))
        message = encode(Carry.of(RUN, 1, 0, call))
        assert encoded_bytes(part) < len(message) < encoded_bytes(part) + 1_000
        arrived = decode(message).whole
        assert encode(arrived) == encode(call)
        assert arrived.request_for(client).box[0] == client
    plain = call_of(Enrol())
    assert Carry.of(RUN, 1, 0, plain).whole == plain


def nodes_of(transport: FlowerTransport) -> Nodes:
    assert isinstance(transport.courier, Nodes)
    return transport.courier


def call_of(request: Request[Any], number: int = 1, client: int = 0) -> Call:
    return Call(request=request, number=number, round=0, attempt=0, clients=(client,), in_rounds=False)


def asked(transport: FlowerTransport, request: Request[Any], number: int = 1) -> Answered | Failure:
    """The first site's answer."""
    (answer,) = transport.ask(call_of(request, number))
    return answer


def started(folder: Path, **options: Any) -> FlowerTransport:
    transport = over_nodes(PARTS, SECRETS, folder, seed=SEED, run=RUN, **options)
    transport.reset()
    return transport


# Promises that outlive a process.


def test_site_measures_its_records_once_in_all_starts_of_a_run(tmp_path: Path) -> None:
    transport = started(tmp_path)
    asked(transport, Enrol())
    landmarks = np.random.default_rng(0).normal(size=(5, 4))
    first = asked(transport, DistanceRequest(landmarks), 1)
    assert isinstance(first, Answered)
    again = asked(transport, DistanceRequest(landmarks), 2)
    assert isinstance(again, Answered)
    assert again.reply.squared.tobytes() == first.reply.squared.tobytes()  # type: ignore[attr-defined]
    for start in range(2):
        transport = started(tmp_path) if start else transport
        refused = asked(transport, DistanceRequest(landmarks + 1.0), 3)
        assert isinstance(refused, Failure)
        assert refused.kind is Kind.REQUEST_REFUSED
        assert "asks a second time" in refused.reason


def test_site_reveals_the_seed_of_a_sum_once(tmp_path: Path) -> None:
    transport = over_nodes(PARTS, SECRETS, tmp_path, seed=SEED, run=RUN)
    seen: list[Carry] = []

    def watched(site: str, message: bytes) -> bytes:
        errand = unpacked(message)
        if isinstance(errand, Carry) and isinstance(errand.call.request, RevealRequest):
            seen.append(errand)
        return message

    nodes_of(transport).to_site = watched
    served(transport, CASES["Fed-UMAP, secure sums"])
    call = seen[0].whole
    again = transport.ask(replace(call, number=900))
    assert isinstance(again[0], Answered)
    other = replace(call.request, survivors=call.request.dropped, dropped=call.request.survivors)
    refused = transport.ask(replace(call, number=901, request=other))
    assert isinstance(refused[0], Failure)
    assert refused[0].reason.startswith("MaskingError")


def test_policy_counts_the_cost_of_all_messages(tmp_path: Path) -> None:
    """Each release alone would cost less than the limit."""
    site = site_policy([Policy.model_validate({"profile": "private", "epsilon": 3.9})], "Basel")
    case = {**CASES["private map"], "privacy": {"secure_aggregation": True}}
    hosts = [
        host_of(client, rows, SECRETS, seed=SEED, run=RUN, policy=site) for client, rows in enumerate(PARTS)
    ]
    said = []
    for transport in (
        InlineTransport(hosts),
        over_nodes(PARTS, SECRETS, tmp_path, seed=SEED, run=RUN, policies=[site] * CLIENTS),
    ):
        with pytest.raises(RaydrError) as refused:
            served(transport, case)
        said.append(str(refused.value))
    assert said[0] == said[1]
    assert "epsilon: 3.9" in said[0]


# Faults: a repeated call, or an end with a reason; never another map.


def federation_over(transport: Transport) -> Federation:
    return Federation(transport, CLIENTS, Context(seed=SEED, run=RUN, policy=FailurePolicy(retries=2)))


def shifted_sums(transport: Transport) -> Noisy:
    federation = federation_over(transport)
    federation.ask(Shift(2.0))
    federation.ask(Shift(0.5))
    return federation.sum(NoisyRequest(4))


@pytest.mark.parametrize("lost", [2, 5, 8, 11, 14])
def test_lost_answer_changes_nothing(lost: int, tmp_path: Path) -> None:
    """The site has followed the call, and follows it no second time."""
    transport = over_nodes(PARTS, SECRETS, tmp_path, seed=SEED, run=RUN)
    answered = iter(range(1, 100))
    nodes_of(transport).to_server = lambda site, answer: None if next(answered) == lost else answer
    hosts = [host_of(client, rows, SECRETS, seed=SEED, run=RUN) for client, rows in enumerate(PARTS)]
    expected, found = shifted_sums(InlineTransport(hosts)), shifted_sums(transport)
    assert found.values.tobytes() == expected.values.tobytes()


def test_site_without_its_record_ends_the_run(tmp_path: Path) -> None:
    transport = over_nodes(PARTS, SECRETS, tmp_path, seed=SEED, run=RUN)
    federation = federation_over(transport)
    federation.ask(Shift(2.0))
    shutil.rmtree(tmp_path / "site 1")
    with pytest.raises(ClientError, match="the site's record of this run ends before call 2"):
        federation.sum(NoisyRequest(4))


def test_message_of_an_earlier_start_is_refused(tmp_path: Path) -> None:
    earlier, later = started(tmp_path), started(tmp_path)
    refused = asked(earlier, Shift(1.0))
    assert isinstance(refused, Failure)
    assert "belongs to start" in refused.reason
    assert isinstance(asked(later, Shift(1.0)), Answered)


def test_new_start_forgets_the_calls_of_the_last(tmp_path: Path) -> None:
    asked(started(tmp_path), Shift(1.0))
    again = started(tmp_path)
    asked(again, Shift(2.0))
    answer = asked(again, NoisyRequest(4, noise=0.0), 2)
    assert isinstance(answer, Answered)
    np.testing.assert_allclose(answer.reply.values, PARTS[0].sum(axis=0) + 60.0)  # type: ignore[attr-defined]


TAMPERING: dict[str, Callable[[bytes], bytes]] = {
    "no message": lambda content: b"",
    "half a message": lambda content: content[: len(content) // 2],
    "another message": lambda content: packed(Begin(RUN, 1)),
    "another digit": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
    "another digest": lambda content: bytes([content[0] ^ 1]) + content[1:],
    "another value": lambda content: packed({"a": 1}),
}


@pytest.mark.parametrize("where", ["to_site", "to_server"])
@pytest.mark.parametrize("change", TAMPERING)
def test_tampered_message_is_refused(change: str, where: str, tmp_path: Path) -> None:
    transport = started(tmp_path)
    setattr(nodes_of(transport), where, lambda site, content: TAMPERING[change](content))
    refused = asked(transport, NoisyRequest(4))
    assert isinstance(refused, Failure)
    assert refused.kind in (Kind.REFUSED, Kind.REQUEST_REFUSED)


def test_site_forgets_a_call_that_it_answered_after_the_server_went_on(tmp_path: Path) -> None:
    """Its answer was late: the server went on without the site, so the site's state is that before the call."""
    transport = started(tmp_path)
    asked(transport, Shift(1.0), 1)
    late = transport.courier.exchange(
        {"site 0": packed(Carry(RUN, transport.start, 1, call_of(Shift(8.0), 2)))}, 1
    )
    assert isinstance(unpacked(late["site 0"]), Answered)  # type: ignore[arg-type]
    answer = asked(transport, NoisyRequest(4, noise=0.0), 3)
    assert isinstance(answer, Answered)
    np.testing.assert_allclose(answer.reply.values, PARTS[0].sum(axis=0) + 30.0)  # type: ignore[attr-defined]


def test_failure_names_the_site(tmp_path: Path) -> None:
    transport = started(tmp_path)
    nodes_of(transport).to_server = lambda site, answer: None
    lost = asked(transport, NoisyRequest(4))
    assert isinstance(lost, Failure)
    assert lost.reason == "site 'site 0': no answer"


def test_answer_of_another_site_is_refused(tmp_path: Path) -> None:
    transport = started(tmp_path)
    nodes = nodes_of(transport)
    other = nodes.nodes["site 1"].answer(
        packed(Carry(RUN, transport.start, 0, call_of(NoisyRequest(4), client=1)))
    )
    nodes.to_server = lambda site, answer: other
    refused = asked(transport, NoisyRequest(4))
    assert isinstance(refused, Failure)
    assert refused.kind is Kind.REFUSED
    wrong_site = nodes.nodes["site 1"].answer(
        packed(Carry(RUN, transport.start, 0, call_of(NoisyRequest(4))))
    )
    assert isinstance(unpacked(wrong_site), Failed)


def test_answer_out_of_its_declared_range_is_refused(tmp_path: Path) -> None:
    transport = started(tmp_path)

    def changed(site: str, answer: bytes) -> bytes:
        found = unpacked(answer)
        return packed(replace(found, reply=replace(found.reply, values=np.full(4, np.nan))))

    asked(transport, Enrol())
    nodes_of(transport).to_server = changed
    refused = asked(transport, NoisyRequest(4))
    assert isinstance(refused, Failure)
    assert refused.kind is Kind.REFUSED
    assert "declared range" in refused.reason


def test_summand_with_another_weight_is_refused(tmp_path: Path) -> None:
    transport = started(tmp_path)

    def heavier(site: str, answer: bytes) -> bytes:
        found = unpacked(answer)
        return packed(replace(found, weight=found.weight + 1)) if isinstance(found, PartialSum) else answer

    nodes_of(transport).to_server = heavier
    with pytest.raises(ClientError, match="weight"):
        served(transport, CASES["Fed-UMAP, secure sums"])


# What a site keeps.


@dataclass(frozen=True)
class Indiscreet(Request[Noisy], what="a question that a client part cannot answer"):
    """Its error names a value."""


@answers(Indiscreet)
def indiscreet(client: Client, request: Indiscreet) -> Noisy:
    raise ValueError(f"the first patient has {client.rows[0, 0]}")


def test_text_of_an_error_stays_at_the_site(tmp_path: Path) -> None:
    refused = asked(started(tmp_path), Indiscreet())
    assert isinstance(refused, Failure)
    assert refused.kind is Kind.CLIENT_RAISED
    assert "patient" not in refused.reason + refused.trace
    assert "ValueError" in refused.reason


@pytest.mark.parametrize("run", [RUN, "../../elsewhere", "/etc/elsewhere", ""])
def test_record_lies_in_the_site_s_folder_for_its_owner_alone(run: str, tmp_path: Path) -> None:
    over_nodes(PARTS, SECRETS, tmp_path / "a" / "b", seed=SEED, run=run).reset()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.parent for path in files} == {
        tmp_path / "a" / "b" / f"site {client}" / "runs" for client in range(CLIENTS)
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
