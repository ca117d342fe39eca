"""Server steps on the objective (9) of P1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import Float64Array

State = dict[str, NDArray[Any]]


def starting(landmarks: Float64Array, momentum: float) -> State:
    """Return the initial state, which checkpoints save: the landmarks and, with momentum, their velocity."""
    return {"landmarks": landmarks} | ({"velocity": np.zeros_like(landmarks)} if momentum else {})


def descend(state: State, gradient: Float64Array, step: float, momentum: float) -> None:
    """Move the landmarks down the gradient, with Nesterov's rule if there is momentum.

    The velocity v becomes ``momentum v + gradient``, and landmarks move by ``step (gradient + momentum v)``.
    """
    if momentum:
        state["velocity"] = momentum * state["velocity"] + gradient
        gradient = gradient + momentum * state["velocity"]
    state["landmarks"] = state["landmarks"] - step * gradient
