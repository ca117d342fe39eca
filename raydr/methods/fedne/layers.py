"""The encoder in exact products: the result for a row depends on that row alone, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from raydr.arrays import Float32Array, Float64Array, FloatArray
from raydr.fixed_point import GridMatrix, shortened

if TYPE_CHECKING:
    from raydr.methods.fedne.encoder import Architecture

REACH = 2.0**20
"""Norm to which rows are clipped, in units of their deviation: far beyond any useful value."""
_LARGEST = 2.0**100
"""Largest activation, so that products of several of that size are finite."""


@dataclass(frozen=True)
class GridLayer:
    """One layer of an encoder.

    Attributes
    ----------
    forward, backward : GridMatrix
        Its weight (in, out), and the transpose.
    offset : (1, out) float64
    """

    forward: GridMatrix
    backward: GridMatrix
    offset: Float64Array


def grid_layers(architecture: Architecture, weights: Float32Array) -> list[GridLayer]:
    """Return the layers of flat weights (parameters,), rounded so that products with them are exact."""
    parts = [part.astype(np.float64) for part in architecture.parts(weights)]
    return [
        GridLayer(GridMatrix.of(weight), GridMatrix.of(weight.T), offset)
        for weight, offset in zip(parts[::2], parts[1::2], strict=True)
    ]


def activations_of(rows: FloatArray, layers: list[GridLayer]) -> list[Float64Array]:
    """Return the input of each layer (rows, width), and the output last."""
    hidden = REACH * shortened(rows, REACH)
    found = [hidden]
    for number, layer in enumerate(layers, 1):
        hidden = layer.forward.product(hidden) + layer.offset
        np.clip(hidden, -_LARGEST if number == len(layers) else 0.0, _LARGEST, out=hidden)
        found.append(hidden)
    return found
