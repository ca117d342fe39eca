"""How far rows moved between two maps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array
from raydr.geometry.cells import find_neighbors
from raydr.geometry.points import Geometry, Points
from raydr.geometry.procrustes import procrustes, turn
from raydr.metrics.neighborhood import shared_neighbors

NEIGHBORS, LEAST_ROWS = 10, 4
"""Largest number of neighbours that are compared, and smallest number of rows: with three, most similarities fit."""
_RECALL = 0.98


@dataclass(frozen=True, kw_only=True)
class Displacement:
    """How far the rows of two maps are from each other, after the best similarity.

    Distances are in units of the earlier map's radius, the root mean square distance of the rows from their mean.

    Attributes
    ----------
    rows : int
        Rows on both maps.
    median, upper, largest : float
        Median, 95th percentile and maximum of the distance between the two places of a row.
    neighbors : int
        Number of nearest rows that were compared, among the rows on both maps.
    shared : float
        Mean share of a row's nearest rows on one map that are also nearest on the other, from 0 to 1.
    """

    rows: int
    median: float
    upper: float
    largest: float
    neighbors: int
    shared: float

    @property
    def expected(self) -> float:
        """Share of neighbours that two unrelated maps have in common on average."""
        return self.neighbors / (self.rows - 1)


def displacement(
    now: Float64Array,
    before: Float64Array,
    *,
    in_disk: bool = False,
    geometry: Callable[[Float64Array], Geometry] = Points,
) -> Displacement | None:
    """Return how far rows moved between two maps; None for fewer than 4 rows, or if either map is one point.

    Parameters
    ----------
    now, before : (rows, 2) or (rows, 3) float64
        The same rows on both maps.
    in_disk : bool
        Whether the maps lie in the Poincaré disk or ball. Then they are only turned about its centre.
    geometry : callable
        Distances on a map, for the nearest rows.

    Examples
    --------
    >>> before = np.random.default_rng(0).normal(size=(50, 2))
    >>> turned = 3.0 * before[:, ::-1] + 1.0
    >>> found = displacement(turned, before)
    >>> round(found.largest, 9), found.shared
    (0.0, 1.0)
    """
    rows = len(now)
    if rows < LEAST_ROWS or not np.ptp(now, axis=0).any() or not np.ptp(before, axis=0).any():
        return None
    aligned = (turn if in_disk else procrustes)(now, before)(now)
    radius = math.sqrt(float(((before - before.mean(axis=0)) ** 2).sum(axis=1).mean()))
    moved = np.sqrt(((aligned - before) ** 2).sum(axis=1)) / radius
    k = min(NEIGHBORS, rows - 1)
    nearest = [find_neighbors(geometry(places), k, recall=_RECALL).graph.indices for places in (now, before)]
    return Displacement(
        rows=rows,
        median=float(np.median(moved)),
        upper=float(np.quantile(moved, 0.95)),
        largest=float(moved.max()),
        neighbors=k,
        shared=float(shared_neighbors(*nearest).mean()) / k,
    )
