"""Server steps on the objective (9) of P1."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from raydr.arrays import Float64Array


@dataclass(kw_only=True, frozen=True)
class Descent:
    """Landmarks (landmarks, features) float64, and with momentum their velocity, of the same shape."""

    landmarks: Float64Array
    velocity: Float64Array | None

    @classmethod
    def at(cls, landmarks: Float64Array, momentum: float) -> Descent:
        """Return landmarks at rest."""
        return cls(landmarks=landmarks, velocity=np.zeros_like(landmarks) if momentum else None)

    def stepped(self, gradient: Float64Array, step: float, momentum: float) -> Descent:
        """Move the landmarks down the gradient, with Nesterov's rule if there is momentum.

        The velocity v becomes ``momentum v + gradient``, and landmarks move by ``step (gradient + momentum v)``.
        """
        if self.velocity is None:
            return replace(self, landmarks=self.landmarks - step * gradient)
        velocity = momentum * self.velocity + gradient
        return Descent(landmarks=self.landmarks - step * (gradient + momentum * velocity), velocity=velocity)
