"""A site of a deployed run takes no public key from the server that the node of its owner has not signed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from hospitals import NAMES, Hospitals, described, fresh_key, hospitals

from raydr.deployment.inline import InlineSites
from raydr.deployment.site_host import SiteHost
from raydr.deployment.site_settings import read_site
from raydr.federation import ClientError
from raydr.federation.agreement import (
    AdvertiseRequest,
    HandOutRequest,
    OpenRequest,
    SignedKey,
    TrustRequest,
)
from raydr.federation.codec import encode
from raydr.federation.failures import Failure, Kind
from raydr.federation.masks import Masks
from raydr.federation.peers import Peers, UntrustedKeyError
from raydr.federation.secure import ShareRequest
from raydr.federation.wire import Answer, Answered, Call, PartialSum, SumCall
from raydr.methods.serving import serve
from raydr.privacy import masking, node_keys
from raydr.runfolder.reading import read_ledger
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read

SECURE = {"privacy": {"secure_aggregation": True}}
FIDELITY = {"fidelity_rows": 20}
FORGED = masking.advertise(bytes(range(32)), "a run", 0)
"""A public key of the server."""

Relay = Callable[[Any], Any]


@dataclass(kw_only=True)
class Relayed(SiteHost):
    """A site behind a server that changes requests on their way, and counts the answers of the site after that."""

    relay: Relay
    changed: int = 0
    answered_afterwards: int = 0

    def _tampered(self, call: Call) -> Call:
        if isinstance(call, SumCall):
            found: Any = self.relay(call.masks)
            self.changed += found is not call.masks
            return replace(call, masks=found)
        request = call.request_for(self.index)
        found = self.relay(request)
        self.changed += found is not request
        return call if found is request else replace(call, request=found, parts={self.index: found})

    def ask(self, call: Call) -> list[Answer]:
        answers = super().ask(self._tampered(call))
        self.answered_afterwards += bool(self.changed) and isinstance(answers[0], Answered)
        return answers

    def sum(self, call: SumCall) -> PartialSum:
        part = super().sum(self._tampered(call))
        self.answered_afterwards += bool(self.changed and part.clients)
        return part


@pytest.fixture
def at(tmp_path: Path) -> Hospitals:
    return hospitals(tmp_path / "sites", text=False)


def deployed(at: Hospitals, out: Path, relay: Relay, number: int = 1, **keys: Any) -> Relayed:
    """Run with a server that relays to one site what `relay` returns, and return that site."""
    hosts = [SiteHost(site=read_site(path), index=index) for index, path in enumerate(at.settings)]
    hosts[number] = victim = Relayed(site=read_site(at.settings[number]), index=number, relay=relay)
    content = described(deployed=True, at=at, data={"missing": "drop", "scale": "none"}, **keys)
    with suppress(ClientError):
        run(read(content), out=out, report=False, port=InlineSites(hosts))
    return victim


def assert_detected(victim: Relayed, out: Path) -> None:
    assert victim.changed
    assert "that the node of" in victim.written_down()["distrust"]
    assert not victim.answered_afterwards
    assert not out.exists()


def with_rows(kind: type, **rows: Any) -> Relay:
    """A relay that replaces rows of arrays in the fields of one kind of request."""

    def relay(request: Any) -> Any:
        if type(request) is not kind:
            return request
        fields = {}
        for name, changed in rows.items():
            fields[name] = np.array(getattr(request, name))
            changed(fields[name])
        return replace(request, **fields)

    return relay


def one(keys: np.ndarray) -> None:
    keys[0] = FORGED


def each(keys: np.ndarray) -> None:
    for place in range(len(keys)):
        keys[place] = masking.advertise(bytes(32), "a run", place)


def two_exchanged(rows: np.ndarray) -> None:
    rows[[2, 3]] = rows[[3, 2]]


def own_signatures(signatures: np.ndarray) -> None:
    """The server signs with a key of its own."""
    key = ec.generate_private_key(ec.SECP384R1())
    signed = node_keys.sign(key, "public key for secure sums, version 1", b"")
    signatures[:] = np.frombuffer(signed, np.uint8)


def none_signed(signatures: np.ndarray) -> None:
    signatures[:] = 0


def test_honest_relaying_is_accepted(at: Hospitals, tmp_path: Path) -> None:
    victim = deployed(at, tmp_path / "run", lambda request: request, **SECURE)
    assert not victim.written_down()["distrust"]
    ledger = {entry.kind: entry for entry in read_ledger(tmp_path / "run")}
    keys, signatures = (np.zeros((4, length), np.uint8) for length in (32, 132))
    assert ledger["SignedKey"].bytes == 4 * len(encode(SignedKey(keys[0], signatures[0])))
    assert ledger["TrustRequest"].bytes == 4 * len(encode(TrustRequest(keys, signatures)))


@pytest.mark.parametrize(
    "relay",
    [
        with_rows(TrustRequest, keys=one),
        with_rows(TrustRequest, keys=each),
        with_rows(TrustRequest, keys=each, signatures=own_signatures),
        with_rows(TrustRequest, signatures=none_signed),
        with_rows(TrustRequest, keys=two_exchanged, signatures=two_exchanged),
        with_rows(ShareRequest, keys=one),
        with_rows(ShareRequest, keys=each),
        with_rows(Masks, keys=one),
    ],
    ids=["one", "all", "all, signed", "unsigned", "two exchanged", "one later", "all later", "with a sum"],
)
def test_a_swapped_key_of_secure_sums_is_detected_before_anything_else_leaves(
    relay: Relay, at: Hospitals, tmp_path: Path
) -> None:
    assert_detected(deployed(at, tmp_path / "run", relay, **SECURE), tmp_path / "run")


def key_of_the_sealer(request: Any) -> Any:
    return replace(request, key=FORGED) if isinstance(request, OpenRequest) else request


@pytest.mark.parametrize(
    ("number", "relay"),
    [(0, with_rows(HandOutRequest, keys=one)), (1, key_of_the_sealer)],
    ids=["to the founder", "to another site"],
)
def test_a_swapped_key_of_the_secret_of_all_sites_is_detected(
    number: int, relay: Relay, at: Hospitals, tmp_path: Path
) -> None:
    assert_detected(deployed(at, tmp_path / "run", relay, number, **FIDELITY), tmp_path / "run")


def test_a_signed_key_of_an_earlier_run_is_detected(at: Hospitals, tmp_path: Path) -> None:
    earlier: list[TrustRequest] = []

    def keep(request: Any) -> Any:
        if isinstance(request, TrustRequest):
            earlier.append(request)
        return request

    deployed(at, tmp_path / "earlier", keep, **SECURE)

    def replayed(rows: str) -> Relay:
        def relay(rows_now: np.ndarray) -> None:
            rows_now[0] = getattr(earlier[0], rows)[0]

        return relay

    relay = with_rows(TrustRequest, keys=replayed("keys"), signatures=replayed("signatures"))
    assert_detected(deployed(at, tmp_path / "later", relay, seed=1, **SECURE), tmp_path / "later")


def test_a_server_that_leaves_out_the_signatures_gets_nothing(
    at: Hospitals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsigned(transport: Any, clients: int, plan: Any, **more: Any) -> Any:
        return serve(transport, clients, replace(plan, signed_keys=False), **more)

    monkeypatch.setattr("raydr.scenarios.running.deployed.serve", unsigned)
    asked: list[Any] = []

    def hear(request: Any) -> Any:
        asked.append(request)
        return request

    victim = deployed(at, tmp_path / "run", hear, **SECURE)
    assert victim.written_down()["distrust"]
    assert not (tmp_path / "run").exists()
    assert AdvertiseRequest in map(type, asked)
    assert not any(isinstance(request, Masks) for request in asked)


def test_a_site_that_found_a_swapped_key_refuses_the_run_in_later_processes_too(
    at: Hospitals, tmp_path: Path
) -> None:
    victim = deployed(at, tmp_path / "run", with_rows(TrustRequest, keys=one), **SECURE)
    (start,) = victim.before
    later = SiteHost(site=victim.site, index=victim.index)
    later.repeat([start])
    later.read_again(victim.written_down())
    request = Call(request=AdvertiseRequest(), number=99, round=0, attempt=0, clients=(1,), in_rounds=False)
    (answer,) = later.ask(request)
    assert isinstance(answer, Failure)
    assert answer.kind is Kind.UNTRUSTED_KEY
    later.ask(replace(start, number=100))  # the next start of the run is a new question
    assert isinstance(later.ask(request)[0], Answered)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"key": None}, "name its `key` and `nodes` in site.yaml"),
        ({"nodes": None}, "name its `key` and `nodes` in site.yaml"),
        ({"key": "other.key"}, "is not its key in `nodes`"),
        ({"nodes": "fewer.yaml"}, "the server's sites are north, east, south, west, but the `nodes`"),
        ({"nodes": "others.yaml"}, "that the node of 'north' has not signed"),
    ],
)
def test_a_site_that_cannot_check_keys_takes_no_part_in_a_run_that_needs_them(
    change: dict[str, Any], expected: str, at: Hospitals, tmp_path: Path
) -> None:
    known = yaml.safe_load((at.folder / "nodes.yaml").read_text())
    place = at.folder / "east"
    fresh_key(place / "other.key")
    (place / "fewer.yaml").write_text(yaml.safe_dump({name: known[name] for name in NAMES[:3]}))
    other = {"north": fresh_key(tmp_path / "another.key")}
    (place / "others.yaml").write_text(yaml.safe_dump(known | other))
    at.change("east", **change)
    content = described(deployed=True, at=at, data={"missing": "drop", "scale": "none"}, **SECURE)
    with pytest.raises(ClientError, match=expected):
        run(read(content), out=tmp_path / "run", report=False, port=at.port())


def test_a_run_without_public_keys_needs_no_keys_of_nodes(at: Hospitals, tmp_path: Path) -> None:
    for name in NAMES:
        at.change(name, key=None, nodes=None)
    content = described(deployed=True, at=at, data={"missing": "drop", "scale": "none"})
    run(read(content), out=tmp_path / "run", report=False, port=at.port())


def test_a_signature_holds_for_one_start_one_site_and_one_key() -> None:
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in NAMES[:2]}
    nodes = {name: node_keys.public_pem(key) for name, key in keys.items()}
    one, two = (Peers(NAMES[:2], start, keys["north"], nodes) for start in ("a start", "another"))
    signature = one.signature(0, FORGED)
    assert signature.tobytes() == one.signature(0, FORGED).tobytes()
    one.require_signed(0, FORGED, signature)
    other = FORGED.copy()
    other[5] ^= 1
    for peers, client, key in ((two, 0, FORGED), (one, 1, FORGED), (one, 0, other)):
        with pytest.raises(UntrustedKeyError, match="has not signed for this run"):
            peers.require_signed(client, key, signature)
    for place in (0, 65, 66, 131):
        wrong = signature.copy()
        wrong[place] ^= 1
        with pytest.raises(UntrustedKeyError):
            one.require_signed(0, FORGED, wrong)
