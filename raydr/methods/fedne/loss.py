"""Contrastive neighbour embedding (P2 (1)): attraction along edges, repulsion from negatives.

With the Cauchy kernel phi = 1 / (1 + d^2), attraction is -log(phi) = log(1 + d^2) and repulsion is -log(1 -
phi) = log((1 + d^2) / d^2), which has no bound at d = 0. Here it is log((1 + d^2) / (s + d^2)). With s =
SOFTENING it differs only for pairs closer than 0.03, and its gradient has norm at most 1 / sqrt(s) = 32.

Contrastive embedding by negative sampling (Damrich et al. 2023) uses phi / (1 + phi) instead of phi:
attraction is then log(2 + d^2) and repulsion log((2 + d^2) / (1 + d^2)). Up to a constant this is s = 1/2, on
a map in units of sqrt(2).
"""

from __future__ import annotations

import torch
from torch import Tensor

from raydr.methods.fedne.settings import SOFTENING

LEAST_SQUARED = 1e-12
"""Smallest squared distance without softening: single precision rounds positions 10 units out by a millionth."""


def attraction(squared: Tensor) -> Tensor:
    """Return -log(phi) at squared distances, of the same shape."""
    return torch.log1p(squared)


def repulsion(squared: Tensor, softening: float = SOFTENING) -> Tensor:
    """Return -log(1 - phi) at squared distances, of the same shape; from 6.9 at distance 0 down to 0 far away.

    It is computed as a logarithm of 1 + x, so that distant pairs keep their digits. Without softening, a pair
    at one point has no direction in which to separate; it counts as `LEAST_SQUARED` and has no gradient.
    """
    if not softening:
        squared = squared.clamp(min=LEAST_SQUARED)
    return torch.log1p((1.0 - softening) / (softening + squared))


def squared_distance(left: Tensor, right: Tensor) -> Tensor:
    """Return squared Euclidean distances over the last axis."""
    return ((left - right) ** 2).sum(dim=-1)
