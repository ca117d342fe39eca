"""UMAP by umap-learn, computed from a neighbour graph."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from raydr.arrays import Float32Array, FloatArray
from raydr.embedding.embedder import GraphSettings, embedder, fitting, neighbors_for
from raydr.embedding.initialization import umap_start
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import Progress, unheard
from raydr.threads import one_blas_thread

_FEW_ROWS = 10_000
"""Largest number of rows for which umap-learn's own layout, edge by edge, is used, and for which it runs more
epochs."""


@embedder
class UMAP(GraphSettings):
    """UMAP as umap-learn computes it.

    The defaults are umap-learn's, which counts the row itself among its neighbours.

    Examples
    --------
    >>> UMAP().neighbors_needed(10_000)
    14
    """

    kind: Literal["umap"] = "umap"
    neighbors: int | None = Field(
        None, ge=2, description="n_neighbors, counting the row itself; default: 15, or rows - 1"
    )
    min_dist: float = Field(
        0.1, ge=0, description="distance on the map below which neighbours are not pulled closer"
    )
    spread: float = Field(1.0, gt=0, description="scale of the map")
    epochs: int | None = Field(
        None, ge=1, description="passes over the edges; default: 500 up to 10,000 rows, else 200"
    )
    negative_samples: int = Field(5, ge=1, description="repulsive pairs per attractive pair")

    @model_validator(mode="after")
    def _no_farther_than_the_scale(self) -> UMAP:
        if self.min_dist > self.spread:
            raise ValueError(
                f"UMAP's min_dist is {self.min_dist!r}; it must be from 0 to spread, which is {self.spread:g}"
            )
        return self

    def effective_neighbors(self, rows: int) -> int:
        """Return the neighbourhood size for this many rows, counting the row itself; see :func:`neighbors_for`."""
        return neighbors_for("UMAP", "neighbors", self.neighbors, rows, default=15, least_rows=3)

    def neighbors_needed(self, rows: int) -> int:
        """Return the neighbourhood size without the row itself.

        See :meth:`raydr.embedding.Embedder.neighbors_needed`.
        """
        return self.effective_neighbors(rows) - 1

    def embed(
        self,
        graph: NeighborGraph,
        initialization: FloatArray,
        *,
        seed: int,
        threads: int = 1,
        progress: Progress = unheard,
    ) -> Float32Array:
        """Lay out the graph's fuzzy simplicial set; see :meth:`raydr.embedding.Embedder.embed`.

        Up to 10,000 rows, two public functions of umap-learn are called directly: its class also needs a data
        matrix and has a branch of rows x rows distances. ``threads`` is not used there, because umap-learn's
        parallel layout lets threads race on the positions. More rows are laid out by
        :mod:`raydr.embedding.kernels.fuzzy`, whose threads do not race. ``progress`` counts epochs. In a
        notebook's own process, where umap-learn draws its own bar or none, it is called at the start and at
        the end alone.
        """
        find_ab_params = _umap_learn().find_ab_params
        rows = graph.rows
        nearest = fitting(graph, initialization, self.neighbors_needed(rows))
        epochs = self.epochs if self.epochs is not None else (500 if rows <= _FEW_ROWS else 200)
        progress(0, epochs)
        similar = fuzzy_set(nearest)
        a, b = find_ab_params(self.spread, self.min_dist)
        start = umap_start(initialization, seed)
        if rows <= _FEW_ROWS:
            layout = self._one_by_one(similar, start, a, b, epochs, seed, progress)
        else:
            from raydr.embedding.kernels.fuzzy import lay_out

            layout = lay_out(
                similar,
                start,
                a=a,
                b=b,
                epochs=epochs,
                negative_samples=self.negative_samples,
                seed=seed,
                threads=threads,
                progress=progress,
            )
        progress(epochs, epochs)
        return layout

    def _one_by_one(
        self,
        similar: Any,
        start: Float32Array,
        a: float,
        b: float,
        epochs: int,
        seed: int,
        progress: Progress,
    ) -> Float32Array:
        """Return the layout (rows, dimensions) of a fuzzy set by umap-learn."""
        # umap-learn draws from the legacy generator; this one accepts any non-negative integer as a seed.
        random_state = np.random.RandomState(np.random.MT19937(np.random.SeedSequence(seed)))
        with one_blas_thread(), _one_numba_thread():
            layout, _ = _umap_learn().simplicial_set_embedding(
                data=None,  # read only by initialisations that umap-learn computes itself
                graph=similar,
                n_components=start.shape[1],
                initial_alpha=1.0,
                a=a,
                b=b,
                gamma=1.0,
                negative_sample_rate=self.negative_samples,
                n_epochs=epochs,
                init=start,
                random_state=random_state,
                metric="euclidean",
                metric_kwds={},
                densmap=False,
                densmap_kwds={},
                output_dens=False,
                parallel=False,
                tqdm_kwds=_reporting_bar(progress),
            )
        return np.asarray(layout, dtype=np.float32)


def fuzzy_set(graph: NeighborGraph) -> Any:
    """Return UMAP's similarity of rows by their neighbours: (rows, rows) float32, sparse and symmetric, from 0 to 1."""
    own = np.arange(graph.rows)
    with one_blas_thread(), _one_numba_thread():
        similar, _, _ = _umap_learn().fuzzy_simplicial_set(
            X=own[:, None],  # only its number of rows is read, because the neighbours are given
            n_neighbors=graph.k + 1,
            random_state=None,
            metric="euclidean",
            knn_indices=np.column_stack((own, graph.indices)),
            knn_dists=np.column_stack((np.zeros(graph.rows, np.float32), graph.distances)),
        )
    return similar


@functools.cache
def _umap_learn() -> Any:
    """Import umap-learn's module of public functions, and let numba cache what it compiles.

    umap-learn compiles three functions in every process: 18 s on two cores, and under 1 s from the cache.
    """
    from umap import layouts, umap_

    for module, name in (
        (umap_, "smooth_knn_dist"),
        (umap_, "compute_membership_strengths"),
        (layouts, "_nb_optimize_layout_euclidean_single_epoch"),
    ):
        # Other versions may lack the function, and there may be no folder to write to.
        with suppress(AttributeError, RuntimeError):
            getattr(module, name).enable_caching()
    return umap_


def _reporting_bar(progress: Progress) -> dict[str, Any]:
    """Return arguments that make umap-learn's progress bar report to ``progress`` and draw nothing."""
    from tqdm.auto import tqdm
    from tqdm.notebook import tqdm_notebook

    if progress is unheard or issubclass(tqdm, tqdm_notebook):
        return {"disable": True}
    return {"disable": False, "file": _Epochs(progress), "bar_format": "{n} {total}", "leave": False}


class _Epochs:
    """File object to which tqdm writes its progress."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def write(self, text: str) -> int:
        """Report the progress in a bar of the form ``{n} {total}``; ignore cursor movements."""
        words = text.split()
        if len(words) == 2 and words[0] != "0":
            self._progress(int(words[0]), int(words[1]))
        return len(text)

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""


@contextmanager
def _one_numba_thread() -> Iterator[None]:
    """Run numba's parallel kernels on one thread: umap-learn's use all cores, and one sums across threads."""
    import numba

    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        yield
    finally:
        numba.set_num_threads(before)
