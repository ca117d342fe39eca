"""A dry run says what would leave a site, and nothing else does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hospitals import Hospitals, described, hospitals

from raydr.deployment.site_host import Finished
from raydr.deployment.site_settings import read_site
from raydr.errors import DataError, ScenarioError
from raydr.federation.agreement import SignedKey
from raydr.federation.codec import encode
from raydr.front.cli import status
from raydr.front.own_data import held
from raydr.scenarios.planning.dry_run import COUNTED, dry_run
from raydr.scenarios.planning.plan import plan_of_scenario
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import dump, read


@pytest.fixture
def alike(tmp_path: Path) -> Hospitals:
    """Hospitals with the same number of rows, as a dry run assumes."""
    return hospitals(tmp_path / "sites", rows=(24, 24, 24, 24))


def test_a_dry_run_has_the_messages_and_bytes_that_the_site_sends_in_the_run(
    alike: Hospitals, tmp_path: Path
) -> None:
    scenario = read(described(deployed=True, at=alike))
    planned = dry_run(read_site(alike.settings[1]), scenario)
    ended: list[Finished] = []
    run(scenario, out=tmp_path / "run", report=False, port=alike.port(ended))
    (east,) = [each for each in ended if each.site.name == "east"]
    sent = {
        entry.kind: (entry.count, entry.bytes)
        for entry in east.ledger.content.entries.values()
        if entry.direction == "up"
    }
    del sent["Agreed"]  # the start and the end
    data_decide = {"Below", "WordVotes"}
    assert planned.allowed
    assert planned.epsilon is None
    assert {message.kind for message in planned.messages} == sent.keys()
    for message in planned.messages:
        if message.kind not in data_decide:
            assert (message.count, message.bytes) == sent[message.kind], message.kind


def test_a_dry_run_of_secure_sums_has_the_signed_keys_and_says_if_the_site_cannot_sign(
    alike: Hospitals, tmp_path: Path
) -> None:
    keys = {"data": {"missing": "drop", "scale": "none"}, "privacy": {"secure_aggregation": True}}
    scenario = read(described(deployed=True, at=alike, **keys))
    planned = dry_run(read_site(alike.settings[1]), scenario)
    sent = {message.kind: (message.count, message.bytes) for message in planned.messages}
    key = SignedKey(np.zeros(32, np.uint8), np.zeros(132, np.uint8))
    assert sent["SignedKey"] == (1, len(encode(key)))
    assert not [note for note in planned.notes if "public keys" in note]
    alike.change("east", nodes=None)
    notes = dry_run(read_site(alike.settings[1]), scenario).notes
    assert "name its `key` and `nodes` in site.yaml" in notes[-1]
    alike.change("east", nodes="absent.yaml")
    assert "absent.yaml cannot be read" in dry_run(read_site(alike.settings[1]), scenario).notes[-1]
    plain = read(described(deployed=True, at=alike))
    assert not [note for note in dry_run(read_site(alike.settings[1]), plain).notes if "public keys" in note]


def test_a_dry_run_names_the_message_and_the_rule_that_does_not_allow_it(alike: Hospitals) -> None:
    alike.change("east", policy="datashield")
    planned = dry_run(read_site(alike.settings[1]), read(described(deployed=True, at=alike)))
    decisions = {message.kind: message.decision for message in planned.messages}
    assert not planned.allowed
    assert {kind for kind, decision in decisions.items() if decision == "no"} == {"Distances"}
    assert decisions["Below"] == COUNTED
    (refused,) = [message for message in planned.messages if message.decision == "no"]
    assert refused.why.startswith("per_record: never")


def test_a_dry_run_ends_where_the_policy_ends_the_survey(alike: Hospitals) -> None:
    alike.change("east", policy="aggregate-only")
    planned = dry_run(read_site(alike.settings[1]), read(described(deployed=True, at=alike)))
    assert not planned.allowed
    assert [message.kind for message in planned.messages] == ["ColumnNames"]
    assert "ColumnSurvey" in planned.notes[0]


def test_a_private_run_has_an_epsilon_at_the_site(alike: Hospitals) -> None:
    alike.change("east", policy="private")
    method = {"kind": "private-map", "epsilon": 4.0, "clip": 80.0, "per": "client"}
    data = {"categories": "error", "missing": "error", "scale": "none", "features": ["age", "bmi"]}
    numbers = hospitals(alike.folder / "numbers", rows=(24, 24, 24, 24), text=False)
    numbers.change("east", policy="private")
    scenario = read(described(deployed=True, at=numbers, method=method, data=data, privacy={"strict": True}))
    planned = dry_run(read_site(numbers.settings[1]), scenario)
    assert planned.allowed
    assert planned.epsilon == pytest.approx(4.0, rel=1e-3)
    assert "Places" not in {message.kind for message in planned.messages}


def test_the_command_prints_the_answer_and_contacts_no_one(
    alike: Hospitals, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(dump(read(described(deployed=True, at=alike))))
    out = tmp_path / "messages.json"
    arguments = ["site", "dry-run", str(alike.settings[0]), "--scenario", str(scenario)]
    assert status([*arguments, "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "Nothing has left the site." in printed
    assert json.loads(out.read_text())["rows"] == 24
    alike.change("north", policy="datashield")
    assert status(arguments) == 3
    assert "Refused by per_record: never" in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_an_error_for_its_owner(alike: Hospitals) -> None:
    scenario = read(described(deployed=True, at=alike, data={"missing": "error"}))
    with pytest.raises(DataError, match="missing values in the columns"):
        dry_run(read_site(alike.settings[0]), scenario)


def test_a_scenario_of_other_sites_is_refused(alike: Hospitals) -> None:
    alike.change("north", name="nort")
    with pytest.raises(ScenarioError, match=r"no site 'nort' \(did you mean north\?\)"):
        dry_run(read_site(alike.settings[0]), read(described(deployed=True, at=alike)))
    with pytest.raises(ScenarioError, match=r"Name them in clients\.deployed"):
        dry_run(read_site(alike.settings[1]), read(described(deployed=False, at=alike)))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("name: north\n", "path is missing.*policy is missing"),
        (
            "name: north\npath: a.csv\npolicy: open\nfolde: b\n",
            r"unknown key 'folde' \(did you mean folder\?\)",
        ),
        ("- north\n", "has no keys"),
        ("a: [", "is not valid YAML"),
    ],
)
def test_wrong_settings_of_a_site_are_named(content: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    file.write_text(content)
    with pytest.raises(ScenarioError, match=expected):
        read_site(file)


def test_a_plan_of_a_deployed_run_sends_the_reader_to_the_sites(alike: Hospitals) -> None:
    planned = plan_of_scenario(read(described(deployed=True, at=alike)))
    assert (planned.clients, planned.rows, planned.messages) == (4, 0, ())
    assert "raydr site dry-run" in planned.notes[0]


def test_a_check_of_a_deployed_run_sends_the_reader_to_the_sites(alike: Hospitals) -> None:
    with pytest.raises(DataError, match="raydr site dry-run"):
        held(read(described(deployed=True, at=alike)))
