"""The warm start: the server trains an encoder on prototypes alone, before the first round."""

from __future__ import annotations

import numpy as np

from raydr.arrays import Float32Array
from raydr.methods.fedne.edges import local_neighbors, schedule, steps_of
from raydr.methods.fedne.encoder import Architecture, one_torch_thread
from raydr.methods.fedne.settings import ContrastiveEncoder
from raydr.methods.fedne.training import Local, Objective, train

_PARTS = (0.4, 0.3, 0.3)  # shares of the batches, each at a lower learning rate


def warm_start(
    architecture: Architecture,
    weights: Float32Array,
    prototypes: Float32Array,
    settings: ContrastiveEncoder,
    random: np.random.Generator,
    *,
    steps: int,
    mixing: float | None,
) -> Float32Array:
    """Train ``weights`` (parameters,) for about ``steps`` batches on prototypes (prototypes, features).

    With one prototype or none, there are no neighbours, and the weights stay.
    """
    per_epoch = steps_of(len(prototypes), settings.neighbors, settings.batch)
    if not per_epoch:
        return weights
    nearest = local_neighbors(prototypes, settings.neighbors)
    repelled = Objective(float(settings.negatives), np.ones(1, np.float32), softening=settings.softening)
    with one_torch_thread():
        for index, part in enumerate(_PARTS):
            batches = schedule(
                nearest,
                batch=settings.batch,
                epochs=max(1, round(part * steps / per_epoch)),
                negatives=settings.negatives,
                mixing=mixing,
                from_rows=settings.negatives_from == "rows",
                random=random,
            )
            rate = settings.learning_rate * settings.decay**index
            trained = train(
                architecture,
                weights,
                [Local(prototypes, batches)],
                repelled,
                learning_rate=rate,
                floor=settings.adam_floor,
            )
            weights = trained.weights[0]
    return weights
