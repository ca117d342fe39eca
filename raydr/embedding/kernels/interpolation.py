r"""t-SNE's repulsion for many rows, by interpolation on a grid: see :mod:`raydr.embedding.kernels.descent`.

The sum over pairs is a convolution of the charges 1, y and |y|^2 with :math:`K = (1 + |y_i - y_j|^2)^{-2}`. It also
gives Z, because :math:`(1 + |y_i - y_j|^2) K` is its summand (FIt-SNE, Linderman et al. 2019). Lagrange polynomials
spread the charges over the three nodes on each of a box's two axes. An FFT convolves them, and the same polynomials
interpolate the result. openTSNE does this on one thread. Here rows are cut into a fixed number of strips, each with
its own grid, and the grids are added in order. So the bits do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from raydr.arrays import Float64Array
from raydr.compiled import compiled
from raydr.geometry.points import map_threaded, row_blocks

NODES = 3
"""Nodes of a box along each axis."""
LEAST_BOXES, MOST_BOXES = 50, 800
"""Boxes along each axis: one per unit of the layout's width, about 300 for a million rows. The grids of
``MOST_BOXES`` take 1.5 GB; without a limit, one row that flies off would need any number."""
_CHARGES = 4
_STRIPS = 8
BLOCK_ROWS = 8192


def repulsion_by_interpolation(layout: Float64Array, threads: int, into: Float64Array) -> float:
    """Fill ``into`` (rows, 2) with the sum of K(y_i - y_j) (y_i - y_j) over all j, and return Z."""
    from scipy import fft

    rows = len(layout)
    least, most = float(layout.min()), float(layout.max())
    middle = (least + most) / 2.0
    boxes = min(max(LEAST_BOXES, int(most - least)), MOST_BOXES)
    # The padded grid has twice as many nodes: choose a number of boxes whose FFT is fast.
    boxes = -(-fft.next_fast_len(2 * NODES * boxes, real=True) // (2 * NODES))
    nodes = NODES * boxes
    width = max(most - least, 1e-12) * (1.0 + 1e-9) / boxes
    strips = row_blocks(rows, max(BLOCK_ROWS, -(-rows // _STRIPS)))

    def scattered(strip: tuple[int, int]) -> Float64Array:
        grid = np.zeros((_CHARGES, nodes, nodes))
        scatter(layout, *strip, least, width, middle, grid)
        return grid

    charges = np.zeros((_CHARGES, nodes, nodes))
    for grid in map_threaded(scattered, strips, threads):
        charges += grid
    padded = 2 * nodes
    apart = np.minimum(np.arange(padded), padded - np.arange(padded)) * (width / NODES)
    kernel = (1.0 + apart[:, None] ** 2 + apart[None, :] ** 2) ** -2.0
    spectrum = fft.rfft2(kernel, workers=threads)
    transformed = fft.rfft2(charges, s=(padded, padded), workers=threads)
    transformed *= spectrum
    potential = np.ascontiguousarray(
        fft.irfft2(transformed, s=(padded, padded), workers=threads, overwrite_x=True)[:, :nodes, :nodes]
    )

    def gathered(block: tuple[int, int]) -> float:
        return gather(layout, *block, least, width, middle, potential, into)

    # The sum includes each row's own summand, 1.
    return sum(map_threaded(gathered, row_blocks(rows, BLOCK_ROWS), threads)) - rows


def _polynomials(place: float, weights: Float64Array) -> None:
    """Compute the three Lagrange polynomials of the nodes 1/6, 1/2 and 5/6 at ``place``, from 0 to 1 in its box."""
    a, b, c = place - 1.0 / 6.0, place - 0.5, place - 5.0 / 6.0
    weights[0] = 4.5 * b * c
    weights[1] = -9.0 * a * c
    weights[2] = 4.5 * a * b


def _scatter(
    layout: Float64Array,
    first: int,
    last: int,
    least: float,
    width: float,
    middle: float,
    grid: Float64Array,
) -> None:
    """Add the charges 1, y and |y|^2 of the rows first:last to ``grid`` (charges, nodes, nodes)."""
    boxes = grid.shape[1] // NODES
    by_x, by_y = np.empty(NODES), np.empty(NODES)
    for row in range(first, last):
        x, y = layout[row, 0], layout[row, 1]
        at_x, at_y = (x - least) / width, (y - least) / width
        box_x, box_y = min(int(at_x), boxes - 1), min(int(at_y), boxes - 1)
        polynomials(at_x - box_x, by_x)
        polynomials(at_y - box_y, by_y)
        x, y = x - middle, y - middle
        squared = x * x + y * y
        for i in range(NODES):
            for j in range(NODES):
                weight = by_x[i] * by_y[j]
                here, there = NODES * box_x + i, NODES * box_y + j
                grid[0, here, there] += weight
                grid[1, here, there] += weight * x
                grid[2, here, there] += weight * y
                grid[3, here, there] += weight * squared


def _gather(
    layout: Float64Array,
    first: int,
    last: int,
    least: float,
    width: float,
    middle: float,
    potential: Float64Array,
    into: Float64Array,
) -> float:
    """Compute the repulsion of the rows first:last, and their part of Z, from ``potential`` (charges, nodes, nodes)."""
    boxes = potential.shape[1] // NODES
    by_x, by_y = np.empty(NODES), np.empty(NODES)
    total = 0.0
    for row in range(first, last):
        x, y = layout[row, 0], layout[row, 1]
        at_x, at_y = (x - least) / width, (y - least) / width
        box_x, box_y = min(int(at_x), boxes - 1), min(int(at_y), boxes - 1)
        polynomials(at_x - box_x, by_x)
        polynomials(at_y - box_y, by_y)
        count, sum_x, sum_y, sum_squared = 0.0, 0.0, 0.0, 0.0
        for i in range(NODES):
            for j in range(NODES):
                weight = by_x[i] * by_y[j]
                here, there = NODES * box_x + i, NODES * box_y + j
                count += weight * potential[0, here, there]
                sum_x += weight * potential[1, here, there]
                sum_y += weight * potential[2, here, there]
                sum_squared += weight * potential[3, here, there]
        x, y = x - middle, y - middle
        into[row, 0] = x * count - sum_x
        into[row, 1] = y * count - sum_y
        total += (1.0 + x * x + y * y) * count - 2.0 * (x * sum_x + y * sum_y) + sum_squared
    return total


_compiled = compiled()
polynomials: Callable[..., None] = _compiled(_polynomials)
scatter: Callable[..., None] = _compiled(_scatter)
gather: Callable[..., float] = _compiled(_gather)
