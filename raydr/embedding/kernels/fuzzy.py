r"""UMAP's layout for many rows, by threads that never touch the same row.

umap-learn goes through the edges of the fuzzy set one after the other: both ends of an edge are drawn together by the
gradient of :math:`-\log w`, the head is pushed away from random rows by that of :math:`-\log (1 - w)`, with
:math:`w = 1 / (1 + a |y_i - y_j|^{2b})`. Its threads do so all at once, on the same positions, so that no two runs
agree. Here rows are dealt at random to :data:`BLOCKS` blocks, and the edges to the pairs of blocks that they join. Half
as many pairs as there are blocks have no block in common, so that as many threads can go through their edges without a
row in common; all pairs have their turn in an epoch, as in a tournament. The order is the same for any number of
threads, and within a pair positions are few enough for a processor's cache.

What differs from umap-learn: the order of the edges, and that the rows that push a head away are drawn from the two
blocks of its pair, which are random rows themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np

from raydr.arrays import Float32Array, FloatArray, Int64Array, IntArray
from raydr.geometry.points import Progress, unheard

BLOCKS = 16
"""Of rows; half as many threads can work at once. Even."""


def lay_out(
    graph: Any,
    start: FloatArray,
    *,
    a: float,
    b: float,
    epochs: int,
    negative_samples: int,
    seed: int,
    threads: int,
    progress: Progress = unheard,
) -> Float32Array:
    """Lay a fuzzy set out.

    Parameters
    ----------
    graph : (rows, rows) sparse matrix
        Symmetric, of weights above 0. An edge is gone along in as many of the epochs as its weight is of the largest.
    start : (rows, dimensions)
        First layout, of any scale: each axis is stretched to 0 to 10, as umap-learn does.
    a, b : float
        Of the curve that similarity on the map follows.
    epochs, negative_samples : int
        Times that all edges are gone through, and rows that push a head away for each.
    seed : int
        Of the blocks and of those rows.
    threads : int
        At most; no bit depends on it.
    progress : callable
        In epochs.

    Returns
    -------
    (rows, dimensions) float32
    """
    rows = start.shape[0]
    place = np.random.default_rng(np.random.SeedSequence(seed).spawn(2)[1]).permutation(rows)
    ends = np.linspace(0, rows, BLOCKS + 1).astype(np.int64)
    heads, tails, every = _edges(graph, epochs)
    heads, tails = place[heads].astype(np.int32), place[tails].astype(np.int32)
    heads, tails, every, starts = _by_pair(heads, tails, every, ends)
    due = every.copy()
    layout = np.empty(start.shape, np.float32)
    low, high = start.min(axis=0), start.max(axis=0)
    layout[place] = 10.0 * (start - low) / np.where(high > low, high - low, 1.0)

    def go(pair: tuple[int, int], epoch: int) -> None:
        one, other = pair
        edges = slice(*starts[one * BLOCKS + other : one * BLOCKS + other + 2])
        random = np.uint64(_mixed((seed * BLOCKS**2 + one * BLOCKS + other) * 1_000_003 + epoch))
        go_along(
            layout,
            heads[edges],
            tails[edges],
            every[edges],
            due[edges],
            np.array([ends[one], ends[one + 1], ends[other], ends[other + 1]]),
            np.float32(a),
            np.float32(b),
            np.float32(1.0 - epoch / epochs),
            epoch,
            negative_samples,
            random,
        )

    with ThreadPoolExecutor(max(1, threads), thread_name_prefix="raydr-block") as pool:
        for epoch in range(epochs):
            for pairs in rounds():
                for done in [pool.submit(go, pair, epoch) for pair in pairs]:
                    done.result()
            progress(epoch + 1, epochs)
    return layout[place]


def rounds() -> Iterator[list[tuple[int, int]]]:
    """All pairs of blocks, and each block with itself: within a round no block occurs twice.

    >>> met = [pair for pairs in rounds() for pair in pairs]
    >>> len(met) == len(set(met)) == BLOCKS * (BLOCKS + 1) // 2
    True
    """
    yield [(block, block) for block in range(BLOCKS)]
    last = BLOCKS - 1
    for turn in range(last):
        pairs = [(turn, last)]
        for step in range(1, BLOCKS // 2):
            pairs.append(((turn + step) % last, (turn - step) % last))
        yield [(min(pair), max(pair)) for pair in pairs]


def _edges(graph: Any, epochs: int) -> tuple[IntArray, IntArray, Float32Array]:
    """Ends of all edges that are gone along at least once, and every how many epochs that is."""
    found = graph.tocoo()
    weights = found.data
    kept = weights >= weights.max() / epochs
    return found.row[kept], found.col[kept], (weights.max() / weights[kept]).astype(np.float32)


def _by_pair(
    heads: IntArray, tails: IntArray, every: Float32Array, ends: Int64Array
) -> tuple[IntArray, IntArray, Float32Array, Int64Array]:
    """Edges in order of the pair of blocks that they join, the lower block first, and where each pair's begin."""
    block = np.repeat(np.arange(BLOCKS, dtype=np.uint8), np.diff(ends))
    one, other = block[heads], block[tails]
    pair = np.minimum(one, other) * np.uint8(BLOCKS) + np.maximum(one, other)
    order = np.argsort(pair, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(pair, minlength=BLOCKS**2))])
    return heads[order], tails[order], every[order], starts


