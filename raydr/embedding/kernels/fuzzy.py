r"""UMAP's layout, with threads that never touch the same row.

For each edge of the fuzzy set, umap-learn pulls both ends together along the gradient of :math:`-\log w`. It pushes
the head away from random rows along that of :math:`-\log (1 - w)`. Here :math:`w = 1 / (1 + a |y_i - y_j|^{2b})`. It
processes edges one after the other; its threads do so at once, on the same positions, so no two runs agree.

Here the slopes of an edge, to its tail and to the random rows, are computed at once, all from where the head was. One
does not wait for the other, which takes a third of the time. Single precision suffices for them. Edges are processed
in a random order of their heads. In the rows' order, as in umap-learn, rows that follow each other can end up together:
where a few rows are the nearest of all, they move along with the heads that pull at them.

Many rows are assigned at random to blocks, and edges to the pairs of blocks that they join. Up to half as many pairs
as blocks have no block in common, so that many threads can process their edges without sharing a row. All pairs have
their turn in an epoch, as in a tournament. The order does not depend on the number of threads. The positions of one
pair fit into a processor's cache. The rows that push a head away are drawn from the two blocks of the pair, which are
random rows themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from raydr.arrays import Float32Array, FloatArray, Int64Array, IntArray, UInt8Array
from raydr.compiled import compiled
from raydr.geometry.points import Progress, unheard

BLOCKS = 16
"""Number of blocks of many rows, even. Half as many threads can work at once."""
ALIGNMENT = 0.01
"""Part of the way to its place on an earlier map that a row moves in each epoch; 0.01 as in AlignedUMAP."""
_FEW_EPOCHS, _THEN_AS = 10, 500
"""Up to ``_FEW_EPOCHS`` epochs, edges are left out as if there were ``_THEN_AS``, as in umap-learn."""


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
    blocks: int = BLOCKS,
    places: Float32Array | None = None,
    progress: Progress = unheard,
) -> Float32Array:
    """Lay out a fuzzy set.

    Parameters
    ----------
    graph : (rows, rows) sparse matrix
        Symmetric, with positive weights. An edge is processed in a share of the epochs: its weight over the
        largest.
    start : (rows, dimensions)
        Initial layout, of any scale: each axis is stretched to 0 to 10, as in umap-learn, unless there are ``places``.
    a, b : float
        Parameters of the similarity curve on the map.
    epochs, negative_samples : int
        Passes over all edges, and repelling rows for each edge.
    seed : int
        Seed of the blocks and of the repelling rows.
    threads : int
        Largest number of threads. The result does not depend on it.
    blocks : int
        Number of blocks: 1 or an even number. Half as many threads can work at once. With few rows, they mostly wait.
    places : (rows, dimensions) float32, optional
        Places on an earlier map, NaN for rows without one. Each epoch moves every row by :data:`ALIGNMENT` of the way
        to its place.
    progress : callable
        Called in epochs.

    Returns
    -------
    (rows, dimensions) float32
    """
    rows = start.shape[0]
    place = np.random.default_rng(np.random.SeedSequence(seed).spawn(2)[1]).permutation(rows).astype(np.int32)
    ends = np.linspace(0, rows, blocks + 1).astype(np.int64)
    heads, tails, every, starts = edges_by_pair(graph, place, ends, epochs)
    due = every.copy()
    layout = np.empty(start.shape, np.float32)
    low, high = start.min(axis=0), start.max(axis=0)
    layout[place] = 10.0 * (start - low) / np.where(high > low, high - low, 1.0) if places is None else start
    tied, targets = np.zeros(0, np.int32), np.zeros((0, start.shape[1]), np.float32)
    if places is not None:
        known = ~np.isnan(places[:, 0])
        tied, targets = place[known], places[known]

    def go(pair: tuple[int, int], epoch: int) -> None:
        one, other = pair
        edges = slice(*starts[one * blocks + other : one * blocks + other + 2])
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
            for pairs in rounds(blocks):
                for done in [pool.submit(go, pair, epoch) for pair in pairs]:
                    done.result()
            layout[tied] += ALIGNMENT * (targets - layout[tied])
            progress(epoch + 1, epochs)
    return layout[place]


def rounds(blocks: int) -> Iterator[list[tuple[int, int]]]:
    """Yield all pairs of blocks, and each block with itself; within a round no block occurs twice.

    >>> list(rounds(4))[1:]
    [[(0, 3), (1, 2)], [(1, 3), (0, 2)], [(2, 3), (0, 1)]]
    """
    yield [(block, block) for block in range(blocks)]
    last = blocks - 1
    for turn in range(last):
        pairs = [(turn, last)]
        for step in range(1, blocks // 2):
            pairs.append(((turn + step) % last, (turn - step) % last))
        yield [(min(pair), max(pair)) for pair in pairs]


def edges_by_pair(
    graph: Any, place: IntArray, ends: Int64Array, epochs: int
) -> tuple[IntArray, IntArray, Float32Array, Int64Array]:
    """Return the edges that are processed at least once, by the pair of blocks that they join, the lower block first.

    Parameters
    ----------
    graph : (rows, rows) sparse matrix
        The fuzzy set.
    place : (rows,) int32
        Position of each row in the layout.
    ends : (blocks + 1,) int64
        Positions where the blocks begin and end.
    epochs : int
        Number of epochs.

    Returns
    -------
    heads, tails : (edges,) int32
        Positions of the ends.
    every : (edges,) float32
        Epochs between two turns.
    starts : (blocks^2 + 1,) int64
        Where the edges of each pair begin.
    """
    blocks = len(ends) - 1
    block = np.repeat(np.arange(blocks, dtype=np.uint8), np.diff(ends))[place]
    most = graph.data.max()
    least = most / (epochs if epochs > _FEW_EPOCHS else _THEN_AS)
    starts = np.zeros(blocks**2 + 1, np.int64)
    starts[1:] = count_pairs(graph.indptr, graph.indices, graph.data, least, block, blocks).cumsum()
    heads, tails = np.empty((2, starts[-1]), np.int32)
    every = np.empty(starts[-1], np.float32)
    sort_edges(
        graph.indptr,
        graph.indices,
        graph.data,
        least,
        most,
        block,
        blocks,
        place,
        np.argsort(place),
        starts[:-1].copy(),
        heads,
        tails,
        every,
    )
    return heads, tails, every, starts


def _count_pairs(
    bounds: IntArray, indices: IntArray, weights: Float32Array, least: float, block: UInt8Array, blocks: int
) -> Int64Array:
    """Return the number of edges (blocks^2,) of each pair of blocks."""
    counts = np.zeros(blocks**2, np.int64)
    for head in range(len(bounds) - 1):
        for at in range(bounds[head], bounds[head + 1]):
            if weights[at] >= least:
                one, other = block[head], block[indices[at]]
                counts[min(one, other) * blocks + max(one, other)] += 1
    return counts


def _sort_edges(
    bounds: IntArray,
    indices: IntArray,
    weights: Float32Array,
    least: float,
    most: float,
    block: UInt8Array,
    blocks: int,
    place: IntArray,
    order: IntArray,
    free: Int64Array,
    heads: IntArray,
    tails: IntArray,
    every: Float32Array,
) -> None:
    """Fill ``heads``, ``tails`` and ``every``, with heads in ``order``.

    ``free`` (blocks^2,) is the next place of each pair, and changes.
    """
    for head in order:
        for at in range(bounds[head], bounds[head + 1]):
            if weights[at] >= least:
                one, other = block[head], block[indices[at]]
                pair = min(one, other) * blocks + max(one, other)
                to = free[pair]
                heads[to], tails[to], every[to] = place[head], place[indices[at]], most / weights[at]
                free[pair] = to + 1


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
    one, two, clip, near = np.float32(1.0), np.float32(2.0), np.float32(4.0), np.float32(0.001)
    apart = np.empty((negative_samples + 1, dimensions), np.float32)
    slopes = np.empty(negative_samples + 1, np.float32)
    for edge in range(heads.shape[0]):
        if due[edge] > epoch:
            continue
        due[edge] += every[edge]
        head, tail = heads[edge], tails[edge]
        for axis in range(dimensions):
            apart[0, axis] = layout[head, axis] - layout[tail, axis]
        for sample in range(1, negative_samples + 1):
            random ^= random << np.uint64(13)
            random ^= random >> np.uint64(7)
            random ^= random << np.uint64(17)
            drawn = np.int64(((random >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32))
            other = blocks[0] + drawn if drawn < first else blocks[2] + drawn - first
            for axis in range(dimensions):
                apart[sample, axis] = layout[head, axis] - layout[other, axis]
        for sample in range(negative_samples + 1):
            squared = np.float32(0.0)
            for axis in range(dimensions):
                squared += apart[sample, axis] * apart[sample, axis]
            if sample:
                slopes[sample] = two * b / ((near + squared) * (a * squared**b + one))
            elif squared > 0:
                power = squared**b
                slopes[0] = -two * a * b * power / (squared * (a * power + one))
            else:
                slopes[0] = np.float32(0.0)
        for axis in range(dimensions):
            move = rate * min(max(slopes[0] * apart[0, axis], -clip), clip)
            layout[tail, axis] -= move
            for sample in range(1, negative_samples + 1):
                move += rate * min(max(slopes[sample] * apart[sample, axis], -clip), clip)
            layout[head, axis] += move


count_pairs: Callable[..., Int64Array] = compiled()(_count_pairs)
sort_edges: Callable[..., None] = compiled()(_sort_edges)
go_along: Callable[..., None] = compiled(fastmath=True)(_go_along)
