"""The server's ledger is compared with those that the sites have signed: any difference is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hospitals import NAMES, described, fresh_key, hospitals

from raydr.deployment.inline import InlineSites
from raydr.deployment.signed_ledger import write_signed_ledger
from raydr.deployment.site_host import SiteHost
from raydr.deployment.site_settings import read_site
from raydr.deployment.verification import Exchange, verify
from raydr.errors import DataError, OutputError
from raydr.front.cli import status
from raydr.privacy.node_keys import read_nodes, read_private_key, sign
from raydr.runfolder.manifest import seal
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read

METHODS: dict[str, dict[str, Any]] = {
    "secure private-map": {
        "method": {"kind": "private-map", "epsilon": 4.0, "clip": 8.0, "iterations": 5},
        "data": {"missing": "mean"},
        "privacy": {"secure_aggregation": True},
    },
    "fed-umap": {"fidelity_rows": 20},
    "fedne": {"method": {"kind": "fedne", "rounds": 2, "hidden": [8], "local_steps": 2}},
    "noise": {"privacy": {"noise": {"on": "gradient", "multiplier": 0.5}}},
}
Entries = list[dict[str, Any]]


@dataclass(frozen=True)
class Accounts:
    """A server's run folder, the signed ledger of each site, and the public keys of their nodes."""

    folder: Path

    @property
    def server(self) -> Path:
        return self.folder / "run"

    @property
    def nodes(self) -> Path:
        return self.folder / "sites" / "nodes.yaml"

    @property
    def ledgers(self) -> list[Path]:
        return [next((self.folder / "sites" / name / "raydr-site" / "ledgers").iterdir()) for name in NAMES]

    def change_server(self, change: Callable[[Entries], object]) -> None:
        """Change the server's ledger, and seal the folder again as the server can."""
        file = self.server / "ledger.json"
        entries = json.loads(file.read_text())
        change(entries)
        file.write_text(json.dumps(entries))
        seal(self.server, "ledger.json")

    def change_site(self, name: str, change: Callable[[dict[str, Any]], object], key: Path | None) -> None:
        """Change a site's ledger, and sign it again with a key."""
        file = self.ledgers[NAMES.index(name)]
        signed = json.loads(file.read_text())
        content = json.loads(signed["content"])
        change(content)
        signed["content"] = json.dumps(content)
        if key is not None:
            signature = sign(read_private_key(key), "ledger of a site, version 1", signed["content"].encode())
            signed["signature"] = signature.hex()
        file.write_text(json.dumps(signed))

    def differing(self) -> list[Exchange]:
        found = verify(self.server, self.ledgers, read_nodes(self.nodes))
        assert not found.problems
        assert found.agrees is not any(each.differences for each in found.exchanges)
        return [each for each in found.exchanges if each.differences]

    def problems(self, *ledgers: Path) -> str:
        found = verify(self.server, ledgers or self.ledgers, read_nodes(self.nodes))
        assert not found.agrees
        return "\n".join(found.problems)

    def arguments(self) -> list[str]:
        return [
            "verify",
            str(self.server),
            "--ledgers",
            *map(str, self.ledgers),
            "--nodes",
            str(self.nodes),
        ]


