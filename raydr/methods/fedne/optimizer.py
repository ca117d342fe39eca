"""Server optimisers of the clients' mean change: P2 (4), or a step with momentum (Reddi et al. 2021).

The change acts as a negative gradient. FedAvg adds it. FedAvgM adds a decaying sum of all changes. Nesterov's
momentum adds the change and that sum as it will have decayed by the next round. FedAdam divides a decaying
mean by the root of the decaying mean square.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import numpy as np

from raydr.arrays import Float32Array, Float64Array

ServerOptimizer: TypeAlias = Literal["fedavg", "fedavgm", "fedadam", "nesterov"]

MOMENTUM, SECOND_DECAY = 0.9, 0.99
NESTEROV_MOMENTUM = 0.8
"""Decay of Nesterov's sum; in the end a change counts five times."""
ADAPTIVITY = 1e-3
"""tau of FedAdam: smaller changes of a parameter are not amplified."""
_LEAST_ROOT = 1e-8


def initial_memory(parameters: int) -> Float64Array:
    """Return the optimiser's state before the first round, (2, parameters): the two means."""
    return np.zeros((2, parameters))


def server_step(
    optimizer: ServerOptimizer,
    weights: Float32Array,
    change: Float64Array,
    memory: Float64Array,
    learning_rate: float,
) -> tuple[Float32Array, Float64Array]:
    """Return weights (parameters,) after a round, and the state for the next.

    Parameters
    ----------
    optimizer : {"fedavg", "fedavgm", "fedadam", "nesterov"}
        The optimiser.
    weights : (parameters,) float32
        Weights at the start of the round.
    change : (parameters,) float64
        Weighted mean of the clients' changes.
    memory : (2, parameters) float64
        State of the round before.
    learning_rate : float
        Learning rate of the server.
    """
    first, second = memory
    match optimizer:
        case "fedavg":
            step = change
        case "fedavgm":
            first = step = MOMENTUM * first + change
        case "nesterov":
            first = NESTEROV_MOMENTUM * first + change
            step = NESTEROV_MOMENTUM * first + change
        case "fedadam":
            first = MOMENTUM * first + (1.0 - MOMENTUM) * change
            second = SECOND_DECAY * second + (1.0 - SECOND_DECAY) * change**2
            step = first / (np.sqrt(second) + ADAPTIVITY)
    return (weights + learning_rate * step).astype(np.float32), np.stack([first, second])


def adam_step(
    weights: Float32Array, gradient: Float64Array, memory: Float64Array, round: int, learning_rate: float
) -> tuple[Float32Array, Float64Array]:
    """Return weights (parameters,) after Adam's step down a mean gradient, and both means for the next step.

    See `server_step`. ``round`` counts from 1, for the bias correction of the means (Kingma & Ba 2015).
    """
    first = MOMENTUM * memory[0] + (1.0 - MOMENTUM) * gradient
    second = SECOND_DECAY * memory[1] + (1.0 - SECOND_DECAY) * gradient**2
    mean, square = first / (1.0 - MOMENTUM**round), second / (1.0 - SECOND_DECAY**round)
    step = learning_rate * mean / (np.sqrt(square) + _LEAST_ROOT)
    return (weights + step).astype(np.float32), np.stack([first, second])


def stepped_rate(round: int, rounds: int, first: float, factor: float) -> float:
    """Return the clients' learning rate in a round: ``first``, times ``factor`` after 30%, again after 60% (P2 A.1).

    ``round`` counts from 1.

    >>> [round(stepped_rate(at, 10, 1.0, 0.1), 2) for at in (1, 3, 4, 6, 7, 10)]
    [1.0, 1.0, 0.1, 0.1, 0.01, 0.01]
    """
    done = (round - 1) / rounds
    return float(first * factor ** (int(done >= 0.3) + int(done >= 0.6)))


def cosine_rate(round: int, rounds: int, first: float) -> float:
    """Return the clients' learning rate in a round: from ``first`` along half a cosine towards 0.

    ``round`` counts from 1.

    >>> [round(cosine_rate(at, 4, 1.0), 2) for at in (1, 2, 3, 4)]
    [1.0, 0.85, 0.5, 0.15]
    """
    return first * 0.5 * (1.0 + math.cos(math.pi * (round - 1) / rounds))
