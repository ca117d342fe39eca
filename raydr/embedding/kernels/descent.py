r"""t-SNE's gradient and descent.

With :math:`K = (1 + |y_i - y_j|^2)^{-2}` and :math:`Z = \sum_{i \neq j} (1 + |y_i - y_j|^2)^{-1}`, a quarter
of the gradient of the Kullback-Leibler divergence is

.. math::

    \sum_j \frac{p_{ij}}{1 + |y_i - y_j|^2} (y_i - y_j) - \frac{1}{Z} \sum_j K(y_i - y_j) (y_i - y_j).

The attraction is summed over the affinities' entries. The repulsion is summed over all pairs of few rows, and
interpolated for many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from raydr.arrays import Float32Array, Float64Array, Int64Array, IntArray
from raydr.compiled import compiled
from raydr.embedding.embedder import PAIRS_ROWS
from raydr.embedding.kernels.affinities import Affinities
from raydr.embedding.kernels.all_pairs import repulsion_by_pairs
from raydr.embedding.kernels.interpolation import BLOCK_ROWS, repulsion_by_interpolation
from raydr.geometry.points import Progress, row_blocks, run_threaded, unheard

_MOMENTUM, _LONGEST_STEP = 0.8, 5.0


def gradient(
    layout: Float64Array, affinities: Affinities, exaggeration: float, threads: int, into: Float64Array
) -> float:
    """Fill ``into`` (rows, dimensions) with the gradient at ``layout``, scaled as in openTSNE, and return Z.

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
    """Fill ``into`` (rows, dimensions) with the sum of K(y_i - y_j) (y_i - y_j) over all j, and return Z.

    A grid has two dimensions, so in three all pairs are summed.
    """
    rows, dimensions = layout.shape
    by_pairs = rows <= PAIRS_ROWS or dimensions != 2
    return (repulsion_by_pairs if by_pairs else repulsion_by_interpolation)(layout, threads, into)


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
    """Move ``layout`` (rows, dimensions) in place, phase by phase; momentum and gains carry over between phases.

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
    spatial = layout.shape[1] == 3
    for row in range(first, last):
        x, y, z = layout[row, 0], layout[row, 1], layout[row, 2] if spatial else 0.0
        pull_x, pull_y, pull_z = 0.0, 0.0, 0.0
        for entry in range(ends[row], ends[row + 1]):
            other = tails[entry]
            apart_x, apart_y = x - layout[other, 0], y - layout[other, 1]
            apart_z = z - layout[other, 2] if spatial else 0.0
            weight = weights[entry] / (1.0 + apart_x * apart_x + apart_y * apart_y + apart_z * apart_z)
            pull_x += weight * apart_x
            pull_y += weight * apart_y
            pull_z += weight * apart_z
        into[row, 0] = factor * into[row, 0] + exaggeration * pull_x
        into[row, 1] = factor * into[row, 1] + exaggeration * pull_y
        if spatial:
            into[row, 2] = factor * into[row, 2] + exaggeration * pull_z


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
        for axis in range(layout.shape[1]):
            slope, speed = gradient[row, axis], velocity[row, axis]
            gain = gains[row, axis]
            gain = gain + 0.2 if np.sign(speed) != np.sign(slope) else gain * 0.8 + 0.01
            gains[row, axis] = gain
            speed = momentum * speed - rate * gain * slope
            velocity[row, axis] = speed
            squared += speed * speed
        length = np.sqrt(squared)
        for axis in range(layout.shape[1]):
            if length > longest:
                velocity[row, axis] *= longest / length
            layout[row, axis] += velocity[row, axis]


add_attraction: Callable[..., None] = compiled(fastmath={"reassoc", "contract", "nsz", "arcp"})(
    _add_attraction
)
step: Callable[..., None] = compiled()(_step)
