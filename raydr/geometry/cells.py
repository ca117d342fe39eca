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

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import Protocol, TypeVar

import numpy as np

from raydr.arrays import Float32Array, Float64Array, FloatArray, Int64Array
from raydr.geometry.neighbors import (
    TILE_ROWS,
    Candidates,
    NeighborGraph,
    candidates_for,
    filter_of,
    measured_pairs,
    nearest_first,
    nearest_neighbors,
    search_rows,
)
from raydr.geometry.points import Geometry, Points, Progress, map_threaded, row_blocks, run_threaded, unheard

Value = TypeVar("Value")
Task = TypeVar("Task")
Result = TypeVar("Result")

EXACT_ROWS = 50_000
"""Up to this many rows, every pair is compared. Cells are faster from about 15,000 rows on, but gain little there."""
CELL_ROWS = 1000
"""Average rows per cell. Larger cells need more comparisons, and smaller ones more calls of smaller products."""
_GROUP_CELLS = 16
"""Near cells whose rows are one task if several nodes search."""
_RECENT_CELLS = 64
"""Stored cells that a task keeps after use."""
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


class Nodes(Protocol):
    """Processes on several machines that search for neighbours, such as a federation whose cluster has many nodes."""

    def share(self, values: Iterable[Value]) -> Sequence[Value]:
        """Store large values for tasks. A task fetches those that it reads, ``shared[number]``."""

    def compute(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Yield the results of ``work`` on each task, in order, with one BLAS thread each."""


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
    nodes: Nodes | None = None,
) -> Found:
    """Find the ``k`` nearest neighbours of every row, or most of them for very many rows.

    The search is exact up to :data:`EXACT_ROWS` rows, if ``recall`` is 1, and in a geometry without
    coordinates. Otherwise it is :func:`neighbors_by_cells`, with the same parameters and errors.
    """
    if recall < 1.0 and geometry.rows > EXACT_ROWS and isinstance(geometry, Points):
        return neighbors_by_cells(geometry, k, recall=recall, threads=threads, progress=progress, nodes=nodes)
    return Found(nearest_neighbors(geometry, k, threads=threads, progress=progress))


def neighbors_by_cells(
    points: Points,
    k: int,
    *,
    recall: float,
    threads: int | None = None,
    progress: Progress = unheard,
    nodes: Nodes | None = None,
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
        Called as ``progress(done, total)``, in blocks of rows, by a search in this process.
    nodes
        Processes on several machines that search. None searches with threads of this process. Results do not
        depend on it, bit for bit.

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
    cells = _CellsHere.of(points, count, threads)
    probes, reached = _needed_cells(points, cells, k, recall, threads)
    looked_at = probes / cells.count
    if looked_at >= _WORTHWHILE:
        return Found(nearest_neighbors(points, k, threads=threads, progress=progress))
    if nodes is None:
        blocks = _blocks(cells, range(cells.count))
        search = _Search(k, probes)
        found = map_threaded(lambda block: search.block(cells, *block), blocks, threads, progress)
        graph = _graph(found, points, k, threads)
    else:
        shared = nodes.share([cells.stored(nodes)])
        tasks = [_SearchOfGroup(k, probes, shared, homes) for homes in _near_cells(cells.means)]
        del cells  # to free its copy of the rows
        graph = _graph(chain.from_iterable(nodes.compute(_search_of_group, tasks)), points, k, threads)
    return Found(graph, reached, looked_at)


@dataclass(frozen=True, eq=False)
class _Cell:
    """The rows of one cell.

    ``local`` (rows, features) float32 are the rows relative to the mean of the cell, and ``squared_norms``
    (rows,) are their squared norms. Rows of a cell differ by little, so single precision loses nothing there,
    however far from 0 they are.
    """

    local: Float32Array
    squared_norms: Float32Array

    def tile(self, queries: Float32Array) -> FloatArray:
        """Return squared distances (queries, rows) of rows relative to the same mean to the rows of the cell."""
        tile: FloatArray = queries @ self.local.T
        tile *= -2.0
        tile += np.einsum("ij,ij->i", queries, queries)[:, None]
        tile += self.squared_norms
        return np.maximum(tile, 0.0, out=tile)


@dataclass(frozen=True, eq=False)
class _Cells(ABC):
    """Assignment of rows to cells.

    ``order`` (rows,) lists the rows cell by cell. Those of cell c are ``order[ends[c]:ends[c + 1]]``, and a
    row's index in ``order`` is its place. ``means`` (cells, features) float64 are the means that rows were
    assigned to.
    """

    order: Int64Array
    ends: Int64Array
    means: Float64Array

    @property
    def count(self) -> int:
        """Number of cells."""
        return len(self.ends) - 1

    @abstractmethod
    def cell(self, number: int) -> _Cell:
        """Return the rows of a cell."""

    @abstractmethod
    def squared(self, own: Int64Array, others: Int64Array) -> Float64Array:
        """Return squared distances (own, k) of rows to others, (own,) and (own, k) places, by differences."""

    def from_means(self, local: Float32Array, homes: Int64Array) -> FloatArray:
        """Return squared distances (rows, cells) of rows of the cells ``homes`` to all means, up to a constant per row.

        A row's own cell always comes first, because the parts of a cut cell have the same mean.
        """
        places = (local + self.means[homes]).astype(np.float32)
        apart = _apart(places, self.means.astype(np.float32))
        apart[np.arange(len(homes)), homes] = -np.inf
        return apart


@dataclass(frozen=True, eq=False)
class _CellsHere(_Cells):
    """Cells of points of this process. ``local`` and ``squared_norms`` are those of all cells."""

    local: Float32Array
    squared_norms: Float32Array
    points: Points

    @cached_property
    def cell_at(self) -> Int64Array:
        """Cell of each row in that order, (rows,)."""
        return np.repeat(np.arange(self.count), np.diff(self.ends))

    @classmethod
    def of(cls, points: Points, count: int, threads: int | None) -> _CellsHere:
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
        return cls(order, np.asarray(ends), exact, local, np.einsum("ij,ij->i", local, local), points)

    def cell(self, number: int) -> _Cell:
        """See :meth:`_Cells.cell`."""
        part = slice(int(self.ends[number]), int(self.ends[number + 1]))
        return _Cell(self.local[part], self.squared_norms[part])

    def squared(self, own: Int64Array, others: Int64Array) -> Float64Array:
        """See :meth:`_Cells.squared`."""
        return measured_pairs(self.points.coordinates, self.order[own], self.order[others])

    def stored(self, nodes: Nodes) -> _StoredCells:
        """Return the same cells, each stored for tasks."""
        rows = (
            (self.cell(number), self.points.coordinates[self.order[start:stop]])
            for number, (start, stop) in enumerate(pairwise(self.ends.tolist()))
        )
        return _StoredCells(self.order, self.ends, self.means, nodes.share(rows))


@dataclass(frozen=True, eq=False)
class _StoredCells(_Cells):
    """Cells that tasks fetch when they need them, with their points (rows, features)."""

    contents: Sequence[tuple[_Cell, FloatArray]]

    @cached_property
    def _content(self) -> Callable[[int], tuple[_Cell, FloatArray]]:
        return lru_cache(_RECENT_CELLS)(self.contents.__getitem__)

    def cell(self, number: int) -> _Cell:
        """See :meth:`_Cells.cell`."""
        return self._content(number)[0]

    def squared(self, own: Int64Array, others: Int64Array) -> Float64Array:
        """See :meth:`_Cells.squared`."""
        if not own.size:
            return np.empty(others.shape)
        places, at = np.unique(np.column_stack([own, others]), return_inverse=True)
        numbers = np.searchsorted(self.ends, places, side="right") - 1
        rows = np.concatenate(
            [
                self._content(number)[1][places[chosen] - self.ends[number]]
                for number, chosen in _shares(numbers)
            ]
        )
        at = at.reshape(len(own), -1)
        return measured_pairs(rows, at[:, 0], at[:, 1:])


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
    points: Points, cells: _CellsHere, k: int, recall: float, threads: int | None
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
        apart = cells.from_means(cells.local[place[own]], cells.cell_at[place[own]])
        ranks = np.argsort(np.argsort(apart, axis=1, kind="stable"), axis=1)
        # Equal distances can differ by rounding.
        farthest = nearest.squared[:, 0] + 1e-12 * np.abs(nearest.squared).max(axis=1)
        for start, tile in squared(own):
            at, others = np.nonzero(tile <= farthest[:, None])
            np.add.at(held, (block[0] + at, ranks[at, cell_of[start + others]]), 1)

    run_threaded(count, row_blocks(len(chosen), 32), threads)
    found: Float64Array = np.minimum(held.cumsum(axis=1), k).sum(axis=0) / (k * len(chosen))
    probes = min(int(np.searchsorted(found, recall)) + 1, cells.count)
    return probes, float(found[probes - 1])


def _near_cells(means: Float64Array) -> list[Int64Array]:
    """Divide cells into groups of at most :data:`_GROUP_CELLS` near ones, by halving along the widest feature."""

    def halved(cells: Int64Array) -> list[Int64Array]:
        if len(cells) <= _GROUP_CELLS:
            return [np.sort(cells)]
        widest = np.ptp(means[cells], axis=0).argmax()
        cells = cells[np.argsort(means[cells, widest], kind="stable")]
        return halved(cells[: len(cells) // 2]) + halved(cells[len(cells) // 2 :])

    return halved(np.arange(len(means)))


@dataclass(frozen=True, eq=False)
class _FoundRows:
    """Neighbours of some rows.

    ``rows`` (found,) have ``indices`` and ``distances`` (found, k). ``missing`` rows have too few candidates in
    the searched cells.
    """

    rows: Int64Array
    indices: Int64Array
    distances: Float32Array
    missing: Int64Array


@dataclass(frozen=True, eq=False)
class _Search:
    """A search for the ``k`` nearest rows in the ``probes`` cells nearest to each row."""

    k: int
    probes: int

    def block(self, cells: _Cells, home: int, start: int, stop: int) -> _FoundRows:
        """Search for the neighbours of the rows at the places ``start:stop``, which are in the cell ``home``."""
        local = cells.cell(home).local[start - cells.ends[home] : stop - cells.ends[home]]
        apart = cells.from_means(local, np.full(stop - start, home))
        probed = np.argpartition(apart, self.probes - 1, axis=1)[:, : self.probes]
        candidates = Candidates.empty(stop - start, candidates_for(self.k, len(cells.order)), np.float32)
        for number, entries in _shares(probed.ravel()):
            queries = entries // self.probes
            seen = local[queries] + (cells.means[home] - cells.means[number]).astype(np.float32)
            tile = cells.cell(number).tile(seen)
            candidates.offer(tile, start + queries, int(cells.ends[number]), queries)
        whole = np.isfinite(candidates.squared[:, 0])
        own = np.arange(start, stop)[whole]
        squared = cells.squared(own, candidates.indices[whole])
        indices, squared = nearest_first(cells.order[candidates.indices[whole]], squared)
        distances = np.sqrt(squared[:, : self.k]).astype(np.float32)
        rows = cells.order[start:stop]
        return _FoundRows(rows[whole], indices[:, : self.k], distances, rows[~whole])


@dataclass(frozen=True, eq=False)
class _SearchOfGroup(_Search):
    """A search for the neighbours of the rows of the cells ``homes``: a task of one of several nodes."""

    cells: Sequence[_Cells]  # one, stored
    homes: Int64Array


def _blocks(cells: _Cells, homes: Iterable[int]) -> list[tuple[int, int, int]]:
    """Cut cells into blocks: the cell, and the places of some of its rows, from start to stop."""
    ends = cells.ends.tolist()
    return [
        (home, first, min(first + CELL_ROWS, ends[home + 1]))
        for home in homes
        for first in range(ends[home], ends[home + 1], CELL_ROWS)
    ]


def _search_of_group(task: _SearchOfGroup) -> list[_FoundRows]:
    cells = task.cells[0]
    return [task.block(cells, *block) for block in _blocks(cells, task.homes.tolist())]


def _graph(found: Iterable[_FoundRows], points: Points, k: int, threads: int | None) -> NeighborGraph:
    """Return the graph of found rows, after a search among all rows for those that miss neighbours."""
    indices = np.empty((points.rows, k), np.int64)
    distances = np.empty((points.rows, k), np.float32)
    missing = []
    for block in found:
        indices[block.rows], distances[block.rows] = block.indices, block.distances
        missing.append(block.missing.copy())  # a view would keep the whole block in the object store
    own = np.concatenate(missing)

    def search_all(block: tuple[int, int]) -> None:
        rows = own[slice(*block)]
        nearest, squared = search_rows(points, rows, candidates_for(k, points.rows), TILE_ROWS)
        indices[rows], distances[rows] = nearest[:, :k], np.sqrt(squared[:, :k])

    run_threaded(search_all, row_blocks(len(own), CELL_ROWS), threads)
    return NeighborGraph(indices, distances)


def _shares(numbers: Int64Array) -> Iterator[tuple[int, Int64Array]]:
    """Yield each of the numbers, ascending, and where it stands in them."""
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    yield from zip(found.tolist(), np.split(order, starts[1:]), strict=True)
