"""UMAP by umap-learn, from a neighbour graph."""

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
"""Rows up to which umap-learn takes more epochs, and lays out one edge after the other."""


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
        None, ge=2, description="n_neighbors, the row included; default: 15, or rows - 1"
    )
    min_dist: float = Field(0.1, ge=0, description="least distance in the map that neighbours are drawn to")
    spread: float = Field(1.0, gt=0, description="scale of the map")
    epochs: int | None = Field(None, ge=1, description="default: 500 up to 10,000 rows, else 200")
    negative_samples: int = Field(5, ge=1, description="repulsions for each attraction")

    @model_validator(mode="after")
    def _no_farther_than_the_scale(self) -> UMAP:
        if self.min_dist > self.spread:
            raise ValueError(
                f"UMAP's min_dist is {self.min_dist!r}; it must lie between 0 and spread, which is {self.spread:g}"
            )
        return self

    def effective_neighbors(self, rows: int) -> int:
        """Neighbourhood size used for this many rows, counting the row itself; see :func:`neighbors_for`."""
        return neighbors_for("UMAP", "neighbors", self.neighbors, rows, default=15, least_rows=3)

    def neighbors_needed(self, rows: int) -> int:
        """The neighbourhood without the row itself; see :meth:`raydr.embedding.Embedder.neighbors_needed`."""
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
        """Lay the graph's fuzzy simplicial set out; see :meth:`raydr.embedding.Embedder.embed`.

        Up to 10,000 rows umap-learn's two public steps are called directly: its class wants a data matrix beside the
        graph and has a branch of rows x rows distances. ``threads`` is not used there: umap-learn's parallel layout
        lets threads race on the positions. More rows are laid out by :mod:`raydr.embedding.kernels.fuzzy`, whose
        threads do not. ``progress`` is in epochs; in a notebook's own process, where umap-learn draws a bar of its own
        or none, it is called at the start and at the end alone.
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
        """Layout (rows, dimensions) of a fuzzy set by umap-learn."""
        # umap-learn draws from the legacy generator; this one is seeded from any non-negative integer.
        random_state = np.random.RandomState(np.random.MT19937(np.random.SeedSequence(seed)))
        with one_blas_thread(), _one_numba_thread():
            layout, _ = _umap_learn().simplicial_set_embedding(
                data=None,  # read by initialisations that umap-learn computes itself
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
                tqdm_kwds=_told_to(progress),
            )
        return np.asarray(layout, dtype=np.float32)


def fuzzy_set(graph: NeighborGraph) -> Any:
    """How similar rows are by their neighbours, as UMAP has it: (rows, rows) float32, sparse and symmetric, 0 to 1."""
    own = np.arange(graph.rows)
    with one_blas_thread(), _one_numba_thread():
        similar, _, _ = _umap_learn().fuzzy_simplicial_set(
            X=own[:, None],  # read for its number of rows only, since the neighbours are given
            n_neighbors=graph.k + 1,
            random_state=None,
            metric="euclidean",
            knn_indices=np.column_stack((own, graph.indices)),
            knn_dists=np.column_stack((np.zeros(graph.rows, np.float32), graph.distances)),
        )
    return similar


@functools.cache
def _umap_learn() -> Any:
    """Import umap-learn's module of public steps, and have numba keep what it compiles of it.

    umap-learn compiles these three functions in every process: 18 s on two cores, and under 1 s where they are kept.
    """
    from umap import layouts, umap_

    for module, name in (
        (umap_, "smooth_knn_dist"),
        (umap_, "compute_membership_strengths"),
        (layouts, "_nb_optimize_layout_euclidean_single_epoch"),
    ):
        # A version may not have it, and there may be no folder to write to.
        with suppress(AttributeError, RuntimeError):
            getattr(module, name).enable_caching()
    return umap_


def _told_to(progress: Progress) -> dict[str, Any]:
    """What has umap-learn's bar of epochs tell us how far it is, and draw nothing."""
    from tqdm.auto import tqdm
    from tqdm.notebook import tqdm_notebook

    if progress is unheard or issubclass(tqdm, tqdm_notebook):
        return {"disable": True}
    return {"disable": False, "file": _Epochs(progress), "bar_format": "{n} {total}", "leave": False}


class _Epochs:
    """A file to which tqdm writes how far it is."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def write(self, text: str) -> int:
        """Tell what a bar of the form ``{n} {total}`` says; what moves the cursor says nothing."""
        words = text.split()
        if len(words) == 2 and words[0] != "0":
            self._progress(int(words[0]), int(words[1]))
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""


@contextmanager
def _one_numba_thread() -> Iterator[None]:
    """Run numba's parallel kernels on one thread: umap-learn's take all cores, and one sums across threads."""
    import numba

    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        yield
    finally:
        numba.set_num_threads(before)
