"""The file of nodes binds each name to one key, and the courier asks only nodes with a bound key."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from raydr.errors import DataError, RunError
from raydr.federation.failures import Kind
from raydr.privacy.node_keys import read_nodes
from raydr.runtimes.flower.errands import Failed

KEYS = [ec.derive_private_key(number, ec.SECP384R1()).public_key() for number in (2, 3, 4)]
PEMS = [key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo) for key in KEYS]
LINES = [key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode() for key in KEYS]

FINGERPRINT = "SHA256:Y1YR4Go44VKrZ1D+L327XR43oXaw7E1EoE/ZCaUZKmc"
"""Of the last key, as ``ssh-keygen -lf`` prints it."""


def written(folder: Path, text: str) -> Path:
    path = folder / "nodes.yaml"
    path.write_text(text)
    return path


def test_names_are_bound_to_keys(tmp_path: Path) -> None:
    path = written(tmp_path, f"Basel: {LINES[0]} node@basel\nBern: {LINES[1]}\n")
    assert read_nodes(path) == {"Basel": PEMS[0], "Bern": PEMS[1]}


OTHER = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()
REFUSED = {
    "names no site": "[]",
    "cannot be read": "Basel: [",
    "the key of 'Basel' cannot be read": "Basel: ssh-rsa nothing",
    "have the same public key": f"Basel: {LINES[0]}\nBern: {LINES[0]}",
    "not on an elliptic curve": "Basel: "
    + OTHER.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode(),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_file_without_clear_keys_is_refused(reason: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=reason):
        read_nodes(written(tmp_path, REFUSED[reason]))


@dataclass
class Info:
    node_id: int
    public_key: bytes


@dataclass
class Grid:
    """Answers as Flower's grid does: node 9 has a key that the server does not know."""

    nodes: list[Info]
    silent: set[int] = field(default_factory=set)
    impostor: int | None = None
    asked: list[int] = field(default_factory=list)
    waiting: dict[str, Any] = field(default_factory=dict)

    def get_nodes(self) -> list[Info]:
        return self.nodes

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        for message in messages:
            node = message.metadata.dst_node_id
            self.asked.append(node)
            self.waiting[f"message to {node}"] = message
        return [f"message to {node}" for node in self.asked]

    def pull_messages(self, identities: Iterable[str]) -> list[Any]:
        from flwr.app import ConfigRecord, Message, RecordDict

        found = []
        for identity in identities:
            message = self.waiting[identity]
            node = message.metadata.dst_node_id
            if node in self.silent:
                continue
            message.metadata.__dict__["_message_id"] = identity
            content = RecordDict({"raydr": ConfigRecord({"message": f"from {node}".encode()})})
            reply = Message(content, reply_to=message)
            reply.metadata.__dict__["_src_node_id"] = self.impostor or node
            found.append(reply)
        return found


def courier_of(grid: Grid) -> Any:
    pytest.importorskip("flwr", reason="runs over Flower need the extra flower")
    from flwr.supercore.task_identity import TaskIdentity

    from raydr.runtimes.flower.grid import GridCourier

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    return GridCourier(grid, {"Basel": PEMS[0], "Bern": PEMS[1]}, poll_s=0.01)  # type: ignore[arg-type]


def test_only_bound_nodes_are_asked() -> None:
    grid = Grid([Info(9, PEMS[2]), Info(1, PEMS[1]), Info(0, PEMS[0])])
    courier = courier_of(grid)
    assert courier.exchange({"Basel": b"a", "Bern": b"b"}, 5.0) == {"Basel": b"from 0", "Bern": b"from 1"}
    assert sorted(grid.asked) == [0, 1]


def test_node_with_an_unknown_key_is_named_by_its_fingerprint(caplog: pytest.LogCaptureFixture) -> None:
    grid = Grid([Info(9, PEMS[2]), Info(0, PEMS[0])])
    found = courier_of(grid).exchange({"Basel": b"a", "Bern": b"b"}, 0.2)
    assert grid.asked == [0]
    assert found["Basel"] == b"from 0"
    assert isinstance(found["Bern"], Failed)
    assert FINGERPRINT in found["Bern"].reason
    assert sum(FINGERPRINT in record.getMessage() for record in caplog.records) == 1


def test_silent_link_ends_the_run_in_time() -> None:
    """Flower itself repeats a request to a silent SuperLink for ever."""
    silence = threading.Event()

    class Silent(Grid):
        def get_nodes(self) -> list[Info]:
            silence.wait(60.0)
            return []

    courier = replace(courier_of(Silent([])), grace_s=0.2)
    begun = time.monotonic()
    with pytest.raises(RunError, match="has not answered for 0"):
        courier.exchange({"Basel": b"a"}, 0.1)
    assert time.monotonic() - begun < 10.0
    silence.set()


def test_link_that_ends_the_run_is_named() -> None:
    class Ended(Grid):
        def get_nodes(self) -> list[Info]:
            raise ConnectionError("no such run")

    with pytest.raises(RunError, match="ConnectionError: no such run"):
        courier_of(Ended([])).exchange({"Basel": b"a"}, 0.1)


def test_absent_node_and_silent_node_fail_in_time() -> None:
    courier = courier_of(Grid([Info(0, PEMS[0]), Info(9, PEMS[2])], silent={0}))
    found = courier.exchange({"Basel": b"a", "Bern": b"b"}, 0.2)
    assert {site: failed.kind for site, failed in found.items()} == {
        "Basel": Kind.TIMED_OUT,
        "Bern": Kind.NODE_LOST,
    }


def test_answer_of_another_node_is_refused() -> None:
    found = courier_of(Grid([Info(0, PEMS[0])], impostor=9)).exchange({"Basel": b"a"}, 5.0)
    assert found["Basel"] == Failed(Kind.REFUSED, "another node answered")
