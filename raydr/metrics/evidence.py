"""What metrics look at, and the neighbour searches that they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array, IntArray
from raydr.errors import DataError
from raydr.geometry.neighbors import NeighborGraph, nearest_neighbors
from raydr.geometry.points import Geometry, Points, Progress, common_shift, unheard
from raydr.geometry.sample_neighbors import Around, nearest_to
from raydr.metrics.sampling import EXACT_ROWS, SAMPLED_ROWS, Sample, SampledGroups, drawn, drawn_by_group
from raydr.metrics.ties import Rounded

Shared = TypeVar("Shared")

LARGEST_K = 51
"""Neighbours in the shared graph of the rows, unless a metric asks for more: of those that are listed ``npa_50`` needs
the most, one more shows whether its last is tied."""
STARTING_ROWS = 50_000
"""Of which k-means finds where to start, where rows are sampled."""


class UnmeasurableError(DataError):
    """A metric that cannot be computed on this evidence; the message is the reason, for the report."""


@dataclass(kw_only=True, frozen=True, eq=False)
class Evidence:
    """One map and everything that it is judged against.

    Parameters
    ----------
    rows
        (rows, features), the pooled data after scaling.
    embedding
        (rows, 2 or 3), the map.
    labels
        (rows,) integer classes, or None.
    recovered
        The geometry that the server recovered, or None; its rows are in the order of ``rows``.
    seed
        Of the train/test split, of k-means, of sub-samples, and of the random walks.
    row_neighbors
        Neighbours of ``rows``, where there are other maps of the same rows that they are shared with (`SharedGraph`,
        which searches them when a metric first needs them, or the graph itself); None to search them for this map.
    recovered_neighbors
        Neighbours in the recovered geometry, where the method has searched them (10 or more of each row); None to
        search them when first needed.
    truth
        The true geometry, where it is not the Euclidean one of ``rows``: hyperbolic distances, say. None for
        ``Points(rows)``.
    mapped
        Distances on the map, where they are not those of its positions: a map in the Poincare disk is read by
        hyperbolic ones. Neighbours, ranks and groups go by them; classifiers and clusters by positions.
    clusters
        (rows,) integers, the clusters that the method itself makes; None where it makes none.
    sites
        (rows,) integers, which client holds each row; None where nobody says.
    new
        Rows that were held out and placed on the map afterwards, as evidence of their own: their rows, places and
        classes. None where there are none.
    lift
        Rows of features that stand for coordinates of ``recovered``, both (rows, columns), in the features' own
        coordinates; None where nobody tells where those points lie there.
    grouped
        Rows among which steadiness and cohesiveness look for groups, at most: a sample of more. What they come to
        depends on it. None for 2,000.

    Raises
    ------
    DataError
        If the parts differ in their number of rows, or the map is not a finite 2-D or 3-D one.
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
    new: Evidence | None = None
    grouped: int | None = None
    lift: Callable[[FloatArray], Float64Array] | None = field(default=None, repr=False)

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
        }
        for name, count in parts.items():
            if count != rows:
                raise DataError(
                    f"Metrics compare the same rows everywhere, but the data have {rows} rows and the {name} has "
                    f"{count}; give all of them in the same order."
                )
        if self.embedding.ndim != 2 or self.embedding.shape[1] not in (2, 3):
            raise DataError(
                f"Metrics judge a map in 2 or 3 dimensions, but the embedding has shape {self.embedding.shape}; "
                "give shape (rows, 2) or (rows, 3)."
            )
        if not np.isfinite(self.embedding).all():
            row = int(np.nonzero(~np.isfinite(self.embedding))[0][0])
            raise DataError(
                f"Metrics need a finite map, but the embedding of row {row} is {self.embedding[row].tolist()}; the "
                "embedder diverged: lower its learning rate, or scale the data."
            )


def row_graph(
    truth: FloatArray | Geometry,
    *,
    neighbors: int = LARGEST_K,
    threads: int | None = None,
    progress: Progress = unheard,
) -> NeighborGraph:
    """Return the neighbour graph of the data that all metrics share: so many neighbours, or all others if fewer.

    ``truth`` is a table (rows, features) with Euclidean distances, or another true geometry of the rows;
    ``neighbors`` those that the metrics look at (:func:`raydr.metrics.metric.graph_size`). ``progress`` is in blocks.
    """
    geometry = Points(truth) if isinstance(truth, np.ndarray) else truth
    return nearest_neighbors(geometry, min(neighbors, geometry.rows - 1), threads=threads, progress=progress)


