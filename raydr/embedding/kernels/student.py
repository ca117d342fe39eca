r"""Forces of t-SNE on rows that move among points, where each row's force is its own alone.

With the Student kernel :math:`w_{ij} = 1 / (1 + |y_i - z_j|^2)`, rows :math:`y` are pulled to points :math:`z` by
:math:`\sum_j p_{ij} w_{ij} (y_i - z_j)` and repelled by :math:`\sum_j c_j w_{ij}^2 (y_i - z_j)`.

Places are (2, points), so that one instruction serves several rows: 1.3 ns a pair, where rows that are not taken out of
their array beforehand cost 6.9. No fastmath: sums that may be reordered have other bits on other processors.
"""

from __future__ import annotations

from collections.abc import Callable

import numba

from raydr.arrays import Float64Array, IntArray

_ROWS = 256
"""Of a block: 6 KB, which stay in a core's nearest cache while all points pass."""


def _pull(
    starts: IntArray,
    columns: IntArray,
    affinities: Float64Array,
    scale: float,
    rows: Float64Array,
    points: Float64Array,
    force: Float64Array,
) -> None:
    """Add ``scale`` times the pull of sparse affinities, by row (compressed sparse rows), to ``force`` (2, rows)."""
    for row in range(rows.shape[1]):
        along = across = 0.0
        for place in range(starts[row], starts[row + 1]):
            point = columns[place]
            x, y = rows[0, row] - points[0, point], rows[1, row] - points[1, point]
            weight = affinities[place] / (1.0 + x * x + y * y)
            along += weight * x
            across += weight * y
        force[0, row] += scale * along
        force[1, row] += scale * across


def _repel(
    counts: Float64Array, scale: float, rows: Float64Array, points: Float64Array, force: Float64Array
) -> None:
    """Take ``scale`` times the repulsion of points, as often as ``counts`` (points,) say, from ``force`` (2, rows)."""
    for start in range(0, rows.shape[1], _ROWS):
        stop = min(start + _ROWS, rows.shape[1])
        xs, ys = rows[0, start:stop], rows[1, start:stop]
        to_xs, to_ys = force[0, start:stop], force[1, start:stop]
        for point in range(points.shape[1]):
            along, across, count = points[0, point], points[1, point], scale * counts[point]
            for row in range(stop - start):
                x, y = xs[row] - along, ys[row] - across
                near = 1.0 / (1.0 + x * x + y * y)
                weight = count * near * near
                to_xs[row] -= weight * x
                to_ys[row] -= weight * y


_compiled = numba.njit(nogil=True, cache=True, error_model="numpy")
pull: Callable[..., None] = _compiled(_pull)
repel: Callable[..., None] = _compiled(_repel)
