r"""t-SNE's repulsion, summed over all pairs of rows: see :mod:`raydr.embedding.kernels.descent`.

Up to some thousand rows this is faster than a tree or a grid: on one core, an iteration of 1,800 rows takes 4 ms, and
with openTSNE's Barnes-Hut tree 11. Positions are (3, rows), so that one instruction handles several rows. No
fastmath: sums that may be reordered have other bits on other processors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from raydr.arrays import Float64Array
from raydr.compiled import compiled
from raydr.geometry.points import map_threaded, row_blocks

_ROWS = 256
"""Rows per block: 6 KB, which stay in a core's nearest cache while all rows pass."""


def repulsion_by_pairs(layout: Float64Array, threads: int, into: Float64Array) -> float:
    """Fill ``into`` (rows, 2 or 3) with the sum of K(y_i - y_j) (y_i - y_j) over all j, and return Z."""
    rows, dimensions = layout.shape
    points, force = np.zeros((3, rows)), np.zeros((3, rows))
    points[:dimensions] = layout.T

    def repelled(block: tuple[int, int]) -> float:
        return repel(points, *block, force)

    # The sum includes each row's own summand, 1.
    total: float = sum(map_threaded(repelled, row_blocks(rows, _ROWS), threads)) - rows
    into[:] = force[:dimensions].T
    return total


def _repel(points: Float64Array, first: int, last: int, force: Float64Array) -> float:
    """Add the repulsion of rows first:last of ``points`` (3, rows) to ``force`` (3, rows); return their part of Z."""
    xs, ys, zs = points[0, first:last], points[1, first:last], points[2, first:last]
    to_xs, to_ys, to_zs = force[0, first:last], force[1, first:last], force[2, first:last]
    totals = np.zeros(last - first)
    for point in range(points.shape[1]):
        along, across, upwards = points[0, point], points[1, point], points[2, point]
        for row in range(last - first):
            x, y, z = xs[row] - along, ys[row] - across, zs[row] - upwards
            near = 1.0 / (1.0 + x * x + y * y + z * z)
            totals[row] += near
            near *= near
            to_xs[row] += near * x
            to_ys[row] += near * y
            to_zs[row] += near * z
    total = 0.0
    for row in range(last - first):
        total += totals[row]
    return total


repel: Callable[..., float] = compiled(error_model="numpy")(_repel)