class SharedGraph:
    """`row_graph` of some rows, searched when it is first asked for, and then for all who ask.

    Parameters
    ----------
    truth, neighbors, threads
        As for `row_graph`.
    """

    def __init__(
        self, truth: FloatArray | Geometry, *, neighbors: int = LARGEST_K, threads: int | None = None
    ) -> None:
        self.rows = len(truth) if isinstance(truth, np.ndarray) else truth.rows
        self._truth, self._neighbors, self._threads = truth, neighbors, threads
        self._found: NeighborGraph | None = None
        self._around: Around | None = None

    def graph(self, progress: Progress) -> NeighborGraph:
        """The graph; of a search ``progress`` hears how far it is, in blocks."""
        if self._found is None:
            self._found = row_graph(
                self._truth, neighbors=self._neighbors, threads=self._threads, progress=progress
            )
        return self._found

    def around(self, geometry: Geometry, own: Int64Array, progress: Progress) -> Around:
        """The same of the rows ``own`` (sampled,) alone; ``geometry`` is the truth, as whoever asks has it."""
        if self._around is None or not np.array_equal(self._around.own, own):
            size = min(self._neighbors, self.rows - 1)
            self._around = nearest_to(geometry, own, size, threads=self._threads, progress=progress)
        return self._around


@dataclass(kw_only=True, frozen=True, eq=False)
class Examination:
    """One evaluation of one `Evidence`: searches, splits and clusterings, each computed once, when first needed.

    ``neighbors`` are those that the graphs of rows hold; ``progress`` hears how far a search of them is, in blocks;
    past ``exact_rows`` rows ``sampled_rows`` of them are looked at, as `sample` says.
    ``kept`` are the shares (rows,) of its neighbours that each row keeps, by the name of the metric that is their mean,
    as far as one was computed, and of all rows.
    """

    evidence: Evidence
    threads: int | None = None
    neighbors: int = LARGEST_K
    progress: Progress = field(default=unheard, repr=False)
    exact_rows: int = EXACT_ROWS
    sampled_rows: int = SAMPLED_ROWS
    kept: dict[str, Float64Array] = field(default_factory=dict, init=False, repr=False)
    _shared: dict[Callable[..., Any], Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, compute: Callable[[Examination], Shared]) -> Shared:
        """Result of ``compute`` on this examination, for the metrics that share it: computed when first asked for."""
        if compute not in self._shared:
            self._shared[compute] = compute(self)
        return cast(Shared, self._shared[compute])

    @cached_property
    def count(self) -> int:
        """Number of rows."""
        return len(self.evidence.rows)

    @cached_property
    def sample(self) -> Sample | None:
        """Rows that metrics look at where there are too many; None where they look at all.

        Each class, and inside of it each client, has its share of them.
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
        """As `sample`, of some of the rows alone: places in ``rows``."""
        strata = [stratum[rows] for stratum in self._strata]
        return drawn(rows.size, self.sampled_rows, self.evidence.seed, *strata)

    @cached_property
    def sample_of_sites(self) -> SampledGroups:
        """Rows of each site, as many of a small one as of a large one."""
        return drawn_by_group(self.sites, self.sampled_rows, self.evidence.seed)

    @cached_property
    def rows(self) -> Float64Array:
        """The data in float64, (rows, features), seen from near their mean: at an offset, products lose their digits.

        Data on a grid stay there (`common_shift`), with all their ties.
        """
        table = np.ascontiguousarray(self.evidence.rows, dtype=np.float64)
        return np.asarray(table - common_shift(table))

    @cached_property
    def truth(self) -> Geometry:
        """The true geometry of the rows: their own Euclidean one, in float64, unless the evidence gives another.

        Where rows are sampled, the table as it is: it is not copied, and what is looked at is in float64.
        """
        if self.evidence.truth is not None:
            return self.evidence.truth
        return Points(self.rows if self.sample is None else self.evidence.rows)

    @property
    def recovered(self) -> Geometry:
        """The geometry that the server recovered; `UnmeasurableError` if it recovered none."""
        if self.evidence.recovered is None:
            raise UnmeasurableError("the method recovers no geometry of the rows")
        return self.evidence.recovered

    @cached_property
    def mapped(self) -> Geometry:
        """The geometry of the map: the Euclidean one of its positions, unless the evidence gives another."""
        return Points(self.embedding) if self.evidence.mapped is None else self.evidence.mapped

    @cached_property
    def rounded_truth(self) -> Rounded:
        """`truth`, as ties are found in it."""
        return Rounded(lambda: self.truth)

    @cached_property
    def rounded_map(self) -> Rounded:
        """`mapped`, as ties are found in it."""
        return Rounded(lambda: self.mapped)

    @cached_property
    def embedding(self) -> Float64Array:
        """The map in float64, (rows, 2 or 3)."""
        return np.ascontiguousarray(self.evidence.embedding, dtype=np.float64)

    @cached_property
    def labels(self) -> Int64Array:
        """The classes as 0, 1, ... (rows,); `UnmeasurableError` where most rows have a label of their own."""
        if self.evidence.labels is None:
            raise UnmeasurableError("the data have no labels")
        _, found, sizes = np.unique(self.evidence.labels, return_inverse=True, return_counts=True)
        alone = int((sizes == 1).sum())
        if 2 * alone > len(found):
            raise UnmeasurableError(
                f"the label has a value of its own in {alone:,} of {len(found):,} rows: a quantity or an identity,"
                " which makes no classes"
            )
        return np.asarray(found, dtype=np.int64)

    @cached_property
    def classes(self) -> int:
        """Number of classes; `UnmeasurableError` if there is only one."""
        classes = int(self.labels.max()) + 1
        if classes < 2:
            raise UnmeasurableError("all rows have the same label")
        return classes

    @cached_property
    def sites(self) -> Int64Array:
        """Who holds each row, as 0, 1, ... (rows,); `UnmeasurableError` if one client holds all."""
        if self.evidence.sites is None:
            raise UnmeasurableError("nobody says which client holds which row")
        sites = np.asarray(np.unique(self.evidence.sites, return_inverse=True)[1], dtype=np.int64)
        if len(sites) == 0 or sites.max() == 0:
            raise UnmeasurableError("all rows are one client's")
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
    def around_in_truth(self) -> Around:
        """Neighbours in the data of the sampled rows."""
        given, own = self.evidence.row_neighbors, self.sampled
        if isinstance(given, SharedGraph):
            return given.around(self.truth, own, self.progress)
        return self.around(self.truth)

    @cached_property
    def around_on_map(self) -> Around:
        """Neighbours in the map of the sampled rows."""
        return self.around(self.mapped)

    def around(self, geometry: Geometry) -> Around:
        """Neighbours of the sampled rows, among all rows of any geometry."""
        size = min(self.neighbors, self.count - 1)
        return nearest_to(geometry, self.sampled, size, threads=self.threads, progress=self.progress)

    @property
    def sampled(self) -> Int64Array:
        """The rows that are looked at, ascending."""
        return np.arange(self.count) if self.sample is None else self.sample.rows

    def _graph(self, truth: FloatArray | Geometry) -> NeighborGraph:
        return row_graph(truth, neighbors=self.neighbors, threads=self.threads, progress=self.progress)

    def true_neighbors(self, k: int) -> NeighborGraph:
        """Return ``k`` neighbours in the data or more: one more shows whether the last is tied."""
        self.require_neighbors(k)
        if self.row_neighbors.k < k:
            raise UnmeasurableError(
                f"the given row_neighbors hold {self.row_neighbors.k} neighbours, not {k}"
            )
        return self.row_neighbors

    def map_neighbors(self, k: int) -> NeighborGraph:
        """Return ``k`` neighbours in the map, or more."""
        self.require_neighbors(k)
        return self.embedding_neighbors

    def require_neighbors(self, k: int) -> None:
        """Raise `UnmeasurableError` unless every row has ``k`` others."""
        if self.count <= k:
            raise UnmeasurableError(f"{k} neighbours need at least {k + 1} rows; there are {self.count}")

    @cached_property
    def split(self) -> tuple[Int64Array, Int64Array]:
        """Training and test rows, 70:30, seeded; stratified by class where every class has two rows."""
        from sklearn.model_selection import train_test_split

        test_rows = int(np.ceil(0.3 * self.count))
        if test_rows >= self.count:
            raise UnmeasurableError(f"a 70:30 split needs at least 2 rows; there is {self.count}")
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
        """Of the rows that were held out, among themselves; `UnmeasurableError` if none were placed on the map."""
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
        """The clusters that the method itself makes, (rows,); `UnmeasurableError` if it makes none."""
        if self.evidence.clusters is None:
            raise UnmeasurableError("the method makes no clusters of its own")
        return self.evidence.clusters

    @cached_property
    def clusters(self) -> Int64Array:
        """K-means clusters of the map, (rows,): as many as classes, best of 10 seeded starts.

        Where rows are sampled, the best of 10 of `STARTING_ROWS` rows, from which all rows' clusters are found: the
        same clusters or ones as good, in a tenth of the time.

        On one thread: scikit-learn's k-means adds up centres in an order that depends on their number.
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
