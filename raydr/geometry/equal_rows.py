"""Groups of equal rows, so that a layout needs only one row of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array, Int64Array
from raydr.geometry.points import Points
from raydr.geometry.sparse_points import SparsePoints

_SAMPLE = 1_000
"""Number of rows whose medians are the median row."""
_OFFSET = (5**0.5 - 1) / 2
"""Part of a cell by which cells are moved, so that round numbers lie inside a cell and not on its edge."""


@dataclass(frozen=True)
class EqualRows:
    """Groups of equal rows, in the order of their first rows.

    Attributes
    ----------
    first : (groups,) int64
        First row of each group.
    group_of_row : (rows,) int64
        Group of each row.
    """

    first: Int64Array
    group_of_row: Int64Array

    @property
    def repeated(self) -> int:
        """Number of rows that equal an earlier one."""
        return len(self.group_of_row) - len(self.first)

    def first_known(self, values: Float64Array) -> Float64Array:
        """Return for each group the value (columns,) of its first row that has one; NaN where none has."""
        found = np.full((len(self.first), values.shape[1]), np.nan)
        known = np.flatnonzero(~np.isnan(values[:, 0]))[::-1]  # the last assignment counts
        found[self.group_of_row[known]] = values[known]
        return found


def equal_rows(points: Points | SparsePoints) -> EqualRows | None:
    """Return the groups of equal rows; None if all rows differ.

    Rows are equal if they lie in the same cell of a grid. Its cells are as wide as the square root of the unit
    roundoff times the typical distance to the median row: squared distances that come from a matrix product do not
    resolve less. The typical distance is the median over the rows that differ from the median row, so a few far rows
    do not widen the cells. Without such rows, all rows are equal.
    """
    rows, features = points.coordinates.shape
    middle = np.median(points.coordinates[:: -(-rows // _SAMPLE)], axis=0)
    lengths = np.concatenate(
        [np.linalg.norm(points.coordinates[block] - middle, axis=1) for block in points.blocks()]
    )
    apart = lengths[lengths > 0]
    typical = float(np.median(apart)) if len(apart) else 1.0
    width = typical * float(np.finfo(points.coordinates.dtype).eps) ** 0.5
    # Rows are compared by 64-bit sums with odd random factors, not by all their cells.
    factors = np.random.default_rng(features).integers(2**63, size=features, dtype=np.uint64) | np.uint64(1)
    sums = np.empty(rows, np.uint64)
    for block in points.blocks():
        cells = np.floor((points.coordinates[block] - middle) / width + _OFFSET)
        sums[block] = (cells.clip(-(2.0**62), 2.0**62).astype(np.int64).view(np.uint64) * factors).sum(axis=1)
    _, first, group = np.unique(sums, return_index=True, return_inverse=True)
    if len(first) == rows:
        return None
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return EqualRows(first[order], place[group.reshape(-1)])
