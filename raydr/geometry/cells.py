"""Nearest neighbours of very many rows: each row looks into the cells that are nearest to it, and no further.

Rows are dealt to cells around means of a sample, about a thousand rows to each. A row is compared with all rows of the
cells whose means are nearest to it. How many cells these are is measured beforehand: of some rows, drawn by chance, the
true neighbours are searched among all, and the least number of cells is taken that holds the part of them that was
asked for. Work grows with rows * cells looked into * cell rows in place of rows^2, memory stays at O(rows * k).

Cells are looked into by matrix products, all rows of one cell at a time, into the heaps of the exact search, and the
distances of those found are measured in double precision as there. So only the choice of cells is approximate: which of
the true neighbours lie elsewhere. The result depends on the coordinates alone, not on threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from raydr.arrays import Float32Array, Float64Array, FloatArray, Int64Array, IntArray
from raydr.geometry.neighbors import (
    TILE_ROWS,
    Candidates,
    NeighborGraph,
    candidates_for,
    filter_of,
    measured_nearest,
    nearest_neighbors,
    search_rows,
)
from raydr.geometry.points import Geometry, Points, Progress, row_blocks, run_threaded, unheard

EXACT_ROWS = 50_000
"""Rows up to which every pair is compared. Cells are faster from about 15,000 rows on, but there is little to gain."""
CELL_ROWS = 1000
"""Rows of a cell on average; larger ones cost more comparisons, smaller ones more calls of fewer products each."""
_LARGEST = 4
"""Times the average that a cell may hold; larger ones, of equal rows say, are cut in order of the rows."""
_SAMPLED = 32
"""Rows of the sample by which the cells' means are found, for each cell."""
_LLOYD = 4
"""Rounds of k-means on that sample. More make no better cells to search in."""
MEASURED_ROWS = 256
"""Rows whose true neighbours are searched: a recall of .98 then has a standard error of about .003."""
_WORTHWHILE = 0.5
"""Part of all cells from which on looking into cells is no faster than the exact search, which then takes place."""


@dataclass(frozen=True)
class Found:
    """A graph of nearest neighbours, and how it was found.

    Attributes
    ----------
    graph : NeighborGraph
        Of all rows.
    recall : float
        Part of the true neighbours that are in it, as measured on :data:`MEASURED_ROWS` rows; 1 where the search was
        exact.
    looked_at : float
        Part of all pairs of rows that were compared; 1 where the search was exact.
    """

    graph: NeighborGraph
    recall: float = 1.0
    looked_at: float = 1.0

    @property
    def said(self) -> str:
        """In words, where it was not exact."""
        if self.looked_at == 1.0:
            return ""
        return (
            f"Each record was compared with the records near to it, {self.looked_at:.1%} of all. Of {MEASURED_ROWS}"
            f" records that were compared with all, these held {self.recall:.1%} of the true {self.graph.k} neighbours;"
            " neighbor_recall says how many there are to be, and with 1 every pair is compared."
        )


def find_neighbors(
    geometry: Geometry,
    k: int,
    *,
    recall: float,
    threads: int | None = None,
    progress: Progress = unheard,
) -> Found:
    """The ``k`` nearest neighbours of every row, or of very many rows most of them.

    All of them where there are :data:`EXACT_ROWS` rows or fewer, where ``recall`` is 1, and in a geometry that has no
    coordinates; else as :func:`neighbors_by_cells`, whose parameters and errors these are.
    """
    if recall < 1.0 and geometry.rows > EXACT_ROWS and isinstance(geometry, Points):
        return neighbors_by_cells(geometry, k, recall=recall, threads=threads, progress=progress)
    return Found(nearest_neighbors(geometry, k, threads=threads, progress=progress))


def neighbors_by_cells(
    points: Points,
    k: int,
    *,
    recall: float,
    threads: int | None = None,
    progress: Progress = unheard,
) -> Found:
    """Find most of the ``k`` nearest neighbours of every row.

    Parameters
    ----------
    points
        Points of any number of dimensions.
    k
        Neighbours of each row, from 1 to rows - 1.
    recall
        Part of the true neighbours that is wanted, above 0 and below 1. Where as many can only be had by looking into
        half of all cells or more, the search is exact.
    threads
        Threads; None takes all cores. No bit depends on it.
    progress
        Called as ``progress(done, total)``, in cells.

    Raises
    ------
    DataError
        If ``k`` is not from 1 to rows - 1.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(4000, 2))
    >>> found = neighbors_by_cells(Points(rows), 5, recall=0.9)
    >>> found.graph.indices.shape
    (4000, 5)
    """
    count = points.rows // CELL_ROWS
    if count < 2 or not 1 <= k < points.rows:
        return Found(nearest_neighbors(points, k, threads=threads, progress=progress))
    cells = _Cells.of(points, count, threads)
    probes, reached = _needed_cells(points, cells, k, recall, threads)
    looked_at = probes / cells.count
    if looked_at >= _WORTHWHILE:
        return Found(nearest_neighbors(points, k, threads=threads, progress=progress))
    graph = _searched(points, cells, k, probes, threads, progress)
    return Found(graph, reached, looked_at)


