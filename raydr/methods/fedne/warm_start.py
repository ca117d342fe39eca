"""The warm start: an encoder trained on prototypes by the server alone, before the first round."""

from __future__ import annotations

import numpy as np

from raydr.arrays import Float32Array
from raydr.methods.fedne.edges import local_neighbors, schedule, steps_of
from raydr.methods.fedne.encoder import Architecture, one_torch_thread
from raydr.methods.fedne.training import Local, Objective, train

_PARTS = (0.4, 0.3, 0.3)  # of the batches, each at a lower learning rate


def warm_start(
    architecture: Architecture,
    weights: Float32Array,
    prototypes: Float32Array,
    *,
    neighbors: int,
    batch: int,
    negatives: int,
    mixing: float | None,
    learning_rate: float,
    decay: float,
    steps: int,
    random: np.random.Generator,
) -> Float32Array:
    """Weights (parameters,) after about ``steps`` batches on prototypes (prototypes, features), from ``weights`` on.

    A single prototype, or none, has no neighbours: then the weights stay.
    """
    per_epoch = steps_of(len(prototypes), neighbors, batch)
    if not per_epoch:
        return weights
    nearest = local_neighbors(prototypes, neighbors)
    repelled = Objective(float(negatives), np.ones(1, np.float32))
    with one_torch_thread():
        for index, part in enumerate(_PARTS):
            batches = schedule(
                nearest,
                batch=batch,
                epochs=max(1, round(part * steps / per_epoch)),
                negatives=negatives,
                mixing=mixing,
                random=random,
            )
            rate = learning_rate * decay**index
            trained = train(architecture, weights, [Local(prototypes, batches)], repelled, learning_rate=rate)
            weights = trained.weights[0]
    return weights
