"""Messages around a deployed run travel as bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hospitals import described, hospitals

from raydr.deployment.inline import InlineSites
from raydr.federation.codec import decode, encode
from raydr.federation.noise_streams import digest
from raydr.federation.wire import Answer, Answered, Call
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