@dataclass(frozen=True, eq=False)
class _Cells:
    """Which rows are in which cell.

    ``order`` (rows,) lists the rows cell by cell; those of cell c are ``order[ends[c]:ends[c + 1]]``. ``means``
    (cells, features) float64 are what rows went by. ``local`` (rows, features) float32 are the rows in that order, each
    less the mean of its cell, and ``squared_norms`` (rows,) theirs: near to each other rows differ by little, of which
    single precision loses nothing there, however far from 0 they are.
    """

    order: Int64Array
    ends: Int64Array
    means: Float64Array
    local: Float32Array
    squared_norms: Float32Array

    @property
    def count(self) -> int:
        """Number of cells."""
        return len(self.ends) - 1

    @cached_property
    def cell_at(self) -> Int64Array:
        """Cell of each row in that order, (rows,)."""
        return np.repeat(np.arange(self.count), np.diff(self.ends))

    @classmethod
    def of(cls, points: Points, count: int, threads: int | None) -> _Cells:
        """About ``count`` cells; those without rows are left out."""
        rough, scale = filter_of(points)
        means = _means(rough, count, threads)
        nearest = np.empty(rough.rows, np.int64)

        def assign(block: tuple[int, int]) -> None:
            part = slice(*block)
            nearest[part] = _apart(rough.coordinates[part], means).argmin(axis=1)

        run_threaded(assign, row_blocks(rough.rows, 4 * TILE_ROWS), threads)
        order = np.argsort(nearest, kind="stable")
        ends, kept = [0], []
        for cell, size in enumerate(np.bincount(nearest, minlength=count).tolist()):
            start = ends[-1]
            for piece in range(0, size, _LARGEST * CELL_ROWS):
                ends.append(start + min(piece + _LARGEST * CELL_ROWS, size))
                kept.append(cell)
        exact = means[kept].astype(np.float64)
        local = np.empty(rough.coordinates.shape, np.float32)
        for mean, start, stop in zip(exact, ends[:-1], ends[1:], strict=True):
            local[start:stop] = points.centred(order[start:stop]).astype(np.float64) * scale - mean
        return cls(order, np.asarray(ends), exact, local, np.einsum("ij,ij->i", local, local))

    def from_means(self, own: slice | Int64Array) -> FloatArray:
        """Squared distances (own, cells) of rows, in that order, to all means, but for what is the same in a row.

        The cell of a row itself comes first in any case: a cell that was cut has the same mean as its other parts.
        """
        homes = self.cell_at[own]
        places = (self.local[own] + self.means[homes]).astype(np.float32)
        apart = _apart(places, self.means.astype(np.float32))
        apart[np.arange(len(homes)), homes] = -np.inf
        return apart

    def tile(self, queries: Int64Array, home: int, cell: int) -> FloatArray:
        """Squared distances (queries, rows of ``cell``) of rows of the cell ``home``, by places in the order."""
        part = slice(int(self.ends[cell]), int(self.ends[cell + 1]))
        seen = self.local[queries] + (self.means[home] - self.means[cell]).astype(np.float32)
        others = self.local[part]
        tile: FloatArray = seen @ others.T
        tile *= -2.0
        tile += np.einsum("ij,ij->i", seen, seen)[:, None]
        tile += self.squared_norms[part]
        return np.maximum(tile, 0.0, out=tile)


def _apart(rows: FloatArray, means: FloatArray) -> FloatArray:
    """Squared distances (rows, means), but for what is the same in a row: only the order counts."""
    tile: FloatArray = rows @ means.T
    tile *= -2.0
    tile += np.einsum("ij,ij->i", means, means)
    return tile


def _means(rough: Points, count: int, threads: int | None) -> Float32Array:
    """Means (count, features) of k-means on a sample of the rows, drawn by the number of rows alone."""
    random = np.random.default_rng(rough.rows)
    size = min(rough.rows, _SAMPLED * count)
    sample = rough.coordinates[np.sort(random.choice(rough.rows, size, replace=False))]
    means = sample[np.sort(random.choice(size, count, replace=False))].copy()
    nearest = np.empty(size, np.int64)
    for _ in range(_LLOYD):

        def assign(block: tuple[int, int], now: Float32Array = means) -> None:
            nearest[slice(*block)] = _apart(sample[slice(*block)], now).argmin(axis=1)

        run_threaded(assign, row_blocks(size, 4 * TILE_ROWS), threads)
        order = np.argsort(nearest, kind="stable")
        sizes = np.bincount(nearest, minlength=count)
        held = np.flatnonzero(sizes)
        starts = np.concatenate([[0], np.cumsum(sizes[held])[:-1]])
        sums = np.add.reduceat(sample[order], starts, axis=0, dtype=np.float64)
        means[held] = sums / sizes[held, None]
    return means


