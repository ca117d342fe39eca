"""Hospitals with a file and settings each, and the same run simulated and deployed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from raydr.deployment.inline import InlineSites
from raydr.deployment.site_host import Finished, SiteHost
from raydr.deployment.site_settings import read_site

NAMES = ("north", "east", "south", "west")
UMAP = {"kind": "fed-umap", "rounds": 3, "landmarks": 12, "epochs": 5}


@dataclass(frozen=True)
class Hospitals:
    """The settings of hospitals, ``site.yaml`` of each."""

    folder: Path

    @property
    def settings(self) -> list[Path]:
        return [self.folder / name / "site.yaml" for name in NAMES]

    def files(self) -> list[dict[str, str]]:
        """The section ``clients.sites`` of a simulation."""
        return [{"name": name, "path": str(self.folder / name / "patients.csv")} for name in NAMES]

    def hosts(self, ended: list[Finished] | None = None) -> list[SiteHost]:
        kept: list[Finished] = [] if ended is None else ended
        return [
            SiteHost(site=read_site(path), index=index, at_end=kept.append)
            for index, path in enumerate(self.settings)
        ]

    def port(self, ended: list[Finished] | None = None) -> InlineSites:
        return InlineSites(self.hosts(ended))

    def change(self, hospital: str, **settings: Any) -> None:
        path = self.folder / hospital / "site.yaml"
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | settings))


def hospitals(folder: Path, rows: Sequence[int] = (30, 24, 18, 25), *, text: bool = True) -> Hospitals:
    """Write files with numbers, gaps, and words that every hospital has; identities and labels."""
    random = np.random.default_rng(0)
    start = 0
    for name, count in zip(NAMES, rows, strict=True):
        place = folder / name
        place.mkdir(parents=True)
        header = ["patient", "age", "bmi", "pulse", "sugar", "diagnosis", *(["smokes"] if text else [])]
        lines = [",".join(header)]
        for row in range(count):
            ill = row % 3 == 0
            numbers = random.normal(50.0 + 10.0 * ill, 9.0, 4)
            cells = [f"{value:.3f}" if random.random() > 0.05 or not text else "" for value in numbers]
            words = [("never", "often", "seldom")[row % 3]] if text else []
            lines.append(",".join([f"{name}-{start + row}", *cells, ("well", "ill")[ill], *words]))
        start += count
        (place / "patients.csv").write_text("\n".join(lines) + "\n")
        (place / "site.yaml").write_text(
            f"name: {name}\npath: patients.csv\npolicy: open\nkey: node.key\nnodes: ../nodes.yaml\n"
        )
    (folder / "nodes.yaml").write_text(
        yaml.safe_dump({name: fresh_key(folder / name / "node.key") for name in NAMES})
    )
    return Hospitals(folder)


def fresh_key(path: Path) -> str:
    """Write the private key of a node, and return its public key, as ``ssh-keygen`` does."""
    key = ec.generate_private_key(ec.SECP384R1())
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def described(*, deployed: bool, at: Hospitals, **keys: Any) -> dict[str, Any]:
    """The content of a scenario, deployed or simulated."""
    content: dict[str, Any] = {
        "name": "four-hospitals",
        "data": {
            "label": "diagnosis",
            "id": "patient",
            "missing": "median",
            "scale": "standard",
            "categories": "one-hot",
        },
        "method": UMAP,
        "runtime": {"federation": "inline", "checkpoint_every": 0},
    }
    for key, value in keys.items():
        content[key] = {**content[key], **value} if key == "data" else value
    clients = {"deployed": list(NAMES)} if deployed else {"sites": at.files()}
    return content | {"clients": clients} | ({} if deployed else {"metrics": []})
