r"""t-SNE of one site's points: affinities, forces and steps (van der Maaten & Hinton 2008).

With :math:`w_{ij} = 1 / (1 + |y_i - y_j|^2)` and :math:`q_{ij} = w_{ij} / \sum_{kl} w_{kl}`, the divergence
:math:`\sum_{ij} p_{ij} \log(p_{ij} / q_{ij})` has the gradient

.. math:: 4 \sum_j (p_{ij} - q_{ij}) w_{ij} (y_i - y_j),

The force here is a quarter of it, as in openTSNE, so openTSNE's learning rates apply.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from raydr.arrays import Float64Array
from raydr.embedding.placing import conditional
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points

MOMENTUM = 0.8
LEAST_GAIN = 0.01
LONGEST_STEP = 5.0
"""All three constants are openTSNE's."""


def affinities(points: Float64Array, perplexity: float) -> Any:
    """Return joint affinities p of points (points, features), a symmetric csr_array (points, points) with sum 1."""
    from scipy.sparse import csr_array

    count = len(points)
    graph = nearest_neighbors(Points(points), min(max(1, int(3 * perplexity)), count - 1), threads=1)
    shares = conditional(graph.distances.astype(np.float64), perplexity)
    starts = np.arange(count + 1) * graph.k
    directed = csr_array((shares.ravel(), graph.indices.ravel(), starts), shape=(count, count))
    joint = csr_array(directed + directed.T)
    joint.sort_indices()
    joint.data /= joint.data.sum()
    return joint


def forces(joint: Any, places: Float64Array, exaggeration: float) -> tuple[Float64Array, float]:
    """Return the force on each position (points, dimensions), and the divergence without exaggeration."""
    from raydr.embedding.kernels.student import nearness, pull, repel

    spatial = np.zeros((3, len(places)))
    spatial[: places.shape[1]] = places.T
    counts, force = np.ones(len(places)), np.zeros_like(spatial)
    whole = nearness(counts, spatial)
    pull(joint.indptr, joint.indices, joint.data, exaggeration, spatial, spatial, force)
    repel(counts, 1.0 / whole, spatial, spatial, force)
    apart = spatial[:, np.repeat(np.arange(len(places)), np.diff(joint.indptr))] - spatial[:, joint.indices]
    there = joint.data > 0.0
    near = np.log(joint.data[there] * whole * (1.0 + (apart**2).sum(axis=0)[there]))
    return np.ascontiguousarray(force[: places.shape[1]].T), float(joint.data[there] @ near)


@dataclass(frozen=True)
class Moving:
    """Positions that follow forces: all (points, dimensions) float64.

    Attributes
    ----------
    places, change, gains : array
        Positions, their last change, and the gain of each coordinate.
    """

    places: Float64Array
    change: Float64Array
    gains: Float64Array

    @classmethod
    def at(cls, places: Float64Array) -> Moving:
        """Return positions at rest."""
        return cls(places, np.zeros_like(places), np.ones_like(places))

    def stepped(self, force: Float64Array, rate: float) -> Self:
        """Return the state after a step against a force, with delta-bar-delta and momentum."""
        turned = np.sign(self.change) != np.sign(force)
        gains = np.maximum(np.where(turned, self.gains + 0.2, self.gains * 0.8), LEAST_GAIN)
        change = MOMENTUM * self.change - rate * gains * force
        length = np.linalg.norm(change, axis=1, keepdims=True)
        change *= np.minimum(1.0, LONGEST_STEP / np.maximum(length, LONGEST_STEP))
        return replace(self, places=self.places + change, change=change, gains=gains)
