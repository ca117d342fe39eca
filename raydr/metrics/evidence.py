"""Inputs of metrics, and the neighbour searches that they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array, IntArray
from raydr.embedding import Embedder
from raydr.errors import DataError
from raydr.geometry.neighbors import NeighborGraph, nearest_neighbors
from raydr.geometry.points import Geometry, Points, Progress, common_shift, unheard
from raydr.geometry.sample_neighbors import SampleNeighbors, nearest_to
from raydr.metrics.sampling import EXACT_ROWS, SAMPLED_ROWS, Sample, SampledGroups, drawn, drawn_by_group
from raydr.metrics.ties import Rounded

Shared = TypeVar("Shared")

LARGEST_K = 51
"""Neighbours in the shared graph of the rows, unless a metric needs more. Of the listed metrics, ``npa_50`` needs the
most, and one more shows whether the last is tied."""
STARTING_ROWS = 50_000
"""Rows that k-means uses to find its starting centres, if rows are sampled."""


class UnmeasurableError(DataError):
    """A metric that cannot be computed on this evidence. The message is the reason, for the report."""


@dataclass(kw_only=True, frozen=True, eq=False)
class Evidence:
    """One map and everything to compare it with.

    Parameters
    ----------
    rows
        (rows, features), the pooled data after scaling.
    embedding
        (rows, 2 or 3), the map.
    labels
        (rows,) integer classes, or None.
    recovered
        The geometry that the server recovered, with rows in the order of ``rows``, or None.
    seed
        Seed of the train/test split, of k-means, of sub-samples, and of the random walks.
    row_neighbors
        Neighbours of ``rows``, to share them with other maps of the same rows. A `SharedGraph` searches them
        when a metric first needs them. None to search them for this map.
    recovered_neighbors
        Neighbours in the recovered geometry, 10 or more of each row, if the method has searched them. None to
        search them when first needed.
    truth
        The true geometry, if it is not the Euclidean one of ``rows``, for example hyperbolic distances. None
        for ``Points(rows)``.
    mapped
        Distances on the map, if they are not Euclidean: a map in the Poincare disk has hyperbolic ones.
        Neighbours, ranks and groups use these distances. Classifiers and clusters use positions.
    clusters
        (rows,) integers, the method's own clusters, or None.
    sites
        (rows,) integers, the client that holds each row, or None if it is not known.
    periods
        (rows,) integers, the period of each row, or None if there are none.
    new
        Evidence on held-out rows that were placed on the map afterwards: their rows, places and classes. None
        if there are none.
    lift
        Maps coordinates of ``recovered`` to rows of features, both (rows, columns), in the features' own
        coordinates. None if the places of the points in these coordinates are not known.
    drawn_by
        Embedder that drew the map of all rows, or None if another algorithm placed them.
    grouped
        Maximum number of rows for the groups of steadiness and cohesiveness. Of more rows, a sample is used,
        and the values depend on its size. None for 2,000.

    Raises
    ------
    DataError
        If the parts have different numbers of rows, or the map is not a finite 2-D or 3-D one.
    """

    rows: FloatArray
    embedding: FloatArray
    labels: IntArray | None = None
    recovered: Geometry | None = field(default=None, repr=False)
    seed: int = 0
    row_neighbors: NeighborGraph | SharedGraph | None = field(default=None, repr=False)
    recovered_neighbors: NeighborGraph | None = field(default=None, repr=False)
    truth: Geometry | None = field(default=None, repr=False)
    mapped: Geometry | None = field(default=None, repr=False)
    clusters: IntArray | None = None
    sites: IntArray | None = None
    periods: IntArray | None = None
    new: Evidence | None = None
    grouped: int | None = None
    lift: Callable[[FloatArray], Float64Array] | None = field(default=None, repr=False)
    drawn_by: Embedder | None = None

    def __post_init__(self) -> None:
        rows = len(self.rows)
        parts = {
            "embedding": len(self.embedding),
            "labels": rows if self.labels is None else len(self.labels),
            "recovered geometry": rows if self.recovered is None else self.recovered.rows,
            "row_neighbors": rows if self.row_neighbors is None else self.row_neighbors.rows,
            "recovered_neighbors": rows
            if self.recovered_neighbors is None
            else self.recovered_neighbors.rows,
            "true geometry": rows if self.truth is None else self.truth.rows,
            "geometry of the map": rows if self.mapped is None else self.mapped.rows,
            "clustering": rows if self.clusters is None else len(self.clusters),
            "column of sites": rows if self.sites is None else len(self.sites),
            "column of periods": rows if self.periods is None else len(self.periods),
        }
        for name, count in parts.items():
            if count != rows:
                raise DataError(
                    f"Metrics compare the same rows everywhere, but the data have {rows} rows and the {name} has "
                    f"{count}. Give all of them in the same order."
                )
        if self.embedding.ndim != 2 or self.embedding.shape[1] not in (2, 3):
            raise DataError(
                f"Metrics need a map in 2 or 3 dimensions, but the embedding has shape {self.embedding.shape}. "
                "Give shape (rows, 2) or (rows, 3)."
            )
        if not np.isfinite(self.embedding).all():
            row = int(np.nonzero(~np.isfinite(self.embedding))[0][0])
            raise DataError(
                f"Metrics need a finite map, but the embedding of row {row} is {self.embedding[row].tolist()}: the "
                "embedder diverged. Lower its learning rate, or scale the data."
            )


def row_graph(
    truth: FloatArray | Geometry,
    *,
    neighbors: int = LARGEST_K,
    threads: int | None = None,
    progress: Progress = unheard,
) -> NeighborGraph:
    """Return the neighbour graph of the data that all metrics share, with at most all other rows as neighbours.

    ``truth`` is a table (rows, features) with Euclidean distances, or another true geometry of the rows.
    ``neighbors`` is the number that the metrics need (:func:`raydr.metrics.metric.graph_size`). ``progress``
    is in blocks.
    """
    geometry = Points(truth) if isinstance(truth, np.ndarray) else truth
    return nearest_neighbors(geometry, min(neighbors, geometry.rows - 1), threads=threads, progress=progress)


class SharedGraph:
    """`row_graph` of some rows, computed on first use and then shared.

    Parameters
    ----------
    truth, neighbors, threads
        As in `row_graph`.
    """

    def __init__(
        self, truth: FloatArray | Geometry, *, neighbors: int = LARGEST_K, threads: int | None = None
    ) -> None:
        self.rows = len(truth) if isinstance(truth, np.ndarray) else truth.rows
        self._truth, self._neighbors, self._threads = truth, neighbors, threads
        self._found: NeighborGraph | None = None
        self._sample_neighbors: SampleNeighbors | None = None

    def graph(self, progress: Progress) -> NeighborGraph:
        """Return the graph. ``progress`` of a search is in blocks."""
        if self._found is None:
            self._found = row_graph(
                self._truth, neighbors=self._neighbors, threads=self._threads, progress=progress
            )
        return self._found

    def sample_neighbors(self, geometry: Geometry, own: Int64Array, progress: Progress) -> SampleNeighbors:
        """Return the neighbours of the rows ``own`` (sampled,) alone.

        ``geometry`` is the caller's copy of the truth.
        """
        if self._sample_neighbors is None or not np.array_equal(self._sample_neighbors.own, own):
            size = min(self._neighbors, self.rows - 1)
            self._sample_neighbors = nearest_to(geometry, own, size, threads=self._threads, progress=progress)
        return self._sample_neighbors


@dataclass(kw_only=True, frozen=True, eq=False)
class Examination:
    """One evaluation of one `Evidence`: searches, splits and clusterings, each computed once, on first use.

    ``neighbors`` is the number in the graphs of rows. ``progress`` of a search is in blocks. Above ``exact_rows`` rows,
    metrics use ``sampled_rows`` of them, as `sample` describes.
    """

    evidence: Evidence
    threads: int | None = None
    neighbors: int = LARGEST_K
    progress: Progress = field(default=unheard, repr=False)
    exact_rows: int = EXACT_ROWS
    sampled_rows: int = SAMPLED_ROWS
    _shared: dict[Callable[..., Any], Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, compute: Callable[[Examination], Shared]) -> Shared:
        """Return the result of ``compute`` on this examination, computed on first use and then shared."""
        if compute not in self._shared:
            self._shared[compute] = compute(self)
        return cast(Shared, self._shared[compute])

    @cached_property
    def count(self) -> int:
        """Number of rows."""
        return len(self.evidence.rows)

    @cached_property
    def sample(self) -> Sample | None:
        """Rows that metrics use if there are too many, or None if they use all.

        Each class, and within it each client, has its share of the sample.
        """
        if self.count <= self.exact_rows:
            return None
        return drawn(self.count, self.sampled_rows, self.evidence.seed, *self._strata)

    @property
    def _strata(self) -> list[Int64Array]:
        known = (self.evidence.labels, self.evidence.sites)
        return [
            np.unique(of_row, return_inverse=True)[1].astype(np.int64)
            for of_row in known
            if of_row is not None
        ]

    def sample_of(self, rows: Int64Array) -> Sample:
        """Return a `sample` of only these rows, as places in ``rows``."""
        strata = [stratum[rows] for stratum in self._strata]
        return drawn(rows.size, self.sampled_rows, self.evidence.seed, *strata)

    @cached_property
    def sample_of_sites(self) -> SampledGroups:
        """Rows of each site, the same number for small and large sites."""
        return drawn_by_group(self.sites, self.sampled_rows, self.evidence.seed)

    @cached_property
    def rows(self) -> Float64Array:
        """The data in float64, (rows, features), shifted to near their mean, because offsets cost digits.

        Data on a grid stay on it (`common_shift`), with all their ties.
        """
        table = np.ascontiguousarray(self.evidence.rows, dtype=np.float64)
        return np.asarray(table - common_shift(table))

    @cached_property
    def truth(self) -> Geometry:
        """The true geometry of the rows: their Euclidean one in float64, unless the evidence has another.

        If rows are sampled, the table is not copied, and only the sampled rows are converted to float64.
        """
        if self.evidence.truth is not None:
            return self.evidence.truth
        return Points(self.rows if self.sample is None else self.evidence.rows)

    @property
    def recovered(self) -> Geometry:
        """The geometry that the server recovered. Raises `UnmeasurableError` if there is none."""
        if self.evidence.recovered is None:
            raise UnmeasurableError("the method recovers no geometry of the rows")
        return self.evidence.recovered

    @cached_property
    def mapped(self) -> Geometry:
        """The geometry of the map: the Euclidean one of its positions, unless the evidence has another."""
        return Points(self.embedding) if self.evidence.mapped is None else self.evidence.mapped

    @cached_property
    def rounded_truth(self) -> Rounded:
        """`truth`, with rounding bounds to find ties."""
        return Rounded(lambda: self.truth)

    @cached_property
    def rounded_map(self) -> Rounded:
        """`mapped`, with rounding bounds to find ties."""
        return Rounded(lambda: self.mapped)

    @cached_property
    def embedding(self) -> Float64Array:
        """The map in float64, (rows, 2 or 3)."""
        return np.ascontiguousarray(self.evidence.embedding, dtype=np.float64)

    @cached_property
    def labels(self) -> Int64Array:
        """The classes as 0, 1, ... (rows,). Raises `UnmeasurableError` if most rows have their own label."""
        if self.evidence.labels is None:
            raise UnmeasurableError("the data have no labels")
        _, found, sizes = np.unique(self.evidence.labels, return_inverse=True, return_counts=True)
        alone = int((sizes == 1).sum())
        if 2 * alone > len(found):
            raise UnmeasurableError(
                f"the label has a unique value in {alone:,} of {len(found):,} rows, so it is a quantity or an identity,"
                " and not a class"
            )
        return np.asarray(found, dtype=np.int64)

    @cached_property
    def classes(self) -> int:
        """Number of classes. Raises `UnmeasurableError` if there is only one."""
        classes = int(self.labels.max()) + 1
        if classes < 2:
            raise UnmeasurableError("all rows have the same label")
        return classes

    @cached_property
    def sites(self) -> Int64Array:
        """The client of each row, as 0, 1, ... (rows,). Raises `UnmeasurableError` if one client holds all rows."""
        if self.evidence.sites is None:
            raise UnmeasurableError("it is not known which client holds which row")
        sites = np.asarray(np.unique(self.evidence.sites, return_inverse=True)[1], dtype=np.int64)
        if len(sites) == 0 or sites.max() == 0:
            raise UnmeasurableError("all rows belong to one client")
        return sites

    @cached_property
    def row_neighbors(self) -> NeighborGraph:
        """Neighbours of the rows in the data."""
        given = self.evidence.row_neighbors
        if given is not None:
            return given.graph(self.progress) if isinstance(given, SharedGraph) else given
        truth = self.evidence.rows if self.evidence.truth is None else self.evidence.truth
        return self._graph(truth)

    @cached_property
    def embedding_neighbors(self) -> NeighborGraph:
        """Neighbours of the rows in the map."""
        mapped = self.evidence.mapped
        return self._graph(self.embedding if mapped is None else mapped)

    @cached_property
    def sample_row_neighbors(self) -> SampleNeighbors:
        """Neighbours of the sampled rows in the data."""
        given, own = self.evidence.row_neighbors, self.sampled
        if isinstance(given, SharedGraph):
            return given.sample_neighbors(self.truth, own, self.progress)
        return self.sample_neighbors(self.truth)

    @cached_property
    def sample_map_neighbors(self) -> SampleNeighbors:
        """Neighbours of the sampled rows in the map."""
        return self.sample_neighbors(self.mapped)

    def sample_neighbors(self, geometry: Geometry) -> SampleNeighbors:
        """Return the neighbours of the sampled rows, among all rows of a geometry."""
        size = min(self.neighbors, self.count - 1)
        return nearest_to(geometry, self.sampled, size, threads=self.threads, progress=self.progress)

    @property
    def sampled(self) -> Int64Array:
        """The rows that metrics use, ascending."""
        return np.arange(self.count) if self.sample is None else self.sample.rows

    def _graph(self, truth: FloatArray | Geometry) -> NeighborGraph:
        return row_graph(truth, neighbors=self.neighbors, threads=self.threads, progress=self.progress)

    def true_neighbors(self, k: int) -> NeighborGraph:
        """Return a graph of at least ``k`` neighbours in the data. One more shows whether the last is tied."""
        self.require_neighbors(k)
        if self.row_neighbors.k < k:
            raise UnmeasurableError(
                f"the given row_neighbors hold {self.row_neighbors.k} neighbours, not {k}"
            )
        return self.row_neighbors

    def map_neighbors(self, k: int) -> NeighborGraph:
        """Return a graph of at least ``k`` neighbours in the map."""
        self.require_neighbors(k)
        return self.embedding_neighbors

    def require_neighbors(self, k: int) -> None:
        """Raise `UnmeasurableError` unless every row has ``k`` others."""
        if self.count <= k:
            raise UnmeasurableError(f"{k} neighbours need at least {k + 1} rows, but there are {self.count}")

    @cached_property
    def split(self) -> tuple[Int64Array, Int64Array]:
        """Training and test rows, 70:30, seeded. Stratified by class if every class has two rows."""
        from sklearn.model_selection import train_test_split

        test_rows = int(np.ceil(0.3 * self.count))
        if test_rows >= self.count:
            raise UnmeasurableError(f"a 70:30 split needs at least 2 rows, but there is {self.count}")
        counts = np.bincount(self.labels)
        stratified = counts.min() >= 2 and min(test_rows, self.count - test_rows) >= counts.size
        train, test = train_test_split(
            np.arange(self.count),
            test_size=test_rows,
            stratify=self.labels if stratified else None,
            random_state=self.evidence.seed,
        )
        return train, test

    @cached_property
    def new(self) -> Examination:
        """The examination of the held-out rows among themselves.

        Raises `UnmeasurableError` if none were placed on the map.
        """
        if self.evidence.new is None:
            raise UnmeasurableError("no rows were held out and placed on the map")
        return Examination(
            evidence=self.evidence.new,
            threads=self.threads,
            neighbors=self.neighbors,
            exact_rows=self.exact_rows,
            sampled_rows=self.sampled_rows,
        )

    @property
    def own_clusters(self) -> IntArray:
        """The method's own clusters, (rows,). Raises `UnmeasurableError` if it has none."""
        if self.evidence.clusters is None:
            raise UnmeasurableError("the method makes no clusters of its own")
        return self.evidence.clusters

    @cached_property
    def clusters(self) -> Int64Array:
        """K-means clusters of the map, (rows,): as many as classes, best of 10 seeded starts.

        If rows are sampled, the 10 starts use `STARTING_ROWS` rows, and the best one is continued on all
        rows. This gives the same or equally good clusters in a tenth of the time.

        Runs on one thread, because scikit-learn's k-means adds up centres in an order that depends on the
        number of threads.
        """
        from sklearn.cluster import KMeans
        from threadpoolctl import threadpool_limits

        if self.classes > len(np.unique(self.embedding, axis=0)):
            raise UnmeasurableError(f"the map has fewer distinct positions than the {self.classes} classes")
        with threadpool_limits(1):
            means = KMeans(n_clusters=self.classes, n_init=10, random_state=self.evidence.seed)
            if self.sample is not None:
                some = drawn(self.count, max(STARTING_ROWS, self.classes), self.evidence.seed).rows
                centres = means.fit(self.embedding[some]).cluster_centers_
                means = KMeans(n_clusters=self.classes, init=centres, n_init=1)
            return np.asarray(means.fit_predict(self.embedding), dtype=np.int64)
