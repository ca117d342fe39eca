"""Nearest neighbours of very many rows: each row is compared only with the rows of the nearest cells.

Rows are assigned to cells around means of a sample, about a thousand rows per cell. A row is compared with
all rows of the cells whose means are nearest to it. The number of these cells is measured first. For some
rows, drawn at random, the true neighbours are searched among all rows. The smallest number of cells with the
requested recall is used. Work grows with rows * cells per row * cell rows instead of rows^2, and
memory stays at O(rows * k).

All rows of one cell are compared at a time, by matrix products, and offered to the heaps of the exact search.
The distances of the found rows are measured in double precision as there. So only the choice of cells is
approximate: some true neighbours lie in other cells. The result depends only on the coordinates, not on
threads.
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
"""Up to this many rows, every pair is compared. Cells are faster from about 15,000 rows on, but gain little there."""
CELL_ROWS = 1000
"""Average rows per cell. Larger cells need more comparisons, and smaller ones more calls of smaller products."""
_LARGEST = 4
"""Maximum size of a cell, in averages. Larger cells, for example of equal rows, are cut in the order of the rows."""
_SAMPLED = 32
"""Sampled rows per cell, to find the means of the cells."""
_LLOYD = 4
"""Rounds of k-means on that sample. More rounds do not make better cells for the search."""
MEASURED_ROWS = 256
"""Rows whose true neighbours are searched. A recall of .98 then has a standard error of about .003."""
_WORTHWHILE = 0.5
"""Share of all cells above which cells are no faster than the exact search, which is then used."""


@dataclass(frozen=True)
class Found:
    """A graph of nearest neighbours, and how it was found.

    Attributes
    ----------
    graph : NeighborGraph
        Neighbours of all rows.
    recall : float
        Share of the true neighbours in the graph, measured on :data:`MEASURED_ROWS` rows, or 1 for an exact
        search.
    looked_at : float
        Share of all pairs of rows that were compared, or 1 for an exact search.
    """

    graph: NeighborGraph
    recall: float = 1.0
    looked_at: float = 1.0

    @property
    def description(self) -> str:
        """A description of the search, or an empty string if it was exact."""
        if self.looked_at == 1.0:
            return ""
        return (
            f"Each record was compared with the records near to it, {self.looked_at:.1%} of all. For {MEASURED_ROWS}"
            f" records that were compared with all, these held {self.recall:.1%} of the true {self.graph.k} neighbours."
            " neighbor_recall sets this share, and with 1 every pair is compared."
        )


def find_neighbors(
    geometry: Geometry,
    k: int,
    *,
    recall: float,
    threads: int | None = None,
    progress: Progress = unheard,
) -> Found:
    """Find the ``k`` nearest neighbours of every row, or most of them for very many rows.

    The search is exact up to :data:`EXACT_ROWS` rows, if ``recall`` is 1, and in a geometry without
    coordinates. Otherwise it is :func:`neighbors_by_cells`, with the same parameters and errors.
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
        Points with any number of dimensions.
    k
        Neighbours of each row, from 1 to rows - 1.
    recall
        Share of the true neighbours to find, above 0 and below 1. If this needs half of all cells or more,
        the search is exact.
    threads
        Number of threads. None uses all cores. Results do not depend on it, bit for bit.
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
    """Assignment of rows to cells.

    ``order`` (rows,) lists the rows cell by cell. Those of cell c are ``order[ends[c]:ends[c + 1]]``.
    ``means`` (cells, features) float64 are the means that rows were assigned to. ``local`` (rows, features)
    float32 are the rows in that order, relative to the mean of their cell, and ``squared_norms`` (rows,) are
    their squared norms. Rows of a cell differ by little, so single precision loses nothing there, however far
    from 0 they are.
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
        """Make about ``count`` cells, without empty ones."""
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
        """Return squared distances (own, cells) of rows, in that order, to all means, up to a constant per row.

        A row's own cell always comes first, because the parts of a cut cell have the same mean.
        """
        homes = self.cell_at[own]
        places = (self.local[own] + self.means[homes]).astype(np.float32)
        apart = _apart(places, self.means.astype(np.float32))
        apart[np.arange(len(homes)), homes] = -np.inf
        return apart

    def tile(self, queries: Int64Array, home: int, cell: int) -> FloatArray:
        """Return squared distances (queries, rows of ``cell``) of rows of cell ``home``, by places in the order."""
        part = slice(int(self.ends[cell]), int(self.ends[cell + 1]))
        seen = self.local[queries] + (self.means[home] - self.means[cell]).astype(np.float32)
        others = self.local[part]
        tile: FloatArray = seen @ others.T
        tile *= -2.0
        tile += np.einsum("ij,ij->i", seen, seen)[:, None]
        tile += self.squared_norms[part]
        return np.maximum(tile, 0.0, out=tile)


def _apart(rows: FloatArray, means: FloatArray) -> FloatArray:
    """Return squared distances (rows, means) up to a constant per row, because only their order counts."""
    tile: FloatArray = rows @ means.T
    tile *= -2.0
    tile += np.einsum("ij,ij->i", means, means)
    return tile


def _means(rough: Points, count: int, threads: int | None) -> Float32Array:
    """Return means (count, features) of k-means on a sample of the rows. The seed is the number of rows."""
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
    """Return the smallest number of cells with the requested share of true neighbours, and the share that they have.

    Every row that is no farther than the k-th nearest counts as a neighbour, so equal rows can replace each
    other.
    """
    random = np.random.default_rng(points.rows + 1)
    chosen = np.sort(random.choice(points.rows, min(MEASURED_ROWS, points.rows), replace=False))
    held = np.zeros((len(chosen), cells.count), np.int64)
    place = np.empty(points.rows, np.int64)
    place[cells.order] = np.arange(points.rows)
    cell_of = cells.cell_at[place]

    def squared(own: Int64Array) -> Iterator[tuple[int, Float64Array]]:
        """Yield blocks of columns in double precision."""
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
        # Equal distances can differ by rounding.
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
    """Return the graph of the nearest rows in the ``probes`` cells nearest to each row."""
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
        if not whole.all():  # the searched cells hold fewer rows than the number of candidates
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
    """Return every searched cell, and the rows of a block (rows, probes) that search it."""
    cells: IntArray = probed.ravel()
    order = np.argsort(cells, kind="stable")
    at, starts = np.unique(cells[order], return_index=True)
    rows = order // probed.shape[1]
    return list(zip(at.tolist(), np.split(rows, starts[1:]), strict=True))
