"""Runs onto whose maps rows of other sites are placed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tiny import tiny_run

from raydr.data import Table, load

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


@cache
def irises() -> Table:
    """Iris, off its grid: there a mean of five rows may be a row."""
    table = load(source="iris")
    noise = np.random.default_rng(0).normal(scale=0.01, size=table.rows.shape)
    return replace(table, rows=table.rows + noise)
