r"""t-SNE forces on rows that move among fixed points; the force on a row does not depend on the other rows.

With the Student kernel :math:`w_{ij} = 1 / (1 + |y_i - z_j|^2)`, rows :math:`y` are pulled to points :math:`z` by
:math:`\sum_j p_{ij} w_{ij} (y_i - z_j)` and repelled by :math:`\sum_j c_j w_{ij}^2 (y_i - z_j)`.

Positions are (3, points), with a third coordinate of 0 on a plane, so that one instruction handles several rows. A pair
takes 1.3 ns, compared with 6.9 if rows are read from their array each time. No fastmath: sums that may be reordered
have other bits on other processors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from raydr.arrays import Float64Array, IntArray
from raydr.compiled import compiled

_ROWS = 256
"""Rows per block: 6 KB, which stay in a core's nearest cache while all points pass."""


def _pull(
    starts: IntArray,
    columns: IntArray,
    affinities: Float64Array,
    scale: float,
    rows: Float64Array,
    points: Float64Array,
    force: Float64Array,
) -> None:
    """Add ``scale`` times the pull of sparse affinities, in compressed sparse rows, to ``force`` (3, rows)."""
    for row in range(rows.shape[1]):
        along = across = upwards = 0.0
        for place in range(starts[row], starts[row + 1]):
            point = columns[place]
            x, y = rows[0, row] - points[0, point], rows[1, row] - points[1, point]
            z = rows[2, row] - points[2, point]
            weight = affinities[place] / (1.0 + x * x + y * y + z * z)
            along += weight * x
            across += weight * y
            upwards += weight * z
        force[0, row] += scale * along
        force[1, row] += scale * across
        force[2, row] += scale * upwards


def _repel(
    counts: Float64Array, scale: float, rows: Float64Array, points: Float64Array, force: Float64Array
) -> None:
    """Subtract ``scale`` times the repulsion of points, weighted by ``counts`` (points,), from ``force`` (3, rows)."""
    for start in range(0, rows.shape[1], _ROWS):
        stop = min(start + _ROWS, rows.shape[1])
        xs, ys, zs = rows[0, start:stop], rows[1, start:stop], rows[2, start:stop]
        to_xs, to_ys, to_zs = force[0, start:stop], force[1, start:stop], force[2, start:stop]
        for point in range(points.shape[1]):
            along, across, upwards = points[0, point], points[1, point], points[2, point]
            count = scale * counts[point]
            for row in range(stop - start):
                x, y, z = xs[row] - along, ys[row] - across, zs[row] - upwards
                near = 1.0 / (1.0 + x * x + y * y + z * z)
                weight = count * near * near
                to_xs[row] -= weight * x
                to_ys[row] -= weight * y
                to_zs[row] -= weight * z


def _least_pulled(
    starts: IntArray, columns: IntArray, affinities: Float64Array, points: Float64Array, chosen: IntArray
) -> None:
    """Choose for each row the point, (rows,), at which the energy of its pull, ``sum p log(1 + d^2)``, is least."""
    for row in range(chosen.shape[0]):
        least = np.inf
        for candidate in range(starts[row], starts[row + 1]):
            here, energy = columns[candidate], 0.0
            for place in range(starts[row], starts[row + 1]):
                point = columns[place]
                x, y = points[0, here] - points[0, point], points[1, here] - points[1, point]
                z = points[2, here] - points[2, point]
                energy += affinities[place] * np.log(1.0 + x * x + y * y + z * z)
                if energy >= least:
                    break
            if energy < least:
                least = energy
                chosen[row] = here


def _nearness(counts: Float64Array, points: Float64Array) -> float:
    """Return the sum over pairs of different points of ``c_k c_l / (1 + d^2)``."""
    total = 0.0
    for one in range(points.shape[1]):
        near = 0.0
        for other in range(one):
            x, y = points[0, one] - points[0, other], points[1, one] - points[1, other]
            z = points[2, one] - points[2, other]
            near += counts[other] / (1.0 + x * x + y * y + z * z)
        total += 2.0 * counts[one] * near
    return total


_compiled = compiled(error_model="numpy")
pull: Callable[..., None] = _compiled(_pull)
repel: Callable[..., None] = _compiled(_repel)
least_pulled: Callable[..., None] = _compiled(_least_pulled)
nearness: Callable[..., float] = _compiled(_nearness)
