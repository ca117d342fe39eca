"""The server of a run over Flower goes on from its last checkpoint, and says how when it ends with an error."""

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
from flower_sites import Nodes
from hospitals import NAMES, Hospitals, described, hospitals

from raydr.deployment.site_settings import read_site
from raydr.errors import RunError
from raydr.front import flower_app
from raydr.runfolder.maps import read_columns
from raydr.runtimes.flower.deployed import deployed_node
from raydr.runtimes.flower.errands import Carry, Failed, unpacked


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


def test_run_without_a_checkpoint_cannot_be_resumed(
    at: Hospitals, config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RunError, match="no interrupted run"):
        started(at, config | {"out": str(tmp_path / "run"), "resume": True}, monkeypatch)
