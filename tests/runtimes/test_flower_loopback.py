"""Four hospitals with real nodes of Flower, TLS and keys of their own: the same bits as in one process."""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from flower_network import network
from interruption import interrupted_by_sigterm

from raydr.deployment.own_data import OwnData
from raydr.deployment.site_settings import read_site
from raydr.deployment.verification import verify
from raydr.federation.client import HostSecrets
from raydr.federation.codec import decode
from raydr.privacy.node_keys import read_nodes
from raydr.privacy.secrets import Secret
from raydr.runfolder.maps import read_columns
from raydr.runtimes.flower.site_record import site_record
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read

pytestmark = [pytest.mark.slow, pytest.mark.data, pytest.mark.timeout(5400)]

COLUMNS = ("age", "sex", "resting_blood_pressure", "cholesterol", "max_heart_rate", "st_depression")
METHODS: dict[str, dict[str, Any]] = {
    "private-map": {"method": {"kind": "private-map", "epsilon": 4.0, "clip": 300.0, "rounds": 2}},
    "fedne": {"method": {"kind": "fedne", "rounds": 1, "hidden": [8], "local_steps": 2}},
    "fed-umap": {
        "method": {"kind": "fed-umap", "rounds": 1, "landmarks": 8, "epochs": 5},
        "privacy": {"secure_aggregation": True},
    },
}


def hospitals_of_heart_disease(data_dir: Path, folder: Path) -> dict[str, Path]:
    """Write each hospital's own file and settings; return the settings by name."""
    table = data_dir / "heart_disease.csv"
    if not table.is_file():
        pytest.skip("the folder RAYDR_DATA has no heart_disease.csv")
    with table.open() as file:
        rows = list(csv.DictReader(file))
    settings = {}
    for name in dict.fromkeys(row["hospital"] for row in rows):
        place = folder / name
        place.mkdir(parents=True)
        with (place / "patients.csv").open("w") as file:
            writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
            writer.writeheader()
            writer.writerows(row for row in rows if row["hospital"] == name)
        settings[name] = place / "site.yaml"
        settings[name].write_text(yaml.safe_dump({"name": name, "path": "patients.csv", "policy": "open"}))
    return settings


def described(name: str, clients: dict[str, Any], keys: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "data": {"features": list(COLUMNS), "missing": "drop", "scale": "none"},
        "clients": clients,
        "runtime": {"federation": "inline", "checkpoint_every": 0, "timeout_s": 300},
        **keys,
    }


def secrets_of(settings: dict[str, Path], run_name: str) -> dict[int, Secret]:
    """Each site's own secret for the run, from its own folder."""
    found = {}
    for client, path in enumerate(settings.values()):
        site = read_site(path)
        with site_record(Path(site.folder), run_name) as record:
            (start,) = (decode(call) for call in record.calls(around=True))
        found[client] = OwnData(site).secret(start.request)
    return found


def places_of(folder: Path) -> bytes:
    columns = read_columns(folder, "embedding.parquet", ("x", "y"))
    return b"".join(np.asarray(columns[axis]).tobytes() for axis in "xy")


@pytest.mark.parametrize("method", METHODS)
def test_nodes_on_loopback_give_the_bits_of_one_process(
    method: str, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("flwr", reason="runs over Flower need the extra flower")
    settings = hospitals_of_heart_disease(data_dir, tmp_path / "sites")
    scenario, out = tmp_path / "scenario.yaml", tmp_path / "deployed"
    scenario.write_text(yaml.safe_dump(described(method, {"deployed": list(settings)}, METHODS[method])))
    with interrupted_by_sigterm(), network(tmp_path / "network") as flower:
        keys = {site: flower.register(site) for site in settings}
        nodes = tmp_path / "nodes.yaml"
        nodes.write_text(yaml.safe_dump(keys))
        for site, path in settings.items():
            own = {"key": str(flower.folder / f"{site}.key"), "nodes": str(nodes)}
            path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | own))
            flower.start_node(site, path)
        flower.begin({"scenario": scenario, "nodes": nodes, "out": out})
        deadline = time.monotonic() + 4800
        while not out.exists() and time.monotonic() < deadline:
            time.sleep(1)
        assert out.exists(), (flower.folder / "superlink.log").read_text()[-4000:]
    secrets = secrets_of(settings, method)
    monkeypatch.setattr(
        HostSecrets, "derived", classmethod(lambda cls, *given, **more: HostSecrets(dict(secrets)))
    )
    sites = [{"name": site, "path": str(path.parent / "patients.csv")} for site, path in settings.items()]
    inline = run(
        read(described(method, {"sites": sites}, METHODS[method]) | {"metrics": []}),
        out=tmp_path / "inline",
        report=False,
    )
    if method == "private-map":  # the places stay at the sites
        assert not (out / "embedding.parquet").exists()
        own = [next(path.parent.rglob("embedding.parquet")).parent for path in settings.values()]
        columns = [read_columns(folder, "embedding.parquet", ("x", "y")) for folder in own]
        at_sites = b"".join(
            np.concatenate([np.asarray(each[axis]) for each in columns]).tobytes() for axis in "xy"
        )
        assert at_sites == places_of(inline)
    else:
        assert places_of(out) == places_of(inline)
    ledgers = [next(path.parent.rglob("ledgers/*.json")) for path in settings.values()]
    found = verify(out, ledgers, read_nodes(nodes))
    assert found.exchanges
    assert found.agrees, [each for each in found.exchanges if each.differences]
    for file in ("arrays.npz", "encoder.safetensors"):
        assert (out / "model" / file).exists() == (inline / "model" / file).exists()
        if (inline / "model" / file).exists():
            assert (out / "model" / file).read_bytes() == (inline / "model" / file).read_bytes()