def _mixed(value: int) -> int:
    """Sixty-four bits of a whole number that look random (SplitMix64)."""
    mask = 2**64 - 1
    value = (value + 0x9E3779B97F4A7C15) & mask
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return (value ^ (value >> 31)) | 1


def _go_along(
    layout: Float32Array,
    heads: IntArray,
    tails: IntArray,
    every: Float32Array,
    due: Float32Array,
    blocks: Int64Array,
    a: float,
    b: float,
    rate: float,
    epoch: int,
    negative_samples: int,
    random: Any,
) -> None:
    """Go once along the edges that are due, which join two blocks, rows ``blocks`` [0]:[1] and [2]:[3]."""
    dimensions = layout.shape[1]
    first = blocks[1] - blocks[0]
    # A block with itself is counted once.
    count = first if blocks[0] == blocks[2] else first + blocks[3] - blocks[2]
    one, clip = np.float32(1.0), np.float32(4.0)
    for edge in range(heads.shape[0]):
        if due[edge] > epoch:
            continue
        due[edge] += every[edge]
        head, tail = heads[edge], tails[edge]
        squared = np.float32(0.0)
        for axis in range(dimensions):
            squared += (layout[head, axis] - layout[tail, axis]) ** 2
        if squared > 0:
            power = squared**b
            slope = np.float32(-2.0) * a * b * power / (squared * (a * power + one))
            for axis in range(dimensions):
                move = slope * (layout[head, axis] - layout[tail, axis])
                move = rate * min(max(move, -clip), clip)
                layout[head, axis] += move
                layout[tail, axis] -= move
        for _ in range(negative_samples):
            random ^= random << np.uint64(13)
            random ^= random >> np.uint64(7)
            random ^= random << np.uint64(17)
            drawn = np.int64(((random >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32))
            other = blocks[0] + drawn if drawn < first else blocks[2] + drawn - first
            squared = np.float32(0.0)
            for axis in range(dimensions):
                squared += (layout[head, axis] - layout[other, axis]) ** 2
            if squared > 0:
                slope = np.float32(2.0) * b / ((np.float32(0.001) + squared) * (a * squared**b + one))
                for axis in range(dimensions):
                    move = slope * (layout[head, axis] - layout[other, axis])
                    layout[head, axis] += rate * min(max(move, -clip), clip)


go_along: Callable[..., None] = numba.njit(nogil=True, cache=True, fastmath=True)(_go_along)
