"""LocalNE on held-out rows, as P2 has it: each client's encoder places them, and metrics are means over clients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from raydr.arrays import FloatArray, IntArray
from raydr.errors import ScenarioError
from raydr.federation.streams import client_stream
from raydr.methods.fedne.baselines import LocalNE
from raydr.methods.fedne.encoder import Architecture
from raydr.methods.fedne.pooled import epochs_on
from raydr.metrics import Evidence
from raydr.scenarios.runner import run
from raydr.scenarios.running.own_maps import mean_scores
from raydr.scenarios.schema.reading import read

SETTINGS: dict[str, Any] = {"kind": "local-ne", "rounds": 6, "hidden": [8]}
K = 7
SIZES = (30, 90, 60)
"""Rows of the clients: they differ, so that a mean over rows is not one over clients."""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FloatArray, IntArray, IntArray]:
    """Return a file of 240 rows of three classes, its rows, classes and owners; the last 60 rows are held out.

    Clients hold mostly one class each.
    """
    random = np.random.default_rng(3)
    owners = np.repeat([0, 1, 2, 0], [*SIZES, 60])
    labels = np.where(random.random(240) < 0.7, owners, random.integers(3, size=240))
    labels[-60:] = random.integers(3, size=60)
    rows = random.normal(size=(240, 5)).astype(np.float32) + 2.0 * np.eye(3, 5, dtype=np.float32)[labels]
    path = tmp_path_factory.mktemp("table") / "table.csv"
    lines = ["a,b,c,d,e,class,owner,part"]
    for row, label, owner, number in zip(rows, labels, owners, range(240), strict=True):
        part = "new" if number >= 180 else "old"
        lines.append(",".join(map(repr, map(float, row))) + f",k{label},client {owner},{part}")
    path.write_text("\n".join(lines) + "\n")
    return path, rows, labels, owners


def scenario(path: Path, **more: Any) -> dict[str, Any]:
    data = {"path": str(path), "label": "class", "features": list("abcde")}
    return {
        "name": "alone",
        "seed": 5,
        "data": data | {"holdout": {"column": "part", "value": "new"}} | more.pop("data", {}),
        "clients": {"partition": {"kind": "by-column", "column": "owner"}},
        "method": SETTINGS,
        "runtime": {"federation": "inline"},
    } | more


def placed(weights: FloatArray, rows: FloatArray) -> FloatArray:
    """Return positions by an encoder's flat weights, layer by layer."""
    architecture = Architecture(rows.shape[1], tuple(SETTINGS["hidden"]))
    into, offset, out, last = architecture.parts(weights.astype(np.float32))
    return np.maximum(rows @ into + offset, 0.0) @ out + last


def order_of(points: FloatArray) -> IntArray:
    """Return, for each point, all others by distance."""
    distances = cdist(points, points)
    np.fill_diagonal(distances, np.inf)
    return np.argsort(distances, axis=1, kind="stable")[:, :-1]


def intrusion(order: IntArray, other: IntArray) -> float:
    """Return 1 minus the penalty of those of a row's K nearest in ``other`` that are not so in ``order``, by rank."""
    count = len(order)
    penalty = 0
    for own, theirs in zip(order.tolist(), other.tolist(), strict=True):
        penalty += sum(own.index(one) + 1 - K for one in theirs[:K] if own.index(one) >= K)
    return 1.0 - 2.0 * penalty / (count * K * (2 * count - 3 * K - 1))


def test_metrics_are_means_over_the_clients_own_encoders(
    table: tuple[Path, FloatArray, IntArray, IntArray], tmp_path: Path
) -> None:
    path, rows, labels, owners = table
    names = ["knn_accuracy", "new_trustworthiness_7", "new_continuity_7"]
    folder = run(read(scenario(path, metrics=["npa_10", *names])), out=tmp_path / "run", report=False)
    found = json.loads((folder / "metrics.json").read_text())
    old, new = rows[:180].astype(np.float64), rows[180:].astype(np.float64)
    scale = np.sqrt(old.var(axis=0).mean())
    old, new = ((part - rows[:180].mean(axis=0, dtype=np.float64)) / scale for part in (old, new))
    by_client = []
    for client in range(3):

        def random(round: int, purpose: str, client: int = client) -> np.random.Generator:
            return client_stream(5, client, round, purpose)

        own = old[owners[:180] == client].astype(np.float32)
        settings = LocalNE(**{key: value for key, value in SETTINGS.items() if key != "kind"})
        *_, (weights, _) = epochs_on(own, settings, random)
        among, there = placed(weights, old), placed(weights, new)
        nearest = np.argsort(cdist(there, among), axis=1)[:, :K]
        voted = [np.bincount(labels[:180][row], minlength=3).argmax() for row in nearest]
        high, low = order_of(new), order_of(there)
        by_client.append([np.mean(voted == labels[180:]), intrusion(high, low), intrusion(low, high)])
    wanted = np.mean(by_client, axis=0)
    assert np.ptp(by_client, axis=0).min() > 0.01, "clients differ, or a mean would not show"
    weighted = np.average(by_client, axis=0, weights=SIZES)
    assert np.abs(weighted - wanted).max() > 0.004
    np.testing.assert_allclose([found["federated"][name] for name in names], wanted, atol=2e-3)
    np.testing.assert_allclose(found["federated"]["knn_accuracy"], wanted[0], atol=1e-9)
    assert not (folder / "held_out.parquet").exists(), "no common map has them"


def test_encoders_stay_at_their_clients(
    table: tuple[Path, FloatArray, IntArray, IntArray], tmp_path: Path
) -> None:
    folder = run(read(scenario(table[0], metrics=["knn_accuracy"])), out=tmp_path / "run", report=False)
    entries = {entry["kind"]: entry for entry in json.loads((folder / "ledger.json").read_text())}
    assert entries["OwnEncoder"]["direction"] == "simulation-only"
    assert {kind for kind, entry in entries.items() if entry["direction"] == "up"} >= {"Loss", "Positions"}
    with np.load(folder / "model" / "arrays.npz") as model:
        assert not [name for name in model.files if "encoder" in name]


def test_a_metric_that_one_map_cannot_have_has_no_mean() -> None:
    rows = np.random.default_rng(0).normal(size=(9, 3))
    labels = np.arange(9) % 2
    new = Evidence(rows=rows, embedding=rows[:, :2], labels=labels)
    maps = [
        Evidence(rows=some, embedding=some[:, :2], labels=labels[: len(some)], new=new)
        for some in (rows, rows[:4])
    ]
    found = mean_scores(["knn_accuracy", "new_continuity_2"], iter(maps), threads=1)
    assert set(found.values) == {"new_continuity_2"}
    assert "7 neighbours need at least 7 rows" in found.not_computed["knn_accuracy"]


@pytest.mark.parametrize(
    "more", [{"data": {"target_weight": 0.5}}, {"privacy": {"isometry_key": True}}], ids=["label", "key"]
)
def test_encoders_of_other_columns_place_no_new_rows(
    more: dict[str, Any], table: tuple[Path, FloatArray, IntArray, IntArray]
) -> None:
    with pytest.raises(ScenarioError, match=r"places new rows by the features as they are"):
        read(scenario(table[0], **more))
