"""Training batches of a client: the edges of its neighbour graph, with mixing partners and negatives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.arrays import BoolArray, Float32Array, FloatArray, Int64Array
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.sparse_points import points_of
from raydr.sparse_rows import AnyRows


def local_neighbors(rows: AnyRows, k: int) -> Int64Array:
    """Return the neighbours (rows, at most k) of each row; fewer if there are fewer other rows, down to none."""
    count = rows.shape[0]
    if count < 2:
        return np.zeros((count, 0), np.int64)
    return nearest_neighbors(points_of(rows), min(k, count - 1), threads=1).indices


def steps_of(rows: int, k: int, batch: int) -> int:
    """Return the number of batches in one epoch over the edges of this many rows; 0 for a single row."""
    return -(-rows * max(0, min(k, rows - 1)) // batch)


def with_mixed(
    rows: FloatArray, neighbors: Int64Array, alpha: float, random: np.random.Generator
) -> FloatArray:
    """Return rows (rows, features), followed by one mixed row for each (P2 (9)) in the same order.

    The mixed row of x_i is x_j + lambda (x_i - x_j), where x_j is one of its ``neighbors`` (rows, k) and
    lambda follows Beta(alpha, alpha). Without neighbours there are no mixed rows.
    """
    count, k = neighbors.shape
    if not k:
        return rows
    partners = rows[neighbors[np.arange(count), random.integers(k, size=count)]]
    share = random.beta(alpha, alpha, (count, 1)).astype(rows.dtype)
    return np.concatenate([rows, partners + share * (rows - partners)])


@dataclass(kw_only=True, frozen=True)
class Schedule:
    """Batches of some epochs, padded to one width.

    The head of an edge is ``share * rows[heads] + (1 - share) * rows[partners]``, its tail ``rows[tails]``.

    Attributes
    ----------
    heads, partners, tails : (steps, width) int64
        Row indices.
    share : (steps, width) float32
        The mixing weight lambda of P2 (9); 1 without mixing.
    live : (steps, width) float32
        1 for edges, 0 for padding.
    negatives : (steps, width, negatives) int64
        Other edges of the batch whose tails repel the head, never its own edge, never padding. With
        ``from_rows``, rows that repel the head, never its own.
    repelled : (steps,) float32
        0 if a batch is a single edge, which has no negatives in it; else 1.
    from_rows : bool
        Whether negatives are rows.
    """

    heads: Int64Array
    partners: Int64Array
    tails: Int64Array
    share: Float32Array
    live: Float32Array
    negatives: Int64Array
    repelled: Float32Array
    from_rows: bool = False

    @property
    def steps(self) -> int:
        """Number of batches."""
        return int(self.heads.shape[0])


def schedule(
    neighbors: Int64Array,
    *,
    batch: int,
    epochs: int,
    negatives: int,
    mixing: float | None,
    steps: int | None = None,
    from_rows: bool = False,
    random: np.random.Generator,
) -> Schedule:
    """Deal the edges from each row to its neighbours into batches, shuffled again in each epoch.

    Parameters
    ----------
    neighbors : (rows, k) int64
        Result of :func:`local_neighbors`; without neighbours there are no batches.
    batch : int
        Largest number of edges per batch; batches of an epoch differ by at most one edge.
    epochs : int
        Passes over the edges.
    negatives : int
        Negatives per edge, b of P2 (1); 0 if nearby rows do not repel.
    mixing : float or None
        alpha of Beta(alpha, alpha); None for no mixing.
    steps : int or None
        Largest number of batches, taken from the start; None for all.
    from_rows : bool
        Draw negatives uniformly from all other rows instead of from the batch.
    random : Generator
        The client's random generator.
    """
    rows, k = neighbors.shape
    lines = steps_of(rows, k, batch)
    most = epochs * lines if steps is None else min(steps, epochs * lines)
    dealt = [_dealt(rows * k, lines, random) for _ in range(0, most, max(lines, 1))]
    at = np.concatenate(dealt or [np.zeros((0, 0), np.int64)])[:most]
    live = at >= 0
    edge = np.maximum(at, 0)
    heads = edge // max(k, 1)
    tails = neighbors.reshape(-1)[edge]
    partners, share = heads, np.ones(heads.shape, np.float32)
    if mixing is not None and k:
        partners = neighbors[heads, random.integers(k, size=heads.shape)]
        # Data mixing, lambda of P2 (9): unseen neighbours may lie between a row and one of its neighbours.
        share = random.beta(mixing, mixing, heads.shape).astype(np.float32)
    if from_rows:
        skipped = 1 + random.integers(max(1, rows - 1), size=(*heads.shape, negatives))
        drawn, repelled = (heads[..., None] + skipped) % max(1, rows), np.ones(most, np.float32)
        return Schedule(
            heads=heads,
            partners=partners,
            tails=tails,
            share=share,
            live=live.astype(np.float32),
            negatives=drawn,
            repelled=repelled,
            from_rows=True,
        )
    counts = live.sum(axis=1)
    drawn = _others(live, counts, negatives, random)
    return Schedule(
        heads=heads,
        partners=partners,
        tails=tails,
        share=share,
        live=live.astype(np.float32),
        negatives=drawn,
        repelled=(counts > 1).astype(np.float32),
    )


def _dealt(count: int, lines: int, random: np.random.Generator) -> Int64Array:
    """Deal shuffled indices below ``count`` into this many lines, as evenly as possible; -1 pads the end of a line."""
    dealt = np.full((-(-count // lines), lines), -1)
    dealt.reshape(-1)[:count] = random.permutation(count)
    return np.ascontiguousarray(dealt.T)


def _others(live: BoolArray, counts: Int64Array, negatives: int, random: np.random.Generator) -> Int64Array:
    """Return for each place in a line ``negatives`` other places that are not padding, (lines, width, negatives)."""
    others = np.maximum(counts - 1, 1)[:, None, None]
    skipped = 1 + random.integers(0, others, size=(*live.shape, negatives))
    own = np.arange(live.shape[1])[:, None]
    return np.asarray((own + skipped) % np.maximum(counts, 1)[:, None, None])
