"""Contrastive neighbour embedding (P2 (1)): attraction along edges, repulsion from negatives.

With the Cauchy kernel phi = 1 / (1 + d^2), attraction is -log(phi) = log(1 + d^2) and repulsion is
-log(1 - phi) = log((1 + d^2) / d^2), which has no bound at d = 0. Here it is log((1 + d^2) / (SOFTENING + d^2)): the
same but for pairs closer than 0.03, and its gradient is at most 1 / sqrt(SOFTENING) = 32 long.
"""

from __future__ import annotations

import torch
from torch import Tensor

SOFTENING = 1e-3
"""What is added to the squared distance under the repulsion's logarithm."""


def attraction(squared: Tensor) -> Tensor:
    """-log(phi) at squared distances, of their shape."""
    return torch.log1p(squared)


def repulsion(squared: Tensor) -> Tensor:
    """-log(1 - phi) at squared distances, of their shape; from 6.9 at distance 0 down to 0 far away.

    As a logarithm of 1 + something, so that far pairs do not lose their digits.
    """
    return torch.log1p((1.0 - SOFTENING) / (SOFTENING + squared))


def squared_distance(left: Tensor, right: Tensor) -> Tensor:
    """Squared Euclidean distances over the last axis."""
    return ((left - right) ** 2).sum(dim=-1)
