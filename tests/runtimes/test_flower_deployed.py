"""A deployed run over nodes that keep nothing in memory is the run over sites that last, to the byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flower_sites import Nodes
from hospitals import NAMES, Hospitals, described, hospitals

from raydr.deployment.own_data import OwnData
from raydr.deployment.signed_ledger import write_signed_ledger
from raydr.deployment.site_host import Finished
from raydr.deployment.site_settings import read_site
from raydr.deployment.verification import verify
from raydr.privacy.node_keys import read_nodes
from raydr.privacy.secrets import Secret
from raydr.runtimes.flower.deployed import FlowerPort, deployed_node
from raydr.scenarios.runner import run
from raydr.scenarios.running.general_policies import general_policies
from raydr.scenarios.schema.reading import read

METHODS: dict[str, dict[str, Any]] = {
    "secure": {"privacy": {"secure_aggregation": True}},
    "private-map": {
        "method": {"kind": "private-map", "epsilon": 4.0, "clip": 8.0, "iterations": 5},
        "data": {"missing": "mean"},
    },
}


@pytest.fixture
def at(tmp_path: Path) -> Hospitals:
    return hospitals(tmp_path / "sites")


def port_of(at: Hospitals, ended: list[Finished]) -> FlowerPort:
    nodes = {
        name: deployed_node(read_site(path), ended.append)
        for name, path in zip(NAMES, at.settings, strict=True)
    }
    return FlowerPort(Nodes(nodes), NAMES, "a run")


@pytest.mark.parametrize(
    "keys",
    [pytest.param(METHODS["secure"], marks=pytest.mark.slow), METHODS["private-map"]],
    ids=["secure", "private-map"],
)
def test_nodes_and_lasting_sites_have_the_same_map_places_and_ledgers(
    keys: dict[str, Any], at: Hospitals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {name: Secret(bytes([place]) * 32) for place, name in enumerate(NAMES)}
    monkeypatch.setattr(OwnData, "secret", lambda self, start: own[self.site.name])
    scenario = read(described(deployed=True, at=at, **keys))
    lasting: list[Finished] = []
    fresh: list[Finished] = []
    one = run(scenario, out=tmp_path / "lasting", report=False, port=at.port(lasting))
    two = run(scenario, out=tmp_path / "nodes", report=False, port=port_of(at, fresh))
    for file in ("embedding.parquet", "model/arrays.npz", "ledger.json"):
        assert (one / file).exists() == (two / file).exists()
        if (one / file).exists():
            assert (one / file).read_bytes() == (two / file).read_bytes(), file
    for mine, other in zip(lasting, fresh, strict=True):
        assert mine.places.tobytes() == other.places.tobytes()
        assert mine.ledger.content.as_list() == other.ledger.content.as_list()
        assert mine.ledger.content.charges == other.ledger.content.charges


def test_the_policy_of_a_strict_run_reaches_the_nodes(tmp_path: Path) -> None:
    at = hospitals(tmp_path / "sites", rows=(24, 24, 24, 24), text=False)
    ended: list[Finished] = []
    scenario = read(
        described(
            deployed=True,
            at=at,
            method={"kind": "private-map", "epsilon": 4.0, "clip": 80.0, "per": "client"},
            data={"categories": "error", "missing": "error", "scale": "none", "features": ["age", "bmi"]},
            privacy={"strict": True},
        )
    )
    general = general_policies(scenario)
    assert general
    run(scenario, out=tmp_path / "run", report=False, port=port_of(at, ended))
    for each in ended:
        assert each.policy.policies[: len(general)] == general


def test_the_ledger_of_a_site_has_one_run_alone_after_others_of_the_same_name(
    at: Hospitals, tmp_path: Path
) -> None:
    keys = {"method": {"kind": "fed-pca"}, "data": {"missing": "drop", "scale": "none"}}
    for seed in (0, 1):
        ended: list[Finished] = []
        scenario = read(described(deployed=True, at=at, **keys) | {"seed": seed})
        folder = run(scenario, out=tmp_path / str(seed), report=False, port=port_of(at, ended))
        paths = [write_signed_ledger(each) for each in ended]
        found = verify(
            folder, [path for path in paths if path is not None], read_nodes(at.folder / "nodes.yaml")
        )
        assert found.exchanges
        assert found.agrees, [each for each in found.exchanges if each.differences]
