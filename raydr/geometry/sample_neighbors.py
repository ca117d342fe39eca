"""Exact neighbours of a sample of rows among all rows, and counts of nearer rows.

Each part of the sample takes a pass over all rows, and memory for one block of them. Points with many
features are filtered by products in single precision. What these can misjudge is measured in double
precision, by differences. So the results are exact, and depend neither on threads nor on blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from raydr.arrays import BoolArray, Float64Array, FloatArray, Int64Array
from raydr.geometry.neighbors import measured_pairs, nearest_first
from raydr.geometry.points import (
    Geometry,
    Points,
    Progress,
    row_blocks,
    run_threaded,
    unheard,
)
from raydr.geometry.sparse_points import block_values

OWN_ROWS = 640
"""Sampled rows per pass. All other rows are read again for each pass."""
BLOCK_ROWS = 1_024
"""Rows to compare them with at a time: a tile of 2.6 MB in single precision."""
HELD = 4
"""Keep a float32 copy of the table if at least 1 in ``HELD`` rows is sampled."""
TREE_FEATURES = 3
"""Up to this many features, a k-d tree finds the nearest rows, and distances are differences."""
BLOCK_VALUES = 2**25
"""Values per block of a general geometry: 256 MB in double precision."""


@dataclass(frozen=True, eq=False)
class SampleNeighbors:
    """The nearest rows of some rows, without themselves.

    Attributes
    ----------
    own : (sampled,) int64
        The rows with these neighbours, ascending.
    indices : (sampled, k) int64
        Nearest first. Of equally near rows, the lower index comes first.
    squared : (sampled, k) float64
        Squared distances. For points, by differences.
    rows : int
        Number of rows that were searched.
    as_near : dict of place to indices and squared distances
        All rows as near as the last of these, where they were needed.
    """

    own: Int64Array
    indices: Int64Array
    squared: Float64Array
    rows: int
    as_near: dict[int, tuple[Int64Array, Float64Array]] = field(default_factory=dict, repr=False)

    @property
    def k(self) -> int:
        """Neighbours of each row."""
        return int(self.indices.shape[1])


def nearest_to(
    geometry: Geometry,
    own: Int64Array,
    k: int,
    *,
    threads: int | None = None,
    progress: Progress = unheard,
) -> SampleNeighbors:
    """Find the exact ``k`` nearest rows, from 1 to rows - 1, of rows ``own`` (sampled,), ascending, among all.

    ``progress`` is in blocks of ``own``.

    Examples
    --------
    >>> nearest_to(Points(np.array([[0.0], [1.0], [3.0]])), np.array([2]), 1).indices.tolist()
    [[1]]
    """
    indices = np.empty((own.size, k), np.int64)
    squared = np.empty((own.size, k), np.float64)
    search = _search_of(geometry, k)
    rows = (
        OWN_ROWS
        if isinstance(geometry, Points)
        else max(1, min(OWN_ROWS, block_values(geometry, BLOCK_VALUES) // geometry.rows))
    )

    def look(block: tuple[int, int]) -> None:
        part = slice(*block)
        indices[part], squared[part] = search(own[part])

    run_threaded(look, row_blocks(own.size, rows), threads, progress)
    return SampleNeighbors(own, indices, squared, geometry.rows)


def squared_distances_of(geometry: Geometry, own: Int64Array) -> Float64Array:
    """Return squared distances (own, rows), float64, of some rows to all rows, infinite to themselves.

    For points, they are computed by differences.
    """
    if isinstance(geometry, Points):
        from raydr.geometry.kernels import measure_all

        squared = np.empty((own.size, geometry.rows))
        measure_all(geometry.coordinates, own, squared)
    else:
        distances_of_rows = getattr(geometry, "squared_distance_rows", None)
        blocks = (
            [distances_of_rows(own)]
            if distances_of_rows is not None
            else [geometry.squared_distance_block(row, row + 1) for row in own.tolist()]
        )
        squared = np.maximum(np.concatenate(blocks), 0.0, dtype=np.float64)
    squared[np.arange(own.size), own] = np.inf
    return squared


def count_nearer(
    points: Points,
    own: Int64Array,
    starts: Int64Array,
    thresholds: Float64Array,
    *,
    threads: int | None = None,
) -> Int64Array:
    """Count the other rows that are nearer to each of the rows ``own`` than each of its thresholds.

    Parameters
    ----------
    points : Points
        All rows.
    own : (sampled,) int64
        Rows whose distances are used.
    starts : (sampled + 1,) int64
        Start of each row's thresholds, and the end of the last row's.
    thresholds : (pairs,) float64
        Squared distances.
    threads : int, optional
        Number of threads. Default: all cores.

    Returns
    -------
    (pairs,) int64

    Examples
    --------
    >>> line = Points(np.array([[0.0], [1.0], [3.0], [7.0]]))
    >>> count_nearer(line, np.array([0]), np.array([0, 2]), np.array([9.0, 9.5])).tolist()
    [1, 2]
    """
    from raydr.geometry.kernels import count_boxed, count_filtered

    counts = np.zeros(thresholds.size, np.int64)
    if points.coordinates.shape[1] <= TREE_FEATURES:

        def count(block: tuple[int, int]) -> None:
            part = slice(block[0], block[1] + 1)
            count_boxed(
                columns, places, lowest, highest, own[slice(*block)], starts[part], thresholds, counts
            )

        columns, places, lowest, highest = _boxed(points)
    else:
        filtered = _Filter.of(points, np.float32)
        cut = [slice(*block) for block in row_blocks(points.rows, BLOCK_ROWS)]
        # If nearly all rows are sampled, the others are held in single precision. If few are, they are read
        # as needed.
        held = [filtered.brought(rows) for rows in cut] if HELD * own.size >= points.rows else None

        def count(block: tuple[int, int]) -> None:
            rows, bounds = own[slice(*block)], starts[block[0] : block[1] + 1]
            mine = filtered.brought(rows)
            scaled = thresholds * filtered.scale**2
            for others, rows_of in zip(held or map(filtered.brought, cut), cut, strict=True):
                first = rows_of.start
                count_filtered(
                    mine.rows @ others.rows.T,
                    mine.norms,
                    others.norms,
                    filtered.doubt,
                    points.coordinates,
                    rows,
                    first,
                    bounds,
                    scaled,
                    thresholds,
                    counts,
                )

    run_threaded(count, row_blocks(own.size, OWN_ROWS), threads)
    return counts


def norms_of(points: Points, rows: Int64Array) -> Float64Array:
    """Return the norms (rows,) of these rows minus the shift, in double precision."""
    once, places = np.unique(rows, return_inverse=True)
    found = np.empty(once.size)
    for first, last in row_blocks(once.size, BLOCK_ROWS):
        centred = points.centred(once[first:last]).astype(np.float64)
        found[first:last] = np.sqrt(np.einsum("ij,ij->i", centred, centred))
    return np.asarray(found[places])


@dataclass(frozen=True, eq=False)
class _Brought:
    """Rows, centred and scaled, and their squared norms, in double precision."""

    rows: FloatArray
    norms: Float64Array


@dataclass(frozen=True, eq=False)
class _Filter:
    """Points for products in a given precision, scaled so that no norm is above 1.

    ``doubt`` is the error bound of a squared distance, relative to the sum of the two squared norms.
    """

    points: Points
    scale: float
    dtype: Any
    doubt: float

    @classmethod
    def of(cls, points: Points, dtype: Any) -> _Filter:
        radius = float(np.sqrt(np.float64(points.squared_norms.max())))
        # A power of two: it is exact, and nothing overflows or vanishes in single precision.
        scale = 2.0 ** -np.ceil(np.log2(radius)) if radius > 0 else 1.0
        # As in `raydr.geometry.neighbors`, with (|x| + |y|)^2 <= 2 (|x|^2 + |y|^2), and a few more roundings.
        roundoff = float(np.finfo(dtype).eps) / 2.0
        return cls(points, scale, dtype, 2.0 * (3.0 * np.sqrt(points.coordinates.shape[1]) + 12.0) * roundoff)

    def brought(self, rows: slice | Int64Array) -> _Brought:
        """Return these rows, centred and scaled."""
        exact = self.points.centred(rows).astype(np.float64) * self.scale
        return _Brought(exact.astype(self.dtype), np.einsum("ij,ij->i", exact, exact))


_Search = Callable[[Int64Array], tuple[Int64Array, Float64Array]]


def _search_of(geometry: Geometry, k: int) -> _Search:
    if not isinstance(geometry, Points):
        return lambda own: _smallest(squared_distances_of(geometry, own), k)
    if geometry.coordinates.shape[1] <= TREE_FEATURES:
        return _tree_search(geometry, k)
    rough, fine = _Filter.of(geometry, np.float32), _Filter.of(geometry, np.float64)
    size = min(geometry.rows - 1, k + max(8, k // 8))

    def search(own: Int64Array) -> tuple[Int64Array, Float64Array]:
        indices, squared, certain = _filtered(rough, own, size, k)
        left = np.flatnonzero(~certain)
        if (
            left.size
            # mostly ties of the last neighbours, which no precision can separate, so certainty is not required
            # here
        ):
            indices[left], squared[left], _ = _filtered(fine, own[left], size, k)
        return indices[:, :k], squared[:, :k]

    return search


def _tree_search(points: Points, k: int) -> _Search:
    from scipy.spatial import cKDTree

    tree = cKDTree(points.coordinates.astype(np.float64, copy=False))

    def search(own: Int64Array) -> tuple[Int64Array, Float64Array]:
        found = np.asarray(tree.query(points.coordinates[own], k + 1)[1], dtype=np.int64).reshape(-1, k + 1)
        # If a row has many copies, it can be missing from its own neighbours. Then the last neighbour is
        # dropped.
        itself = found == own[:, None]
        itself[~itself.any(axis=1), -1] = True
        others = found[~itself].reshape(-1, k)
        return nearest_first(others, measured_pairs(points.coordinates, own, others))

    return search


def _filtered(
    filtered: _Filter, own: Int64Array, size: int, k: int
) -> tuple[Int64Array, Float64Array, BoolArray]:
    """Return the nearest ``size`` rows by the filter, measured, and for which rows the first ``k`` are certain."""
    from raydr.geometry.kernels import keep_smallest

    points = filtered.points
    mine = filtered.brought(own)
    indices = np.full((own.size, size), -1, np.int64)
    rough = np.full((own.size, size), np.inf, filtered.dtype)
    largest = 0.0
    for first, last in row_blocks(points.rows, BLOCK_ROWS):
        others = filtered.brought(slice(first, last))
        largest = max(largest, float(others.norms.max()))
        keep_smallest(
            mine.rows @ others.rows.T, others.norms.astype(filtered.dtype), own, first, rough, indices
        )
    found, squared = nearest_first(indices, measured_pairs(points.coordinates, own, indices))
    # No row nearer than this was lost: the farthest kept, minus the error bound of the filter.
    safe = rough[:, -1].astype(np.float64) + mine.norms - filtered.doubt * (mine.norms + largest)
    certain = squared[:, k - 1] * filtered.scale**2 < safe
    return found, squared, np.asarray(certain | (size == points.rows - 1))


def _boxed(points: Points) -> tuple[Float64Array, Int64Array, Float64Array, Float64Array]:
    """Return columns (features, rows) in k-d tree order, the place of each row, and the boxes of `BOX_ROWS` rows.

    A box is given by its lowest and highest coordinates, (boxes, features).
    """
    from scipy.spatial import cKDTree

    from raydr.geometry.kernels import BOX_ROWS

    coordinates = points.coordinates.astype(np.float64, copy=False)
    order = cKDTree(coordinates, leafsize=BOX_ROWS // 2).indices
    columns = np.ascontiguousarray(coordinates[order].T)
    firsts = np.arange(0, points.rows, BOX_ROWS)
    lowest, highest = (
        np.ascontiguousarray(each.reduceat(columns, firsts, axis=1).T) for each in (np.minimum, np.maximum)
    )
    return columns, np.argsort(order), lowest, highest


def _smallest(squared: Float64Array, k: int) -> tuple[Int64Array, Float64Array]:
    """Return the indices and values (own, k) of the smallest in each row.

    Of equal values, the lower index comes first.
    """
    last = np.partition(squared, k - 1, axis=1)[:, k - 1]
    indices, values = np.empty((len(squared), k), np.int64), np.empty((len(squared), k))
    for row, (one, most) in enumerate(zip(squared, last, strict=True)):
        near = np.flatnonzero(one <= most)
        near = near[np.lexsort((near, one[near]))][:k]
        indices[row], values[row] = near, one[near]
    return indices, values
