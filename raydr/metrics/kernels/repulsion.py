"""Sums over all rows of a function of the squared distance on the map, with gradient and Hessian.

Places are (3, rows), with a third coordinate of 0 on a plane. Rows of a block are the inner loop, so that one
instruction handles several of them. No fastmath: sums that may be reordered have other bits on other processors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from raydr.arrays import Float64Array
from raydr.compiled import compiled

ROWS = 128
"""Rows per block: 10 KB of sums, which stay in a core's nearest cache while all rows pass."""
SUMS = 10
"""Sums of a row: the function, its gradient (x, y, z), and its Hessian (xx, xy, xz, yy, yz, zz)."""


def _student_sums(at: Float64Array, places: Float64Array, sums: Float64Array) -> None:
    """Fill ``sums`` (`SUMS`, rows) with those of 1 / (1 + u) between places ``at`` (3, rows) and all ``places``."""
    for point in range(places.shape[1]):
        along, across, upwards = places[0, point], places[1, point], places[2, point]
        for row in range(at.shape[1]):
            x, y, z = at[0, row] - along, at[1, row] - across, at[2, row] - upwards
            near = 1.0 / (1.0 + x * x + y * y + z * z)
            slope = -2.0 * near * near
            bend = -4.0 * slope * near
            sums[0, row] += near
            sums[1, row] += slope * x
            sums[2, row] += slope * y
            sums[3, row] += slope * z
            sums[4, row] += slope + bend * x * x
            sums[5, row] += bend * x * y
            sums[6, row] += bend * x * z
            sums[7, row] += slope + bend * y * y
            sums[8, row] += bend * y * z
            sums[9, row] += slope + bend * z * z


def _fuzzy_sums(
    at: Float64Array,
    places: Float64Array,
    a: float,
    b: float,
    bound: float,
    least: float,
    sums: Float64Array,
) -> None:
    """Fill ``sums`` (`SUMS`, rows) with those of -log(1 - 1 / (1 + a u^b) + bound), for u of at least ``least``."""
    for point in range(places.shape[1]):
        along, across, upwards = places[0, point], places[1, point], places[2, point]
        for row in range(at.shape[1]):
            x, y, z = at[0, row] - along, at[1, row] - across, at[2, row] - upwards
            u = max(x * x + y * y + z * z, least)
            power = a * u**b
            near = 1.0 / (1.0 + power)
            free = 1.0 - near + bound
            first = b * power * near / u
            second = (b - 1.0) * first / u - first * first
            one = -first * near / free
            slope = 2.0 * one
            bend = 4.0 * ((first * first - second) * near / free + one * one)
            sums[0, row] -= np.log(free)
            sums[1, row] += slope * x
            sums[2, row] += slope * y
            sums[3, row] += slope * z
            sums[4, row] += slope + bend * x * x
            sums[5, row] += bend * x * y
            sums[6, row] += bend * x * z
            sums[7, row] += slope + bend * y * y
            sums[8, row] += bend * y * z
            sums[9, row] += slope + bend * z * z


_compiled = compiled(error_model="numpy")
student_sums: Callable[..., None] = _compiled(_student_sums)
fuzzy_sums: Callable[..., None] = _compiled(_fuzzy_sums)
