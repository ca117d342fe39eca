"""How many of a run's anchors leave how much of the records' spread open, from what the server received."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array, Int64Array
from raydr.threads import one_blas_thread

SHARES = (0.2, 0.1, 0.05, 0.01)
"""Shares of the spread that a run reports."""
_SMALLEST = 1e-9
"""Directions of the anchors with less than this share of their largest spread are none."""


@dataclass(frozen=True)
class OpenSpread:
    """Spread of the records that some of the anchors leave open.

    Attributes
    ----------
    order : (anchors,) int64
        The anchors, each the one that closes most of what those before it leave open.
    by_count : (anchors,) float64
        Mean square distance of the records from the span of the first 1, 2, ... of them. It is in units of their
        variance within the span of all, plus their mean square distance from it.
    """

    order: Int64Array
    by_count: Float64Array

    def anchors_for(self, share: float) -> int | None:
        """Return how many of the anchors leave at most this share open; None if all of them leave more.

        Examples
        --------
        >>> spread = OpenSpread(np.arange(3), np.array([1.0, 0.3, 0.04]))
        >>> spread.anchors_for(0.1), spread.anchors_for(0.01)
        (3, None)
        """
        enough = np.flatnonzero(self.by_count <= share)
        return int(enough[0]) + 1 if len(enough) else None

    @property
    def sentence(self) -> str:
        """Say what all anchors leave open, and how many of them would leave each of `SHARES` that is more."""
        counts = [(share, self.anchors_for(share)) for share in SHARES]
        fewer = [f"{count} of them {share:.0%}" for share, count in counts if count is not None]
        return (
            f"The {len(self.by_count)} anchors leave {self.by_count[-1]:.1%} of the records' spread open"
            + (f"; the best {', '.join(fewer)} or less" if fewer else "")
            + ". How many more are needed for less, no message shows."
        )


def open_spread(anchors: Float64Array, squared: Sequence[Float64Array]) -> OpenSpread:
    """Return the spread of records that the first of the anchors leave open.

    Parameters
    ----------
    anchors : (anchors, features) float64
        Anchors that all records have distances to.
    squared : sequence of (records, anchors) float64
        Squared distances of each client's records, without noise.

    Notes
    -----
    With ``c_i`` the anchors from their mean, a record ``x`` from that mean has ``2 c_i x = |c_i|^2 - d_i^2`` up to a
    constant over i, which gives its coordinates in the anchors' span, and ``|x|^2 = mean d_i^2 - mean |c_i|^2``, which
    gives the length outside. The first anchor is the nearest to the records' mean, the others are chosen greedily.
    """
    centred = anchors - anchors.mean(axis=0)
    lengths = np.einsum("ij,ij->i", centred, centred)
    with one_blas_thread():
        left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
        kept = sizes > _SMALLEST * sizes[0]
        own, solve = left[:, kept] * sizes[kept], left[:, kept] / (2.0 * sizes[kept])
        total, outside, records = np.zeros(kept.sum()), 0.0, 0
        products = np.zeros((kept.sum(), kept.sum()))
        for block in squared:
            inside = (lengths - block) @ solve  # columns of `left` have the sum 0, and so drop the constant
            square = block.mean(axis=1) - lengths.mean()
            outside += float(np.maximum(square - np.einsum("ij,ij->i", inside, inside), 0.0).sum())
            total += inside.sum(axis=0)
            products += inside.T @ inside
            records += len(block)
        mean = total / records
        first = int(((own - mean) ** 2).sum(axis=1).argmin())
        gap = mean - own[first]
        covariance = products / records - np.outer(mean, mean)
        about_first = covariance + np.outer(gap, gap)
        order, closed = _greedy(own - own[first], about_first, first)
    variance = float(np.trace(covariance)) + outside / records
    left_open = float(np.trace(about_first)) + outside / records - closed
    return OpenSpread(order, np.maximum(left_open, 0.0) / variance if variance > 0 else 0.0 * left_open)


def _greedy(arms: Float64Array, products: Float64Array, first: int) -> tuple[Int64Array, Float64Array]:
    """Return the order of the anchors, and the part of the trace of ``products`` that each number of them closes.

    ``arms`` (anchors, directions) lead from the first anchor to each.
    """
    count = len(arms)
    inner, spread = arms @ arms.T, arms @ products @ arms.T
    lengths, worth = inner.diagonal().copy(), spread.diagonal().copy()
    least = _SMALLEST * float(lengths.max())
    # What the chosen anchors took from both matrices, of which a column is renewed when its anchor is chosen.
    shares, columns = np.zeros((count, count), order="F"), np.zeros((count, count), order="F")
    sizes, gains = np.zeros(count), np.zeros(count)
    order, left = [first], np.ones(count, dtype=bool)
    left[first] = False
    for step in range(count - 1):
        ratios = np.where(left & (lengths > least), worth / np.maximum(lengths, least or 1.0), -1.0)
        best = int(ratios.argmax())
        if ratios[best] < 0.0:  # the others are in the span
            break
        before, taken = shares[:, :step], columns[:, :step]
        row = before[best]
        sizes[step], gains[step] = lengths[best], worth[best]
        share = (inner[:, best] - before @ (sizes[:step] * row)) / sizes[step]
        column = spread[:, best] - before @ (taken[best] - gains[:step] * row) - taken @ row
        shares[:, step], columns[:, step] = share, column
        lengths -= sizes[step] * share**2
        worth += gains[step] * share**2 - 2.0 * share * column
        left[best] = False
        order.append(best)
    closed = np.concatenate([[0.0], np.cumsum(gains[: len(order) - 1] / sizes[: len(order) - 1])])
    rest = np.flatnonzero(left)
    return np.array([*order, *rest]), np.pad(closed, (0, len(rest)), mode="edge")
