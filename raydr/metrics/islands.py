"""Islands of a map, and whether they are separate groups of rows or drawn by the map.

HDBSCAN finds the islands on the map, and their number is not given. Two islands are separate if the features of their
rows leave a valley between them (`valleys`). Islands without a valley form one group, and chains of such islands too.
The valleys are compared with those of tables of one cluster with the columns' spreads, forms and correlations, split
into as many parts (the synthetic null of Song et al., ClusterDE, 2023).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.metrics.evidence import Evidence
from raydr.metrics.island_columns import Difference, differing_columns

LEVEL = 0.05
"""Probability that islands of a table of one cluster are called separate."""
LEAST_ROWS = 100
"""Minimum number of rows. With fewer, an island has too few rows for a valley."""
MOST_ROWS = 4_000
"""Maximum number of rows. Of more rows, a sample is used: the test then takes 2 s."""
ISLANDS_AT_MOST = 50
"""An island has at least this part of the rows. With half as many rows, the test finds 7 of the 10 digits."""
LEAST_OF_ISLAND = 15
"""Minimum number of rows of an island."""
NULLS = 39
"""Tables of one cluster. The smallest p-value is 1 / 40."""
COMPONENTS = 50
"""Principal components that replace the columns of wider tables."""
FEW_VALUES = 10
"""Columns with at most this number of distinct values are left out: each of their values can be an island."""
HALF_BAND = 0.15
"""Half the width of the bands of a valley, in distances between the means of two islands."""
RIDGE = 0.1
"""Part of the mean variance that is added to the variances within islands, because they are estimated."""
BINS, NORMAL_STEPS = 30, 1_024
NO_VALLEY = -1e6
"""Depth if one of two islands has too few rows, or their means are not in order."""


@dataclass(frozen=True, kw_only=True)
class Island:
    """One island: its number of rows, the centre on the map, its group, and the group's p-value.

    ``group`` counts from 0. Islands of one group may be one group of rows. ``separate`` is whether the island is alone
    in its group, and there are other groups. The group differs from the other rows in ``differing`` columns, most in
    those of ``largest``.
    """

    rows: int
    center: tuple[float, ...]
    group: int
    p: float
    separate: bool
    differing: int
    largest: tuple[Difference, ...]


@dataclass(frozen=True, kw_only=True)
class Islands:
    """Islands of a map, the largest first.

    ``rows`` were examined. ``left_out`` is the number of columns of two to `FEW_VALUES` values: see there. ``of_row``
    (all rows,) has the island of each row, 1 for the first. It is empty if no island was found. A row that was not
    examined belongs to the island of the nearest row that was.
    """

    rows: int
    left_out: int
    found: tuple[Island, ...]
    of_row: Int64Array = field(compare=False, repr=False)


def islands(evidence: Evidence) -> Islands | None:
    """Find the islands of a map, and test which are separate groups of rows.

    Parameters
    ----------
    evidence : Evidence
        The map, the rows (rows, features) after scaling, and the seed of the sample and of the tables of one cluster.

    Returns
    -------
    Islands or None
        None if there are fewer than `LEAST_ROWS` rows, distances of rows or of the map are not Euclidean, or no column
        has more than `FEW_VALUES` values.
    """
    rows = len(evidence.embedding)
    if rows < LEAST_ROWS or evidence.truth is not None or evidence.mapped is not None:
        return None
    random = np.random.default_rng((evidence.seed, MOST_ROWS))
    chosen = examined_rows(rows, random)
    features = np.asarray(evidence.rows[chosen], dtype=np.float64)
    values = np.array([np.unique(column).size for column in features.T])
    if not (values > FEW_VALUES).any():
        return None
    table, left_out = (
        _reduced(features[:, values > FEW_VALUES]),
        int(((values > 1) & (values <= FEW_VALUES)).sum()),
    )
    places = np.asarray(evidence.embedding[chosen], dtype=np.float64)
    island = islands_of_map(places)
    sizes = np.bincount(island)
    if sizes.size < 2:
        return Islands(rows=chosen.size, left_out=left_out, found=(), of_row=np.empty(0, np.int64))
    group, p = separate_groups(table, island, random)
    differences = differing_columns(features, group[island], LEVEL)
    alone = np.bincount(group)[group] == 1
    found = [
        Island(
            rows=int(size),
            center=tuple(places[island == number].mean(axis=0).tolist()),
            group=int(group[number]),
            p=float(p[number]),
            separate=bool(alone[number]),
            differing=differences[group[number]].columns,
            largest=differences[group[number]].largest,
        )
        for number, size in enumerate(sizes)
    ]
    of_row = 1 + (island if chosen.size == rows else _nearest(places, island, evidence.embedding))
    return Islands(rows=chosen.size, left_out=left_out, found=tuple(found), of_row=of_row)


def examined_rows(rows: int, random: np.random.Generator) -> Int64Array:
    """Return the numbers (examined,) of the rows in which islands are found, ascending: all, or `MOST_ROWS` of them."""
    if rows <= MOST_ROWS:
        return np.arange(rows)
    return np.sort(random.choice(rows, MOST_ROWS, replace=False))


def islands_of_map(places: Float64Array) -> Int64Array:
    """Return the island (rows,) of each row of a map (rows, 2 or 3), the largest island first.

    A row that HDBSCAN leaves out belongs to the island of the nearest row that has one. All rows are on island 0 if
    HDBSCAN finds none.
    """
    from sklearn.cluster import HDBSCAN

    least = max(LEAST_OF_ISLAND, len(places) // ISLANDS_AT_MOST)
    found = HDBSCAN(min_cluster_size=least, min_samples=10, copy=True).fit_predict(places)
    known = found >= 0
    if not known.any():
        return np.zeros(len(places), dtype=np.int64)
    if not known.all():
        found[~known] = _nearest(places[known], found[known], places[~known])
    sizes = np.bincount(found)
    return np.asarray(np.argsort(np.argsort(-sizes, kind="stable"))[found], dtype=np.int64)


def _nearest(places: Float64Array, island: Int64Array, others: FloatArray) -> Int64Array:
    """Return the island of the place nearest to each of the ``others`` (others, 2 or 3)."""
    from sklearn.neighbors import NearestNeighbors

    nearest = NearestNeighbors(n_neighbors=1).fit(places).kneighbors(others, return_distance=False)[:, 0]
    return np.asarray(island[nearest], dtype=np.int64)


def separate_groups(
    rows: Float64Array, island: Int64Array, random: np.random.Generator
) -> tuple[Int64Array, Float64Array]:
    """Return the group of each island and the p-value of its group, both (islands,).

    Groups are the connected components of the islands, where two islands are connected unless the valley between them
    is deeper than a one-cluster table's. The statistic of such a table is the largest depth at which its parts still
    form two components. The p-value of a group is the share of tables with at least the depth of its shallowest valley,
    the data included. Along a bent cluster, gaps are deeper than in such tables. So the p-value is at least that of the
    largest of as many standard normal deviates as bands have room along a chain of all islands (Bonferroni).

    Parameters
    ----------
    rows : (rows, features) float64
        Features of the rows, centred.
    island : (rows,) int
        Island of each row, 0 to islands - 1; two or more.
    random : Generator
        Draws the halves of islands and the tables of one cluster.

    Notes
    -----
    A federation needs these sums: mean, second moments and histogram of each column and island, and for each two
    islands the rows in three bands.
    """
    from scipy.sparse.csgraph import connected_components
    from scipy.special import ndtr

    parts = int(island.max()) + 1
    depth = valleys(rows, island, random)
    draw = one_cluster(rows)
    bands = (parts - 1) / (2 * HALF_BAND)  # side by side along a chain of all islands
    nulls = np.empty(NULLS)
    for number in range(NULLS):
        null = draw(random)
        nulls[number] = _last_split(valleys(null, _k_means(null, parts, random), random))

    def p_value(depth: Float64Array) -> Float64Array:
        higher = (nulls >= depth[..., None]).sum(axis=-1)
        return np.asarray(np.clip(bands * ndtr(-depth), (1 + higher) / (1 + NULLS), 1.0))

    group = connected_components(p_value(depth) > LEVEL)[1].astype(np.int64)
    if group.max() == 0:
        return group, np.full(parts, p_value(np.array(_last_split(depth))))
    inside = group[:, None] == group
    shallowest = np.where(inside, np.inf, depth).min(axis=1)
    return group, p_value(np.array([shallowest[group == own].min() for own in group]))


def valleys(rows: Float64Array, part: Int64Array, random: np.random.Generator) -> Float64Array:
    """Return the depth (parts, parts) of the valley between each two parts of the rows.

    Rows are projected on Fisher's axis between the means of two parts. The axis comes from one half of the rows, and
    the other half is projected, so that the choice of the axis makes no valley. Let m be the rows in a band halfway
    between the means and s those in a band around a mean, whichever is less. The depth is (s - m) / sqrt(s + m + 1).
    If the density is flat, it is close to a standard normal deviate.
    """
    parts, features = int(part.max()) + 1, rows.shape[1]
    half = np.zeros(len(rows), dtype=bool)
    for number in range(parts):
        half[random.permutation(np.flatnonzero(part == number))[::2]] = True
    member = np.eye(parts)[part]
    bands = np.zeros((3, parts, parts))
    unordered = np.zeros((parts, parts), dtype=bool)
    for known in (half, ~half):
        sizes = member[known].sum(axis=0)
        centers = member[known].T @ rows[known] / np.maximum(sizes, 1)[:, None]
        rest = rows[known] - centers[part[known]]
        within = rest.T @ rest / len(rest)
        within += RIDGE * np.trace(within) / features * np.eye(features) + 1e-12 * np.eye(features)
        scores = rows[~known] @ np.linalg.solve(within, centers.T)
        of_part = [scores[part[~known] == number] for number in range(parts)]
        for one in range(parts):
            for other in range(one + 1, parts):
                along = [of_part[side][:, other] - of_part[side][:, one] for side in (one, other)]
                if not all(values.size for values in along) or not along[0].mean() < along[1].mean():
                    unordered[one, other] = True
                    continue
                start, end = along[0].mean(), along[1].mean()
                position = (np.concatenate(along) - start) / (end - start)
                for band, center in enumerate((0.0, 0.5, 1.0)):
                    bands[band, one, other] += np.count_nonzero(np.abs(position - center) <= HALF_BAND)
    side, middle = np.minimum(bands[0], bands[2]), bands[1]
    depth = np.where(unordered, NO_VALLEY, (side - middle) / np.sqrt(side + middle + 1))
    depth = np.triu(depth, 1)
    return np.asarray(depth + depth.T)


def one_cluster(rows: Float64Array) -> Callable[[np.random.Generator], Float64Array]:
    """Return a function that draws tables of one cluster like ``rows`` (rows, features).

    The columns have a Gaussian copula with the correlations of their normal scores. Each has the histogram of one peak
    nearest to its own.
    """
    from scipy.special import ndtr, ndtri

    count, features = rows.shape
    levels = ndtr(np.linspace(-4, 4, NORMAL_STEPS + 1))
    quantiles, scores = np.empty((features, levels.size)), np.empty_like(rows)
    for column, values in enumerate(rows.T):
        _, place, sizes = np.unique(values, return_inverse=True, return_counts=True)
        scores[:, column] = ndtri((np.cumsum(sizes) - sizes / 2) / count)[place]
        quantiles[column] = np.interp(levels, *_with_one_peak(values))
    scores = (scores - scores.mean(axis=0)) / scores.std(axis=0)
    variances, axes = np.linalg.eigh(scores.T @ scores / count)
    mixing = (axes * np.sqrt(np.maximum(variances, 0))).T

    def draw(random: np.random.Generator) -> Float64Array:
        normal = random.standard_normal((count, features)) @ mixing
        at = np.clip(np.rint((normal + 4) * (NORMAL_STEPS / 8)), 0, NORMAL_STEPS).astype(np.int64)
        return np.asarray(quantiles[np.arange(features), at])

    return draw


def _with_one_peak(values: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return the cumulated shares and the edges (bins + 1,) of a histogram that rises to its peak, and then falls."""
    from sklearn.isotonic import isotonic_regression

    counts, edges = np.histogram(values, BINS)
    peak = int(counts.argmax())
    rise = isotonic_regression(counts[: peak + 1].astype(np.float64))
    fall = isotonic_regression(counts[peak:].astype(np.float64), increasing=False)
    shares = np.concatenate([[0.0], rise[:-1], fall]).cumsum()
    return shares / shares[-1], edges


