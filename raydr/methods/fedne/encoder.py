"""The encoder f of P2: a fully connected network whose parameters are one flat vector.

Every function accepts leading axes, so that the encoders of several clients are one computation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from raydr.arrays import Float32Array, Float64Array, FloatArray
from raydr.threads import SharedLimit

_CARRIED_DEVIATION = 4.0  # of the first principal component in the network, larger than the random start
_RANDOM_PART = 0.3
_BLOCK_ROWS = 4096  # rows per block of placing: 12 MB at 784 features


@dataclass(frozen=True)
class Architecture:
    """Widths of a network of linear layers with rectified units between them.

    Attributes
    ----------
    features : int
        Width of the input.
    hidden : tuple of int
        Widths of the hidden layers.
    dimensions : int
        Width of the map.

    Examples
    --------
    >>> Architecture(3, (4,)).shapes
    ((3, 4), (1, 4), (4, 2), (1, 2))
    """

    features: int
    hidden: tuple[int, ...]
    dimensions: int = 2

    @cached_property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Shape of each layer's weight (in, out) and offset (1, out), in order."""
        widths = (self.features, *self.hidden, self.dimensions)
        layers = pairwise(widths)
        return tuple(shape for before, after in layers for shape in ((before, after), (1, after)))

    @property
    def sizes(self) -> list[int]:
        """Number of parameters of each of these arrays."""
        return [rows * columns for rows, columns in self.shapes]

    @property
    def parameters(self) -> int:
        """Number of all parameters."""
        return sum(self.sizes)

    def parts(self, weights: Float32Array) -> list[Float32Array]:
        """Return each layer's weight (in, out) and offset (1, out), as views of flat weights (parameters,)."""
        cuts = np.cumsum(self.sizes)[:-1]
        return [part.reshape(shape) for part, shape in zip(np.split(weights, cuts), self.shapes, strict=True)]

    def layers(self, weights: Float32Array) -> dict[str, Float32Array]:
        """Return named arrays of flat weights (parameters,), as torch stores its linear layers: weight is (out, in)."""
        parts = self.parts(weights)
        named: dict[str, Float32Array] = {}
        for layer, (weight, offset) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
            named[f"layers.{layer}.weight"] = np.ascontiguousarray(weight.T)
            named[f"layers.{layer}.bias"] = offset[0].copy()
        return named

    def flat(self, layers: Mapping[str, FloatArray]) -> Float32Array:
        """Return the flat weights (parameters,) of :meth:`layers`."""
        count = len(self.shapes) // 2
        pairs = [
            (layers[f"layers.{layer}.weight"].T, layers[f"layers.{layer}.bias"]) for layer in range(count)
        ]
        return np.concatenate([part.ravel() for pair in pairs for part in pair]).astype(np.float32)


def initial_weights(architecture: Architecture, random: np.random.Generator) -> Float32Array:
    """Draw weights (parameters,) float32, uniform within 1 / sqrt(inputs) of zero, as torch's linear layers start."""
    parts = []
    for (inputs, outputs), (_, offsets) in zip(
        architecture.shapes[::2], architecture.shapes[1::2], strict=True
    ):
        bound = 1.0 / np.sqrt(inputs)
        parts.append(random.uniform(-bound, bound, inputs * outputs + offsets))
    return np.concatenate(parts).astype(np.float32)


def principal_weights(
    architecture: Architecture, axes: Float64Array, deviations: Float64Array, random: np.random.Generator
) -> Float32Array:
    """Return weights (parameters,) float32 of an encoder that starts near the first principal components.

    Two rectified units, relu(x) and relu(-x), carry a component x unchanged from layer to layer. Half of the
    narrowest hidden layer limits the number of components. The first ones become the map, the very first with
    deviation 1. A random start is added, in every unit.

    Parameters
    ----------
    architecture : Architecture
        The encoder. If its hidden layers are too narrow for the map's components, the start is random alone.
    axes : (features, axes) float64
        Principal axes of the rows, the first one first.
    deviations : (axes,) float64
        Standard deviation of the rows along each axis. With fewer axes than map dimensions the start is random alone.
    random : Generator
        Generator of the random part.
    """
    start = initial_weights(architecture, random)
    dimensions = architecture.dimensions
    carried = min([len(deviations), *(width // 2 for width in architecture.hidden)])
    first = float(deviations[0])
    if carried < dimensions or first == 0.0:
        return start
    layers = [_RANDOM_PART * part.astype(np.float64) for part in architecture.parts(start)]
    inward = axes[:, :carried] * (_CARRIED_DEVIATION / first)
    outward = np.eye(carried, dimensions) / _CARRIED_DEVIATION
    if not architecture.hidden:
        layers[0] += inward @ outward
    else:
        one = np.eye(carried)
        layers[0][:, : 2 * carried] += np.hstack([inward, -inward])
        for weight in layers[2:-2:2]:
            weight[: 2 * carried, : 2 * carried] += np.block([[one, -one], [-one, one]])
        layers[-2][: 2 * carried] += np.vstack([outward, -outward])
    return np.concatenate([layer.ravel() for layer in layers]).astype(np.float32)


def encode(architecture: Architecture, weights: Tensor, rows: Tensor) -> Tensor:
    """Return positions (..., rows, dimensions) of rows (..., rows, features) under weights (..., parameters)."""
    parts = torch.split(weights, architecture.sizes, dim=-1)
    hidden = rows
    for layer, (weight, offset) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
        shape = architecture.shapes[2 * layer]
        hidden = torch.matmul(hidden, weight.reshape(*weight.shape[:-1], *shape)) + offset.unsqueeze(-2)
        if layer < len(parts) // 2 - 1:
            hidden = torch.relu(hidden)
    return hidden


def place(architecture: Architecture, weights: Float32Array, rows: FloatArray) -> Float32Array:
    """Return positions (rows, dimensions) float32 of rows (rows, features), block by block on one thread."""
    positions = np.empty((rows.shape[0], architecture.dimensions), np.float32)
    flat = torch.from_numpy(np.array(weights, np.float32))
    with one_torch_thread(), torch.no_grad():
        for start in range(0, rows.shape[0], _BLOCK_ROWS):
            block = np.ascontiguousarray(rows[start : start + _BLOCK_ROWS], np.float32)
            positions[start : start + _BLOCK_ROWS] = encode(architecture, flat, _as_tensor(block)).numpy()
    return positions


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Make torch use one thread inside a ``with`` block: its bits depend on the number of threads."""
    with _ONE_TORCH_THREAD:
        torch.set_num_threads(1)  # a thread that has computed before keeps its own setting
        yield


_ONE_TORCH_THREAD = SharedLimit(torch.get_num_threads, torch.set_num_threads)


def _as_tensor(array: Float32Array) -> Tensor:
    """Return a tensor that shares the array's memory; never write to it."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())
