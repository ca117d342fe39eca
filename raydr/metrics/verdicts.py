"""A verdict on each row's place on a map: whether the rows shown next to it are nearer in the data than by chance.

The null is a table without structure: the same columns, each shuffled on its own, as in scDEED (Xia, Lee and Li,
Nature Communications 2024). scDEED maps the shuffled table again. Here each of its rows has its true nearest rows,
which no map can improve. So the test holds for any map, and costs one search of neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array, IntArray
from raydr.geometry.neighbors import measured_pairs
from raydr.geometry.points import Points
from raydr.geometry.sample_neighbors import nearest_to
from raydr.metrics.sampling import SAMPLED_ROWS, MeanOverRows, Sample, drawn

RELIABLE, MISPLACED, NO_STRUCTURE = range(3)
"""Verdicts. The last two are unreliable places: of rows with near rows in the data, and of rows without.
:data:`raydr.runfolder.records.VERDICTS` has their names."""
NEIGHBORS = 10
"""Rows next to a place that are judged, as in ``npa_10``."""
LEVEL = 0.05
"""Largest expected share of reliable places on a map of a table without structure."""
LEAST_ROWS = 100
"""Minimum number of rows. Ten neighbours are too large a share of fewer."""
LEAST_OF_SITE = 20
"""Rows of smaller sites are shuffled together, because shuffling very few rows leaves their structure."""
_BLOCK = 10_000
"""Rows of which copies are in memory at a time."""
_SHUFFLING = 1
"""Marks the random stream of the shuffled table."""


@dataclass(frozen=True, eq=False)
class Reliability(MeanOverRows):
    """The share of reliable places, and what decides on each.

    Attributes
    ----------
    on_map, in_data : (rows,) or (sampled,) float64
        p-values: the share of rows of a table without structure whose nearest rows are at least as near as those next
        to the row on the map, or as its nearest in the data.
    """

    on_map: Float64Array
    in_data: Float64Array

    @cached_property
    def verdicts(self) -> Int64Array:
        """The verdict on each row (rows,): `RELIABLE`, `MISPLACED` or `NO_STRUCTURE`."""
        unreliable = np.where(self.in_data <= LEVEL, MISPLACED, NO_STRUCTURE)
        return np.where(self.on_map <= LEVEL, RELIABLE, unreliable).astype(np.int64)


def judged(
    rows: FloatArray,
    shown: Int64Array,
    nearest: Int64Array,
    sites: IntArray | None,
    *,
    sample: Sample | None = None,
    seed: int,
    threads: int | None = None,
) -> Reliability:
    r"""Judge the place of each row, or of each row of a sample, by its neighbours.

    Parameters
    ----------
    rows : (rows, features) float
        The data, near their mean unless there is a sample.
    shown, nearest : (rows or sampled, `NEIGHBORS`) int64
        Neighbours of each row on the map, and in the data.
    sites : (rows,) int or None
        The site of each row. Columns are shuffled within sites, so differences between sites are no structure.
    sample : Sample or None
        The rows to judge. None for all.
    seed : int
        Seed of the shuffled table.
    threads : int or None
        Number of threads. None uses all cores. The result does not depend on it.

    Notes
    -----
    The statistic of row i with the neighbours N is the mean squared distance to them, compared with all rows:

    .. math:: s_i(N) = \frac{\frac{1}{|N|} \sum_{j \in N} d_{ij}^2}{\frac{1}{n - 1} \sum_{j \ne i} d_{ij}^2}

    The null has :math:`s` of up to `SAMPLED_ROWS` rows of the shuffled table with their nearest rows there. The p-value
    of row i is :math:`(1 + \#\{null \le s_i\}) / (1 + \#null)`. Neighbours on a map are never nearer than the nearest
    in the data. So if the columns are independent within sites, a place is reliable with a probability of at most
    `LEVEL`, on any map.
    """
    shuffled = shuffled_columns(rows, sites, seed)
    some = drawn(len(rows), SAMPLED_ROWS, seed).rows
    near = nearest_to(Points(shuffled), some, NEIGHBORS, threads=threads).squared.mean(axis=1)
    null = np.sort(near / mean_squared_distances(shuffled)[some])
    del shuffled
    own = np.arange(len(rows)) if sample is None else sample.rows
    whole = mean_squared_distances(rows)[own]

    def p_values(neighbors: Int64Array) -> Float64Array:
        statistic = measured_pairs(rows, own, neighbors).mean(axis=1) / whole
        return np.asarray((1.0 + np.searchsorted(null, statistic, side="right")) / (1.0 + null.size))

    on_map, in_data = p_values(shown), p_values(nearest)
    reliable = (on_map <= LEVEL).astype(np.float64)
    value = float(reliable.mean()) if sample is None else sample.mean(reliable)
    return Reliability(value, reliable, on_map=on_map, in_data=in_data)


def shuffled_columns(rows: FloatArray, sites: IntArray | None, seed: int) -> FloatArray:
    """Return the table (rows, features) with each column shuffled on its own, within sites (rows,).

    Rows of sites with fewer than `LEAST_OF_SITE` are shuffled together.
    """
    groups = np.zeros(len(rows), np.int64)
    if sites is not None:
        _, places, sizes = np.unique(sites, return_inverse=True, return_counts=True)
        groups = np.where(sizes[places] < LEAST_OF_SITE, -1, places)
    random = np.random.default_rng((seed, len(rows), _SHUFFLING))
    shuffled = np.empty_like(rows)
    for group in np.unique(groups).tolist():
        own = groups == group
        shuffled[own] = random.permuted(rows[own], axis=0)
    return shuffled


def mean_squared_distances(rows: FloatArray) -> Float64Array:
    """Return the mean squared distance (rows,) of each row to all others, from the table's mean and variance.

    >>> mean_squared_distances(np.array([[0.0], [1.0], [3.0]])).tolist()
    [5.0, 2.5, 6.5]
    """
    mean = rows.mean(axis=0, dtype=np.float64)
    blocks = (rows[start : start + _BLOCK] - mean for start in range(0, len(rows), _BLOCK))
    squared = np.concatenate([(block**2).sum(axis=1) for block in blocks])
    return np.asarray((len(rows) * squared + squared.sum()) / (len(rows) - 1))
