"""A deployed run, whose sites read their own files, has the map of the same run simulated, and learns less."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hospitals import NAMES, Hospitals, described, hospitals

from raydr.data import SiteFile
from raydr.deployment.inline import InlineSites
from raydr.deployment.messages import Agreement, StartRequest
from raydr.deployment.own_data import OwnData
from raydr.deployment.site_host import Finished
from raydr.deployment.site_settings import read_site
from raydr.errors import DataError, RunError, ScenarioError
from raydr.federation import ClientError, Transport
from raydr.federation.client import HostSecrets
from raydr.federation.gate import RefusedByPolicyError
from raydr.federation.wire import Answer, Answered, Call
from raydr.front.cli import status
from raydr.journal import Journal
from raydr.privacy.policy import PolicyError
from raydr.privacy.secrets import Secret
from raydr.runfolder.maps import read_columns
from raydr.runfolder.reading import read_ledger
from raydr.scenarios.runner import resume, run
from raydr.scenarios.running.deployed import DeployedBackend
from raydr.scenarios.running.federation_plan import plan_with_data
from raydr.scenarios.schema.reading import dump, read

METHODS: dict[str, dict[str, Any]] = {
    "fed-umap": {},
    "steered": {"data": {"target_weight": 0.3}},
    "harmonized": {"data": {"harmonize": {"kind": "combat", "keep": ["label"]}}},
    "secure": {"privacy": {"secure_aggregation": True}},
    "noise": {"privacy": {"noise": {"on": "gradient", "multiplier": 0.5}}},
    "fedne": {"method": {"kind": "fedne", "rounds": 2, "hidden": [8], "local_steps": 2}},
    "fed-pca": {"method": {"kind": "fed-pca"}},
    "fidelity": {"fidelity_rows": 20},
}


@pytest.fixture
def at(tmp_path: Path) -> Hospitals:
    return hospitals(tmp_path / "sites")


@pytest.fixture
def same_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the clients of a simulation the secrets that the sites draw."""
    own = {name: Secret(bytes([place]) * 32) for place, name in enumerate(NAMES)}
    monkeypatch.setattr(OwnData, "secret", lambda self, start: own[self.site.name])
    derived = HostSecrets.derived.__func__  # type: ignore[attr-defined]

    def given(cls: Any, root: Secret, clients: Any, *others: Any) -> HostSecrets:
        found = derived(cls, root, clients, *others)
        return HostSecrets(
            dict(enumerate(own.values())), found.reserve, classes=found.classes, targets=found.targets
        )

    monkeypatch.setattr(HostSecrets, "derived", classmethod(given))


@pytest.mark.parametrize("keys", METHODS.values(), ids=METHODS)
def test_a_deployed_run_has_the_map_of_a_simulation_to_the_byte(
    keys: dict[str, Any], at: Hospitals, tmp_path: Path, same_secrets: None
) -> None:
    simulated = run(read(described(deployed=False, at=at, **keys)), out=tmp_path / "simulated", report=False)
    deployed = run(
        read(described(deployed=True, at=at, **keys)), out=tmp_path / "deployed", report=False, port=at.port()
    )
    for axis in "xy":
        then, now = (read_columns(each, "embedding.parquet", (axis,))[axis] for each in (simulated, deployed))
        assert np.asarray(then).tobytes() == np.asarray(now).tobytes()
    for file in ("arrays.npz", "encoder.safetensors"):
        if (simulated / "model" / file).exists():
            assert (simulated / "model" / file).read_bytes() == (deployed / "model" / file).read_bytes()


@pytest.mark.parametrize(
    "method",
    [
        {"kind": "private-map", "epsilon": 4.0, "clip": 8.0, "iterations": 5},
        {"kind": "fed-pca", "publish": "local"},
    ],
    ids=["private-map", "fed-pca"],
)
def test_places_that_stay_at_sites_are_those_of_a_simulation_and_do_not_leave(
    method: dict[str, Any], at: Hospitals, tmp_path: Path, same_secrets: None
) -> None:
    keys = {"method": method, "data": {"missing": "mean"}}
    simulated = run(read(described(deployed=False, at=at, **keys)), out=tmp_path / "simulated", report=False)
    ended: list[Finished] = []
    scenario = read(described(deployed=True, at=at, **keys))
    backend = DeployedBackend(port=at.port(ended), scenario=scenario, journal=Journal())
    client_data = backend.client_data()
    plan, _ = plan_with_data(scenario, client_data)
    served = backend.serve(client_data.parts, replace(plan, run="a run"), listener=lambda event: None)
    assert not served.outcome.published
    assert not np.any(served.outcome.embedding)
    assert all(entry.direction != "simulation-only" for entry in served.ledger.entries.values())
    columns = read_columns(simulated, "embedding.parquet", ("x", "y"))
    then = np.stack([np.asarray(columns[axis]) for axis in "xy"], axis=1)
    assert np.concatenate([each.places for each in ended]).tobytes() == then.tobytes()


