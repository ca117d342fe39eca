"""The surrogate of P2 (4.1): a network of one hidden layer from a position to a client's mean repulsion.

The networks of all clients are evaluated as one, with their hidden units side by side.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

from raydr.arrays import Float32Array, FloatArray
from raydr.methods.fedne.loss import repulsion, squared_distance
from raydr.methods.fedne.settings import SOFTENING, SURROGATE_UNITS

_PARTS = [2 * SURROGATE_UNITS, SURROGATE_UNITS, SURROGATE_UNITS, 1]
PARAMETERS = sum(_PARTS)
_BATCH = 512


def initial_surrogate(random: np.random.Generator) -> Float32Array:
    """Return parameters (PARAMETERS,) of an untrained surrogate, as torch's linear layers start."""
    inward = random.uniform(-1.0, 1.0, 3 * SURROGATE_UNITS) / np.sqrt(2.0)
    outward = random.uniform(-1.0, 1.0, SURROGATE_UNITS + 1) / np.sqrt(SURROGATE_UNITS)
    return np.concatenate([inward, outward]).astype(np.float32)


def query_grid(positions: FloatArray, step: float, margin: float) -> Float32Array:
    """Return grid points (points, 2) float32 over the rectangle of the positions, plus ``margin`` on all sides."""
    low, high = positions.min(axis=0) - margin, positions.max(axis=0) + margin
    axes = [np.arange(start, stop + step, step) for start, stop in zip(low, high, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2).astype(np.float32)


def targets(
    queries: Float32Array,
    positions: Float32Array,
    negatives: int,
    random: np.random.Generator,
    softening: float = SOFTENING,
) -> Float32Array:
    """Return the mean repulsion (queries,) float32 by ``negatives`` random positions for each query."""
    drawn = positions[random.integers(len(positions), size=(len(queries), negatives))]
    apart = squared_distance(torch.from_numpy(queries).unsqueeze(1), torch.from_numpy(drawn))
    return np.asarray(repulsion(apart, softening).mean(dim=1).numpy())


def fit_surrogate(
    start: Float32Array,
    queries: Float32Array,
    values: Float32Array,
    *,
    epochs: int,
    learning_rate: float,
    random: np.random.Generator,
) -> Float32Array:
    """Return parameters that minimise the mean squared error (P2 (8)) by Adam, from ``start`` on."""
    parameters = torch.from_numpy(start.copy()).requires_grad_()
    optimizer = torch.optim.Adam([parameters], lr=learning_rate, fused=True)
    points, wanted = torch.from_numpy(queries), torch.from_numpy(values)
    for _ in range(epochs):
        order = torch.from_numpy(random.permutation(len(queries)))
        for batch in torch.split(order, _BATCH):
            optimizer.zero_grad()
            inward, offset, outward, last = torch.split(parameters, _PARTS)
            error = _hidden(points[batch], inward, offset) @ outward + last - wanted[batch]
            (error**2).mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return np.asarray(parameters.detach().numpy())


def together(
    parameters: Float32Array, weights: Float32Array, device: str = "cpu"
) -> Callable[[Tensor], Tensor]:
    """Return the weighted sum of surrogates, evaluated in one product.

    A surrogate below 0 counts as 0: repulsion is never negative, but a network is where it did not learn. Rows would
    follow it away without end.

    Parameters
    ----------
    parameters : (surrogates, PARAMETERS) float32
        Parameters of each surrogate.
    weights : (clients, surrogates) float32
        Weight of each surrogate for each client; 0 for its own.
    device : str
        Torch device.

    Returns
    -------
    callable
        From positions (clients, points, 2) to (clients, points).
    """
    networks, counted = (torch.from_numpy(array.copy()).to(device) for array in (parameters, weights))
    inward, offset, outward, last = (part.contiguous() for part in torch.split(networks, _PARTS, dim=-1))
    blocks: Callable[..., Tensor] = torch.block_diag
    wide = blocks(*outward.unsqueeze(-1))  # (units of all surrogates, surrogates)

    def felt(positions: Tensor) -> Tensor:
        values = torch.relu(_hidden(positions, inward, offset) @ wide + last[:, 0])
        return torch.matmul(values, counted.unsqueeze(-1)).squeeze(-1)

    return felt


def _hidden(positions: Tensor, inward: Tensor, offset: Tensor) -> Tensor:
    """Return hidden units (..., points, units) of one or several networks at positions (..., points, 2)."""
    return torch.relu(linear(positions, inward.reshape(-1, 2), offset.reshape(-1)))
