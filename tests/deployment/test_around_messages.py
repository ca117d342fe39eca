"""Messages around a deployed run travel as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hospitals import NAMES, described, hospitals

from raydr.data import SiteFile
from raydr.deployment.inline import InlineSites
from raydr.deployment.messages import Agreement, Size, SizeRequest, StartRequest
from raydr.deployment.own_data import OwnData
from raydr.deployment.site_host import Finished, SiteHost
from raydr.federation import Request
from raydr.federation.codec import decode, encode
from raydr.federation.noise_streams import digest
from raydr.federation.wire import Answer, Answered, Call, PartialSum, SumCall
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read


class Encoded(InlineSites):
    """Sites that are reached by bytes alone."""

    def ask(self, call: Call) -> list[Answer]:
        arrived = decode(encode(call))
        assert digest(arrived.request) == digest(call.request)
        kinds.add(type(call.request).__name__)
        answers: list[Answer] = []
        for answer in super().ask(arrived):
            assert isinstance(answer, Answered)
            answers.append(decode(encode(answer)))
            assert digest(answers[-1].reply) == digest(answer.reply)  # type: ignore[union-attr]
        return answers


kinds: set[str] = set()


@pytest.mark.parametrize("codebook", [False, True])
def test_a_run_whose_messages_around_it_are_bytes_has_the_same_map(codebook: bool, tmp_path: Path) -> None:
    at = hospitals(tmp_path / "sites")
    data = {"target_weight": 0.3}
    if codebook:
        data["codebook"] = [
            {"column": "age", "kind": "number", "low": 0.0, "high": 120.0},
            {"column": "smokes", "kind": "words"},
        ]
    kinds.clear()
    scenario = read(described(deployed=True, at=at, data=data))
    folders = [
        run(scenario, out=tmp_path / name, report=False, port=port)
        for name, port in (("bytes", Encoded(at.hosts())), ("inline", at.port()))
    ]
    assert len({(folder / "embedding.parquet").read_bytes() for folder in folders}) == 1
    assert np.load(folders[0] / "model" / "arrays.npz")
    assert kinds == {
        "ReadRequest",
        "SurveyRequest",
        "VoteRequest",
        "SizeRequest",
        "LabelRequest",
        "StartRequest",
        "FinishRequest",
    }


class Forgetful(InlineSites):
    """Sites whose every message is answered by a new host, from what the last one wrote down as bytes."""

    def __init__(self, hosts: list[SiteHost]) -> None:
        super().__init__(hosts)
        self.hosts = [ForgetfulHost(host) for host in hosts]  # type: ignore[misc]


class ForgetfulHost:
    def __init__(self, host: SiteHost) -> None:
        self.host, self.history, self.notes = host, list[Call](), b""

    @property
    def clients(self) -> tuple[int, ...]:
        return self.host.clients

    def restore(self, history: Sequence[Call]) -> None:
        self.history = list(history)

    def ask(self, call: Call) -> list[Answer]:
        answers = self._fresh().ask(call)
        self._written(call)
        return answers

    def sum(self, call: SumCall) -> PartialSum:
        part = self._fresh().sum(call)
        self._written(call)
        return part

    def _fresh(self) -> SiteHost:
        before = self.host.before
        self.host = SiteHost(site=self.host.site, index=self.host.index, at_end=self.host.at_end)
        self.host.repeat(before)
        self.host.restore(self.history)
        if self.notes:
            self.host.read_again(decode(self.notes))
        return self.host

    def _written(self, call: Call) -> None:
        self.notes = encode(self.host.written_down())
        if type(call.request).sets_state and not isinstance(call.request, StartRequest):
            self.history.append(call)


@pytest.mark.parametrize(
    "keys",
    [
        {"privacy": {"secure_aggregation": True}},
        {"method": {"kind": "private-map", "epsilon": 4.0, "clip": 8.0, "iterations": 5}},
        {"data": {"harmonize": "combat"}},
    ],
    ids=["secure", "private-map", "harmonized"],
)
def test_a_site_that_answers_each_message_in_a_new_process_has_the_same_map_and_ledger(
    keys: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = hospitals(tmp_path / "sites")
    monkeypatch.setattr(OwnData, "secret", lambda self, start: self.site.secret)
    scenario = read(described(deployed=True, at=at, **keys))
    found = []
    for kind in (InlineSites, Forgetful):
        ended: list[Finished] = []
        run(scenario, out=tmp_path / kind.__name__, report=False, port=kind(at.hosts(ended)))
        ledgers = [
            [entry for entry in each.ledger.content.as_list() if entry["kind"] != "StartRequest"]
            for each in ended
        ]
        found.append((np.concatenate([each.places for each in ended]).tobytes(), ledgers))
    assert found[0] == found[1]


def test_a_site_remembers_what_it_answered_once_when_a_run_starts_again(tmp_path: Path) -> None:
    at = hospitals(tmp_path / "sites")
    first = at.hosts()[0]
    start = started(first)
    first.ask(start)
    noted = first.written_down()
    once = noted["once"]["a run"]
    again = at.hosts()[0]
    again.read_again(decode(encode(noted)))
    assert again.written_down()["once"] == {"a run": once}  # before the start
    again.ask(start)
    assert again.written_down()["once"] == {"a run": once}


def started(host: SiteHost) -> Call:
    """The call that starts a run of a site."""
    file = SiteFile(path="", features=("age", "pulse"), missing="drop")
    size = host.own.answer(call_of(SizeRequest(file)))
    assert isinstance(size, Size)
    agreement = Agreement("a scenario", NAMES)
    return call_of(
        StartRequest(file=file, agreement=agreement, run="a run", seed=0, marks=(size.mark, "", "", ""))
    )


def call_of(request: Request[Any]) -> Call:
    return Call(request=request, number=1, round=0, attempt=0, clients=(0,), in_rounds=False)
