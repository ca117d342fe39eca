"""The time of messages on the sites' lines: hand-worked cases, and the account of a run and of its plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inline_federations import federate
from requests_for_tests import Noisy, NoisyRequest, Word, WordRequest

from raydr.errors import ScenarioError
from raydr.federation.codec import encode
from raydr.federation.network import Line, Network
from raydr.federation.secure import SecureSums
from raydr.privacy.ledger import Entry, Granularity
from raydr.scenarios.planning.plan import plan_of_scenario
from raydr.scenarios.runner import run
from raydr.scenarios.running.client_data import dealt_out
from raydr.scenarios.running.identity import Identity
from raydr.scenarios.schema.network import NetworkSettings
from raydr.scenarios.schema.reading import read

FAST, SLOW = (
    Line(up_mbit_s=8, down_mbit_s=16, latency_ms=100),
    Line(up_mbit_s=1, down_mbit_s=2, latency_ms=20),
)


@pytest.mark.parametrize(
    ("line", "down", "up", "seconds"),
    [
        (FAST, 0, 0, 0.1),
        (FAST, 2_000_000, 0, 1.1),
        (FAST, 0, 2_000_000, 2.1),
        (FAST, 2_000_000, 2_000_000, 3.1),
        (SLOW, 1_000, 500, 0.028),
    ],
)
def test_a_round_trip_by_hand(line: Line, down: int, up: int, seconds: float) -> None:
    assert line.seconds(down, up) == pytest.approx(seconds, rel=1e-12)


def test_a_call_takes_as_long_as_its_slowest_client() -> None:
    network = Network((FAST, SLOW))
    assert network.seconds({0: 1000, 1: 1000}, {0: 1000, 1: 1000}) == pytest.approx(0.1 + 0.0005 + 0.001)
    assert network.seconds({0: 10**6, 1: 1000}, {0: 10**6, 1: 1000}) == pytest.approx(0.1 + 0.5 + 1.0)
    assert network.seconds({1: 1000}, {}) == pytest.approx(0.024), "who does not answer was asked"
    assert network.seconds({}, {}) == 0.0
    entry = Entry(
        kind="k",
        what="w",
        direction="up",
        granularity=Granularity.AGGREGATE,
        seen_by="server",
        count=6,
        bytes=6000,
    )
    assert network.seconds_of(entry) == pytest.approx(3 * 0.101)


def settings(**content: Any) -> NetworkSettings:
    return NetworkSettings(**content)


def test_lines_of_clients_by_name() -> None:
    network = settings(up_mbit_s=8, down_mbit_s=16, latency_ms=100, sites=[{"name": "b", "up_mbit_s": 1}]).of(
        "abc"
    )
    assert network.lines == (FAST, FAST.model_copy(update={"up_mbit_s": 1.0}), FAST)
    with pytest.raises(
        ScenarioError, match=r"names 'site-1', but no client has this name \(did you mean site-2\?\)"
    ):
        settings(sites=[{"name": "site-1"}]).of(["site-2", "else"])
    with pytest.raises(ScenarioError, match="names 'a' twice"):
        settings(sites=[{"name": "a"}, {"name": "a"}]).of("abc")


PARTS = [np.full((rows, 3), float(rows)) for rows in (2, 3, 4)]
LINES = Network((FAST, SLOW, FAST))


def trip(line: Line, down: int, up: int) -> float:
    return line.latency_ms / 1e3 + 8 * down / (1e6 * line.down_mbit_s) + 8 * up / (1e6 * line.up_mbit_s)


def bytes_of(message: Any) -> int:
    return len(encode(message))


def test_every_call_of_a_federation_is_counted() -> None:
    federation = federate(PARTS, network=LINES)
    start = federation.network_seconds
    enrolments = (entry.bytes // 3 for entry in federation.ledger.entries.values())
    assert start == pytest.approx(trip(FAST, *enrolments))
    federation.ask(NoisyRequest(3))
    asked = federation.network_seconds - start
    down, up = bytes_of(NoisyRequest(3)), bytes_of(Noisy(np.zeros(3), 4))
    assert asked == pytest.approx(max(trip(FAST, down, up), trip(SLOW, down, up)))
    federation.sum(NoisyRequest(3))
    up = bytes_of({"values": np.zeros(3, np.int64), "rows": np.zeros((), np.int64)})
    summed = federation.network_seconds - start - asked
    assert summed == pytest.approx(max(trip(FAST, down, up), trip(SLOW, down, up)))
    before = federation.network_seconds
    words = np.zeros((3, 30_000))
    federation.ask(WordRequest(words))
    down, up = bytes_of(WordRequest(words).addressed_to(2)), bytes_of(Word(np.zeros(3)))
    assert federation.network_seconds - before == pytest.approx(trip(FAST, down, up))
    assert federate(PARTS).network_seconds is None


def test_secure_sums_take_longer_and_repeated_calls_count() -> None:
    open_sums, secure = (
        federate(PARTS * 3, network=Network((FAST,) * 9), secure=sums) for sums in (None, SecureSums())
    )
    for federation in (open_sums, secure):
        federation.sum(NoisyRequest(3))
    assert secure.network_seconds > open_sums.network_seconds + 0.3, (
        "keys, shares and seeds are trips of their own"
    )


def scenario(method: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "name": "lines",
        "data": {"source": "digits", "rows": 300},
        "clients": {"count": 4},
        "runtime": {"federation": "inline", "checkpoint_every": 1},
        "metrics": [],
        "network": {"latency_ms": 30, "sites": [{"name": "client-2", "up_mbit_s": 1}]},
        "method": method,
    } | more


def counted(folder: Path) -> float | None:
    found: float | None = json.loads((folder / "environment.json").read_text())["network_seconds"]
    return found


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"privacy": {"secure_aggregation": True}},
        {"faults": {"crashes": [{"client": 1, "round": 2}]}},
        {"fidelity_rows": 20},
    ],
    ids=["plain", "secure", "crash", "fidelity"],
)
def test_a_plan_counts_what_the_run_counts(tmp_path: Path, more: dict[str, Any]) -> None:
    content = read(scenario({"kind": "fed-umap", "rounds": 4}, **more))
    planned = plan_of_scenario(content).network_seconds
    folder = run(content, out=tmp_path, report=True)
    assert planned == pytest.approx(counted(folder), rel=1e-9)
    assert planned > 4 * 0.03
    assert "On the sites" in (folder / "report.html").read_text()


def test_the_account_changes_no_result_and_no_identity(tmp_path: Path) -> None:
    with_lines = scenario({"kind": "fed-umap", "rounds": 2})
    without = {key: value for key, value in with_lines.items() if key != "network"}
    one, other = (
        run(read(each), out=tmp_path / str(i), report=False) for i, each in enumerate((with_lines, without))
    )
    for name in ("embedding.parquet", "ledger.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    assert counted(one) is not None
    assert counted(other) is None
    settings_of = [
        Identity.of(content, dealt_out(content, None)).scenario
        for content in map(read, (with_lines, without))
    ]
    assert settings_of[0] == settings_of[1]
