"""The server of a run over Flower goes on after a fault: from its last checkpoint, or without a silent site."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flower_sites import Losing, Nodes
from hospitals import NAMES, Hospitals, described, hospitals

from raydr.deployment.site_settings import read_site
from raydr.errors import RunError
from raydr.front import flower_app
from raydr.runfolder.maps import read_columns
from raydr.runtimes.flower.deployed import FlowerPort, deployed_node
from raydr.runtimes.flower.errands import Carry, Failed, unpacked
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read


@dataclass
class Breaking(Nodes):
    """Nodes whose connection breaks in one round, once."""

    breaks_in: int = 2

    def exchange(self, messages: Mapping[str, bytes], timeout_s: float) -> dict[str, bytes | Failed]:
        errand = unpacked(next(iter(messages.values())))
        if isinstance(errand, Carry) and errand.call.in_rounds and errand.call.round == self.breaks_in:
            self.breaks_in = 0
            raise RunError("Flower's SuperLink has ended the run.")
        return super().exchange(messages, timeout_s)


@pytest.fixture
def at(tmp_path: Path) -> Hospitals:
    return hospitals(tmp_path / "sites", text=False)


@pytest.fixture
def config(at: Hospitals, tmp_path: Path) -> dict[str, Any]:
    """The configuration of a run of two rounds."""
    method = {"kind": "fed-umap", "rounds": 2, "landmarks": 8, "epochs": 2, "bounds": [0, 100]}
    content = described(deployed=True, at=at, method=method, runtime={"checkpoint_every": 1})
    content["data"] |= {"scale": "none", "missing": "error"}
    (tmp_path / "scenario.yaml").write_text(yaml.safe_dump(content))
    keys = {
        name: ec.derive_private_key(number, ec.SECP384R1())
        .public_key()
        .public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        .decode()
        for number, name in enumerate(NAMES, 2)
    }
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump(keys))
    return {name: str(tmp_path / f"{name}.yaml") for name in ("scenario", "nodes")}


def started(
    at: Hospitals, config: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch, *, breaks_in: int = 0
) -> None:
    """Start the server over nodes in this process."""
    nodes = {name: deployed_node(read_site(path)) for name, path in zip(NAMES, at.settings, strict=True)}
    courier = Breaking(nodes, breaks_in=breaks_in)
    grid = SimpleNamespace(GridCourier=lambda grid, keys: courier)
    monkeypatch.setitem(sys.modules, "raydr.runtimes.flower.grid", grid)
    flower_app._run(None, config)


def places_of(folder: Path) -> bytes:
    columns = read_columns(folder, "embedding.parquet", ("x", "y"))
    return b"".join(np.asarray(columns[axis]).tobytes() for axis in "xy")


def test_resumed_run_has_the_map_of_an_undisturbed_one(
    at: Hospitals, config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    started(at, config | {"out": str(whole)}, monkeypatch)
    with pytest.raises(RunError, match="resume=true") as ended:
        started(at, config | {"out": str(broken)}, monkeypatch, breaks_in=2)
    assert not hasattr(ended.value, "__notes__")
    assert not broken.exists()
    started(at, config | {"out": str(broken), "resume": True}, monkeypatch)
    assert places_of(broken) == places_of(whole)
    assert not list(tmp_path.glob("broken.incomplete*"))


def test_rounds_without_a_silent_site_have_the_map_of_these_rounds(at: Hospitals, tmp_path: Path) -> None:
    """The site has answered, but its answer of the second round is lost."""
    method = {"kind": "fed-umap", "rounds": 3, "landmarks": 8, "epochs": 2, "bounds": [0, 100]}
    content = described(deployed=True, at=at, method=method)
    content["data"] |= {"scale": "none", "missing": "error"}
    content["runtime"] |= {"retries": 0, "quorum": 0.6}

    def silent(site: str, message: bytes) -> bytes | None:
        errand = unpacked(message)
        in_round = isinstance(errand, Carry) and errand.call.in_rounds and errand.call.round == 2
        return None if in_round and site == NAMES[1] else message

    nodes = {name: deployed_node(read_site(path)) for name, path in zip(NAMES, at.settings, strict=True)}
    port = FlowerPort(Nodes(nodes, to_site=silent), NAMES, "silent")
    found = run(read(content), out=tmp_path / "silent", report=False, port=port)
    lost, whole = (
        run(read(content), out=tmp_path / name, report=False, port=Losing(at.hosts(), lost=each))
        for name, each in (("lost", {2: {1}}), ("whole", {}))
    )
    assert places_of(found) == places_of(lost)
    assert places_of(found) != places_of(whole)


def test_run_without_a_checkpoint_cannot_be_resumed(
    at: Hospitals, config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RunError, match="no interrupted run"):
        started(at, config | {"out": str(tmp_path / "run"), "resume": True}, monkeypatch)