def test_the_page_of_a_run_whose_places_stay_at_sites_has_counts_and_messages(
    at: Hospitals, tmp_path: Path
) -> None:
    method = {"kind": "private-map", "epsilon": 4.0, "clip": 8.0, "iterations": 5}
    scenario = read(described(deployed=True, at=at, method=method))
    folder = run(scenario, out=tmp_path / "run", port=at.port())
    assert not (folder / "embedding.parquet").exists()
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "97 rows stay at their sites" in page
    assert '<th scope="row">west</th><td>25 rows</td>' in page
    assert status(["report", str(folder)]) == 0


def test_identities_labels_and_periods_of_rows_stay_at_the_sites(at: Hospitals, tmp_path: Path) -> None:
    class Heard(InlineSites):
        def ask(self, call: Call) -> list[Answer]:
            return [kept.append(answer) or answer for answer in super().ask(call)]  # type: ignore[func-returns-value]

    kept: list[Answer] = []
    folder = run(read(described(deployed=True, at=at)), out=tmp_path / "run", port=Heard(at.hosts()))
    names = {type(answer.reply).__name__ for answer in kept if isinstance(answer, Answered)}
    assert names == {"ColumnNames", "ColumnSurvey", "WordVotes", "Size", "Agreed"}
    text = repr(kept)
    assert "patient" not in text.replace("patients.csv", "")
    assert not any(label in text for label in ("'ill'", "'well'"))
    written = b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
    for value in (b"north-3", b"east-30", str(at.folder).encode()):
        assert value not in written
    rows = read_columns(folder, "embedding.parquet", ("row", "client"))
    assert rows["row"].to_pylist() == [row for count in (30, 24, 18, 25) for row in range(count)]
    assert "label" not in read_columns(folder, "embedding.parquet", ("row",))


def test_the_ledger_of_the_server_has_the_messages_of_the_sites_ledgers(
    at: Hospitals, tmp_path: Path
) -> None:
    ended: list[Finished] = []
    folder = run(
        read(described(deployed=True, at=at)), out=tmp_path / "run", report=False, port=at.port(ended)
    )
    entries = [entry for entry in read_ledger(folder) if entry.direction == "up" and entry.kind != "Agreed"]
    for entry in entries:
        own = [
            each for site in ended for each in site.ledger.content.entries.values() if each.kind == entry.kind
        ]
        own = [each for each in own if each.direction == "up"]
        assert sum(each.count for each in own) == entry.count
        assert sum(each.bytes for each in own) == entry.bytes


def test_an_error_about_a_file_does_not_leave_the_site(at: Hospitals, caplog: Any) -> None:
    file = at.folder / "south" / "patients.csv"
    file.write_text(file.read_text().replace("never", "5O", 1))
    scenario = read(
        described(deployed=True, at=at, data={"categories": "error", "features": ["age", "smokes"]})
    )
    with pytest.raises(ClientError) as error:
        run(scenario, out=at.folder / "run", report=False, port=at.port())
    assert "5O" not in str(error.value)
    assert "site 'north' cannot answer" in str(error.value)
    assert "5O" in caplog.text


@pytest.mark.parametrize(
    ("site", "keys", "expected"),
    [
        ({"policy": "datashield"}, {"data": {"missing": "mean"}}, "rule 'per_record: never'"),
        ({"policy": "aggregate-only"}, {}, "ColumnSurvey"),
        ({"policy": "policy.yaml"}, {"data": {"target_weight": 0.3}}, "LabelNames"),
        ({"name": "elsewhere"}, {}, "takes site 'elsewhere' for number 1"),
        ({"scenario": "scenario.yaml"}, {}, "agreed to another scenario"),
    ],
)
def test_a_site_refuses_what_its_policy_or_its_owner_does_not_allow(
    site: dict[str, str], keys: dict[str, Any], expected: str, at: Hospitals, tmp_path: Path
) -> None:
    (at.folder / "east" / "policy.yaml").write_text(
        "per_client: never\ncolumns: [age, bmi, pulse, sugar, smokes]\n"
    )
    if "target_weight" in str(keys):
        (at.folder / "east" / "policy.yaml").write_text("least_count: 9\n")
    other = read(described(deployed=True, at=at, data={"scale": "none"}))
    (at.folder / "east" / "scenario.yaml").write_text(dump(other))
    at.change("east", **site)
    with pytest.raises(PolicyError, match=expected):
        run(read(described(deployed=True, at=at, **keys)), out=tmp_path / "run", report=False, port=at.port())


