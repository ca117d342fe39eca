"""What every method owes new rows: a place that is theirs alone, near rows like them, and no mapped row kept for it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from tiny import tiny_run

import raydr
from raydr.arrays import FloatArray
from raydr.data import Table, load
from raydr.methods import METHODS
from raydr.scenarios.model import KEYED, read_model
from raydr.scenarios.transforming import place
from raydr.statistics.scaling import Scaling, scale_rows

SHORT: dict[str, Any] = {"early_iterations": 50, "iterations": 50, "perplexity": 10}
DRAWN: dict[str, Any] = {"kind": "tsne", **SHORT}
ENCODED: dict[str, Any] = {"rounds": 3, "hidden": [16], "local_epochs": 2}
LEARNT: dict[str, Any] = {"landmarks_from": "learnt", "landmarks": 20, "rounds": 3}
CASES: dict[str, dict[str, Any]] = {
    "fed-tsne": {"method": {"kind": "fed-tsne", **SHORT}},
    "fed-tsne, learnt landmarks": {"method": {"kind": "fed-tsne", **LEARNT, **SHORT}},
    "fed-tsne, nystrom": {"method": {"kind": "fed-tsne", "estimator": "nystrom", **LEARNT, **SHORT}},
    "fed-tsne, nystrom-squared": {
        "method": {"kind": "fed-tsne", "estimator": "nystrom-squared", **LEARNT, **SHORT}
    },
    "fed-tsne, keyed": {
        "method": {"kind": "fed-tsne", **LEARNT, **SHORT},
        "privacy": {"isometry_key": True, "secret": "secret"},
    },
    "fed-tsne, noisy": {
        "method": {"kind": "fed-tsne", **SHORT},
        "privacy": {"noise": {"on": "data", "level": 0.1}},
    },
    "fed-umap": {"method": {"kind": "fed-umap", "epochs": 50}},
    "fed-spectral": {"method": {"kind": "fed-spectral", "clusters": 3, "embedder": DRAWN}},
    "fed-spectral, umap": {
        "method": {"kind": "fed-spectral", "clusters": 3, "embedder": {"kind": "umap", "epochs": 50}}
    },
    "sense": {"method": {"kind": "sense", "anchors": 6, "embedder": DRAWN}},
    "sense, pointwise": {
        "method": {"kind": "sense", "anchors": 6, "regime": "pointwise", "embedder": DRAWN},
        "clients": {"partition": {"kind": "pointwise"}},
    },
    "sense, partial": {
        "method": {
            "kind": "sense",
            "anchors": 12,
            "visibility": "partial",
            "anchor_source": "random",
            "embedder": DRAWN,
        }
    },
    "sense, noisy distances": {
        "method": {"kind": "sense", "anchors": 6, "embedder": DRAWN},
        "privacy": {"noise": {"on": "distances", "level": 0.05}},
    },
    "sense, phate": {"method": {"kind": "sense", "anchors": 6, "embedder": "phate"}},
    "sense, cne": {"method": {"kind": "sense", "anchors": 6, "embedder": {"kind": "cne", "epochs": 20}}},
    "sense, hyperbolic": {
        "method": {
            "kind": "sense",
            "anchors": 8,
            "geometry": "hyperbolic",
            "anchor_source": "random",
            "embedder": DRAWN,
        }
    },
    "sense, hyperbolic in the disk": {
        "method": {
            "kind": "sense",
            "anchors": 8,
            "geometry": "hyperbolic",
            "anchor_source": "random",
            "embedder": {"kind": "cosne", "iterations": 100},
        }
    },
    "fedne": {"method": {"kind": "fedne", **ENCODED}},
    "fedavg-ne": {"method": {"kind": "fedavg-ne", **ENCODED}},
    "fedprox-ne": {"method": {"kind": "fedprox-ne", **ENCODED}},
    "global-ne": {"method": {"kind": "global-ne", **ENCODED}},
    "landmark-ne": {"method": {"kind": "landmark-ne", **ENCODED}},
    "private-map": {"method": {"kind": "private-map", "epsilon": 100.0, "clip": 10.0, **SHORT}},
    "fed-pca": {"method": {"kind": "fed-pca"}},
    "dsne": {"method": {"kind": "dsne", "reference_rows": 30, **SHORT}, "rows": 120},
}
"""Each method, and each of its settings that places new rows otherwise."""
LOOSE = {"fed-tsne, nystrom", "private-map", "dsne", "sense, noisy distances", "fed-tsne, noisy"}
"""Whose places are rough by noise, by an estimate that is no metric, or by few reference rows."""


@cache
def folder_of(case: str, root: Path) -> Path:
    sections: dict[str, Any] = {"metrics": [], **CASES[case]}
    np.savez(root / "irises.npz", X=irises().rows, y=load(source="iris").labels)
    sections["data"] = {"path": str(root / "irises.npz"), "rows": sections.pop("rows", 150)}
    if "secret" in sections.get("privacy", {}):
        (root / "secret").write_bytes(bytes(range(32)))
        (root / "secret").chmod(0o600)
        sections["privacy"] = {**sections["privacy"], "secret": str(root / "secret")}
    return tiny_run(root / case.replace(", ", "-").replace(" ", "-"), **sections)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@cache
def irises() -> Table:
    """Iris, off its grid: there a mean of five rows may be a row."""
    table = load(source="iris")
    noise = np.random.default_rng(0).normal(scale=0.01, size=table.rows.shape)
    return replace(table, rows=table.rows + noise)


def test_every_method_that_takes_new_rows_is_here() -> None:
    able = {name for name, method in METHODS.items() if method.transform is not None}
    assert able - {"central"} == {str(case["method"]["kind"]) for case in CASES.values()}


def test_a_rows_place_is_its_own(case: str, root: Path) -> None:
    """The same bits in whatever order and company: alone, in a batch of 7, or backwards."""
    folder, table = folder_of(case, root), irises()
    places = place(folder, table)
    backwards = np.arange(len(table.rows))[::-1]
    np.testing.assert_array_equal(place(folder, table.take(backwards)), places[backwards])
    for rows in ([140], list(range(7)), [3, 149, 60]):
        np.testing.assert_array_equal(place(folder, table.take(np.array(rows))), places[rows])


def test_a_row_that_was_mapped_lands_near_its_place(case: str, root: Path) -> None:
    folder = folder_of(case, root)
    mapped = raydr.Result(folder)
    ids = mapped.to_frame("pyarrow")["row"].to_numpy()
    places = place(folder, irises().take(ids))
    far = cdist(places, mapped.embedding)
    nearer = (far < np.diagonal(far)[:, None]).mean(axis=1)  # rows of the map nearer to it than its own place
    assert np.median(nearer) < (0.25 if case in LOOSE else 0.1)


def test_no_row_that_was_mapped_is_kept(case: str, root: Path) -> None:
    """Nor scaled: references are means of five and more, or rows that are public."""
    folder = folder_of(case, root)
    model = read_model(folder)
    ids = raydr.Result(folder).to_frame("pyarrow")["row"].to_numpy()
    rows = irises().take(ids).rows
    scaled = rows if KEYED in model.arrays else scale_rows(rows, Scaling.of(model.arrays, "none"))
    for name, values in model.arrays.items():
        if values.ndim == 2 and values.shape[1] == rows.shape[1]:
            assert not equal_rows(values, np.concatenate([rows, scaled])), name


def equal_rows(some: FloatArray, others: FloatArray) -> bool:
    """Whether any of some rows is one of the others, to single precision."""
    return bool((cdist(some.astype(np.float64), others.astype(np.float64)) < 1e-6).any())
