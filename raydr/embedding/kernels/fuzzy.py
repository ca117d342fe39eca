r"""UMAP's layout for many rows, with threads that never touch the same row.

For each edge of the fuzzy set, umap-learn pulls both ends together along the gradient of :math:`-\log w`. It pushes
the head away from random rows along that of :math:`-\log (1 - w)`. Here :math:`w = 1 / (1 + a |y_i - y_j|^{2b})`. It
processes edges one after the other; its threads do so at once, on the same positions, so no two runs agree.

Here rows are assigned at random to :data:`BLOCKS` blocks, and edges to the pairs of blocks that they join. Up
to half as many pairs as blocks have no block in common, so that many threads can process their edges without
sharing a row. All pairs have their turn in an epoch, as in a tournament. The order does not depend on the
number of threads. The positions of one pair fit into a processor's cache.

Two things differ from umap-learn: the order of the edges, and the rows that push a head away. These are drawn
from the two blocks of the pair, which are random rows themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from raydr.arrays import Float32Array, FloatArray, Int64Array, IntArray
from raydr.compiled import compiled
from raydr.geometry.points import Progress, unheard

BLOCKS = 16
"""Number of blocks, even. Half as many threads can work at once."""


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
    """Lay out a fuzzy set.

    Parameters
    ----------
    graph : (rows, rows) sparse matrix
        Symmetric, with positive weights. An edge is processed in a share of the epochs: its weight over the
        largest.
    start : (rows, dimensions)
        Initial layout, of any scale: each axis is stretched to 0 to 10, as in umap-learn.
    a, b : float
        Parameters of the similarity curve on the map.
    epochs, negative_samples : int
        Passes over all edges, and repelling rows for each edge.
    seed : int
        Seed of the blocks and of the repelling rows.
    threads : int
        Largest number of threads. The result does not depend on it.
    progress : callable
        Called in epochs.

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
    """Yield all pairs of blocks, and each block with itself, in rounds: within a round no block occurs twice.

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
    """Return the ends of all edges that are processed at least once, and the epochs between two of their turns."""
    found = graph.tocoo()
    weights = found.data
    kept = weights >= weights.max() / epochs
    return found.row[kept], found.col[kept], (weights.max() / weights[kept]).astype(np.float32)


def _by_pair(
    heads: IntArray, tails: IntArray, every: Float32Array, ends: Int64Array
) -> tuple[IntArray, IntArray, Float32Array, Int64Array]:
    """Sort edges by the pair of blocks that they join, the lower block first, and return where each pair begins."""
    block = np.repeat(np.arange(BLOCKS, dtype=np.uint8), np.diff(ends))
    one, other = block[heads], block[tails]
    pair = np.minimum(one, other) * np.uint8(BLOCKS) + np.maximum(one, other)
    order = np.argsort(pair, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(pair, minlength=BLOCKS**2))])
    return heads[order], tails[order], every[order], starts


def _mixed(value: int) -> int:
    """Return 64 bits that look random, computed from a whole number (SplitMix64)."""
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
    """Process once the edges that are due and join two blocks, the rows ``blocks`` [0]:[1] and [2]:[3]."""
    dimensions = layout.shape[1]
    first = blocks[1] - blocks[0]
    # A block with itself counts once.
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


go_along: Callable[..., None] = compiled(fastmath=True)(_go_along)