def test_a_site_that_agreed_to_this_scenario_takes_part(at: Hospitals, tmp_path: Path) -> None:
    scenario = read(described(deployed=True, at=at))
    for name in NAMES:
        (at.folder / name / "scenario.yaml").write_text(dump(scenario))
        at.change(name, scenario="scenario.yaml")
    run(scenario, out=tmp_path / "run", report=False, port=at.port())


def test_the_noise_of_a_site_follows_from_all_that_it_was_told(at: Hospitals) -> None:
    own = OwnData(read_site(at.settings[0]))
    start = StartRequest(
        file=SiteFile(path=""),
        agreement=Agreement("a scenario", NAMES),
        run="a run",
        seed=0,
        marks=("mark",) * 4,
    )
    known = {
        own.secret(each).commitment
        for each in (
            start,
            replace(start, run="another"),
            replace(start, seed=1),
            replace(start, agreement=Agreement("another scenario", NAMES)),
            replace(start, file=SiteFile(path="", missing="drop")),
        )
    }
    assert len(known) == 5
    assert own.secret(start).commitment == OwnData(own.site).secret(start).commitment
    assert (at.folder / "north" / "raydr-site" / "secret").stat().st_mode & 0o777 == 0o600


def test_a_site_starts_only_what_it_agreed_to_with_the_rows_that_it_described(at: Hospitals) -> None:
    (at.folder / "north" / "scenario.yaml").write_text("the scenario")
    at.change("north", scenario="scenario.yaml")
    own = OwnData(read_site(at.settings[0]))
    file = SiteFile(path="", label="diagnosis", missing="drop", features=("age", "bmi"))
    start = StartRequest(
        file=file, agreement=Agreement("the scenario", NAMES), run="a run", seed=0, marks=("other rows",) * 4
    )
    with pytest.raises(RefusedByPolicyError, match="agreed to another scenario"):
        own.host(replace(start, agreement=Agreement("another scenario", NAMES)), 0)
    with pytest.raises(RunError, match="has changed since the site described it"):
        own.host(start, 0)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"compare": ["central"]}, "compare maps pooled rows"),
        ({"metrics": ["trustworthiness"]}, "metrics names trustworthiness"),
        ({"audit": True}, "audit compares attacks"),
        ({"evaluate_every": 1}, "evaluate_every scores maps"),
        ({"show": ["age"]}, "show copies values"),
        ({"data": {"source": "iris"}}, "clients.deployed names sites that read their own files"),
        ({"data": {"rows": 10}}, "clients.deployed names sites that read their own files"),
        ({"data": {"holdout": 0.2}}, "data.holdout draws rows of all sites"),
        ({"data": {"missing": "drop"}, "privacy": {"isometry_key": True}}, "person who may read the scaling"),
        ({"privacy": {"secret": "secret"}}, "each site draws its own"),
        ({"faults": {"stragglers": 0.1}}, "faults simulates failures"),
    ],
)
def test_what_only_a_simulation_can_do_is_refused_with_a_remedy(
    keys: dict[str, Any], expected: str, at: Hospitals
) -> None:
    with pytest.raises(ScenarioError, match=expected) as error:
        read(described(deployed=True, at=at, **keys))
    assert re.search(r"leave [\w., ]+ out", str(error.value))


def test_a_deployed_scenario_without_its_sites_is_refused(at: Hospitals, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="deploy the scenario"):
        run(read(described(deployed=True, at=at)), out=tmp_path / "run")


def test_a_run_is_resumed_with_the_same_rows_only(at: Hospitals, tmp_path: Path) -> None:
    content = described(deployed=True, at=at) | {"runtime": {"federation": "inline", "checkpoint_every": 1}}

    class Lost(InlineSites):
        def transport(self, start: StartRequest) -> Transport:
            transport = super().transport(start)
            found = transport.sum

            def broken(call: Any) -> Any:
                if call.round == 3:
                    raise KeyboardInterrupt
                return found(call)

            transport.sum = broken  # type: ignore[method-assign]
            return transport

    with pytest.raises(KeyboardInterrupt):
        run(read(content), out=tmp_path / "run", report=False, port=Lost(at.hosts()))
    (left,) = tmp_path.glob("run.incomplete*")
    file = at.folder / "west" / "patients.csv"
    before = file.read_text()
    file.write_text(before.replace("west-72,", "west-72,9"))
    with pytest.raises(DataError, match="client west"):
        resume(left, port=at.port())
    file.write_text(before)
    resumed = resume(left, port=at.port())
    whole = run(read(content), out=tmp_path / "whole", report=False, port=at.port())
    for axis in "xy":
        columns = (read_columns(folder, "embedding.parquet", (axis,))[axis] for folder in (resumed, whole))
        assert len({np.asarray(column).tobytes() for column in columns}) == 1
