"""Runs whose every call and answer goes through the wire format: the same bits, and the ledger's bytes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from encoded_transport import EncodedTransport, same
from run_bits import bits

from raydr.federation import InlineTransport
from raydr.federation.codec import decode, encode
from raydr.federation.wire import Answered, Call, PartialSum, SumCall
from raydr.scenarios.runner import run
from raydr.scenarios.running import backend
from raydr.scenarios.schema.reading import read

UMAP = {"kind": "fed-umap", "rounds": 3, "landmarks": 40}
RUNS: dict[str, dict[str, Any]] = {
    "fed-umap": {"method": UMAP, "fidelity_rows": 20},
    "fed-tsne, secure sums, lost clients": {
        "method": {"kind": "fed-tsne", "rounds": 4, "landmarks": 30},
        "clients": {"count": 9},
        "privacy": {"secure_aggregation": True, "colluding": 0.0},
        "faults": {"dropout": 0.2},
        "runtime": {"federation": "inline", "quorum": 0.5},
    },
    "sense, each client its anchors": {"method": {"kind": "sense", "anchors": 30, "visibility": "partial"}},
}
SLOW: dict[str, dict[str, Any]] = {
    "private-map": {
        "method": {"kind": "private-map", "epsilon": 500.0},
        "privacy": {"secure_aggregation": True},
    },
    "fedne": {"method": {"kind": "fedne", "rounds": 3, "hidden": [16]}},
    "isometry key": {"method": UMAP, "privacy": {"isometry_key": True}},
    "noise on gradients": {"method": UMAP, "privacy": {"noise": {"on": "gradient", "level": 0.1}}},
    "noise on data": {"method": UMAP, "privacy": {"noise": {"on": "data", "level": 0.1}}},
    "fed-spectral": {"method": {"kind": "fed-spectral", "clusters": 3, "landmarks": 30}},
    "fed-pca": {"method": {"kind": "fed-pca"}},
    "sense": {"method": {"kind": "sense", "anchors": 70}},
    "dsne": {"method": {"kind": "dsne", "iterations": 20}},
    "fedavg-ne": {"method": {"kind": "fedavg-ne", "rounds": 2, "hidden": [16]}},
    "local-ne": {"method": {"kind": "local-ne", "rounds": 2, "hidden": [16]}},
    "global-ne": {"method": {"kind": "global-ne", "rounds": 2, "hidden": [16]}},
    "ten sites that lie": {
        "method": UMAP | {"aggregation": {"kind": "coordinate-median"}},
        "clients": {"count": 10},
        "faults": {"adversary": {"kind": "sign-flip", "fraction": 0.2}},
    },
}


class Traffic:
    """The bytes of each kind of message that clients and the server exchange, in the wire format."""

    def __init__(self) -> None:
        self.bytes: Counter[str] = Counter()

    def __call__(self, value: Any, data: bytes) -> None:
        assert same(decode(data), value)
        match value:
            case Call():
                for client in value.clients:
                    self.add(value.request_for(client), as_part_of=value.request)
                    if isinstance(value, SumCall) and value.masks is not None:
                        self.add(value.masks.for_ledger())
            case Answered():
                self.add(value.reply)
            case PartialSum() if value.clients:
                assert value.reply is not None
                for client in value.clients:
                    sealed = {name: each[client] for name, each in value.sealed.items()}
                    self.bytes[value.reply.__name__] += len(encode(value.totals | sealed))

    def add(self, message: Any, *, as_part_of: Any = None) -> None:
        kind = type(as_part_of or message)
        self.bytes[kind.__name__] += len(encode(message))


def results(content: dict[str, Any], out: Path) -> dict[str, str]:
    scenario = {
        "name": "encoded",
        "data": {"source": "digits", "rows": 200},
        "clients": {"count": 4},
        "runtime": {"federation": "inline"},
        "metrics": [],
    } | content
    secret = out.with_suffix(".secret")
    secret.write_bytes(bytes(range(64)))
    secret.chmod(0o600)
    scenario["privacy"] = {**content.get("privacy", {}), "secret": str(secret)}
    return bits(run(read(scenario), out=out, report=False))


@pytest.fixture
def through(monkeypatch: pytest.MonkeyPatch) -> Callable[[Traffic], None]:
    def wrap(traffic: Traffic) -> None:
        monkeypatch.setattr(
            backend, "InlineTransport", lambda hosts: EncodedTransport(InlineTransport(hosts), traffic)
        )

    return wrap


@pytest.mark.parametrize(
    "content", [*RUNS.values(), *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW.values())],
    ids=[*RUNS, *SLOW],
)  # fmt: skip
def test_a_run_through_the_wire_format_has_the_same_bits(
    content: dict[str, Any], tmp_path: Path, through: Callable[[Traffic], None]
) -> None:
    plain, traffic = results(content, tmp_path / "run"), Traffic()
    through(traffic)
    assert results(content, tmp_path / "run2") == plain
    counted: Counter[str] = Counter()
    for entry in json.loads((tmp_path / "run2" / "ledger.json").read_text()):
        counted[entry["kind"]] += entry["bytes"]
    assert counted == traffic.bytes
