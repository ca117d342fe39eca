"""The field surrogate: the repulsion that everybody's points exert, as a table over the map.

A surrogate of P2 (8) is a function of a position: the expected repulsion from a client's points. Here it is not learnt
but tabulated. Each client spreads its points over the nodes of a common grid (:func:`deposit`); the counts of all
clients add up; the convolution of the sum with the repulsion of one point (:func:`repulsion_field`) is the repulsion
of all of them at every node; between nodes it is interpolated (:func:`interpolated`), gradient included.

Every step is linear in the counts, so the field of a union is the sum of the fields. What is lost are the pushes
between points nearer than the grid's step; within a node's own cell, repulsion is its mean. How much that is at
which step is in docs/fedne.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from raydr.arrays import Float64Array, FloatArray
from raydr.methods.fedne.settings import SOFTENING

MOST_NODES = 1024
"""Along an axis of a grid, whatever size of the map clients claim: 150 units to each side at steps of 0.3; 8 MB."""


@dataclass(frozen=True)
class Grid:
    """Square grid around the origin of the map.

    Attributes
    ----------
    reach : float
        Half its width: nodes lie from ``-reach`` to ``reach`` along both axes.
    nodes : int
        Nodes along an axis, at least 2.

    Examples
    --------
    >>> Grid.covering(5.0, step=0.3).step
    0.29411764705882354
    """

    reach: float
    nodes: int

    @classmethod
    def covering(cls, reach: float, step: float) -> Grid:
        """Return the grid of that reach whose step is at most ``step``, unless that took too many nodes."""
        return cls(reach, min(math.ceil(2.0 * reach / step) + 1, MOST_NODES))

    @property
    def step(self) -> float:
        """Distance of neighbouring nodes."""
        return 2.0 * self.reach / (self.nodes - 1)


def deposit(grid: Grid, positions: FloatArray) -> Float64Array:
    """Counts of positions (rows, 2) at the nodes, (nodes, nodes) float64.

    Each position counts 1, shared among the four nodes around it in proportion to its nearness. One outside the grid
    counts at its edge, so the counts always sum to the number of positions. Shares are multiples of 2^-26, whose sums
    are exact.
    """
    below, part = _located(grid, positions.astype(np.float64))
    counts = np.zeros(grid.nodes * grid.nodes)
    for right in (0, 1):
        for up in (0, 1):
            share = np.abs(1 - right - part[:, 0]) * np.abs(1 - up - part[:, 1])
            node = (below[:, 0] + right) * grid.nodes + below[:, 1] + up
            counts += np.bincount(node, share, minlength=counts.size)
    return counts.reshape(grid.nodes, grid.nodes)


def repulsion_field(grid: Grid, counts: FloatArray, softening: float = SOFTENING) -> Float64Array:
    """Summed repulsion (nodes, nodes) float64 of so many points at each node, felt at each node."""
    from scipy.fft import irfft2, next_fast_len, rfft2

    size = next_fast_len(2 * grid.nodes - 1, real=True)
    felt = irfft2(rfft2(counts, (size, size)) * _kernel(grid, size, softening), (size, size))
    return np.asarray(felt[: grid.nodes, : grid.nodes])


def interpolated(grid: Grid, field: Tensor, positions: Tensor) -> Tensor:
    """Field (nodes, nodes) at positions (..., 2), bilinear, as (...).

    Or each of some fields (clients, nodes, nodes) at positions of its own, (clients, points, 2).

    Outside the grid it is constant, so nothing pulls or pushes there. The gradient is that of the interpolant, exactly.
    """
    scaled = ((positions + grid.reach) / grid.step).clamp(0.0, grid.nodes - 1.0)
    below = scaled.detach().floor().clamp(max=grid.nodes - 2.0)
    part = scaled - below
    node = (below[..., 0] * grid.nodes + below[..., 1]).long()
    if field.dim() == 3:
        node = node + grid.nodes**2 * torch.arange(len(field), device=node.device)[:, None]
    flat = field.reshape(-1)
    corners = [flat[node + offset] for offset in (0, 1, grid.nodes, grid.nodes + 1)]
    across, along = part[..., 0], part[..., 1]
    left = corners[0] + (corners[1] - corners[0]) * along
    right = corners[2] + (corners[3] - corners[2]) * along
    return left + (right - left) * across


def as_field(field: FloatArray) -> Tensor:
    """A table as training reads it: float32, which resolves it to a part in ten million."""
    return torch.from_numpy(field.astype(np.float32))


def _located(grid: Grid, positions: Float64Array) -> tuple[np.ndarray, Float64Array]:
    """Node below each position along both axes, and how far between it and the next it lies, in 8192nds of a step."""
    scaled = np.clip((positions + grid.reach) / grid.step, 0.0, grid.nodes - 1.0)
    scaled = np.rint(2.0**13 * scaled) * 2.0**-13
    below = np.minimum(np.floor(scaled), grid.nodes - 2.0)
    return below.astype(np.int64), scaled - below


@lru_cache(maxsize=4)
def _kernel(grid: Grid, size: int, softening: float) -> np.ndarray:
    """Transform of the repulsion of one point at node 0, periodic in ``size`` nodes."""
    from scipy.fft import rfft2

    offset = np.minimum(np.arange(size), size - np.arange(size)) * grid.step
    squared = offset[:, None] ** 2 + offset**2
    squared[0, 0] = 1.0  # the node's own cell is below
    table = np.log1p((1.0 - softening) / (softening + squared))
    inside = (np.arange(64) + 0.5) / 64 - 0.5
    cell = (inside[:, None] ** 2 + inside**2) * grid.step**2
    table[0, 0] = np.log1p((1.0 - softening) / (softening + cell)).mean()
    return np.asarray(rfft2(table))
