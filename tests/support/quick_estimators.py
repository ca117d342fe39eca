"""Parameters with which each estimator is quick."""

from __future__ import annotations

from typing import Any

SHORT: dict[str, Any] = {"early_iterations": 5, "iterations": 5}
DRAWN: dict[str, Any] = {"embedder": {"kind": "tsne", **SHORT}}
ENCODED: dict[str, Any] = {"rounds": 1, "hidden": (4,), "local_epochs": 1}
QUICK: dict[str, dict[str, Any]] = {
    "FedTSNE": {"landmarks": 5, "rounds": 1, **SHORT},
    "FedUMAP": {"landmarks": 5, "rounds": 1, "epochs": 5},
    "FedSpectralClustering": {"clusters": 3, "landmarks": 6, "rounds": 1, **DRAWN},
    "SENSE": {"anchors": 4, **DRAWN},
    "DSNE": SHORT.copy(),
    "FedPCA": {},
    "FedNE": ENCODED,
    "FedAvgNE": ENCODED,
    "FedProxNE": ENCODED,
    "LocalNE": ENCODED,
    "GlobalNE": ENCODED,
    "LandmarkNE": ENCODED,
    "PrivateMap": {"epsilon": 100.0, "clip": 10.0, "placing_iterations": 5, **SHORT},
}
"""What makes each of them quick."""
