"""Runs that are written to be shown, and how their pages are read."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from raydr.arrays import Float64Array
from raydr.privacy.accounting import Budget
from raydr.privacy.ledger import Ledger, read_entries
from raydr.privacy.statement import statement
from raydr.runfolder.manifest import seal

ROWS = 60
SCRIPT = "<script>alert(1)</script>"


def message(**changes: Any) -> dict[str, Any]:
    return {
        "kind": "DistanceReply",
        "what": "Squared distances from every record to every landmark",
        "direction": "up",
        "granularity": "per-record",
        "seen_by": "server",
        "count": 3,
        "bytes": 48_000,
        "protection": None,
        "epsilon": None,
        "delta": None,
    } | changes


ROUNDS = [
    {"round": number, "objective": 1.0 / number, "seconds": 0.1, "bytes_up": 10, "bytes_down": 20,
     "asked": 3, "answered": 3, "failed": 0}
    for number in range(1, 6)
]  # fmt: skip


def write_run(
    folder: Path,
    *,
    central: bool = True,
    labels: Sequence[str | None] | None = None,
    clients: Sequence[str] | None = None,
    rows: Sequence[int] | Sequence[str] = range(ROWS),
    ledger: Sequence[dict[str, Any]] | None = None,
    metrics: dict[str, Any] | None = None,
    name: str = "digits-fed-tsne",
    points: Float64Array | None = None,
    method: dict[str, Any] | None = None,
) -> Path:
    folder.mkdir(parents=True)
    points = np.random.default_rng(5).normal(size=(ROWS, 2)) if points is None else points
    table: dict[str, Any] = {
        "row": list(rows),
        "client": list(clients or [f"site {row % 3}" for row in range(ROWS)]),
    } | dict(zip("xyz", points.T, strict=False))
    if labels is not None:
        table["label"] = pa.array(list(labels), pa.string())
    pq.write_table(pa.table(table), folder / "embedding.parquet")
    if central:
        turned = points[:, ::-1] * 0.5 if method else points[:, ::-1] * 9.0 - 4.0
        columns = {"row": list(rows)} | dict(zip("xyz", turned.T, strict=False))
        pq.write_table(pa.table(columns), folder / "central.parquet")
    measures = metrics or {
        "federated": {"npa_10": 0.41234, "trustworthiness": 0.98765, "distance_error": 0.0321},
        "central": {"npa_10": 0.43456, "trustworthiness": 0.99123} if central else {},
        "not_computed": {"steadiness": "needs an extra that is not installed"},
    }
    environment = {
        "run": "a run", "raydr": "0.1.0", "python": "3.11.7", "platform": "Linux", "cpu": "a processor", "cores": 2,
        "memory_bytes": 8_000_000_000, "packages": {"numpy": "2.4.6"}, "seconds": {"rounds": 3.5, "embedding": 6.0},
        "peak_memory_bytes": {"driver": 400_000_000, "site 0": 120_000_000},
        "started": "2026-02-03T10:22:31+00:00", "federation": "ray", "actors": 3,
    }  # fmt: skip
    scenario = {
        "name": name,
        "seed": 7,
        "data": {"source": "digits"},
        "method": method or {"kind": "fed-tsne", "landmarks": 50},
    }
    source = {
        "name": "digits",
        "rows": ROWS,
        "dropped": 0,
        "named": True,
    }
    data = {"columns": ["a", "b"], "named": True, "scaling": "none", "sources": [source], "mapped": ROWS}
    (folder / "data.json").write_text(json.dumps(data))
    known = {"name": "digits", "sha256": "0" * 64, "hashed": "numbers"}
    (folder / "fingerprints.json").write_text(json.dumps([known]))
    (folder / "metrics.json").write_text(json.dumps(measures))
    (folder / "ledger.json").write_text(json.dumps([message()] if ledger is None else list(ledger)))
    entries = read_entries([message()] if ledger is None else list(ledger))
    told = statement(
        Ledger({(entry.kind, entry.direction, "", "", None): entry for entry in entries}), Budget()
    )
    (folder / "privacy.json").write_text(json.dumps(asdict(told)))
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in ROUNDS))
    (folder / "environment.json").write_text(json.dumps(environment))
    (folder / "scenario.yaml").write_text(yaml.safe_dump(scenario, sort_keys=False))
    seal(folder)
    return folder


@dataclass(frozen=True)
class Page:
    """A parsed page: every tag with its attributes, and the text outside of scripts and style sheets."""

    tags: list[tuple[str, dict[str, str | None]]]
    text: str
    raw: str


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if not self.tags or self.tags[-1][0] not in ("script", "style"):
            self.said.append(data)


def read_page(path: Path) -> Page:
    raw = path.read_text(encoding="utf-8")
    reader = _Reader()
    reader.feed(raw)
    return Page(reader.tags, " ".join(" ".join(reader.said).split()), raw)


def external_loads(page: Page) -> list[str]:
    """Addresses that opening the page would fetch: any resource that does not stand in the page itself."""
    loading = {"src", "srcset", "href", "data", "poster", "action", "xlink:href"}
    found = [
        f"{tag} {name}={value}"
        for tag, attributes in page.tags
        for name, value in attributes.items()
        if name in loading and value is not None and not value.startswith(("data:", "#"))
    ]
    styles = re.findall(r"<style>(.*?)</style>", page.raw, flags=re.S)
    return found + [hit for style in styles for hit in re.findall(r"@import|url\((?!\s*[\"']?data:)", style)]


def in_space(seed: int = 5) -> Float64Array:
    """Points whose spread is largest along a slanted direction, (rows, 3)."""
    rng = np.random.default_rng(seed)
    points: Float64Array = (
        rng.normal(size=(ROWS, 3)) * [5.0, 2.0, 1.0] @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    )
    return points + 7.0


def in_ball(dimensions: int) -> Float64Array:
    """Points of the Poincaré disk or ball that do not lie around its centre."""
    points = np.random.default_rng(6).normal(size=(ROWS, dimensions)) + 0.5
    radii = np.linalg.norm(points, axis=1, keepdims=True)
    inside: Float64Array = points / radii * np.tanh(radii)
    return inside
