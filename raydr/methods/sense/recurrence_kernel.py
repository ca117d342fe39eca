"""The compiled inner loop of recurring values: imports numba, and so is imported where it is used."""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np

from raydr.arrays import Float64Array


def _read(
    table: Float64Array, inside: Float64Array, factor: Float64Array, axes: Float64Array, turns: Float64Array
) -> Float64Array:
    """Sums of what a table says at the places of turned rows, one for each turn.

    Column by column, since a column's entries stay in a core's nearest cache while all turns pass.

    Parameters
    ----------
    table : (columns, bins) float64
        Between two bins it is linear, and outside 0.
    inside : (columns, rows) float64
        Places of the rows less their residuals, in bins.
    factor : (width, rows) float64
        Residuals in a client's own directions.
    axes : (columns, codimension) float64
        The directions that the residuals may have, in bins.
    turns : (turns, width, codimension) float64
        Which of them the client's own are.

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


read: Callable[..., Float64Array] = numba.njit(nogil=True, cache=True, error_model="numpy")(_read)
