r"""t-SNE's gradient for many rows: attraction over the affinities' entries, repulsion by interpolation on a grid.

With :math:`K = (1 + |y_i - y_j|^2)^{-2}` and :math:`Z = \sum_{i \neq j} (1 + |y_i - y_j|^2)^{-1}`, a quarter
of the gradient of the Kullback-Leibler divergence is

.. math::

    \sum_j \frac{p_{ij}}{1 + |y_i - y_j|^2} (y_i - y_j) - \frac{1}{Z} \sum_j K(y_i - y_j) (y_i - y_j).

The second sum is a convolution of the charges 1, y and |y|^2 with K. It also gives Z, because
:math:`(1 + |y_i - y_j|^2) K` is its summand (FIt-SNE, Linderman et al. 2019). Lagrange polynomials spread the charges
over the three nodes on each of a box's two axes. An FFT convolves them, and the same polynomials interpolate the
result. openTSNE does this on one thread. Here rows are cut into a fixed number of strips, each with its own grid, and
the grids are added in order. So the bits do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numba
import numpy as np

from raydr.arrays import Float32Array, Float64Array, Int64Array, IntArray
from raydr.embedding.kernels.affinities import Affinities
from raydr.geometry.points import Progress, map_threaded, row_blocks, run_threaded, unheard

NODES = 3
"""Nodes of a box along each axis."""
LEAST_BOXES, MOST_BOXES = 50, 800
"""Boxes along each axis: one per unit of the layout's width, about 300 for a million rows. The grids of
``MOST_BOXES`` take 1.5 GB; without a limit, one row that flies off would need any number."""
_CHARGES = 4
_STRIPS = 8
BLOCK_ROWS = 8192
_MOMENTUM, _LONGEST_STEP = 0.8, 5.0


def gradient(
    layout: Float64Array, affinities: Affinities, exaggeration: float, threads: int, into: Float64Array
) -> float:
    """Fill ``into`` (rows, 2) with the gradient at ``layout`` (rows, 2), scaled as in openTSNE, and return Z.

    Attraction is multiplied by ``exaggeration``.
    """
    total = repulsion(layout, threads, into)

    def attract(block: tuple[int, int]) -> None:
        add_attraction(
            layout,
            affinities.ends,
            affinities.tails,
            affinities.weights,
            exaggeration,
            -1.0 / total,
            *block,
            into,
        )

    run_threaded(attract, row_blocks(len(layout), BLOCK_ROWS), threads)
    return total


def repulsion(layout: Float64Array, threads: int, into: Float64Array) -> float:
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


def _add_attraction(
    layout: Float64Array,
    ends: Int64Array,
    tails: IntArray,
    weights: Float32Array,
    exaggeration: float,
    factor: float,
    first: int,
    last: int,
    into: Float64Array,
) -> None:
    """Multiply ``into`` by ``factor`` and add the attraction of the rows first:last."""
    for row in range(first, last):
        x, y = layout[row, 0], layout[row, 1]
        pull_x, pull_y = 0.0, 0.0
        for entry in range(ends[row], ends[row + 1]):
            other = tails[entry]
            apart_x, apart_y = x - layout[other, 0], y - layout[other, 1]
            weight = weights[entry] / (1.0 + apart_x * apart_x + apart_y * apart_y)
            pull_x += weight * apart_x
            pull_y += weight * apart_y
        into[row, 0] = factor * into[row, 0] + exaggeration * pull_x
        into[row, 1] = factor * into[row, 1] + exaggeration * pull_y


def _step(
    layout: Float64Array,
    gradient: Float64Array,
    velocity: Float64Array,
    gains: Float64Array,
    momentum: float,
    rate: float,
    longest: float,
    first: int,
    last: int,
) -> None:
    """Move the rows first:last by momentum and gains, at most ``longest`` each, as in openTSNE."""
    for row in range(first, last):
        squared = 0.0
        for axis in range(2):
            slope, speed = gradient[row, axis], velocity[row, axis]
            gain = gains[row, axis]
            gain = gain + 0.2 if np.sign(speed) != np.sign(slope) else gain * 0.8 + 0.01
            gains[row, axis] = gain
            speed = momentum * speed - rate * gain * slope
            velocity[row, axis] = speed
            squared += speed * speed
        length = np.sqrt(squared)
        for axis in range(2):
            if length > longest:
                velocity[row, axis] *= longest / length
            layout[row, axis] += velocity[row, axis]


_compiled = numba.njit(nogil=True, cache=True)
polynomials: Callable[..., None] = _compiled(_polynomials)
scatter: Callable[..., None] = _compiled(_scatter)
gather: Callable[..., float] = _compiled(_gather)
add_attraction: Callable[..., None] = numba.njit(
    nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz", "arcp"}
)(_add_attraction)
step: Callable[..., None] = _compiled(_step)


@dataclass(frozen=True)
class Phase:
    """Iterations with one exaggeration of the attraction and one learning rate."""

    iterations: int
    exaggeration: float
    rate: float


def descend(
    layout: Float64Array,
    affinities: Affinities,
    phases: Sequence[Phase],
    *,
    threads: int,
    progress: Progress = unheard,
) -> None:
    """Move ``layout`` (rows, 2) in place, phase by phase; momentum and gains carry over between phases.

    As in openTSNE: momentum 0.8, steps of at most 5, the layout's mean at 0. ``progress`` counts iterations.
    """
    slope, velocity, gains = np.empty_like(layout), np.zeros_like(layout), np.ones_like(layout)

    def move(block: tuple[int, int], rate: float) -> None:
        step(layout, slope, velocity, gains, _MOMENTUM, rate, _LONGEST_STEP, *block)

    done, total = 0, sum(phase.iterations for phase in phases)
    for phase in phases:
        for _ in range(phase.iterations):
            gradient(layout, affinities, phase.exaggeration, threads, slope)
            run_threaded(partial(move, rate=phase.rate), row_blocks(len(layout), BLOCK_ROWS), threads)
            layout -= layout.mean(axis=0)
            done += 1
            progress(done, total)
