"""UMAP's layout for few rows: one edge after the other, in umap-learn's order and with its random numbers.

For each edge of the fuzzy set, both ends are pulled together, and the head is pushed away from random rows; see
:mod:`raydr.embedding.kernels.fuzzy`, which does the same for many rows. The result has the same bits as
umap-learn's on one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from raydr.arrays import Float32Array, Float64Array, FloatArray, Int64Array, IntArray
from raydr.compiled import compiled
from raydr.geometry.points import Progress

_INT32 = np.iinfo(np.int32)
_FEW_EPOCHS = 10
"""Up to this number of epochs, edges are left out as if there were :data:`_THEN_AS`."""
_THEN_AS = 500


def lay_out_one_by_one(
    graph: Any,
    start: Float32Array,
    *,
    a: float,
    b: float,
    epochs: int,
    negative_samples: int,
    seed: int,
    progress: Progress,
) -> Float32Array:
    """Lay out a fuzzy set; parameters and result as in :func:`raydr.embedding.kernels.fuzzy.lay_out`."""
    # umap-learn draws from the legacy generator; this one accepts any non-negative integer as a seed.
    legacy = np.random.RandomState(np.random.MT19937(np.random.SeedSequence(seed)))
    edges = graph.tocoo()
    edges.sum_duplicates()
    kept = edges.data >= edges.data.max() / float(epochs if epochs > _FEW_EPOCHS else _THEN_AS)
    heads, tails, weights = edges.row[kept], edges.col[kept], edges.data[kept]
    every = float(epochs) / np.float64(epochs * (weights / weights.max()))
    layout = _spread(_apart(start, legacy))
    # Each row has its own stream, which differs by the bits of its first coordinate.
    random = legacy.randint(_INT32.min + 1, _INT32.max - 1, 3).astype(np.int64) + layout[:, :1].astype(
        np.float64
    ).view(np.int64)
    due, due_negative = every.copy(), every / negative_samples
    every_negative = due_negative.copy()
    rate = 1.0
    for epoch in range(epochs):
        one_epoch(
            layout,
            heads,
            tails,
            every,
            due,
            every_negative,
            due_negative,
            a,
            b,
            rate,
            epoch,
            random,
        )
        rate = 1.0 - epoch / epochs
        progress(epoch + 1, epochs)
    return layout


def _apart(start: Float32Array, legacy: np.random.RandomState) -> FloatArray:
    """Return the initial layout (rows, dimensions), with noise if two rows start at one point."""
    if len(np.unique(start, axis=0)) == len(start):
        return start
    from scipy.spatial import KDTree

    apart = KDTree(start).query(start, k=2)[0][:, 1].mean()
    return start + legacy.normal(scale=0.001 * apart, size=start.shape).astype(np.float32)


def _spread(start: FloatArray) -> Float32Array:
    """Stretch each axis of a layout (rows, dimensions) to 0 to 10."""
    low, high = start.min(axis=0), start.max(axis=0)
    return np.ascontiguousarray(10.0 * (start - low) / (high - low), np.float32)


def _next(state: Int64Array) -> int:
    """Advance the three Tausworthe generators of ``state`` (3,), and return 32 random bits, as in umap-learn."""
    low = 0xFFFFFFFF
    state[0] = (((state[0] & 0xFFFFFFFE) << 12) & low) ^ ((((state[0] << 13) & low) ^ state[0]) >> 19)
    state[1] = (((state[1] & 0xFFFFFFF8) << 4) & low) ^ ((((state[1] << 2) & low) ^ state[1]) >> 25)
    state[2] = (((state[2] & 0xFFFFFFF0) << 17) & low) ^ ((((state[2] << 3) & low) ^ state[2]) >> 11)
    return np.int32(state[0] ^ state[1] ^ state[2])  # type: ignore[return-value]


def _squared(layout: Float32Array, one: int, other: int) -> float:
    """Return the squared distance of two rows, in single precision."""
    total = np.float32(0.0)
    for axis in range(layout.shape[1]):
        apart = layout[one, axis] - layout[other, axis]
        total += apart * apart
    return total  # type: ignore[return-value]


def _one_epoch(
    layout: Float32Array,
    heads: IntArray,
    tails: IntArray,
    every: Float64Array,
    due: Float64Array,
    every_negative: Float64Array,
    due_negative: Float64Array,
    a: float,
    b: float,
    rate: float,
    epoch: int,
    random: Int64Array,
) -> None:
    """Process the edges that are due; change ``layout``, ``due``, ``due_negative`` and ``random`` in place.

    ``layout``: (rows, dimensions); ``heads``, ``tails``, and the epochs between two turns of an edge (``every``) and of
    a random row that pushes its head (``every_negative``), and of the next ones (``due``, ``due_negative``): (edges,);
    ``random``: (rows, 3).
    """
    rows, dimensions = layout.shape
    for edge in range(heads.shape[0]):
        if due[edge] > epoch:
            continue
        head, tail = heads[edge], tails[edge]
        squared = squared_distance(layout, head, tail)
        slope = 0.0
        if squared > 0.0:
            slope = -2.0 * a * b * pow(squared, b - 1.0)
            slope /= a * pow(squared, b) + 1.0
        for axis in range(dimensions):
            move = clipped(slope * (layout[head, axis] - layout[tail, axis]))
            layout[head, axis] += move * rate
            layout[tail, axis] += -move * rate
        due[edge] += every[edge]
        count = int((epoch - due_negative[edge]) / every_negative[edge])
        for _ in range(count):
            other = next_random(random[head]) % rows
            squared = squared_distance(layout, head, other)
            if squared > 0.0:
                slope = 2.0 * b
                slope /= (0.001 + squared) * (a * pow(squared, b) + 1.0)
                for axis in range(dimensions):
                    move = clipped(slope * (layout[head, axis] - layout[other, axis]))
                    layout[head, axis] += move * rate
        due_negative[edge] += count * every_negative[edge]


def _clipped(move: float) -> float:
    """Return a coordinate of a move, limited to 4."""
    return min(max(move, -4.0), 4.0)


next_random: Callable[..., int] = compiled()(_next)
clipped: Callable[..., float] = compiled()(_clipped)
squared_distance: Callable[..., float] = compiled(fastmath=True)(_squared)
one_epoch: Callable[..., None] = compiled(fastmath=True)(_one_epoch)
