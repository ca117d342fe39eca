"""Contrastive neighbour embedding (P2 (1)): attraction along edges, repulsion from negatives.

With the Cauchy kernel phi = 1 / (1 + d^2), attraction is -log(phi) = log(1 + d^2) and repulsion is
-log(1 - phi) = log((1 + d^2) / d^2), which has no bound at d = 0. Here it is log((1 + d^2) / (s + d^2)): with s =
SOFTENING the same but for pairs closer than 0.03, and its gradient is at most 1 / sqrt(s) = 32 long.

Contrastive embedding by negative sampling (Damrich et al. 2023) has phi / (1 + phi) in place of phi: then attraction is
log(2 + d^2) and repulsion log((2 + d^2) / (1 + d^2)). But for a constant that is s = 1/2, on a map in units of sqrt(2).
"""

from __future__ import annotations

import torch
from torch import Tensor

from raydr.methods.fedne.settings import SOFTENING

LEAST_SQUARED = 1e-12
"""Without softening nothing nearer is told apart: single precision rounds places 10 units out by a millionth."""


def attraction(squared: Tensor) -> Tensor:
    """-log(phi) at squared distances, of their shape."""
    return torch.log1p(squared)


def repulsion(squared: Tensor, softening: float = SOFTENING) -> Tensor:
    """-log(1 - phi) at squared distances, of their shape; from 6.9 at distance 0 down to 0 far away.

    As a logarithm of 1 + something, so that far pairs do not lose their digits. Without softening a pair in one place,
    which has no direction to leave each other in, counts as `LEAST_SQUARED` and has no gradient.
    """
    if not softening:
        squared = squared.clamp(min=LEAST_SQUARED)
    return torch.log1p((1.0 - softening) / (softening + squared))


def squared_distance(left: Tensor, right: Tensor) -> Tensor:
    """Squared Euclidean distances over the last axis."""
    return ((left - right) ** 2).sum(dim=-1)