def _reduced(rows: Float64Array) -> Float64Array:
    """Return centred columns, or their principal components if there are more than `COMPONENTS`."""
    rows = rows - rows.mean(axis=0)
    if rows.shape[1] <= COMPONENTS:
        return rows
    if len(rows) < rows.shape[1]:
        variances, scores = np.linalg.eigh(rows @ rows.T)
        reduced = scores * np.sqrt(np.maximum(variances, 0))
    else:
        reduced = rows @ np.linalg.eigh(rows.T @ rows)[1]
    reduced = reduced[:, ::-1][:, :COMPONENTS]
    return np.ascontiguousarray(reduced[:, reduced.std(axis=0) > 0])


def _k_means(rows: Float64Array, parts: int, random: np.random.Generator) -> Int64Array:
    """Split rows into at most this many parts, 0, 1, ..., by eight steps of k-means."""
    centers = rows[random.choice(len(rows), parts, replace=False)]
    part = np.zeros(len(rows), dtype=np.int64)
    for _ in range(8):
        part = np.argmax(rows @ centers.T - 0.5 * (centers * centers).sum(axis=1), axis=1)
        member = np.eye(parts)[part]
        sizes = member.sum(axis=0)[:, None]
        centers = np.where(sizes > 0, member.T @ rows / np.maximum(sizes, 1), centers)
    return np.asarray(np.unique(part, return_inverse=True)[1], dtype=np.int64)


def _last_split(depth: Float64Array) -> float:
    """Return the largest depth at which parts form two components: the longest edge of the minimum spanning tree."""
    nearest, reached = depth[0].copy(), np.zeros(len(depth), dtype=bool)
    reached[0], longest = True, NO_VALLEY
    for _ in range(len(depth) - 1):
        nearest[reached] = np.inf
        following = int(nearest.argmin())
        longest = max(longest, float(nearest[following]))
        reached[following] = True
        nearest = np.minimum(nearest, depth[following])
    return longest
