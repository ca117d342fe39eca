"""How many rows of each period are unlike those of the first one.

A row's score is its distance to the nearest row of the first period. Rows of the first period are scored by the others
of it. The p-value of a row of score s is

    p = (1 + number of rows of the first period with a score of at least s) / (1 + number of rows of the first period).

If the row and the rows of the first period are exchangeable, p is at most alpha with probability at most alpha. This is
full conformal prediction: with the row among the references, a reference whose score it lowers still has at least the
row's own score, so the count is the same (Vovk, Gammerman & Shafer 2005, *Algorithmic Learning in a Random World*).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.arrays import BoolArray, Float64Array, Int64Array, IntArray
from raydr.geometry.points import Geometry

UNLIKE = 0.05
"""p-value at or below which a row is unlike those of the first period."""
LEAST_FIRST = 99
"""Rows of the first period from which on others are compared with them. With 99, the share of unlike rows differs
between draws of these rows by about 0.02."""
MOST_COMPARED = 2_000
"""Maximum number of compared rows of each period. More are sampled at random."""
_ROUNDING = 1e-6
"""Difference of two squared distances, as a share of their mean, below which they are equal up to rounding."""


@dataclass(frozen=True)
class Drift:
    """Number of compared rows of a period, and of those that are unlike the rows of the first period."""

    compared: int
    unlike: int


NOT_COMPARED = Drift(compared=0, unlike=0)


def drift_by_period(geometry: Geometry, periods: IntArray, *, seed: int) -> dict[int, Drift]:
    """Compare the rows of each period with those of the first one.

    Parameters
    ----------
    geometry : Geometry
        Distances between the mapped rows, (rows, rows) by blocks.
    periods : (rows,) int
        Period of each row. The first one has the smallest number.
    seed : int
        Seed of the samples.

    Returns
    -------
    drifts : dict of int to Drift
        By period, without the first. Empty if that has fewer than :data:`LEAST_FIRST` rows.

    Examples
    --------
    >>> from raydr.geometry.points import Points
    >>> rows = np.random.default_rng(0).normal(size=(400, 3)) + 9.0 * (np.arange(400) >= 300)[:, None]
    >>> drift_by_period(Points(rows), np.arange(400) // 100, seed=0)[3]
    Drift(compared=100, unlike=100)
    """
    numbers = np.unique(periods)
    random = np.random.default_rng((seed, MOST_COMPARED))

    def sample(number: int) -> Int64Array:
        own = np.flatnonzero(periods == number)
        return np.sort(random.choice(own, min(MOST_COMPARED, own.size), replace=False))

    first = sample(int(numbers[0]))
    if first.size < LEAST_FIRST:
        return {}
    found = {}
    for number in numbers[1:].tolist():
        rows = sample(number)
        unlike = _are_unlike(geometry.take(np.concatenate([first, rows])), first.size)
        found[number] = Drift(compared=rows.size, unlike=int(unlike.sum()))
    return found


def _are_unlike(geometry: Geometry, references: int) -> BoolArray:
    """Return whether each row (rows - references,) is unlike the first rows, which are the references."""
    nearest = np.empty(geometry.rows)
    mean = 0.0
    for start in range(0, geometry.rows, 512):
        stop = min(start + 512, geometry.rows)
        block: Float64Array = geometry.squared_distance_block(start, stop)[:, :references].astype(np.float64)
        mean += float(block.sum()) / (geometry.rows * references)
        own = np.arange(start, min(stop, references))
        block[own - start, own] = np.inf
        nearest[start:stop] = block.min(axis=1)
    scores = np.sort(nearest[:references])
    # Equal distances count as such, so that rounding makes no row unlike the others.
    at_least = references - np.searchsorted(scores, nearest[references:] - _ROUNDING * mean, side="left")
    return (1 + at_least) / (1 + references) <= UNLIKE
