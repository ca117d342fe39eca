"""t-SNE by openTSNE, computed from a neighbour graph."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field

from raydr.arrays import Float64Array, FloatArray
from raydr.embedding.embedder import GraphSettings, embedder, fitting, perplexity_for
from raydr.embedding.initialization import tsne_start
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import Progress, unheard
from raydr.signals import signals_deferred
from raydr.threads import one_blas_thread

_CALLBACK_ITERATIONS = 50
"""Iterations between two callbacks: openTSNE also evaluates its objective for each."""
_INTERPOLATED_ROWS = 10_000
"""Number of rows from which openTSNE chooses FFT interpolation."""
_SHARED_ROWS = 300
"""Number of rows from which threads share an iteration. With fewer rows an iteration takes at most 1.5 ms,
and waiting threads on a busy machine cost more."""


@embedder
class TSNE(GraphSettings):
    """t-SNE as openTSNE computes it.

    The defaults are openTSNE's; the default learning rate is that of Belkina et al. (2019). Attraction uses
    k = 3 * perplexity neighbours of each row. As in openTSNE, repulsion is computed by Barnes-Hut below 10,000
    rows and for maps of 3 dimensions, by FFT interpolation otherwise.

    Examples
    --------
    >>> TSNE().neighbors_needed(10_000)
    90
    >>> TSNE().neighbors_needed(10)
    9
    """

    kind: Literal["tsne"] = "tsne"
    perplexity: float | None = Field(
        None, ge=1, description="perplexity; default: 30, or (rows - 1) / 3 if that is less"
    )
    early_exaggeration: float = Field(12.0, ge=1, description="factor on attraction in the early iterations")
    exaggeration: float = Field(1.0, ge=1, description="factor on attraction after the early iterations")
    learning_rate: float | None = Field(None, gt=0, description="learning rate; default: rows / exaggeration")
    early_iterations: int = Field(250, ge=0, description="iterations with early exaggeration")
    iterations: int = Field(500, ge=0, description="iterations after the early ones")

    def effective_perplexity(self, rows: int) -> float:
        """Return the perplexity for this many rows; see :func:`perplexity_for`."""
        return perplexity_for("t-SNE", self.perplexity, rows)

    def neighbors_needed(self, rows: int) -> int:
        """Return 3 * perplexity, as in openTSNE; see :meth:`raydr.embedding.Embedder.neighbors_needed`."""
        return int(3 * self.effective_perplexity(rows))

    def embed(
        self,
        graph: NeighborGraph,
        initialization: FloatArray,
        *,
        seed: int,
        threads: int = 1,
        progress: Progress = unheard,
    ) -> Float64Array:
        """Lay out the graph as ``openTSNE.TSNE.fit`` does; see :meth:`raydr.embedding.Embedder.embed`.

        The seed draws only the jitter of the initial layout. Threads share the affinities, the attraction and
        the repulsion row by row. No parallel sum crosses rows, so the result does not depend on the number of
        threads.
        """
        rows = graph.rows
        nearest = fitting(graph, initialization, self.neighbors_needed(rows))
        # FFT interpolation exists for maps of one and two dimensions only.
        if initialization.shape[1] == 2 and rows >= _INTERPOLATED_ROWS:
            return self._interpolated(nearest, initialization, seed, threads, progress)
        return self._by_tree(nearest, initialization, seed, threads, progress)

    def _interpolated(
        self, nearest: NeighborGraph, initialization: FloatArray, seed: int, threads: int, progress: Progress
    ) -> Float64Array:
        """Run openTSNE's iterations with shared threads: half the time and half the memory with two threads."""
        from raydr.embedding.kernels.affinities import joint_affinities, local_order
        from raydr.embedding.kernels.interpolation import Phase, descend

        progress(0, self.early_iterations + self.iterations)
        order = local_order(nearest)
        layout = tsne_start(initialization, seed)[order]
        phases = [
            Phase(iterations, exaggeration, self.learning_rate or nearest.rows / exaggeration)
            for iterations, exaggeration in (
                (self.early_iterations, self.early_exaggeration),
                (self.iterations, self.exaggeration),
            )
        ]
        with one_blas_thread():
            perplexity = self.effective_perplexity(nearest.rows)
            affinities = joint_affinities(nearest, perplexity, threads, order)
            descend(layout, affinities, phases, threads=threads, progress=progress)
        drawn = np.empty_like(layout)
        drawn[order] = layout
        return drawn

    def _by_tree(
        self, nearest: NeighborGraph, initialization: FloatArray, seed: int, threads: int, progress: Progress
    ) -> Float64Array:
        """Run ``openTSNE.TSNE.fit``."""
        import openTSNE
        from openTSNE.affinity import PerplexityBasedNN
        from openTSNE.nearest_neighbors import PrecomputedNeighbors

        rows = nearest.rows
        total = self.early_iterations + self.iterations
        workers = threads if rows >= _SHARED_ROWS else 1
        progress(0, total)
        with one_blas_thread():
            affinities = PerplexityBasedNN(
                knn_index=PrecomputedNeighbors(nearest.indices, nearest.distances),
                perplexity=self.effective_perplexity(rows),
                n_jobs=workers,
            )
            layout = openTSNE.TSNE(
                n_components=initialization.shape[1],
                early_exaggeration=self.early_exaggeration,
                exaggeration=self.exaggeration,
                learning_rate="auto" if self.learning_rate is None else self.learning_rate,
                early_exaggeration_iter=self.early_iterations,
                n_iter=self.iterations,
                negative_gradient_method=_barnes_hut,
                n_jobs=workers,
                callbacks=None
                if progress is unheard
                else _IterationReport(progress, total, self.early_iterations),
                callbacks_every_iters=_CALLBACK_ITERATIONS,
            ).fit(affinities=affinities, initialization=tsne_start(initialization, seed))
        progress(total, total)
        return np.array(layout, dtype=np.float64)


def _barnes_hut(*arguments: Any, **options: Any) -> Any:
    """Return openTSNE's Barnes-Hut objective.

    Its tree crashes the process if a signal handler raises during construction.
    """
    from openTSNE.tsne import kl_divergence_bh

    with signals_deferred():
        return kl_divergence_bh(*arguments, **options)


class _IterationReport:
    """openTSNE callback that adds up the iterations of the phases, because each phase counts from one."""

    def __init__(self, progress: Progress, total: int, early_iterations: int) -> None:
        self._progress = progress
        self._total = total
        self._phase_starts = iter((0, early_iterations))
        self._before_phase = 0

    def optimization_about_to_start(self) -> None:
        self._before_phase = next(self._phase_starts)

    def __call__(self, iteration: int, error: float, embedding: Float64Array) -> bool:
        done = self._before_phase + iteration
        if done < self._total:
            self._progress(done, self._total)
        return False
