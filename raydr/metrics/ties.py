"""Nearest rows when several are equally near.

Repeated rows and integer rows have neighbours at equal distances. Which of these are "the 10 nearest" depends
on rounding and on the order of rows, but no score here may depend on it. A tie in the data is broken in
favour of the map or geometry that is evaluated, because nothing is lost that way. A tie in what is evaluated
counts as the mean over all ways to break it, because it gives no information. Distances count as equal if
rounding alone could separate them. Without ties, nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np

from raydr.arrays import BoolArray, Float64Array, Int64Array
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import Geometry, Points, map_threaded
from raydr.geometry.sample_neighbors import SampleNeighbors, norms_of, squared_distances_of

BLOCK_ROWS = 64
NEARLY = 1e-6
"""Relative difference of distances in single precision that can be equal in double precision."""
MOST_KEPT = 4_096
"""Maximum number of equally near last neighbours of a row that are stored."""
ROUNDING = 1e-12
"""Relative difference of squared distances in double precision that can be equal."""


@dataclass(frozen=True, eq=False)
class Rounded:
    """Squared distances in double precision, with a bound on the rounding error of each.

    The geometry is created on the first request for a distance. Without ties there is none.

    Attributes
    ----------
    source : callable
        Returns the geometry, of any kind.
    """

    source: Callable[[], Geometry]

    @cached_property
    def geometry(self) -> Geometry:
        """The geometry, with points in double precision."""
        source = self.source()
        if not isinstance(source, Points) or source.coordinates.dtype == np.float64:
            return source
        return Points(source.coordinates.astype(np.float64))

    @cached_property
    def norms(self) -> Float64Array | None:
        """Norms of points (rows,) as used for their distances. None for a geometry whose errors are relative."""
        if not isinstance(self.geometry, Points):
            return None
        return np.asarray(np.sqrt(self.geometry.squared_norms), dtype=np.float64)

    @cached_property
    def unit(self) -> float:
        """Error of a squared distance of points, relative to the square of the sum of the two norms."""
        if not isinstance(self.geometry, Points):
            return 0.0
        # As in `raydr.geometry.neighbors`, with the unit roundoff of double precision.
        return float((3.0 * np.sqrt(self.geometry.coordinates.shape[1]) + 6.0) * 2.0**-53)

    def block(self, own: Int64Array) -> Float64Array:
        """Return squared distances (own, rows) of rows ``own``, ascending, to all rows; infinite to themselves."""
        if isinstance(self.geometry, Points):
            squared = np.asarray(self.geometry.squared_distance_tile(own, slice(None)), dtype=np.float64)
        else:
            start = int(own[0])
            whole = self.geometry.squared_distance_block(start, int(own[-1]) + 1)
            chosen = whole if len(whole) == len(own) else whole[own - start]
            squared = np.maximum(chosen, 0.0, dtype=np.float64)
        squared[np.arange(len(own)), own] = np.inf
        return squared

    def margins(self, row: int, others: Int64Array | slice, squared: Float64Array) -> Float64Array:
        """Return the error bounds of ``squared`` (others,), the squared distances of ``row`` to ``others``."""
        margins: Float64Array = ROUNDING * squared
        if self.norms is not None:
            margins += self.unit * (self.norms[row] + self.norms[others]) ** 2
        return margins

    def measured(self, row: int, others: Int64Array, squared: Float64Array) -> Float64Array:
        """Return ``squared`` (rows,) at ``others``: (others,).

        For points, by differences, whose errors are relative.
        """
        if not isinstance(self.geometry, Points):
            return squared[others]
        apart = self.geometry.coordinates[others] - self.geometry.coordinates[row]
        return np.asarray(np.einsum("ij,ij->i", apart, apart))


def rounding_margins(
    geometry: Geometry, own: Int64Array, others: Int64Array, squared: Float64Array
) -> Float64Array:
    """Return `Rounded.margins` of pairs: ``squared`` (pairs,) are the squared distances of ``own`` to ``others``."""
    margins: Float64Array = ROUNDING * squared
    if isinstance(geometry, Points):
        unit = (3.0 * np.sqrt(geometry.coordinates.shape[1]) + 6.0) * 2.0**-53
        margins += unit * (norms_of(geometry, own) + norms_of(geometry, others)) ** 2
    return margins


@dataclass(frozen=True)
class Nearest:
    """The ``k`` nearest rows of one row: those that are ``surely`` so, and the rest from those that are ``tied``."""

    surely: Int64Array
    tied: Int64Array
    k: int

    @property
    def left(self) -> int:
        """How many of the tied rows are among the nearest."""
        return self.k - self.surely.size

    @classmethod
    def among(cls, geometry: Geometry, neighbors: SampleNeighbors, place: int, k: int) -> Nearest:
        """Return the nearest rows of the searched row at ``place``, from its found neighbours if possible."""
        indices, squared = neighbors.indices[place], neighbors.squared[place]
        last = squared[k - 1]
        if squared[-1] <= last * (1.0 + ROUNDING) and neighbors.k < neighbors.rows - 1:
            # More rows than were searched can be equally near.
            indices, squared = _as_near(geometry, neighbors, place)
        surely = squared < last * (1.0 - ROUNDING)
        return cls(indices[surely], indices[(squared <= last * (1.0 + ROUNDING)) & ~surely], k)

    @classmethod
    def of(cls, rounded: Rounded, row: int, squared: Float64Array, k: int) -> Nearest:
        """Return the nearest rows from squared distances (rows,) of a row, infinite to itself."""
        last = np.partition(squared, k - 1)[k - 1]
        margins = rounded.margins(row, slice(None), np.minimum(squared, last))
        near = np.flatnonzero(squared <= last + 2.0 * margins)
        measured = rounded.measured(row, near, squared)
        last = np.partition(measured, k - 1)[k - 1]
        surely = measured < last * (1.0 - ROUNDING)
        return cls(near[surely], near[(measured <= last * (1.0 + ROUNDING)) & ~surely], k)


def tied_rows(graph: NeighborGraph, k: int, anywhere: bool = False) -> BoolArray:
    """Return the rows (rows,) whose ``k``-th neighbour can be as near as the next.

    With ``anywhere``, any of the first ``k``.

    The next one is visible only if the graph holds more than ``k``.
    """
    distances = graph.distances[:, 0 if anywhere else k - 1 : k + 1].astype(np.float64)
    return np.asarray((np.diff(distances, axis=1) <= NEARLY * distances[:, 1:]).any(axis=1))


def each_row(which: Int64Array, *geometries: Rounded) -> Iterator[tuple[int, tuple[Float64Array, ...]]]:
    """Yield each of the rows ``which``, ascending, and its squared distances (rows,) in each geometry."""
    # Blocks of consecutive rows, because some geometries support only these.
    for start in range(0, int(which[-1]) + 1 if which.size else 0, BLOCK_ROWS):
        own = which[slice(*np.searchsorted(which, (start, start + BLOCK_ROWS)))]
        if own.size:
            yield from zip(
                own.tolist(), zip(*(each.block(own) for each in geometries), strict=True), strict=True
            )


def untied(graph: NeighborGraph, true: Rounded, found: Rounded, k: int) -> Int64Array:
    """Return the ``k`` nearest of each row, (rows, k), in order. Ties follow the order found, then the index.

    ``graph`` holds more than ``k`` true neighbours, or all rows.
    """
    nearest: Int64Array = graph.nearest(k).indices.copy()
    for row, (squared, other) in each_row(np.flatnonzero(tied_rows(graph, k, anywhere=True)), true, found):
        near = Nearest.of(true, row, squared, k)
        among = np.sort(np.concatenate([near.surely, near.tied]))
        tiers, places = (
            _tiers(each.measured(row, among, distances))
            for each, distances in ((true, squared), (found, other))
        )
        nearest[row] = among[np.lexsort((among, places, tiers))][:k]
    return nearest


def _tiers(squared: Float64Array) -> Int64Array:
    """Return the rank of each squared distance (rows,) among the distinct ones, ascending.

    Equal ones share a rank.
    """
    order = np.argsort(squared, kind="stable")
    ascending = squared[order]
    tiers = np.empty(len(squared), np.int64)
    tiers[order] = np.cumsum(np.diff(ascending, prepend=ascending[:1]) > ROUNDING * ascending)
    return tiers


def shared_by_ties(
    own: Int64Array, true: Rounded, found: Rounded, k: int, threads: int | None = None
) -> Float64Array:
    """Count the true neighbours among the ``k`` found ones, for each of the rows ``own``, ascending: (own,).

    True ties are broken in favour of what was found. Ties among the found rows count as the mean.
    """
    groups = [part for part in np.split(own, np.flatnonzero(np.diff(own // BLOCK_ROWS)) + 1) if part.size]

    def counted(part: Int64Array) -> list[float]:
        return [
            expected_hits(Nearest.of(true, row, one, k), Nearest.of(found, row, other, k))
            for row, (one, other) in each_row(part, true, found)
        ]

    return np.array([hits for part in map_threaded(counted, groups, threads) for hits in part])


def _as_near(geometry: Geometry, neighbors: SampleNeighbors, place: int) -> tuple[Int64Array, Float64Array]:
    """Return all rows as near as the last one searched, and their squared distances. The search runs once."""
    if place in neighbors.as_near:
        return neighbors.as_near[place]
    whole = squared_distances_of(geometry, neighbors.own[place : place + 1])[0]
    indices = np.flatnonzero(whole <= neighbors.squared[place, -1] * (1.0 + ROUNDING))
    found = indices, whole[indices]
    if indices.size <= MOST_KEPT:
        neighbors.as_near[place] = found
    return found


def tied_neighbors(neighbors: SampleNeighbors, k: int) -> BoolArray:
    """Return the rows (sampled,) whose ``k``-th neighbour is as near as the next."""
    if neighbors.k == k:  # no further neighbours are known
        return np.full(len(neighbors.own), neighbors.k < neighbors.rows - 1)
    return np.asarray(neighbors.squared[:, k] <= neighbors.squared[:, k - 1] * (1.0 + ROUNDING))


def expected_hits(true: Nearest, found: Nearest) -> float:
    """Return how many of the ``k`` found rows are among the true ones: the mean over the ways to break found ties.

    Each way counts the best over the true ties.
    """
    sure, maybe = (
        int(np.isin(true.surely, part, assume_unique=True).sum()) for part in (found.surely, found.tied)
    )
    tied, perhaps = (
        int(np.isin(true.tied, part, assume_unique=True).sum()) for part in (found.surely, found.tied)
    )
    size, draws, most = found.tied.size, found.left, true.left
    hits = [min(most, tied + drawn) for drawn in range(min(draws, perhaps) + 1)]
    ways = [comb(perhaps, drawn) * comb(size - perhaps, draws - drawn) for drawn in range(len(hits))]
    mean = sum(way * hit for way, hit in zip(ways, hits, strict=True)) / comb(size, draws)
    return sure + maybe * draws / size + mean
