"""Compiled inner loop of recurring values. It imports numba, so import this module where it is used."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from raydr.arrays import Float64Array
from raydr.compiled import compiled


def _read(
    table: Float64Array, inside: Float64Array, factor: Float64Array, axes: Float64Array, turns: Float64Array
) -> Float64Array:
    """Sum a table's values at the positions of rotated rows, for each rotation.

    Column by column, because a column's entries stay in a core's nearest cache while all rotations pass.

    Parameters
    ----------
    table : (columns, bins) float64
        Linear between two bins, and 0 outside.
    inside : (columns, rows) float64
        Positions of the rows without their residuals, in bins.
    factor : (width, rows) float64
        Residuals in a client's own directions.
    axes : (columns, codimension) float64
        Possible directions of residuals, in bins.
    turns : (turns, width, codimension) float64
        Rotations from the client's own directions to these.

    Returns
    -------
    (turns,) float64
    """
    count, width, _ = turns.shape
    last = table.shape[1] - 1
    sums, axis = np.zeros(count), np.empty(width)
    for column in range(table.shape[0]):
        entries, still = table[column], inside[column]
        for turn in range(count):
            for direction in range(width):
                axis[direction] = (turns[turn, direction] * axes[column]).sum()
            total = 0.0
            for row in range(still.shape[0]):
                place = still[row]
                for direction in range(width):
                    place += factor[direction, row] * axis[direction]
                if 0.0 <= place < last:
                    below = int(place)
                    lower = entries[below]
                    total += lower + (place - below) * (entries[below + 1] - lower)
            sums[turn] += total
    return sums


read: Callable[..., Float64Array] = compiled(error_model="numpy")(_read)
