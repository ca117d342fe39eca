"""Mechanisms and adversaries: one value from scenario to ledger, applied at the host's boundary."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from inline_federations import KNOWN, federate
from requests_for_tests import LengthRequest, Lengths, Shift, lengths
from tiny import tiny_scenario

from raydr.arrays import Float64Array
from raydr.errors import OutputError, ScenarioError
from raydr.federation import (
    Client,
    ClientError,
    ClientHost,
    Federation,
    Granularity,
    HostedClient,
    Range,
    Reply,
    Request,
    answers,
    answers_jointly,
    fingerprint,
)
from raydr.federation.checkpoint import Checkpoint
from raydr.federation.codec import encode, encoded_bytes
from raydr.federation.noise_streams import noise_name
from raydr.federation.wire import Call
from raydr.privacy import Coverage, Mechanism, Quantity
from raydr.privacy.gaussian import GaussianNoise
from raydr.privacy.mechanism import Claim, moved_mean, silent
from raydr.runfolder.reading import read_run
from raydr.scenarios.runner import run


@answers_jointly(LengthRequest)
def lengths_together(clients: Sequence[Client], requests: Sequence[LengthRequest]) -> list[Lengths]:
    return [lengths(client, request) for client, request in zip(clients, requests, strict=True)]


@dataclass(frozen=True)
class Plain(Reply, granularity=Granularity.PER_CLIENT, what="a number"):
    number: float

    @staticmethod
    def ranges(request: PlainRequest, rows: int) -> dict[str, Range]:
        return {"number": Range(())}


@dataclass(frozen=True)
class PlainRequest(Request[Plain], what="a question without content"):
    mechanism: Mechanism | None = None


@answers(PlainRequest)
def plain(client: Client, request: PlainRequest) -> Plain:
    return Plain(float(client.rows.sum()))


def parts() -> list[Float64Array]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(count, 4)) for count in (5, 3)]


def noise(on: Literal["data", "distances"]) -> GaussianNoise:
    return GaussianNoise(on=on, level=0.5)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("on", ["data", "distances"])
def test_host_applies_the_mechanism_of_the_request(on: Any, together: bool) -> None:
    federation = federate(parts())
    for reply, rows, client in zip(
        federation.ask(LengthRequest(noise(on), together=together)), parts(), range(2), strict=True
    ):
        secret = KNOWN.derived("client", client)
        clean = {
            "data": ("records", {"rows": Quantity(rows, 3.0)}),
            "distances": ("Lengths", {"lengths": Quantity(np.linalg.norm(rows, axis=1), 2.0)}),
        }
        kind, quantities = clean[on]
        stream = secret.stream(*noise_name(noise(on), quantities, kind=kind))
        if on == "data":
            expected = np.linalg.norm(rows + 0.5 * 3.0 * stream.standard_normal(rows.shape), axis=1)
        else:
            expected = np.linalg.norm(rows, axis=1) + 0.5 * 2.0 * stream.standard_normal(len(rows))
        np.testing.assert_array_equal(reply.lengths, expected)
    (entry,) = [entry for entry in federation.ledger.entries.values() if entry.kind == "Lengths"]
    assert (entry.protection, entry.count) == (noise(on), 2)
    written = entry.as_dict()["protection"]
    assert {key: value for key, value in written.items() if value is not None} == {
        "on": on,
        "level": 0.5,
        "per": "client",
        "relation": "replace-one" if on == "data" else "zero-out",
        "unit": "record",
        "decay": "none",
        "stage": "learning",
        "kind": "gaussian-noise",
    }


def test_memory_of_noisy_rows_is_separate() -> None:
    federation = federate(parts())
    reported = [None, noise("data"), None, noise("data")]
    calls = [federation.ask(LengthRequest(mechanism))[0].remembered for mechanism in reported]
    assert calls == [1, 1, 2, 1]


def test_noise_on_records_is_drawn_once_per_run() -> None:
    """P1 5.1: noise drawn again in each round would average out."""
    federation = federate(parts())
    seen = [federation.ask(LengthRequest(noise("data")))[0].lengths for _ in federation.rounds(3)]
    np.testing.assert_array_equal(seen[0], seen[1])
    np.testing.assert_array_equal(seen[0], seen[2])
    again = federate(parts()).ask(LengthRequest(noise("data"), together=True))[0].lengths
    np.testing.assert_array_equal(seen[0], again)


@pytest.mark.parametrize("strength", [{"multiplier": 2.0, "clip": 1.0}, {"level": 0.5}])
def test_noise_on_changed_rows_is_redrawn_only_without_a_claim(strength: Any) -> None:
    rows = parts()[0]
    host = ClientHost(hosted=[HostedClient(0, rows, fingerprint(rows))], seed=0)
    request = LengthRequest(GaussianNoise(on="data", **strength))

    def asked(question: Any, number: int) -> Any:
        (answer,) = host.ask(
            Call(request=question, number=number, round=0, attempt=0, clients=(0,), in_rounds=False)
        )
        return answer

    first, again = (asked(request, number).reply.lengths for number in (1, 2))
    np.testing.assert_array_equal(first, again)
    asked(Shift(1.0), 3)
    later = asked(request, 4)
    if "level" in strength:
        assert (later.reply.lengths != first).all()
    else:
        assert "would be drawn twice, but is charged once" in later.reason


@pytest.mark.parametrize("on", ["data", "distances"])
def test_mechanism_without_a_field_to_change_is_refused(on: Any) -> None:
    with pytest.raises(ClientError, match=r"reply refused|has no distances that a mechanism could change"):
        federate(parts()).ask(PlainRequest(noise(on)))


def test_mechanism_in_a_request_counts_its_bytes() -> None:
    asked = LengthRequest(noise("distances"))
    assert encoded_bytes(asked) == len(encode(asked))
    assert encoded_bytes(asked) > encoded_bytes(LengthRequest()) + len("gaussian-noise")


def test_checkpoint_restores_mechanisms() -> None:
    def asked() -> Federation:
        federation = federate(parts())
        federation.ask(LengthRequest(noise("distances")))
        return federation

    entries = tuple(asked().ledger.entries.values())
    restored = Checkpoint.from_bytes(
        Checkpoint(run="", seed=0, loops=(), ledger=entries).to_bytes()
    ).restored_ledger()
    assert restored.entries == asked().ledger.entries


def test_clients_that_apply_noise_are_seeded_in_exact_number() -> None:
    some = Coverage(noise("data"), 0.3)
    drawn = [some.of_each(10, np.random.default_rng(seed)) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    several = [some.of_each(10, np.random.default_rng(seed)) for seed in range(20)]
    assert {sum(found is not None for found in each) for each in several} == {3}
    with pytest.raises(
        ScenarioError, match=r"privacy\.noise\.clients is 0\.3, which selects none of the 1 clients"
    ):
        some.count(1)


def test_scenario_mechanism_omits_the_chosen_clients() -> None:
    content = {"on": "data", "level": 0.3, "clients": 0.7}
    scenario = tiny_scenario(method={"kind": "sense"}, privacy__noise=content)
    assert scenario.coverage == Coverage(GaussianNoise(on="data", level=0.3), 0.7)


def test_noise_of_no_client_is_refused_and_few_are_rounded() -> None:
    assert [Coverage(noise("data"), part).count(3) for part in (0.2, 0.5, 1.0)] == [1, 2, 3]
    with pytest.raises(
        ScenarioError, match=r"which selects none of the 4 clients.* Set it to at least 0\.25"
    ):
        Coverage(noise("data"), 0.1).count(4)


class Still(Mechanism):
    """A mechanism with only the required members."""

    kind: Literal["still"] = "still"
    on: str = "lengths"

    @property
    def words(self) -> str:
        return "nothing"

    @property
    def deviation(self) -> float:
        return 0.5

    def cover(self, quantity: Quantity, stream: np.random.Generator) -> Float64Array:
        return quantity.values + 1.0


def test_mechanism_claims_nothing_by_default() -> None:
    still = Still()
    assert (still.record_sensitivity, still.reach(1.0, 1.0)) == (math.inf, math.inf)
    assert (still.claim(1.0), still.cut, still.for_good, still.shared) == (None, None, False, False)
    assert (still.protects, still.relation, still.by_level) == ("record", "zero-out", True)
    assert still.limited(np.ones((1, 2), np.float32)).dtype == np.float64
    assert still.parted(0.5, 1.0) == still.in_round(3) == still.calibrated(3, 1e-5) == still


def test_silent_mechanism_adds_no_noise() -> None:
    values = np.arange(3.0)
    quiet = silent(Still())
    assert isinstance(quiet, Still)
    assert dict(quiet) == dict(Still())
    assert quiet.cover(Quantity(values), np.random.default_rng(0)) is values


def test_all_clients_apply_a_mechanism_by_default() -> None:
    whole = Quantity(np.zeros(2))
    assert (whole.unit, whole.sensitivity, whole.share, whole.resolution) == (1.0, math.inf, 1.0, 0.0)
    assert Coverage(noise("data")).clients == 1.0


def test_claim_with_zero_sensitivity_is_infinitely_strong() -> None:
    assert Claim(3.0, 2.0).multiplier == 1.5
    assert Claim(3.0, 0.0).multiplier == math.inf


def test_mean_sensitivity_is_per_row_or_per_client() -> None:
    """The sensitivity is at least twice the rounding of a mean, 2^-53 of its length."""
    by_client = GaussianNoise(on="update", multiplier=1.0, clip=1.0, unit="client")
    for mechanism, moved in ((None, 0.25), (noise("data"), 0.25), (by_client, 1.0)):
        assert moved_mean(mechanism, 3.0, 4) / 3.0 - moved == pytest.approx(2.0**-50, rel=0.01, abs=0.0)


@pytest.mark.parametrize(("delta", "accepted"), [(0.0999, True), (0.1, False), (0.0, False)])
def test_a_delta_is_below_a_tenth(delta: float, accepted: bool) -> None:
    if accepted:
        assert GaussianNoise(on="gradient", epsilon=1.0, delta=delta).delta == delta
    else:
        with pytest.raises(ValueError, match=r"expected less than 0\.1|greater than 0"):
            GaussianNoise(on="gradient", epsilon=1.0, delta=delta)


@pytest.fixture(scope="module")
def noisy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    method = {"kind": "sense", "embedder": {"kind": "tsne", "early_iterations": 5, "iterations": 5}}
    scenario = tiny_scenario(method=method, privacy__noise={"on": "data", "level": 0.3})
    return run(scenario, out=tmp_path_factory.mktemp("runs") / "noisy")


@pytest.mark.usefixtures("edits_accepted")
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"kind": "rot13"},
            "unknown protection kind 'rot13': this version of raydr knows only gaussian-noise",
        ),
        ({"level": -1.0}, "greater than 0"),
    ],
)
def test_report_refuses_unknown_protection_kinds(
    tmp_path: Path, noisy_run: Path, changed: dict[str, Any], words: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(noisy_run, folder)
    path = folder / "ledger.json"
    ledger = json.loads(path.read_text())
    for entry in ledger:
        entry["protection"] = entry["protection"] and entry["protection"] | changed
    path.write_text(json.dumps(ledger))
    with pytest.raises(OutputError, match=words):
        read_run(folder)