def deployed(folder: Path, **keys: Any) -> Accounts:
    at = hospitals(folder / "sites")
    hosts = [
        SiteHost(site=read_site(path), index=index, at_end=write_signed_ledger)
        for index, path in enumerate(at.settings)
    ]
    run(
        read(described(deployed=True, at=at, **keys)),
        out=folder / "run",
        report=False,
        port=InlineSites(hosts),
    )
    return Accounts(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Accounts:
    return deployed(tmp_path_factory.mktemp("accounts"), **METHODS["secure private-map"])


@pytest.fixture
def accounts(whole: Accounts, tmp_path: Path) -> Accounts:
    shutil.copytree(whole.folder, tmp_path / "accounts")
    return Accounts(tmp_path / "accounts")


def entry(entries: Entries, kind: str, direction: str = "up") -> dict[str, Any]:
    return next(each for each in entries if (each["kind"], each["direction"]) == (kind, direction))


@pytest.mark.parametrize("keys", METHODS.values(), ids=METHODS)
def test_honest_accounts_agree_in_every_exchange(keys: dict[str, Any], tmp_path: Path) -> None:
    accounts = deployed(tmp_path, **keys)
    found = verify(accounts.server, accounts.ledgers, read_nodes(accounts.nodes))
    assert [(each.kind, each.differences) for each in found.exchanges if each.differences] == []
    assert found.agrees
    directions = {(each.kind, each.direction) for each in found.exchanges}
    assert {
        ("ReadRequest", "down"),
        ("Size", "up"),
        ("FinishRequest", "down"),
        ("Agreed", "up"),
    } <= directions
    noisy = [each for each in found.exchanges if each.server.epsilon is not None]
    assert bool(noisy) is ("private-map" in str(keys) or "noise" in str(keys))


CHANGES: dict[str, tuple[Callable[[Entries], object], str, str]] = {
    "denied": (
        lambda entries: entries.remove(entry(entries, "CellSums")),
        "CellSums",
        "0 messages by the server, 4 by the sites",
    ),
    "fewer": (
        lambda entries: entry(entries, "Size").update(count=3),
        "Size",
        "3 messages by the server, 4 by the sites (north 1, east 1, south 1, west 1)",
    ),
    "smaller": (
        lambda entries: entry(entries, "Shares").update(bytes=8),
        "Shares",
        "8 bytes by the server",
    ),
    "cheaper": (
        lambda entries: entry(entries, "FirstMoments").update(epsilon=0.1),
        "FirstMoments",
        "epsilon 0.1 by the server, 0.666206 by the sites",
    ),
    "invented": (
        lambda entries: entries.append(entry(entries, "Size") | {"kind": "Count"}),
        "Count",
        "4 messages by the server, 0 by the sites",
    ),
    "request denied": (
        lambda entries: entries.remove(entry(entries, "SurveyRequest", "down")),
        "SurveyRequest",
        "0 messages by the server, 4 by the sites",
    ),
}


@pytest.mark.parametrize(("change", "kind", "expected"), CHANGES.values(), ids=CHANGES)
def test_a_changed_ledger_of_the_server_is_named(
    change: Callable[[Entries], object], kind: str, expected: str, accounts: Accounts
) -> None:
    accounts.change_server(change)
    (found,) = accounts.differing()
    assert found.kind == kind
    assert expected in "; ".join(found.differences)


def test_a_message_that_a_site_has_signed_and_the_server_denies_is_named_with_the_site(
    accounts: Accounts,
) -> None:
    def hide(content: dict[str, Any]) -> None:
        entry(content["entries"], "Size").update(count=2, bytes=99)

    accounts.change_site("east", hide, accounts.folder / "sites" / "east" / "node.key")
    (found,) = accounts.differing()
    assert (
        "4 messages by the server, 5 by the sites (north 1, east 2, south 1, west 1)" in found.differences[0]
    )


def test_a_changed_ledger_of_a_site_is_not_used(accounts: Accounts) -> None:
    def hide(content: dict[str, Any]) -> None:
        content["entries"] = [each for each in content["entries"] if each["kind"] != "Size"]

    accounts.change_site("east", hide, None)
    problems = accounts.problems()
    assert f"{accounts.ledgers[1]} is not signed by the node of 'east'" in problems
    assert "no valid ledger of east" in problems


def test_a_ledger_that_another_key_has_signed_is_not_used(accounts: Accounts) -> None:
    fresh_key(accounts.folder / "other.key")
    accounts.change_site("south", lambda content: None, accounts.folder / "other.key")
    assert "is not signed by the node of 'south'" in accounts.problems()
    accounts.change_site("south", lambda content: content.update(site="west"), accounts.folder / "other.key")
    assert "is not signed by the node of 'west'" in accounts.problems()


def test_a_signed_ledger_of_another_run_or_of_other_sites_is_not_used(accounts: Accounts) -> None:
    key = accounts.folder / "sites" / "west" / "node.key"
    accounts.change_site("west", lambda content: content.update(run="another run"), key)
    assert "is the ledger of another run, another run" in accounts.problems()
    run_name = json.loads((accounts.server / "environment.json").read_text())["run"]
    accounts.change_site("west", lambda content: content.update(run=run_name, sites=["west"]), key)
    assert "is of a run of the sites west" in accounts.problems()


def test_a_ledger_of_each_site_is_needed_once(accounts: Accounts) -> None:
    north, east, south, west = accounts.ledgers
    assert "no valid ledger of south, and all sites" in accounts.problems(north, east, west)
    assert "is a second ledger of north" in accounts.problems(north, north, east, south, west)
    assert "cannot be read as the signed ledger" in accounts.problems(accounts.nodes, east, south, west)
    west.write_text("{}")
    assert "cannot be read as the signed ledger" in accounts.problems()


def test_the_command_names_differences_and_says_so_by_its_status(
    accounts: Accounts, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(accounts.arguments()) == 0
    assert "The accounts of the server and of all sites agree in all" in capsys.readouterr().out
    accounts.change_server(lambda entries: entry(entries, "Size").update(bytes=1))
    assert status(accounts.arguments()) == 3
    told = " ".join(capsys.readouterr().out.split())
    assert "Size, up: 1 bytes by the server" in told
    assert "The accounts differ in 1 of" in told
    accounts.ledgers[0].write_text("{}")
    assert status(accounts.arguments()) == 3
    assert "Nothing is compared" in capsys.readouterr().out


def test_an_edited_folder_and_a_simulation_are_refused(accounts: Accounts, tmp_path: Path) -> None:
    (accounts.server / "ledger.json").write_text("[]")
    with pytest.raises(OutputError, match=r"ledger\.json"):
        accounts.differing()
    content = described(deployed=False, at=hospitals(tmp_path / "others"))
    simulated = run(read(content), out=tmp_path / "simulated", report=False)
    with pytest.raises(DataError, match="is a simulation"):
        verify(simulated, [], read_nodes(accounts.nodes))


def test_a_site_without_a_key_has_no_signed_ledger(tmp_path: Path) -> None:
    at = hospitals(tmp_path / "sites")
    at.change("north", key=None)
    hosts = [
        SiteHost(site=read_site(path), index=index, at_end=write_signed_ledger)
        for index, path in enumerate(at.settings)
    ]
    run(read(described(deployed=True, at=at)), out=tmp_path / "run", report=False, port=InlineSites(hosts))
    found = [(at.folder / name / "raydr-site" / "ledgers").exists() for name in NAMES]
    assert found == [False, True, True, True]
