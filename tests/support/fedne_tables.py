"""Tables and settings for tests of FedNE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from raydr.arrays import Float32Array, FloatArray
from raydr.methods.fedne.clients import Training, TrainRequest
from raydr.methods.fedne.encoder import Architecture, initial_weights
from raydr.methods.fedne.pairs import PairRequest

TRAINING = Training(
    hidden=(16, 16),
    neighbors=4,
    batch=32,
    local_epochs=1,
    negatives=5,
    mixing=0.0,
    proximity=0.0,
    most_steps=9,
    rows=129,
    together=False,
)
NO_CONTROL_VARIATES: dict[str, Any] = {
    "control": np.zeros(0, np.float32),
    "kept": np.zeros((0, 0), np.uint8),
    "kept_rounds": np.zeros(0, np.int64),
    "spoken": np.zeros(0, np.float32),
}


def asked_to_train(weights: Float32Array, **given: Any) -> TrainRequest:
    """Ask for training from ``weights`` (parameters,): of rows alone, unless ``given`` says otherwise."""
    alone: dict[str, Any] = {
        "training": TRAINING,
        "learning_rate": 1e-3,
        "field": np.zeros((0, 0), np.float32),
        "reach": 1.0,
        "surrogates": np.zeros((0, 0), np.float32),
        "shares": np.zeros(0, np.float32),
        **NO_CONTROL_VARIATES,
    }
    return TrainRequest(weights=weights, **alone | given)


def blobs(sizes: Sequence[int] = (40, 1, 25, 60, 0, 3), features: int = 5) -> list[FloatArray]:
    """Clients of one cluster each, some tiny: fewer rows than neighbours, one row, none."""
    random = np.random.default_rng(0)
    return [6 * random.normal(size=features) + random.normal(size=(size, features)) for size in sizes]


HIDDEN = (6, 5)
FIELD = np.random.default_rng(3).normal(size=(9, 9)).astype(np.float32)
NO_FIELD = np.zeros((0, 0), np.float32)


def asked_of_pairs(features: int = 3, *, seed: int = 0, **given: Any) -> PairRequest:
    rng = np.random.default_rng(seed)
    architecture = Architecture(features, HIDDEN)
    weights = (
        initial_weights(architecture, rng) + rng.normal(size=architecture.parameters).astype(np.float32) / 4
    )
    told: dict[str, Any] = {
        "weights": weights,
        "hidden": HIDDEN,
        "directions": rng.normal(size=(features, 2)),
        "offsets": rng.uniform(-0.3, 0.3, 2),
        "extent": 1.0,
        "negatives": 5,
        "field": FIELD,
        "reach": 4.0,
        "clip": 0.1,
    }
    return PairRequest(**told | given)