def _needed_cells(
    points: Points, cells: _Cells, k: int, recall: float, threads: int | None
) -> tuple[int, float]:
    """The least number of cells that hold the part of true neighbours that is asked for, and the part they do hold.

    A neighbour is whatever is no farther than the k-th nearest, so that equal rows may stand for each other.
    """
    random = np.random.default_rng(points.rows + 1)
    chosen = np.sort(random.choice(points.rows, min(MEASURED_ROWS, points.rows), replace=False))
    held = np.zeros((len(chosen), cells.count), np.int64)
    place = np.empty(points.rows, np.int64)
    place[cells.order] = np.arange(points.rows)
    cell_of = cells.cell_at[place]

    def squared(own: Int64Array) -> Iterator[tuple[int, Float64Array]]:
        """In double precision, some columns at a time."""
        rows = points.centred(own).astype(np.float64)
        for start, stop in row_blocks(points.rows, 16 * TILE_ROWS):
            others = points.centred(slice(start, stop)).astype(np.float64)
            tile = _apart(rows, others) + np.einsum("ij,ij->i", rows, rows)[:, None]
            within = (own >= start) & (own < stop)
            tile[within, own[within] - start] = np.inf
            yield start, tile

    def count(block: tuple[int, int]) -> None:
        own = chosen[slice(*block)]
        nearest = Candidates.empty(own.size, k, np.float64)
        for start, tile in squared(own):
            nearest.offer(tile, own, start, np.arange(own.size))
        ranks = np.argsort(np.argsort(cells.from_means(place[own]), axis=1, kind="stable"), axis=1)
        # But for rounding, by which distances that are equal may differ.
        farthest = nearest.squared[:, 0] + 1e-12 * np.abs(nearest.squared).max(axis=1)
        for start, tile in squared(own):
            at, others = np.nonzero(tile <= farthest[:, None])
            np.add.at(held, (block[0] + at, ranks[at, cell_of[start + others]]), 1)

    run_threaded(count, row_blocks(len(chosen), 32), threads)
    found: Float64Array = np.minimum(held.cumsum(axis=1), k).sum(axis=0) / (k * len(chosen))
    probes = min(int(np.searchsorted(found, recall)) + 1, cells.count)
    return probes, float(found[probes - 1])


def _searched(
    points: Points,
    cells: _Cells,
    k: int,
    probes: int,
    threads: int | None,
    progress: Progress,
) -> NeighborGraph:
    """Graph of the nearest of the rows in the ``probes`` cells nearest to each row."""
    size = candidates_for(k, points.rows)
    indices = np.empty((points.rows, k), np.int64)
    distances = np.empty((points.rows, k), np.float32)

    def search(block: tuple[int, int, int]) -> None:
        home, start, stop = block
        probed = np.argpartition(cells.from_means(slice(start, stop)), probes - 1, axis=1)[:, :probes]
        candidates = Candidates.empty(stop - start, size, np.float32)
        for cell, queries in _by_cell(probed):
            own = start + queries
            candidates.offer(cells.tile(own, home, cell), own, int(cells.ends[cell]), queries)
        whole = np.isfinite(candidates.squared[:, 0])
        own = cells.order[start:stop][whole]
        nearest, squared = measured_nearest(points, own, cells.order[candidates.indices[whole]])
        indices[own], distances[own] = nearest[:, :k], np.sqrt(squared[:, :k])
        if not whole.all():  # the cells that were looked into hold fewer rows than are to be candidates
            own = cells.order[start:stop][~whole]
            nearest, squared = search_rows(points, own, size, TILE_ROWS)
            indices[own], distances[own] = nearest[:, :k], np.sqrt(squared[:, :k])

    blocks = [
        (cell, first, min(first + CELL_ROWS, stop))
        for cell, (start, stop) in enumerate(
            zip(cells.ends[:-1].tolist(), cells.ends[1:].tolist(), strict=True)
        )
        for first in range(start, stop, CELL_ROWS)
    ]
    run_threaded(search, blocks, threads, progress)
    return NeighborGraph(indices, distances)


def _by_cell(probed: Int64Array) -> list[tuple[int, Int64Array]]:
    """Every cell that is looked into, and which rows of a block (rows, probes) look there."""
    cells: IntArray = probed.ravel()
    order = np.argsort(cells, kind="stable")
    at, starts = np.unique(cells[order], return_index=True)
    rows = order // probed.shape[1]
    return list(zip(at.tolist(), np.split(rows, starts[1:]), strict=True))
