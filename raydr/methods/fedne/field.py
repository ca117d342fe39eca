"""The field surrogate: the repulsion by the points of all clients, as a table over the map.

A surrogate of P2 (8) is a function of a position: the expected repulsion from a client's points. Here it is
tabulated instead of learnt:

1. Each client spreads its points over the nodes of a common grid (:func:`deposit`), and the counts are summed
over clients.
2. The sum is convolved with the repulsion of one point (:func:`repulsion_field`), which gives the repulsion
at every node.
3. Between nodes the table is interpolated (:func:`interpolated`), gradient included.

Every step is linear in the counts, so the field of a union is the sum of the fields. Repulsion between points
closer than the grid's step is lost; within a node's own cell it is replaced by its mean. docs/fedne.md has
the loss for several steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from raydr.arrays import Float32Array, Float64Array, FloatArray
from raydr.methods.fedne.settings import SOFTENING

GRID_STEP = 0.3
"""Default step of a grid, in map units (P2 B.3)."""
USUAL_NODES = 128
"""Nodes along an axis of a grid without a given step: 19 units to each side at steps of 0.3. A larger map has wider
steps. *Measured* on heart disease with 9 columns, whose map reaches 52 to 63 units, three seeds: 44 MB from clients in
place of 174 to 220, and NPA-10 0.381 in place of 0.380."""
MOST_NODES = 1024
"""Nodes along an axis of a grid of a given step, however large a map clients claim; 8 MB."""


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
    def covering(cls, reach: float, step: float | None = None) -> Grid:
        """Return the grid of that reach whose step is at most ``step``, if :data:`MOST_NODES` allows.

        Without a step, it is :data:`GRID_STEP` if :data:`USUAL_NODES` allow.
        """
        most = USUAL_NODES if step is None else MOST_NODES
        return cls(reach, min(math.ceil(2.0 * reach / (step or GRID_STEP)) + 1, most))

    @property
    def step(self) -> float:
        """Distance between neighbouring nodes."""
        return 2.0 * self.reach / (self.nodes - 1)

    def centre(self, counts: FloatArray) -> Float32Array:
        """Return the mean position (2,) float32 of the points counted at the nodes, (nodes, nodes)."""
        total = float(counts.sum())
        if total <= 0.0:
            return np.zeros(2, np.float32)
        at = np.linspace(-self.reach, self.reach, self.nodes)
        return np.array([(counts * at[:, None]).sum(), (counts * at).sum()], np.float32) / np.float32(total)


def deposit(grid: Grid, positions: FloatArray) -> Float64Array:
    """Count positions (rows, 2) at the nodes, (nodes, nodes) float64.

    Each position counts 1, shared among the four nodes around it in proportion to its nearness. A position
    outside the grid counts at its edge, so the counts always sum to the number of positions. Shares are
    multiples of 2^-26, whose sums are exact.
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
    """Return the summed repulsion (nodes, nodes) float64 at each node, given the number of points at each node."""
    from scipy.fft import irfft2, next_fast_len, rfft2

    size = next_fast_len(2 * grid.nodes - 1, real=True)
    felt = irfft2(rfft2(counts, (size, size)) * _kernel(grid, size, softening), (size, size))
    return np.asarray(felt[: grid.nodes, : grid.nodes])


def interpolated(grid: Grid, field: Tensor, positions: Tensor) -> Tensor:
    """Interpolate a field (nodes, nodes) at positions (..., 2), bilinearly, as (...).

    Also accepts one field per client (clients, nodes, nodes) with positions (clients, points, 2).

    Outside the grid the field is constant, so nothing attracts or repels there. The gradient is exactly that
    of the interpolant.
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
    """Convert a table for training to float32, with a relative resolution of 1e-7."""
    return torch.from_numpy(field.astype(np.float32))


def _located(grid: Grid, positions: Float64Array) -> tuple[np.ndarray, Float64Array]:
    """Return the node below each position along both axes, and the offset from it in 1/8192 of a step."""
    scaled = np.clip((positions + grid.reach) / grid.step, 0.0, grid.nodes - 1.0)
    scaled = np.rint(2.0**13 * scaled) * 2.0**-13
    below = np.minimum(np.floor(scaled), grid.nodes - 2.0)
    return below.astype(np.int64), scaled - below


@lru_cache(maxsize=4)
def _kernel(grid: Grid, size: int, softening: float) -> np.ndarray:
    """Return the Fourier transform of the repulsion of one point at node 0, periodic in ``size`` nodes."""
    from scipy.fft import rfft2

    offset = np.minimum(np.arange(size), size - np.arange(size)) * grid.step
    squared = offset[:, None] ** 2 + offset**2
    squared[0, 0] = 1.0  # the node's own cell is set below
    table = np.log1p((1.0 - softening) / (softening + squared))
    inside = (np.arange(64) + 0.5) / 64 - 0.5
    cell = (inside[:, None] ** 2 + inside**2) * grid.step**2
    table[0, 0] = np.log1p((1.0 - softening) / (softening + cell)).mean()
    return np.asarray(rfft2(table))
