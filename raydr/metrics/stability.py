"""Whether places of a map stay on other maps of the same rows: with other seeds, and without a site.

Two maps are compared by neighbours, so none has to be moved onto another. A row's place stays if the other map shows
at least half of its nearest rows next to it. An island dissolves if no island of the other map has half of the rows of
both (Hennig, Dissolution point and isolation robustness, 2008).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raydr.arrays import BoolArray, Float64Array, Int64Array
from raydr.geometry.points import Geometry
from raydr.geometry.sample_neighbors import nearest_to
from raydr.metrics.islands import LEAST_OF_ISLAND, islands_of_map
from raydr.metrics.sampling import EXACT_ROWS, SAMPLED_ROWS, drawn

NEIGHBORS, ROWS_OF_A_NEIGHBOR = 15, 10
"""Neighbours of a place, at most, and rows for each. So a map with places by chance keeps at most a tenth of them."""
LEAST_ROWS = 50
"""Minimum number of rows of both maps: a place then has five neighbours."""
HALF = 0.5
"""Least share of kept neighbours with which a place stays. *Measured*, four seeds and each of 5 sites: 98 % to 99 % of
the places of Gaussian noise (1,000 rows, 10 columns) change, and 22 % to 27 % of digits (Fed-tSNE, Fed-UMAP, SENSE)."""
STAYS, WITH_SEED, WITHOUT_SITE = range(3)
"""Verdicts. :data:`raydr.runfolder.records.STABILITIES` has their names."""


@dataclass(frozen=True, eq=False)
class OtherMap:
    """Another map of the same rows, or of those that one site does not hold.

    Attributes
    ----------
    places : (rows, 2) or (rows, 3) float64
        Its positions.
    rows : (rows,) int64
        The number of each row on the first map, ascending.
    geometry : Geometry
        Distances on the map.
    """

    places: Float64Array
    rows: Int64Array
    geometry: Geometry


@dataclass(frozen=True, eq=False)
class MapStability:
    """Shares of kept neighbours on other maps, and the verdicts that follow.

    Attributes
    ----------
    rows : (compared,) int64
        Numbers of the compared rows, ascending: all, or a sample.
    seeds, sites : (maps, compared) float64
        Share of its neighbours that each row keeps on each map with another seed, and on each map without a site. NaN
        for rows of that site.
    """

    rows: Int64Array
    seeds: Float64Array
    sites: Float64Array

    @property
    def over_seeds(self) -> Float64Array:
        """Mean share (compared,) over seeds; NaN without other seeds."""
        return self.seeds.mean(axis=0) if len(self.seeds) else np.full(self.rows.size, np.nan)

    @property
    def over_sites(self) -> Float64Array:
        """Lowest share (compared,) over sites; NaN if no other site was left out."""
        return np.fmin.reduce(self.sites, axis=0) if len(self.sites) else np.full(self.rows.size, np.nan)

    @property
    def changes_with_seed(self) -> BoolArray:
        """Whether each place (compared,) changes with the seed."""
        return np.asarray(self.over_seeds < HALF)

    @property
    def verdicts(self) -> Int64Array:
        """The verdict on each place (compared,): `STAYS`, `WITH_SEED` or `WITHOUT_SITE`."""
        alone = np.where(self.over_sites < HALF, WITHOUT_SITE, STAYS)
        return np.where(self.changes_with_seed, WITH_SEED, alone).astype(np.int64)


def stability(
    geometry: Geometry,
    with_seeds: Sequence[OtherMap],
    without_sites: Sequence[OtherMap],
    *,
    seed: int,
    threads: int | None = None,
) -> MapStability:
    """Compare a map with maps with other seeds and without sites.

    Parameters
    ----------
    geometry : Geometry
        Distances on the map.
    with_seeds, without_sites : sequence of OtherMap
        The other maps, each of `LEAST_ROWS` rows or more.
    seed : int
        Seed of the sample, of more than `EXACT_ROWS` rows.
    threads : int or None
        Number of threads. None uses all cores. The result does not depend on it.
    """
    compared = np.arange(geometry.rows)
    if geometry.rows > EXACT_ROWS:
        compared = drawn(geometry.rows, SAMPLED_ROWS, seed).rows

    def shares(others: Sequence[OtherMap]) -> Float64Array:
        found = np.full((len(others), compared.size), np.nan)
        for number, other in enumerate(others):
            there = np.isin(compared, other.rows)
            whole = other.rows.size == geometry.rows
            common = geometry if whole else geometry.take(other.rows)
            own = np.searchsorted(other.rows, compared[there])
            found[number, there] = kept_neighbors(common, other.geometry, own, threads=threads)
        return found

    return MapStability(compared, shares(with_seeds), shares(without_sites))


def kept_neighbors(
    one: Geometry, other: Geometry, own: Int64Array, *, threads: int | None = None
) -> Float64Array:
    """Return the share (own,) of its nearest rows in ``one`` that each row has among its nearest in ``other``.

    ``own`` are the numbers of these rows, ascending. Both geometries have the same rows. The number of nearest rows
    is `neighbors_of`.

    >>> from raydr.geometry.points import Points
    >>> line = Points(np.arange(50.0)[:, None])
    >>> float(kept_neighbors(line, line, np.arange(50)).mean())
    1.0
    """
    count = neighbors_of(one.rows)
    near, far = (nearest_to(each, own, count, threads=threads).indices for each in (one, other))
    # A row is at most once in either list, so an equal pair in the sorted lists together is one common row.
    both = np.sort(np.concatenate([near, far], axis=1), axis=1)
    return np.asarray((both[:, 1:] == both[:, :-1]).sum(axis=1) / count)


def neighbors_of(rows: int) -> int:
    """Return the number of neighbours that are compared on maps of this many rows.

    >>> neighbors_of(100), neighbors_of(1000)
    (10, 15)
    """
    return max(1, min(NEIGHBORS, rows // ROWS_OF_A_NEIGHBOR))


def dissolved(islands: Int64Array, there: BoolArray, places: Float64Array) -> tuple[int, ...]:
    """Return the islands of a map that dissolve on another map, ascending.

    An island with the rows A dissolves if there is no island B of the other map with \\|A and B\\| / \\|A or B\\| of at
    least one half. Islands of which the other map has fewer than `LEAST_OF_ISLAND` rows are left out.

    Parameters
    ----------
    islands : (rows,) int64
        Island of each row of the map, from 0.
    there : (rows,) bool
        Whether the other map has the row.
    places : (rows there, 2) or (rows there, 3) float64
        Positions of these rows on the other map.
    """
    own, others = islands[there], islands_of_map(places)
    common = np.zeros((int(islands.max()) + 1, int(others.max()) + 1), np.int64)
    np.add.at(common, (own, others), 1)
    sizes = common.sum(axis=1)
    either = sizes[:, None] + common.sum(axis=0) - common
    likeness = (common / np.maximum(either, 1)).max(axis=1)
    return tuple(np.flatnonzero((sizes >= LEAST_OF_ISLAND) & (likeness < HALF)).tolist())
